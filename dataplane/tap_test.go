package dataplane

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/bpf"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/internal/capture"
	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/overlay"
)

// captureOf starts a capture on the node of a rig. seen returns what was captured since it
// was called last.
func (r *rig) captureOf(cfg CaptureConfig) (c *Capture, seen func() []capture.Frame) {
	r.t.Helper()
	n := node(r)
	n.layout.Store(r.ports)
	c, err := n.Capture(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	return c, func() (all []capture.Frame) {
		c.Each(func(f *capture.Frame) {
			x := *f
			x.Data = bytes.Clone(f.Data)
			all = append(all, x)
		})
		return all
	}
}

// known makes a leaf that knows where hostB is.
func known(t testing.TB, cfg Config) *rig {
	r := newRig(t, cfg, leafTables())
	r.send(up0, wrap(vtep2, own(), 100, udp4(bcast, hostB, 0, 1, 10), nil))
	return r
}

// A frame is seen as it came, and as it leaves, with what was decided in between.
func TestCaptureFollowsAFrame(t *testing.T) {
	cfg := leafConfig()
	cfg.Scheme, cfg.Options.Keys = "letflow", flowletKeys(64)
	r := known(t, cfg)
	_, seen := r.captureOf(CaptureConfig{})
	in := udp4(hostB, hostA, 0, 7, 100)
	for _, want := range []capture.Flowlet{capture.New, capture.UnderWay} {
		out := r.send(acc0, in)
		got := seen()
		if len(got) != 2 {
			t.Fatalf("captured %d frames", len(got))
		}
		a, b := got[0], got[1]
		if a.Point != capture.In || a.Port != uint16(acc0) || !bytes.Equal(a.Data, in) || a.Len != len(in) || a.Scheme != "" || a.Uplink != capture.None || a.Here != 0 {
			t.Errorf("as it came: %+v", a)
		}
		port := up0 + PortID(b.Uplink)
		if b.Point != capture.Out || b.Port != uint16(port) || len(out[port]) != 1 || !bytes.Equal(b.Data, out[port][0]) {
			t.Fatalf("as it left: %+v", b)
		}
		if b.Scheme != "letflow" || b.Class != 0 || b.Flowlet != want || b.Made {
			t.Errorf("as it left: %+v, want flowlet %v", b, want)
		}
		if why := "LetFlow draws"; want == capture.New && !strings.Contains(b.Why, why) || want == capture.UnderWay && b.Why != "its flowlet is under way there" {
			t.Errorf("flowlet %v, because %q", want, b.Why)
		}
		if d := time.Since(b.Time).Abs(); d > time.Hour { // the rig's clock stands still while other tests run
			t.Errorf("captured %v from now", d)
		}
	}
	r.now = r.now.Add(time.Second)
	kept, moved := 0, 0
	for range 40 { // flowlets of one packet each, drawn at random
		r.now = r.now.Add(time.Second)
		r.send(acc0, in, in)
		got := seen()
		slices.SortStableFunc(got, func(a, b capture.Frame) int { return int(a.Point) - int(b.Point) })
		first, second := got[2], got[3]
		if second.Flowlet != capture.UnderWay || second.Why != "its flowlet is under way there" || second.Uplink != first.Uplink {
			t.Fatalf("second of a flowlet: %+v", second)
		}
		switch first.Flowlet {
		case capture.Kept:
			kept++
		case capture.Moved:
			moved++
		}
	}
	st := r.w.snapshot().Schemes[0].Flowlets
	if kept+moved != 40 || uint64(kept) != st.Kept || uint64(moved) != st.Moved {
		t.Errorf("kept %d and moved %d, the table counted %+v", kept, moved, st)
	}
}

// A spine says how long frames wait for a slow link, and of those that had come before the
// capture began that they have waited since then at least.
func TestCaptureSaysHowLongFramesWait(t *testing.T) {
	cfg := spineConfig()
	cfg.Ports[dn2].Egress = EgressConfig{QueueBytes: 1 << 20, Rate: 1e6} // a frame takes a millisecond or more
	r := newRig(t, cfg, spineTables())
	packet := viaSpine(vtep3, 1, nil)
	r.send(dn0, packet, packet, packet)
	r.now = r.now.Add(100 * time.Microsecond)
	r.settle()
	_, seen := r.captureOf(CaptureConfig{Points: capture.Out})
	begun := r.now
	r.send(dn0, packet)
	var got []capture.Frame
	for range 40 {
		r.now = r.now.Add(250 * time.Microsecond)
		r.settle()
		for _, f := range seen() {
			got = append(got, f)
			if want := r.now.Sub(begun); f.Here != want || f.Before != (len(got) < 3) || f.Made {
				t.Errorf("frame %d: here for %v (before: %v), want %v", len(got), f.Here, f.Before, want)
			}
		}
	}
	if len(got) != 3 || got[2].Here < time.Millisecond {
		t.Errorf("%d frames: %+v", len(got), got)
	}
}

// The comment of a frame says what explain would have said before it.
func TestCaptureAgreesWithExplain(t *testing.T) {
	for _, scheme := range balance.Names() {
		t.Run(scheme, func(t *testing.T) {
			f := newTwoLeaves(t, scheme)
			f.sayHello()
			_, seen := f.a.captureOf(CaptureConfig{Points: capture.Out, Schemes: []string{scheme}})
			agreed := 0
			for i := range 60 {
				f.pass(time.Duration(i%3) * 7 * time.Millisecond)
				flow := Flow{
					VNI: 100, Src: netip.MustParseAddr("172.16.0.1"), Dst: netip.MustParseAddr("172.16.0.2"), Proto: overlay.ProtoUDP,
					SrcPort: uint16(100 + i%5), DstPort: 53, DstMAC: hostB,
				}
				f.a.w.round(f.a.now) // explain goes by the time of the last round
				x, err := node(f.a).Explain(&flow)
				if err != nil {
					t.Fatal(err)
				}
				seen()
				f.exchange(f.a, acc0, udp4(hostB, hostA, 0, flow.SrcPort, 100))
				got := seen()
				if len(got) == 0 || len(x.Peers) != 1 {
					t.Fatalf("packet %d: %d frames, %d peers", i, len(got), len(x.Peers))
				}
				c := got[0]
				if c.Why != x.Peers[0].Reason || c.Scheme != x.Scheme || int(c.Class) != x.Class {
					t.Errorf("packet %d: %q, explained by %q", i, c.Comment(), x.Peers[0].Reason)
				}
				if u := x.Peers[0].Uplink; u != nil {
					agreed++
					if *u != c.Uplink {
						t.Errorf("packet %d: %q, explained as uplink %d", i, c.Comment(), *u)
					}
				}
			}
			t.Log(agreed, "of 60 were certain")
		})
	}
}

// Whoever captures, and explains every decision by it, changes nothing that leaves.
func TestCaptureChangesNothing(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	for _, scheme := range balance.Names() {
		t.Run(scheme, func(t *testing.T) {
			var sent [2][][][]byte
			for i, capturing := range []bool{false, true} {
				rng := rand.New(rand.NewPCG(seed, 1))
				cfg := leafConfig()
				cfg.Scheme = scheme
				for k := range cfg.Ports {
					cfg.Ports[k].Egress.LinkRate = 1e9
				}
				r := known(t, cfg)
				r.prove(0)
				if capturing {
					r.captureOf(CaptureConfig{Buffer: minTapRing}) // nobody reads it
				}
				for range 200 {
					r.prove(0)
					var burst [][]byte
					for range 1 + rng.IntN(20) {
						burst = append(burst, udp4(hostB, hostA, 0, uint16(rng.IntN(8)), 10+rng.IntN(900)))
					}
					sent[i] = append(sent[i], slices.Concat(r.send(acc0, burst...)...))
					r.now = r.now.Add(time.Duration(rng.IntN(1000)) * time.Microsecond)
				}
			}
			for round := range sent[0] {
				if !slices.EqualFunc(sent[0][round], sent[1][round], bytes.Equal) {
					t.Fatalf("burst %d left otherwise while somebody captured", round)
				}
			}
		})
	}
}

// Drops are seen with their reason, in both directions, and nothing else if that is what
// was asked for.
func TestCaptureSeesDrops(t *testing.T) {
	r := known(t, leafConfig())
	_, all := r.captureOf(CaptureConfig{Points: capture.Drop})
	r2 := known(t, leafConfig())
	_, only := r2.captureOf(CaptureConfig{Reasons: []drop.Reason{drop.VNIUnknown}, Ports: []string{"up0"}})
	bad := wrap(vtep2, own(), 101, udp4(hostA, hostB, 0, 1, 10), nil)
	for _, r := range []*rig{r, r2} {
		r.send(acc0, udp4(hostB, bcast, 0, 1, 10))
		r.send(up0, bad)
		r.send(up1, bad)
		r.send(acc0, udp4(hostB, hostA, 0, 1, 10))
	}
	var reasons []string
	for _, f := range all() {
		reasons = append(reasons, f.Reason)
	}
	if want := []string{"source_multicast", "vni_unknown", "vni_unknown"}; !slices.Equal(reasons, want) {
		t.Errorf("dropped %v, want %v", reasons, want)
	}
	got := only()
	if len(got) != 1 || got[0].Reason != "vni_unknown" || got[0].Port != uint16(up0) || !bytes.Equal(got[0].Data, bad) {
		t.Errorf("%+v", got)
	}
}

// A full queue behind the decision: the drop knows the decision.
func TestCaptureSeesDecisionsOfDrops(t *testing.T) {
	cfg := leafConfig()
	for i := range cfg.Ports {
		cfg.Ports[i].Egress.QueueBytes = 200
	}
	r := known(t, cfg)
	_, seen := r.captureOf(CaptureConfig{Schemes: []string{"ecmp"}, Reasons: []drop.Reason{drop.QueueFull}})
	r.send(acc0, udp4(hostB, hostA, 0, 1, 500))
	got := seen()
	if len(got) != 1 || got[0].Scheme != "ecmp" || got[0].Port != uint16(acc0) || got[0].Reason != "queue_full" {
		t.Fatalf("%+v", got)
	}
	if _, inner := unwrap(t, got[0].Data); !bytes.Equal(inner, udp4(hostB, hostA, 0, 1, 500)) {
		t.Error("another frame was dropped")
	}
}

// udpPort is what `tcpdump -ddd -y EN10MB udp src port N` prints, for IPv4 without options.
func udpPort(port uint32) []bpf.RawInstruction {
	program, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: 12, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 0x800, SkipTrue: 4},
		bpf.LoadAbsolute{Off: 23, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 17, SkipTrue: 2},
		bpf.LoadAbsolute{Off: 34, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: port, SkipTrue: 1},
		bpf.RetConstant{Val: 0},
		bpf.RetConstant{Val: 262144},
	})
	if err != nil {
		panic(err)
	}
	return program
}

