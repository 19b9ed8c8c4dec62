package dataplane

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/dataplane/xsk"
	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
)

func testEgress(c EgressConfig) *egress {
	p := congestion.Datacenter()
	e := newEgress(&c, make([]byte, 4096), congestion.NewMeter(1, &p), 0, &p, rand.New(rand.NewPCG(1, 2)))
	return &e
}

// leave returns what may be sent at now.
func leave(e *egress, now mono.Time) []xsk.Desc {
	out := make([]xsk.Desc, 64)
	n, bytes := e.next(now, out)
	for _, d := range out[:n] {
		bytes -= uint64(d.Len)
	}
	if bytes != 0 {
		panic("next miscounts bytes")
	}
	return out[:n]
}

func TestShaperHoldsItsRate(t *testing.T) {
	for _, c := range []struct {
		rate  uint64
		burst uint32
		size  uint16
		step  time.Duration // between looks
	}{
		{100e6, 3000, 1500, 10 * time.Microsecond},
		{1e9, 15000, 64, 3 * time.Microsecond},
		{25e9, 64000, 1500, time.Microsecond},
		{7_777_777, 1500, 333, 100 * time.Microsecond},
	} {
		e := testEgress(EgressConfig{QueueBytes: 1 << 30, Rate: c.rate, Burst: c.burst})
		now, sent := mono.Time(0), uint64(0)
		end := mono.Time(100 * time.Millisecond)
		for ; now < end; now += mono.Time(c.step) {
			for e.data.len() < 128 {
				e.enqueue(&frame{len: c.size})
			}
			for _, f := range leave(e, now) {
				sent += uint64(f.Len)
			}
		}
		want := float64(c.rate) / 8 * end.Sub(0).Seconds()
		slack := float64(c.burst) + 2*float64(c.size) + want*0.001
		if got := float64(sent); got > want+slack || got < want-slack {
			t.Errorf("rate %d: sent %d bytes in %v, want %.0f ± %.0f", c.rate, sent, end.Sub(0), want, slack)
		}
	}
}

func TestShaperNeverExceedsItsBucket(t *testing.T) {
	// Whatever the arrivals, no window may carry more than rate·window plus
	// bucket plus one frame: the definition of a token bucket.
	rng := rand.New(rand.NewPCG(3, 4))
	const rate, burst = 1e9, 10000
	e := testEgress(EgressConfig{QueueBytes: 1 << 30, Rate: rate, Burst: burst})
	type departure struct {
		at    mono.Time
		bytes int
	}
	var log []departure
	now := mono.Time(0)
	for range 5000 {
		now += mono.Time(rng.IntN(20000))
		for range rng.IntN(4) {
			e.enqueue(&frame{len: uint16(64 + rng.IntN(1400))})
		}
		for _, f := range leave(e, now) {
			log = append(log, departure{now, int(f.Len)})
		}
	}
	for i := range log {
		sum := 0
		for j := i; j < len(log) && j < i+200; j++ {
			sum += log[j].bytes
			if limit := burst + 1464 + rate/8*log[j].at.Sub(log[i].at).Seconds(); float64(sum) > limit+1 {
				t.Fatalf("%d bytes left within %v, at most %.0f may", sum, log[j].at.Sub(log[i].at), limit)
			}
		}
	}
}

func TestDeadlineIsWhenTheNextFrameMayLeave(t *testing.T) {
	e := testEgress(EgressConfig{QueueBytes: 1 << 20, Rate: 8e6, Burst: 0, Delay: 500 * time.Microsecond})
	now := mono.Time(1000)
	if e.deadline(now) != idle {
		t.Error("an empty port has a deadline")
	}
	for range 3 {
		e.enqueue(&frame{len: 1000}) // 1 ms each at 8 Mbit/s
	}
	var left []mono.Time
	for range 100 {
		if n := len(leave(e, now)); n > 0 {
			left = append(left, now)
		}
		d := e.deadline(now)
		if d == idle {
			break
		}
		if d <= now {
			t.Fatalf("deadline %d at %d, when nothing more could leave", d, now)
		}
		now = d
	}
	want := []mono.Time{1000 + 500_000, 1000 + 1_500_000, 1000 + 2_500_000}
	if len(left) != 3 || left[0] != want[0] || left[1] != want[1] || left[2] != want[2] {
		t.Errorf("frames left at %v, want %v", left, want)
	}
}

func TestControlGoesBeforeData(t *testing.T) {
	e := testEgress(EgressConfig{QueueBytes: 1 << 20, Rate: 1e6, Burst: 0})
	for i := range 4 {
		e.enqueue(&frame{len: 1000, hash: uint32(i)})
	}
	leave(e, 0) // the shaper is busy now
	e.enqueue(&frame{len: 64, kind: kindControl})
	out := leave(e, 1)
	if len(out) != 1 || out[0].Len != 64 {
		t.Fatalf("got %v, want the control frame alone", out)
	}
}

