// Package network is the wires of the simulator: packets, ports with queues,
// shared buffers, ECN marking and PFC, links, and the hosts' interfaces. What
// stands at the ends of wires is a [Node]: switches (package node) or a [Host].
package network

import (
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/sim/engine"
)

// HostID numbers all hosts of a network.
type HostID uint32

// FlowID numbers the flows of a run; it is what endpoints are found by.
type FlowID uint32

// Kind says what a packet is to a transport.
type Kind uint8

// The kinds.
const (
	Data    Kind = iota
	Ack          // to the flow's sender
	Nack         // RDMA: something is missing
	CNP          // RDMA: congestion notification (DCQCN)
	Control      // between leaves: overlay.Fabric.Opcode says what; never reaches a host
)

// Class is a queue of a port, in order of strict priority.
type Class uint8

// The classes.
const (
	ControlClass Class = iota // leaves' and RDMA's control packets; never paused
	DataClass                 // all the rest; what PFC pauses
	Classes      = 2
)

// Block is a range of sequence numbers that arrived (RFC 2018): From up to,
// not including, To.
type Block struct{ From, To uint64 }

// Packet is a packet with its headers decoded. It has one owner at a time: who
// is handed one passes it on, keeps it, or returns it with [Pool.Put].
type Packet struct {
	// What every hop touches is within 64 bytes.
	next   *Packet     // in the queue, or in the pool
	at     engine.Time // when its last bit comes out of the wire that it is on
	in     *Port       // that it last came in by; nil: it was made where it is
	charge *account    // of the buffer that it waits in

	Flow     FlowID
	Src, Dst HostID
	Hash     uint32 // of the 5-tuple, by overlay.Dissect
	Size     uint32 // bytes on the present wire, preamble and gap excluded
	Kind     Kind
	Class    Class // of the queue that it stands in
	ECT, CE  bool  // ECN of the IP header that counts: the outer one in the fabric (RFC 6040)

	// The overlay, between leaves. Overhead is what encapsulation added to Size.
	SrcLeaf, DstLeaf uint16
	Overhead         uint16
	Fabric           overlay.Fabric

	// The transports'.
	Seq     uint64 // Data: of the first byte (TCP), packet (RDMA); Ack, Nack: next one expected
	Len     uint32 // payload, bytes
	Last    bool   // Data: the flow ends here
	Echo    bool   // Ack: the data it answers had CE set
	Blocks  [3]Block
	NBlocks uint8
	Sent    engine.Time // Data: when it left; Ack: echo of it
	Retrans bool        // Data: sent before; Ack: the data it answers was
	Number  uint64      // of Data packets of a flow in the order first sent: hosts measure reordering by it

	Hello *overlay.Hello // body of a HELLO between leaves

	_ [8]byte // three cache lines
}

// Pool keeps packets that nobody owns.
type Pool struct {
	free  *Packet
	n     int      // of them
	fresh []Packet // made together, and not used yet
	out   int

	// With a network of parts: traffic in one direction takes packets from one pool and
	// leaves them in another one, so that pools pass some on ([balance]).
	several bool
	spare   []*Packet // lists of bundle packets
	grown   int       // packets that were made since the last balance
}

// bundle is how many packets pools pass on at once.
const bundle = 64

// balance lets pools that have bundles to spare give them to those that had to make
// packets. Both keep one or two.
func balance(parts []*Network, bundles []*Packet) []*Packet {
	for _, part := range parts {
		l := &part.Pool
		if n := len(l.spare); n > 2 {
			bundles = append(bundles, l.spare[2:]...)
			l.spare = l.spare[:2]
		}
	}
	for _, part := range parts {
		l := &part.Pool
		if l.grown == 0 {
			continue
		}
		n := min(l.grown/bundle+1, len(bundles))
		l.spare = append(l.spare, bundles[len(bundles)-n:]...)
		bundles = bundles[:len(bundles)-n]
		l.grown = 0
	}
	return bundles
}

// Get returns a zeroed packet.
func (l *Pool) Get() *Packet {
	l.out++
	p := l.free
	if p == nil {
		if p = l.unfold(); p == nil {
			return l.grow()
		}
	}
	l.free = p.next
	l.n--
	*p = Packet{}
	return p
}

func (l *Pool) grow() *Packet {
	l.grown++
	if len(l.fresh) == 0 {
		l.fresh = make([]Packet, 64)
	}
	p := &l.fresh[0]
	l.fresh = l.fresh[1:]
	return p
}

// Put takes a packet back.
func (l *Pool) Put(p *Packet) {
	l.out--
	p.next = l.free
	l.free = p
	if l.n++; l.n >= 2*bundle && l.several {
		l.fold()
	}
}

// fold makes a spare list of packets that are free.
func (l *Pool) fold() {
	first := l.free
	last := first
	for range bundle - 1 {
		last = last.next
	}
	l.free, last.next = last.next, nil
	l.n -= bundle
	l.spare = append(l.spare, first)
}

// unfold takes a spare list, if there is one.
func (l *Pool) unfold() *Packet {
	n := len(l.spare)
	if n == 0 {
		return nil
	}
	p := l.spare[n-1]
	l.spare = l.spare[:n-1]
	l.n = bundle
	return p
}

// Out returns how many packets somebody owns who had them from this pool, less those
// that others had from elsewhere and returned here.
func (l *Pool) Out() int { return l.out }
