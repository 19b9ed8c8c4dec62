package congestion

import (
	"math"
	"sync"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/mono"
)

// naiveFromLeaf is one leaf's rows as plain fields.
type naiveFromLeaf struct {
	tags [MaxTags]struct {
		known, live, changed bool
		metric               uint8
		at                   mono.Time
	}
	retired uint64
}

func (n *naiveFromLeaf) record(tag int, ce uint8, now mono.Time) {
	e := &n.tags[tag]
	e.changed = e.changed || !e.known || e.metric != ce || max(now-e.at, e.at-now) >= ageing
	e.known, e.live, e.metric, e.at = true, true, ce, now
}

// naiveTurn is a worker's position as plain fields.
type naiveTurn struct {
	fed   map[int]bool
	last  int
	inRow int
}

// next looks at every tag after last, for a changed one first unless there were
// three of them in a row, then for one that had no turn in this round, then for any, and
// counts those that it comes to too late.
func (n *naiveFromLeaf) next(at *naiveTurn, now mono.Time) (tag int, metric uint8, ok bool) {
	for _, want := range []string{"changed", "not fed", "any"} {
		if want == "changed" && at.inRow == 3 {
			continue
		}
		if want == "any" {
			clear(at.fed)
		}
		for i := 1; i <= MaxTags; i++ {
			tag := (at.last + i) % MaxTags
			e := &n.tags[tag]
			if !e.live || want == "changed" && !e.changed || at.fed[tag] && want == "not fed" {
				continue
			}
			e.changed = false
			if max(now-e.at, e.at-now) < ageing {
				at.last, at.fed[tag] = tag, true
				at.inRow++
				if want != "changed" {
					at.inRow = 0
				}
				return tag, e.metric, true
			}
			e.live = false
			n.retired++
		}
	}
	return 0, 0, false
}

// Times are multiples of a quarter of the ageing time: where the table may
// round an age, none is.
func TestFromLeafEqualsModel(t *testing.T) {
	rng := newRand(t)
	const leaves, workers = 3, 2
	for range 200 {
		table := NewFromLeaf(leaves, testParams())
		naive := make([]naiveFromLeaf, leaves)
		cursors := [workers]*FeedbackCursor{NewFeedbackCursor(leaves), NewFeedbackCursor(leaves)}
		turns := [workers][leaves]naiveTurn{}
		for i := range workers * leaves {
			turns[i/leaves][i%leaves] = naiveTurn{fed: make(map[int]bool), last: MaxTags - 1}
		}
		now := mono.Time(rng.Int64()) >> tickShift << tickShift
		tags := 1 + rng.IntN(MaxTags)
		for step := range 1000 {
			if rng.IntN(8) == 0 {
				now += ageing / 4 * mono.Time(rng.IntN(6))
			}
			leaf := rng.IntN(leaves)
			if rng.IntN(3) == 0 {
				tag, ce := rng.IntN(tags), uint8(rng.IntN(8))
				table.Record(uint16(leaf), uint8(tag), ce, now)
				naive[leaf].record(tag, ce, now)
				continue
			}
			w := rng.IntN(workers)
			tag, metric, ok := table.Next(cursors[w], uint16(leaf), now)
			wantTag, wantMetric, wantOK := naive[leaf].next(&turns[w][leaf], now)
			if ok != wantOK || ok && (int(tag) != wantTag || metric != wantMetric) {
				t.Fatalf("step %d, leaf %d: tag %d metric %d %v, the model has %d %d %v", step, leaf, tag, metric, ok, wantTag, wantMetric, wantOK)
			}
		}
		want := naive[0].retired + naive[1].retired + naive[2].retired
		if got := cursors[0].retired + cursors[1].retired; got != want {
			t.Fatalf("%d metrics were retired, the model has %d", got, want)
		}
	}
}

// A metric that nobody confirms is counted stale once: when a packet could have
// taken it, by whichever worker sent that packet, and again only after it was
// recorded anew.
func TestFromLeafCountsStaleOnce(t *testing.T) {
	table := NewFromLeaf(1, testParams())
	a, b := NewFeedbackCursor(1), NewFeedbackCursor(1)
	retired := func() [2]uint64 { return [2]uint64{a.retired, b.retired} }
	for tag := range uint8(3) {
		table.Record(0, tag, tag+1, 0)
	}
	table.Next(a, 0, ageing-1)
	if got := retired(); got != [2]uint64{} {
		t.Errorf("%v retired within the ageing time", got)
	}
	for range 4 {
		if _, _, ok := table.Next(b, 0, ageing); ok {
			t.Error("fed back what is stale")
		}
		table.Next(a, 0, ageing)
	}
	if got := retired(); got != [2]uint64{0, 3} {
		t.Errorf("%v retired, want the second worker's 3", got)
	}
	table.Record(0, 1, 2, ageing)
	table.Next(a, 0, 3*ageing)
	if got := retired(); got != [2]uint64{1, 3} {
		t.Errorf("%v retired, want one more by the first worker", got)
	}
}

// However many workers come to a stale metric at once, one of them counts it.
func TestFromLeafStaleShared(t *testing.T) {
	table := NewFromLeaf(1, testParams())
	cursors := [4]*FeedbackCursor{}
	for i := range cursors {
		cursors[i] = NewFeedbackCursor(1)
	}
	now := mono.Time(0)
	const rounds = 500
	for range rounds {
		for tag := range uint8(MaxTags) {
			table.Record(0, tag, 1, now)
		}
		now += ageing
		var workers sync.WaitGroup
		for _, c := range cursors {
			workers.Go(func() { table.Next(c, 0, now) })
		}
		workers.Wait()
	}
	var sum uint64
	for _, c := range cursors {
		sum += c.retired
	}
	if sum != rounds*MaxTags {
		t.Errorf("%d metrics were retired, want %d", sum, rounds*MaxTags)
	}
}

