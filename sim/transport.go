package sim

import (
	"github.com/loomfabric/loom/internal/stat"
	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
	"github.com/loomfabric/loom/sim/rdma"
	"github.com/loomfabric/loom/sim/tcp"
	"github.com/loomfabric/loom/sim/topo"
	"github.com/loomfabric/loom/sim/traffic"
	"github.com/loomfabric/loom/sim/udp"
)

// hashSeed is that of the flow hash, which all nodes of a fabric share as the
// daemons of a fabric do; each node mixes in a seed of its own when it chooses.
const hashSeed = 0

// transport is what moves the bytes of flows.
type transport interface {
	// start begins a flow. Its end is reported to the run by its ID.
	start(now engine.Time, f *traffic.Flow)
	// stop ends a flow without an end.
	stop(now engine.Time, f *traffic.Flow)
	// progress returns how many bytes of a flow have arrived, for flows that have
	// a connection of their own and have not ended.
	progress(id network.FlowID) uint64
	// goodput returns the bytes that have arrived, of all flows.
	goodput() uint64
	// counters returns what the transport counted, in a struct with stat's tags.
	counters() any
	// idle returns how long a flow takes in an idle network.
	idle(f *traffic.Flow) engine.Time
}

// datagrams are the vocab.UDP flows of a run, which no transport's rules hold for.
type datagrams map[network.FlowID]*udp.Sender

func (d datagrams) start(now engine.Time, r *run, f *traffic.Flow) {
	u := udp.Flow{
		ID: f.ID, Src: r.topo.Hosts[f.Src], Dst: r.topo.Hosts[f.Dst], Hash: traffic.FlowHash(hashSeed, f.UDP()),
		Rate: f.Rate, Size: f.Packet,
	}
	if f.Until != engine.Never {
		u.Until = f.Until
	}
	d[f.ID] = udp.Start(now, r.net, u)
}

func (d datagrams) counters() (sum udp.Counters) {
	for _, s := range d {
		c := s.Counters()
		stat.Add(&sum, &c)
	}
	return sum
}

// tcpTransport is TCP.
type tcpTransport struct {
	stack *tcp.Stack
	topo  *topo.Topology
	idles *idleTCP
	conns []*tcp.Conn                  // persistent ones, by Flow.Conn
	alone map[network.FlowID]*tcp.Conn // endless flows
	ids   *ids
}

func newTCP(r *run) *tcpTransport {
	t := &r.spec.Transport
	c := tcp.Defaults()
	c.Control = tcp.Control(t.CongestionControl)
	c.MSS = uint32(t.MTU) - 40
	c.MinRTO = engine.Of(t.MinRTO)
	c.Window = uint64(t.Window)
	c.Burst = uint32(t.Burst)
	for _, h := range r.topo.Hosts {
		h.Quantum = uint64(c.Burst)
	}
	return &tcpTransport{stack: tcp.New(r.net, c, r), topo: r.topo, idles: newIdleTCP(c), alone: map[network.FlowID]*tcp.Conn{}, ids: &r.ids}
}

func (t *tcpTransport) flow(id network.FlowID, f *traffic.Flow) tcp.Flow {
	tuple := f.TCP()
	return tcp.Flow{
		ID: id, Src: t.topo.Hosts[f.Src], Dst: t.topo.Hosts[f.Dst], Bytes: f.Bytes,
		Hash: traffic.FlowHash(hashSeed, tuple), ReverseHash: traffic.FlowHash(hashSeed, tuple.Reverse()),
	}
}

func (t *tcpTransport) start(now engine.Time, f *traffic.Flow) {
	switch {
	case f.Conn >= 0:
		for f.Conn >= len(t.conns) {
			t.conns = append(t.conns, nil)
		}
		if t.conns[f.Conn] == nil {
			t.conns[f.Conn] = t.stack.Open(t.flow(t.ids.next(), f))
		}
		t.conns[f.Conn].Send(now, f.ID, f.Bytes)
	case f.Bytes == traffic.Endless:
		c := t.stack.Open(t.flow(f.ID, f))
		t.alone[f.ID] = c
		c.Send(now, f.ID, tcp.Endless)
	default:
		t.stack.Start(now, t.flow(f.ID, f))
	}
}

func (t *tcpTransport) stop(now engine.Time, f *traffic.Flow) {
	t.alone[f.ID].Abort(now)
	delete(t.alone, f.ID)
}

func (t *tcpTransport) progress(id network.FlowID) uint64 {
	if c := t.alone[id]; c != nil {
		return c.Counters().Goodput
	}
	return 0
}

func (t *tcpTransport) goodput() uint64 { return t.stack.Counters().Goodput }

