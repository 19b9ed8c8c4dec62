package overlay

import (
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/mono"
)

func TestCapabilityExpiresWithinASecond(t *testing.T) {
	c := NewCapability(2)
	start := mono.Time(5 * time.Second)
	check(t, "before any proof", c.Capable(1, start), false)
	c.Confirm(1, start)
	check(t, "proved", c.Capable(1, start), true)
	check(t, "the other peer", c.Capable(0, start), false)
	check(t, "just before the end", c.Capable(1, start.Add(CapableFor)), true)
	check(t, "after the end", c.Capable(1, start.Add(CapableFor+time.Nanosecond)), false)
	check(t, "after a second", c.Capable(1, start.Add(time.Second)), false)
	for now := start; now < start.Add(10*time.Second); now = now.Add(CapableFor / 3) {
		c.Confirm(1, now)
		check(t, "confirmed", c.Capable(1, now.Add(CapableFor*2/3)), true)
	}
	c.Forget(1)
	check(t, "forgotten", c.Capable(1, start), false)
}

func TestCapabilityOddTimesAndPeers(t *testing.T) {
	c := NewCapability(1)
	c.Confirm(7, 0)
	check(t, "a peer that does not exist", c.Capable(7, 0), false)
	c.Confirm(0, 0)
	check(t, "confirmed at time 0", c.Capable(0, 0), true)
	c.Confirm(0, mono.Time(time.Hour))
	check(t, "clock back by an hour", c.Capable(0, 0), false)
	c.Confirm(0, 0)
	check(t, "confirmed again after that", c.Capable(0, 0), true)
	check(t, "clock far ahead", c.Capable(0, mono.Time(1<<62)), false)
}

func TestRaiseCEOnlyRaises(t *testing.T) {
	for have := range uint8(8) {
		for ce := range uint8(8) {
			f := Fabric{Capable: true, LBTag: 0xf, CE: have, FBTag: 0xf, FBMetric: 7, FBValid: true, Opcode: OpNotify, Epoch: 3, Path: 0xff}
			v := make(VXLAN, VXLANLen)
			v.Encode(MaxVNI, &f)
			raised := v.RaiseCE(ce)
			var got Fabric
			vni, _, _ := v.Decode(&got)
			f.CE = max(have, ce)
			if got != f || vni != MaxVNI || raised != (ce > have) {
				t.Fatalf("CE %d raised to %d: %+v, want %+v", have, ce, got, f)
			}
		}
	}
}
