package sim

import (
	"github.com/loomfabric/loom/internal/stat"
	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
	"github.com/loomfabric/loom/sim/rdma"
	"github.com/loomfabric/loom/sim/tcp"
	"github.com/loomfabric/loom/sim/traffic"
	"github.com/loomfabric/loom/sim/udp"
)

// hashSeed is that of the flow hash, which all nodes of a fabric share as the
// daemons of a fabric do; each node mixes in a seed of its own when it chooses.
const hashSeed = 0

// transport is what moves the bytes of flows.
type transport interface {
	// open returns a connection for messages, or for one with which it ends. Their ends
	// are reported to the run.
	open(id network.FlowID, f *traffic.Flow, once bool) conn
	// settle is called while the parts of the network stand still.
	settle()
	// goodput returns the bytes that have arrived, of all flows.
	goodput() uint64
	// counters returns what the transport counted, in a struct with stat's tags.
	counters() any
	// idle returns how long a flow takes in an idle network.
	idle(f *traffic.Flow) engine.Time
}

// conn is a connection of TCP or a queue pair. Messages are announced to both ends, and
// begin at the sender's when it is time.
type conn interface {
	Announce(id network.FlowID, bytes uint64)
	beginner
	Abort(now engine.Time)
	Goodput() uint64
}

// send has the transport start a flow: over the connection that it belongs to, or over
// one of its own.
func (r *run) send(now engine.Time, f *traffic.Flow) {
	switch {
	case f.Conn >= 0:
		c := r.conns[f.Conn]
		if c == nil {
			c = r.transport.open(r.ids.next(), f, false)
			r.conns[f.Conn] = c
		}
		c.Announce(f.ID, f.Bytes)
		r.begin(now, f, c)
	case f.Bytes == traffic.Endless:
		c := r.transport.open(f.ID, f, false)
		r.endless[f.ID] = c
		c.Announce(f.ID, tcp.Endless)
		r.begin(now, f, c)
	default:
		c := r.transport.open(f.ID, f, true)
		c.Announce(f.ID, f.Bytes)
		r.begin(now, f, c)
	}
}

// flow is what the packets of a flow with these headers are between.
func (r *run) flow(id network.FlowID, f *traffic.Flow, t traffic.Tuple) network.Flow {
	t = r.reserve(f, t)
	r.remember(id, t)
	r.classify(id, f)
	return network.Flow{
		ID: id, Src: r.topo.Hosts[f.Src], Dst: r.topo.Hosts[f.Dst],
		Hash: traffic.FlowHash(hashSeed, t), ReverseHash: traffic.FlowHash(hashSeed, t.Reverse()),
	}
}

// datagrams are the vocab.UDP flows of a run, which no transport's rules hold for.
type datagrams map[network.FlowID]*udp.Sender

func (d datagrams) start(now engine.Time, r *run, f *traffic.Flow) {
	d[f.ID] = udp.Open(r.net, udp.Flow{Flow: r.flow(f.ID, f, f.UDP()), Rate: f.Rate, Size: f.Packet, Until: f.Until})
	r.begin(now, f, d[f.ID])
}

func (d datagrams) counters() (sum udp.Counters) {
	for _, s := range d {
		c := s.Counters()
		stat.Add(&sum, &c)
	}
	return sum
}

// tcpTransport is TCP, or MPTCP.
type tcpTransport struct {
	r        *run
	stack    *tcp.Stack
	subflows int // of a connection; 0: it is one of TCP
	idles    *idleTCP
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
	if t.Type == "mptcp" {
		c.Options = tcp.DSSOption
		c.Header += tcp.DSSOption
	}
	return &tcpTransport{r, tcp.New(r.net, c, r), t.Subflows, newIdleTCP(c, t.Subflows)}
}

// flows returns the subflows of a connection, the first of which has number id.
func (t *tcpTransport) flows(id network.FlowID, f *traffic.Flow) []network.Flow {
	subs := make([]network.Flow, t.subflows)
	for i := range subs {
		if i > 0 {
			id = t.r.ids.next()
		}
		subs[i] = t.r.flow(id, f, f.Subflow(i))
	}
	return subs
}

func (t *tcpTransport) open(id network.FlowID, f *traffic.Flow, once bool) conn {
	if t.subflows > 0 {
		if flows := t.flows(id, f); once {
			return t.stack.OpenMultiFor(flows)
		} else {
			return t.stack.OpenMulti(flows)
		}
	}
	flow := tcp.Flow{Flow: t.r.flow(id, f, f.TCP())}
	if once {
		return t.stack.OpenFor(flow)
	}
	return t.stack.Open(flow)
}

func (t *tcpTransport) settle() { t.stack.Settle() }

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
		return t.idles.fct(t.r.topo, f.Src, f.Dst, f.Bytes)
	}
	c := t.stack.Config()
	full := uint64(c.Segment())
	packets := max(1, (f.Bytes+full-1)/full)
	last := uint32(f.Bytes - (packets-1)*full)
	return t.r.topo.IdleFCT(f.Src, f.Dst, packets, c.Segment()+c.Header, last+c.Header)
}

// rdmaTransport is RoCEv2.
type rdmaTransport struct {
	r     *run
	stack *rdma.Stack
}

func newRDMA(r *run) *rdmaTransport {
	s := &r.spec.Transport
	c := rdma.Defaults()
	c.Payload = uint32(s.Payload)
	c.Control = rdma.Control(s.CongestionControl)
	c.Recovery = rdma.Recovery(s.Recovery)
	c.BDP = r.bdp(c.Payload + c.Header)
	return &rdmaTransport{r, rdma.New(r.net, c, r)}
}

func (t *rdmaTransport) open(id network.FlowID, f *traffic.Flow, once bool) conn {
	if once {
		return t.stack.OpenFor(t.r.flow(id, f, f.RoCE()))
	}
	return t.stack.Open(t.r.flow(id, f, f.RoCE()))
}

func (t *rdmaTransport) settle() { t.stack.Settle() }

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
	back := t.r.topo.IdleOneWay(f.Dst, f.Src, c.AckBytes)
	took := t.r.topo.IdleFCT(f.Src, f.Dst, packets, c.Payload+c.Header, last+c.Header) + back
	if last < c.AckBytes && packets > 1 {
		before := t.r.topo.IdleFCT(f.Src, f.Dst, packets-1, c.Payload+c.Header, c.Payload+c.Header)
		two := t.r.topo.IdleFCT(f.Dst, f.Src, 2, c.AckBytes, c.AckBytes)
		took = max(took, before+two)
	}
	return took
}
