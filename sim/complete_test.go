package sim

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/internal/units"
	"github.com/loomfabric/loom/internal/yamlfile"
)

// give returns a change that puts YAML into a section.
func give(section, text string) func(*Spec) {
	return func(s *Spec) {
		d := yamlfile.Parse("", "", []byte(section+": "+text))
		if d.Decode(s); len(d.Errs) > 0 {
			panic(d.Errs)
		}
	}
}

// TestCompleteRefuses: everything that makes no sense is refused under the key
// that is to blame, and nothing else is.
func TestCompleteRefuses(t *testing.T) {
	minus, nan := time.Duration(-1), math.NaN()
	wl := func(w vocab.Workload) func(*Spec) { return func(s *Spec) { s.Workloads = []vocab.Workload{w} } }
	rdma := func(f func(*Spec)) func(*Spec) {
		return func(s *Spec) { s.Transport.Type = "rdma"; f(s) }
	}
	mptcp := func(f func(*Spec)) func(*Spec) {
		return func(s *Spec) { s.Transport.Type = "mptcp"; f(s) }
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
		{"table_refresh", func(s *Spec) { s.TableRefresh = time.Nanosecond }},
		{"congestion.profile", give("congestion", "{profile: home}")},
		{"congestion.detector", give("congestion", "{detector: ear}")},
		{"congestion.path_metric", give("congestion", "{path_metric: product}")},
		{"congestion.alpha", give("congestion", "{alpha: 2}")},
		{"congestion.tau", give("congestion", "{tau: -1us}")},
		{"congestion.q", give("congestion", "{q: 4}")},
		{"congestion.none", give("congestion", "{none: 1}")},
		{"topology.kind", func(s *Spec) { s.Topology = Topology{Kind: "torus"} }},
		{"topology.file", func(s *Spec) { s.Topology.File = "f.yaml" }},
		{"topology.file", file(func(s *Spec) { s.Topology.File = "" })},
		{"topology.load", func(s *Spec) { s.Topology.Load = 5 }},
		{"topology.load", file(func(s *Spec) { s.Topology.Load, s.Workloads, s.Duration = 201, nil, 0 })},
		{"topology.load", file(func(s *Spec) { s.Topology.Load = 20 })},
		{"topology.leaves topology.links topology.buffer topology.pfc", file(func(s *Spec) {
			s.Topology.Leaves, s.Topology.Links.Rate, s.Topology.Buffer, s.Topology.PFC = 2, 1, 1, true
		})},
		{"topology.cores topology.k", func(s *Spec) { s.Topology.Cores, s.Topology.K = 1, 4 }},
		{"topology.leaves topology.spines", func(s *Spec) { s.Topology.Kind, s.Topology.K = "fat-tree", 4 }},
		{"topology.hosts.link.rate", func(s *Spec) { s.Topology.Hosts.Link.Rate = 0 }},
		{"topology.links.rate", func(s *Spec) { s.Topology.Links.Rate = 0 }},
		{"topology.links.delay", func(s *Spec) { s.Topology.Links.Delay, s.Topology.Hosts.Link.Delay = minus, 1 }},
		{"topology.hosts.link.delay", func(s *Spec) { s.Topology.Hosts.Link.Delay = minus }},
		{"topology.overhead", func(s *Spec) { n := -1; s.Topology.Overhead = &n }},
		{"topology.links.queue topology.hosts.link.queue", func(s *Spec) { s.Topology.Buffer = 1 << 20 }},
		{"topology.pfc", func(s *Spec) { s.Topology.PFC = true }},
		{"topology.pfc_alpha", func(s *Spec) { s.Topology.PFCAlpha = 0.5 }},
		{"topology.pfc_alpha", func(s *Spec) { *s = *lossless(2); s.Topology.PFCAlpha = -1 }},
		{"topology.pfc_alpha", func(s *Spec) { *s = *lossless(2); s.Topology.PFCAlpha = nan }},
		{"topology.alpha", func(s *Spec) { s.Topology.Alpha = -1 }},
		{"topology.alpha", func(s *Spec) { s.Topology.Alpha = nan }},
		{"topology.links.ecn.kmin topology.hosts.link.ecn.kmin", func(s *Spec) { s.Topology.mark(vocab.ECN{Kmin: 2, Kmax: 1}) }},
		{"topology.links.ecn.pmax topology.hosts.link.ecn.pmax", func(s *Spec) { s.Topology.mark(vocab.ECN{Kmin: 1, Kmax: 2, Pmax: nan}) }},
		{"topology.overrides[0].direction", func(s *Spec) { s.Topology.Overrides = []vocab.Override{{Link: "L0-S0.0", Direction: "left"}} }},
		{"transport.type", func(s *Spec) { s.Transport.Type = "sctp" }},
		{"transport.cc", func(s *Spec) { s.Transport.CongestionControl = "dcqcn" }},
		{"transport.cc", rdma(func(s *Spec) { s.Transport.CongestionControl = "cubic" })},
		{"transport.mtu", func(s *Spec) { s.Transport.MTU = 100 }},
		{"transport.min_rto", func(s *Spec) { s.Transport.MinRTO = minus }},
		{"transport.min_rto", func(s *Spec) { s.Transport.MinRTO = time.Duration(121e9) }},
		{"transport.window", func(s *Spec) { s.Transport.Window = 100 }},
		{"transport.burst", func(s *Spec) { s.Transport.Burst = 2 << 30 }},
		{"transport.recovery transport.payload", func(s *Spec) { s.Transport.Recovery, s.Transport.Payload = "gbn", 1000 }},
		{"transport.recovery", rdma(func(s *Spec) { s.Transport.Recovery = "hope" })},
		{"transport.payload", rdma(func(s *Spec) { s.Transport.Payload = 5000 })},
		{"transport.mtu transport.min_rto transport.window transport.burst", rdma(func(s *Spec) {
			s.Transport.MTU, s.Transport.MinRTO, s.Transport.Window, s.Transport.Burst = 1500, 1, 1, 1
		})},
		{"transport.subflows", func(s *Spec) { s.Transport.Subflows = 8 }},
		{"", mptcp(func(s *Spec) { s.Transport.Subflows, s.Transport.MinRTO = 2, us(1000) })},
		{"transport.subflows", mptcp(func(s *Spec) { s.Transport.Subflows = 65 })},
		{"transport.subflows", mptcp(func(s *Spec) { s.Transport.Subflows = -1 })},
		{"transport.cc", mptcp(func(s *Spec) { s.Transport.CongestionControl = "dctcp" })},
		{"transport.payload", mptcp(func(s *Spec) { s.Transport.Payload = 1000 })},
		{"conweave.reply conweave.inactive", give("conweave", "{reply: -1us, inactive: -1us}")},
		{"conweave.inactive conweave.queues", give("conweave", "{inactive: 1s, queues: -1}")},
		{"conweave.path-busy", give("conweave", "{path-busy: 1us}")},
		{"workloads", func(s *Spec) { s.Workloads = nil }},
		{"workloads[0].type", wl(vocab.Workload{Type: "tcp"})},
		{"workloads[0].sizes workloads[0].load", wl(vocab.Workload{})},
		{"workloads[0].sizes", wl(vocab.Workload{Sizes: "huge", Load: 1})},
		{"workloads[0].load", wl(vocab.Workload{Sizes: "web-search", Load: -5})},
		{"workloads[0].load", wl(vocab.Workload{Sizes: "web-search", Load: nan})},
		{"workloads[0].scale", wl(vocab.Workload{Sizes: "web-search", Load: 1, Scale: math.Inf(1)})},
		{"workloads[0].of", wl(vocab.Workload{Sizes: "web-search", Load: 1, Of: "spines"})},
		{"workloads[0].pairs", wl(vocab.Workload{Sizes: "web-search", Load: 1, Pairs: "some"})},
		{"workloads[0].connections", wl(vocab.Workload{Sizes: "web-search", Load: 1, Connections: -1})},
		{"workloads[0].pool", wl(vocab.Workload{Sizes: "web-search", Load: 1, Connections: 1, Pool: true})},
		{"workloads[0].pool", rdma(wl(vocab.Workload{Sizes: "web-search", Load: 1, Pool: true}))},
		{"workloads[0].start", wl(vocab.Workload{Type: vocab.Bulk, Start: minus})},
		{"workloads[0].start", wl(vocab.Workload{Type: vocab.Bulk, Start: us(2000)})},
		{"workloads[0].duration", wl(vocab.Workload{Type: vocab.Bulk, Duration: minus})},
		{"workloads[0].flows", wl(vocab.Workload{Type: vocab.Bulk, Flows: -1})},
		{"workloads[0].load workloads[0].fan_in", wl(vocab.Workload{Type: vocab.Bulk, Sizes: "web-search", Load: 5, FanIn: 1})},
		{"workloads[0].bytes", wl(vocab.Workload{Type: vocab.Bulk, Sizes: "web-search", Bytes: 5})},
		{"workloads[0].sizes", wl(vocab.Workload{Type: vocab.Random})},
		{"workloads[0].sizes", wl(vocab.Workload{Type: vocab.Stride, Stride: 1, Sizes: "web-serch"})},
		{"workloads[0].fan_in workloads[0].bytes", wl(vocab.Workload{Type: vocab.Incast})},
		{"workloads[0].pairs", wl(vocab.Workload{Type: vocab.Incast, FanIn: 1, Bytes: 1, Pairs: "none"})},
		{"workloads[0].interval workloads[0].repeat", wl(vocab.Workload{Type: vocab.Incast, FanIn: 1, Bytes: 1, Interval: minus, Repeat: -1})},
		{"workloads[0].stride", wl(vocab.Workload{Type: vocab.Stride})},
		{"workloads[0].to", wl(vocab.Workload{Type: vocab.Stride, Stride: 1, From: []string{"h0"}, To: []string{"L1"}})},
		{"workloads[0].from", wl(vocab.Workload{Type: vocab.Permutation, From: []string{"h0"}})},
		{"workloads[0].to workloads[0].bytes", wl(vocab.Workload{Type: vocab.AllToAll, To: []string{"h0"}})},
		{"workloads[0].bytes", wl(vocab.Workload{Type: vocab.UDP, Rate: 1e9, Bytes: 100})},
		{"workloads[0].rate", wl(vocab.Workload{Type: vocab.UDP})},
		{"workloads[0].size", wl(vocab.Workload{Type: vocab.UDP, Rate: 1e9, Size: 65508})},
		{"workloads[0].rate workloads[0].size", wl(vocab.Workload{Type: vocab.Bulk, Rate: 1, Size: 1})},
		{"workloads[0].file", wl(vocab.Workload{Type: vocab.Trace})},
		{"workloads[0].file", wl(vocab.Workload{Type: vocab.Bulk, File: "x.csv"})},
		{"workloads[1].stride workloads[2].file", func(s *Spec) {
			s.Workloads = []vocab.Workload{{Type: vocab.Bulk}, {Type: vocab.Stride}, {Type: vocab.Trace}}
		}},
		{"faults[0]", func(s *Spec) { s.Faults = []vocab.Fault{{Fail: "a", Restore: "b"}} }},
		{"faults[1]", func(s *Spec) { s.Faults = []vocab.Fault{{Fail: "a"}, {At: 5}} }},
		{"faults[0].at", func(s *Spec) { s.Faults = []vocab.Fault{{At: minus, Fail: "a"}} }},
		{"duration", func(s *Spec) { s.Duration = 0 }},
		{"duration", file(func(s *Spec) { s.Duration = 0 })},
		{"duration", func(s *Spec) { s.Duration = minus }},
		{"drain warmup", func(s *Spec) { s.Warmup, s.Drain = minus, minus }},
		{"measure.large", func(s *Spec) { s.Measure.Small, s.Measure.Large = 10, 10 }},
		{"measure.buckets", func(s *Spec) { s.Measure.Buckets = []units.Size{2, 1} }},
		{"measure.imbalance measure.reorder measure.tables", func(s *Spec) { s.Measure.Imbalance, s.Measure.Reorder, s.Measure.Tables = minus, minus, minus }},
	} {
		s := small()
		if c.spoil(s); s.Transport.Type == "rdma" {
			s.Topology.queue(0)
			s.Topology.Buffer, s.Topology.PFC = 1<<20, true
		}
		var got []string
		for _, p := range s.clone().Complete("") {
			got = append(got, p.Path)
			if p.Problem == "" || p.Fix == "" || p.Line == 0 && !strings.Contains(p.Error(), p.Path) {
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
	s.Workloads = append(s.Workloads, vocab.Workload{Type: vocab.Bulk}, vocab.Workload{Type: vocab.UDP, Rate: 1e6}, vocab.Workload{Type: vocab.Stride, Stride: 1},
		vocab.Workload{Type: vocab.Incast, FanIn: 1, Bytes: 1}, vocab.Workload{Type: vocab.Permutation}, vocab.Workload{Type: vocab.AllToAll, Bytes: 1},
		vocab.Workload{Sizes: "../x.csv", Load: 1}, vocab.Workload{Type: vocab.Trace, File: "/abs/t.csv"})
	s.Topology.Overrides = []vocab.Override{{Link: "L0-S0.0"}}
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
	case s.Scheme != "ecmp" || s.Seed != 1 || s.Drain != 5*s.Duration || s.Congestion.Profile != balance.Datacenter:
		t.Errorf("%+v", s)
	case *s.Topology.Overhead != 50 || s.Topology.Links.Parallel != 1 || s.Topology.Links.Delay != us(1) || s.Topology.Hosts.Link.Delay != us(1):
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
	packed := bad + ".gz" // says so, and is not
	if err := os.Rename(trace(t, short, "5,0,1,10"), packed); err != nil {
		t.Fatal(err)
	}
	cdf := filepath.Join(t.TempDir(), "x.csv")
	if err := os.WriteFile(cdf, []byte("no numbers\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		want  string
		spoil func(s *Spec)
	}{
		{"L9-S0.0", func(s *Spec) { s.Topology.Overrides = []vocab.Override{{Link: "L9-S0.0"}} }},
		{"L9-S0.0", func(s *Spec) { s.Faults = []vocab.Fault{{Fail: "L9-S0.0"}} }},
		{"no path", func(s *Spec) { s.Faults = []vocab.Fault{{Fail: "L0-S0.0"}, {Fail: "L0-S1.0"}} }},
		{"no hosts", func(s *Spec) { s.Topology.Hosts.PerLeaf = 0 }},
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
		{"line 3: ", func(s *Spec) { s.Workloads = []vocab.Workload{{Type: vocab.Trace, File: bad}} }},
		{"line 2: host 99 is unknown", func(s *Spec) { s.Workloads = []vocab.Workload{{Type: vocab.Trace, File: unknown}} }},
		{"gone.csv", func(s *Spec) { s.Workloads = []vocab.Workload{{Type: vocab.Trace, File: "gone.csv"}} }},
		{"gzip", func(s *Spec) { s.Workloads = []vocab.Workload{{Type: vocab.Trace, File: packed}} }},
		{"one client", func(s *Spec) { s.Workloads = []vocab.Workload{{Type: vocab.Incast, FanIn: 2, Bytes: 100}} }},
		{"fan_in: 9", func(s *Spec) {
			s.Workloads = []vocab.Workload{{Type: vocab.Incast, From: []string{"h0"}, FanIn: 9, Bytes: 100}}
		}},
		{"stride of 32", func(s *Spec) { s.Workloads = []vocab.Workload{{Type: vocab.Stride, Stride: 32}} }},
		{"reply 8µs is above inactive 1ns", give("conweave", "{inactive: 1ns}")},
		{"scheme conweave: no table can stand for it", func(s *Spec) { s.Scheme, s.TableRefresh = "conweave", time.Millisecond }},
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
		rate, host units.Rate
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
		s.Topology.Links.Rate, s.Topology.Hosts.Link.Rate, s.Workloads[0].Load, s.Workloads[0].Of = c.rate, c.host, c.load, c.of
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
	has := func(section string, types map[string][]string, known []string) {
		for key := range types {
			if !slices.Contains(known, key) {
				t.Errorf("%s has no key %q", section, key)
			}
		}
	}
	has("topology", topologyKeys, keys(Topology{}))
	has("transport", transportKeys, keys(Transport{}))
}
