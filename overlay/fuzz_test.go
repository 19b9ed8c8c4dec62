package overlay

import (
	"bytes"
	"testing"

	"github.com/loomfabric/loom/internal/drop"
)

// Each target starts from the golden packets, and from what testdata/fuzz
// holds.

func FuzzDissect(f *testing.F) {
	for _, g := range golden {
		f.Add(g.inner, uint32(goldenSeed))
	}
	f.Fuzz(tryDissect)
}

func tryDissect(t *testing.T, frame []byte, seed uint32) {
	before := bytes.Clone(frame)
	m := dissected(frame, seed)
	if !bytes.Equal(before, frame) {
		t.Fatal("Dissect changed the frame")
	}
	ip := m.Flags & (FlagIPv4 | FlagIPv6)
	switch {
	case ip == FlagIPv4|FlagIPv6,
		(m.L3 != 0) != (ip != 0),
		(m.L4 != 0) != (m.Flags&FlagPorts != 0),
		m.L4 != 0 && (m.L4 < m.L3+IPv4Len || int(m.L4)+4 > len(frame)),
		m.L3 != 0 && int(m.L3)+IPv4Len > len(frame),
		m.Flags&FlagRoCE != 0 && (m.Flags&FlagPorts == 0 || int(m.L4)+UDPLen+bthLen > len(frame)),
		m.Flags&FlagFragment != 0 && (ip == 0 || m.Flags&FlagPorts != 0),
		m.Flags&FlagVLAN == 0 && m.VLAN != 0:
		t.Fatalf("contradiction: %+v", m)
	}
	// The bytes behind the headers do not count.
	if again := dissected(append(bytes.Clone(frame), 1, 2, 3), seed); len(frame) >= 128 && again != m {
		t.Fatalf("a longer frame: %+v, not %+v", again, m)
	}
	ce := SetCE(frame, m.L3, m.Flags)
	if ce && FrameTOS(frame, m.L3, m.Flags)&ecnMask != uint8(CE) {
		t.Fatal("SetCE claims a mark that is not there")
	}
	if again := dissected(frame, seed); again != m {
		t.Fatalf("after SetCE: %+v, not %+v", again, m)
	}
}

func FuzzDecap(f *testing.F) {
	for _, g := range golden {
		f.Add(encapped(g.inner, g.vni, 7, g.tos, &g.fabric), true)
		f.Add(encapped6(g.inner, g.vni, 7, g.tos, &g.fabric), true)
	}
	f.Fuzz(tryDecap)
}

func tryDecap(t *testing.T, frame []byte, mend bool) {
	if mend && len(frame) >= outUDP {
		// A right checksum, or the fuzzer would rarely come further.
		if ip := IPv4(frame[outIP:]); ip.Valid() {
			ip.UpdateChecksum()
		}
	}
	var d Decapped
	outer := CheckOuter(frame, new(Outer))
	reason := Decap(frame, DefaultPort, &d)
	if outer != drop.None && reason != outer {
		t.Fatalf("CheckOuter says %v, Decap %v", outer, reason)
	}
	if reason != drop.None {
		return
	}
	if d.Inner < Headers(d.Family) || d.End-d.Inner < EthernetLen || d.End > len(frame) || d.VNI > MaxVNI {
		t.Fatalf("%+v of %d bytes", d, len(frame))
	}
	// What was accepted says the same when it is sent again.
	inner := bytes.Clone(frame[d.Inner:d.End])
	var again Decapped
	tun := MakeTunnel(d.Src.Netip(), d.Dst.Netip(), macA, macB, DefaultPort)
	out := tunnelled(tun, inner, d.VNI, 7, d.TOS, &d.Fabric)
	if r := Decap(out, DefaultPort, &again); r != drop.None {
		t.Fatalf("sent again: %v", r)
	}
	if again.Src != d.Src || again.Dst != d.Dst || again.Family != d.Family || again.Fabric != d.Fabric || again.VNI != d.VNI || again.TOS != d.TOS || !bytes.Equal(out[again.Inner:again.End], inner) {
		t.Fatalf("sent again: %+v, not %+v", again, d)
	}
}

func FuzzVXLANDecode(f *testing.F) {
	for _, g := range golden {
		b := make(VXLAN, VXLANLen+ShimLen)
		f.Add([]byte(b[:b.Encode(g.vni, &g.fabric)]))
	}
	f.Fuzz(tryVXLANDecode)
}

func tryVXLANDecode(t *testing.T, b []byte) {
	var fab Fabric
	vni, n, reason := VXLAN(b).Decode(&fab)
	if reason != drop.None {
		if fab != (Fabric{}) {
			t.Fatalf("%v, but %+v", reason, fab)
		}
		return
	}
	// No bit of an accepted header is without meaning.
	again := make(VXLAN, VXLANLen+ShimLen)
	if k := again.Encode(vni, &fab); !bytes.Equal(again[:k], b[:n]) {
		t.Fatalf("% x is encoded as % x", b[:n], again[:k])
	}
	if v := VXLAN(b); fab.Capable != v.Capable() || fab.Capable && (fab.Path != v.Path() || fab.Opcode != v.Opcode()) {
		t.Fatalf("getters disagree with %+v", fab)
	}
}

func FuzzVLAN(f *testing.F) {
	for _, g := range golden {
		f.Add(g.inner, 64, uint16(100))
	}
	f.Fuzz(tryVLAN)
}

func tryVLAN(t *testing.T, frame []byte, headroom int, tci uint16) {
	if headroom < 0 || headroom > 512 {
		if PushVLAN(bytes.Clone(frame), min(headroom, -headroom), tci) != -1 {
			t.Fatal("pushed into negative headroom")
		}
		return
	}
	buf := append(make([]byte, headroom), frame...)
	at := PushVLAN(buf, headroom, tci)
	if at < 0 {
		if headroom >= VLANLen && len(frame) >= EthernetLen {
			t.Fatal("refused a frame with headroom")
		}
		PopVLAN(frame) // must not panic
		return
	}
	m := dissected(buf[at:], 0)
	if at != headroom-VLANLen || m.VLAN != tci || m.Flags&FlagVLAN == 0 {
		t.Fatalf("tag %#x at %d is seen as %+v", tci, at, m)
	}
	if got := PopVLAN(buf[at:]); !bytes.Equal(got, frame) {
		t.Fatalf("% x came back as % x", frame, got)
	}
	PopVLAN(buf[headroom:])
}
