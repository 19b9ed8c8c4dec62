package overlay

import (
	"net/netip"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/mono"
)

// TestNoAllocation: nothing that happens once a packet allocates.
func TestNoAllocation(t *testing.T) {
	tun := MakeTunnel(netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), macA, macB, DefaultPort)
	fab := Fabric{Capable: true, Shim: true}
	inner := roceFrame(1, 2, 3)
	frame := encapped(inner, 100, 7, uint8(ECT0), &fab)
	frame6, tun6 := encapped6(inner, 100, 7, uint8(ECT0), &fab), MakeTunnel(vtepC, vtepD, macA, macB, DefaultPort)
	buf := make([]byte, 256+1500)
	copy(buf[256:], inner)
	f := NewFDB(1024, time.Second, 4, 4)
	now := mono.Time(0)
	var m Meta
	var d Decapped
	var dec Fabric
	for _, c := range []struct {
		name string
		do   func()
	}{
		{"Dissect", func() { Dissect(inner, 1, &m) }},
		{"Encap", func() { tun.Encap(buf, len(inner), 100, 7, 2, &fab) }},
		{"Decap", func() { sinkReason = Decap(frame, DefaultPort, &d) }},
		{"Encap over IPv6", func() { tun6.Encap(buf, len(inner), 100, 7, 2, &fab) }},
		{"Decap over IPv6", func() { sinkReason = Decap(frame6, DefaultPort, &d) }},
		{"Encode", func() { VXLAN(buf).Encode(1, &fab) }},
		{"Decode", func() { _, _, sinkReason = VXLAN(frame[outVXLAN:]).Decode(&dec) }},
		{"DecapECN", func() { DecapECN(inner, m.L3, m.Flags, uint8(ECT1)) }},
		{"SetCE", func() { SetCE(frame, EthernetLen, FlagIPv4) }},
		{"DecTTL", func() { IPv4(frame[EthernetLen:]).DecTTL() }},
		{"VLAN", func() { PopVLAN(buf[PushVLAN(buf, 256, 7):]) }},
		{"Lookup", func() { sinkDest = f.Lookup(1, MAC{2}, now) }},
		{"Learn and Sweep", func() {
			now = now.Add(time.Millisecond)
			f.Learn(1, MACFromUint64(0x02<<40|uint64(now)), DestRemote(1), now)
			f.Sweep(now, 4)
		}},
		{"SetStatic", func() { f.SetStatic(2, MAC{2}, DestRemote(1)); f.DeleteStatic(2, MAC{2}) }},
	} {
		if n := testing.AllocsPerRun(200, c.do); n != 0 {
			t.Errorf("%s: %v allocations a run", c.name, n)
		}
	}
}
