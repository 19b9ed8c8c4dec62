package balance

import (
	"time"

	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
)

// baseWindow is for how long the shortest round trip counts at least, and at most
// twice that while replies come. Routes that have become longer show after that.
const baseWindow = mono.Time(time.Second)

// baseRTT is the shortest round trip to a leaf lately: what its paths take when they
// are idle. It knows round trips as timestamps do, in whole microseconds.
type baseRTT struct {
	since         mono.Time // when the present window began
	least, before uint16    // microseconds and one more, in the present window and the one before it; 0: none
}

// add takes note of a round trip. What timestamps cannot tell is left out.
func (b *baseRTT) add(now mono.Time, took time.Duration) {
	if took < 0 || took > overlay.MaxInactive {
		return
	}
	us := uint16(took/time.Microsecond) + 1
	if age := now - b.since; b.least == 0 || age > baseWindow || age < 0 {
		b.since, b.least, b.before = now, us, b.least
	}
	b.least = min(b.least, us)
}

// known returns the shortest round trip; ok is false if there was none.
func (b *baseRTT) known() (rtt time.Duration, ok bool) {
	us := b.least
	if b.before != 0 {
		us = min(us, b.before)
	}
	return time.Duration(us-1) * time.Microsecond, us != 0
}

// reply returns θ_reply towards a leaf (§3.2.1): the shortest round trip lately and
// an allowance, or the time that is configured. It never exceeds θ_inactive.
func (c *conweave) reply(leaf uint16) time.Duration {
	if c.params.ReplyExtra == 0 {
		return c.params.Reply
	}
	rtt, ok := c.leaves[leaf].base.known()
	if !ok {
		return c.params.Reply
	}
	return min(rtt+c.params.ReplyExtra, c.params.Inactive)
}
