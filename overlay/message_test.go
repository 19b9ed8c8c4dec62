package overlay

import (
	"bytes"
	"testing"

	"github.com/loomfabric/loom/internal/drop"
)

func linkMessage(f *Fabric) []byte {
	b := make([]byte, LinkMessageLen)
	EncodeLink(b, MAC{2, 0, 0, 0, 0, 1}, MAC{2, 0, 0, 0, 0, 2}, f)
	return b
}

func TestLinkMessages(t *testing.T) {
	f := Fabric{Capable: true, Scheme: 5, Opcode: OpExplore, Epoch: 2, Rerouted: true, Tail: true, Path: 0x37, Shim: true, TxTstamp: 0x1234, Arg: 0x5678}
	want := []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5}
	want = append(want, make([]byte, VXLANLen)...)
	VXLAN(want[EthernetLen:]).Encode(0, &Fabric{Capable: true, Scheme: 5, Opcode: OpExplore, Epoch: 2, Rerouted: true, Tail: true, Path: 0x37})
	want[EthernetLen+3] |= 4 // the shim follows
	want = append(want, 0x12, 0x34, 0x56, 0x78)
	want = append(want, make([]byte, LinkMessageLen-len(want))...)
	b := linkMessage(&f)
	if !bytes.Equal(b, want) {
		t.Errorf("got  % x\nwant % x", b, want)
	}
	var got Fabric
	if r := DecodeLink(b, &got); r != drop.None || got != f {
		t.Errorf("%v: %+v, want %+v", r, got, f)
	}
	f.Shim, f.TxTstamp, f.Arg = false, 0, 0
	if r := DecodeLink(linkMessage(&f), &got); r != drop.None || got != f {
		t.Errorf("without a shim: %v: %+v, want %+v", r, got, f)
	}
}

func TestDecodeLinkRefuses(t *testing.T) {
	good := Fabric{Capable: true, Scheme: 5, Opcode: OpExtension, Shim: true}
	edit := func(at int, to byte) []byte {
		b := linkMessage(&good)
		b[at] = to
		return b
	}
	opcode := func(op Opcode) []byte {
		f := good
		f.Opcode = op
		return linkMessage(&f)
	}
	for name, tt := range map[string]struct {
		b    []byte
		want drop.Reason
	}{
		"nothing":            {nil, drop.Truncated},
		"half an address":    {linkMessage(&good)[:13], drop.Truncated},
		"no header":          {linkMessage(&good)[:21], drop.Truncated},
		"no shim":            {linkMessage(&good)[:25], drop.Truncated},
		"another type":       {edit(13, 0xb6), drop.BadEtherType},
		"no VNI flag":        {edit(14, 0), drop.BadVXLANFlags},
		"a VNI":              {edit(20, 1), drop.VNIUnknown},
		"plain":              {linkMessage(nil), drop.BadOpcode},
		"a tenant's":         {opcode(OpData), drop.BadOpcode},
		"a tenant's request": {opcode(OpRTTRequest), drop.BadOpcode},
		"HELLO":              {opcode(OpHello), drop.BadOpcode},
	} {
		var f Fabric
		if got := DecodeLink(tt.b, &f); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

// FuzzDecodeLink holds that what is accepted is a message, and encodes as what it is.
func FuzzDecodeLink(f *testing.F) {
	f.Add(linkMessage(&Fabric{Capable: true, Scheme: 5, Opcode: OpExplore, Shim: true, Arg: 9}))
	f.Add(linkMessage(nil))
	f.Fuzz(tryDecodeLink)
}

func tryDecodeLink(t *testing.T, b []byte) {
	var x, y Fabric
	if DecodeLink(b, &x) != drop.None {
		return
	}
	if !x.Capable || !x.Opcode.Control() {
		t.Fatalf("accepted %+v", x)
	}
	if r := DecodeLink(linkMessage(&x), &y); r != drop.None || x != y {
		t.Fatalf("%v: %+v, want %+v", r, y, x)
	}
}
