package balance

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/loomfabric/loom/overlay"
)

func messageOf(f overlay.Fabric) *overlay.Message {
	return &overlay.Message{Cause: overlay.NoCause, Fabric: f}
}

// What a message says comes out as it went in, over the wire's own code.
func TestCAARMessages(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 1000 {
		kind, leaf, queue := uint8(rng.IntN(16)), uint16(rng.Uint32()), uint16(rng.IntN(4096))
		f := joinCAAR(kind, leaf, queue)
		b := make([]byte, overlay.LinkMessageLen)
		overlay.EncodeLink(b, overlay.MAC{2}, overlay.MAC{4}, &f)
		var g overlay.Fabric
		if r := overlay.DecodeLink(b, &g); r != 0 {
			t.Fatal(r)
		}
		if k, l, q := splitCAAR(&g); k != kind || l != leaf || q != queue {
			t.Fatalf("%d %d %d came out as %d %d %d", kind, leaf, queue, k, l, q)
		}
	}
}

// FuzzCAARHandle: whatever neighbours say, nothing breaks, and only messages about a queue
// of a known leaf change anything.
func FuzzCAARHandle(f *testing.F) {
	f.Add(uint16(1<<12), uint16(9<<12|300), uint8(overlay.OpExtension), true, uint8(1))
	f.Add(uint16(0xffff), uint16(0xffff), uint8(overlay.OpNotify), false, uint8(200))
	f.Fuzz(func(t *testing.T, high, low uint16, opcode uint8, shim bool, port uint8) {
		n := newCAARNode(t, "caar", 25, 45, 2, nil)
		m := messageOf(overlay.Fabric{Opcode: overlay.Opcode(opcode & 7), Shim: shim, TxTstamp: overlay.Tstamp(high), Arg: overlay.Tstamp(low)})
		kind, leaf, _ := splitCAAR(&m.Fabric)
		want := shim && m.Fabric.Opcode == overlay.OpExtension && kind == caarQueue && (leaf == 9 || leaf == caarAnyLeaf)
		if got := n.sw.Handle(n.now, int(port), m); got != want {
			t.Errorf("handled %v, want %v", got, want)
		}
		n.send(1)
		n.slot()
	})
}

// Neighbours are told of a leaf's queue unless packets to the leaf go through them: the
// shortest queue of those that lead there, and the longest one of hosts for the node itself.
func TestCAARTellsWhom(t *testing.T) {
	n := newCAARNode(t, "caar", 25, 45, 2, nil)
	n.sw.SetRoute(7, []int{2, 3}, false)
	n.sw.SetRoute(5, nil, true)
	n.ports.queue[0], n.ports.queue[1] = 10*packetLen, 20*packetLen // to leaf 9
	n.ports.queue[2] = 40 * packetLen                               // to leaf 7, and 3 is empty
	n.ports.hosts = 30 * packetLen
	got := map[uint16]map[int]uint16{}
	for _, m := range n.slot() {
		kind, leaf, queue := splitCAAR(&m.Fabric)
		if kind != caarQueue || m.Fabric.Opcode != overlay.OpExtension {
			t.Fatalf("said %+v", m)
		}
		if got[leaf] == nil {
			got[leaf] = map[int]uint16{}
		}
		got[leaf][m.Port] = queue
	}
	ten, thirty := uint16(10*packetLen*caarUnits/70_000), uint16(30*packetLen*caarUnits/70_000)
	if len(got) != 2 || len(got[9]) != 2 || got[9][2] != ten || got[9][3] != ten || len(got[5]) != 4 || got[5][0] != thirty {
		t.Errorf("told %v", got)
	}
	if n.slot(); n.c.Stats().Own.(*CAARStats).Updates != 6 {
		t.Errorf("counted %+v", n.c.Stats().Own)
	}
	// With one signal for all, the longest queue goes to everybody.
	n = newCAARNode(t, "caar", 25, 45, 2, func(p *CAARParams) { p.Signal = caarScalar })
	n.ports.queue[0], n.ports.queue[1], n.ports.hosts = 10*packetLen, 20*packetLen, 5*packetLen
	out := n.slot()
	if len(out) != 2 {
		t.Fatalf("said %+v", out)
	}
	if _, leaf, queue := splitCAAR(&out[1].Fabric); leaf != caarAnyLeaf || queue != uint16(20*packetLen*caarUnits/70_000) {
		t.Errorf("told of leaf %d: %d", leaf, queue)
	}
	// A queue beyond what a message can say is as long as it can say.
	n.ports.queue[0] = 1 << 30
	if out = n.slot(); len(out) != 2 {
		t.Fatalf("said %+v", out)
	} else if _, _, queue := splitCAAR(&out[0].Fabric); queue != 4095 {
		t.Errorf("told %d", queue)
	}
}

