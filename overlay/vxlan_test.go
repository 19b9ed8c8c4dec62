package overlay

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/internal/mono"
)

// TestEncodeBits sets one field at a time to all ones: every bit of the header
// has exactly the owner that docs/wire-format.md names.
func TestEncodeBits(t *testing.T) {
	for _, c := range []struct {
		name string
		f    Fabric
		want string // without the Capable bit, which is added
	}{
		{"Scheme", Fabric{Scheme: 15}, "f8 00 00 00 00 00 00 00"},
		{"LBTag", Fabric{LBTag: 15}, "08 f0 00 00 00 00 00 00"},
		{"CE", Fabric{CE: 7}, "08 0e 00 00 00 00 00 00"},
		{"FBTag", Fabric{FBTag: 15}, "08 01 e0 00 00 00 00 00"},
		{"FBMetric", Fabric{FBMetric: 7}, "08 00 1c 00 00 00 00 00"},
		{"Opcode", Fabric{Opcode: 7}, "08 00 03 80 00 00 00 00"},
		{"Epoch", Fabric{Epoch: 3}, "08 00 00 60 00 00 00 00"},
		{"Rerouted", Fabric{Rerouted: true}, "08 00 00 10 00 00 00 00"},
		{"Tail", Fabric{Tail: true}, "08 00 00 08 00 00 00 00"},
		{"Shim", Fabric{Shim: true, TxTstamp: 0x1234, Arg: 0x5678}, "08 00 00 04 00 00 00 00 12 34 56 78"},
		{"FBValid", Fabric{FBValid: true}, "08 00 00 02 00 00 00 00"},
		{"PathID", Fabric{Path: 0xff}, "08 00 00 00 00 00 00 ff"},
		{"too wide", Fabric{Scheme: 0xf0, LBTag: 0xf0, CE: 0xf8, FBTag: 0xf0, FBMetric: 0xf8, Opcode: 0xf8, Epoch: 0xfc}, "08 00 00 00 00 00 00 00"},
	} {
		t.Run(c.name, func(t *testing.T) {
			want, err := hex.DecodeString(strings.ReplaceAll(c.want, " ", ""))
			if err != nil {
				t.Fatal(err)
			}
			want[3] |= 1
			c.f.Capable = true
			b := make(VXLAN, VXLANLen+ShimLen)
			n := b.Encode(0, &c.f)
			check(t, "header", hex.EncodeToString(b[:n]), hex.EncodeToString(want))
			check(t, "Capable()", b.Capable(), true)
			check(t, "Opcode()", b.Opcode(), c.f.Opcode&7)
			check(t, "Path()", b.Path(), c.f.Path)

			// Without Capable nothing of it is sent.
			c.f.Capable = false
			n = b.Encode(MaxVNI+1, &c.f)
			check(t, "plain header", hex.EncodeToString(b[:n]), "0800000000000000")
			check(t, "Capable()", b.Capable(), false)
		})
	}
}

func TestDecodeRefuses(t *testing.T) {
	for _, c := range []struct {
		name, in string
		want     drop.Reason
	}{
		{"empty", "", drop.Truncated},
		{"seven bytes", "08000000000000", drop.Truncated},
		{"no VNI flag", "0000000000006400", drop.BadVXLANFlags},
		{"GBP flag", "8800000000006400", drop.BadVXLANFlags},
		{"O flag of VXLAN-GPE", "0900000000006400", drop.BadVXLANFlags},
		{"GBP flag, and an odd policy ID", "8800000100006400", drop.BadVXLANFlags},
		{"no VNI flag, and Capable", "0000000100006400", drop.BadVXLANFlags},
		{"O flag of VXLAN-GPE, and Capable", "0900000100006400", drop.BadVXLANFlags},
		{"scheme without Capable", "1800000000006400", drop.BadVXLANFlags},
		{"scheme and LBTag without Capable", "1810000000006400", drop.BadVXLANFlags},
		{"LBTag without Capable", "0810000000006400", drop.ReservedBits},
		{"Shim without Capable", "0800000400006400deadbeef", drop.ReservedBits},
		{"FBValid without Capable", "0800000200006400", drop.ReservedBits},
		{"PathID without Capable", "0800000000006401", drop.ReservedBits},
		{"shim missing", "0800000500006400", drop.Truncated},
		{"shim cut", "0800000500006400deadbe", drop.Truncated},
		{"plain", "0800000000006400", drop.None},
		{"Capable", "0800000100006400", drop.None},
		{"scheme 1", "1800000100006400", drop.None},
		{"scheme 15 with shim", "f800000500006400deadbeef", drop.None},
		{"shim", "0800000500006400deadbeef", drop.None},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, err := hex.DecodeString(c.in)
			if err != nil {
				t.Fatal(err)
			}
			f := Fabric{CE: 3}
			vni, n, r := VXLAN(b).Decode(&f)
			check(t, "reason", r, c.want)
			if r == drop.None {
				check(t, "VNI", vni, 100)
				check(t, "length", n, len(b))
			} else {
				check(t, "fabric fields", f, Fabric{})
			}
		})
	}
}

