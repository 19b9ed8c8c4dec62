package balance

import (
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// The tests in this file name the claim of flowcut switching (Bonato et al., "Flowcut
// Switching: High-Performance Adaptive Routing with In-Order Delivery Guarantees", 2025,
// arXiv 2506.21406) that they hold the code to. Quotations are from the abstract. Where
// the code differs, the test says how.

// Flowcut switching "guarantees in-order delivery under any network conditions"
// (abstract). The test looks into the network: when a flow moves, none of its packets is
// there, whatever paths take, packets and answers get lost, and metrics are.
//
// We differ: a flow that pauses for flow_gap moves without an answer, so no path may take
// longer than that.
func TestFlowcutInOrder(t *testing.T) {
	for seed := range uint64(20) {
		w := newWay(t, Find("flowcut"), seed, nil)
		c := w.source.(*flowcut)
		if seed%2 == 1 {
			w.lose = 0.05
		}
		longest := 20 * time.Microsecond
		if seed%4 >= 2 {
			longest = 500 * time.Microsecond // far more than tau
		}
		w.slowest = longest
		on, moves := map[int]uint8{}, 0
		const flows, packets = 5, 2000
		for seq := 1; seq <= packets; seq++ {
			w.view.Local[w.rng.IntN(4)] = uint8(w.rng.IntN(8))
			flow := w.rng.IntN(flows)
			before := w.discarded
			inFlight := map[int]bool{}
			for _, p := range w.inFlight {
				inFlight[p.flow] = true
			}
			w.send(flow, seq, longest)
			uplink, known := c.flows.Find(uint32(flow+1)*0x9E3779B1, 1).V.uplink, false
			var was uint8
			if was, known = on[flow]; known && was != uplink {
				moves++
				if inFlight[flow] {
					t.Fatalf("seed %d: flow %d moves while packets of it are in flight (%d lost)", seed, flow, before)
				}
			}
			on[flow] = uplink
			if len(w.answers) > 0 && w.lose > 0 && w.rng.IntN(10) == 0 {
				w.answers = w.answers[1:]
			}
			w.pass(w.now.Add(time.Duration(w.rng.Int64N(int64(longest)))))
		}
		w.pass(w.now.Add(time.Second))
		if w.disorder != 0 || w.arrived+w.discarded != packets {
			t.Errorf("seed %d: %d came out and %d were lost of %d, %d behind a later one", seed, w.arrived, w.discarded, packets, w.disorder)
		}
		if s := c.stats; moves < 50 || s.Cuts == 0 || s.Stale == 0 || s.Pauses != 0 || s.Lost != 0 {
			t.Errorf("seed %d: %d moves: %+v", seed, moves, s)
		}
	}
}

// flowcutFlowAt is a flow under flowcut to leaf 0 over 4 paths.
type flowcutFlowAt struct {
	t    testing.TB
	c    *flowcut
	v    *View
	now  mono.Time
	path uint8
}

func newFlowcutFlow(t testing.TB) *flowcutFlowAt {
	t.Helper()
	f := &flowcutFlowAt{t: t, c: mustNew(t, "flowcut", 1).(*flowcut), v: newView(firstPaths(4)), now: mono.Time(time.Hour)}
	f.path = f.send(0).Path
	return f
}

// send sends the next packet of flow 7 after a pause.
func (f *flowcutFlowAt) send(pause time.Duration) Packet {
	f.now = f.now.Add(pause)
	pkts := []Packet{{Hash: 7, Len: 1500}}
	f.c.Choose(f.now, f.v, pkts)
	return pkts[0]
}

// congest makes the paths that are not listed the worst ones.
func (f *flowcutFlowAt) congest(but ...uint8) {
	for u := range f.v.Local {
		f.v.Local[u] = 7
	}
	for _, u := range but {
		f.v.Local[u] = 0
	}
}

// reply has the answer about a packet come.
func (f *flowcutFlowAt) reply(p *Packet) bool {
	f.t.Helper()
	if p.Opcode != overlay.OpRTTRequest || !p.Shim {
		f.t.Fatalf("the packet does not ask: %+v", p)
	}
	return f.c.Handle(f.now, f.v, &overlay.Message{Hash: 7, Fabric: overlay.Fabric{
		Capable: true, Scheme: flowcutID, Opcode: overlay.OpRTTReply, Shim: true, Epoch: p.Epoch, Arg: p.Arg,
	}})
}

// Flowcut switching is "effective also for non-bursty traffic, as it is often the case
// for RDMA" (abstract): a flow without pauses of a flowlet gap moves, as soon as nothing
// of it is in flight, to the best path.
//
// We differ: the paper makes a congested flow pause until it has drained. Ours moves when
// the traffic leaves a round trip of room by itself.
func TestFlowcutMovesWithoutPauses(t *testing.T) {
	f := newFlowcutFlow(t)
	to := (f.path + 1) % 4
	f.congest(to)
	step := 20 * time.Microsecond
	p := f.send(params().Tau + 1) // finds out that another path is better
	for range 100 {
		q := f.send(step)
		f.reply(&p) // p has arrived, and q is in flight
		if p = q; q.Path != f.path {
			t.Fatal("the flow moves while a packet is in flight")
		}
	}
	f.reply(&p)
	if p = f.send(step); p.Path != to {
		t.Errorf("the flow is on path %d, %d is better, and nothing is in flight", p.Path, to)
	}
	if s := f.c.stats; s.Cuts != 1 || s.Moves != 1 || s.Stale != 100 {
		t.Errorf("%+v", s)
	}
}

// The paper counts what is in flight by the acknowledgements that hosts send anyway.
//
// We differ: answers are packets of their own, so a flow asks only while another path is
// better, and only with the last packet of a train; the destination answers only for the
// last one of a train.
func TestFlowcutAsksSparingly(t *testing.T) {
	f := newFlowcutFlow(t)
	tau := params().Tau
	for range 10 {
		if p := f.send(tau); p.Marks != (Marks{Selector: p.Selector}) {
			t.Fatalf("a packet asks, and no path is better: %+v", p)
		}
	}
	f.congest((f.path + 1) % 4)
	f.send(tau + 1)
	train := make([]Packet, 10)
	for i := range train {
		train[i] = Packet{Hash: 7}
	}
	train[4].Hash = 8
	f.c.Choose(f.now, f.v, train)
	for i := range train {
		if asks := train[i].Opcode == overlay.OpRTTRequest; asks != (i == 3 || i == 9) {
			t.Errorf("packet %d of a train asks: %v", i, asks)
		}
	}
	f.congest(f.path)
	f.send(tau + 1)
	if p := f.send(1); p.Opcode != overlay.OpData {
		t.Errorf("a packet asks, and its path is the best again: %+v", p)
	}

	r := newFlowcutReceiver()
	request := func(hash uint32, leaf uint16, arg overlay.Tstamp) reorder.Arrival {
		return reorder.Arrival{Hash: hash, Leaf: leaf, Fabric: overlay.Fabric{
			Capable: true, Shim: true, Scheme: flowcutID, Opcode: overlay.OpRTTRequest, Epoch: 2, Arg: arg, Path: 0x31,
		}}
	}
	data := request(7, 1, 9)
	data.Fabric.Opcode = overlay.OpData
	r.Receive(f.now, []reorder.Arrival{request(7, 1, 1), request(7, 1, 2), request(7, 2, 3), request(8, 2, 4), data, request(7, 1, 5), data})
	var got []overlay.Tstamp
	for _, m := range r.Outbox() {
		if g := &m.Fabric; g.Opcode != overlay.OpRTTReply || g.Epoch != 2 || g.Path != 0x31 || !g.Shim || g.Scheme != flowcutID || m.Link != overlay.AnyLink {
			t.Errorf("answer %+v", m)
		}
		got = append(got, m.Fabric.Arg)
		if int(m.Cause) != map[overlay.Tstamp]int{2: 1, 3: 2, 4: 3, 5: 5}[m.Fabric.Arg] {
			t.Errorf("the answer about packet %d has cause %d", m.Fabric.Arg, m.Cause)
		}
	}
	if len(got) != 4 {
		t.Errorf("answers about packets %v, want 2, 3, 4, 5", got)
	}
	if r.Receive(f.now, nil); len(r.Outbox()) != 0 {
		t.Error("answers are given twice")
	}
}
