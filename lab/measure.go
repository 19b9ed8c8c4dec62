package lab

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/loomfabric/loom/config/fabric"
	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/internal/spread"
)

// sortedFaults orders faults by time; those of one instant keep the file's
// order.
func sortedFaults(f []vocab.Fault) []vocab.Fault {
	out := slices.Clone(f)
	slices.SortStableFunc(out, func(a, b vocab.Fault) int { return int(a.At - b.At) })
	return out
}

// phases records the bytes that leaves have sent over each uplink at the
// boundaries of phases: from one fault to the next.
type phases struct {
	lab   *Lab
	marks []phaseMark
}

type phaseMark struct {
	name  string
	at    time.Duration
	bytes []uint64 // by link, sent by the leaf
	up    []bool   // by link, in the phase that begins here
}

// mark begins a phase.
func (p *phases) mark(ctx context.Context, name string, at time.Duration) error {
	bytes, err := p.lab.uplinkBytes(ctx)
	if err != nil {
		return err
	}
	p.marks = append(p.marks, phaseMark{name: name, at: at, bytes: bytes})
	return p.state()
}

// state notes which links are up in the current phase.
func (p *phases) state() error {
	up, err := p.lab.linkState()
	p.marks[len(p.marks)-1].up = up
	return err
}

// uplinkBytes reads what the leaves have sent over each link.
func (l *Lab) uplinkBytes(ctx context.Context) ([]uint64, error) {
	out := make([]uint64, len(l.Topo.Links))
	for _, n := range l.Topo.Leaves {
		sent, err := l.sentBytes(ctx, n.Name)
		if err != nil {
			return nil, err
		}
		for _, k := range l.Topo.Links {
			if k.Leaf == n.Index {
				out[k.Index] = sent[k.LeafPort]
			}
		}
	}
	return out, nil
}

// sentBytes reads what a node has sent by interface: from its daemon, or from
// the interfaces when the kernel forwards.
func (l *Lab) sentBytes(ctx context.Context, node string) (map[string]uint64, error) {
	sent := map[string]uint64{}
	if !l.kernel() {
		s, err := l.stats(ctx, node)
		if err != nil {
			return nil, err
		}
		for i, p := range s.Ports {
			for _, w := range s.Workers {
				sent[p.Name] += w.Ports[i].Sent.Bytes
			}
		}
		return sent, nil
	}
	h, err := openNS(l.ns(node))
	if err != nil {
		return nil, err
	}
	defer h.Close()
	links, err := h.LinkList()
	if err != nil {
		return nil, fmt.Errorf("interfaces of %s: %w", node, err)
	}
	for _, dev := range links {
		if s := dev.Attrs().Statistics; s != nil {
			sent[dev.Attrs().Name] = s.TxBytes
		}
	}
	return sent, nil
}

// upAt tells which links were up at a time.
func (p *phases) upAt(t time.Duration) []bool {
	for i := len(p.marks) - 1; i > 0; i-- {
		if p.marks[i].at <= t {
			return p.marks[i].up
		}
	}
	return p.marks[0].up
}

func (p *phases) report() []Phase {
	var out []Phase
	for i := 0; i+1 < len(p.marks); i++ {
		a, b := p.marks[i], p.marks[i+1]
		ph := Phase{From: a.name, Start: a.at, End: b.at}
		for leaf, n := range p.lab.Topo.Leaves {
			lu := LeafUplinks{Leaf: n.Name}
			var live []uint64
			for _, k := range p.lab.Topo.Links {
				if k.Leaf != leaf {
					continue
				}
				sent := b.bytes[k.Index] - a.bytes[k.Index]
				lu.Uplinks = append(lu.Uplinks, UplinkBytes{Link: k.Name, Port: k.LeafPort, Up: a.up[k.Index], Bytes: sent})
				if a.up[k.Index] {
					live = append(live, sent)
				}
			}
			lu.Imbalance, _ = spread.Imbalance(live)
			ph.Leaves = append(ph.Leaves, lu)
		}
		out = append(out, ph)
	}
	return out
}

// idleTable is the completion time of single flows over the idle fabric, by
// size, ascending; one for flows with a connection of their own, one for
// persistent connections.
type idleTable struct {
	fresh, persistent []IdlePoint
}

