package sim

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/loomfabric/loom/fabric"
)

// TestCompleteRefuses: everything that makes no sense is refused under the key
// that is to blame, and nothing else is.
func TestCompleteRefuses(t *testing.T) {
	minus, nan := fabric.Duration(-1), math.NaN()
	wl := func(w Workload) func(*Spec) { return func(s *Spec) { s.Workloads = []Workload{w} } }
	rdma := func(f func(*Spec)) func(*Spec) {
		return func(s *Spec) { s.Transport.Type = "rdma"; f(s) }
	}
	file := func(f func(*Spec)) func(*Spec) {
		return func(s *Spec) { s.Topology = Topology{Kind: "file", File: "f.yaml"}; f(s) }
	}
	for _, c := range []struct {
		paths string // all that are refused, in order
		spoil func(s *Spec)
	}{
		{"", func(*Spec) {}},
		{"", file(func(s *Spec) { s.Workloads, s.Duration = nil, 0 })},
		{"", rdma(func(*Spec) {})},
		{"scheme", func(s *Spec) { s.Scheme = "magic" }},
		{"congestion.profile", func(s *Spec) { s.Congestion.Profile = "home" }},
		{"congestion.detector", func(s *Spec) { s.Congestion.Detector = "ear" }},
		{"congestion.path_metric", func(s *Spec) { s.Congestion.PathMetric = "product" }},
		{"congestion", func(s *Spec) { s.Congestion.Alpha = 2 }},
		{"congestion", func(s *Spec) { s.Congestion.Tau = minus }},
		{"congestion.q", func(s *Spec) { s.Congestion.Q = 4 }},
		{"topology.kind", func(s *Spec) { s.Topology = Topology{Kind: "torus"} }},
		{"topology.file", func(s *Spec) { s.Topology.File = "f.yaml" }},
		{"topology.file", file(func(s *Spec) { s.Topology.File = "" })},
		{"topology.load", func(s *Spec) { s.Topology.Load = 5 }},
		{"topology.load", file(func(s *Spec) { s.Topology.Load, s.Workloads, s.Duration = 201, nil, 0 })},
		{"topology.load", file(func(s *Spec) { s.Topology.Load = 20 })},
		{"topology.leaves topology.rate topology.buffer topology.ecn topology.pfc", file(func(s *Spec) {
			s.Topology.Leaves, s.Topology.Rate, s.Topology.Buffer, s.Topology.ECN, s.Topology.PFC = 2, 1, 1, &fabric.ECN{}, true
		})},
		{"topology.cores topology.k", func(s *Spec) { s.Topology.Cores, s.Topology.K = 1, 4 }},
		{"topology.leaves topology.spines", func(s *Spec) { s.Topology.Kind, s.Topology.K = "fat-tree", 4 }},
		{"topology.host-rate", func(s *Spec) { s.Topology.HostRate = 0 }},
		{"topology.rate", func(s *Spec) { s.Topology.Rate = 0 }},
		{"topology.delay", func(s *Spec) { s.Topology.Delay, s.Topology.HostDelay = minus, 1 }},
		{"topology.host-delay", func(s *Spec) { s.Topology.HostDelay = minus }},
		{"topology.overhead", func(s *Spec) { n := -1; s.Topology.Overhead = &n }},
		{"topology.port-buffer", func(s *Spec) { s.Topology.Buffer = 1 << 20 }},
		{"topology.pfc", func(s *Spec) { s.Topology.PFC = true }},
		{"topology.alpha", func(s *Spec) { s.Topology.Alpha = -1 }},
		{"topology.alpha", func(s *Spec) { s.Topology.Alpha = nan }},
		{"topology.ecn", func(s *Spec) { s.Topology.ECN = &fabric.ECN{Kmin: 2, Kmax: 1} }},
		{"topology.ecn", func(s *Spec) { s.Topology.ECN = &fabric.ECN{Kmin: 1, Kmax: 2, Pmax: nan} }},
		{"topology.overrides[0].direction", func(s *Spec) { s.Topology.Overrides = []fabric.Override{{Link: "L0-S0.0", Direction: "left"}} }},
		{"transport.type", func(s *Spec) { s.Transport.Type = "sctp" }},
		{"transport.cc", func(s *Spec) { s.Transport.CongestionControl = "dcqcn" }},
		{"transport.cc", rdma(func(s *Spec) { s.Transport.CongestionControl = "cubic" })},
		{"transport.mtu", func(s *Spec) { s.Transport.MTU = 100 }},
		{"transport.min-rto", func(s *Spec) { s.Transport.MinRTO = minus }},
		{"transport.min-rto", func(s *Spec) { s.Transport.MinRTO = fabric.Duration(121e9) }},
		{"transport.window", func(s *Spec) { s.Transport.Window = 100 }},
		{"transport.burst", func(s *Spec) { s.Transport.Burst = 2 << 30 }},
		{"transport.recovery transport.payload", func(s *Spec) { s.Transport.Recovery, s.Transport.Payload = "gbn", 1000 }},
		{"transport.recovery", rdma(func(s *Spec) { s.Transport.Recovery = "hope" })},
		{"transport.payload", rdma(func(s *Spec) { s.Transport.Payload = 5000 })},
		{"transport.mtu transport.min-rto transport.window transport.burst", rdma(func(s *Spec) {
			s.Transport.MTU, s.Transport.MinRTO, s.Transport.Window, s.Transport.Burst = 1500, 1, 1, 1
		})},
		{"conweave.inactive conweave.reply conweave.queues", func(s *Spec) {
			s.ConWeave.Reply, s.ConWeave.Inactive, s.ConWeave.Queues = minus, minus, -1
		}},
		{"workloads", func(s *Spec) { s.Workloads = nil }},
		{"workloads[0].type", wl(Workload{Type: "tcp"})},
		{"workloads[0].sizes workloads[0].load", wl(Workload{})},
		{"workloads[0].sizes", wl(Workload{Sizes: "huge", Load: 1})},
		{"workloads[0].load", wl(Workload{Sizes: "web-search", Load: -5})},
		{"workloads[0].load", wl(Workload{Sizes: "web-search", Load: nan})},
		{"workloads[0].scale", wl(Workload{Sizes: "web-search", Load: 1, Scale: math.Inf(1)})},
		{"workloads[0].of", wl(Workload{Sizes: "web-search", Load: 1, Of: "spines"})},
		{"workloads[0].pairs", wl(Workload{Sizes: "web-search", Load: 1, Pairs: "some"})},
		{"workloads[0].connections", wl(Workload{Sizes: "web-search", Load: 1, Connections: -1})},
		{"workloads[0].pool", wl(Workload{Sizes: "web-search", Load: 1, Connections: 1, Pool: true})},
		{"workloads[0].pool", rdma(wl(Workload{Sizes: "web-search", Load: 1, Pool: true}))},
		{"workloads[0].start", wl(Workload{Type: Bulk, Start: minus})},
		{"workloads[0].start", wl(Workload{Type: Bulk, Start: us(2000)})},
		{"workloads[0].duration", wl(Workload{Type: Bulk, Duration: minus})},
		{"workloads[0].flows", wl(Workload{Type: Bulk, Flows: -1})},
		{"workloads[0].sizes workloads[0].load workloads[0].fan-in", wl(Workload{Type: Bulk, Sizes: "web-search", Load: 5, FanIn: 1})},
		{"workloads[0].fan-in workloads[0].bytes", wl(Workload{Type: Incast})},
		{"workloads[0].pairs", wl(Workload{Type: Incast, FanIn: 1, Bytes: 1, Pairs: "none"})},
		{"workloads[0].gap workloads[0].repeat", wl(Workload{Type: Incast, FanIn: 1, Bytes: 1, Gap: minus, Repeat: -1})},
		{"workloads[0].stride", wl(Workload{Type: Stride})},
		{"workloads[0].from workloads[0].to", wl(Workload{Type: Stride, Stride: 1, From: []string{"h0"}, To: []string{"L1"}})},
		{"workloads[0].from", wl(Workload{Type: Permutation, From: []string{"h0"}})},
		{"workloads[0].to workloads[0].bytes", wl(Workload{Type: AllToAll, To: []string{"h0"}})},
		{"workloads[0].bytes", wl(Workload{Type: UDP, Rate: 1e9, Bytes: 100})},
		{"workloads[0].rate", wl(Workload{Type: UDP})},
		{"workloads[0].size", wl(Workload{Type: UDP, Rate: 1e9, Size: 65508})},
		{"workloads[0].rate workloads[0].size", wl(Workload{Type: Bulk, Rate: 1, Size: 1})},
		{"workloads[0].file", wl(Workload{Type: Trace})},
		{"workloads[0].file", wl(Workload{Type: Bulk, File: "x.csv"})},
		{"workloads[1].stride workloads[2].file", func(s *Spec) { s.Workloads = []Workload{{Type: Bulk}, {Type: Stride}, {Type: Trace}} }},
		{"faults[0]", func(s *Spec) { s.Faults = []fabric.Fault{{Fail: "a", Restore: "b"}} }},
		{"faults[1]", func(s *Spec) { s.Faults = []fabric.Fault{{Fail: "a"}, {At: 5}} }},
		{"faults[0].at", func(s *Spec) { s.Faults = []fabric.Fault{{At: minus, Fail: "a"}} }},
		{"duration", func(s *Spec) { s.Duration = 0 }},
		{"duration", file(func(s *Spec) { s.Duration = 0 })},
		{"duration", func(s *Spec) { s.Duration = minus }},
		{"drain warmup", func(s *Spec) { s.Warmup, s.Drain = minus, minus }},
		{"measure.large", func(s *Spec) { s.Measure.Small, s.Measure.Large = 10, 10 }},
		{"measure.buckets", func(s *Spec) { s.Measure.Buckets = []fabric.Bytes{2, 1} }},
		{"measure.imbalance measure.reorder", func(s *Spec) { s.Measure.Imbalance, s.Measure.Reorder = minus, minus }},
	} {
		s := small()
		if c.spoil(s); s.Transport.Type == "rdma" {
			s.Topology.Buffer, s.Topology.PortBuffer, s.Topology.PFC = 1<<20, 0, true
		}
		var got []string
		for _, p := range s.clone().Complete("") {
			got = append(got, p.Path)
			if p.Msg == "" || !strings.HasPrefix(p.Error(), p.Path+": ") {
				t.Errorf("%s: error %q", p.Path, p)
			}
		}
		if strings.Join(got, " ") != c.paths {
			t.Errorf("refused %q, want %q", strings.Join(got, " "), c.paths)
		}
		if _, err := Run(t.Context(), s); c.paths != "" && err == nil {
			t.Errorf("%s: it runs", c.paths)
		}
	}
}

