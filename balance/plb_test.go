package balance

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/reorder"
)

func TestPLBParams(t *testing.T) {
	for _, tt := range []struct {
		key    string // that is wrong; "": none is
		change func(*PLBParams)
	}{
		{"", func(*PLBParams) {}},
		{"", func(p *PLBParams) { p.ForcedRounds = 0 }},
		{"", func(p *PLBParams) { p.IdleRounds, p.ForcedRounds = 255, 255 }},
		{"round", func(p *PLBParams) { p.Round = 0 }},
		{"round", func(p *PLBParams) { p.Round = time.Minute + 1 }},
		{"threshold", func(p *PLBParams) { p.Threshold = 0 }},
		{"threshold", func(p *PLBParams) { p.Threshold = 1.01 }},
		{"threshold", func(p *PLBParams) { p.Threshold = math.NaN() }},
		{"idle_rounds", func(p *PLBParams) { p.IdleRounds = 0 }},
		{"idle_rounds", func(p *PLBParams) { p.IdleRounds = 256 }},
		{"forced_rounds", func(p *PLBParams) { p.ForcedRounds = -1 }},
		{"forced_rounds", func(p *PLBParams) { p.ForcedRounds = 256 }},
		{"forced_rounds", func(p *PLBParams) { p.ForcedRounds = p.IdleRounds - 1 }},
		{"flows", func(p *PLBParams) { p.Flows = 2 }},
		{"flows", func(p *PLBParams) { p.Flows = 100 }},
		{"flows", func(p *PLBParams) { p.Flows = 1 << 25 }},
	} {
		p := newPLBParams(Datacenter).(*PLBParams)
		tt.change(p)
		err := p.Validate()
		var field *FieldError
		if (err != nil) != (tt.key != "") || err != nil && (!errors.As(err, &field) || field.Key != tt.key) {
			t.Errorf("%+v: %v, want an error about %q", p, err, tt.key)
		}
	}
}

// The lab's rounds are longer, as its round trips are.
func TestPLBProfiles(t *testing.T) {
	for profile, want := range map[Profile]time.Duration{Datacenter: 100 * time.Microsecond, Lab: 1250 * time.Microsecond, Auto: 1250 * time.Microsecond} {
		if p := newPLBParams(profile).(*PLBParams); p.Round != want {
			t.Errorf("%v: rounds of %v, want %v", profile, p.Round, want)
		}
	}
}

// Without forced moves a flow that never pauses stays, however long it is congested, and
// moves in its first pause. The count of rounds does not wrap.
func TestPLBNeverForced(t *testing.T) {
	f := newPLBFlow(t, 1, func(p *PLBParams) { p.ForcedRounds = 0 })
	f.congest(7)
	for range 1000 {
		if f.round() {
			t.Fatal("the flow moves without a pause")
		}
	}
	if !f.send(time.Second) {
		t.Error("the flow does not move in a pause")
	}
}

// After a move the count begins anew, and so does the round.
func TestPLBMoveBeginsARound(t *testing.T) {
	f := newPLBFlow(t, 1, func(p *PLBParams) { p.IdleRounds, p.ForcedRounds = 1, 2 })
	f.congest(7)
	f.round()
	if !f.round() {
		t.Fatal("the flow does not move after two rounds")
	}
	rounds := f.b.stats.Rounds
	if f.send(time.Duration(f.b.round)); f.b.stats.Rounds != rounds {
		t.Error("a round ends before its time after a move")
	}
	if f.send(1) || f.b.stats.Rounds != rounds+1 {
		t.Error("no round ends in its time after a move, or the count was kept")
	}
}

// A flow whose path goes away takes another one at once, and stays there when its path
// comes back.
func TestPLBPathGoes(t *testing.T) {
	f := newPLBFlow(t, 1, nil)
	lost := f.path
	var rest []uint8
	for u := range uint8(MaxPaths) {
		if u != lost {
			rest = append(rest, u)
		}
	}
	f.v.Paths[0] = MakePaths(rest...)
	if !f.send(1) || f.b.stats.Lost != 1 {
		t.Fatalf("%+v", f.b.stats)
	}
	at := rest[f.path]
	f.v.Paths[0] = firstPaths(MaxPaths)
	pkts := []Packet{{Hash: f.hash}}
	f.b.Choose(f.now.Add(1), f.v, pkts)
	if pkts[0].Path != at || at == lost {
		t.Errorf("the flow was on path %d, then on %d, and is on %d", lost, at, pkts[0].Path)
	}
}

// Flows without an entry go by hash. An entry whose flow has paused goes to another
// flow, and an entry of one that has not does not.
func TestPLBTableIsFull(t *testing.T) {
	b := newPLBPolicy(t, Options{Seed: 1}, func(p *PLBParams) { p.Flows = 4 })
	v, now := newView(firstPaths(8)), mono.Time(time.Hour)
	send := func(hash uint32) uint8 {
		pkts := []Packet{{Hash: hash}}
		b.Choose(now, v, pkts)
		return pkts[0].Path
	}
	for hash := range uint32(5) {
		if got, want := send(hash), v.Paths[0].Share(Remix(uint64(hash)^1)); got != want {
			t.Errorf("flow %d takes path %d, its hash says %d", hash, got, want)
		}
	}
	if s := b.stats; s.Flows != 4 || s.Overflow != 1 {
		t.Errorf("%+v", s)
	}
	now = now.Add(b.gap.Sub(0))
	if send(4); b.stats.Overflow != 2 {
		t.Errorf("a flow lost its entry before a pause of the flowlet gap: %+v", b.stats)
	}
	now++
	if send(4); b.stats.Overflow != 2 || b.stats.Flows != 5 {
		t.Errorf("no entry was free after a pause: %+v", b.stats)
	}
	now = now.Add(b.gap.Sub(0) + 1)
	if err := b.Retime(now, &reorder.Times{FlowletGap: time.Second}); err != nil {
		t.Fatal(err)
	}
	if send(5); b.stats.Overflow != 3 {
		t.Errorf("a flow lost its entry before a pause of the new flowlet gap: %+v", b.stats)
	}
}

