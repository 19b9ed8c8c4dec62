package dataplane

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/loomfabric/loom/bpf"
	"github.com/loomfabric/loom/dataplane/xsk"
	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/overlay"
)

// A crossing is a node whose frames go now by XDP, now by the worker: its tables go out of
// force and into it again, what they say changes, and links take what they like of the
// worker's frames.
type crossing struct {
	*rig
	tables *bpf.Fast
	prog   *ebpf.Program
	in     PortID
	outs   []PortID
	frame  func(flow int) []byte // ends with 8 bytes for the crossing
	moved  func() uint64         // frames that XDP has forwarded
	leaf   *fastPath             // whose access ports' tables follow; nil: nobody's

	rng    *rand.Rand
	shared settling
	views  [2]*Tables
	states [2][]fastPort
	shown  int  // of views and states
	ready  bool // the copy that is not in force has what the worker goes by
	inUse  int  // copy
	copy   int  // that is not in force

	next [32]uint32 // by flow: number of the next frame
	last [32]uint32 // and of the last one that left
	fast int
	slow int
	late int
}

// newCrossing returns a spine whose next hops lose their MAC address and get it back.
func newCrossing(t *testing.T, rng *rand.Rand) *crossing {
	resolved, not := spineTables(), spineTables()
	not.Hops[2].Resolved = false
	not.Hops[0].Resolved, not.Hops[1].Resolved = false, false
	r := newFastRig(t, spineConfig(), resolved, 1)
	c := &crossing{
		rig: r.rig, tables: r.tables, prog: r.progs[dn0], in: dn0, outs: []PortID{dn1, dn2}, rng: rng,
		views: [2]*Tables{resolved, not}, states: [2][]fastPort{r.states, r.states}, copy: r.copy,
	}
	c.frame = func(flow int) []byte { return viaSpine([]netip.Addr{vtep2, vtep3}[flow%2], flow, nil) }
	c.moved = func() (n uint64) {
		for _, x := range r.moved(dn0) {
			n += x
		}
		return n
	}
	return c.begin()
}

// newLeafCrossing returns a leaf of which one access port takes frames from XDP now and then.
func newLeafCrossing(t *testing.T, rng *rand.Rand) *crossing {
	r := newFastLeafSample(t)
	r.knows(0, overlay.MAC{2, 0, 0, 0, 0, 0xd}, overlay.DestLocal(uint16(acc1), 0))
	not := slices.Clone(r.states)
	not[acc0].out = "a reason"
	c := &crossing{
		rig: r.rig, tables: r.tables, prog: r.progs[up0], in: up0, outs: []PortID{acc0, acc1}, rng: rng,
		views: [2]*Tables{leafTables(), leafTables()}, states: [2][]fastPort{r.states, not}, copy: r.copy,
	}
	c.frame = func(flow int) []byte {
		dst := []overlay.MAC{hostA, {2, 0, 0, 0, 0, 0xd}}[flow%2]
		return wrap(vtep2, own(), 100, udp4(dst, hostB, 0, uint16(flow), 64), nil)
	}
	c.moved = func() (n uint64) {
		for out := range r.states {
			frames, _, _ := r.tables.Passed(int(up0), out)
			n += frames
		}
		return n
	}
	return c.begin()
}

// newAccessCrossing returns a leaf of which one uplink takes frames from XDP now and then.
func newAccessCrossing(t *testing.T, rng *rand.Rand) *crossing {
	cfg := leafConfig()
	cfg.Scheme = "letflow"
	r := newFastLeafRig(t, cfg, leafTables())
	r.knows(0, hostA, overlay.DestLocal(uint16(acc0), 0))
	r.knows(0, hostB, overlay.DestRemote(0))
	r.knows(0, hostC, overlay.DestRemote(1))
	not := slices.Clone(r.states)
	not[up0].out = "a reason"
	c := &crossing{
		rig: r.rig, tables: r.tables, prog: r.progs[acc0], in: acc0, outs: []PortID{up0, up1}, rng: rng,
		views: [2]*Tables{leafTables(), leafTables()}, states: [2][]fastPort{r.states, not}, copy: r.copy,
	}
	c.frame = func(flow int) []byte { return udp4([]overlay.MAC{hostB, hostC}[flow%2], hostA, 0, uint16(flow), 64) }
	c.moved = func() (n uint64) {
		for out := range r.states {
			frames, _, _ := r.tables.Passed(int(acc0), out)
			n += frames
		}
		return n
	}
	c.leaf = r.fast
	return c.begin()
}

func (c *crossing) begin() *crossing {
	c.w.marks = newMarks(c.tables, len(c.w.cfg.Ports), &c.shared)
	c.inUse, c.ready = 1-c.copy, true
	for i := range c.last {
		c.next[i] = 1
	}
	return c
}

// drain says that all that went to the worker has left.
func (c *crossing) drain() { c.tables.Drain(c.tables.Ring(int(c.in), 0), 1<<40) }

// send has the next frame of a flow come in.
func (c *crossing) send(flow int) {
	b := c.frame(flow)
	binary.BigEndian.PutUint32(b[len(b)-8:], uint32(flow))
	binary.BigEndian.PutUint32(b[len(b)-4:], c.next[flow])
	c.next[flow]++
	type xdpMD struct{ Data, DataEnd, DataMeta, Ifindex, Queue, Egress uint32 }
	in, out := xdpMD{DataEnd: uint32(len(b))}, xdpMD{}
	opts := ebpf.RunOptions{Data: b, DataOut: make([]byte, 4096), Context: in, ContextOut: &out}
	before := c.moved()
	if _, err := c.prog.Run(&opts); err != nil {
		c.t.Fatal(err)
	}
	if c.moved() != before {
		c.fast++
		c.left(opts.DataOut)
		return
	}
	c.slow++
	l, meta := c.links[c.in], int(out.Data)
	if meta != overlay.MetaLen+numberLen || len(l.filled) == 0 {
		c.t.Fatalf("metadata of %d bytes, %d frames to receive into", meta, len(l.filled))
	}
	a := l.filled[len(l.filled)-1] + xsk.Headroom
	l.filled = l.filled[:len(l.filled)-1]
	copy(l.area[a-uint64(meta):], opts.DataOut)
	l.rx = append(l.rx, xsk.Desc{Addr: a, Len: uint32(len(b))})
}

