package congestion

// Claims of CONGA (Alizadeh et al., SIGCOMM 2014) about congestion feedback,
// and how the implementation meets them.

import (
	"slices"
	"testing"

	"github.com/loomfabric/loom/internal/mono"
)

// §3.3, steps 3 to 5: "The CE field of the packet received at the destination
// leaf gives the maximum link congestion along the packet's path. [...] the
// destination leaf stores the metric in the Congestion-From-Leaf Table (on a per
// source leaf, per LBTag basis) while it waits for an opportunity to piggyback
// the feedback. [...] the source leaf parses the feedback in the reverse packet
// and updates the Congestion-To-Leaf Table."
func TestPaperFeedbackLoop(t *testing.T) {
	const source, destination = 4, 2 // as each numbers the other: 4 is at the destination
	from, cursor := NewFromLeaf(8, testParams()), NewFeedbackCursor(8)
	to := NewToLeaf(8, testParams())
	want := [MaxTags]uint8{0: 3, 2: 5, 7: 1}
	for tag, ce := range want {
		if ce > 0 {
			from.Record(source, uint8(tag), ce, 0)
		}
	}
	for range 3 {
		if tag, metric, ok := from.Next(cursor, source, 1000); ok {
			to.Update(destination, tag, metric, 2000)
		}
	}
	var got [MaxTags]uint8
	if to.Metrics(destination, 3000, &got); got != want {
		t.Errorf("metrics at the source %v, want %v", got, want)
	}
	if to.Metrics(destination+1, 3000, &got); got != ([MaxTags]uint8{}) {
		t.Errorf("another leaf has metrics %v", got)
	}
	if _, _, ok := from.Next(cursor, source+1, 1000); ok {
		t.Error("feedback for a leaf that sent nothing")
	}
}

// §3.3: "all metrics between a pair of leaf switches can be conveyed in at-most
// 12 packets (because there are 12 distinct LBTag values)".
//
// Ours has up to 16 tags.
func TestPaperAllMetricsInOneRound(t *testing.T) {
	for tags := 1; tags <= MaxTags; tags++ {
		table, c := NewFromLeaf(1, testParams()), NewFeedbackCursor(1)
		for tag := range tags {
			table.Record(0, uint8(tag), uint8(tag)&7, 0)
		}
		for round := range 3 {
			for i := range tags {
				tag, metric, ok := table.Next(c, 0, 1)
				if !ok || int(tag) != i || metric != uint8(i)&7 {
					t.Fatalf("%d tags, round %d: packet %d carries tag %d metric %d %v", tags, round, i, tag, metric, ok)
				}
			}
		}
	}
}

// §3.3, step 4: "The metric is chosen in round-robin fashion while, as an
// optimization, favoring those metrics whose values have changed since the last
// time they were fed back."
//
// The paper does not say how much. Ours come first three times in a row, and then the
// round goes on by one tag.
func TestPaperChangedMetricsFirst(t *testing.T) {
	table, c := NewFromLeaf(1, testParams()), NewFeedbackCursor(1)
	const tags = 12
	for tag := range uint8(tags) {
		table.Record(0, tag, 1, 0)
	}
	next := func() uint8 {
		tag, _, ok := table.Next(c, 0, 1)
		if !ok {
			t.Fatal("nothing to feed back")
		}
		return tag
	}
	for range tags + 3 {
		next() // all were new, so all have been fed back; the last was tag 2
	}
	table.Record(0, 5, 1, 1) // the same value: no change
	table.Record(0, 9, 2, 1)
	table.Record(0, 1, 7, 1)
	var got []uint8
	for range 5 {
		got = append(got, next())
	}
	// The changed ones in their order in the round, then the round goes on.
	if want := []uint8{9, 1, 3, 4, 5}; !slices.Equal(got, want) {
		t.Errorf("tags fed back %v, want %v", got, want)
	}
}