// A message that gets lost does no lasting harm: what is not empty is told again, and what
// is not told again is forgotten.
func TestCAARForgetsWhatIsNotToldAgain(t *testing.T) {
	n := newCAARNode(t, "caar", 25, 45, 2, nil)
	n.sw.SetRoute(7, []int{2}, false)
	n.slot()
	n.ports.queue[2] = 40 * packetLen
	said := 0
	for range 3 * caarRepeat {
		said += len(n.slot())
	}
	if said != 2*3 {
		t.Errorf("told %d times in three periods, to two neighbours", said)
	}
	n.hear(0, 40)
	if n.sw.told(0, n.sw.place(9)) == 0 {
		t.Fatal("nothing was heard")
	}
	for range caarForget + 2*caarRepeat {
		n.slot()
	}
	if n.sw.told(0, n.sw.place(9)) != 0 || n.sw.forgotten != 1 {
		t.Error("a queue is remembered for ever")
	}
}

// A flow whose port goes away takes another one, and comes back only as a new one.
func TestCAARLosesAPort(t *testing.T) {
	n := newCAARNode(t, "caar", 25, 45, 3, nil)
	h := n.send(1)
	left := []uint8{}
	for u := range uint8(3) {
		if u != h {
			left = append(left, u)
		}
	}
	n.v.Paths[0] = MakePaths(left...)
	got := n.send(1)
	if got == h || n.c.stats.Lost != 1 {
		t.Fatalf("link %d, counted %+v", got, n.c.stats)
	}
	n.v.Paths[0] = firstPaths(3)
	if n.send(1) != got {
		t.Error("the flow moved back")
	}
	n.now = n.now.Add(2 * time.Second) // and now it is forgotten
	n.send(1)
	if n.c.stats.Flows != 2 {
		t.Errorf("counted %+v", n.c.stats)
	}
}

// Flows without room in the table go by the shortest queue, and nothing is allocated.
func TestCAARFullTable(t *testing.T) {
	n := newCAARNode(t, "caar", 25, 45, 4, func(p *CAARParams) { p.Flows = 4 })
	for f := range uint32(100) {
		n.send(f + 1)
	}
	if s := n.c.stats; s.Flows != 4 || s.Overflow != 96 {
		t.Errorf("counted %+v", s)
	}
	pkts := make([]Packet, 64)
	for i := range pkts {
		pkts[i] = Packet{Hash: uint32(i) * 0x9E3779B1, Number: 9, Len: packetLen}
	}
	out := make([]PortMessage, 0, 64)
	i := uint32(0)
	if got := testing.AllocsPerRun(200, func() {
		i++
		n.hear(int(i%4), i%60)
		n.ports.own(n.v, int(i%4), i*7%60)
		n.c.Choose(n.now, n.v, pkts)
		n.now += n.sw.slot
		out = n.sw.Tick(n.now, out[:0])
	}); got != 0 {
		t.Errorf("%v allocations", got)
	}
}