// TestCompleteAgain: completing twice is completing once, and defaults are those
// that are documented.
func TestCompleteAgain(t *testing.T) {
	s := small()
	s.Workloads = append(s.Workloads, Workload{Type: Bulk}, Workload{Type: UDP, Rate: 1e6}, Workload{Type: Stride, Stride: 1},
		Workload{Type: Incast, FanIn: 1, Bytes: 1}, Workload{Type: Permutation}, Workload{Type: AllToAll, Bytes: 1},
		Workload{Sizes: "../x.csv", Load: 1}, Workload{Type: Trace, File: "/abs/t.csv"})
	s.Topology.Overrides = []fabric.Override{{Link: "L0-S0.0"}}
	states := make([]string, 2)
	for i, dir := range []string{"some/where", ""} {
		if p := s.Complete(dir); len(p) > 0 {
			t.Fatal(p)
		}
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		states[i] = string(b)
	}
	if states[0] != states[1] {
		t.Errorf("completing again made of\n%s\n%s", states[0], states[1])
	}
	n := len(s.Workloads)
	switch {
	case s.Scheme != "ecmp" || s.Seed != 1 || s.Drain != 5*s.Duration || s.Congestion.Profile != "datacenter":
		t.Errorf("%+v", s)
	case *s.Topology.Overhead != 50 || s.Topology.Parallel != 1 || s.Topology.Delay != us(1) || s.Topology.HostDelay != us(1):
		t.Errorf("%+v", s.Topology)
	case s.Transport != Transport{Type: "tcp", CongestionControl: "cubic", MTU: 1500, MinRTO: us(200_000), Window: 2 << 20, Burst: 64 << 10}:
		t.Errorf("%+v", s.Transport)
	case s.Workloads[n-2].Sizes != "some/x.csv" || s.Workloads[n-1].File != "/abs/t.csv":
		t.Errorf("files %q, %q", s.Workloads[n-2].Sizes, s.Workloads[n-1].File)
	}
}

