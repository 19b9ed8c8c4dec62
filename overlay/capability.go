package overlay

import (
	"sync/atomic"
	"time"

	"github.com/loomfabric/loom/internal/mono"
)

// Times of the capability protocol. A leaf greets every peer each HelloInterval;
// a peer of which nothing with the fabric's fields was heard for CapableFor is
// sent plain VXLAN again. Three greetings may be lost before that, and it stays
// within the second that a dead daemon's kernel may have to wait for frames that
// it understands.
const (
	HelloInterval = 250 * time.Millisecond
	CapableFor    = 900 * time.Millisecond
)

// Capability remembers which peers have proved, by a header of theirs that used
// the fabric's fields, that they understand these fields. To all others goes
// plain RFC 7348, since Linux drops frames whose reserved bits are set; this is
// incremental deployment as in CONGA §7 and ConWeave §5.
//
// It is shared by the workers of a node: one atomic word a peer, written only
// when the last proof is older than a sixteenth of CapableFor.
type Capability struct {
	heard []atomic.Int64 // by peer: time of the last proof plus one; 0: never
}

// NewCapability returns a table in which none of the peers 0 to peers-1 is
// capable.
func NewCapability(peers int) *Capability {
	return &Capability{heard: make([]atomic.Int64, peers)}
}

// Heard notes that a capable header came from a peer.
func (c *Capability) Heard(peer uint16, now mono.Time) {
	if int(peer) >= len(c.heard) {
		return
	}
	h := &c.heard[peer]
	last := h.Load()
	if age := int64(now) + 1 - last; last == 0 || age > int64(CapableFor/16) || age < 0 {
		h.Store(int64(now) + 1)
	}
}

// Capable reports whether a peer has proved itself lately. A clock that went
// back does not make a peer capable for longer than a clock that did not.
func (c *Capability) Capable(peer uint16, now mono.Time) bool {
	if int(peer) >= len(c.heard) {
		return false
	}
	last := c.heard[peer].Load()
	age := int64(now) + 1 - last
	return last != 0 && age <= int64(CapableFor) && age >= -int64(CapableFor)
}

// Forget makes a peer plain again, as when its place goes to another one.
func (c *Capability) Forget(peer uint16) {
	if int(peer) < len(c.heard) {
		c.heard[peer].Store(0)
	}
}
