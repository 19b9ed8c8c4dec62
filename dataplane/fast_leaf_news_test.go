package dataplane

import (
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/liveness"
	"github.com/loomfabric/loom/overlay"
)

// byXDP gives a frame to a port's program alone. It reports whether that has forwarded it.
func (r *fastLeafRig) byXDP(in PortID, frame []byte) bool {
	r.t.Helper()
	r.pass(0)
	before := r.fast.stats().Ports[in].Received.Frames
	opts := ebpf.RunOptions{Data: frame, DataOut: make([]byte, 4096)}
	if _, err := r.progs[in].Run(&opts); err != nil {
		r.t.Fatal(err)
	}
	return r.fast.stats().Ports[in].Received.Frames > before
}

// The leaf's tables say of paths what XDP has heard as they say what the worker has: CE,
// feedback, and how many packets have come by which path.
func TestFastLeafTakesInWhatXDPHears(t *testing.T) {
	fast, slow := newFastLeafSample(t), newFastLeafSample(t)
	slow.tables.Off()
	heard := func(r *fastLeafRig, f *overlay.Fabric, times int) {
		t.Helper()
		f.Capable = true
		for i := range times {
			b := wrap(vtep2, own(), 100, udp4(hostA, hostB, 0, uint16(i), 64), f)
			if r == slow {
				r.byWorker(up0, b)
			} else if !r.byXDP(up0, b) {
				t.Fatalf("%+v was not delivered by XDP: %v", *f, slowsOf(r.tables, up0))
			}
		}
	}
	for _, f := range []overlay.Fabric{{LBTag: 3, CE: 2}, {LBTag: 4, CE: 7}, {LBTag: 3, CE: 5, FBValid: true, FBTag: 1, FBMetric: 6}, {LBTag: 4}, {LBTag: 5, CE: 4, FBValid: true, FBTag: 0, FBMetric: 1}} {
		for _, r := range []*fastLeafRig{fast, slow} {
			heard(r, &f, 7)
		}
		if !fast.fast.ears.listen(fast.now, 2) || fast.fast.ears.listen(fast.now, 2) {
			t.Fatal("what is new is not told once")
		}
	}
	came := func(r *fastLeafRig, tag uint8) (c, hot uint32) {
		all := liveness.NewTraffic(r.w.shared.leaf.Paths, 0)
		return all.Came(0, tag), all.Hot(0, tag)
	}
	wantCame := [16]uint32{3: 14, 4: 14, 5: 7}
	wantHot := [16]uint32{3: 7, 4: 7, 5: 7}
	for tag := range uint8(16) {
		a, _, aOK := fast.w.shared.leaf.From.Entry(0, tag, fast.now)
		b, _, bOK := slow.w.shared.leaf.From.Entry(0, tag, fast.now)
		if a != b || aOK != bOK {
			t.Errorf("CE from uplink %d is %d (%v) by XDP, %d (%v) by the worker", tag, a, aOK, b, bOK)
		}
		a, _, aOK = fast.w.shared.leaf.To.Entry(0, tag, fast.now)
		b, _, bOK = slow.w.shared.leaf.To.Entry(0, tag, fast.now)
		if a != b || aOK != bOK {
			t.Errorf("feedback about uplink %d is %d (%v) by XDP, %d (%v) by the worker", tag, a, aOK, b, bOK)
		}
		if c, hot := came(fast, tag); c != wantCame[tag] || hot != wantHot[tag] {
			t.Errorf("%d packets have come by uplink %d, %d of them by busy links; want %d and %d", c, tag, hot, wantCame[tag], wantHot[tag])
		}
	}
	fast.fast.ears.listen(fast.now, 2)
	fast.w.shared.leaf.Forget(0)
	if fast.fast.ears.listen(fast.now, 2) {
		t.Error("what was heard of a peer is told again")
	}
}

// Places of reasons in bpf.FastSlowNames.
const sourceUnknown, destinationUnknown = 9, 10

// An address whose frames only XDP sees stays known: the worker is told to note it again. One
// that nobody sees is forgotten, by both.
func TestFastLeafKeepsSourcesKnown(t *testing.T) {
	r := newFastLeafSample(t)
	frame := wrap(vtep2, own(), 100, udp4(hostA, hostB, 0, 1, 64), nil)
	const step = 100 * time.Second // of 300
	for i := range 6 {
		if r.pass(step); i < 5 {
			r.knows(0, hostA, overlay.DestLocal(uint16(acc0), 0)) // where it goes is seen by the worker
		}
		if !r.byXDP(up0, frame) {
			t.Fatalf("after %v: slow for %v", time.Duration(i+1)*step, slowsOf(r.tables, up0))
		}
		if n := r.w.leaf.stats.FDBLearned; n != 0 {
			t.Fatalf("%d addresses are learned anew", n)
		}
		r.now += mono.Time(2 * sweepEvery)
		r.w.round(r.now)
	}
	r.pass(250 * time.Second)
	if r.byXDP(up0, frame) || slowsOf(r.tables, up0)[destinationUnknown] != 1 {
		t.Errorf("to an address that nobody has seen for 350 s: slow for %v", slowsOf(r.tables, up0))
	}
	r.pass(100 * time.Second)
	if r.byXDP(up0, frame) || slowsOf(r.tables, up0)[sourceUnknown] == 0 {
		t.Errorf("from an address that nobody has seen for 350 s: slow for %v", slowsOf(r.tables, up0))
	}
}

// What XDP delivers, and what drivers do not take of it, is an account that balances.
func TestFastLeafAccount(t *testing.T) {
	r := newFastLeafSample(t)
	frame := wrap(vtep2, own(), 200, udp4(hostA, hostB, 0, 1, 64), &overlay.Fabric{Capable: true, CE: 1})
	if !r.byXDP(up1, frame) {
		t.Fatalf("slow for %v", slowsOf(r.tables, up1))
	}
	s := r.fast.stats()
	if a := s.Account(); !a.Balances() || a.Received != 1 || a.Sent != 1 {
		t.Errorf("one frame by XDP: %v", a)
	}
	inner := uint64(len(frame) - overlay.Overhead)
	if s.Ports[up1].Received.Bytes != uint64(len(frame)) || s.Ports[acc0].Sent.Bytes != inner+overlay.VLANLen || s.VNIs[1].Decapsulated.Bytes != inner {
		t.Errorf("received %+v, sent %+v, decapsulated %+v", s.Ports[up1].Received, s.Ports[acc0].Sent, s.VNIs[1].Decapsulated)
	}
	if s.Exchange.Arrived != 1 || s.Exchange.CongestedArrived != 1 || s.PeerReceived[0].Frames != 1 {
		t.Errorf("exchange %+v, of the peer %+v", s.Exchange, s.PeerReceived)
	}
	opts := ebpf.RunOptions{Data: frame, Repeat: 64, Flags: unix.BPF_F_TEST_XDP_LIVE_FRAMES} // the loopback takes none
	if _, err := r.progs[up1].Run(&opts); err != nil {
		t.Fatal(err)
	}
	s = r.fast.stats()
	if a := s.Account(); !a.Balances() || a.Dropped == 0 || s.Ports[up1].Drops[drop.DriverRefused] != a.Dropped {
		t.Errorf("with frames that the driver does not take: %v", a)
	}
}