// A link that stays congested has a metric that does not change, while the metrics of
// others do with every packet. Favoured strictly, these would take all feedback, and the
// source would let the congested one age to idle.
func TestConstantMetricIsFedBackAmongChangingOnes(t *testing.T) {
	const constant = 3
	others := func(tag uint8) bool { return tag != constant }
	five := func(tag uint8) bool { return tag == 5 }
	for _, tt := range []struct {
		name    string
		changes func(tag uint8) bool
		every   int // packets from one change to the next
		pause   int // of so many packets the last has no change before it
	}{
		{"one changes always", five, 1, 1 << 20},
		{"one changes every other time", five, 2, 1 << 20},
		{"one changes three times of four", five, 1, 4},
		{"all others change always", others, 1, 1 << 20},
	} {
		t.Run(tt.name, func(t *testing.T) {
			from, c := NewFromLeaf(1, testParams()), NewFeedbackCursor(1)
			to := NewToLeaf(1, testParams())
			metric := [MaxTags]uint8{}
			for i := range 10_000 {
				// 40 µs between packets: 250 in the ageing time.
				now := mono.Time(i) * 40_000
				for tag := range uint8(MaxTags) {
					ce := uint8(7)
					if tag != constant {
						ce = metric[tag] & 1
					}
					from.Record(0, tag, ce, now)
				}
				if tag, m, ok := from.Next(c, 0, now); ok {
					to.Update(0, tag, m, now)
				}
				for tag := range uint8(MaxTags) {
					if tt.changes(tag) && i%tt.every == 0 && i%tt.pause != tt.pause-1 {
						metric[tag]++
					}
				}
				if i < 2*MaxTags*(changedInRow+1) {
					continue
				}
				if got := to.Metric(0, constant, now); got != 7 {
					t.Fatalf("packet %d: the source takes the congested tag for one of metric %d", i, got)
				}
			}
		})
	}
}

// §3.3: "a simple aging mechanism is added where a metric that has not been
// updated for a long time (e.g., 10ms) gradually decays to zero. This also
// guarantees that a path that appears to be congested is eventually probed
// again."
//
// The paper leaves "gradually" open. Ours is one quantum each 10 ms.
func TestPaperAgeing(t *testing.T) {
	to := NewToLeaf(1, testParams())
	to.Update(0, 3, 7, 0)
	previous := uint8(7)
	for now := mono.Time(0); now < 8*ageing; now += ageing / 20 {
		got := to.Metric(0, 3, now)
		if got > previous || previous-got > 1 {
			t.Fatalf("metric fell from %d to %d at once", previous, got)
		}
		if now < ageing && got != 7 {
			t.Fatalf("metric %d after %v", got, now.Sub(0))
		}
		previous = got
	}
	if previous != 0 {
		t.Errorf("metric %d in the end: the path is never probed again", previous)
	}
}

// The same at the other end, which the paper does not mention: what is no
// longer measured is no longer fed back, or each repetition would make it young
// again at the source.
func TestPaperStaleMetricsAreNotFedBack(t *testing.T) {
	from, c := NewFromLeaf(1, testParams()), NewFeedbackCursor(1)
	to := NewToLeaf(1, testParams())
	from.Record(0, 2, 6, 0)
	zero := mono.Time(-1)
	for now := mono.Time(0); now < 20*ageing; now += ageing / 10 {
		if tag, metric, ok := from.Next(c, 0, now); ok {
			if now >= ageing {
				t.Fatalf("fed back %v after it was recorded", now.Sub(0))
			}
			to.Update(0, tag, metric, now)
		}
		if to.Metric(0, 2, now) == 0 {
			zero = now
			break
		}
	}
	// 10 ms at the destination, then 6 steps at the source.
	if zero < 6*ageing || zero > 8*ageing {
		t.Errorf("metric reached 0 after %v, want 60 to 80 ms", zero.Sub(0))
	}
}

// §3.6: "The default parameter values for our implementation are: Q = 3, τ =
// 160µs, and Tfl = 500µs." §3.3: "a long time (e.g., 10ms)". §3.4: "64K in our
// implementation". §5: "CONGA-Flow however uses Tfl = 13ms".
func TestPaperParameters(t *testing.T) {
	p := Datacenter()
	if p.Q != 3 || p.Tau.Microseconds() != 160 || p.FlowletGap.Microseconds() != 500 ||
		p.Ageing.Milliseconds() != 10 || p.FlowGap.Milliseconds() != 13 || DefaultFlowlets != 65536 {
		t.Errorf("defaults %+v", p)
	}
	if p.Decision != (Decision{MaxMetric, false}) {
		t.Errorf("decision %+v is not the paper's", p.Decision)
	}
}