func randomFabric(r *rand.Rand) Fabric {
	f := Fabric{
		Capable: true, LBTag: uint8(r.IntN(16)), CE: uint8(r.IntN(8)), FBValid: r.IntN(2) == 0,
		FBTag: uint8(r.IntN(16)), FBMetric: uint8(r.IntN(8)), Opcode: Opcode(r.IntN(8)), Epoch: Epoch(r.IntN(4)),
		Rerouted: r.IntN(2) == 0, Tail: r.IntN(2) == 0, Shim: r.IntN(2) == 0, Path: PathID(r.IntN(256)), Scheme: SchemeID(r.IntN(NumSchemes)),
	}
	if f.Shim {
		f.TxTstamp, f.Arg = Tstamp(r.Uint32()), Tstamp(r.Uint32())
	}
	if f.Scheme == 8 || r.IntN(8) == 0 {
		f = Fabric{} // a header of scheme 8 would be VXLAN-GBP's
	}
	return f
}

func TestEncodeDecodeRoundTrip(t *testing.T) {
	r := seeded(t)
	for range 20000 {
		want, vni := randomFabric(r), VNI(r.Uint32N(1<<24))
		b := make(VXLAN, VXLANLen+ShimLen)
		n := b.Encode(vni, &want)
		got := randomFabric(r)
		gotVNI, gotN, reason := b[:n].Decode(&got)
		if got != want || gotVNI != vni || gotN != n || reason != drop.None || b.VNI() != vni {
			t.Fatalf("%+v VNI %d came back as %+v VNI %d, length %d of %d, %v", want, vni, got, gotVNI, gotN, n, reason)
		}
	}
}

// seeded returns a generator whose seed is logged, so that a failure can be
// had again.
func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

func TestOpcode(t *testing.T) {
	tenants := map[Opcode]bool{OpData: true, OpRTTRequest: true}
	for o := range Opcode(NumOpcodes) {
		check(t, o.String()+" is control", o.Control(), !tenants[o])
	}
	check(t, "wire value of EXTENSION", OpExtension, 7)
	check(t, "name of no opcode", Opcode(9).String(), "opcode 9")
}

// No scheme's headers look like those of another extension of VXLAN.
func TestSchemeID(t *testing.T) {
	for id := range SchemeID(2 * NumSchemes) {
		b := make(VXLAN, VXLANLen)
		b.Encode(1, &Fabric{Capable: true, Scheme: id})
		var f Fabric
		_, _, reason := b.Decode(&f)
		accepted := reason == drop.None && f.Scheme == id && b.Capable()
		check(t, fmt.Sprintf("scheme %d is valid", id), id.Valid(), id > 0 && accepted)
	}
}

func TestEpoch(t *testing.T) {
	e := Epoch(0)
	for range 9 {
		n := e.Next()
		if !e.Before(n) || n.Before(e) || e.Before(e) || n > 3 {
			t.Fatalf("epoch %d and its next, %d, are out of order", e, n)
		}
		if e.Before(n.Next()) || n.Next().Before(e) {
			t.Fatalf("epochs %d and %d cannot be ordered", e, n.Next())
		}
		e = n
	}
	check(t, "epoch after nine", e, 1)
}

func TestTstamp(t *testing.T) {
	for _, c := range []struct {
		at   mono.Time
		want Tstamp
	}{
		{0, 0}, {999, 0}, {1000, 1}, {65535999, 65535}, {65536000, 0}, {65537000, 1},
		{-1, 65535}, {-1000, 65535}, {-1001, 65534}, {mono.Time(3 * time.Hour), Tstamp(3 * 3600 * 1000000 % 65536)},
	} {
		check(t, time.Duration(c.at).String(), TstampOf(c.at), c.want)
	}
	for _, c := range []struct {
		t, u Tstamp
		want time.Duration
	}{
		{5, 3, 2 * time.Microsecond}, {3, 5, -2 * time.Microsecond}, {1, 0xffff, 2 * time.Microsecond},
		{0x7fff, 0, 32767 * time.Microsecond}, {0x8000, 0, -32768 * time.Microsecond},
	} {
		check(t, "Sub", c.t.Sub(c.u), c.want)
		check(t, "Add", c.u.Add(c.want), c.t)
	}
}

func TestPathID(t *testing.T) {
	p := MakePathID(9, 0x1c)
	check(t, "path", p, 0x9c)
	check(t, "uplink", p.Uplink(), 9)
	check(t, "selector", p.Selector(), 12)
	check(t, "text", p.String(), "9.12")
}
