package sim

import (
	"context"
	"testing"
	"time"

	"github.com/loomfabric/loom/fabric"
)

// small is a fabric of 2 leaves and 2 spines with 8 hosts on each leaf.
func small() *Spec {
	return &Spec{
		Topology: Topology{
			Leaves: 2, Spines: 2, HostsPerLeaf: 8, HostRate: 10e9, Rate: 40e9, PortBuffer: 1 << 20,
		},
		Workloads: []Workload{{Sizes: "web-search", Load: 50, Scale: 0.1}},
		Duration:  fabric.Duration(5 * time.Millisecond),
	}
}

func TestRunTCP(t *testing.T) {
	r, err := Run(context.Background(), small())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", r)
}

func TestRunRDMA(t *testing.T) {
	for _, scheme := range []string{"ecmp", "letflow", "conga", "drill", "conweave", "conweave-conga"} {
		s := small()
		s.Scheme = scheme
		s.Topology.HostRate, s.Topology.Rate = 100e9, 100e9
		s.Topology.Leaves, s.Topology.Spines = 4, 4
		s.Topology.PortBuffer, s.Topology.Buffer, s.Topology.PFC = 0, 9<<20, true
		s.Topology.ECN = &fabric.ECN{Kmin: 100e3, Kmax: 400e3, Pmax: 0.2}
		s.Transport.Type = "rdma"
		s.Workloads = []Workload{{Sizes: "alistorage", Load: 80}}
		s.Measure.Imbalance = fabric.Duration(100 * time.Microsecond)
		s.Measure.Reorder = fabric.Duration(10 * time.Microsecond)
		r, err := Run(context.Background(), s)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s %s flows %d slow mean %.2f p99 %.2f imb %.2f drops %v pfc %v hops/s %.3g", scheme, r.End, r.Flows, r.FCT[0].SlowdownMean, r.FCT[0].SlowdownP99, r.Imbalance[0].Mean, r.Drops, r.PFC, r.Machine.HopsPerS)
		t.Logf("%v", r.Transport)
		if r.ConWeave != nil {
			t.Logf("%v", r.ConWeave.Counters)
		}
	}
}
