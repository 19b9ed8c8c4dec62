// Package liveness finds out which of the paths between two leaves deliver, and which
// deliver everything. Carrier says nothing of a spine that lost its route, of a line card
// that loses one packet in twenty, or of a port with a small MTU in the middle: only the
// far end knows what comes.
//
// Every [Interval] a leaf sends each peer a HELLO by each of its paths: a round. The peer
// compares what it gets of a round by one path with what it gets by the others, and the
// tenants' packets that came by a path with those that were sent by it, which a HELLO
// says. Its judgement goes back in its own HELLOs, by all paths, and the sender keeps its
// traffic off the paths that do not deliver, whatever its scheme.
//
// Two halves work together. [Table] is what the workers of a leaf share: words, which
// they write as HELLOs come. [Judge] belongs to the one worker that sends HELLOs; it
// reads the words once a round and decides. [Traffic] is what one worker counts.
//
// A peer of which nothing comes by any path has no judge at the far end: [Watch] counts
// the rounds that it misses.
//
// The package sits beside congestion: that says which path is the better one, this which
// one is a path at all. Bidirectional Forwarding Detection (RFC 5880) asks the same of a
// link; it cannot ask it of a tunnel's path through a fabric, nor does it count what is
// lost.
package liveness

import "time"

// When a path is given up, and when it is trusted again. Rounds are the sender's: where a
// whole node has no time, and all of its HELLOs are late, no path is blamed.
const (
	// MissedRounds are the rounds in a row of which nothing came by a path, no HELLO and no
	// tenant's packet, while another path brought them, after which the path is silent.
	MissedRounds = 5
	// LargeEvery is the number of rounds from one whose HELLOs are padded to the longest
	// frame of the fabric to the next. Two of these in a row that do not come, while
	// short ones do, make a path narrow.
	LargeEvery  = 16
	missedLarge = 2
	// WindowRounds is how many rounds of a path's packets are looked at together. A path
	// is lossy if in eight such windows in a row at least one packet in fifty is missing,
	// and a far larger part than of the peer's other paths, rounds that met busy links not
	// counted: nodes that have no time lose packets, too, but here and there, and not for
	// long.
	WindowRounds = 10
	lossyWindows = 8
	// alone is how many windows it takes where other paths carry too little to compare.
	alone       = 2 * lossyWindows
	leastSent   = 100 // packets in a window that it takes to judge
	lossyShare  = 50
	lossyFactor = 4
	// ProofRounds are the rounds in a row that a path has to bring before it is used
	// again. It is twice as many each time that the path fails again within
	// relapseRounds, up to maxProof.
	ProofRounds   = 10
	maxProof      = 640
	relapseRounds = 600
)

// Times of HELLOs.
const (
	minInterval = 100 * time.Millisecond
	maxInterval = 250 * time.Millisecond
	perPeer     = 2 * time.Millisecond
)

// Interval returns the time between two rounds of HELLOs to so many peers: 100 ms, and
// with more than 50 of them 2 ms for each. So HELLOs take no more than 0.1 % of a link of
// 1 Gb/s up to 125 peers, when it has reached 250 ms and grows no further, lest peers are
// taken for plain ones ([overlay.CapableFor]). A HELLO says how long it is.
func Interval(peers int) time.Duration {
	return min(max(minInterval, time.Duration(peers)*perPeer), maxInterval)
}
