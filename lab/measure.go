package lab

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/loomfabric/loom/config/fabric"
	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/internal/measure"
	"github.com/loomfabric/loom/internal/spread"
	"github.com/loomfabric/loom/internal/workload"
)

// mark is the boundary of two phases. A phase lasts from one fault to the next.
type mark struct {
	name string
	at   time.Duration
	sent [][]uint64 // bytes by leaf and uplink, so far
	up   []bool     // by link, in the phase that begins here
}

// mark begins a phase.
func (r *runner) mark(ctx context.Context, name string, at time.Duration) error {
	m := mark{name: name, at: at}
	for _, n := range r.lab.Topo.Leaves {
		sent, err := r.lab.uplinkBytes(ctx, n)
		if err != nil {
			return err
		}
		m.sent = append(m.sent, sent)
	}
	r.marks = append(r.marks, m)
	return r.noteLinks()
}

// noteLinks notes which links are up in the current phase.
func (r *runner) noteLinks() (err error) {
	r.marks[len(r.marks)-1].up, err = r.lab.linkState()
	return err
}

// uplinkBytes reads what a leaf has sent over each uplink: from its daemon, or from
// the interfaces when the kernel forwards.
func (l *Lab) uplinkBytes(ctx context.Context, leaf fabric.Node) (out []uint64, err error) {
	sent := map[string]uint64{}
	if l.kernel() || l.File.KernelLeaf(leaf.Name) {
		err = l.in(leaf.Name, func() error {
			links, err := netlink.LinkList()
			for _, dev := range links {
				if s := dev.Attrs().Statistics; s != nil {
					sent[dev.Attrs().Name] = s.TxBytes
				}
			}
			return err
		})
	} else if s, serr := l.stats(ctx, leaf.Name); serr != nil {
		err = serr
	} else {
		for i, p := range s.Ports {
			for _, w := range s.Workers {
				sent[p.Name] += w.Ports[i].Sent.Bytes
			}
		}
	}
	for _, p := range l.ports(leaf) {
		out = append(out, sent[p.Name])
	}
	return out, err
}

// upAt returns which links were up at a time.
func (r *runner) upAt(t time.Duration) []bool {
	for _, m := range slices.Backward(r.marks[1:]) {
		if m.at <= t {
			return m.up
		}
	}
	return r.marks[0].up
}

// phases reports what the leaves sent from one mark to the next, and altogether.
func (r *runner) phases() {
	first, last := r.marks[0], r.marks[len(r.marks)-1]
	for leaf, n := range r.lab.Topo.Leaves {
		var shares []measure.LinkShare
		for j, p := range r.lab.ports(n) {
			shares = append(shares, measure.LinkShare{Link: egress(r.lab.Topo.Links[p.link].Name), Bytes: last.sent[leaf][j] - first.sent[leaf][j]})
		}
		measure.Share(shares)
		r.rep.Result.Uplinks = append(r.rep.Result.Uplinks, shares...)
	}
	for i, a := range r.marks[:len(r.marks)-1] {
		b := r.marks[i+1]
		ph := Phase{From: a.name, Start: a.at, End: b.at}
		for leaf, n := range r.lab.Topo.Leaves {
			lu := LeafUplinks{Leaf: n.Name}
			var live []uint64
			for j, p := range r.lab.ports(n) {
				u := UplinkBytes{Link: r.lab.Topo.Links[p.link].Name, Port: p.Name, Up: a.up[p.link], Bytes: b.sent[leaf][j] - a.sent[leaf][j]}
				lu.Uplinks = append(lu.Uplinks, u)
				if u.Up {
					live = append(live, u.Bytes)
				}
			}
			lu.Imbalance, _ = spread.Imbalance(live)
			ph.Leaves = append(ph.Leaves, lu)
		}
		r.rep.Phases = append(r.rep.Phases, ph)
	}
}

// lookup interpolates between the measured sizes. Beyond the largest it goes on with
// the slope of the last two.
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

// idleFlows is how often each size is measured. The fastest flow counts.
const idleFlows = 3