// lookup interpolates between the measured sizes, and goes on beyond the
// largest with the slope of the last two.
func lookup(points []IdlePoint, bytes uint64) time.Duration {
	if len(points) == 0 {
		return 0
	}
	i := sort.Search(len(points), func(i int) bool { return points[i].Bytes >= bytes })
	if i == 0 || len(points) == 1 {
		return points[0].FCT
	}
	i = min(i, len(points)-1)
	a, b := points[i-1], points[i]
	slope := float64(b.FCT-a.FCT) / float64(b.Bytes-a.Bytes)
	return a.FCT + time.Duration(slope*(float64(bytes)-float64(a.Bytes)))
}

// idleFlows is how often each size is measured; the fastest counts.
const idleFlows = 3

// measureIdle fetches flows of representative sizes between one pair of hosts
// of different leaves (of the same, if no VNI spans two) while nothing else is
// on the fabric.
func (r *runner) measureIdle(ctx context.Context, rep *Report) error {
	fresh, persistent := false, false
	for _, w := range r.lab.File.Workloads {
		fresh = fresh || w.Type == vocab.Poisson && !w.Pool
		persistent = persistent || w.Type == vocab.Incast || w.Pool
	}
	client, server, ok := r.farPair()
	if !ok || !fresh && !persistent {
		return nil
	}
	rep.IdlePair = client.Name + " from " + server.Name
	for _, m := range []struct {
		do         bool
		persistent bool
		into       *[]IdlePoint
	}{{fresh, false, &r.idle.fresh}, {persistent, true, &r.idle.persistent}} {
		if !m.do {
			continue
		}
		points, err := r.fetchSizes(ctx, client, server, m.persistent)
		if err != nil {
			return err
		}
		*m.into = points
	}
	rep.IdleFresh, rep.IdlePersistent = r.idle.fresh, r.idle.persistent
	return nil
}

// fetchSizes measures sizes by powers of ten until one takes long or the
// largest flow of the workloads is covered.
func (r *runner) fetchSizes(ctx context.Context, client, server fabric.Host, persistent bool) ([]IdlePoint, error) {
	var largest float64
	for i, w := range r.lab.File.Workloads {
		largest = max(largest, float64(w.Bytes))
		if c := r.cdfs[i]; c != nil {
			largest = max(largest, c.Max())
		}
	}
	var out []IdlePoint
	for n := uint64(1000); ; n *= 10 {
		spec := &fetchSpec{Server: server.Addr.Addr().String(), Bytes: n, Count: idleFlows, Persistent: persistent}
		var best time.Duration
		err := each(ctx, r.agents, func(a *hostAgent) *request {
			if a.host.Index != client.Index {
				return nil
			}
			return &request{Op: opFetch, Fetch: spec}
		}, func(_ *hostAgent, rp *reply) error {
			best = slices.Min(rp.FCTs)
			return nil
		})
		if err != nil {
			return nil, err
		}
		out = append(out, IdlePoint{Bytes: n, FCT: best})
		if float64(n) >= largest || best > 150*time.Millisecond {
			return out, nil
		}
	}
}

// farPair picks two hosts of one VNI, behind different leaves if there are any.
func (r *runner) farPair() (client, server fabric.Host, ok bool) {
	for _, a := range r.lab.Topo.Hosts {
		for _, b := range r.lab.Topo.Hosts {
			if a.Index == b.Index || a.VNI != b.VNI {
				continue
			}
			if a.Leaf != b.Leaf {
				return a, b, true
			}
			if !ok {
				client, server, ok = a, b, true
			}
		}
	}
	return client, server, ok
}

// daemons reads every daemon's final account and what it dropped.
func (r *runner) daemons(ctx context.Context, rep *Report) error {
	if r.lab.kernel() {
		return nil // nobody keeps an account
	}
	for _, n := range r.lab.nodes() {
		s, err := r.lab.stats(ctx, n.Name)
		if err != nil {
			return err
		}
		d := DaemonReport{Node: n.Name, Drops: map[string]uint64{}}
		for _, w := range s.Workers {
			d.Account.Add(w.Account())
			for _, s := range w.Schemes {
				d.Schemes = addScheme(d.Schemes, s.Scheme, s.Stats)
			}
			for _, p := range w.Ports {
				d.Marked += p.Marked.Frames
				d.CERaised += p.CERaised
				for reason, c := range p.Drops {
					if c > 0 {
						d.Drops[drop.Reason(reason).String()] += c
					}
				}
			}
		}
		for _, p := range s.Ports {
			if !p.Open {
				d.Closed = append(d.Closed, p.Name)
			}
		}
		d.Balanced = d.Account.Balances()
		rep.Daemons = append(rep.Daemons, d)
	}
	rep.counters()
	return nil
}
