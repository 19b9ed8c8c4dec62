package overlay

import (
	"bytes"
	"testing"

	"github.com/loomfabric/loom/internal/drop"
)

// helloFrame is an inner frame with a HELLO.
func helloFrame(h *Hello, padding int) []byte {
	b := make([]byte, EthernetLen+HelloLen+padding)
	Ethernet(b).SetEtherType(EtherTypeLocal)
	h.Encode(b[EthernetLen:])
	return b
}

var goldenHello = Hello{
	Boot: 0x11223344, Round: 0x55667788, LargeRound: 0x55667780, Sent: 0x99aabbcc,
	Present: 0x000f, Silent: 0x0001, Lossy: 0x0002, Narrow: 0x0004, EchoTag: 3, Loss: 0xcccd, Large: true, Every: 100,
	Nonce: 0x0102030405060708, Echo: 0x1112131415161718,
}

// goldenFarewell is the same leaf's last word.
var goldenFarewell = Hello{
	Boot: 0x11223344, Round: 0x55667789, LargeRound: 0x55667780, Sent: 0x99aabbcd, Present: 0x000f, EchoTag: 3, Leaving: true, Every: 250,
	Nonce: 0x0102030405060708, Echo: 0x1112131415161718,
}

func TestHello(t *testing.T) {
	for _, h := range []Hello{goldenHello, goldenFarewell, {Round: 1}, {Round: 1, Echo: 1, Silent: 0xffff}} {
		var got Hello
		if r := got.Decode(helloFrame(&h, 0)); r != drop.None || got != h {
			t.Errorf("%v, %+v, want %+v", r, got, h)
		}
		if r := got.Decode(helloFrame(&h, 1400)); r != drop.None || got != h {
			t.Errorf("padded: %v, %+v, want %+v", r, got, h)
		}
	}
	good := helloFrame(&goldenHello, 0)
	bad := map[string][]byte{
		"nothing": nil, "a header only": good[:EthernetLen], "cut short": good[:len(good)-1],
		"another version": good, "an EtherType of others": good, "round 0": good,
	}
	for name, b := range bad {
		b = bytes.Clone(b)
		switch name {
		case "another version":
			b[EthernetLen] = 2
		case "an EtherType of others":
			Ethernet(b).SetEtherType(EtherTypeIPv4)
		case "round 0":
			clear(b[EthernetLen+20:][:4])
		}
		got := goldenHello
		if r := got.Decode(b); r != drop.BadHello || got != (Hello{}) {
			t.Errorf("%s: %v, %+v", name, r, got)
		}
	}
}

func FuzzHello(f *testing.F) {
	f.Add(helloFrame(&goldenHello, 0))
	f.Add(helloFrame(&goldenFarewell, 0))
	f.Add(helloFrame(&Hello{Round: 1}, 7))
	f.Fuzz(tryHello)
}

func tryHello(t *testing.T, b []byte) {
	var h, again Hello
	if h.Decode(b) != drop.None {
		return
	}
	if r := again.Decode(helloFrame(&h, 0)); r != drop.None || again != h {
		t.Fatalf("%+v is %+v when it is sent again (%v)", h, again, r)
	}
}