// A filter and a flow select tenants' frames inside and outside of tunnels, at each port
// that they pass; a filter for outer headers what it says.
func TestCaptureSelects(t *testing.T) {
	flow := &Flow{Src: netip.MustParseAddr("172.16.0.2"), Dst: netip.MustParseAddr("172.16.0.1"), Proto: overlay.ProtoUDP, SrcPort: 53, DstPort: 7}
	for _, c := range []struct {
		name string
		cfg  CaptureConfig
		want int
	}{
		{"all", CaptureConfig{}, 8},
		{"flow", CaptureConfig{Flow: flow}, 2}, // the reverse direction of what hostA sends
		{"flow by addresses", CaptureConfig{Flow: &Flow{Src: flow.Dst, Dst: flow.Src}}, 8},
		{"flow by MAC", CaptureConfig{Flow: &Flow{SrcMAC: hostB, DstMAC: hostA}}, 8},
		{"no flow", CaptureConfig{Flow: &Flow{SrcMAC: hostB, DstMAC: hostC}}, 0},
		{"filter", CaptureConfig{Filter: udpPort(8)}, 4},
		{"filter at a port", CaptureConfig{Filter: udpPort(8), Ports: []string{"acc0"}}, 2},
		{"filter out", CaptureConfig{Filter: udpPort(8), Points: capture.Out}, 2},
		{"outer filter", CaptureConfig{Filter: udpPort(uint32(overlay.SourcePort(12345))), Outer: true}, 2},
		{"tenants' ports are no outer ones", CaptureConfig{Filter: udpPort(8), Outer: true}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := known(t, leafConfig())
			_, seen := r.captureOf(c.cfg)
			r.send(acc0, udp4(hostB, hostA, 0, 7, 10), udp4(hostB, hostA, 0, 8, 10))
			r.send(up0, wrap(vtep2, own(), 100, udp4(hostA, hostB, 0, 8, 10), nil), wrap(vtep2, own(), 100, udp4(hostA, hostB, 0, 9, 10), nil))
			if got := seen(); len(got) != c.want {
				for _, f := range got {
					t.Log(f.Port, f.Comment())
				}
				t.Errorf("captured %d frames, want %d", len(got), c.want)
			}
		})
	}
}

