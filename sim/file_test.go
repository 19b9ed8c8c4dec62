package sim

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/config/fabric"
	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/internal/workload"
	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
	"github.com/loomfabric/loom/sim/topo"
	"github.com/loomfabric/loom/sim/traffic"
)

const labs = "../test/netns/conga/"

// TestFile: CONGA's Figure 2, from the lab's file: its links, its workload and
// its parameters, unless the experiment has others.
func TestFile(t *testing.T) {
	s := &Spec{Topology: Topology{Kind: "file", File: labs + "fig2.yaml"}, Scheme: "conga"}
	r, res := parts(t, s)
	if res.End != endDone || res.LengthS != 8 || len(res.Workloads) != 1 || res.Workloads[0].Name != "bulk" || res.Workloads[0].Flows != 10 {
		t.Fatalf("ended %q after %g s, workloads %+v", res.End, res.LengthS, res.Workloads)
	}
	p := r.spec.Congestion.CONGA()
	if p.Tau.Milliseconds() != 10 || p.FlowletGap.Milliseconds() != 15 || r.spec.Congestion.Profile != balance.Lab {
		t.Errorf("congestion parameters %+v", r.spec.Congestion)
	}
	if tr := r.spec.Transport; tr.CongestionControl != "cubic" || tr.Burst != 1500 {
		t.Errorf("transport %+v", tr)
	}
	// Of 50 Mbit/s that access links carry, 1448 of 1514 bytes are payload; S1
	// passes on at most 20.
	if g := res.GoodputBps / 50e6; g > 1448./1514 || g < 0.9 {
		t.Errorf("goodput %g Mbit/s", res.GoodputBps/1e6)
	}
	if s1 := res.Uplinks[1]; s1.Link != "L0->S1.0" || s1.Percent > 40 || s1.Percent < 25 {
		t.Errorf("S1 has %+v", s1)
	}
	ecmp := must(t, &Spec{Topology: s.Topology, Duration: us(2e6)})
	if ecmp.Scheme != "ecmp" || ecmp.LengthS != 2 {
		t.Errorf("without a scheme, and for 2 s, it ran %s for %g s", ecmp.Scheme, ecmp.LengthS)
	}
}

// TestFilesOfTheLab: every file of CONGA's experiments can be simulated, and the
// load of requests is the lab's.
func TestFilesOfTheLab(t *testing.T) {
	names, err := filepath.Glob(labs + "*.yaml")
	if err != nil || len(names) < 5 {
		t.Fatal(names, err)
	}
	names = append(names, labs+"../tcp-path/fig13.yaml") // in which senders push
	for _, name := range names {
		f, err := fabric.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		r, err := assemble(&Spec{Topology: Topology{Kind: "file", File: name}})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for i := range f.Workloads {
			if f.Workloads[i].Type == vocab.Poisson {
				offered(t, f, r, i)
			}
		}
	}
}

// offered compares what a request workload's flows add up to with what the lab's
// clients ask for.
func offered(t *testing.T, f *fabric.File, r *run, i int) {
	t.Helper()
	w := &f.Workloads[i]
	from, _ := f.Select(w.From)
	to, _ := f.Select(w.To)
	from, to = w.Askers(from, to)
	if w.Push {
		from, to = to, from
	}
	want := w.Load / 100 * float64(f.Expand().Capacity(to, w.Of)) // bit/s
	r.file.Workloads[i].Duration = us(3600e6)
	source, err := r.source(i, r.capacities())
	if err != nil {
		t.Fatal(err)
	}
	sum, last := 0., engine.Time(0)
	for _, fl := range record(source, 1<<30) {
		sum += float64(fl.Bytes) * 8
		if fl.Start < last || fl.Start < engine.Of(w.Start) {
			t.Fatalf("%s: a flow at %v after one at %v", w.Name, fl.Start, last)
		}
		last = fl.Start
		if !slices.Contains(to, int(fl.Src)) || !slices.Contains(from, int(fl.Dst)) || r.vni[fl.Src] != r.vni[fl.Dst] {
			t.Fatalf("%s: h%d answers h%d", w.Name, fl.Src, fl.Dst)
		}
	}
	near(t, w.Name+": answers in an hour", sum/3600, want, 0.1)
}

