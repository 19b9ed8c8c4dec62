package traffic

import (
	"testing"

	"github.com/loomfabric/loom/internal/workload"
	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

func loopSizes(t *testing.T) *workload.CDF {
	t.Helper()
	c, err := workload.NewCDF([]workload.Point{{Bytes: 0, P: 0}, {Bytes: 1e6, P: 1}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// run takes flows of a merge as they come, and ends each a time after its start that
// depends on the run.
func runLoop(t *testing.T, took engine.Time, end engine.Time) map[Pair][]Flow {
	t.Helper()
	l, err := NewLoop(Loop{
		Stream: Stream{Seed: 1}, Pairs: []Pair{{0, 4}, {1, 5}, {2, 6}}, Sizes: loopSizes(t), Each: 2,
		Start: 10 * engine.Microsecond, Stagger: engine.Millisecond, Until: end,
	})
	if err != nil {
		t.Fatal(err)
	}
	m := NewMerge(l)
	out, now := map[Pair][]Flow{}, engine.Time(0)
	type ending struct {
		at engine.Time
		f  Flow
	}
	var open []ending
	for {
		first := -1
		for i := range open {
			if first < 0 || open[i].at < open[first].at {
				first = i
			}
		}
		if s := m.Start(); s != engine.Never && (first < 0 || s <= open[first].at) {
			f, _ := m.Next()
			if f.Start < now {
				t.Fatalf("a flow starts at %v, and it is %v", f.Start, now)
			}
			now = f.Start
			p := Pair{f.Src, f.Dst}
			out[p] = append(out[p], f)
			open = append(open, ending{f.Start + took, f})
			continue
		}
		if first < 0 {
			return out
		}
		now = open[first].at
		f := open[first].f
		open = append(open[:first], open[first+1:]...)
		m.Done(now, f)
	}
}

// Each pair has so many flows under way from its own start on, one begins when another one
// ends, also while other pairs have not begun, and none after the end.
func TestLoopGoesOn(t *testing.T) {
	const took, end = 100 * engine.Microsecond, 5 * engine.Millisecond
	flows := runLoop(t, took, end)
	for i := range 3 {
		p := Pair{network.HostID(i), network.HostID(i + 4)}
		start := 10*engine.Microsecond + engine.Time(i)*engine.Millisecond
		want := 2 * int((end-start+took-1)/took)
		if got := len(flows[p]); got != want || flows[p][0].Start != start {
			t.Errorf("pair %v: %d flows from %v on, want %d from %v on", p, got, flows[p][0].Start, want, start)
		}
		for k, f := range flows[p][2:] {
			if f.Start != flows[p][k].Start+took {
				t.Fatalf("pair %v: flow %d starts at %v", p, k+2, f.Start)
			}
		}
	}
}

// A pair's sizes are the same however long its flows take.
func TestLoopSizesDoNotDependOnTheNetwork(t *testing.T) {
	fast, slow := runLoop(t, 50*engine.Microsecond, 4*engine.Millisecond), runLoop(t, 300*engine.Microsecond, 4*engine.Millisecond)
	for p, f := range slow {
		for i := range f {
			if f[i].Bytes != fast[p][i].Bytes {
				t.Fatalf("pair %v: flow %d has %d bytes, and %d where they are faster", p, i, f[i].Bytes, fast[p][i].Bytes)
			}
		}
	}
}

// With receivers at random every one has its turn, and a sender has none of itself.
func TestLoopAtRandom(t *testing.T) {
	sel := &Selection{From: []network.HostID{3}, Rack: []int{0, 0, 1, 1, 2}, Any: true}
	for h := range network.HostID(5) {
		sel.To = append(sel.To, h)
	}
	l, err := NewLoop(Loop{Stream: Stream{Seed: 1}, Random: sel, Sizes: loopSizes(t), Each: 50, Until: engine.Second})
	if err != nil {
		t.Fatal(err)
	}
	to := map[network.HostID]int{}
	for f, ok := l.Next(); ok; f, ok = l.Next() {
		if f.Src != 3 || f.Dst == 3 {
			t.Fatalf("from %d to %d", f.Src, f.Dst)
		}
		to[f.Dst]++
	}
	if len(to) != 4 {
		t.Errorf("receivers %v", to)
	}
	if _, err := NewLoop(Loop{}); err == nil {
		t.Error("a loop of nobody")
	}
}