// TestRunRefuses: what only building shows is refused before anything runs, with
// what is to blame.
func TestRunRefuses(t *testing.T) {
	bad := trace(t, short, "5,0,1,10", "4,0,1,10")
	unknown := trace(t, short, "5,0,99,10")
	cdf := filepath.Join(t.TempDir(), "x.csv")
	if err := os.WriteFile(cdf, []byte("no numbers\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		want  string
		spoil func(s *Spec)
	}{
		{"L9-S0.0", func(s *Spec) { s.Topology.Overrides = []fabric.Override{{Link: "L9-S0.0"}} }},
		{"L9-S0.0", func(s *Spec) { s.Faults = []fabric.Fault{{Fail: "L9-S0.0"}} }},
		{"no path", func(s *Spec) { s.Faults = []fabric.Fault{{Fail: "L0-S0.0"}, {Fail: "L0-S1.0"}} }},
		{"no hosts", func(s *Spec) { s.Topology.HostsPerLeaf = 0 }},
		{"L0 has 17 uplinks", func(s *Spec) { s.Topology.Spines = 17 }},
		{`measure.queues: port "x->y"`, func(s *Spec) { s.Measure.Queues = []string{"x->y"} }},
		{`workloads[0] (poisson0): from: "h16"`, func(s *Spec) { s.Workloads[0].From = []string{"h16"} }},
		{`workloads[0] (poisson0): to: "L2"`, func(s *Spec) { s.Workloads[0].To = []string{"L2"} }},
		{"nobody to send to behind another leaf", func(s *Spec) { s.Workloads[0].From, s.Workloads[0].To = []string{"L0"}, []string{"L0"} }},
		{"h3 has nobody", func(s *Spec) {
			s.Workloads[0].From, s.Workloads[0].To, s.Workloads[0].Pairs = []string{"h3"}, []string{"h3"}, "any"
		}},
		{"x.csv", func(s *Spec) { s.Workloads[0].Sizes = cdf }},
		{"gone.csv", func(s *Spec) { s.Workloads[0].Sizes = "gone.csv" }},
		{"line 3: ", func(s *Spec) { s.Workloads = []Workload{{Type: Trace, File: bad}} }},
		{"line 2: host 99 is unknown", func(s *Spec) { s.Workloads = []Workload{{Type: Trace, File: unknown}} }},
		{"gone.csv", func(s *Spec) { s.Workloads = []Workload{{Type: Trace, File: "gone.csv"}} }},
		{"one client", func(s *Spec) { s.Workloads = []Workload{{Type: Incast, FanIn: 2, Bytes: 100}} }},
		{"fan-in: 9", func(s *Spec) { s.Workloads = []Workload{{Type: Incast, From: []string{"h0"}, FanIn: 9, Bytes: 100}} }},
		{"stride of 32", func(s *Spec) { s.Workloads = []Workload{{Type: Stride, Stride: 32}} }},
		{"conweave: ", func(s *Spec) { s.Scheme, s.ConWeave.Inactive = "conweave", 1 }},
		{"gone.yaml", func(s *Spec) { s.Topology = Topology{Kind: "file", File: "gone.yaml"} }},
	} {
		s := small()
		c.spoil(s)
		if _, err := Run(t.Context(), s); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want an error with %q", err, c.want)
		}
	}
}

