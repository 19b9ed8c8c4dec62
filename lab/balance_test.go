package lab

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/config"
	"github.com/loomfabric/loom/config/fabric"
	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/measure"
	"github.com/loomfabric/loom/internal/units"
	"github.com/loomfabric/loom/internal/yamlfile"
)

const balanced = `name: b
leaves: 2
spines: 2
hosts: {per_leaf: 2}
vnis: [{vni: 7, hosts: [h0, h2, h3]}, {vni: 8, hosts: [h1]}]
scheme: static
weights: [2, 1]
classes:
  - {match: {vni: 8, protocol: udp, port: 53, dscp: cs6}, scheme: drill, drill: {memory: 0}}
  - {match: {dscp: 0}, scheme: letflow}
  - {match: {protocol: 47}, scheme: drill}
congestion: {profile: datacenter, q: 2, tau: 1ms, path_metric: sum}
`

func drillKeys(samples, memory int) balance.Params {
	return &balance.DRILLKeys{DRILL: balance.DRILL{Samples: samples, Memory: memory}}
}

// TestGeneratedBalancing: schemes, classes and parameters of a fabric file come
// out of leafd's own reading of what the lab writes for it.
func TestGeneratedBalancing(t *testing.T) {
	f, err := fabric.Parse("b.yaml", []byte(balanced))
	if err != nil {
		t.Fatal(err)
	}
	l := New(f)
	params := congestion.Datacenter()
	params.Q, params.Tau, params.Metric = 2, 1e6, congestion.SumMetric
	flow := dataplane.Class{DSCP: 1, Scheme: "letflow", Options: balance.Options{Keys: &balance.FlowletKeys{Flowlets: congestion.DefaultFlowlets}}}
	gre := dataplane.Class{Protocol: 47, Scheme: "drill", Options: balance.Options{Keys: drillKeys(2, 1)}}
	dns := dataplane.Class{VNI: 8, Protocol: 17, Port: units.Ports{First: 53, Last: 53}, DSCP: 49, Scheme: "drill", Options: balance.Options{Keys: drillKeys(2, 0)}}
	for leaf, want := range [][]dataplane.Class{{dns, flow, gre}, {flow, gre}} { // only L0 has a host of VNI 8
		text, err := yamlfile.Marshal(l.leafConfig(l.Topo.Leaves[leaf]))
		if err != nil {
			t.Fatal(err)
		}
		c, err := config.ParseLeaf("leaf", text, nil)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		d := c.ToDataplane()
		if d.Scheme != "static" || !reflect.DeepEqual(d.Options.Keys, &balance.StaticKeys{Weights: []uint32{2, 1}}) || d.Congestion != params {
			t.Errorf("L%d: %+v", leaf, d)
		}
		if !reflect.DeepEqual(d.Classes, want) {
			t.Errorf("L%d: classes %+v, want %+v", leaf, d.Classes, want)
		}
	}
	text, err := yamlfile.Marshal(l.spineConfig(l.Topo.Spines[0]))
	if err != nil {
		t.Fatal(err)
	}
	s, err := config.ParseSpine("spine", text, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.ToDataplane().Congestion; got != params {
		t.Errorf("the spine's parameters are %+v", got)
	}
}

func TestSchemeOverride(t *testing.T) {
	f, err := fabric.Parse("b.yaml", []byte(balanced))
	if err != nil {
		t.Fatal(err)
	}
	l := New(f)
	if err := l.override("best"); err == nil || !strings.Contains(err.Error(), "conga") {
		t.Errorf("an unknown scheme: %v", err)
	}
	if err := l.override("conga"); err != nil {
		t.Fatal(err)
	}
	if c := l.leafConfig(l.Topo.Leaves[0]); c.Scheme != "conga" || len(c.Classes) != 3 {
		t.Errorf("%+v", c.Balancing)
	}
}

func TestReportShowsSchemes(t *testing.T) {
	d := DaemonReport{Node: "L0", CERaised: 77}
	for range 2 { // two workers
		d.addScheme("ecmp", balance.Stats{Decisions: 3})
		d.addScheme("conga", balance.Stats{Decisions: 10, Flowlets: congestion.FlowletStats{Started: 10, Moved: 4, Kept: 5, Expired: 9}})
	}
	rep := Report{Result: &measure.Result{Scheme: "conga"}, Daemons: []DaemonReport{d, {Node: "S0"}}}
	rep.counters()
	if b := rep.Result.Scheduler; b["decisions"] != 26 || b["flowlets_started"] != 20 || b["flowlets_moved"] != 8 || b["flowlets_kept"] != 10 || b["flowlets_expired"] != 18 {
		t.Errorf("together: %v", b)
	}
	var b bytes.Buffer
	if err := rep.Table(&b); err != nil {
		t.Fatal(err)
	}
	rows := make(map[string]bool)
	for line := range strings.Lines(b.String()) {
		rows[strings.Join(strings.Fields(line), " ")] = true
	}
	for _, want := range []string{
		"scheme decisions flowlets moved kept new flows", "L0: ecmp 6 - - - -", "L0: conga 20 20 8 10 2", "L0 0 0 0 0 0 0 77 IS WRONG",
	} {
		if !rows[want] {
			t.Errorf("no row %q in\n%s", want, &b)
		}
	}
}
