package overlay

import (
	"bytes"
	"strings"
	"testing"

	"github.com/loomfabric/loom/internal/drop"
)

// sealed is a control packet with room for a seal, sealed with the keys.
func sealed(k Keys) []byte {
	inner := append(helloFrame(&goldenHello, 0), make([]byte, SealLen)...)
	b := encapped(inner, 0, 7, DSCPControl, &Fabric{Capable: true, Opcode: OpHello, Shim: true})
	k.Seal(b)
	return b
}

func TestSeal(t *testing.T) {
	a, b := Key{1, 2}, Key{3, 4}
	unseal := func(k Keys, frame []byte) (Decapped, drop.Reason) {
		var d Decapped
		if r := Decap(frame, DefaultPort, &d); r != drop.None {
			t.Fatal(r)
		}
		return d, k.Unseal(frame, &d)
	}
	good := sealed(Keys{a, b})
	for _, k := range []Keys{{a}, {b, a}} {
		d, r := unseal(k, good)
		var h Hello
		if r != drop.None || h.Decode(good[d.Inner:d.End]) != drop.None || h != goldenHello || d.End != len(good)-SealLen {
			t.Errorf("%v, %+v", r, h)
		}
	}
	if _, r := unseal(Keys{b}, good); r != drop.BadSeal {
		t.Errorf("with another key: %v", r)
	}
	// Hops raise CE; nothing else may become different, from the addresses on.
	raised := bytes.Clone(good)
	VXLAN(raised[outVXLAN:]).RaiseCE(7)
	before := bytes.Clone(raised)
	if _, r := unseal(Keys{a}, raised); r != drop.None || !bytes.Equal(raised, before) {
		t.Errorf("CE was raised: %v", r)
	}
	for i := EthernetLen + ip4Src; i < len(good); i++ {
		for bit := range 8 {
			bad := bytes.Clone(good)
			bad[i] ^= 1 << bit
			IPv4(bad[outIP:]).UpdateChecksum()
			var d Decapped
			ce := i == outVXLAN+vxCEByte && vxCEMask>>bit&1 != 0
			if Decap(bad, DefaultPort, &d) == drop.None && (Keys{a}.Unseal(bad, &d) == drop.None) != ce {
				t.Errorf("bit %d of byte %d was changed, and nobody notices", bit, i)
			}
		}
	}
	six := append(helloFrame(&goldenHello, 0), make([]byte, SealLen)...)
	six = encapped6(six, 0, 7, DSCPControl, &Fabric{Capable: true, Opcode: OpHello, Shim: true})
	Keys{a}.Seal(six)
	for i := outIP; i < len(six); i++ {
		for bit := range 8 {
			bad := bytes.Clone(six)
			bad[i] ^= 1 << bit
			// Hops change the traffic class, the hop limit and CE; nobody looks at the flow label.
			free := i < outIP+ip6Payload || i == outIP+ip6Hops || i == outVXLAN6+vxCEByte && vxCEMask>>bit&1 != 0
			var d Decapped
			if Decap(bad, DefaultPort, &d) == drop.None && (Keys{a}.Unseal(bad, &d) == drop.None) != free {
				t.Errorf("over IPv6: bit %d of byte %d was changed; noticed: %v", bit, i, free)
			}
		}
	}
	short := encapped(make([]byte, EthernetLen+SealLen-1), 0, 7, DSCPControl, &Fabric{Capable: true, Opcode: OpHello})
	if _, r := unseal(Keys{a}, short); r != drop.BadSeal {
		t.Errorf("no room for a seal: %v", r)
	}
	k := Keys{b, a}
	var d Decapped
	if n := testing.AllocsPerRun(100, func() {
		k.Seal(raised)
		Decap(raised, DefaultPort, &d)
		k.Unseal(raised, &d)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestParseKeys(t *testing.T) {
	const one, two = "000102030405060708090a0b0c0d0e0f", "ffeeddccbbaa99887766554433221100"
	k, err := ParseKeys("# the fabric's\n" + one + "\n\n  " + two + "  \n")
	if err != nil || len(k) != 2 || k[0] != (Key{0x0706050403020100, 0x0f0e0d0c0b0a0908}) {
		t.Errorf("%v, %x", err, k)
	}
	for text, want := range map[string]string{
		"": "no key", "# nothing\n": "no key", one[:31]: "line 1", one + "\n" + two + "0": "line 2", "secret": "line 1",
	} {
		if _, err := ParseKeys(text); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), text) && text != "" {
			t.Errorf("%q: %v, want one about %q that does not show the key", text, err, want)
		}
	}
}