func TestQueuesAreBounded(t *testing.T) {
	e := testEgress(EgressConfig{QueueBytes: 10000})
	n := 0
	for {
		r := e.enqueue(&frame{len: 999})
		if r != drop.None {
			if r != drop.QueueFull {
				t.Errorf("reason %v", r)
			}
			break
		}
		n++
	}
	if n != 10 || e.data.bytes != 9990 {
		t.Errorf("took %d frames, %d bytes", n, e.data.bytes)
	}
	for range controlQueueFrames {
		if r := e.enqueue(&frame{len: 64, kind: kindControl}); r != drop.None {
			t.Fatal(r)
		}
	}
	if r := e.enqueue(&frame{len: 64, kind: kindControl}); r != drop.ControlFull {
		t.Errorf("reason %v", r)
	}
}

// markRig is an egress queue with ECN marking, and an ECN-capable frame for it.
func markRig(kmin, kmax uint32, pmax float64) (*egress, *frame) {
	b := udp4(hostB, hostA, 0, 1, 100)
	b[15] = 2 // ECT(0)
	fixChecksum(b[14:])
	e := testEgress(EgressConfig{QueueBytes: 1 << 20, Kmin: kmin, Kmax: kmax, Pmax: pmax})
	copy(e.area[256:], b)
	return e, &frame{off: 256, len: uint16(len(b)), l3: 14, flags: overlay.FlagIPv4}
}

// tos returns the TOS byte of the frame that markRig made, and makes it ECT(0) again.
func tos(t *testing.T, e *egress) uint8 {
	t.Helper()
	ip := overlay.IPv4(e.area[256+14:])
	if !checksumOK(ip) {
		t.Error("the checksum is wrong")
	}
	was := ip.TOS()
	ip[1] = 2
	fixChecksum(ip)
	return was
}

// Marks follow Kmin, Kmax and Pmax, by what a frame leaves behind in the queue.
func TestMarkingFollowsKminKmaxPmax(t *testing.T) {
	const n = 20000
	for _, c := range []struct {
		queued uint16
		want   float64
	}{{0, 0}, {999, 0}, {1000, 0}, {2000, 0.1}, {2500, 0.15}, {3000, 0.2}, {3001, 1}, {9000, 1}} {
		e, f := markRig(1000, 3000, 0.2)
		behind := frame{len: c.queued} // not IP: never marked
		for range n {
			e.enqueue(f)
			if behind.len > 0 {
				e.enqueue(&behind)
			}
			leave(e, 0)
			tos(t, e)
		}
		if got := float64(e.marked.Frames) / n; math.Abs(got-c.want) > 0.012 || e.marked.Bytes != e.marked.Frames*uint64(f.len) {
			t.Errorf("%d bytes queued: marked %.4f (%d bytes), want %.4f", c.queued, got, e.marked.Bytes, c.want)
		}
	}
}

// A frame is judged when it leaves: the first of two leaves the other behind, and the
// second nothing. Frames of the control queue are never marked.
func TestMarkedFramesCarryCE(t *testing.T) {
	for _, c := range []EgressConfig{{}, {Rate: 1e9, Burst: 1 << 20}, {Delay: time.Microsecond}} {
		e, f := markRig(141, 141, 1)
		e.shaper, e.delay = newShaper(c.Rate, c.Burst), mono.Time(c.Delay)
		if c.Delay > 0 {
			e.line, e.due = newFIFO(delayLineFrames), make([]mono.Time, delayLineFrames)
		}
		e.enqueue(f)
		e.enqueue(f)
		if n := tos(t, e); n != 2 {
			t.Errorf("%+v: TOS %d before the frame has left", c, n)
		}
		out := make([]xsk.Desc, 1)
		e.next(0, out)
		if n := tos(t, e); n != 3 {
			t.Errorf("%+v: TOS %d above Kmax", c, n)
		}
		e.next(mono.Time(time.Millisecond), out)
		e.next(mono.Time(time.Millisecond), out)
		if n := tos(t, e); n != 2 && c.Delay == 0 {
			t.Errorf("%+v: TOS %d below Kmin", c, n)
		}
		control := *f
		control.kind = kindControl
		for range 4 {
			e.enqueue(&control)
		}
		leave(e, mono.Time(time.Millisecond))
		if n := tos(t, e); n != 2 || e.marked.Frames != 1 {
			t.Errorf("%+v: control frames leave with TOS %d; %d marked", c, n, e.marked.Frames)
		}
	}
}

