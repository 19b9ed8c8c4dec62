package sim

import (
	"strings"
	"testing"
)

// Leaves that are plain VTEPs carry their traffic by hash beside leaves under any
// scheme: nothing is lost for it, no packet between a plain leaf and another one is
// marked, and with all leaves plain every scheme is ecmp.
func TestPlainLeaves(t *testing.T) {
	all := small()
	all.Topology.Plain = []string{"L0", "L1"}
	ecmp := must(t, small())
	for _, scheme := range []string{"conga", "conweave", "presto"} {
		all.Scheme = scheme
		plain := must(t, all)
		if plain.GoodputBps != ecmp.GoodputBps || plain.FCT[0].MeanS != ecmp.FCT[0].MeanS {
			t.Errorf("%s: with plain leaves only it carries %g, and ecmp %g", scheme, plain.GoodputBps, ecmp.GoodputBps)
		}
	}
	some := lossless(4)
	some.Scheme, some.Drain = "conweave", us(20_000)
	some.Topology.Plain = []string{"L1", "L3"}
	r := must(t, some)
	if r.Unfinished != 0 || r.End != "done" {
		t.Errorf("%d flows did not finish: %s", r.Unfinished, r.End)
	}
	if n := r.ConWeave.Counters["source_requests"]; n == 0 || r.ConWeave.Counters["source_incapable_frames"] == 0 {
		t.Errorf("%d requests between the two leaves that speak ConWeave, %d packets to the others", n, r.ConWeave.Counters["source_incapable_frames"])
	}
	some.Topology.Plain = []string{"L7"}
	if _, err := Run(t.Context(), some); err == nil || !strings.Contains(err.Error(), "L0 to L3") {
		t.Errorf("a leaf that there is not: %v", err)
	}
}
