package xsk

import (
	"bytes"
	"testing"

	"github.com/loomfabric/loom/internal/testenv"
)

// TestLongFrames: packets of more than a page cross a veth pair in parts, each of which is
// received in a frame of its own and completed by its address.
func TestLongFrames(t *testing.T) {
	testenv.NeedRoot(t)
	ns := testenv.NewNamespace(t, "lmxsk")
	testenv.VethPair(t, ns, "a", ns, "b", testenv.VethOptions{MTU: 9000})
	area := func() (*Umem, *Pool) {
		u, err := NewUmem(UmemConfig{Frames: 256, FrameSize: LongFrame})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := u.Close(); err != nil {
				t.Error(err)
			}
		})
		return u, NewPool(u.Frames(), u.FrameSize())
	}
	chunk := uint64(UmemConfig{FrameSize: LongFrame}.Chunk())
	room := int(chunk) - Headroom
	cfg := SocketConfig{RX: 256, TX: 256, Fill: 256, Completion: 256}
	ua, pa := area()
	ub, pb := area()
	a := openOn(t, ns, "a", ua, pa, 0, cfg, 0)
	b := openOn(t, ns, "b", ub, pb, 0, cfg, 128)
	for i, length := range []int{60, 3840, 3841, 4096, 7680, 7681, 9014} {
		want := make([]byte, length)
		copy(want, "\x02\x00\x00\x00\x00\x02\x02\x00\x00\x00\x00\x01\x88\xb5")
		for j := 14; j < length; j++ {
			want[j] = byte(i + j*31 + j>>8)
		}
		addr, _ := pa.Get()
		pa.Give(addr, a.owner)
		// As if encapsulated: the packet starts before the place where it came in.
		at := addr + Headroom - 50
		copy(ua.Area()[at:], want)
		var parts []Desc
		for left := uint64(length); left > 0; {
			d := Desc{Addr: at, Len: uint32(min(left, chunk-at%chunk))}
			at, left = at+uint64(d.Len), left-uint64(d.Len)
			if left > 0 {
				d.Options = More
			}
			parts = append(parts, d)
		}
		if n := a.Transmit(parts); n != len(parts) {
			t.Fatalf("%d of %d parts fit the TX ring", n, len(parts))
		}
		if r := a.Kick(); r > KickAgain {
			t.Fatalf("kick: %v", r)
		}
		var got []byte
		more := true
		b.receiveInto(t, (length+room-1)/room, func(d Desc) {
			got = append(got, ub.Area()[d.Addr:d.Addr+uint64(d.Len)]...)
			if more = d.Options&More != 0; more && int(d.Len) != room {
				t.Errorf("%d bytes: a part of %d bytes is not the last", length, d.Len)
			}
			pb.Put(d.Addr)
		})
		if !bytes.Equal(got, want) || more {
			t.Errorf("%d bytes: received %d, more %v", length, len(got), more)
		}
		done := make([]uint64, 8)
		if n := a.Complete(done); n != len(parts) || a.TXPending() != 0 {
			t.Fatalf("%d bytes: %d of %d parts completed", length, n, len(parts))
		}
		for k := range parts {
			if done[k] != parts[k].Addr {
				t.Errorf("%d bytes: part %d completed as %#x, want %#x", length, k, done[k], parts[k].Addr)
			}
		}
		pa.Take(addr, a.owner)
		pa.Put(addr)
	}
}
