package sim

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/internal/measure"
	"github.com/loomfabric/loom/internal/units"
)

// threadKinds are small runs of all kinds, by their names.
func threadKinds() map[string]*Spec {
	kinds := map[string]*Spec{}
	for _, s := range balance.Schemes() {
		spec := lossless(4)
		spec.Scheme, spec.Duration = s.Name, us(40)
		kinds["scheme "+s.Name] = spec
	}
	for _, cc := range []string{"newreno", "cubic", "dctcp"} {
		spec := small()
		spec.Transport.CongestionControl, spec.Duration = cc, us(500)
		spec.Scheme = "conga"
		spec.Workloads[0].Connections = 2
		kinds["tcp "+cc] = spec
	}
	multi := small()
	multi.Transport.Type, multi.Duration = "mptcp", us(300)
	kinds["mptcp"] = multi
	lossy := lossless(4)
	lossy.Topology.PFC, lossy.Topology.Buffer, lossy.Transport.Recovery, lossy.Duration = false, 300e3, "irn", us(60)
	lossy.Workloads[0].Load = 80
	kinds["irn that loses"] = lossy
	gbn := lossless(2)
	gbn.Topology.PFC, gbn.Topology.Buffer, gbn.Duration = false, 100e3, us(60)
	kinds["go-back-n that loses"] = gbn
	for kind, t := range map[string]Topology{
		"fat-tree":    {Kind: "fat-tree", K: 4},
		"three-layer": {Kind: "three-layer", Leaves: 4, Spines: 4, Cores: 2},
		"vl2":         {Kind: "vl2", Leaves: 4, Spines: 4, Cores: 2},
	} {
		spec := lossless(2)
		hosts := spec.Topology.Hosts
		hosts.PerLeaf = 2
		t.Links, t.Hosts, t.Buffer, t.PFC = spec.Topology.Links, hosts, spec.Topology.Buffer, true
		spec.Topology, spec.Scheme, spec.Duration = t, "conweave", us(60)
		kinds[kind] = spec
	}
	mixed := small()
	mixed.Duration, mixed.Warmup, mixed.Scheme = us(600), us(100), "letflow"
	mixed.Workloads = []vocab.Workload{
		{Name: "web", Sizes: "web-search", Load: 30, Scale: 0.1},
		{Name: "bulk", Type: vocab.Bulk, From: []string{"h0", "h1"}, To: []string{"h8"}, Duration: us(300)},
		{Name: "udp", Type: vocab.UDP, From: []string{"h2"}, To: []string{"h9"}, Rate: 5e9, Size: 1000, Start: us(100)},
		{Name: "stride", Type: vocab.Stride, Stride: 8, Bytes: 100e3, Start: us(200)},
	}
	mixed.Faults = []vocab.Fault{{At: us(250), Fail: "L0-S1.0"}, {At: us(400), Restore: "L0-S1.0"}}
	mixed.Measure.Imbalance, mixed.Measure.Queues = us(50), []string{"spines", "L0->h3"}
	kinds["mixed, with faults"] = mixed
	for kind, w := range map[string]vocab.Workload{
		"random loop": {Type: vocab.Random, From: []string{"all"}, To: []string{"all"}, Sizes: "web-search", Scale: 0.01, Flows: 2},
		"stride loop": {Type: vocab.Stride, Stride: 8, Sizes: "web-search", Scale: 0.01},
	} {
		loop := small()
		loop.Workloads, loop.Duration = []vocab.Workload{w}, us(300)
		kinds[kind] = loop
	}
	classes := small()
	classes.Duration, classes.Scheme = us(300), "reed"
	classes.Workloads = []vocab.Workload{{Name: "web", Sizes: "web-search", Load: 30, Scale: 0.1}, {Name: "rest", Sizes: "web-search", Load: 30, Scale: 0.1}}
	classes.Classes = []Class{{Workload: "rest", Scheme: "ecmp"}}
	kinds["classes"] = classes
	incast := small()
	incast.Workloads = []vocab.Workload{{Type: vocab.Incast, From: []string{"h0"}, To: []string{"all"}, Pairs: "any", FanIn: 8, Bytes: units.Size(1e6), Repeat: 3}}
	kinds["incast"] = incast
	return kinds
}

// outcome is what a run found, as it is stored, without what the machine adds.
func outcome(t *testing.T, s *Spec, threads int) string {
	t.Helper()
	r, err := RunThreads(context.Background(), s, threads)
	if err != nil {
		t.Fatal(err)
	}
	r.Machine = measure.Machine{}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestThreadsChangeNothing makes runs of all kinds with several numbers of threads: every
// number that is stored is the same.
func TestThreadsChangeNothing(t *testing.T) {
	for name, s := range threadKinds() {
		t.Run(name, func(t *testing.T) {
			want := outcome(t, s, 1)
			for _, threads := range []int{2, 3, 7} {
				if got := outcome(t, s, threads); got != want {
					t.Errorf("%d threads find\n%s\nand one finds\n%s", threads, got, want)
				}
			}
		})
	}
}