// Copies and messages say that they were made here.
func TestCaptureOfWhatIsMadeHere(t *testing.T) {
	r := newRig(t, leafConfig(), leafTables())
	_, seen := r.captureOf(CaptureConfig{Points: capture.Out})
	out := r.send(acc0, udp4(bcast, hostA, 0, 1, 10))
	made, all := 0, 0
	for _, f := range seen() {
		all++
		if f.Made {
			made++
		}
	}
	if all != len(slices.Concat(out...)) || uint64(made) != r.w.made {
		t.Errorf("captured %d of %d frames, %d made here of %d", all, len(slices.Concat(out...)), made, r.w.made)
	}
	r.w.leaf.brain.SetHello(r.now)
	r.settle()
	got := seen()
	if len(got) == 0 || !got[0].Made || got[0].Class != capture.None || got[0].Here != 0 {
		t.Errorf("a HELLO: %+v", got)
	}
}

// What the reader has no room for is lost to the capture, and counted. No frame is.
func TestCaptureLosesCopiesNotFrames(t *testing.T) {
	r := known(t, leafConfig())
	c, seen := r.captureOf(CaptureConfig{Points: capture.Out, Buffer: minTapRing})
	frames, sent := uint64(0), 0
	for range 50 {
		var burst [][]byte
		for i := range 20 {
			burst = append(burst, udp4(hostB, hostA, 0, uint16(i), 400))
		}
		sent += len(slices.Concat(r.send(acc0, burst...)...))
	}
	if sent != 1000 || len(r.drops()) != 0 {
		t.Fatalf("sent %d frames, dropped %v", sent, r.drops())
	}
	st := c.Stats()
	sum := st.Sum()
	for range seen() {
		frames++
	}
	if sum.Captured != frames || sum.Captured+sum.Lost != 1000 || sum.Lost == 0 || frames < 50 || sum.Unseen != 0 {
		t.Errorf("%d frames were read; counted %+v", frames, sum)
	}
	// There is room again.
	r.send(acc0, udp4(hostB, hostA, 0, 1, 400))
	if len(seen()) != 1 {
		t.Error("nothing is captured any more")
	}
}