func (t *tcpTransport) counters() any {
	c := t.stack.Counters()
	return &c
}

// idle is the time of a new connection's flow, simulated alone on the best way;
// on a persistent connection the window is taken to be open, and the flow takes
// what its packets take one right after the other.
func (t *tcpTransport) idle(f *traffic.Flow) engine.Time {
	if f.Conn < 0 {
		return t.idles.fct(t.topo, f.Src, f.Dst, f.Bytes)
	}
	c := t.stack.Config()
	full := uint64(c.Segment())
	packets := max(1, (f.Bytes+full-1)/full)
	last := uint32(f.Bytes - (packets-1)*full)
	return t.topo.IdleFCT(f.Src, f.Dst, packets, c.Segment()+c.Header, last+c.Header)
}

// rdmaTransport is RoCEv2.
type rdmaTransport struct {
	stack *rdma.Stack
	topo  *topo.Topology
	conns []*rdma.QP // persistent ones, by Flow.Conn
	alone map[network.FlowID]*rdma.QP
	ids   *ids
	done  func(engine.Time, network.FlowID)
}

func newRDMA(r *run) *rdmaTransport {
	s := &r.spec.Transport
	c := rdma.Defaults()
	c.Payload = uint32(s.Payload)
	c.Control = rdma.Control(s.CongestionControl)
	c.Recovery = rdma.Recovery(s.Recovery)
	c.BDP = r.bdp(c.Payload + c.Header)
	t := &rdmaTransport{topo: r.topo, alone: map[network.FlowID]*rdma.QP{}, ids: &r.ids, done: r.FlowDone}
	t.stack = rdma.New(r.net, c, t)
	return t
}

func (t *rdmaTransport) open(id network.FlowID, f *traffic.Flow) *rdma.QP {
	tuple := f.RoCE()
	return t.stack.Open(rdma.Flow{
		ID: id, Src: t.topo.Hosts[f.Src], Dst: t.topo.Hosts[f.Dst],
		Hash: traffic.FlowHash(hashSeed, tuple), AckHash: traffic.FlowHash(hashSeed, tuple.Reverse()),
	})
}

func (t *rdmaTransport) start(now engine.Time, f *traffic.Flow) {
	if f.Conn >= 0 {
		for f.Conn >= len(t.conns) {
			t.conns = append(t.conns, nil)
		}
		if t.conns[f.Conn] == nil {
			t.conns[f.Conn] = t.open(t.ids.next(), f)
		}
		t.conns[f.Conn].Post(now, f.Bytes, uint64(f.ID))
		return
	}
	q := t.open(f.ID, f)
	t.alone[f.ID] = q
	q.Post(now, min(f.Bytes, tcp.Endless), uint64(f.ID))
}

// Completed closes queue pairs that were made for one message (rdma.Listener).
func (t *rdmaTransport) Completed(now engine.Time, q *rdma.QP, m rdma.Message) {
	id := network.FlowID(m.Tag)
	if t.alone[id] == q {
		delete(t.alone, id)
		t.stack.Close(q)
	}
	t.done(now, id)
}

func (t *rdmaTransport) stop(_ engine.Time, f *traffic.Flow) {
	t.stack.Close(t.alone[f.ID])
	delete(t.alone, f.ID)
}

func (t *rdmaTransport) progress(id network.FlowID) uint64 {
	if q := t.alone[id]; q != nil {
		return q.Counters().Delivered
	}
	return 0
}

func (t *rdmaTransport) goodput() uint64 { return t.stack.Counters().Delivered }

func (t *rdmaTransport) counters() any {
	c := t.stack.Counters()
	return &c
}

// idle is until the last ACK is back, as completions are. It has the way of the
// last packet, and may have to wait for the ACK before it, if that packet is so
// short that it comes sooner after the one before it than an ACK takes.
func (t *rdmaTransport) idle(f *traffic.Flow) engine.Time {
	c := t.stack.Config()
	full := uint64(c.Payload)
	packets := max(1, (f.Bytes+full-1)/full)
	last := uint32(f.Bytes - (packets-1)*full)
	back := t.topo.IdleOneWay(f.Dst, f.Src, c.AckBytes)
	took := t.topo.IdleFCT(f.Src, f.Dst, packets, c.Payload+c.Header, last+c.Header) + back
	if last < c.AckBytes && packets > 1 {
		before := t.topo.IdleFCT(f.Src, f.Dst, packets-1, c.Payload+c.Header, c.Payload+c.Header)
		two := t.topo.IdleFCT(f.Dst, f.Src, 2, c.AckBytes, c.AckBytes)
		took = max(took, before+two)
	}
	return took
}
