// Package udp sends datagrams at a constant rate in the simulator, whatever
// becomes of them: the load that does not yield. It must not know what is
// between the hosts.
package udp

import (
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
	network.Flow
	Rate uint64 // of payload, bit/s, above 0
	Size uint32 // payload of a datagram, bytes: 1 to 65507
	// Until is when sending ends.
	Until engine.Time
}

// Counters are what a flow did so far.
type Counters struct {
	Sent        uint64 `stat:"udp_datagrams"`
	SentBytes   uint64 `stat:"-"`                              // payload in them
	Skipped     uint64 `stat:"udp_skipped"`                    // datagrams that the interface had no time for
	Received    uint64 `stat:"udp_received"`                   // datagrams
	Goodput     uint64 `stat:"udp_goodput_bytes"`              // payload in them
	Reordered   uint64 `stat:"udp_reordered"`                  // datagrams that one sent later had overtaken
	MaxDistance uint64 `stat:"udp_max_reordered_distance,max"` // most places between
}

// Sender is a flow that is being sent. It is a [network.Source].
type Sender struct {
	network.Turn
	flow Flow
	due  engine.Time // of the next datagram
	rest uint64      // what due was rounded down by, 1/Rate ps

	number uint64 // of the next datagram
	last   uint64 // after the highest number that arrived

	counters Counters
}

// Start sends a flow from now on.
func Start(now engine.Time, net *network.Network, f Flow) *Sender {
	s := Open(net, f)
	s.Begin(now)
	return s
}

// Open readies a flow that [Sender.Begin] starts.
func Open(net *network.Network, f Flow) *Sender {
	s := &Sender{flow: f}
	net.Bind(f.ID, s, s)
	return s
}

// Begin sends from now on.
func (s *Sender) Begin(now engine.Time) {
	s.due = now
	s.flow.Src.Ready(now, s)
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
	p := f.Src.Net().Pool.Get()
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
func (s *Sender) ended() bool { return s.due >= s.flow.Until }

// advance makes the next datagram due when the bits of this one have passed at
// the rate.
func (s *Sender) advance() {
	bits := uint64(s.flow.Size)*8*uint64(engine.Second) + s.rest
	s.rest = bits % s.flow.Rate
	s.due += min(engine.Time(bits/s.flow.Rate), engine.Never-s.due)
}

// skip gives up what no longer fits the socket's buffer: the interface was busy
// with others, or was paused.
func (s *Sender) skip(now engine.Time) {
	fill := engine.Time(sendBuffer * 8 * uint64(engine.Second) / s.flow.Rate) // how long it takes to fill
	for now-s.due > fill && !s.ended() {
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
	s.flow.Dst.Net().Pool.Put(p)
}
