package leaf

import (
	"sync/atomic"
	"time"

	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
)

// Shared is what the workers of one leaf have in common: what leaves tell each
// other. All of it is made of atomic words; see package congestion.
type Shared struct {
	To      *congestion.ToLeaf
	From    *congestion.FromLeaf
	Capable *overlay.Capability
	hellos  []atomic.Uint64 // by peer: its last HELLO, see noteHello; 0: none
}

// NewShared returns tables for so many peers of which nothing is known. p must be
// valid.
func NewShared(peers int, p *congestion.Params) *Shared {
	return &Shared{
		To: congestion.NewToLeaf(peers, p), From: congestion.NewFromLeaf(peers, p),
		Capable: overlay.NewCapability(peers), hellos: make([]atomic.Uint64, peers),
	}
}

// Forget drops what is known of a peer, as when its place goes to another one.
func (s *Shared) Forget(peer uint16) {
	s.Capable.Forget(peer)
	s.To.Forget(peer)
	s.From.Forget(peer)
	s.hellos[peer].Store(0)
}

// noteHello keeps what a peer's HELLO is to get back: its timestamp, and when it
// came, in µs plus one.
func (s *Shared) noteHello(peer uint16, stamp overlay.Tstamp, now mono.Time) {
	s.hellos[peer].Store((uint64(now)/1000+1)<<16 | uint64(stamp))
}

// echo returns what a peer's last HELLO is to get back at now: its timestamp and
// the time that has passed since it came. ok is false if that is too long: clocks
// are not that equal.
func (s *Shared) echo(peer uint16, now mono.Time) (t overlay.Tstamp, ok bool) {
	x := s.hellos[peer].Load()
	if x == 0 {
		return 0, false
	}
	stayed := mono.Time(uint64(now)/1000 - (x>>16 - 1)) // µs
	if stayed < 0 || stayed > mono.Time(2*overlay.HelloInterval/time.Microsecond) {
		return 0, false
	}
	return overlay.Tstamp(x) + overlay.Tstamp(stayed), true
}
