package congestion

// Claims of CONGA (Alizadeh et al., SIGCOMM 2014) about the decision, and how
// the implementation meets them.

import (
	"math/rand/v2"
	"testing"
)

// §3.5: "we pick the uplink port that minimizes the maximum of the local metric
// (from the local DREs) and the remote metric (from the Congestion-To-Leaf
// Table)."
func TestPaperLeastCongestedUplink(t *testing.T) {
	local := [MaxTags]uint8{0: 1, 1: 6, 2: 4, 3: 0}
	remote := [MaxTags]uint8{0: 5, 1: 0, 2: 3, 3: 7}
	for range 100 {
		got := Decision{}.Pick([]uint8{0, 1, 2, 3}, &local, &remote, 0, rand.NewPCG(1, 2))
		if got != 2 {
			t.Fatalf("uplink %d, want 2: its worst part is 4", got)
		}
	}
}

// §3.5: "If multiple uplinks are equally good, one is chosen at random with
// preference given to the port cached in the (invalid) entry in the Flowlet
// Table; i.e., a flow only moves if there is a strictly better uplink than the
// one its last flowlet took."
func TestPaperFlowMovesOnlyToStrictlyBetter(t *testing.T) {
	pcg := rand.NewPCG(1, 2)
	uplinks := []uint8{0, 1, 2, 3}
	var local, remote [MaxTags]uint8
	remote = [MaxTags]uint8{3, 3, 3, 3}
	for range 100 {
		if got := (Decision{}).Pick(uplinks, &local, &remote, 2, pcg); got != 2 {
			t.Fatalf("moved to uplink %d without need", got)
		}
	}
	remote[0] = 2
	if got := (Decision{}).Pick(uplinks, &local, &remote, 2, pcg); got != 0 {
		t.Errorf("uplink %d, want 0, which is strictly better", got)
	}
	// A cached port that no longer leads there has no preference.
	remote[0] = 3
	seen := map[uint8]bool{}
	for range 200 {
		seen[(Decision{}).Pick([]uint8{0, 1, 3}, &local, &remote, 2, pcg)] = true
	}
	if len(seen) != 3 || seen[2] {
		t.Errorf("uplinks %v were picked, want 0, 1 and 3", seen)
	}
}

// §7: "other choices such as the sum of link metrics are also possible [...] we
// used max because it emphasizes the bottleneck link and is also easier to
// implement; the sum metric requires extra bits in the packet header".
//
// Here the sum is that of the two parts that the source knows. What spines put
// into CE is still the worst of their links.
func TestPaperSumMetric(t *testing.T) {
	pcg := rand.NewPCG(1, 2)
	local := [MaxTags]uint8{0: 4, 1: 5}
	remote := [MaxTags]uint8{0: 4, 1: 0}
	if got := (Decision{}).Pick([]uint8{0, 1}, &local, &remote, 1, pcg); got != 0 {
		t.Errorf("max: uplink %d, want 0 (4 against 5)", got)
	}
	if got := (Decision{Metric: SumMetric}).Pick([]uint8{0, 1}, &local, &remote, 0, pcg); got != 1 {
		t.Errorf("sum: uplink %d, want 1 (5 against 8)", got)
	}
	// No overflow where a uint8 would have one.
	local, remote = [MaxTags]uint8{0: 255, 1: 200}, [MaxTags]uint8{0: 255, 1: 200}
	if got := (Decision{Metric: SumMetric}).Pick([]uint8{0, 1}, &local, &remote, 0, pcg); got != 1 {
		t.Errorf("sum of large metrics: uplink %d, want 1", got)
	}
}

// §6.1, Remark 2: "If in addition to using paths with the smallest congestion
// metric, if the leaf switches also use only paths with the fewest number of
// bottlenecks, then the PoA would be 1, i.e., optimal. [...] Incorporating this
// criteria into CONGA would require additional bits to track the number of
// bottlenecks along the packet's path."
//
// We count the bottlenecks that the source sees without such bits: one or two.
func TestPaperFewestBottlenecks(t *testing.T) {
	pcg := rand.NewPCG(1, 2)
	// Figure 17: the same worst metric on both, but on one path twice.
	local := [MaxTags]uint8{0: 7, 1: 3}
	remote := [MaxTags]uint8{0: 7, 1: 7}
	for range 50 {
		if got := (Decision{FewestBottlenecks: true}).Pick([]uint8{0, 1}, &local, &remote, 0, pcg); got != 1 {
			t.Fatalf("uplink %d, want 1, with one bottleneck", got)
		}
		if got := (Decision{}).Pick([]uint8{0, 1}, &local, &remote, 0, pcg); got != 0 {
			t.Fatalf("uplink %d, want 0: the paper's rule sees a tie", got)
		}
	}
	// It never outweighs the metric.
	local[0], remote[0] = 6, 6
	if got := (Decision{FewestBottlenecks: true}).Pick([]uint8{0, 1}, &local, &remote, 1, pcg); got != 0 {
		t.Errorf("uplink %d, want 0, which is less congested", got)
	}
}
