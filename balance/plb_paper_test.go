package balance

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/internal/mono"
)

// The tests in this file name the claim of PLB (Qureshi et al., SIGCOMM 2022) that they
// hold the code to. The design is the paper's §3. Quotations are from the abstract, and
// from what Linux says of its sysctls, which name the paper's M and N. Where the code
// differs, the test says how.

// plbFlowAt is a flow under PLB to leaf 0, and the metrics of its paths.
type plbFlowAt struct {
	t    testing.TB
	b    *plb
	v    *View
	now  mono.Time
	hash uint32
	path uint8
}

func newPLBPolicy(t testing.TB, o Options, change func(*PLBParams)) *plb {
	t.Helper()
	p := newPLBParams(Datacenter).(*PLBParams)
	if change != nil {
		change(p)
	}
	o.Section = p
	policy, err := New("plb", o)
	if err != nil {
		t.Fatal(err)
	}
	return policy.(*plb)
}

// newPLBFlow sends a flow's first packet, over 16 paths.
func newPLBFlow(t testing.TB, seed uint64, change func(*PLBParams)) *plbFlowAt {
	t.Helper()
	f := &plbFlowAt{
		t: t, b: newPLBPolicy(t, Options{Seed: seed}, change), v: newView(firstPaths(MaxPaths)),
		now: mono.Time(time.Hour), hash: 7,
	}
	f.v.Remote = congestion.NewToLeaf(1, params())
	f.send(0)
	return f
}

// send sends the next packet after a pause, and reports whether a path was drawn for it.
func (f *plbFlowAt) send(pause time.Duration) (drawn bool) {
	f.now = f.now.Add(pause)
	before := f.b.Stats().Decisions
	pkts := []Packet{{Hash: f.hash, Len: 1500}}
	f.b.Choose(f.now, f.v, pkts)
	moved := pkts[0].Path != f.path
	f.path = pkts[0].Path
	drawn = f.b.Stats().Decisions != before
	if moved && !drawn {
		f.t.Fatalf("the flow took path %d without a decision", f.path)
	}
	return drawn
}

// congest gives all paths a metric of the uplink's own.
func (f *plbFlowAt) congest(metric uint8) {
	for u := range f.v.Local {
		f.v.Local[u] = metric
	}
}

// round lets a round pass in which the flow sends all the time, and ends it.
func (f *plbFlowAt) round() (drawn bool) {
	const step = 25 * time.Microsecond
	for range 4 {
		if f.send(step) {
			f.t.Fatal("the flow moves in the middle of a round")
		}
	}
	return f.send(1)
}

// "Number of consecutive congested rounds (RTT) seen after which a forced rehash can be
// performed. [...] This is referred to as N in PLB paper"; its default is 12.
func TestPLB3ForcedAfterNRounds(t *testing.T) {
	f := newPLBFlow(t, 1, nil)
	f.congest(7)
	for range 3 {
		for n := 1; n <= 12; n++ {
			if f.round() != (n == 12) {
				t.Fatalf("congested round %d: moves %v", n, n != 12)
			}
		}
	}
	if s := f.b.stats; s.Forced != 3 || s.Idle != 0 || s.Rounds != 36 || s.Congested != 36 {
		t.Errorf("%+v", s)
	}
}

// "Number of consecutive congested rounds (RTT) seen after which a rehash can be
// performed, given there are no packets in flight. This is referred to as M in PLB
// paper"; its default is 3. PLB moves flows "preferring idle periods to minimize
// transport interactions" (abstract).
//
// We differ: a leaf does not know what is in flight. A flow that pauses for longer than
// the flowlet gap has nothing in flight.
func TestPLB3IdleAfterMRounds(t *testing.T) {
	gap := params().FlowletGap
	for rounds := range 6 {
		for _, pause := range []time.Duration{gap, gap + 1} {
			// The pause ends a round, too.
			f := newPLBFlow(t, 1, nil)
			f.congest(7)
			for range rounds {
				f.round()
			}
			want := pause > gap && rounds+1 >= 3
			if got := f.send(pause); got != want {
				t.Errorf("after %d rounds and a pause of %v: moves %v, want %v", rounds, pause, got, want)
			}
			if s := f.b.stats; want && (s.Idle != 1 || s.Forced != 0) {
				t.Errorf("%+v", s)
			}
		}
	}
}