// idleOf returns where the report says how long flows of a workload take over the
// idle fabric; nil if nobody measures that, as for RDMA.
func (r *Report) idleOf(w *vocab.Workload) *[]IdlePoint {
	switch {
	case w.Type == vocab.Incast || w.Type == vocab.Poisson && w.Pool:
		return &r.IdlePersistent
	case w.Type == vocab.Poisson:
		return &r.IdleFresh
	}
	return nil
}

// measureIdle measures flows between one pair of hosts while nothing else is on the
// fabric.
func (r *runner) measureIdle(ctx context.Context) error {
	client, server := r.farPair()
	for i := range r.lab.File.Workloads {
		w := &r.lab.File.Workloads[i]
		into := r.rep.idleOf(w)
		if server == nil || into == nil || *into != nil {
			continue
		}
		r.rep.IdlePair = client.Name + " from " + server.Name
		var err error
		if *into, err = r.fetchSizes(ctx, client, server, into == &r.rep.IdlePersistent); err != nil {
			return err
		}
	}
	return nil
}

// fetchSizes measures sizes by powers of ten until one takes long or the largest
// flow of the workloads is covered.
func (r *runner) fetchSizes(ctx context.Context, client, server *host, persistent bool) ([]IdlePoint, error) {
	var largest float64
	for i, w := range r.lab.File.Workloads {
		largest = max(largest, float64(w.Bytes))
		if c := r.cdfs[i]; c != nil {
			largest = max(largest, c.Max())
		}
	}
	var out []IdlePoint
	for n := uint64(1000); ; n *= 10 {
		best, err := client.fetch(ctx, server, n, persistent)
		if err != nil {
			return nil, fmt.Errorf("fetch %d bytes from %s to %s: %w", n, server.Name, client.Name, err)
		}
		out = append(out, IdlePoint{Bytes: n, FCT: best})
		if float64(n) >= largest || best > 150*time.Millisecond {
			return out, nil
		}
	}
}

// fetch asks for a few flows of one size, one after the other, and returns the
// shortest completion time, measured as those of a workload's flows. Persistent
// flows use one connection that has already carried a flow.
func (h *host) fetch(ctx context.Context, server *host, bytes uint64, persistent bool) (best time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	alone := newLoad(time.Now(), 0, make([]vocab.Workload, 1), make([]*workload.CDF, 1))
	t := &task{work: alone.works[0], at: h}
	p := newPool(persistent)
	defer p.close()
	if persistent {
		if err := t.one(ctx, p, server, bytes); err != nil {
			return 0, err
		}
	}
	for i := range idleFlows {
		start := time.Now()
		if err := t.one(ctx, p, server, bytes); err != nil {
			return 0, err
		}
		if took := time.Since(start); i == 0 || took < best {
			best = took
		}
	}
	return best, nil
}

// farPair picks two hosts of one VNI, behind different leaves if there are any. The
// server is nil if no host has a partner.
func (r *runner) farPair() (client, server *host) {
	for _, pairs := range []string{"racks", "any"} {
		for i, h := range r.hosts {
			if p := r.peers(i, r.everyone(), pairs); len(p) > 0 {
				return h, p[0]
			}
		}
	}
	return nil, nil
}

// daemons reads every daemon's final account and what it dropped. Nobody keeps an
// account when the kernel forwards.
func (r *runner) daemons(ctx context.Context) error {
	for _, n := range r.lab.withDaemon() {
		s, err := r.lab.stats(ctx, n.Name)
		if err != nil {
			return err
		}
		d := DaemonReport{Node: n.Name, Drops: s.Drops}
		for _, w := range s.Workers {
			d.Account.Add(w.Account())
			for _, s := range w.Schemes {
				d.addScheme(s.Scheme, s.Stats)
			}
			for _, p := range w.Ports {
				d.Marked += p.Marked.Frames
				d.CERaised += p.CERaised
			}
		}
		for _, p := range s.Ports {
			if !p.Open {
				d.Closed = append(d.Closed, p.Name)
			}
		}
		d.Balanced = d.Account.Balances()
		r.rep.Daemons = append(r.rep.Daemons, d)
	}
	r.rep.counters()
	return nil
}