// left notes that a frame is on its way to the wire.
func (c *crossing) left(b []byte) {
	flow, n := binary.BigEndian.Uint32(b[len(b)-8:]), binary.BigEndian.Uint32(b[len(b)-4:])
	if n < c.last[flow] {
		c.late++
	}
	c.last[flow] = max(c.last[flow], n)
}

func (c *crossing) round() {
	c.now += 1000
	c.w.round(c.now)
	for _, l := range c.links {
		for _, b := range l.out {
			c.left(b)
		}
		l.out = nil
	}
	if !c.ready && c.w.marks.settled.Load() == c.shared.wanted.Load() { // fastPath.turn
		c.shared.inForce.Store(c.w.view.seq)
		c.tables.Use(c.copy)
		c.inUse, c.copy, c.ready = c.copy, 1-c.copy, true
	}
}

// show gives the worker the other tables, as Node.publish and fastPath.turn do.
func (c *crossing) show() {
	c.shown = 1 - c.shown
	v, err := compile(c.w.cfg, c.ports, c.views[c.shown])
	if err != nil {
		c.t.Fatal(err)
	}
	v.seq = c.w.views.Load().seq + 1
	c.w.views.Store(v)
	if err := v.fastTables(c.tables, c.copy, c.states[c.shown], v.taken()); err != nil {
		c.t.Fatal(err)
	}
	if c.leaf != nil {
		terms := c.leaf.terms()
		c.leaf.fastAccess(v, c.copy, c.states[c.shown], &terms)
	}
	c.ready = false
	c.shared.wanted.Add(1)
}

// run sends frames while everything changes. Without the rule of order XDP takes every
// flow for one that has nothing left in the worker.
func (c *crossing) run(frames int, rule bool) {
	for sent := 0; sent < frames; {
		if !rule {
			c.drain()
		}
		switch x := c.rng.IntN(1000); {
		case x < 600:
			c.send(c.rng.IntN(len(c.next)))
			sent++
		case x < 960:
			c.round()
		case x < 970:
			c.tables.Off()
		case x < 985:
			c.tables.Use(c.inUse)
		case x < 995:
			c.links[c.outs[c.rng.IntN(2)]].pace = c.rng.IntN(3)
		default:
			c.show()
		}
	}
	if c.shown != 0 {
		c.show() // what waits for a MAC address leaves
	}
	for _, l := range c.links {
		l.pace = 0
	}
	for range 100 {
		c.round()
	}
}

// No frame overtakes another one of its flow, whichever way they go. Without the rule that
// XDP waits for what the worker has of a flow, some do: so the test can tell.
func TestFastPathKeepsFlowsInOrder(t *testing.T) {
	t.Run("spine", func(t *testing.T) { keepsFlowsInOrder(t, newCrossing) })
	t.Run("leaf", func(t *testing.T) { keepsFlowsInOrder(t, newLeafCrossing) })
	t.Run("access", func(t *testing.T) { keepsFlowsInOrder(t, newAccessCrossing) })
}

func keepsFlowsInOrder(t *testing.T, begin func(*testing.T, *rand.Rand) *crossing) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	for _, rule := range []bool{true, false} {
		c := begin(t, rand.New(rand.NewPCG(seed, 1)))
		c.run(20_000, rule)
		t.Logf("rule %v: %d frames by XDP, %d by the worker, %d late", rule, c.fast, c.slow, c.late)
		switch {
		case c.fast < 2000 || c.slow < 2000:
			t.Errorf("rule %v: %d frames by XDP and %d by the worker: the test shows nothing", rule, c.fast, c.slow)
		case rule && c.late > 0:
			t.Errorf("%d frames were overtaken by others of their flow", c.late)
		case !rule && c.late == 0:
			t.Error("no frame is late without the rule: the test shows nothing")
		}
		for flow, n := range c.last {
			if n+1 != c.next[flow] && rule && c.drops()[drop.HoldFull] == 0 {
				t.Errorf("flow %d: the last frame that left is %d of %d (drops %v)", flow, n, c.next[flow]-1, c.drops())
			}
		}
		c.balance()
	}
}

// Flows come back to the fast path once the worker has sent what it had of them, and not
// before: however long a frame waits for a MAC address, in a queue or on a ring.
func TestFastPathWaitsForTheWorker(t *testing.T) {
	c := newCrossing(t, rand.New(rand.NewPCG(1, 1)))
	c.round()
	const flow = 1 // to vtep3, by dn2
	c.tables.Off()
	c.send(flow)
	c.tables.Use(c.inUse)
	expect := func(what string, fast int) {
		t.Helper()
		before := c.fast
		c.send(flow)
		if c.fast-before != fast {
			t.Fatalf("%s: %d frames went by XDP, want %d", what, c.fast-before, fast)
		}
	}
	expect("on the RX ring", 0)
	c.links[dn2].stuck = true
	c.round()
	c.round()
	expect("on the TX ring", 0)
	c.round()
	expect("still there", 0)
	c.links[dn2].stuck = false
	for range 3 {
		c.round()
	}
	expect("gone", 1)
	if c.late > 0 {
		t.Errorf("%d frames are late", c.late)
	}
}