// Rounds count if they are consecutive: one that is not congested begins the count anew.
func TestPLB3RoundsInARow(t *testing.T) {
	f := newPLBFlow(t, 1, nil)
	for range 5 {
		f.congest(7)
		for range 11 {
			if f.round() {
				t.Fatal("the flow moves after 11 congested rounds")
			}
		}
		f.congest(6)
		if f.round() {
			t.Fatal("the flow moves after a round without congestion")
		}
	}
	if f.send(time.Second) {
		t.Error("the flow moves in a pause after a round without congestion")
	}
}

// A round is congested if the congestion signal reaches a threshold.
//
// We differ: the paper's signal is the share of marked acknowledgements in a round (half
// of them in Linux, tcp_plb_cong_thresh). A leaf goes by the larger metric of the uplink
// and of the path behind it, at the round's end.
func TestPLB3CongestedRound(t *testing.T) {
	for _, tt := range []struct {
		threshold     float64
		q             uint
		local, remote uint8
		congested     bool
	}{
		{1, 3, 7, 0, true}, {1, 3, 0, 7, true}, {1, 3, 7, 7, true}, {1, 3, 6, 6, false},
		{0.8, 3, 6, 0, true}, {0.8, 3, 0, 6, true}, {0.8, 3, 5, 5, false},
		{0.01, 3, 1, 0, true}, {0.01, 3, 0, 0, false},
		{1, 1, 1, 0, true}, {0.5, 2, 2, 0, true}, {0.5, 2, 1, 1, false},
	} {
		cp := params()
		cp.Q = tt.q
		b := newPLBPolicy(t, Options{Seed: 1, Congestion: *cp}, func(p *PLBParams) { p.Threshold = tt.threshold })
		v := newView(firstPaths(4))
		v.Remote = congestion.NewToLeaf(1, cp)
		pkts := []Packet{{Hash: 7}}
		b.Choose(0, v, pkts)
		path := pkts[0].Path
		for u := range uint8(4) { // other paths are what the flow's is not
			local, remote := tt.local, tt.remote
			if u != path {
				local, remote = cp.TopMetric()-local, cp.TopMetric()-remote
			}
			v.Local[u] = local
			v.Remote.Update(0, u, remote, 0)
		}
		b.Choose(mono.Time(b.round)+1, v, pkts)
		if got := b.stats.Congested == 1; got != tt.congested || b.stats.Rounds != 1 {
			t.Errorf("threshold %v of metrics up to %d: local %d, remote %d: congested %v, want %v", tt.threshold, cp.TopMetric(), tt.local, tt.remote, got, tt.congested)
		}
	}
}

// PLB "randomly changes the paths of connections that experience congestion" (abstract):
// the path is drawn from all, not from those that are better.
//
// We differ: the leaf draws the path by the weights of the paths, where the paper has
// switches hash another flow label (ECMP or WCMP). Either may give the same path again.
func TestPLBRandomPath(t *testing.T) {
	const draws = 16_000
	var used [MaxPaths]int
	f := newPLBFlow(t, 1, func(p *PLBParams) { p.IdleRounds, p.ForcedRounds = 1, 1 })
	f.congest(7)
	for range draws {
		if !f.send(f.b.round.Sub(0) + 1) {
			t.Fatal("a congested round did not move the flow")
		}
		used[f.path]++
	}
	for path, n := range used {
		if n < draws/16-125 || n > draws/16+125 { // four standard deviations
			t.Errorf("path %d was drawn %d times of %d", path, n, draws)
		}
	}
}

// PLB builds on ECMP: a connection that meets no congestion stays on the path of its
// hash, whatever its pauses.
func TestPLB3StaysWithoutCongestion(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	b, e := newPLBPolicy(t, Options{Seed: 9}, nil), mustNew(t, "ecmp", 9)
	v, now := newView(firstPaths(5)), mono.Time(0)
	for range 20_000 {
		now = now.Add(time.Duration(rng.IntN(int(100 * time.Microsecond))))
		pkt := Packet{Hash: rng.Uint32N(50) * 0x9E3779B1}
		for u := range v.Local {
			v.Local[u] = uint8(rng.IntN(7)) // below 7
		}
		a, c := []Packet{pkt}, []Packet{pkt}
		b.Choose(now, v, a)
		e.Choose(now, v, c)
		if a[0].Path != c[0].Path {
			t.Fatalf("plb takes path %d, ecmp %d", a[0].Path, c[0].Path)
		}
	}
	if s := b.stats; s.Rounds == 0 || s.Congested != 0 {
		t.Errorf("%+v", s)
	}
}