// A flood of control packets takes its share of a shaped port from data, and what data
// leave over. What does not fit its queue is dropped by name.
func TestControlHasAShareOfThePort(t *testing.T) {
	const rate, burst, size, control = 1e9, 10000, 1500, 120
	for _, c := range []struct {
		name      string
		data      bool
		low, high float64 // share of the control packets
		delay     time.Duration
	}{
		{"with data", true, 0.09, 0.105, 0},
		{"with data and delay", true, 0.09, 0.105, 10 * time.Microsecond},
		{"alone", false, 0.98, 1.02, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := testEgress(EgressConfig{QueueBytes: 1 << 30, Rate: rate, Burst: burst, Delay: c.delay})
			length := mono.Time(100 * time.Millisecond)
			refused, sent := 0, map[bool]float64{}
			for now := mono.Time(0); now < length; now += 2000 {
				for range 8 { // 4 Gb/s
					switch r := e.enqueue(&frame{len: control, kind: kindControl}); r {
					case drop.None:
					case drop.ControlFull:
						refused++
					default:
						t.Fatal(r)
					}
				}
				for c.data && e.data.len() < 64 {
					e.enqueue(&frame{len: size})
				}
				for _, d := range leave(e, now) {
					sent[d.Len == control] += float64(d.Len)
				}
				if debt := e.shaper.Ahead(now); debt > (burst+controlBurst+size+control)*8 { // ns at 1 Gb/s
					t.Fatalf("the shaper's debt is %v", debt.Sub(0))
				}
			}
			all := rate / 8 * length.Sub(0).Seconds()
			if got := sent[true] / all; got < c.low || got > c.high {
				t.Errorf("control packets have %.3f of the port, want %v to %v", got, c.low, c.high)
			}
			if got := (sent[true] + sent[false]) / all; got < 0.98 || got > 1.02 {
				t.Errorf("%.3f of the rate is sent", got)
			}
			if refused == 0 {
				t.Error("the control queue took everything")
			}
		})
	}
}

// Beyond its share a control packet waits, and the port says until when.
func TestDeadlineOfControlBeyondItsShare(t *testing.T) {
	const first = controlBurst/100 + 1                            // leave at once
	e := testEgress(EgressConfig{QueueBytes: 1 << 20, Rate: 8e6}) // 1 µs a byte, 10 of the share
	for range first + 2 {
		e.enqueue(&frame{len: 100, kind: kindControl})
	}
	now, left := mono.Time(0), 0
	for {
		n := len(leave(e, now))
		left += n
		if n > 0 {
			continue
		}
		if now == 0 && left != first {
			t.Errorf("%d control packets left at once, want %d", left, first)
		}
		d := e.deadline(now)
		if d == idle {
			break
		}
		if d <= now {
			t.Fatalf("deadline %d at %d, when nothing more could leave", d, now)
		}
		now = d
	}
	if want := mono.Time(first*100-controlBurst+100) * 10_000; left != first+2 || now != want {
		t.Errorf("%d control packets left, the last at %v; want %d, at %v", left, now.Sub(0), first+2, want.Sub(0))
	}
}

// Other settings are in force at once for what comes, and no frame is lost by them.
func TestEgressChanges(t *testing.T) {
	e := testEgress(EgressConfig{QueueBytes: 10_000, Delay: time.Millisecond})
	for range 10 {
		e.enqueue(&frame{len: 1000})
	}
	if r := e.enqueue(&frame{len: 1000}); r != drop.QueueFull {
		t.Fatalf("a full queue takes a frame: %v", r)
	}
	now := mono.Time(time.Second)
	if got := leave(e, now); len(got) != 0 || e.line.len() != 10 {
		t.Fatalf("%d frames left at once, %d are in the delay line", len(got), e.line.len())
	}
	e.change(&EgressConfig{QueueBytes: 2000, Rate: 8e6, Burst: 1000, LinkRate: 8e9})
	if e.rate != 8e6 || !e.ruled {
		t.Errorf("rate %d, ruled %v", e.rate, e.ruled)
	}
	for i, want := range []drop.Reason{drop.None, drop.None, drop.QueueFull} {
		if r := e.enqueue(&frame{len: 1000}); r != want {
			t.Errorf("frame %d in a queue of 2000 bytes: %v, want %v", i, r, want)
		}
	}
	sent := 0
	for end := now + mono.Time(5*time.Millisecond); now < end; now += mono.Time(100 * time.Microsecond) {
		sent += len(leave(e, now))
	}
	if sent != 12 || e.held() != 0 { // 2000 bytes take 2 ms at 1 MB/s
		t.Errorf("%d frames left, %d are held; want all 12", sent, e.held())
	}
	e.change(&EgressConfig{QueueBytes: 1 << 20})
	if e.ruled || e.delay != 0 {
		t.Errorf("ruled %v, delay %v: the kernel's word counts, and nothing is delayed", e.ruled, e.delay)
	}
	for range 64 {
		e.enqueue(&frame{len: 1000})
	}
	if got := leave(e, now); len(got) != 64 {
		t.Errorf("%d of 64 frames left at once without a shaper", len(got))
	}
}