// TestAsks: requests are those that the lab's agents draw: each client for
// itself gaps, servers and sizes in turn.
func TestAsks(t *testing.T) {
	f, err := fabric.Load(labs + "fig7b-enterprise.yaml")
	if err != nil {
		t.Fatal(err)
	}
	const seed, load = 3, 40
	source, err := Flows(&Spec{Topology: Topology{Kind: "file", File: labs + "fig7b-enterprise.yaml", Load: load}, Seed: seed})
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.Open(labs + "enterprise.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer data.Close()
	sizes, err := workload.ReadCDF(data)
	if err != nil {
		t.Fatal(err)
	}
	var want []traffic.Flow
	for client := 8; client < 16; client++ {
		r := workload.NewRand(seed, uint64(client))
		p := workload.NewPoisson(load/100.*80e6/8/sizes.Mean()/8, r)
		for at := p.Next(); at < f.Workloads[0].Duration; at += p.Next() {
			server := network.HostID(r.IntN(8))
			want = append(want, traffic.Flow{Start: engine.Of(at), Src: server, Dst: network.HostID(client), Bytes: sizes.Sample(r)})
		}
	}
	slices.SortFunc(want, func(a, b traffic.Flow) int { return cmp.Compare(a.Start, b.Start) })
	got := record(source, 1<<20)
	if len(got) != len(want) || len(got) < 1000 {
		t.Fatalf("%d flows, want %d", len(got), len(want))
	}
	for i, g := range got {
		if w := want[i]; g.Start != w.Start || g.Src != w.Src || g.Dst != w.Dst || g.Bytes != w.Bytes {
			t.Fatalf("flow %d: %+v, want %+v", i, g, w)
		}
	}
}

// sheet writes a fabric.yaml.
func sheet(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "f.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

const twoByTwo = `name: t
leaves: 2
spines: 2
links: {rate: 100Mbit, queue: 64KB}
hosts: {per_leaf: 2, link: {rate: 100Mbit}, list: [{name: web, leaf: L1}]}
vnis: [{vni: 1, hosts: [h0, h2, web]}, {vni: 2, hosts: [h1, h3]}]
`

// TestFileSays: what a file says holds where the experiment is silent.
func TestFileSays(t *testing.T) {
	name := sheet(t, twoByTwo+`scheme: static
weights: [1, 3]
tcp: dctcp
congestion: {tau: 3ms, alpha: 0.25}
workloads:
  - {type: poisson, pairs: any, sizes: enterprise, load: 60, small: 5KB, large: 6KB, pool: true, start: 10ms, duration: 90ms}
  - {type: bulk, from: [L0], to: [L1], flows: 2, duration: 50ms}
  - {type: udp, from: [h0], to: [web], rate: 1Mbit, duration: 100ms}
  - {type: incast, from: [web], pairs: any, fan_in: 2, bytes: 20KB, duration: 60ms}
faults: [{at: 20ms, fail: L0-S0.0}, {at: 40ms, restore: L0-S0.0}]
`)
	file := Topology{Kind: "file", File: name}
	r, res := parts(t, &Spec{Topology: file, Faults: []vocab.Fault{{At: us(60_000), Fail: "L1-S1.0"}}})
	s := r.spec
	if s.Scheme != "static" || s.Transport.CongestionControl != "dctcp" || s.Congestion.CONGA().Tau != us(3000) || s.Congestion.CONGA().Alpha != 0.25 {
		t.Errorf("scheme %s, congestion control %s, congestion %+v", s.Scheme, s.Transport.CongestionControl, s.Congestion)
	}
	if s.Duration != us(100_000) || s.Drain != us(5e6) || s.Measure.Small != 5000 || s.Measure.Large != 6000 {
		t.Errorf("duration %v, drain %v, classes %v and %v", s.Duration, s.Drain, s.Measure.Small, s.Measure.Large)
	}
	if w := res.Workloads; len(w) != 4 || w[0].Flows == 0 || w[1].Flows != 4 || w[2].GoodputBps < 0.9e6 || w[3].Flows < 4 || w[3].EffectivePercent < 3 {
		t.Errorf("workloads %+v", w)
	}
	for i, w := range s.Workloads {
		if w.Type == "" || w.Name == "" {
			t.Errorf("workload %d is %+v", i, w)
		}
	}
	if down := r.topo.Links[0].A.Up() && !r.topo.Links[3].A.Up(); !down {
		t.Errorf("after the faults of both, %s is up: %v, %s: %v", r.topo.Links[0].Name, r.topo.Links[0].A.Up(), r.topo.Links[3].Name, r.topo.Links[3].A.Up())
	}
	if res.End != endDone || res.Conservation.Made == 0 {
		t.Errorf("ended %q, %+v", res.End, res.Conservation)
	}
	if nic, access := r.topo.Hosts[4].Port.Rate, r.topo.Hosts[4].Port.Peer.Rate; nic != topo.Unshaped || access != 100e6 {
		t.Errorf("web sends at %d bit/s and receives at %d", nic, access)
	}
	own := &Spec{
		Topology: file, Scheme: "drill", Transport: Transport{CongestionControl: "newreno", Burst: 9000},
		Workloads: []vocab.Workload{{Type: vocab.Bulk, From: []string{"h0"}, To: []string{"h2"}}}, Duration: us(1000), Drain: us(2000),
	}
	give("congestion", "{tau: 500us}")(own)
	r, _ = parts(t, own)
	s = r.spec
	if s.Scheme != "drill" || s.Congestion.CONGA().Tau != us(500) || s.Congestion.CONGA().Alpha != 0.25 || s.Transport.CongestionControl != "newreno" ||
		s.Transport.Burst != 9000 || len(s.Workloads) != 1 || s.Drain != us(2000) || s.Measure.Small != 100_000 {
		t.Errorf("the experiment's own: %+v", s)
	}
}

// TestWeights: the shares that a file gives to uplinks under static.
func TestWeights(t *testing.T) {
	name := sheet(t, strings.Replace(twoByTwo, "link: {rate: 100Mbit}", "link: {rate: 10Mbit}", 1)+"scheme: static\nweights: [1, 3]\nworkloads: [{type: bulk, from: [L0], to: [L1], flows: 40, duration: 3s}]\n")
	r := must(t, &Spec{Topology: Topology{Kind: "file", File: name}})
	if p := r.Uplinks[1].Percent; p < 60 || p > 90 {
		t.Errorf("S1 has %g %% of L0's traffic, want about 75", p)
	}
	if local := must(t, &Spec{Topology: Topology{Kind: "file", File: name}, Scheme: "ecmp"}); local.Uplinks[1].Percent > 60 {
		t.Errorf("under ecmp S1 has %g %%", local.Uplinks[1].Percent)
	}
}

// TestSubflowsOfAFile: what the lab does with Linux's MPTCP, uncoupled, the simulator does too.
func TestSubflowsOfAFile(t *testing.T) {
	name := sheet(t, twoByTwo+"subflows: 8\nworkloads: [{type: bulk, from: [h0], duration: 1s}]\n")
	r, res := parts(t, &Spec{Topology: Topology{Kind: "file", File: name}})
	if tr := r.spec.Transport; tr.Type != "mptcp" || tr.Subflows != 8 || tr.CongestionControl != "cubic" {
		t.Errorf("transport %+v", tr)
	}
	for _, u := range res.Uplinks[:2] {
		if u.Percent < 10 {
			t.Errorf("one connection does not use both uplinks: %+v", res.Uplinks)
		}
	}
	coupled := &Spec{Topology: Topology{Kind: "file", File: name}}
	coupled.Transport.Type, coupled.Transport.CongestionControl = "mptcp", "lia"
	if r, _ := parts(t, coupled); r.spec.Transport.CongestionControl != "lia" || r.spec.Transport.Subflows != 8 {
		t.Errorf("transport %+v", r.spec.Transport)
	}
}

// TestFileRefused: what the simulator does not do as the lab does is refused.
func TestFileRefused(t *testing.T) {
	for _, c := range []struct{ add, want string }{
		{"classes: [{match: {protocol: udp}, scheme: drill}]\n", "f.yaml:7:1: traffic classes cannot be simulated"},
		{"tcp: bbr\nworkloads: [{type: bulk, duration: 1s}]\n", "transport.cc"},
		{"", "a run without workloads"},
		{"workloads: [{type: incast, from: [h0, h2], pairs: any, fan_in: 1, bytes: 1KB, duration: 1s}]\n", "one client"},
		{"workloads: [{type: poisson, sizes: gone.csv, load: 5, duration: 1s}]\n", "gone.csv"},
		{"leafs: 2\n", "f.yaml:"},
	} {
		name := sheet(t, twoByTwo+c.add)
		_, err := Flows(&Spec{Topology: Topology{Kind: "file", File: name}})
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error()+name, name) {
			t.Errorf("%q: got %v, want %q", c.add, err, c.want)
		}
	}
}
