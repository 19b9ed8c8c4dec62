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
