package leaf

import (
	"time"

	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/reorder"
)

const (
	// farewells is how often a leaf that stops says so to each peer, by all paths: a peer
	// that misses all of them finds out as if the leaf had been killed.
	farewells = 4
	// farewellEvery is the time between two rounds of farewells, and farewellParts is in
	// how many parts a round is sent at most: a control queue holds 256 packets.
	farewellEvery = 10 * time.Millisecond
	farewellParts = 16
	// FarewellFor is how long a leaf that stops goes on taking what comes out of the
	// fabric. Its peers send plain VXLAN as soon as a farewell has come, and what they
	// have sent before is under way until it has passed their queues.
	FarewellFor = 60 * time.Millisecond
)

// Leave has the leaf say goodbye instead of HELLO: at now, and in the next ticks. Only the
// first worker does, as with HELLOs. It reports how long the leaf should go on: 0 if there
// is no peer that would take its word.
func (l *Leaf[T]) Leave(now mono.Time) time.Duration {
	h := &l.hello
	h.at, h.look, h.next, h.left = reorder.Never, reorder.Never, 0, 0
	for peer := range l.paths {
		if l.parts(uint16(peer)) {
			h.at, h.left = now, farewells
			return FarewellFor
		}
	}
	return 0
}

// parts reports whether there is a way to say goodbye to a peer: it believes only who
// knows its nonce.
func (l *Leaf[T]) parts(peer uint16) bool {
	return l.paths[peer].N > 0 && l.hello.round > 0 && l.shared.Paths.Nonce(peer) != 0
}

// sendFarewells says goodbye to some of the peers, or begins the next round of that.
func (l *Leaf[T]) sendFarewells(now mono.Time) {
	h := &l.hello
	if h.next == 0 {
		h.began = now
	}
	n := len(l.paths)
	first, end := h.next, min(h.next+max(helloPeers, (n+farewellParts-1)/farewellParts), n)
	for peer := first; peer < end; peer++ {
		if l.parts(uint16(peer)) {
			l.sayHello(now, uint16(peer), &l.paths[peer], true)
		}
	}
	if h.next, h.at = end, h.began.Add(farewellEvery*time.Duration(end)/time.Duration(n)); end < n {
		return
	}
	h.next = 0
	if h.left--; h.left == 0 {
		h.at = reorder.Never
	}
}
