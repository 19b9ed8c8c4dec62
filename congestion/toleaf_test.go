package congestion

import (
	"math"
	"sync"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/mono"
)

// naiveToLeaf remembers every update as it came.
type naiveToLeaf map[[2]int]struct {
	metric uint8
	at     mono.Time
}

// metric computes with an age that is off by slack: what is stored may be that
// much younger or older than the last update.
func (n naiveToLeaf) metric(leaf, tag int, now, slack mono.Time) uint8 {
	e := n[[2]int{leaf, tag}]
	m := int(e.metric)
	for age := max(now-e.at, e.at-now) + slack; age >= ageing && m > 0; age -= ageing {
		m--
	}
	return uint8(m)
}

func TestToLeafEqualsModel(t *testing.T) {
	rng := newRand(t)
	const leaves = 5
	slack := ageing/16 + 2*mono.Time(tick)
	for range 50 {
		table, naive := NewToLeaf(leaves, testParams()), naiveToLeaf{}
		now := mono.Time(rng.Uint64()) // anywhere, before the origin as well
		for range 2000 {
			switch rng.IntN(20) {
			case 0:
				now += mono.Time(rng.Int64N(int64(10 * ageing)))
			case 1: // another worker's clock was read a moment earlier
				now -= mono.Time(rng.Int64N(int64(50 * time.Microsecond)))
			default:
				now += mono.Time(rng.Int64N(int64(ageing / 8)))
			}
			leaf, tag := rng.IntN(leaves), rng.IntN(MaxTags)
			if rng.IntN(2) == 0 {
				m := uint8(rng.IntN(8))
				if !table.Update(uint16(leaf), uint8(tag), m, now) {
					t.Fatalf("update of leaf %d tag %d metric %d refused", leaf, tag, m)
				}
				naive[[2]int{leaf, tag}] = struct {
					metric uint8
					at     mono.Time
				}{m, now}
			}
			got := table.Metric(uint16(leaf), uint8(tag), now)
			low, high := naive.metric(leaf, tag, now, slack), naive.metric(leaf, tag, now, -slack)
			if got < low || got > high {
				t.Fatalf("leaf %d tag %d at %d: metric %d, the model has %d to %d", leaf, tag, now, got, low, high)
			}
			var row [MaxTags]uint8
			table.Metrics(uint16(leaf), now, &row)
			if row[tag] != got {
				t.Fatalf("Metrics has %d, Metric %d", row[tag], got)
			}
		}
	}
}

func TestToLeafRefusesTheImpossible(t *testing.T) {
	table := NewToLeaf(3, testParams())
	for _, tt := range []struct {
		name              string
		leaf              uint16
		tag, metric       uint8
		want, wantPresent bool
	}{
		{"unknown leaf", 3, 0, 1, false, false},
		{"far leaf", math.MaxUint16, 0, 1, false, false},
		{"unknown tag", 0, 16, 1, false, false},
		{"impossible metric", 0, 0, 8, false, false},
		{"last leaf, last tag, top metric", 2, 15, 7, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := table.Update(tt.leaf, tt.tag, tt.metric, 0); got != tt.want {
				t.Errorf("Update = %v, want %v", got, tt.want)
			}
			metric, _, ok := table.Entry(tt.leaf, tt.tag, 0)
			if ok != tt.wantPresent || ok && metric != tt.metric {
				t.Errorf("Entry = %d, %v", metric, ok)
			}
			if got := table.Metric(tt.leaf, tt.tag, 0); (got == tt.metric) != tt.wantPresent {
				t.Errorf("Metric = %d", got)
			}
		})
	}
	row := [MaxTags]uint8{1, 2, 3}
	if table.Metrics(3, 0, &row); row != [MaxTags]uint8{} {
		t.Errorf("Metrics of an unknown leaf = %v", row)
	}
}

// A clock that jumps leaves no metric standing for longer than its ageing.
func TestToLeafClockJumps(t *testing.T) {
	const start = mono.Time(1 << 50)
	for _, tt := range []struct {
		name string
		to   mono.Time
		want uint8
	}{
		{"same instant", start, 7},
		{"a moment back", start - mono.Time(time.Millisecond), 7},
		{"an hour back", start - mono.Time(time.Hour), 0},
		{"an hour on", start + mono.Time(time.Hour), 0},
		{"a year on", start + mono.Time(365*24*time.Hour), 0},
		{"four years on", start + mono.Time(4*365*24*time.Hour), 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			table := NewToLeaf(1, testParams())
			table.Update(0, 3, 7, start)
			if got := table.Metric(0, 3, tt.to); got != tt.want {
				t.Errorf("metric = %d, want %d", got, tt.want)
			}
			table.Update(0, 3, 5, tt.to)
			if got := table.Metric(0, 3, tt.to); got != 5 {
				t.Errorf("metric after an update = %d, want 5", got)
			}
			if got := table.Metric(0, 3, tt.to+2*ageing); got != 3 {
				t.Errorf("metric two ageing times later = %d, want 3", got)
			}
		})
	}
}

// Workers share the table: whatever they do at once, a reader sees a metric
// that somebody wrote for that very entry.
func TestToLeafShared(t *testing.T) {
	table := NewToLeaf(2, testParams())
	var wg sync.WaitGroup
	for worker := range 3 {
		wg.Go(func() {
			for i := range 20_000 {
				now := mono.Time(i) * 100 // no metric ages
				tag := uint8(i % MaxTags)
				table.Update(1, tag, tag&3<<1|uint8(i/MaxTags+worker)&1, now)
				if got := table.Metric(1, tag, now); got>>1 != tag&3 {
					t.Errorf("tag %d has metric %d, which nobody wrote there", tag, got)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestToLeafDoesNotAllocate(t *testing.T) {
	table := NewToLeaf(4, testParams())
	now := mono.Time(0)
	var row [MaxTags]uint8
	if n := testing.AllocsPerRun(1000, func() {
		now += 100_000
		table.Update(2, 5, uint8(now>>20)&7, now)
		table.Metrics(2, now, &row)
		row[0] += table.Metric(2, 5, now)
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

func BenchmarkToLeafUpdate(b *testing.B) {
	table := NewToLeaf(64, testParams())
	now := mono.Time(0)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		now += 100
		table.Update(uint16(i&63), uint8(i>>6&15), uint8(i>>12&7), now)
	}
}

func BenchmarkToLeafMetrics(b *testing.B) {
	table := NewToLeaf(64, testParams())
	for i := range 64 * MaxTags {
		table.Update(uint16(i/MaxTags), uint8(i%MaxTags), uint8(i&7), 0)
	}
	var row [MaxTags]uint8
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		table.Metrics(uint16(i&63), mono.Time(i), &row)
	}
}
