package dataplane

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/loomfabric/loom/dataplane/xsk"
	"github.com/loomfabric/loom/internal/drop"
)

// putLong makes b the next packet to be received, in as many parts as the kernel makes of
// it. It reports whether there were frames to put them into.
func (l *memLink) putLong(b []byte) bool {
	const room = 4096 - xsk.Headroom
	if len(l.filled) < (len(b)+room-1)/room {
		return false
	}
	for {
		l.put(b[:min(len(b), room)])
		if b = b[min(len(b), room):]; len(b) == 0 {
			return true
		}
		l.rx[len(l.rx)-1].Options = xsk.More
	}
}

// longRig is a leaf whose hosts have an MTU of 9000.
func longRig(t *testing.T) *rig {
	t.Helper()
	cfg := leafConfig()
	cfg.MaxMTU, cfg.RingSize = 9100, kickBurst
	tables := leafTables()
	for i := range tables.Ports {
		tables.Ports[i].MTU = 9000
		if cfg.Ports[i].Kind == Uplink {
			tables.Ports[i].MTU = 9100
		}
	}
	tables.Static = append(tables.Static, StaticMAC{MAC: hostB, Peer: 0, Port: NoPort})
	r := newRig(t, cfg, tables)
	r.w.long = newLongFrames(r.w.pool.Frames(), xsk.LongFrame, 4096) // on machines with larger pages, too
	return r
}

// Packets of all lengths go from hosts into the fabric and back, and are what they were.
func TestLongFrames(t *testing.T) {
	r := longRig(t)
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	lengths := []int{18, 3840 - 42, 3841 - 42, 4096 - 42, 7680 - 42, 7681 - 42, 9000 - 28}
	for range 300 {
		lengths = append(lengths, rng.IntN(9000-28))
	}
	for round := range 3 {
		var sent [][]byte
		for _, n := range lengths {
			b := udp4(hostB, hostA, 0, uint16(rng.Uint32()), n)
			rng.Shuffle(n, func(i, j int) { b[42+i], b[42+j] = b[42+j], b[42+i] })
			if !r.links[acc0].putLong(b) {
				out := r.settle()
				checkLong(t, sent, append(out[up0], out[up1]...))
				sent = sent[:0]
				if !r.links[acc0].putLong(b) {
					t.Fatal("no frames to receive into after all was sent")
				}
			}
			sent = append(sent, b)
			if rng.IntN(70) == 0 {
				rng.Shuffle(len(lengths), func(i, j int) { lengths[i], lengths[j] = lengths[j], lengths[i] })
			}
		}
		out := r.settle()
		checkLong(t, sent, append(out[up0], out[up1]...))
		var outer [][]byte
		for _, b := range sent[:min(len(sent), 40)] {
			inner := append(append(append([]byte(nil), hostA[:]...), hostB[:]...), b[12:]...)
			outer = append(outer, inner)
			if !r.links[up0].putLong(wrap(vtep2, r.w.cfg.VTEP, 100, inner, nil)) {
				t.Fatal("no frames to receive into")
			}
		}
		checkLong(t, outer, r.settle()[acc0])
		if round == 0 && len(r.drops()) > 0 {
			t.Fatalf("drops: %v", r.drops())
		}
	}
	if s := r.w.snapshot(); s.Ports[acc0].Received.Frames < 900 {
		t.Errorf("%d packets came in", s.Ports[acc0].Received.Frames)
	}
}

// checkLong reports packets that are not in got, alone or behind outer headers, each once.
func checkLong(t *testing.T, want, got [][]byte) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d packets left, want %d", len(got), len(want))
	}
	for _, w := range want {
		found := false
		for i, g := range got {
			if bytes.HasSuffix(g, w) {
				got[i], found = nil, true
				break
			}
		}
		if !found {
			t.Fatalf("a packet of %d bytes did not leave as it came", len(w))
		}
	}
}

// What no frame holds, and what lacks its end, is dropped under a name, with all its parts.
func TestLongFramesThatCannotBe(t *testing.T) {
	for _, c := range []struct {
		name string
		put  func(l *memLink)
	}{
		{"five parts", func(l *memLink) { l.putLong(make([]byte, 5*3840)) }},
		{"no end", func(l *memLink) {
			l.putLong(make([]byte, 9000))
			last := len(l.rx) - 1
			l.filled = append(l.filled, l.rx[last].Addr&^(xsk.LongFrame-1))
			l.rx = l.rx[:last]
		}},
		{"parts without end", func(l *memLink) {
			for range 100 {
				l.put(make([]byte, 1))
				l.rx[len(l.rx)-1].Options = xsk.More
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := longRig(t)
			c.put(r.links[acc0])
			r.settle()
			if n := r.drops(); n[drop.TooBig] != 1 || len(n) != 1 {
				t.Errorf("drops %v, want one packet too_big", n)
			}
			good := udp4(hostB, hostA, 0, 7, 8000)
			r.links[acc0].putLong(good)
			out := r.settle()
			checkLong(t, [][]byte{good}, append(out[up0], out[up1]...))
		})
	}
}

// A frame is free when all of its parts have been completed, and not before.
func TestLongFramesAreWhole(t *testing.T) {
	if newLongFrames(8, 4096, 4096) != nil {
		t.Error("packets of a page are put together")
	}
	l := newLongFrames(8, xsk.LongFrame, 4096)
	const one, two = 1 * xsk.LongFrame, 2 * xsk.LongFrame
	parts := l.split([]xsk.Desc{{Addr: one + 256, Len: 9000}, {Addr: two + 200, Len: 60}, {Addr: 3*xsk.LongFrame + 4095, Len: 2}})
	want := []xsk.Desc{
		{Addr: one + 256, Len: 3840, Options: xsk.More}, {Addr: one + 4096, Len: 4096, Options: xsk.More}, {Addr: one + 8192, Len: 1064},
		{Addr: two + 200, Len: 60}, {Addr: 3*xsk.LongFrame + 4095, Len: 1, Options: xsk.More}, {Addr: 3*xsk.LongFrame + 4096, Len: 1},
	}
	if len(parts) != len(want) {
		t.Fatalf("parts %+v", parts)
	}
	for i := range want {
		if parts[i] != want[i] {
			t.Errorf("part %d is %+v, want %+v", i, parts[i], want[i])
		}
	}
	for i, c := range []struct {
		done []uint64
		free int
	}{{[]uint64{one + 4096}, 0}, {[]uint64{two + 200, one + 256}, 1}, {[]uint64{3*xsk.LongFrame + 4095}, 0}, {[]uint64{one + 8192, 3*xsk.LongFrame + 4096}, 2}} {
		if got := l.completed(c.done); len(got) != c.free {
			t.Errorf("completion %d (%#x) frees %#x, want %d frames", i, c.done, got, c.free)
		}
	}
}
