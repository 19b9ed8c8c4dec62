package dataplane

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/overlay"
)

// A recorder has each flow once, with its bytes; a flow that pauses is two.
func TestRecordOfFlows(t *testing.T) {
	cfg := leafConfig()
	cfg.Scheme = "letflow"
	r := known(t, cfg)
	n := node(r)
	n.layout.Store(r.ports)
	n.Record()
	var b RecordBatch
	send := func() {
		for flow := range uint16(5) {
			for range 3 + int(flow) {
				r.send(acc0, udp4(hostB, hostA, 0, flow, 100))
			}
		}
	}
	send()
	n.Collect(&b, false)
	if len(b.Flows) != 0 {
		t.Errorf("%d flows have ended while they are under way", len(b.Flows))
	}
	if len(b.Decisions) != 1 || b.Decisions[0].Scheme != "letflow" || b.Decisions[0].Peer != vtep2 || !b.Decisions[0].Starting || b.Decisions[0].Uplinks != 3 {
		t.Errorf("decisions %+v", b.Decisions)
	}
	r.now = r.now.Add(3 * time.Second)
	r.send(acc0, udp4(hostB, hostA, 0, 77, 100))
	var flows []FlowRecord
	for range recordFlows / recordSweep {
		n.Collect(&b, false)
		flows = append(flows, b.Flows...)
	}
	var frames []uint64
	for _, f := range flows {
		frames = append(frames, f.Frames)
		if f.Bytes != f.Frames*142 || f.Peer != vtep2 || f.Last < f.First || f.Class != 0 {
			t.Errorf("%+v", f)
		}
	}
	slices.Sort(frames)
	if !slices.Equal(frames, []uint64{3, 4, 5, 6, 7}) {
		t.Errorf("flows of %v frames", frames)
	}
	n.Collect(&b, true)
	if len(b.Flows) != 1 || b.Flows[0].Frames != 1 {
		t.Errorf("under way: %+v", b.Flows)
	}
	if p := b.Ports[acc0]; p.RxFrames != 26 || p.RxBytes != 26*142 {
		t.Errorf("port %+v", p)
	}
}

// Drops are kept with their first bytes, a few of each reason at a time.
func TestRecordOfDrops(t *testing.T) {
	r := known(t, leafConfig())
	n := node(r)
	n.layout.Store(r.ports)
	n.Record()
	bad := udp4(hostB, bcast, 0, 1, 10)
	for range 50 {
		r.send(acc0, bad)
	}
	r.send(up0, wrap(vtep2, own(), 101, udp4(hostA, hostB, 0, 1, 10), nil))
	var b RecordBatch
	n.Collect(&b, false)
	reasons := map[drop.Reason]int{}
	for _, f := range b.Frames {
		reasons[f.Reason]++
	}
	if reasons[drop.SourceMulticast] != recordDrops/8 || reasons[drop.VNIUnknown] != 1 || b.Drops[drop.SourceMulticast] != 50 {
		t.Errorf("kept %v, counted %d", reasons, b.Drops[drop.SourceMulticast])
	}
	if f := b.Frames[0]; f.Port != acc0 || int(f.Len) != len(bad) || !bytes.Equal(f.Data[:f.Len], bad) {
		t.Errorf("%+v", f)
	}
	n.Collect(&b, false)
	r.send(acc0, bad)
	if n.Collect(&b, false); len(b.Frames) != 1 {
		t.Errorf("%d frames kept later", len(b.Frames))
	}
}

func TestRecordAllocatesNothing(t *testing.T) {
	r := known(t, leafConfig())
	n := node(r)
	n.layout.Store(r.ports)
	n.Record()
	b := udp4(hostB, hostA, 0, 7, 100)
	for _, l := range r.links {
		l.keep = false
	}
	if n := testing.AllocsPerRun(1000, func() {
		r.links[acc0].put(b)
		r.w.round(r.now)
		r.now += 2 * RecordIdle
	}); n != 0 {
		t.Errorf("%v allocations a frame", n)
	}
}

// BenchmarkRecord is BenchmarkLeafHostToFabric's work without a recorder and with one.
func BenchmarkRecord(b *testing.B) {
	for _, flows := range []int{1 << 10, 1 << 16} { // as many as the table has places for, and more
		for _, on := range []bool{false, true} {
			b.Run(fmt.Sprintf("flows=%d/on=%v", flows, on), func(b *testing.B) {
				r := known(b, leafConfig())
				if on {
					r.w.rec = newRecorder()
				}
				meta := overlay.Meta{Magic: overlay.MetaMagic, Flags: overlay.FlagIPv4 | overlay.FlagPorts, L3: 14, L4: 34}
				bench(b, r, acc0, func(size int) []byte { return udp4(hostB, hostA, 0, 1, size-42) }, []int{64}, flows, meta,
					func(f []byte, flow uint32) { binary.BigEndian.PutUint16(f[34:], uint16(flow)) }, nil)
			})
		}
	}
}

// A worker that panics lets somebody know before the process ends.
func TestCrashIsHeardOf(t *testing.T) {
	n, told := &Node{}, false
	n.OnCrash(func() { told = true })
	func() {
		defer n.crashed()
	}()
	if told {
		t.Error("a worker that returns is taken for one that crashes")
	}
	defer func() {
		if x := recover(); x != "broken" || !told {
			t.Errorf("the panic is %v, told: %v", x, told)
		}
	}()
	defer n.crashed()
	panic("broken")
}
