package config

import (
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/units"
	"github.com/loomfabric/loom/internal/yamlfile"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var interfaces = []string{"lo", "eth0", "eth1", "eth2", "eth3", "eth4"}

// schemeless stands in for what changes when a scheme is added.
var schemeless = strings.NewReplacer(
	yamlfile.OrList(balance.Names()), "[schemes]",
	yamlfile.OrList(yamlfile.Names(&Leaf{})), "[keys of leafd]",
)

// TestGoldenErrors holds the complete text of every error against a file: the
// operator's view is what is tested.
func TestGoldenErrors(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, f := range files {
		name := filepath.Base(f)
		t.Run(name, func(t *testing.T) {
			src, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(name, "spine") {
				_, err = ParseSpine(name, src, interfaces)
			} else {
				_, err = ParseLeaf(name, src, interfaces)
			}
			if err == nil {
				t.Fatal("accepted")
			}
			golden := strings.TrimSuffix(f, ".yaml") + ".golden"
			got := schemeless.Replace(err.Error() + "\n")
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func TestExamples(t *testing.T) {
	l, err := LoadLeaf("../deploy/examples/leafd.yaml", interfaces)
	if err != nil {
		t.Fatal(err)
	}
	c := l.ToDataplane()
	if c.Role != dataplane.Leaf || len(c.Ports) != 4 || c.Ports[0].Kind != dataplane.Uplink || l.Access[1].VLANs[20] != 200 {
		t.Errorf("leaf: %+v", c)
	}
	if e := c.Ports[1].Egress; e.QueueBytes != 1<<20 || e.Kmin != 100_000 || e.Kmax != 400_000 || e.Pmax != 0.2 {
		t.Errorf("egress: %+v", e)
	}
	classes := []dataplane.Class{
		{Protocol: 17, Port: units.Ports{First: 4791, Last: 4791}, Scheme: "ecmp"},
		{VNI: 200, DSCP: 46 + 1, Scheme: "drill", Options: balance.Options{Keys: &balance.DRILLKeys{DRILL: balance.DRILL{Samples: 2, Memory: 1}}}},
	}
	if c.Scheme != "conga" || !reflect.DeepEqual(c.Classes, classes) || c.Congestion != congestion.Datacenter() {
		t.Errorf("balancing: %q, %+v, %+v", c.Scheme, c.Classes, c.Congestion)
	}
	if c.FDBAge != 5*time.Minute || c.VXLANPort != 4789 || c.RingSize != 2048 || c.Drain != 500*time.Millisecond {
		t.Errorf("defaults: %+v", c)
	}
	s, err := LoadSpine("../deploy/examples/spined.yaml", interfaces)
	if err != nil {
		t.Fatal(err)
	}
	sc := s.ToDataplane()
	if sc.Role != dataplane.Spine || len(sc.Ports) != 2 || sc.Remotes[0] != netip.MustParsePrefix("10.255.0.0/24") {
		t.Errorf("spine: %+v", sc)
	}
	if sc.Congestion != c.Congestion {
		t.Errorf("the spine's CONGA parameters are %+v, the leaf's %+v", sc.Congestion, c.Congestion)
	}
	if s.Telemetry.Listen != "127.0.0.1:9465" {
		t.Errorf("spine listens at %q", s.Telemetry.Listen)
	}
	if s.Admin.Listen != "unix:/run/loom/spined.sock" {
		t.Errorf("the spine's admin socket is %q", s.Admin.Listen)
	}
}

const minimal = `
vtep: 10.0.0.1
uplinks: [{interface: eth1}]
access: [{interface: eth3, vni: 7}]
vnis: [{vni: 7}]
`

func TestDefaults(t *testing.T) {
	for _, tc := range []struct {
		name, extra string
		get         func(*Leaf) any
		want        any
	}{
		{"drain absent", "", func(l *Leaf) any { return l.Drain }, 500 * time.Millisecond},
		{"drain none", "drain: 0s\n", func(l *Leaf) any { return l.Drain }, time.Duration(0)},
		{"flood absent: every peer", "peers: [10.0.0.2]\n", func(l *Leaf) any { return len(l.VNIs[0].Flood) }, 1},
		{"level kept beside format", "log: {format: json}\n", func(l *Leaf) any { return l.Log }, Log{"info", "json"}},
		{"queue", "", func(l *Leaf) any { return l.Uplinks[0].Queue }, units.Size(512 << 10)},
		{"CONGA as in the paper", "", func(l *Leaf) any { return l.ToDataplane().Congestion }, congestion.Datacenter()},
		{"CONGA of the lab", "congestion: {profile: lab}\n", func(l *Leaf) any { return l.ToDataplane().Congestion }, congestion.Lab()},
		{"one value beside the lab's", "congestion: {profile: lab, tau: 5ms}\n", func(l *Leaf) any { p := l.Congestion.CONGA(); return p.Tau.String() + p.FlowletGap.String() }, "5ms6ms"},
		{"DRILL", "scheme: drill\n", func(l *Leaf) any { return l.Params.(*balance.DRILLKeys).DRILL }, balance.DRILL{Samples: 2, Memory: 1}},
		{"DRILL without memory", "scheme: drill\ndrill: {memory: 0}\n", func(l *Leaf) any { return l.Params.(*balance.DRILLKeys).DRILL }, balance.DRILL{Samples: 2, Memory: 0}},
		{"DRILL of a class", "classes: [{match: {port: 1}, scheme: drill, drill: {samples: 3}}]\n", func(l *Leaf) any { return l.Classes[0].Params.(*balance.DRILLKeys).DRILL }, balance.DRILL{Samples: 3, Memory: 1}},
		{"flowlet table as in the paper", "scheme: conga\n", func(l *Leaf) any { return l.ToDataplane().Options.Keys.(*balance.FlowletKeys).Flowlets }, 65536},
		{"flowlet table", "scheme: letflow\nflowlets: 64\n", func(l *Leaf) any { return l.ToDataplane().Options.Keys.(*balance.FlowletKeys).Flowlets }, 64},
		{"flowlet table of a class", "classes: [{match: {port: 1}, scheme: conga-flow, flowlets: 16777216}]\n", func(l *Leaf) any { return l.ToDataplane().Classes[0].Options.Keys.(*balance.FlowletKeys).Flowlets }, 1 << 24},
		{"null, which is as nothing", "flowlets: null\n", func(l *Leaf) any { return l.ToDataplane().Options.Keys }, nil},
		{"no flowlet table", "", func(l *Leaf) any { return l.ToDataplane().Options.Keys }, nil},
		{"metrics off", "telemetry: {listen: off}\n", func(l *Leaf) any { return Off(l.Telemetry.Listen) }, true},
		{"metrics off by empty text", "telemetry: {listen: \"\"}\n", func(l *Leaf) any { return Off(l.Telemetry.Listen) }, true},
		{"admin API", "", func(l *Leaf) any { return l.Admin.Listen }, "unix:/run/loom/leafd.sock"},
		{"admin API off", "admin: {listen: off}\n", func(l *Leaf) any { return Off(l.Admin.Listen) }, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l, err := ParseLeaf("f", []byte(minimal+tc.extra), nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := tc.get(l); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
	l, err := ParseLeaf("f", []byte(strings.Replace(minimal, "{vni: 7}]\n", "{vni: 7, flood: []}]\npeers: [10.0.0.2]\n", 2)), nil)
	if err == nil && len(l.VNIs[0].Flood) != 0 {
		t.Errorf("an empty flood list became %v", l.VNIs[0].Flood)
	}
}

// TestRoundTrip: a generated file means what the types say.
func TestRoundTrip(t *testing.T) {
	want, err := LoadLeaf("../deploy/examples/leafd.yaml", nil)
	if err != nil {
		t.Fatal(err)
	}
	want.Telemetry.Listen, want.Polling, want.XDPMode = "unix:/run/x", Polling(dataplane.Interrupt), XDPMode(dataplane.XDPNative)
	want.Uplinks[0].Shaper = Shaper{Rate: 2_500_000_000, Burst: 3000}
	want.Uplinks[0].Delay = 50 * time.Microsecond
	want.VNIs[1].Flood = []netip.Addr{}
	want.Scheme, want.Params = "static", &balance.StaticKeys{Weights: []uint32{2, 1}}
	drill := vocab.Balancing{Scheme: "drill", Keys: vocab.Keys{Params: &balance.DRILLKeys{DRILL: balance.DRILL{Samples: 3}}}}
	want.Classes = append(want.Classes, vocab.Class{Match: vocab.Match{DSCP: 1}, Balancing: drill})
	conga := want.Congestion.Params.(*vocab.CongestionParams)
	conga.Detector, conga.Metric, conga.FewestBottlenecks = 1, 1, true
	text, err := yamlfile.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseLeaf("generated", text, interfaces)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if keys := Diff(got, want); len(keys) > 0 {
		t.Errorf("they differ in %q\n%s", keys, text)
	}
	if a, b := got.ToDataplane(), want.ToDataplane(); !reflect.DeepEqual(a, b) {
		t.Errorf("got  %+v\nwant %+v\n%s", a, b, text)
	}
}

func TestUnits(t *testing.T) {
	type text interface {
		UnmarshalText([]byte) error
		MarshalText() ([]byte, error)
	}
	for _, tc := range []struct {
		new  func() text
		in   string
		want string // "" when it is refused
	}{
		{func() text { return new(MAC) }, "02-00-00-00-00-0A", "02:00:00:00:00:0a"},
		{func() text { return new(MAC) }, "02:00:00:00:00", ""},
		{func() text { return new(MAC) }, "00:00:00:00:00:00:00:01", ""},
		{func() text { return new(Prefix) }, "10.0.0.1", "10.0.0.1"},
		{func() text { return new(Prefix) }, "10.0.0.0/24", "10.0.0.0/24"},
		{func() text { return new(Prefix) }, "10.0.0.0/33", ""},
		{func() text { return new(Polling) }, "busy", "busy"},
		{func() text { return new(Polling) }, "lazy", ""},
		{func() text { return new(XDPMode) }, "generic", "generic"},
		{func() text { return new(CopyMode) }, "zerocopy", "zerocopy"},
		{func() text { return new(FastPath) }, "auto", "auto"},
		{func() text { return new(FastPath) }, "fast", ""},
		{func() text { return new(vocab.Protocol) }, "TCP", "tcp"},
		{func() text { return new(vocab.Protocol) }, "17", "udp"},
		{func() text { return new(vocab.Protocol) }, "47", "47"},
		{func() text { return new(vocab.Protocol) }, "0", ""},
		{func() text { return new(vocab.Protocol) }, "256", ""},
		{func() text { return new(vocab.Protocol) }, "quic", ""},
		{func() text { return new(vocab.DSCP) }, "ef", "46"},
		{func() text { return new(vocab.DSCP) }, "CS6", "48"},
		{func() text { return new(vocab.DSCP) }, "be", "0"},
		{func() text { return new(vocab.DSCP) }, "0", "0"},
		{func() text { return new(vocab.DSCP) }, "63", "63"},
		{func() text { return new(vocab.DSCP) }, "64", ""},
		{func() text { return new(vocab.DSCP) }, "af44", ""},
	} {
		v := tc.new()
		err := v.UnmarshalText([]byte(tc.in))
		if tc.want == "" {
			if err == nil {
				t.Errorf("%T %q was accepted as %v", v, tc.in, v)
			}
			continue
		}
		if err != nil {
			t.Errorf("%T %q: %v", v, tc.in, err)
			continue
		}
		got, _ := v.MarshalText()
		if string(got) != tc.want {
			t.Errorf("%T %q is written %q, want %q", v, tc.in, got, tc.want)
		}
		if err := tc.new().UnmarshalText(got); err != nil {
			t.Errorf("%T cannot read %q, which it wrote: %v", v, got, err)
		}
	}
}

// FuzzParse: no file makes the parser panic, and every error has a remedy.
func FuzzParse(f *testing.F) {
	f.Add([]byte(minimal))
	f.Add([]byte("a: &x [1]\nb: *x\n<<: *x"))
	f.Add([]byte("vnis: {vni: 1}\nuplinks: 3\nvtep: [1]\nlog: text"))
	f.Add([]byte("vtep: !!binary x\nvnis: !!set {1}\nlog: !!timestamp"))
	f.Add([]byte("--- \n...\n---\nx: 1"))
	f.Fuzz(func(t *testing.T, src []byte) {
		l, err := ParseLeaf("f", src, interfaces)
		if (l == nil) == (err == nil) {
			t.Fatalf("%v, %v", l, err)
		}
		if err != nil {
			for _, e := range err.(yamlfile.Errors) {
				if e.Problem == "" || e.Fix == "" {
					t.Errorf("error without problem or remedy: %+v", e)
				}
			}
		}
	})
}
