package network

import (
	"github.com/loomfabric/loom/sim/engine"
)

// Node is what stands at the end of a wire.
type Node interface {
	// Receive takes over a packet whose last bit has just come in by a port.
	Receive(now engine.Time, p *Packet, in *Port)
}

// Watcher is told what happens at a port.
type Watcher interface {
	// Departing is called when the first bit of a packet leaves: nodes meter
	// their links and raise CE here (CONGA §3.2, §3.3).
	Departing(now engine.Time, p *Packet, out *Port)
}

// PortConfig is one direction of a link: what stands at its sending end.
type PortConfig struct {
	Rate  uint64      // bits per second
	Delay engine.Time // propagation
	Limit uint64      // of the data queue, bytes; 0: none but the node's shared buffer
}

// Port is a node's end of a link: queues, and the transmitter.
type Port struct {
	Name  string
	Index int // among its node's ports
	Node  Node
	Peer  *Port
	PortConfig

	net     *Network
	id      engine.ID
	watcher Watcher
	queues  [Classes]queue
	busy    bool
	flying  queue // on the wire, in order
}

// queue is a FIFO of packets.
type queue struct {
	head, tail *Packet
	n          int
	bytes      uint64
}

func (q *queue) push(p *Packet) {
	p.next = nil
	if q.tail == nil {
		q.head = p
	} else {
		q.tail.next = p
	}
	q.tail = p
	q.n++
	q.bytes += uint64(p.Size)
}

func (q *queue) pop() *Packet {
	p := q.head
	if p == nil {
		return nil
	}
	q.head = p.next
	if q.head == nil {
		q.tail = nil
	}
	p.next = nil
	q.n--
	q.bytes -= uint64(p.Size)
	return p
}

// Network is all that a run simulates.
type Network struct {
	Engine *engine.Engine
	Pool   Pool
	Hosts  []*Host

	flows []flow
}

// New returns an empty network.
func New(e *engine.Engine) *Network { return &Network{Engine: e} }

// NewPort returns a port of a node. watcher may be nil.
func (n *Network) NewPort(name string, index int, node Node, c PortConfig, watcher Watcher) *Port {
	p := &Port{Name: name, Index: index, Node: node, PortConfig: c, net: n, watcher: watcher}
	p.id = n.Engine.Register(p)
	return p
}

// Connect makes two ports the ends of a link.
func Connect(a, b *Port) { a.Peer, b.Peer = b, a }

// Send takes over a packet to be sent from a queue of the port, or drops and
// counts it.
func (p *Port) Send(now engine.Time, k *Packet, c Class) {
	k.Class = c
	p.queues[c].push(k)
	p.Kick(now)
}

// Queued returns the bytes that wait in all queues.
func (p *Port) Queued() (bytes uint64) {
	for i := range p.queues {
		bytes += p.queues[i].bytes
	}
	return bytes
}

// TxTime is how long so many bytes take on the port's link.
func (p *Port) TxTime(bytes uint32) engine.Time {
	return engine.Time(uint64(bytes) * 8 * uint64(engine.Second/1000) / (p.Rate / 1000))
}

const (
	eventSent = iota
	eventArrived
)

// Kick starts the transmitter if it is idle and something waits.
func (p *Port) Kick(now engine.Time) {
	if p.busy {
		return
	}
	for c := range p.queues {
		if k := p.queues[c].pop(); k != nil {
			p.transmit(now, k)
			return
		}
	}
	if h, ok := p.Node.(*Host); ok {
		if k := h.pull(now); k != nil {
			p.transmit(now, k)
		}
	}
}

func (p *Port) transmit(now engine.Time, k *Packet) {
	if p.watcher != nil {
		p.watcher.Departing(now, k, p)
	}
	p.busy = true
	done := now + p.TxTime(k.Size)
	p.flying.push(k)
	p.net.Engine.At(done, p.id, eventSent)
	p.net.Engine.At(done+p.Delay, p.id, eventArrived)
}

// Handle is the engine's to call.
func (p *Port) Handle(now engine.Time, arg uint64) {
	switch arg {
	case eventSent:
		p.busy = false
		p.Kick(now)
	case eventArrived:
		p.Peer.Node.Receive(now, p.flying.pop(), p.Peer)
	}
}
