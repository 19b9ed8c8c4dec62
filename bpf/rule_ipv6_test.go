package bpf

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"
)

// over6 is an IPv4 frame of the underlay over IPv6: from and to the addresses that end in
// the same bytes.
func over6(f []byte) []byte {
	if binary.BigEndian.Uint16(f[12:]) != 0x0800 {
		return f
	}
	l4 := l4Of(f)
	ip := ip6(f[23], f[l4:])
	copy(ip[8:], join(as6(netip.AddrFrom4([4]byte(f[26:30]))).AsSlice(), as6(netip.AddrFrom4([4]byte(f[30:34]))).AsSlice()))
	return join(f[:12], be(0x86dd), ip)
}

func as6(a netip.Addr) netip.Addr {
	b := a.As4()
	return netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, b[0], b[1], b[2], b[3]})
}

// Every row holds over IPv6 as it does over IPv4: the verdict is the same, and what comes
// out is what came out there, over IPv6.
func TestRuleOverIPv6(t *testing.T) {
	four := ruleFixture(t, RuleSize{100, 10, 10})
	six := ruleFixtureAt(t, RuleSize{100, 10, 10}, as6(ownVTEP), as6(rulePeer))
	six.link.t = t
	for _, served := range []bool{true, false} {
		four.serve(t, served)
		six.serve(t, served)
		for _, c := range ruleRows() {
			before4, before6 := four.link.read(), six.link.read()
			action4, out4, m4, meta4 := four.link.pass(c.frame)
			action6, out6, m6, meta6 := six.link.pass(over6(c.frame))
			if m4.Inner != 0 {
				m4.Inner += 20
			}
			if action4 != action6 || m4 != m6 || meta4 != meta6 {
				t.Errorf("%s: action %d, metadata %v %+v; over IPv6 %d, %v %+v", c.name, action4, meta4, m4, action6, meta6, m6)
			}
			if a, b := four.link.counted(before4), six.link.counted(before6); a != b {
				t.Errorf("%s: counted as %s, over IPv6 as %s", c.name, a, b)
			}
			if want := over6(out4); !bytes.Equal(out6, want) {
				t.Errorf("%s: came out as\n%x, want\n%x", c.name, out6, want)
			}
		}
	}
	// Peers can be told apart by each part of their addresses.
	six.serve(t, true)
	f := over6(inVXLAN(rulePeer, 100, [3]byte{}, nil, between(ruleFar, ruleHost)))
	if name, _, _, _ := six.link.verdict(f); name != "redirect" {
		t.Fatal(name)
	}
	for i := 22; i < 38; i++ {
		if name, _, _, _ := six.link.verdict(with(f, i, f[i]+1)); name != "pass_peer" {
			t.Errorf("byte %d of the source changed: %s", i, name)
		}
	}
	delete(six.tables.Peers, as6(rulePeer))
	six.publish(t)
	if name, _, _, _ := six.link.verdict(f); name != "pass_peer" {
		t.Errorf("of a peer that is gone: %s", name)
	}
}
