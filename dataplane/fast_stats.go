package dataplane

import (
	"time"

	"github.com/loomfabric/loom/bpf"
	"github.com/loomfabric/loom/internal/drop"
)

// FastState is what there is to know of a node's fast path.
type FastState struct {
	On     bool           `json:"on"`     // XDP forwards
	Reason string         `json:"reason"` // why it does not; "": it does
	Ports  []FastPortInfo `json:"ports"`  // by PortID, those that are there
	Choice FastAges       `json:"choice"` // a leaf's, where schemes go by congestion
}

// FastAges says how old the choice of uplinks that XDP goes by had become when it was made anew,
// while some were busier than others. With more than 64 peers each one's is made in turn.
type FastAges struct {
	Count uint64        `json:"count"`
	P50   time.Duration `json:"p50_ns"`
	P99   time.Duration `json:"p99_ns"`
	P999  time.Duration `json:"p99_9_ns"`
}

// FastPortInfo is what the fast path does with a port.
type FastPortInfo struct {
	Port   string            `json:"port"`
	In     string            `json:"in"`     // why frames that come by it are the workers'; "": they need not be
	Out    string            `json:"out"`    // likewise that leave by it
	Frames uint64            `json:"frames"` // that came by it and were forwarded
	Bytes  uint64            `json:"bytes"`
	Sent   uint64            `json:"sent_bytes"` // that were given to its driver
	Lost   uint64            `json:"lost"`       // frames that came by it, and that a driver did not take
	Slow   map[string]uint64 `json:"slow"`       // frames that came by it and went to the workers, by reason
}

// Fast returns what there is to know of the fast path.
func (n *Node) Fast() FastState {
	f := n.fast
	switch {
	case f == nil && n.cfg.FastPath == FastOff:
		return FastState{Reason: "fast_path is off"}
	case f == nil:
		return FastState{Reason: n.fastError}
	}
	s := FastState{On: f.tables.InForce() >= 0}
	if !s.On {
		s.Reason = "its tables are being filled, or the workers have frames of before"
	}
	if f.ears != nil {
		s.Choice = f.ages()
	}
	v := n.view.Load()
	f.mu.Lock()
	defer f.mu.Unlock()
	layout, ports := n.layout.Load(), f.states()
	for i := range layout.ports {
		if !layout.ports[i].taken() || i >= len(ports) {
			continue
		}
		p := FastPortInfo{Port: layout.ports[i].Name, In: ports[i].in, Out: notOpen, Sent: f.tables.Sent(i), Slow: make(map[string]uint64)}
		if f.ports[i].ifindex == 0 {
			p.In = notOpen
		}
		if v != nil && i < len(v.layout.ports) {
			p.Out = v.fastEgress(ports, PortID(i))
		}
		p.Frames, p.Bytes = f.moved(v, i)
		for out := range f.ports {
			p.Lost += f.tables.Lost(i, out)
		}
		for r, name := range bpf.FastSlowNames() {
			if c := f.tables.Slow(i, r); c > 0 {
				p.Slow[name] = c
			}
		}
		s.Ports = append(s.Ports, p)
	}
	return s
}

// fastStats returns what the fast paths of this node and its predecessors counted. It
// reports false if there was none.
func (n *Node) fastStats() (s WorkerStats, ok bool) {
	base := n.fastBase.Load()
	if n.fast != nil {
		s, ok = n.fast.stats(), true
	}
	if base != nil {
		s.addBase(base)
		ok = true
	}
	return s, ok
}

// moved returns what has come by a port and was given to a driver.
func (f *fastPath) moved(v *view, in int) (frames, bytes uint64) {
	if f.ears != nil {
		for out := range f.ports {
			n, came, _ := f.tables.Passed(in, out)
			frames, bytes = frames+n, bytes+came
		}
		return frames, bytes
	}
	for hop := range f.hops(v) {
		n, came := f.tables.Moved(in, hop)
		frames, bytes = frames+n, bytes+came
	}
	return frames, bytes
}

// hops returns how many next hops of a view are in the programs' tables.
func (f *fastPath) hops(v *view) int {
	if v == nil {
		return 0
	}
	return min(len(v.hops), f.tables.Size().Hops)
}

// stats returns what the fast path counted, as a worker would have.
func (f *fastPath) stats() WorkerStats {
	s := f.counted()
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range s.Ports {
		s.Ports[i].subtract(&f.past[i])
		s.Gone.add(&f.past[i])
	}
	return s
}

// subtract takes away what the fast path counted for a port of before.
func (s *PortStats) subtract(p *PortStats) {
	for _, x := range [][2]*Traffic{{&s.Received, &p.Received}, {&s.Sent, &p.Sent}} {
		x[0].Frames -= x[1].Frames
		x[0].Bytes -= x[1].Bytes
	}
	s.Drops[drop.DriverRefused] -= p.Drops[drop.DriverRefused]
	s.CERaised -= p.CERaised
	s.Marked.Frames -= p.Marked.Frames
	s.Marked.Bytes -= p.Marked.Bytes
}

// counted returns what the programs have counted since the start, by place. Of each frame that was
// given to a driver there is one word, and another one if the driver did not take it; that
// is read first, so that the account balances at any time.
func (f *fastPath) counted() (s WorkerStats) {
	v := f.node.view.Load()
	s.Ports = make([]PortStats, len(f.ports))
	if v == nil {
		return s
	}
	for in := range s.Ports {
		for out := range s.Ports {
			lost := f.tables.Lost(in, out)
			s.Ports[in].Drops[drop.DriverRefused] += lost
			s.Ports[out].Sent.Frames -= lost // which has them, or gets them below
		}
	}
	for i := range s.Ports {
		s.Ports[i].CERaised = f.tables.Raised(i)
		s.Ports[i].Marked.Frames, s.Ports[i].Marked.Bytes = f.tables.Marked(i)
	}
	if f.ears != nil {
		f.countLeaf(v, &s)
		return s
	}
	s.HopSent = make([]Traffic, f.hops(v))
	for in := range s.Ports {
		for hop := range s.HopSent {
			frames, bytes := f.tables.Moved(in, hop)
			out := v.hops[hop].port
			s.Ports[in].Received.Frames += frames
			s.Ports[in].Received.Bytes += bytes
			s.Ports[out].Sent.Frames += frames
			s.Ports[out].Sent.Bytes += bytes
			s.HopSent[hop].Frames += frames
			s.HopSent[hop].Bytes += bytes
		}
	}
	return s
}
