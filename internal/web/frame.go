package web

import (
	"math"
	"time"

	"github.com/loomfabric/loom/internal/admin"
)

// frame says what the nodes said last, and how fast they counted since they were asked
// before.
func (m *model) frame(now time.Time) *Frame {
	f := &Frame{Type: "frame", Layout: m.layout.ID, Time: now.UnixMilli(), Why: map[int]string{}}
	known := make(map[string]*node)
	for i, n := range m.nodes {
		known[n.name] = n
		state := NodeReady
		switch why := n.why(); {
		case n.err != "":
			state, f.Why[i] = NodeSilent, why
		case why != "":
			state, f.Why[i] = NodeUnready, why
		}
		f.Nodes = append(f.Nodes, state)
		r := n.rates()
		f.HostIn, f.HostOut = append(f.HostIn, r.hostIn), append(f.HostOut, r.hostOut)
		f.Flowlets, f.Reorder, f.Drops = append(f.Flowlets, r.flowlets), append(f.Reorder, r.reorder), append(f.Drops, r.drops)
	}
	m.paths(f)
	for i, p := range m.pairs {
		a, b := known[p.a.node], known[p.b.node]
		up, down := load(a, p.a.port, b, p.b.port), load(b, p.b.port, a, p.a.port)
		f.Links, f.Up, f.Down = append(f.Links, linkState(p, a, b)), append(f.Up, up), append(f.Down, down)
		if f.Links[i] == LinkUp && m.dead(f, i) {
			f.Links[i] = LinkDead
		}
	}
	return f
}

// dead reports whether a path that starts with a link does not deliver.
func (m *model) dead(f *Frame, link int) bool {
	for i := range m.layout.Paths {
		if m.layout.Paths[i].Link == link && f.Paths[i] >= PathSilent && f.Paths[i] <= PathNarrow {
			return true
		}
	}
	return false
}

// linkState goes by the ends that answer.
func linkState(p pair, a, b *node) int {
	return max(portState(a, p.a.port), portState(b, p.b.port))
}

func portState(n *node, port string) int {
	if n == nil || n.err != "" {
		return LinkUnknown
	}
	if p := portOf(n.now, port); p == nil || !p.Up || !p.Open {
		return LinkDown
	}
	return LinkUp
}

// load returns what a port sends in bits a second: by its own count, or for want of it
// by the other end's. It is -1 if neither can tell.
func load(from *node, fromPort string, to *node, toPort string) int64 {
	if x := from.counted(fromPort, func(p *admin.Port) uint64 { return p.TxBytes }); x >= 0 {
		return 8 * x
	}
	if x := to.counted(toPort, func(p *admin.Port) uint64 { return p.RxBytes }); x >= 0 {
		return 8 * x
	}
	return -1
}

// counted returns how fast a counter of a port grows; -1: not known.
func (n *node) counted(port string, of func(*admin.Port) uint64) int64 {
	if n == nil || n.err != "" || n.last == nil {
		return -1
	}
	was, is := portOf(n.last, port), portOf(n.now, port)
	if was == nil || is == nil {
		return -1
	}
	return int64(math.Round(n.perSecond(of(was), of(is))))
}

// perSecond returns how fast a counter grows. One that fell began anew.
func (n *node) perSecond(was, is uint64) float64 {
	took := float64(n.now.Time-n.last.Time) / 1e9
	if is < was {
		was = 0
	}
	if took <= 0 {
		return 0
	}
	return math.Round(float64(is-was)/took*10) / 10
}

// paths fills the columns of paths.
func (m *model) paths(f *Frame) {
	type key struct {
		vtep   string
		uplink uint8
	}
	type path struct {
		state, metric int
		rtt, loss     int64
	}
	seen := make([]map[key]*path, len(m.nodes))
	for i, n := range m.nodes {
		if n.now == nil || n.err != "" {
			continue
		}
		seen[i] = make(map[key]*path)
		for _, peer := range n.now.Conga {
			for _, p := range peer.Paths {
				x := &path{state: PathUnusable, metric: int(max(p.Local, p.Remote))}
				if p.Usable {
					x.state = PathUnknown
				}
				seen[i][key{peer.VTEP.String(), p.Uplink}] = x
			}
		}
		for _, peer := range n.now.Paths {
			for _, p := range peer.Paths {
				if x := seen[i][key{peer.VTEP.String(), p.Uplink}]; x != nil {
					x.state, x.rtt, x.loss = pathStates[p.State], p.RoundTrip.Microseconds(), int64(math.Round(p.Loss*1e6))
				}
			}
		}
	}
	for _, p := range m.layout.Paths {
		x := seen[p.From][key{p.VTEP, p.Uplink}]
		if x == nil {
			x = &path{state: PathUnknown, metric: -1}
		}
		f.Paths, f.Metric = append(f.Paths, x.state), append(f.Metric, x.metric)
		f.RTT, f.Loss = append(f.RTT, x.rtt), append(f.Loss, x.loss)
	}
}

// rates are what a node counts for itself.
type rates struct {
	hostIn, hostOut int64
	flowlets        Flowlets
	reorder         Reorder
	drops           map[string]float64
}

func (n *node) rates() (r rates) {
	if n.now == nil || n.err != "" {
		return r
	}
	for _, c := range n.now.Receivers {
		r.reorder.Queues += c.Number("queues")
		r.reorder.Waiting += c.Number("waiting_frames")
		r.reorder.Bytes += c.Number("waiting_bytes")
		r.reorder.Limit = max(r.reorder.Limit, math.Round(1e6*real(c, "hold_limit_seconds")))
	}
	if n.last == nil {
		return r
	}
	for i := range n.now.Ports {
		p := &n.now.Ports[i]
		if was := portOf(n.last, p.Port); was != nil && !inFabric(p) {
			r.hostIn += int64(8 * n.perSecond(was.RxBytes, p.RxBytes))
			r.hostOut += int64(8 * n.perSecond(was.TxBytes, p.TxBytes))
		}
	}
	sum := func(of func(*admin.Snapshot) []admin.Counters, count func(admin.Counters) uint64) float64 {
		total := func(s *admin.Snapshot) (sum uint64) {
			for _, c := range of(s) {
				sum += count(c)
			}
			return sum
		}
		return n.perSecond(total(n.last), total(n.now))
	}
	schemes := func(s *admin.Snapshot) []admin.Counters { return s.Schemes }
	receivers := func(s *admin.Snapshot) []admin.Counters { return s.Receivers }
	named := func(name string) func(admin.Counters) uint64 {
		return func(c admin.Counters) uint64 { return c.Number(name) }
	}
	r.flowlets = Flowlets{sum(schemes, named("flowlets_started")), sum(schemes, named("flowlets_moved")), sum(schemes, named("flowlets_kept"))}
	r.reorder.Held, r.reorder.Late = sum(receivers, named("held_frames")), sum(receivers, unordered)
	wasNS, wasN := hold(n.last)
	if ns, count := hold(n.now); count > wasN {
		r.reorder.Hold = max(0, math.Round((ns-wasNS)/(count-wasN)/100)/10)
	}
	for reason, count := range n.now.Drops {
		if x := n.perSecond(n.last.Drops[reason], count); x > 0 {
			if r.drops == nil {
				r.drops = make(map[string]float64)
			}
			r.drops[reason] = x
		}
	}
	return r
}

// unordered counts the frames that a receiver sent on out of order.
func unordered(c admin.Counters) uint64 {
	n := c.Number("late_frames") + c.Number("no_flow_frames")
	for _, x := range c.Family("unordered_frames") {
		n += x
	}
	return n
}
