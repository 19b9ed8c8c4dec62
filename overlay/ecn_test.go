package overlay

import (
	"bytes"
	"testing"
)

// TestCombineECN is RFC 6040 §4.2, figure 4, row by row.
func TestCombineECN(t *testing.T) {
	const dropped = ECN(0xff)
	outers := [4]ECN{NotECT, ECT0, ECT1, CE} // the figure's columns
	for _, row := range []struct {
		inner ECN
		want  [4]ECN
	}{
		{NotECT, [4]ECN{NotECT, NotECT, NotECT, dropped}},
		{ECT0, [4]ECN{ECT0, ECT0, ECT1, CE}},
		{ECT1, [4]ECN{ECT1, ECT1, ECT1, CE}},
		{CE, [4]ECN{CE, CE, CE, CE}},
	} {
		for i, outer := range outers {
			got, ok := CombineECN(row.inner, outer)
			if ok != (row.want[i] != dropped) || ok && got != row.want[i] {
				t.Errorf("inner %02b outer %02b: %02b, %v", row.inner, outer, got, ok)
			}
		}
	}
}

// TestDecapECN tries all codepoints on every kind of frame: the field is right,
// DSCP is untouched, checksums hold, and nothing else changes.
func TestDecapECN(t *testing.T) {
	const dscp = 46 << 2
	for _, c := range []struct {
		name string
		make func(tos uint8) []byte
		ip   bool
	}{
		{"IPv4", func(tos uint8) []byte { return tos4Frame(1, 2, 3, 4, 5, tos) }, true},
		{"IPv4 in VLAN", func(tos uint8) []byte { return tagged(tos4Frame(1, 2, 3, 4, 5, tos), EtherTypeVLAN, 9) }, true},
		{"IPv6", func(tos uint8) []byte { return tos6Frame(1, 2, 3, 4, 5, tos) }, true},
		{"ARP", func(uint8) []byte { return arpFrame() }, false},
	} {
		for inner := range ECN(4) {
			for outer := range ECN(4) {
				frame := c.make(dscp | uint8(inner))
				m := dissected(frame, 0)
				combinedECN, wantOK := CombineECN(inner, outer)
				want := c.make(dscp | uint8(combinedECN))
				if !c.ip {
					_, wantOK = CombineECN(NotECT, outer)
				}
				wantMarked := outer == CE && (inner != CE || !c.ip)
				marked, ok := DecapECN(frame, m.L3, m.Flags, 48<<2|uint8(outer))
				if ok != wantOK || marked != wantMarked || ok && !bytes.Equal(frame, want) {
					t.Errorf("%s, inner %02b, outer %02b: % x, marked %v, %v", c.name, inner, outer, frame, marked, ok)
				}
			}
		}
	}
}

func TestSetCE(t *testing.T) {
	for _, c := range []struct {
		name        string
		frame, want []byte
		marked      bool
	}{
		{"IPv4 Not-ECT", tos4Frame(1, 2, 3, 4, 5, 0xb8), tos4Frame(1, 2, 3, 4, 5, 0xb8), false},
		{"IPv4 ECT(1)", tos4Frame(1, 2, 3, 4, 5, 0xb9), tos4Frame(1, 2, 3, 4, 5, 0xbb), true},
		{"IPv4 ECT(0)", tos4Frame(1, 2, 3, 4, 5, 0xba), tos4Frame(1, 2, 3, 4, 5, 0xbb), true},
		{"IPv4 CE", tos4Frame(1, 2, 3, 4, 5, 0xbb), tos4Frame(1, 2, 3, 4, 5, 0xbb), true},
		{"IPv6 Not-ECT", tos6Frame(1, 2, 3, 4, 5, 0xb8), tos6Frame(1, 2, 3, 4, 5, 0xb8), false},
		{"IPv6 ECT(0)", tos6Frame(1, 2, 3, 4, 5, 0xba), tos6Frame(1, 2, 3, 4, 5, 0xbb), true},
		{"IPv6 ECT(1)", tos6Frame(1, 2, 3, 4, 5, 0xb9), tos6Frame(1, 2, 3, 4, 5, 0xbb), true},
		{"ARP", arpFrame(), arpFrame(), false},
	} {
		m := dissected(c.frame, 0)
		check(t, c.name, SetCE(c.frame, m.L3, m.Flags), c.marked)
		if !bytes.Equal(c.frame, c.want) {
			t.Errorf("%s: % x, want % x", c.name, c.frame, c.want)
		}
	}
}

// TestECNOffsetBeyondFrame: metadata from elsewhere must not lead outside.
func TestECNOffsetBeyondFrame(t *testing.T) {
	for _, flags := range []uint16{FlagIPv4, FlagIPv6} {
		frame := make([]byte, 33)
		for l3 := range 256 {
			if FrameTOS(frame, uint8(l3), flags) != 0 || SetCE(frame, uint8(l3), flags) {
				t.Fatalf("flags %#x: found an IP header at %d", flags, l3)
			}
			DecapECN(frame, uint8(l3), flags, uint8(ECT1))
		}
	}
}

func TestEncapTOS(t *testing.T) {
	for tos := range 256 {
		check(t, "outer TOS", EncapTOS(uint8(tos)), uint8(tos&3))
	}
}
