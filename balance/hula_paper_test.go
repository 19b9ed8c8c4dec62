package balance

// Claims of "HULA: Scalable Load Balancing Using Programmable Data Planes" (Katta, Hira,
// Kim, Sivaraman and Rexford, SOSR 2016), and how the implementation meets them.
//
// The claims in quotation marks are the abstract's. The others are in our own words, from
// what is publicly known of the paper: its numbers of sections were not at hand.

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/internal/mono"
)

// "Each HULA switch tracks congestion for the best path to a destination through a
// neighboring switch", instead of "congestion on all paths to a destination".
//
// Ours differs: leaves alone track, as spines of a two-tier fabric have nothing to
// choose. Of the utilisation of other paths a leaf keeps nothing: when the best one gets
// worse, the next answers of the others find the new best.
func TestPaperHULATracksTheBestPath(t *testing.T) {
	n := newHULANet(t, 3, 4)
	rng := rand.New(rand.NewPCG(1, 1))
	n.util[0][1] = [MaxPaths]uint8{4, 2, 3, 5}
	n.run(2 * hulaProbe)
	if used := n.paths(rng); !slices.Equal(used, []uint8{1}) {
		t.Fatalf("flowlets took paths %v, want the best one", used)
	}
	// Its own probes say that it is worse now. Another one takes its place.
	n.util[0][1][1] = 7
	n.run(n.now + 2*hulaProbe)
	if used := n.paths(rng); !slices.Equal(used, []uint8{2}) {
		t.Errorf("flowlets took paths %v, want the one that is best now", used)
	}
	// One that gets better takes its place, too.
	n.util[0][1][3] = 0
	n.run(n.now + 2*hulaProbe)
	if used := n.paths(rng); !slices.Equal(used, []uint8{3}) {
		t.Errorf("flowlets took paths %v, want the one that got better", used)
	}
	if st := n.leaves[0].stats; st.Moved != 0 || st.Hashed != 0 || st.Silent != 0 {
		t.Errorf("%+v", st)
	}
}

// Probes are periodic, one of each path in a period: 200 µs in the paper's simulations.
// Their cost does not depend on traffic. The average that they see should be over twice
// the period of probes: so is CONGA's, roughly, in the datacenter profile.
func TestPaperHULAProbesPeriodically(t *testing.T) {
	p := newHULAParams(Datacenter).(*HULAParams)
	if p.Probe != 200*time.Microsecond {
		t.Errorf("a probe every %v", p.Probe)
	}
	n := newHULANet(t, 4, 3)
	n.run(50 * hulaProbe)
	if want := 50 * 4 * 3 * 3; n.probes != want {
		t.Errorf("%d probes in 50 periods, want one for each of 3 paths to 3 leaves of 4, %d", n.probes, want)
	}
	st := n.leaves[0].stats
	if st.Probes != uint64(n.probes/4) || st.Answers != st.Learned || st.Answers != st.Probes {
		t.Errorf("%+v", st)
	}
	if lab, tau := newHULAParams(Lab).(*HULAParams), congestion.Lab().Tau; lab.Probe < tau/2 {
		t.Errorf("the lab probes every %v, and averages over %v", lab.Probe, tau)
	}
}

// A flowlet stays with the hop that was the best when it began, so that packets stay in
// order, and the next one takes the best hop of its time.
func TestPaperHULARoutesFlowlets(t *testing.T) {
	n := newHULANet(t, 2, 2)
	n.util[0][1] = [MaxPaths]uint8{0, 4}
	n.run(2 * hulaProbe)
	flow := func() uint8 {
		pkts := []Packet{{Hash: 7, Leaf: 1}}
		n.leaves[0].Choose(n.now, n.views[0], pkts)
		return pkts[0].Path
	}
	if flow() != 0 {
		t.Fatal("the first flowlet did not take the best path")
	}
	n.util[0][1] = [MaxPaths]uint8{7, 0}
	for range 20 {
		n.run(n.now + hulaProbe)
		if flow() != 0 {
			t.Fatal("the flowlet moved")
		}
	}
	gap := mono.Time(congestion.Datacenter().FlowletGap)
	n.run(n.now + gap + 1000)
	if flow() != 1 {
		t.Error("the next flowlet did not take the path that is best now")
	}
}

// HULA finds failures in the data plane: a hop whose probes are missing for some time is
// no longer used.
//
// Ours: five probes. Flowlets under way there move as well, and a path that answers
// again is used again.
func TestPaperHULAFindsFailures(t *testing.T) {
	n := newHULANet(t, 2, 3)
	n.util[0][1] = [MaxPaths]uint8{3, 0, 5}
	rng := rand.New(rand.NewPCG(1, 1))
	n.run(2 * hulaProbe)
	flow := func() uint8 {
		pkts := []Packet{{Hash: 7, Leaf: 1}}
		n.leaves[0].Choose(n.now, n.views[0], pkts)
		return pkts[0].Path
	}
	if flow() != 1 {
		t.Fatal("the flow is not on the best path")
	}
	n.down[0][1][1] = true
	failed := n.now
	for flow() == 1 && n.now < failed+20*hulaProbe {
		n.run(n.now + 10_000)
	}
	if took := n.now - failed; took < 4*hulaProbe || took > 7*hulaProbe {
		t.Errorf("the flow left the failed path after %v", took.Sub(0))
	}
	if used := n.paths(rng); flow() != 0 || !slices.Equal(used, []uint8{0}) {
		t.Errorf("the flow takes path %d, others %v: want the best one that is left", flow(), used)
	}
	if st := n.leaves[0].stats; st.Silent != 1 || st.Moved == 0 {
		t.Errorf("%+v", st)
	}
	n.down[0][1][1] = false
	n.run(n.now + 2*hulaProbe)
	if used := n.paths(rng); !slices.Equal(used, []uint8{1}) {
		t.Errorf("flows take paths %v after the repair", used)
	}
}