// TestOverload: a load that links do not carry is refused with numbers, and just
// what they carry is not.
func TestOverload(t *testing.T) {
	for _, c := range []struct {
		rate, host fabric.Rate
		load       float64
		of         string
		words      []string // nil: fine
	}{
		{20e9, 10e9, 100, "fabric", nil},
		{20e9, 10e9, 50, "hosts", nil},
		{20e9, 10e9, 100.1, "fabric", []string{"100.1 %", "carries 40 Gbit/s", "40.04 Gbit/s", "at most 100 %"}},
		{20e9, 10e9, 51, "hosts", []string{"carries 40 Gbit/s", "40.8 Gbit/s", "at most 50 %"}},
		{80e9, 10e9, 51, "fabric", []string{"host", "carries 10 Gbit/s", "10.2 Gbit/s", "at most 50 %"}},
	} {
		s := small()
		s.Topology.Rate, s.Topology.HostRate, s.Workloads[0].Load, s.Workloads[0].Of = c.rate, c.host, c.load, c.of
		_, err := Flows(s)
		if (err == nil) != (c.words == nil) || err != nil && !strings.Contains(err.Error(), "more than the fabric carries") {
			t.Errorf("%g %% of %s: %v", c.load, c.of, err)
			continue
		}
		for _, w := range c.words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%g %% of %s: %v: want %q in it", c.load, c.of, err, w)
			}
		}
	}
}

// TestKeysAreTheSpecs: every key of a section that says to which types it belongs
// is one that the section has.
func TestKeysAreTheSpecs(t *testing.T) {
	has := func(section string, fields []field, known []string) {
		for _, f := range fields {
			if !slices.Contains(known, f.key) {
				t.Errorf("%s has no key %q", section, f.key)
			}
		}
	}
	has("topology", (&Topology{}).fields(), keys(Topology{}))
	has("transport", (&Transport{}).fields(), keys(Transport{}))
	has("workload", (&Workload{}).fields(), keys(Workload{}))
}
