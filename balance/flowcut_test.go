package balance

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// Answers that are not about the flow's last packet change nothing.
func TestFlowcutStaleAnswers(t *testing.T) {
	for _, tt := range []struct {
		name         string
		change       func(*overlay.Message)
		known, moves bool
	}{
		{"the answer", func(*overlay.Message) {}, true, true},
		{"a packet before", func(m *overlay.Message) { m.Fabric.Arg-- }, true, false},
		{"one of the future", func(m *overlay.Message) { m.Fabric.Arg++ }, true, false},
		{"65,536 packets before", func(m *overlay.Message) { m.Fabric.Epoch = m.Fabric.Epoch.Next() }, true, false},
		{"another flow", func(m *overlay.Message) { m.Hash++ }, false, false},
		{"another leaf", func(m *overlay.Message) { m.Leaf++ }, false, false},
		{"another opcode", func(m *overlay.Message) { m.Fabric.Opcode = overlay.OpClear }, false, false},
		{"no shim", func(m *overlay.Message) { m.Fabric.Shim = false }, false, false},
	} {
		f := newFlowcutFlow(t)
		f.congest((f.path + 1) % 4)
		p := f.send(params().Tau + 1)
		m := overlay.Message{Hash: 7, Fabric: overlay.Fabric{
			Capable: true, Scheme: flowcutID, Opcode: overlay.OpRTTReply, Shim: true, Epoch: p.Epoch, Arg: p.Arg,
		}}
		tt.change(&m)
		if known := f.c.Handle(f.now, f.v, &m); known != tt.known {
			t.Errorf("%s: known %v", tt.name, known)
		}
		if moves := f.send(1).Path != f.path; moves != tt.moves {
			t.Errorf("%s: moves %v", tt.name, moves)
		}
		if moves := f.send(1).Path != f.path; moves != tt.moves {
			t.Errorf("%s: the answer counts for a later packet", tt.name)
		}
	}
}

// Numbers wrap after 2^18 packets, and go round whole.
func TestFlowcutNumbers(t *testing.T) {
	for _, s := range []flowcutSeq{0, 1, 1<<16 - 1, 1 << 16, 3<<16 | 5, 1<<18 - 1, 1 << 18, 1<<32 - 1} {
		epoch, arg := s.split()
		if got := joinFlowcutSeq(&overlay.Fabric{Epoch: epoch, Arg: arg}); got != s&flowcutSeqMask {
			t.Errorf("%#x travels as %d, %d and comes as %#x", s, epoch, arg, got)
		}
	}
}

// If no answer comes a flow moves after a pause of flow_gap, and not before.
func TestFlowcutPause(t *testing.T) {
	gap := params().FlowGap
	for pause, want := range map[time.Duration]bool{gap: false, gap + 1: true} {
		f := newFlowcutFlow(t)
		f.congest((f.path + 1) % 4)
		f.send(params().Tau + 1)
		if moves := f.send(pause).Path != f.path; moves != want {
			t.Errorf("after a pause of %v: moves %v", pause, moves)
		}
		if s := f.c.stats; want && (s.Pauses != 1 || s.Moves != 1) {
			t.Errorf("%+v", s)
		}
	}
}

// A flow whose own path is among the best keeps it, in cuts and pauses.
func TestFlowcutKeepsWhatIsAsGood(t *testing.T) {
	f := newFlowcutFlow(t)
	f.congest((f.path + 1) % 4)
	p := f.send(params().Tau + 1)
	f.reply(&p)
	f.congest(f.path, (f.path+1)%4)
	if p := f.send(1); p.Path != f.path {
		t.Error("the flow moves to a path that is not better")
	}
	if p := f.send(time.Minute); p.Path != f.path {
		t.Error("the flow moves in a pause to a path that is not better")
	}
	if s := f.c.stats; s.Cuts != 1 || s.Pauses != 1 || s.Moves != 0 {
		t.Errorf("%+v", s)
	}
}

// Flows without an entry go by hash, and one that gets an entry soon after begins where
// its packets may be in flight.
func TestFlowcutTableIsFull(t *testing.T) {
	p, err := New("flowcut", Options{Seed: 1, Keys: &FlowcutKeys{4}})
	if err != nil {
		t.Fatal(err)
	}
	c, v, now := p.(*flowcut), newView(firstPaths(8)), mono.Time(time.Hour)
	send := func(hash uint32) uint8 {
		pkts := []Packet{{Hash: hash}}
		c.Choose(now, v, pkts)
		return pkts[0].Path
	}
	hashed := func(hash uint32) uint8 { return c.share(&v.Paths[0], hash) }
	for hash := range uint32(4) {
		send(hash)
	}
	now = now.Add(params().FlowGap)
	if got := send(4); got != hashed(4) || c.stats.Overflow != 1 {
		t.Fatalf("a flow without an entry takes path %d, its hash says %d: %+v", got, hashed(4), c.stats)
	}
	now++
	v.Local[hashed(4)] = 7
	if got := send(4); got != hashed(4) || c.stats.Flows != 5 {
		t.Errorf("the flow has an entry and takes path %d, its packets are on %d: %+v", got, hashed(4), c.stats)
	}
	now = now.Add(params().FlowGap + 1)
	v.Local[hashed(5)] = 7
	if got := send(5); got == hashed(5) {
		t.Error("nothing went by hash for flow_gap, and a new flow still does")
	}
}

