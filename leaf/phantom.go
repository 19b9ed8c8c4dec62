package leaf

import "github.com/loomfabric/loom/internal/mono"

// phantomShare is the part of a link's rate that a phantom queue drains at (HULL §3.1: 95 %).
const phantomShare = 0.95

// PhantomQueue is the queue that a link would have if it were a little slower than it is
// (Alizadeh et al., NSDI 2012 §3.1): it tells of congestion where frames are not queued before
// they are sent. It holds nothing; it is a count that bytes go up by and time goes down by. The
// zero value is empty.
type PhantomQueue struct {
	bytes float64
	at    mono.Time
}

// Add has bytes come, evenly since the last call, to a link of a rate in bit/s, and returns how
// many wait at now, at most limit.
func (q *PhantomQueue) Add(now mono.Time, bytes, rate, limit uint64) (queued uint64) {
	gone := float64(max(now-q.at, 0)) / 8e9 * float64(rate) * phantomShare
	q.bytes, q.at = min(max(q.bytes+float64(bytes)-gone, 0), float64(limit)), now
	return uint64(q.bytes)
}
