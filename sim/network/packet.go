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
	Link         // to the node at the other end of a link, and no further
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
	// What every hop touches, the overlay's fields included, is a cache line.
	in     *Port    // that it last came in by; nil: it was made where it is
	charge *account // of the buffer that it waits in

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

	_ [24]byte // three cache lines
}

// Pool keeps packets that nobody owns.
type Pool struct {
	free  []*Packet
	fresh []Packet // made together, and not used yet
	out   int
	grown int // packets that were made since pools were levelled
}

// Get returns a zeroed packet.
func (l *Pool) Get() *Packet {
	l.out++
	n := len(l.free)
	if n == 0 {
		return l.grow()
	}
	p := l.free[n-1]
	l.free = l.free[:n-1]
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
	l.free = append(l.free, p)
}

// Out returns how many packets somebody owns who had them from this pool, less those
// that others had from elsewhere and returned here.
func (l *Pool) Out() int { return l.out }

// plenty is how many packets a pool may have before others get what is over.
const plenty = 256

// level passes packets from the pools that have plenty to those that had to make some:
// traffic in one direction takes packets from one part's pool and leaves them in
// another's. over has those that no pool needed so far.
func level(parts []*Network, over []*Packet) []*Packet {
	for _, part := range parts {
		l := &part.Pool
		if n := len(l.free); n >= 2*plenty {
			over = append(over, l.free[plenty:]...)
			l.free = l.free[:plenty]
		}
	}
	for _, part := range parts {
		l := &part.Pool
		if l.grown == 0 || len(over) == 0 {
			continue
		}
		n := min(l.grown+plenty/4, len(over))
		l.free = append(l.free, over[len(over)-n:]...)
		over = over[:len(over)-n]
		l.grown = 0
	}
	return over
}