// A leaf that answers nothing gets packets by hash, without marks, and flows that are
// under way stay on their path.
func TestFlowcutIncapable(t *testing.T) {
	f := newFlowcutFlow(t)
	f.v.Capable = overlay.NewCapability(1)
	f.congest((f.path + 1) % 4)
	if p := f.send(params().Tau + 1); p.Path != f.path || p.Opcode != overlay.OpData || p.Shim {
		t.Errorf("under way: %+v", p)
	}
	hashed := f.c.share(&f.v.Paths[0], 7)
	f.congest((hashed + 1) % 4)
	if p := f.send(time.Minute); p.Path != hashed || p.Shim {
		t.Errorf("after a pause: %+v, its hash says %d", p, hashed)
	}
	f.v.Capable.Confirm(0, f.now)
	if p := f.send(1); p.Path != hashed {
		t.Errorf("the leaf answers again, and the flow leaves packets in flight behind: %+v", p)
	}
	if s := f.c.stats; s.Incapable != 2 || s.Flows != 2 {
		t.Errorf("%+v", s)
	}
}

// A packet to a leaf that answers nothing for the moment is in flight as any other is: no
// answer about the packet before lets the flow move.
func TestFlowcutIncapableInBetween(t *testing.T) {
	for _, late := range []bool{false, true} {
		f := newFlowcutFlow(t)
		f.congest((f.path + 1) % 4)
		p := f.send(params().Tau + 1)
		if !late {
			f.reply(&p)
		}
		f.v.Capable = overlay.NewCapability(1)
		f.send(1)
		f.v.Capable = nil
		if late {
			f.reply(&p)
		}
		if f.send(1).Path != f.path {
			t.Errorf("the flow moves with a packet in flight; the answer came after that was sent: %v", late)
		}
	}
}

// A flow whose path goes away takes the best of the others at once.
func TestFlowcutPathGoes(t *testing.T) {
	f := newFlowcutFlow(t)
	left := []uint8{(f.path + 1) % 4, (f.path + 2) % 4}
	f.congest(left[1])
	f.v.Paths[0] = MakePaths(left...)
	if p := f.send(1); p.Path != 1 || f.c.stats.Lost != 1 {
		t.Errorf("path %d: %+v", p.Path, f.c.stats)
	}
}

// What Explain says is what Choose does, also where answers come and leaves forget how
// to answer.
func TestFlowcutExplains(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	p, err := New("flowcut", Options{Seed: seed, Keys: &FlowcutKeys{64}})
	if err != nil {
		t.Fatal(err)
	}
	c, v, now := p.(*flowcut), newView(firstPaths(4)), mono.Time(time.Hour)
	v.Remote = congestion.NewToLeaf(1, params())
	v.Capable = overlay.NewCapability(1)
	v.Capable.Confirm(0, now)
	reasons := map[string]bool{}
	for range 20_000 {
		now = now.Add(time.Duration(rng.IntN(int(20 * time.Microsecond))))
		switch rng.IntN(400) {
		case 0:
			now = now.Add(params().FlowGap)
		case 1:
			v.Capable.Forget(0)
		case 2, 3, 4:
			v.Paths[0] = [...]Paths{firstPaths(4), MakePaths(1, 3), MakePaths(2, 0)}[rng.IntN(3)]
		default:
			if rng.IntN(20) == 0 {
				v.Capable.Confirm(0, now)
			}
		}
		v.Local[rng.IntN(4)] = uint8(rng.IntN(4))
		pkts := []Packet{{Hash: rng.Uint32N(100)}}
		x := Explain(c, now, v, &pkts[0])
		reasons[x.Reason] = true
		c.Choose(now, v, pkts)
		took := v.Paths[0].Uplink[pkts[0].Path]
		if x.Path >= 0 && x.Path != int(pkts[0].Path) || x.Path < 0 && x.Fresh&(1<<took) == 0 {
			t.Fatalf("path %d was taken, explained was %+v", pkts[0].Path, x)
		}
		if q := &pkts[0]; q.Opcode == overlay.OpRTTRequest && rng.IntN(2) == 0 {
			c.Handle(now, v, &overlay.Message{Hash: q.Hash, Fabric: overlay.Fabric{Opcode: overlay.OpRTTReply, Shim: true, Epoch: q.Epoch, Arg: q.Arg}})
		}
	}
	if s := c.stats; s.Cuts == 0 || s.Pauses == 0 || s.Lost == 0 || s.Overflow == 0 || s.Incapable == 0 || len(reasons) < 10 {
		t.Errorf("not all of it happened: %+v, %d reasons", s, len(reasons))
	}
	if err := c.Retime(now, &reorder.Times{FlowletGap: 1}); err != nil || c.gap != mono.Time(params().FlowGap) {
		t.Errorf("a flowlet gap changes the flow gap: %v", err)
	}
}
