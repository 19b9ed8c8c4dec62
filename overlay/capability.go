package overlay

import (
	"sync/atomic"
	"time"

	"github.com/loomfabric/loom/internal/mono"
)

// CapableFor is how long a proof counts; without a new one the peer gets plain
// VXLAN again. Three rounds of HELLOs may be lost before that. When a daemon dies, its
// kernel gets frames that it understands within a second.
const CapableFor = 900 * time.Millisecond

// Capability remembers which peers understand the fabric's fields. A peer proves
// it by a HELLO that echoes what it was sent. All others get plain RFC 7348, since
// Linux drops frames whose reserved bits are set. This is incremental deployment
// as in CONGA §7 and ConWeave §5.
//
// The workers of a node share it. It has one atomic word a peer, written only
// when the last proof is older than a sixteenth of CapableFor.
type Capability struct {
	proved []atomic.Int64 // by peer: time of the last proof plus one; 0: never
}

// NewCapability returns a table for peers 0 to peers-1. None of them is capable.
func NewCapability(peers int) *Capability {
	return &Capability{proved: make([]atomic.Int64, peers)}
}

// Confirm notes that a peer has proved that it reads the fields.
func (c *Capability) Confirm(peer uint16, now mono.Time) {
	if int(peer) >= len(c.proved) {
		return
	}
	p := &c.proved[peer]
	last := p.Load()
	if age := int64(now) + 1 - last; last == 0 || age > int64(CapableFor/16) || age < 0 {
		p.Store(int64(now) + 1)
	}
}

// Capable reports whether the peer's last proof is younger than CapableFor. A
// clock that went back does not prolong that.
func (c *Capability) Capable(peer uint16, now mono.Time) bool {
	if int(peer) >= len(c.proved) {
		return false
	}
	last := c.proved[peer].Load()
	return last != 0 && !mono.Time(last-1).Apart(now, mono.Time(CapableFor))
}

// Forget makes a peer plain again. It is called when another peer gets its index.
func (c *Capability) Forget(peer uint16) {
	if int(peer) < len(c.proved) {
		c.proved[peer].Store(0)
	}
}
