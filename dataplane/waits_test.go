package dataplane

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/leaf"
	"github.com/loomfabric/loom/overlay"
)

// chooser is a scheme whose choice the test makes.
type chooser struct {
	balance.Policy
	choose func(now mono.Time, v *balance.View, pkts []balance.Packet)
}

func (p *chooser) Choose(now mono.Time, v *balance.View, pkts []balance.Packet) {
	p.choose(now, v, pkts)
}

// script makes a leaf's default class one of a scheme that waits, copies and wants to
// know flows exactly.
func (r *rig) script(choose func(now mono.Time, v *balance.View, pkts []balance.Packet)) {
	p, err := balance.New("ecmp", balance.Options{})
	if err != nil {
		r.t.Fatal(err)
	}
	s := &balance.Scheme{Name: "chooser", Waits: true, Copies: true, Exact: true}
	c := newClass(leaf.NewClass(s, &chooser{p, choose}), Class{})
	r.w.leaf.setClasses([]*class{c})
}

// A frame that its scheme has told to wait is offered again when its time has come, and
// its worker wakes up for it; frames of one time keep their order.
func TestSchemesCanMakeFramesWait(t *testing.T) {
	r := newRig(t, leafConfig(), leafTables())
	r.send(up0, wrap(vtep2, own(), 100, udp4(bcast, hostB, 0, 1, 10), nil))
	until := r.now.Add(time.Millisecond)
	offered := 0
	r.script(func(now mono.Time, v *balance.View, pkts []balance.Packet) {
		for i := range pkts {
			offered++
			pkts[i].Path, pkts[i].Until = 1, until
			if k := v.Exact[i].Key; k.DstPort != 53 || k.SrcPort != 7 {
				t.Errorf("flow %+v", k)
			}
		}
	})
	var frames [][]byte
	for seq := range uint32(5) {
		b := numbered(7, seq)
		frames = append(frames, b[:len(b):len(b)])
	}
	out := r.send(acc0, frames...)
	if len(out[up1]) != 0 || r.w.held() != 5 {
		t.Fatalf("%d frames left, %d are held", len(out[up1]), r.w.held())
	}
	if at, _ := r.w.nextDeadline(r.now); at != until {
		t.Errorf("the worker sleeps until %v, want %v", at, until)
	}
	r.now = until
	out = r.settle()
	if len(out[up1]) != 5 || r.w.held() != 0 || offered != 10 {
		t.Fatalf("%d frames left, %d are held, %d were offered", len(out[up1]), r.w.held(), offered)
	}
	for i, b := range out[up1] {
		if _, inner := unwrap(t, b); !bytes.Equal(inner, frames[i]) {
			t.Errorf("frame %d is another one", i)
		}
	}
	if s := r.w.snapshot().Leaf; s.Waited != 5 {
		t.Errorf("%d have waited", s.Waited)
	}
}

// A copy by each path that the scheme names, and the frame itself: all alike.
func TestSchemesCanSendCopies(t *testing.T) {
	r := newRig(t, leafConfig(), leafTables())
	r.send(up0, wrap(vtep2, own(), 100, udp4(bcast, hostB, 0, 1, 10), nil))
	r.script(func(_ mono.Time, _ *balance.View, pkts []balance.Packet) {
		for i := range pkts {
			pkts[i].Path, pkts[i].Copies = 1, 0xffff // of which two lead anywhere
		}
	})
	b, made := numbered(7, 3), r.w.made
	out := r.send(acc0, b)
	if len(out[up0]) != 1 || len(out[up1]) != 1 || r.w.made != made+1 {
		t.Fatalf("%d and %d frames left, %d made", len(out[up0]), len(out[up1]), r.w.made)
	}
	for _, sent := range [][]byte{out[up0][0], out[up1][0]} {
		if _, inner := unwrap(t, sent); !bytes.Equal(inner, b) {
			t.Error("a copy is not the frame")
		}
	}
}

// A leaf that stops, and a peer whose place goes to another leaf: what waits goes where
// it was to go, and at once.
func TestFramesThatWaitGoToTheirOwnPeer(t *testing.T) {
	for _, stop := range []bool{false, true} {
		r := newRig(t, leafConfig(), leafTables())
		r.send(up0, wrap(vtep2, own(), 100, udp4(bcast, hostB, 0, 1, 10), nil))
		r.script(func(now mono.Time, _ *balance.View, pkts []balance.Packet) {
			for i := range pkts {
				pkts[i].Path, pkts[i].Until = 0, now.Add(time.Hour)
			}
		})
		r.send(acc0, numbered(7, 1))
		if r.w.held() != 1 {
			t.Fatal("nothing waits")
		}
		if stop {
			r.w.cfg.Drain = time.Second
			began := time.Now()
			r.w.drain()
			if d := time.Since(began); d > time.Second/2 {
				t.Errorf("the drain took %v", d)
			}
		} else {
			moved := leafTables()
			moved.Peers[0].VTEP = own()
			r.publish(moved)
		}
		out := r.links[up0].out
		if len(out) == 0 {
			out = r.settle()[up0]
		}
		if len(out) != 1 || r.w.held() != 0 {
			t.Fatalf("%d frames left, %d are held", len(out), r.w.held())
		}
		if d, _ := unwrap(t, out[0]); d.Dst != overlay.AddrOf(vtep2) {
			t.Errorf("the frame went to %x", d.Dst)
		}
	}
}

// Frames without a shim that come behind marked ones do not overtake them, wherever they
// go; frames that are not wanted go nowhere.
func TestPlainFramesDoNotOvertakeMarkedOnes(t *testing.T) {
	r := newRig(t, leafConfig(), leafTables())
	r.send(acc0, udp4(bcast, hostA, 0, 1, 10))
	frame := func(seq byte, f *overlay.Fabric) []byte {
		b := udp4(hostA, hostB, 0, 7, 10)
		b[42] = seq
		return wrap(vtep2, own(), 100, b, f)
	}
	var burst [][]byte
	for seq := range byte(12) {
		f := &overlay.Fabric{Capable: true}
		switch seq % 4 {
		case 1:
			f.Scheme, f.Shim = 1, true
		case 2:
			f = nil
		case 3:
			f.Scheme, f.Shim = 2, true
			f.Rerouted, f.Arg = true, overlay.Tstamp(seq)
		}
		burst = append(burst, frame(seq, f), frame(99, &overlay.Fabric{Capable: true, Opcode: overlay.OpClear, Scheme: 15}))
	}
	var got []byte
	for _, b := range r.send(up0, burst...)[acc0] {
		got = append(got, b[42])
	}
	r.now = r.now.Add(time.Second)
	for _, b := range r.settle()[acc0] {
		got = append(got, b[42])
	}
	plain := slices.DeleteFunc(slices.Clone(got), func(seq byte) bool { return seq%4 == 3 })
	if len(got) != 12 || len(plain) != 9 || !slices.IsSorted(plain) {
		t.Errorf("the host got %v", got)
	}
	if d := r.drops(); len(d) != 1 || d[drop.BadOpcode] != 12 {
		t.Errorf("drops %v", d)
	}
}
