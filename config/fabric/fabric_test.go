package fabric

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/internal/yamlfile"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const good = `name: t
leaves: 2
spines: 2
links: {parallel: 2, rate: 300Mbit, delay: 10us, queue: 256KB, ecn: {kmin: 30KB, kmax: 90KB, pmax: 0.2}}
hosts:
  per_leaf: 2
  link: {rate: 1Gbit}
  list:
    - {name: db, leaf: L1}
vnis:
  - {vni: 100, hosts: [L0, h2]}
  - {vni: 200, hosts: [h3, db], vlan: 7, subnet: 192.168.0.0/24}
overrides:
  - {link: L0-S1.0, direction: down, rate: 100Mbit}
  - {link: L1-S0.1, delay: 1ms}
workloads:
  - {type: bulk, from: [h0], to: [h2], duration: 3s}
  - {type: poisson, pairs: any, from: [h3], to: [db], sizes: web-search, load: 30, duration: 2s, seed: 4}
faults:
  - {at: 1s, fail: L0-S1.0}
scheme: static
weights: [4, 3, 2, 1]
classes:
  - {name: fast, match: {vni: 200, protocol: UDP, port: 53, dscp: ef}, scheme: drill, drill: {samples: 3}}
congestion: {tau: 5ms, q: 2, detector: agebit, path_metric: sum, fewest_bottlenecks: true}
`

// TestWarnings: a flowlet gap is held against the longest queue of any link, of
// either direction, under the scheme that is asked about and those of classes.
func TestWarnings(t *testing.T) {
	const file = "name: t\nleaves: 2\nspines: 2\nhosts: {per_leaf: 1, link: {rate: 1Mbit}}\nvnis: [{vni: 1}]\n"
	for _, tc := range []struct {
		name, more, scheme string
		want               [][]string // parts of each warning
	}{
		{"no rate", "links: {queue: 1MB}", "conga", nil},
		{"a short queue", "links: {rate: 100Mbit, queue: 75KB}", "conga", nil}, // 6 ms, as the lab's gap
		{"a longer one", "links: {rate: 100Mbit, queue: 76KB}", "conga", [][]string{{"congestion.flowlet_gap is 6ms for scheme conga", "L0-S0.0 up", "76KB at 100Mbit for 6.08ms"}}},
		{"no flowlets", "links: {rate: 1Mbit}", "ecmp", nil},
		{"the file's scheme", "links: {rate: 20Mbit, queue: 32KB}\nscheme: letflow", "", [][]string{{"scheme letflow", "for 12.8ms"}}},
		{"another than the file's", "links: {rate: 20Mbit, queue: 32KB}\nscheme: letflow", "spray", nil},
		{"a gap to match", "links: {rate: 20Mbit, queue: 32KB}\ncongestion: {flowlet_gap: 15ms}", "conga", nil},
		{"one direction of one link", "links: {rate: 100Mbit, queue: 64KB}\noverrides: [{link: L1-S0.0, direction: down, rate: 10Mbit}]", "local", [][]string{{"L1-S0.0 down", "51.2ms"}}},
		{"whole flows", "links: {rate: 10Mbit, queue: 250KB}", "conga-flow", [][]string{{"congestion.flow_gap is 150ms", "200ms"}}},
		{"an epoch as long as the queue", "links: {rate: 100Mbit, queue: 125KB}", "conweave", nil},
		{"a shorter one", "links: {rate: 100Mbit, queue: 126KB}", "conweave", [][]string{{"conweave.inactive is 10ms for scheme conweave,", "L0-S0.0 up can queue 126KB at 100Mbit for 10.08ms", "set it to 10.08ms or more"}}},
		{"auto", "links: {rate: 100Mbit, queue: 126KB}\nconweave: {profile: auto}", "conweave", nil},
		{"auto, but for that", "links: {rate: 100Mbit, queue: 126KB}\nconweave: {profile: auto, inactive: 1ms}", "conweave", [][]string{{"conweave.inactive is 1ms"}}},
		{"longer than timestamps tell", "links: {rate: 20Mbit, queue: 126KB}\nconweave: {profile: auto}", "conweave", [][]string{{"conweave.inactive is 30ms", "for 50.4ms: shorten the queue"}}},
		{"classes", "links: {rate: 10Mbit, queue: 250KB}\nclasses: [{match: {port: 1}, scheme: conga}, {match: {port: 2}, scheme: conga}]", "conga-flow", [][]string{{"flowlet_gap"}, {"flow_gap"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f, err := Parse("f", []byte(file+tc.more+"\n"))
			if err != nil {
				t.Fatal(err)
			}
			got := f.Warnings(tc.scheme)
			if len(got) != len(tc.want) {
				t.Fatalf("warnings %q, want %d", got, len(tc.want))
			}
			for i, parts := range tc.want {
				for _, p := range parts {
					if !strings.Contains(got[i], p) {
						t.Errorf("%q is not in %q", p, got[i])
					}
				}
			}
		})
	}
}

func TestParse(t *testing.T) {
	f, err := Parse("good.yaml", []byte(good))
	if err != nil {
		t.Fatal(err)
	}
	if f.Links.Rate != 300e6 || f.Links.Delay != 10*time.Microsecond || f.Links.ECN.Kmax != 90_000 {
		t.Errorf("links %+v", f.Links)
	}
	if f.Scheme != "static" || len(f.Params.(*balance.StaticKeys).Weights) != 4 || f.Classes[0].Params.(*balance.DRILLKeys).DRILL != (balance.DRILL{Samples: 3, Memory: 1}) {
		t.Errorf("balancing %+v, classes %+v", f.Balancing, f.Classes)
	}
	want := congestion.Lab()
	want.Tau, want.Q, want.Detector = 5*time.Millisecond, 2, congestion.AgeBit
	want.Decision = congestion.Decision{Metric: congestion.SumMetric, FewestBottlenecks: true}
	if got := f.Congestion.CONGA(); got != want {
		t.Errorf("CONGA's parameters are %+v, want %+v", got, want)
	}
	if f.Dataplane != "loom" || f.TCP != "cubic" || f.Hosts.Link.Queue != 256_000 {
		t.Errorf("defaults are missing: %+v", f)
	}
	if w := f.Workloads[0]; w.Name != "bulk-0" || w.Flows != 1 || w.Duration != 3*time.Second {
		t.Errorf("workload %+v", w)
	}
}

func TestSetScheme(t *testing.T) {
	f, err := Parse("good.yaml", []byte(good))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.SetScheme("best"); err == nil || f.Scheme != "static" {
		t.Errorf("scheme %s, %v", f.Scheme, err)
	}
	if err := f.SetScheme("conga"); err != nil || f.Scheme != "conga" || reflect.TypeOf(f.Params) != reflect.TypeFor[*balance.FlowletKeys]() || len(f.Classes) != 1 {
		t.Errorf("%+v, %v", f.Balancing, err)
	}
	f.Dataplane = "kernel"
	if err := f.SetScheme("conga"); err == nil {
		t.Error("the kernel has no CONGA")
	}
}

// TestRoCE: what a roce workload leaves out, and what its load is a share of.
func TestRoCE(t *testing.T) {
	const file = "name: t\nleaves: 2\nspines: 1\nlinks: {rate: 100Mbit}\nhosts: {per_leaf: 2, link: {rate: 40Mbit}}\nvnis: [{vni: 1}]\nworkloads:\n"
	f, err := Parse("f", []byte(file+"  - {type: roce, from: [h0], to: [L1], sizes: alistorage, load: 30, duration: 1s}\n"+
		"  - {type: roce, sizes: alistorage, load: 30, duration: 1s, rate: 30Mbit, qps: 1, size: 256, small: 1KB, large: 1MB}\n"))
	if err != nil {
		t.Fatal(err)
	}
	w := f.Workloads[0]
	if w.QueuePairs != 4 || w.Size != 1024 || w.Rate != 40e6 || w.Small != 100_000 || w.Large != 10_000_000 {
		t.Errorf("defaults %+v", w)
	}
	if w = f.Workloads[1]; w.QueuePairs != 1 || w.Size != 256 || w.Rate != 30e6 || w.Small != 1000 || w.Large != 1_000_000 {
		t.Errorf("as written %+v", w)
	}
	if _, err = Parse("f", []byte(strings.Replace(file, "links: {rate: 100Mbit}", "", 1)+"  - {type: roce, sizes: alistorage, load: 30, of: hosts, duration: 1s}\n")); err != nil {
		t.Errorf("with a rate of the access links only: %v", err)
	}
	many := file + strings.Repeat("  - {type: bulk, duration: 1s}\n", 257)
	if _, err = Parse("f", []byte(many)); err == nil || !strings.Contains(err.Error(), "257 workloads") {
		t.Errorf("257 workloads: %v", err)
	}
	bare := strings.NewReplacer("links: {rate: 100Mbit}", "", ", link: {rate: 40Mbit}", "").Replace(file)
	if _, err = Parse("f", []byte(bare+"  - {type: roce, sizes: alistorage, load: 30, duration: 1s, rate: 30Mbit}\n")); err == nil || !strings.Contains(err.Error(), "a share of links that have no rate") {
		t.Errorf("without a rate of any link: %v", err)
	}
}

// schemeless stands in for what changes when a scheme is added.
var schemeless = strings.NewReplacer(
	yamlfile.OrList(balance.Names()), "[schemes]",
	yamlfile.OrList(yamlfile.Names(&File{})), "[keys]",
)

// TestErrors holds every refusal against a golden file: testdata/NAME.yaml and
// what Parse says of it in testdata/NAME.golden.
func TestErrors(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) < 10 {
		t.Fatalf("golden files: %v, %v", files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Parse(filepath.Base(file), data)
		if err == nil {
			t.Errorf("%s was accepted", file)
			continue
		}
		golden := strings.TrimSuffix(file, ".yaml") + ".golden"
		got := schemeless.Replace(err.Error() + "\n")
		if *update {
			if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s:\n got %s\nwant %s", file, got, want)
		}
	}
}

// TestErrorsNameLines: each golden error points at a line, except where the
// whole file lacks something.
func TestErrorsNameLines(t *testing.T) {
	for _, tc := range []struct {
		old, new string // replacement in the good file
		line     int
	}{
		{"leaves: 2", "leaves: 0", 2},
		{"leaves: 2", "subflows: 9\nleaves: 2", 2},
		{"rate: 300Mbit", "rate: 300", 4},
		{"per_leaf: 2", "per_leaf: 2\n  wrong: 1", 7},
		{"leaf: L1", "leaf: L2", 9},
		{"hosts: [h3, db]", "hosts: [h3, db, nobody]", 12},
		{"L1-S0.1", "L1-S0.2", 15},
		{"load: 30", "load: 300", 18},
		{"fail: L0-S1.0", "fail: L9-S1.0", 20},
	} {
		text := strings.Replace(good, tc.old, tc.new, 1)
		if text == good {
			t.Fatalf("%q is not in the file", tc.old)
		}
		_, err := Parse("f.yaml", []byte(text))
		if err == nil {
			t.Errorf("%q was accepted", tc.new)
			continue
		}
		if !strings.Contains("\n"+err.Error(), "\nf.yaml:"+strconv.Itoa(tc.line)+":") {
			t.Errorf("%q: %v does not name line %d", tc.new, err, tc.line)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	files, _ := filepath.Glob("testdata/*.yaml")
	for _, file := range files {
		if b, err := os.ReadFile(file); err == nil {
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := Parse("fuzz.yaml", data)
		if err == nil && file.Leaves*file.Spines <= 64 {
			file.Expand() // what was accepted can be built
		}
	})
}

// TestShippedFiles: the files under test/netns are right.
func TestShippedFiles(t *testing.T) {
	files, err := filepath.Glob("../../test/netns/*.yaml")
	more, err2 := filepath.Glob("../../test/netns/*/*.yaml")
	files, err = append(files, more...), errors.Join(err, err2)
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, file := range files {
		if _, err := Load(file); err != nil {
			t.Error(err)
		}
	}
}