// The pause is the flowlet gap, which may follow from round trips.
func TestPLBRetime(t *testing.T) {
	f := newPLBFlow(t, 1, func(p *PLBParams) { p.IdleRounds = 1 })
	f.congest(7)
	gap := params().FlowletGap
	for _, tt := range []struct {
		times reorder.Times
		pause time.Duration
		moves bool
	}{
		{reorder.Times{}, gap, false},
		{reorder.Times{Reply: 1, MaxHold: 2}, gap, false},
		{reorder.Times{FlowletGap: 2 * gap}, 2 * gap, false},
		{reorder.Times{}, 2*gap + 1, true},
		{reorder.Times{FlowletGap: gap / 2}, gap / 2, false},
		{reorder.Times{}, gap/2 + 1, true},
	} {
		if err := f.b.Retime(f.now, &tt.times); err != nil {
			t.Fatal(err)
		}
		if got := f.send(tt.pause); got != tt.moves {
			t.Errorf("%+v: moves after a pause of %v: %v", tt.times, tt.pause, got)
		}
	}
}

// naivePLB is PLB for one flow, written down once more: with times as numbers, and
// without a table.
type naivePLB struct {
	p             *PLBParams
	gap           time.Duration
	known         bool
	last, began   time.Duration
	inARow        int
	uplink, first uint8
}

// packet reports whether the flow takes a path at random for a packet.
func (n *naivePLB) packet(now time.Duration, there bool, congested func(uplink uint8) bool) bool {
	if !n.known {
		n.known, n.last, n.began, n.uplink = true, now, now, n.first
		return false
	}
	pause := now - n.last
	n.last = now
	if !there {
		return true
	}
	if now-n.began > n.p.Round {
		n.began = now
		n.inARow++
		if !congested(n.uplink) {
			n.inARow = 0
		}
	}
	idle := pause > n.gap && n.inARow >= n.p.IdleRounds
	forced := n.p.ForcedRounds > 0 && n.inARow >= n.p.ForcedRounds
	return idle || forced
}

// moved takes note of the path that the flow drew.
func (n *naivePLB) moved(now time.Duration, uplink uint8) {
	n.began, n.inARow, n.uplink = now, 0, uplink
}

// Many flows on links whose load changes at random, to two leaves whose paths come and
// go, against the naive one: flows take a random path when that says so and at no other
// time, and all reasons occur.
func TestPLBAgainstNaive(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for _, forced := range []int{0, 2, 5} {
		p := newPLBParams(Datacenter).(*PLBParams)
		p.IdleRounds, p.ForcedRounds, p.Threshold = 2, forced, 0.5
		b := newPLBPolicy(t, Options{Seed: seed}, func(q *PLBParams) { *q = *p })
		v := newView(firstPaths(4), firstPaths(4))
		v.Remote = congestion.NewToLeaf(2, params())
		type key struct {
			hash uint32
			leaf uint16
		}
		flows := map[key]*naivePLB{}
		congested := func(leaf uint16, now mono.Time) func(uint8) bool {
			var remote [MaxPaths]uint8
			v.Remote.Metrics(leaf, now, &remote)
			return func(u uint8) bool { return v.Local[u] >= 4 || remote[u] >= 4 } // half of 7
		}
		now := mono.Time(time.Hour)
		for range 50_000 {
			now += mono.Time(rng.Int64N(int64(20 * time.Microsecond)))
			if rng.IntN(500) == 0 {
				now += mono.Time(rng.Int64N(int64(2 * time.Millisecond)))
			}
			v.Local[rng.IntN(4)] = uint8(rng.IntN(6))
			v.Remote.Update(uint16(rng.IntN(2)), uint8(rng.IntN(4)), uint8(rng.IntN(6)), now)
			if rng.IntN(50) == 0 {
				v.Paths[rng.IntN(2)] = [...]Paths{firstPaths(4), MakePaths(1, 3), MakePaths(2, 0, 1)}[rng.IntN(3)]
			}
			k := key{rng.Uint32N(12), uint16(rng.IntN(2))}
			paths := &v.Paths[k.leaf]
			n := flows[k]
			if n == nil {
				n = &naivePLB{p: p, gap: params().FlowletGap, first: paths.Uplink[b.hashed(paths, k.hash)]}
				flows[k] = n
			}
			pkts := []Packet{{Hash: k.hash, Leaf: k.leaf}}
			before := b.stats.Idle + b.stats.Forced + b.stats.Lost
			b.Choose(now, v, pkts)
			took := paths.Uplink[pkts[0].Path]
			want := n.packet(now.Sub(0), paths.Index[n.uplink] >= 0, congested(k.leaf, now))
			if got := b.stats.Idle+b.stats.Forced+b.stats.Lost > before; got != want || !got && took != n.uplink {
				t.Fatalf("flow %+v at %d: drawn %v, want %v; on uplink %d, was on %d (%+v)", k, now, got, want, took, n.uplink, n)
			}
			if want {
				n.moved(now.Sub(0), took)
			}
		}
		if s := b.stats; s.Idle == 0 || s.Lost == 0 || (s.Forced == 0) != (forced == 0) || s.Congested == 0 || s.Congested == s.Rounds {
			t.Errorf("not all of it happened: %+v", s)
		}
	}
}