// A host is to pause for as long as the queue takes to be below the threshold, and no longer
// than its slot.
func TestCAARPausesHosts(t *testing.T) {
	n := newCAARNode(t, "caar", 25, 45, 2, func(p *CAARParams) { p.PauseHosts = true })
	for _, x := range []struct {
		packets uint32
		want    time.Duration
	}{{24, 0}, {25, 1}, {30, 5600 + 1}, {5000, 500 * time.Microsecond}} {
		got := n.sw.PauseHost(n.now, x.packets*packetLen, 10_000_000_000)
		if x.want == 0 && got != 0 || x.want > 0 && got != n.now.Add(x.want) {
			t.Errorf("%d packets: until %d at %d", x.packets, got, n.now)
		}
	}
	n.sw.pause = false
	if n.sw.PauseHost(n.now, 1<<20, 10_000_000_000) != 0 {
		t.Error("a host pauses that need not")
	}
}

// What makes no sense is refused, with its key.
func TestCAARParams(t *testing.T) {
	for key, spoil := range map[string]func(*CAARParams){
		"buffer": func(p *CAARParams) { p.Buffer = 2999 }, "m1": func(p *CAARParams) { p.M1 = 0 },
		"m2": func(p *CAARParams) { p.M2 = 2.1 }, "delta": func(p *CAARParams) { p.Delta = -0.1 },
		"slot": func(p *CAARParams) { p.Slot = time.Microsecond }, "signal": func(p *CAARParams) { p.Signal = "loud" },
		"idle": func(p *CAARParams) { p.Idle = 0 }, "flows": func(p *CAARParams) { p.Flows = 100 },
	} {
		p := newCAARParams(Datacenter).(*CAARParams)
		spoil(p)
		if err, ok := p.Validate().(*FieldError); !ok || err.Key != key {
			t.Errorf("%s: %v", key, err)
		}
	}
}

// The threshold itself counts: Figure 3 waits at Q_j − Q_k <= −M1, and a flow that moves
// goes on at > −M1.
func TestCAARAtTheThreshold(t *testing.T) {
	n := newCAARNode(t, "caar", 25, 45, 2, nil)
	h := n.send(1)
	p := &n.sw.ports[h]
	p.heard[n.sw.place(9)].bytes = n.sw.m1 - 1
	if n.send(1) != h {
		t.Error("moved below the threshold")
	}
	p.heard[n.sw.place(9)].bytes = n.sw.m1
	if n.send(1) == h {
		t.Error("stays at the threshold")
	}
}

// With all next hops congested a known flow stays where it is and waits, whatever its own
// queue is like: there is no better hop.
func TestCAARWaitsAtItsOwnHop(t *testing.T) {
	for _, own := range []uint32{0, 46} {
		n := newCAARNode(t, "caar", 25, 45, 2, nil)
		h := n.send(1)
		n.hear(int(h), 80)
		n.hear(int(1-h), 75)
		n.ports.own(n.v, int(h), own)
		n.slot()
		if got := n.send(1); got != h || n.ports.held[h] <= n.now || n.ports.held[1-h] > n.now {
			t.Errorf("own queue %d: link %d, held until %v at %d", own, got, n.ports.held[:2], n.now)
		}
		if s := n.c.stats; s.Moves+s.Diverted != 0 || s.Waits != 1 {
			t.Errorf("own queue %d: %+v", own, s)
		}
	}
}

// Of several workers one tells neighbours, and all of them listen.
func TestCAAROneWorkerTells(t *testing.T) {
	s := Find("caar")
	for worker, want := range []int{2, 0, 0} {
		o := Options{Worker: worker}
		if err := s.Complete(&o); err != nil {
			t.Fatal(err)
		}
		node := &fakeNode{}
		sw := s.Switch(&o, node)
		sw.SetRoute(1, []int{0}, false)
		sw.SetRoute(2, []int{1}, false)
		sw.SetRoute(3, []int{2}, false)
		node.queue[0] = 40 * packetLen
		if got := len(sw.Tick(1e9, nil)); got != want {
			t.Errorf("worker %d said %d things", worker, got)
		}
		if f := joinCAAR(caarQueue, 1, 100); !sw.Handle(1e9, 0, messageOf(f)) {
			t.Errorf("worker %d does not listen", worker)
		}
	}
}
