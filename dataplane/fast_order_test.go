package dataplane

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/loomfabric/loom/dataplane/xsk"
	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/overlay"
)

// A crossing is a spine whose frames go now by XDP, now by the worker: its tables go out of
// force and into it again, next hops lose their MAC address and get it back, and links take
// what they like of the worker's frames.
type crossing struct {
	*fastRig
	rng    *rand.Rand
	shared settling
	views  [2]*Tables
	shown  int  // of views
	ready  bool // the copy that is not in force has what the worker goes by
	inUse  int  // copy

	next [32]uint32 // by flow: number of the next frame
	last [32]uint32 // and of the last one that left
	fast int
	slow int
	late int
}

func newCrossing(t *testing.T, rng *rand.Rand) *crossing {
	resolved, not := spineTables(), spineTables()
	not.Hops[2].Resolved = false
	not.Hops[0].Resolved, not.Hops[1].Resolved = false, false
	c := &crossing{fastRig: newFastRig(t, spineConfig(), resolved, 1), rng: rng, views: [2]*Tables{resolved, not}}
	c.w.marks = newMarks(c.tables, len(c.w.cfg.Ports), &c.shared)
	c.inUse, c.ready = 1-c.copy, true
	for i := range c.last {
		c.next[i] = 1
	}
	return c
}

// send has the next frame of a flow come in by dn0.
func (c *crossing) send(flow int) {
	dst := []netip.Addr{vtep2, vtep3}[flow%2]
	b := viaSpine(dst, flow, nil)
	binary.BigEndian.PutUint32(b[len(b)-8:], uint32(flow))
	binary.BigEndian.PutUint32(b[len(b)-4:], c.next[flow])
	c.next[flow]++
	type xdpMD struct{ Data, DataEnd, DataMeta, Ifindex, Queue, Egress uint32 }
	in, out := xdpMD{DataEnd: uint32(len(b))}, xdpMD{}
	opts := ebpf.RunOptions{Data: b, DataOut: make([]byte, 4096), Context: in, ContextOut: &out}
	before := c.moved(dn0)
	if _, err := c.progs[dn0].Run(&opts); err != nil {
		c.t.Fatal(err)
	}
	if c.moved(dn0) != before {
		c.fast++
		c.left(opts.DataOut)
		return
	}
	c.slow++
	l, meta := c.links[dn0], int(out.Data)
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
	ports, hops, groups := c.tables.Copy(c.copy)
	v.fastRows(c.states, ports, hops, groups)
	if err := c.tables.SetRoutes(c.copy, v.fastRoutes(v.taken())); err != nil {
		c.t.Fatal(err)
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
			c.links[1+c.rng.IntN(2)].pace = c.rng.IntN(3)
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
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	for _, rule := range []bool{true, false} {
		c := newCrossing(t, rand.New(rand.NewPCG(seed, 1)))
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