// A worker that is behind does not look at frames for a capture, and says so.
func TestCaptureYieldsToFrames(t *testing.T) {
	const bursts = 5
	burst := make([][]byte, bursts*burstSize)
	for i := range burst {
		burst[i] = udp4(hostB, hostA, 0, uint16(i), 10)
	}
	burst[len(burst)-1] = udp4(hostB, bcast, 0, 0, 10)
	for _, c := range []struct {
		cfg                      CaptureConfig
		captured, unseen, unfull uint64
	}{
		{CaptureConfig{Points: capture.In}, burstSize, (bursts - 1) * burstSize, 1},
		{CaptureConfig{Points: capture.Out}, burstSize, (bursts - 1) * burstSize, 1},
		{CaptureConfig{Points: capture.Drop}, 1, 0, 0}, // which costs nothing until one is dropped
	} {
		r := known(t, leafConfig())
		x, _ := r.captureOf(c.cfg)
		if out := r.send(acc0, burst...); len(slices.Concat(out...)) != len(burst)-1 {
			t.Fatal("frames were lost")
		}
		st := x.Stats()
		if sum := st.Sum(); sum.Captured != c.captured || sum.Unseen != c.unseen || sum.Lost != 0 {
			t.Errorf("%v: counted %+v", c.cfg.Points, sum)
		}
		r.send(acc0, burst[0]) // it has caught up
		st = x.Stats()
		if sum := st.Sum(); sum.Captured != c.captured+c.unfull || sum.Unseen != c.unseen {
			t.Errorf("%v: counted %+v afterwards", c.cfg.Points, sum)
		}
	}
}

