package overlay

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/mono"
)

// A peer that is revoked is plain at once, whatever the age of its proof, and says why,
// until it proves itself again.
func TestRevoke(t *testing.T) {
	const start = mono.Time(5 * time.Second)
	for _, tt := range []struct {
		name    string
		do      func(c *Capability) (revoked bool)
		revoked bool
		want    Standing
		changes uint32
	}{
		{"never heard of", func(c *Capability) bool { return c.Revoke(1, Left) }, false, Unproved, 0},
		{"proved", func(c *Capability) bool { c.Confirm(1, start); return false }, false, Proved, 1},
		{"goodbye", func(c *Capability) bool { c.Confirm(1, start); return c.Revoke(1, Left) }, true, Left, 2},
		{"silence", func(c *Capability) bool { c.Confirm(1, start); return c.Revoke(1, Silent) }, true, Silent, 2},
		{"goodbye twice", func(c *Capability) bool { c.Confirm(1, start); c.Revoke(1, Left); return c.Revoke(1, Left) }, false, Left, 2},
		{"back", func(c *Capability) bool {
			c.Confirm(1, start)
			c.Revoke(1, Left)
			c.Confirm(1, start+1)
			return false
		}, false, Proved, 3},
		{"an old proof", func(c *Capability) bool { c.Confirm(1, start-mono.Time(CapableFor)-1); return false }, false, Silent, 1},
		{"forgotten", func(c *Capability) bool { c.Confirm(1, start); c.Revoke(1, Left); c.Forget(1); return false }, false, Unproved, 2},
		{"another peer", func(c *Capability) bool { c.Confirm(1, start); c.Confirm(0, start); return c.Revoke(0, Left) }, true, Proved, 3},
		{"a peer that does not exist", func(c *Capability) bool { return c.Revoke(7, Left) }, false, Unproved, 0},
	} {
		c := NewCapability(2)
		revoked := tt.do(c)
		if got := c.Standing(1, start); got != tt.want || revoked != tt.revoked || c.Changes() != tt.changes || c.Capable(1, start) != (tt.want == Proved) {
			t.Errorf("%s: %v, revoked: %v, %d changes; want %v, %v and %d", tt.name, got, revoked, c.Changes(), tt.want, tt.revoked, tt.changes)
		}
	}
}

// docs/wire-format.md gives the bits that a kernel's VXLAN device has to refuse so that it
// reads the fabric's header as a plain one: tenants' packets without a shim, under any
// scheme, and nothing else.
func TestReservedBitsOfAKernel(t *testing.T) {
	const reservedBits uint64 = 0xf70003fc00000000
	accepts := func(f *Fabric) bool {
		b := make(VXLAN, VXLANLen+ShimLen)
		b.Encode(MaxVNI, f)
		return binary.BigEndian.Uint64(b)&reservedBits == 0
	}
	full := Fabric{Capable: true, LBTag: 15, CE: 7, FBValid: true, FBTag: 15, FBMetric: 7, Path: 0xff}
	if !accepts(&full) || !accepts(nil) {
		t.Error("a packet without a shim is refused")
	}
	for op := range Opcode(NumOpcodes) {
		for _, shim := range []bool{false, true} {
			f := full
			f.Opcode, f.Shim = op, shim
			if got := accepts(&f); got != (op == OpData && !shim) {
				t.Errorf("%v, shim: %v: accepted: %v", op, shim, got)
			}
		}
	}
	for name, f := range map[string]Fabric{"scheme": {Scheme: 1}, "epoch": {Epoch: 1}, "rerouted": {Rerouted: true}, "tail": {Tail: true}} {
		if f.Capable = true; accepts(&f) {
			t.Errorf("a packet with %s is accepted", name)
		}
	}
}