func TestFromLeafRefusesTheImpossible(t *testing.T) {
	table, c := NewFromLeaf(3, testParams()), NewFeedbackCursor(3)
	for _, tt := range []struct {
		name    string
		leaf    uint16
		tag, ce uint8
		want    bool
	}{
		{"unknown leaf", 3, 0, 1, false},
		{"far leaf", math.MaxUint16, 0, 1, false},
		{"unknown tag", 0, 16, 1, false},
		{"impossible metric", 0, 0, 8, false},
		{"last leaf, last tag, top metric", 2, 15, 7, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := table.Record(tt.leaf, tt.tag, tt.ce, 0); got != tt.want {
				t.Errorf("Record = %v, want %v", got, tt.want)
			}
			tag, metric, ok := table.Next(c, tt.leaf, 0)
			if ok != tt.want || ok && (tag != tt.tag || metric != tt.ce) {
				t.Errorf("Next = %d, %d, %v", tag, metric, ok)
			}
			if _, _, ok := table.Entry(tt.leaf, tt.tag, 0); ok != tt.want {
				t.Errorf("Entry: %v, want %v", ok, tt.want)
			}
		})
	}
	if _, _, ok := table.Next(NewFeedbackCursor(1), 2, 0); ok {
		t.Error("a cursor without that leaf got feedback")
	}
}

func TestFromLeafClockJumps(t *testing.T) {
	const start = mono.Time(1 << 50)
	for _, tt := range []struct {
		name string
		to   mono.Time
		want bool
	}{
		{"a moment back", start - mono.Time(time.Millisecond), true},
		{"an hour back", start - mono.Time(time.Hour), false},
		{"an hour on", start + mono.Time(time.Hour), false},
		{"four years on", start + mono.Time(4*365*24*time.Hour), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			table, c := NewFromLeaf(1, testParams()), NewFeedbackCursor(1)
			table.Record(0, 9, 4, start)
			if _, _, ok := table.Next(c, 0, tt.to); ok != tt.want {
				t.Errorf("feedback after the jump: %v, want %v", ok, tt.want)
			}
			table.Record(0, 9, 4, tt.to)
			if tag, metric, ok := table.Next(c, 0, tt.to); !ok || tag != 9 || metric != 4 {
				t.Errorf("feedback of what was recorded after the jump = %d, %d, %v", tag, metric, ok)
			}
		})
	}
}

// Workers share the table: nothing is fed back that was not recorded for that
// tag, and the last change is fed back in the end.
func TestFromLeafShared(t *testing.T) {
	table := NewFromLeaf(1, testParams())
	var recorders, readers sync.WaitGroup
	stop := make(chan struct{})
	for worker := range 2 {
		recorders.Go(func() {
			for i := range 20_000 {
				tag := uint8(i % MaxTags)
				table.Record(0, tag, tag&3<<1|uint8(i/MaxTags+worker)&1, mono.Time(i)*100)
			}
		})
		readers.Go(func() {
			c := NewFeedbackCursor(1)
			for {
				select {
				case <-stop:
					return
				default:
				}
				if tag, metric, ok := table.Next(c, 0, mono.Time(1_000_000)); ok && metric>>1 != tag&3 {
					t.Errorf("tag %d fed back %d, which nobody recorded there", tag, metric)
					return
				}
			}
		})
	}
	recorders.Wait()
	close(stop)
	readers.Wait()
	// Whatever the race left behind, a new change comes first.
	c, now := NewFeedbackCursor(1), mono.Time(2_000_000)
	for range 2 * MaxTags { // until none that is left has changed
		table.Next(c, 0, now)
	}
	old, _, _ := table.Entry(0, 11, now)
	table.Record(0, 11, old^1, now)
	if tag, metric, ok := table.Next(c, 0, now); !ok || tag != 11 || metric != old^1 {
		t.Errorf("after a change of tag 11 to %d, Next = %d, %d, %v", old^1, tag, metric, ok)
	}
}

func TestFromLeafDoesNotAllocate(t *testing.T) {
	table, c := NewFromLeaf(4, testParams()), NewFeedbackCursor(4)
	now, fed := mono.Time(0), 0
	if n := testing.AllocsPerRun(1000, func() {
		now += 300_000
		table.Record(1, uint8(now>>18)&15, uint8(now>>22)&7, now)
		if _, _, ok := table.Next(c, 1, now); ok {
			fed++
		}
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
	if fed == 0 {
		t.Error("nothing was fed back")
	}
}

func BenchmarkFromLeafRecord(b *testing.B) {
	table := NewFromLeaf(64, testParams())
	now := mono.Time(0)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		now += 100
		table.Record(uint16(i&63), uint8(i>>6&15), uint8(i>>12&7), now)
	}
}

func BenchmarkFromLeafNext(b *testing.B) {
	table, c := NewFromLeaf(64, testParams()), NewFeedbackCursor(64)
	for i := range 64 * MaxTags {
		table.Record(uint16(i/MaxTags), uint8(i%MaxTags), uint8(i&7), 0)
	}
	var sum uint8
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		_, m, _ := table.Next(c, uint16(i&63), 1000)
		sum += m
	}
	_ = sum
}