func TestCaptureRefuses(t *testing.T) {
	r := known(t, leafConfig())
	n := node(r)
	n.layout.Store(r.ports)
	for _, c := range []struct {
		cfg  CaptureConfig
		want string
	}{
		{CaptureConfig{Ports: []string{"up0", "eth9"}}, "there is no port eth9: the node has acc0, acc1, acc2, up0, up1"},
		{CaptureConfig{Points: capture.In, Reasons: []drop.Reason{drop.NoRoute}}, "no frame can be captured"},
		{CaptureConfig{Points: capture.In, Schemes: []string{"conga"}}, "no frame can be captured"},
		{CaptureConfig{SnapLen: 10000}, "10000 bytes of each frame"},
		{CaptureConfig{Buffer: 100000}, "a power of two"},
		{CaptureConfig{Buffer: 1 << 30}, "a power of two"},
		{CaptureConfig{Filter: make([]bpf.RawInstruction, maxFilter+1)}, "1025 instructions"},
		{CaptureConfig{Filter: []bpf.RawInstruction{{Op: 0xffff}}}, "none of classic BPF"},
		{CaptureConfig{Filter: udpPort(1)[:3]}, "filter:"},
		{CaptureConfig{Outer: true, Flow: &Flow{}}, "a flow is a tenant's"},
	} {
		if _, err := n.Capture(c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.cfg, err, c.want)
		}
	}
	if r.w.taps != nil {
		t.Error("a capture that was refused left something behind")
	}
	var all []*Capture
	for range maxCaptures {
		c, err := n.Capture(CaptureConfig{})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	if _, err := n.Capture(CaptureConfig{}); !errors.Is(err, ErrCaptures) {
		t.Errorf("one too many: %v", err)
	}
	all[1].Close()
	all[1].Close()
	c, err := n.Capture(CaptureConfig{})
	if err != nil {
		t.Fatal(err)
	}
	all[1] = c
	for _, c := range all {
		c.Close()
	}
	if r.w.taps != nil {
		t.Error("the worker still captures")
	}
}

// A record comes out as it went in, whatever is at the end of the memory.
func TestTapRing(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	ring := &tapRing{buf: make([]byte, 1<<12)}
	var model []record
	var data [][]byte
	lost := 0
	for range 20000 {
		if rng.IntN(2) == 0 {
			b := make([]byte, rng.IntN(700))
			for i := range b {
				b[i] = byte(rng.Uint32())
			}
			x := record{at: 5, port: PortID(rng.IntN(9)), point: capture.Drop, reason: drop.NoRoute, uplink: 3,
				note: &tapNote{scheme: strings.Repeat("s", rng.IntN(9)), why: strings.Repeat("w", rng.IntN(300)), class: 2, held: 7}}
			if _, ok := ring.put(&x, b, 500); ok {
				model, data = append(model, x), append(data, b)
			} else {
				lost++
			}
			continue
		}
		b := ring.front()
		if (b == nil) != (len(model) == 0) {
			t.Fatalf("%d records are there, and front has %d bytes", len(model), len(b))
		}
		if b == nil {
			continue
		}
		var f capture.Frame
		readRecord(b, &f)
		x, d := model[0], data[0]
		want := fmt.Sprintln(x.port, drop.NoRoute, x.note.scheme, x.note.why[:min(len(x.note.why), 255)], len(d), d[:min(len(d), 500)], 3, 2, 7)
		if got := fmt.Sprintln(f.Port, f.Reason, f.Scheme, f.Why, f.Len, f.Data, f.Uplink, f.Class, int(f.Held)); got != want {
			t.Fatalf("got %s\nwant %s", got, want)
		}
		ring.pop()
		model, data = model[1:], data[1:]
	}
	if lost == 0 {
		t.Error("the ring was never full")
	}
}

// A capture that says nothing of decisions allocates nothing for a frame.
func TestCaptureAllocatesNothing(t *testing.T) {
	r := known(t, leafConfig())
	c, _ := r.captureOf(CaptureConfig{Points: capture.In, Filter: udpPort(7), Flow: &Flow{SrcMAC: hostA, DstMAC: hostB}, Buffer: minTapRing})
	b := udp4(hostB, hostA, 0, 7, 100)
	for _, l := range r.links {
		l.keep = false
	}
	before := c.Stats()
	n := testing.AllocsPerRun(1000, func() {
		r.links[acc0].put(b)
		r.w.round(r.now)
	})
	st := c.Stats()
	if n != 0 || st.Sum().Captured == before.Sum().Captured {
		t.Errorf("%v allocations a frame, captured %+v", n, st)
	}
}
