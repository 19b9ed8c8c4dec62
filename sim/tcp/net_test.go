package tcp

import (
	"math/rand/v2"
	"testing"

	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

// box is the switch of the tests: one port a host, and a filter that may drop,
// mark, copy or hold back what passes.
type box struct {
	net    *network.Network
	id     engine.ID
	ports  []*network.Port // by host
	filter func(now engine.Time, p *network.Packet) verdict
	mark   uint64 // ECN: mark what finds so many bytes queued; 0: nothing

	held []*network.Packet // by slot
	free []uint64
}

// verdict is what a filter wants done.
type verdict struct {
	drop bool
	copy bool
	hold engine.Time
}

func (b *box) Receive(now engine.Time, p *network.Packet, _ *network.Port) {
	var v verdict
	if b.filter != nil {
		v = b.filter(now, p)
	}
	if v.copy {
		// Field by field: as far as the network knows, the box made it.
		q := b.net.Pool.Get()
		q.Flow, q.Src, q.Dst, q.Hash, q.Size, q.Kind = p.Flow, p.Src, p.Dst, p.Hash, p.Size, p.Kind
		q.ECT, q.CE, q.Seq, q.Len, q.Last, q.Echo = p.ECT, p.CE, p.Seq, p.Len, p.Last, p.Echo
		q.Blocks, q.NBlocks, q.Sent, q.Retrans, q.Number = p.Blocks, p.NBlocks, p.Sent, p.Retrans, p.Number
		b.forward(now, q)
	}
	switch {
	case v.drop:
		b.net.Drop(p, network.QueueFull)
	case v.hold > 0:
		var slot uint64
		if n := len(b.free); n > 0 {
			slot, b.free = b.free[n-1], b.free[:n-1]
			b.held[slot] = p
		} else {
			slot = uint64(len(b.held))
			b.held = append(b.held, p)
		}
		b.net.Engine.At(now+v.hold, b.id, slot)
	default:
		b.forward(now, p)
	}
}

func (b *box) Handle(now engine.Time, slot uint64) {
	p := b.held[slot]
	b.free = append(b.free, slot)
	b.forward(now, p)
}

func (b *box) forward(now engine.Time, p *network.Packet) {
	out := b.ports[p.Dst]
	if b.mark > 0 && p.ECT && out.Queued() >= b.mark {
		p.CE = true
	}
	out.Send(now, p, network.DataClass)
}

// link is a host's: both directions, and what may wait for it in the box.
type link struct {
	rate  uint64
	delay engine.Time
	limit uint64
}

// rig is hosts around a box, and a stack that notes when flows are done.
type rig struct {
	*testing.T
	net   *network.Network
	box   *box
	stack *Stack

	done   []network.FlowID
	at     map[network.FlowID]engine.Time
	onDone func(now engine.Time, id network.FlowID)
	closed map[network.FlowID]Counters
}

func (r *rig) FlowDone(now engine.Time, id network.FlowID) {
	if r.onDone != nil {
		r.onDone(now, id)
		return
	}
	r.done = append(r.done, id)
	r.at[id] = now
}

func newRig(t *testing.T, cfg Config, links ...link) *rig {
	t.Helper()
	net := network.New(engine.New())
	r := &rig{T: t, net: net, box: &box{net: net}, at: map[network.FlowID]engine.Time{}, closed: map[network.FlowID]Counters{}}
	r.box.id = net.Engine.Register(r.box)
	for i, l := range links {
		h := net.NewHost()
		h.Quantum = uint64(cfg.Burst)
		a := net.NewPort("host", 0, h, network.PortConfig{Rate: l.rate, Delay: l.delay}, nil)
		h.Port = a
		b := net.NewPort("box", i, r.box, network.PortConfig{Rate: l.rate, Delay: l.delay, Limit: l.limit}, nil)
		network.Connect(a, b)
		r.box.ports = append(r.box.ports, b)
	}
	r.stack = New(net, cfg, r)
	r.stack.ended = func(id network.FlowID, c *Counters) {
		if r.onDone == nil {
			r.closed[id] = *c
		}
	}
	return r
}

// live returns how many connections are open.
func (s *Stack) live() int {
	n := len(s.conns)
	for _, free := range s.free {
		n -= len(free)
	}
	return n
}

func (r *rig) flow(id network.FlowID, src, dst int, bytes uint64) Flow {
	return Flow{network.Flow{ID: id, Src: r.net.Hosts[src], Dst: r.net.Hosts[dst], Hash: uint32(id), ReverseHash: ^uint32(id)}, bytes}
}

func (r *rig) run(until engine.Time) { r.net.Engine.Run(until) }

// finish runs until nothing is left, and checks that nothing is.
func (r *rig) finish() {
	r.Helper()
	r.run(engine.Never)
	if n := r.stack.live(); n != 0 {
		r.Errorf("%d connections are still there", n)
	}
	if n := r.net.Pool.Out(); n != 0 {
		r.Errorf("%d packets are out", n)
	}
}

// conn returns the only connection.
func (r *rig) conn() *Conn { return r.stack.conns[0] }

// dropData drops each Data packet once for each time its place, counted from 0
// in the order of sending, stands in places.
func dropData(places ...uint64) func(engine.Time, *network.Packet) verdict {
	var n uint64
	return func(_ engine.Time, p *network.Packet) verdict {
		if p.Kind != network.Data || p.Len == 0 {
			return verdict{}
		}
		n++
		for _, d := range places {
			if d == n-1 {
				return verdict{drop: true}
			}
		}
		return verdict{}
	}
}

func seeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0x7c9)) }

// close ends a persistent connection when all it has to send is acknowledged.
// It must not be used afterwards.
func (c *Conn) close(now engine.Time) {
	if c.state == closed || c.closing {
		return
	}
	c.closing = true
	if c.una == c.end {
		c.stack.release(now, c)
	}
}
