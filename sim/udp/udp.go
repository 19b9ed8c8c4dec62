// Package udp sends datagrams at a constant rate in the simulator, whatever
// becomes of them: the load that does not yield. It must not know what is
// between the hosts.
package udp

import (
	"fmt"
	"math/bits"

	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

// Header is what UDP, IP and Ethernet add to a datagram's payload, bytes.
const Header = 8 + 20 + 14

// sendBuffer is how far a sender falls behind its rate before it gives
// datagrams up, bytes of payload: a socket's buffer (Linux: net.core.wmem_default).
const sendBuffer = 212992

// Flow describes a sender and its receiver.
type Flow struct {
	// ID is what the flow's packets carry. It is not used again while packets of
	// the flow may be on their way.
	ID       network.FlowID
	Src, Dst *network.Host
	Hash     uint32 // of the 5-tuple
	Rate     uint64 // of payload, bit/s
	Size     uint32 // payload of a datagram, bytes
	// Until is when sending ends; 0: never.
	Until engine.Time
}

// Counters are what a flow did so far.
type Counters struct {
	Sent, SentBytes uint64 // datagrams, and payload in them
	Skipped         uint64 // datagrams that the interface had no time for
	Received        uint64 // datagrams
	Goodput         uint64 // payload in them, bytes
	Reordered       uint64 // datagrams that one sent later had overtaken
	MaxDistance     uint64 // most places between
}

// Add adds other to c.
func (c *Counters) Add(other *Counters) {
	c.Sent += other.Sent
	c.SentBytes += other.SentBytes
	c.Skipped += other.Skipped
	c.Received += other.Received
	c.Goodput += other.Goodput
	c.Reordered += other.Reordered
	c.MaxDistance = max(c.MaxDistance, other.MaxDistance)
}

// Sender is a flow that is being sent. It is a [network.Source].
type Sender struct {
	network.Turn
	net  *network.Network
	flow Flow
	due  engine.Time // of the next datagram
	rest uint64      // what due was rounded down by, 1/Rate ps

	number uint64 // of the next datagram
	last   uint64 // after the highest number that arrived

	counters Counters
}

// Start sends a flow from now on. The error says what is wrong with it.
func Start(now engine.Time, net *network.Network, f Flow) (*Sender, error) {
	switch {
	case f.Src == nil || f.Dst == nil || f.Src == f.Dst:
		return nil, fmt.Errorf("udp: flow %d is not between two hosts", f.ID)
	case f.Rate == 0:
		return nil, fmt.Errorf("udp: flow %d has a rate of 0 bit/s: leave it out, or give it one", f.ID)
	case f.Size == 0 || f.Size > 65507:
		return nil, fmt.Errorf("udp: flow %d sends datagrams of %d bytes: 1 to 65507 are possible", f.ID, f.Size)
	}
	s := &Sender{net: net, flow: f, due: now}
	net.Bind(f.ID, s, s)
	f.Src.Ready(now, s)
	return s, nil
}

// Counters returns what the flow did so far.
func (s *Sender) Counters() Counters { return s.counters }

// Pull is the interface's to call: it returns the next datagram if it is due.
func (s *Sender) Pull(now engine.Time) (*network.Packet, engine.Time) {
	f := &s.flow
	s.skip(now)
	if s.ended() {
		return nil, engine.Never
	}
	if now < s.due {
		return nil, s.due
	}
	s.advance()
	p := s.net.Pool.Get()
	p.Flow, p.Src, p.Dst, p.Hash = f.ID, f.Src.ID, f.Dst.ID, f.Hash
	p.Kind = network.Data
	p.Seq, p.Len, p.Size = s.counters.SentBytes, f.Size, f.Size+Header
	p.Sent = now
	p.Number = s.number
	s.number++
	s.counters.Sent++
	s.counters.SentBytes += uint64(f.Size)
	return p, engine.Never
}

// ended reports whether no further datagram becomes due.
func (s *Sender) ended() bool { return s.flow.Until > 0 && s.due >= s.flow.Until }

// advance makes the next datagram due when the bits of this one have passed at
// the rate.
func (s *Sender) advance() {
	hi, lo := bits.Mul64(uint64(s.flow.Size)*8, uint64(engine.Second))
	lo, carry := bits.Add64(lo, s.rest, 0)
	hi += carry
	if hi >= s.flow.Rate { // a datagram in more than 200 days
		s.due = engine.Never
		return
	}
	t, rest := bits.Div64(hi, lo, s.flow.Rate)
	s.rest = rest
	if t > uint64(engine.Never-s.due) {
		s.due = engine.Never
		return
	}
	s.due += engine.Time(t)
}

// skip gives up what no longer fits the socket's buffer: the interface was busy
// with others, or was paused.
func (s *Sender) skip(now engine.Time) {
	f := &s.flow
	// The time that it takes to fill the buffer.
	hi, lo := bits.Mul64(sendBuffer*8, uint64(engine.Second))
	if hi >= f.Rate {
		return
	}
	t, _ := bits.Div64(hi, lo, f.Rate)
	for now-s.due > engine.Time(min(t, uint64(engine.Never))) && !s.ended() {
		s.advance()
		s.counters.Skipped++
	}
}

// Receive is the host's to call: a datagram has come.
func (s *Sender) Receive(_ engine.Time, p *network.Packet) {
	s.counters.Received++
	s.counters.Goodput += uint64(p.Len)
	if p.Number >= s.last {
		s.last = p.Number + 1
	} else {
		s.counters.Reordered++
		s.counters.MaxDistance = max(s.counters.MaxDistance, s.last-1-p.Number)
	}
	s.net.Pool.Put(p)
}
