package overlay

import (
	"sync/atomic"
	"time"

	"github.com/loomfabric/loom/internal/mono"
)

// CapableFor is how long a proof counts at most. A peer that says goodbye is plain at
// once, and one that falls silent after two rounds of its HELLOs (package liveness).
// CapableFor is the bound where nobody has counted these rounds, and where tenants'
// packets, which anybody could forge, are a peer's only signs of life.
const CapableFor = 900 * time.Millisecond

// Capability remembers which peers understand the fabric's fields. A peer proves
// it by a HELLO that echoes what it was sent. All others get plain RFC 7348, since
// Linux drops frames whose reserved bits are set. This is incremental deployment
// as in CONGA §7 and ConWeave §5.
//
// The workers of a node share it. A packet costs one load of an atomic word, which is
// written only when the last proof is older than a sixteenth of CapableFor.
type Capability struct {
	proved  []atomic.Int64  // by peer: time of the last proof plus one; 0: none counts
	why     []atomic.Uint32 // by peer: Standing, meant if proved is 0
	changes atomic.Uint32
}

// Standing is what a leaf thinks of a peer, as far as the fabric's fields go.
type Standing uint8

// The standings. Only a Proved peer is sent the fabric's fields.
const (
	Unproved Standing = iota // it has never proved that it reads them
	Proved                   // it has, of late
	Left                     // it has said goodbye
	Silent                   // nothing comes from it any more
)

var standings = [...]string{"unproved", "capable", "left", "silent"}

// String returns the standing's name.
func (s Standing) String() string { return standings[s] }

// NewCapability returns a table for peers 0 to peers-1. None of them is capable.
func NewCapability(peers int) *Capability {
	return &Capability{proved: make([]atomic.Int64, peers), why: make([]atomic.Uint32, peers)}
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
		if last == 0 {
			c.changes.Add(1)
		}
	}
}

// Revoke makes a peer plain, because it has Left or is Silent, until it proves itself
// again. It reports whether the peer was Proved.
func (c *Capability) Revoke(peer uint16, why Standing) bool {
	if int(peer) >= len(c.proved) || c.proved[peer].Load() == 0 {
		return false
	}
	c.why[peer].Store(uint32(why))
	if c.proved[peer].Swap(0) == 0 {
		return false // another worker did
	}
	c.changes.Add(1)
	return true
}

// Capable reports whether the peer's last proof is younger than CapableFor, and has not
// been revoked. A clock that went back does not prolong that.
func (c *Capability) Capable(peer uint16, now mono.Time) bool {
	if int(peer) >= len(c.proved) {
		return false
	}
	last := c.proved[peer].Load()
	return last != 0 && !mono.Time(last-1).Apart(now, mono.Time(CapableFor))
}

// Standing returns what is thought of a peer at now.
func (c *Capability) Standing(peer uint16, now mono.Time) Standing {
	switch {
	case int(peer) >= len(c.proved):
		return Unproved
	case c.Capable(peer, now):
		return Proved
	case c.proved[peer].Load() != 0: // its proof has only grown old
		return Silent
	}
	return Standing(c.why[peer].Load())
}

// Changes counts how often a peer was revoked, and how often one proved itself that was
// plain, wrapping.
func (c *Capability) Changes() uint32 { return c.changes.Load() }

// Forget makes a peer Unproved. It is called when another peer gets its index.
func (c *Capability) Forget(peer uint16) {
	if int(peer) < len(c.proved) {
		c.proved[peer].Store(0)
		c.why[peer].Store(uint32(Unproved))
	}
}
