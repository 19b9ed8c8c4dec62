package dataplane

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/liveness"
	"github.com/loomfabric/loom/overlay"
)

// wraps has an access port's program put a frame into a tunnel, and returns what leaves and
// the fabric's fields of it.
func (r *fastLeafRig) wraps(frame []byte) (out []byte, f overlay.Fabric) {
	r.t.Helper()
	r.pass(0)
	opts := ebpf.RunOptions{Data: frame, DataOut: make([]byte, 4096)}
	if _, err := r.progs[acc0].Run(&opts); err != nil {
		r.t.Fatal(err)
	}
	if len(opts.DataOut) != len(frame)+overlay.Overhead {
		r.t.Fatalf("%d bytes became %d: slow for %v", len(frame), len(opts.DataOut), slowsOf(r.tables, acc0))
	}
	if _, _, why := overlay.VXLAN(opts.DataOut[42:]).Decode(&f); why != drop.None {
		r.t.Fatalf("header %x: %v", opts.DataOut[42:50], why)
	}
	return opts.DataOut, f
}

// hostFrame is a frame of hostA's for hostB, of a flow.
func hostFrame(flow int) []byte { return udp4(hostB, hostA, 0, uint16(flow), 64) }

// Feedback goes round over all tags whose metric is known and not too old, and to nobody who
// does not read it (CONGA §3.3, step 4). A busy link raises CE (step 2).
func TestFastAccessFeedsBack(t *testing.T) {
	r := newFastLeafSample(t)
	from, ageing := r.w.shared.leaf.From, r.w.shared.params.Ageing
	known := map[uint8]uint8{2: 7, 5: 0, 9: 3, 15: 1}
	for tag, metric := range known {
		from.Record(0, tag, metric, r.now)
	}
	r.speak()
	if _, f := r.wraps(hostFrame(1)); f.Capable {
		t.Errorf("a peer that has proved nothing is sent %+v", f)
	}
	r.prove(0)
	r.speak()
	seen := map[uint8]int{}
	for i := range 3 * len(known) {
		_, f := r.wraps(hostFrame(i))
		if metric, ok := known[f.FBTag]; !f.Capable || !f.FBValid || !ok || metric != f.FBMetric || f.CE != 0 {
			t.Fatalf("frame %d says %+v", i, f)
		}
		if uplink := f.LBTag; f.Path.Uplink() != uplink || uplink > 1 {
			t.Errorf("uplink %d, path %v", uplink, f.Path)
		}
		seen[f.FBTag]++
	}
	for tag, n := range seen {
		if n != 3 {
			t.Errorf("tag %d was fed back %d times, want 3: %v", tag, n, seen)
		}
	}
	for up := range 2 {
		r.tables.SetCE(int(up0)+up, 4)
	}
	before := r.fast.stats()
	if _, f := r.wraps(hostFrame(1)); f.CE != 4 {
		t.Errorf("CE is %d behind links of metric 4", f.CE)
	}
	after := r.fast.stats()
	if n := after.Ports[up0].CERaised + after.Ports[up1].CERaised - before.Ports[up0].CERaised - before.Ports[up1].CERaised; n != 1 {
		t.Errorf("CE was raised %d times, want once", n)
	}
	r.now += mono.Time(ageing)
	r.prove(0)
	r.speak()
	if _, f := r.wraps(hostFrame(1)); f.FBValid {
		t.Errorf("what is as old as the ageing time is fed back: %+v", f)
	}
	r.now += mono.Time(overlay.CapableFor)
	r.speak()
	if _, f := r.wraps(hostFrame(1)); f.Capable {
		t.Errorf("a peer whose proof is too old is sent %+v", f)
	}
	sent := liveness.NewTraffic(r.w.shared.leaf.Paths, 0)
	if n := sent.Sent(0, 0) + sent.Sent(0, 1); n != uint32(3*len(known)+2) {
		t.Errorf("liveness knows of %d packets sent, want %d", n, 3*len(known)+2)
	}
}

// newPatientLeaf returns a leaf with a scheme whose flowlets end after a pause that no test run
// takes, and whose metrics stand for a minute.
func newPatientLeaf(t testing.TB, scheme string, gap time.Duration) *fastLeafRig {
	cfg := leafConfig()
	cfg.Scheme, cfg.Congestion = scheme, congestion.Datacenter()
	cfg.Congestion.FlowletGap, cfg.Congestion.FlowGap, cfg.Congestion.Ageing = gap, gap, time.Minute
	r := newFastLeafRig(t, cfg, leafTables())
	r.knows(0, hostA, overlay.DestLocal(uint16(acc0), 0))
	r.knows(0, hostB, overlay.DestRemote(0))
	r.pass(0)
	return r
}

// uplinksOf returns by which uplinks XDP sends new flows, as counts by LBTag.
func (r *fastLeafRig) uplinksOf(flows int) (n [2]int) {
	r.t.Helper()
	for range flows {
		r.flow++
		_, f := r.wraps(hostFrame(r.flow))
		n[f.LBTag]++
	}
	return n
}

// Flowlets begin on the uplinks that CONGA finds the least congested, by what other leaves say
// and by the own links' metrics (§3.5); a flow stays where it is unless another one is better,
// and keeps to its path until a pause. What is too old does not count.
func TestFastAccessChoosesAsCONGA(t *testing.T) {
	const gap = 5 * time.Second
	r := newPatientLeaf(t, "conga", gap)
	fresh := func() { r.prove(0); r.speak() }
	fresh()
	if n := r.uplinksOf(200); n[0] < 50 || n[1] < 50 {
		t.Errorf("idle uplinks got %v flows of 200", n)
	}
	first := r.flow
	stay := map[int]uint8{}
	for flow := first - 20; flow <= first; flow++ {
		_, f := r.wraps(hostFrame(flow))
		stay[flow] = f.LBTag
	}
	r.w.shared.leaf.To.Update(0, 0, 5, r.now)
	fresh()
	if n := r.uplinksOf(100); n[0] > 5 { // flows may share an entry with one that was there
		t.Errorf("%v flows: leaf 0 has said that uplink 0 leads to congestion", n)
	}
	for flow, uplink := range stay {
		if _, f := r.wraps(hostFrame(flow)); f.LBTag != uplink {
			t.Fatalf("flow %d went from uplink %d to %d without a pause", flow, uplink, f.LBTag)
		}
	}
	r.fast.meters[up1].metric = 6
	fresh()
	if n := r.uplinksOf(100); n[1] > 5 {
		t.Errorf("%v flows: the own link of uplink 1 is the busier one", n)
	}
	r.fast.meters[up1].metric = 5
	fresh()
	r.now += mono.Time(gap) + mono.Time(time.Millisecond)
	r.pass(0)
	fresh()
	moved := 0
	for flow, uplink := range stay {
		_, f := r.wraps(hostFrame(flow))
		if f.LBTag != uplink {
			moved++
		}
	}
	if moved > 0 {
		t.Errorf("%d flows moved between uplinks that are as good", moved)
	}
	r.fast.meters[up1].metric = 0
	r.now += mono.Time(gap) + mono.Time(time.Millisecond)
	r.pass(0)
	fresh()
	for flow := range stay {
		if _, f := r.wraps(hostFrame(flow)); f.LBTag != 1 {
			t.Errorf("flow %d stays on uplink %d behind a pause: 1 is better", flow, f.LBTag)
		}
	}
	if a := r.fast.ages(); a.Count == 0 || a.P50 <= 0 {
		t.Errorf("the choice of uplinks was never old: %+v", a)
	}
	r.tables.SetFresh(0)
	if n := r.uplinksOf(200); n[0] < 50 || n[1] < 50 {
		t.Errorf("%v flows of 200 by metrics that are too old", n)
	}
}

// A flow keeps its path when it goes from the worker to XDP, and back.
func TestFastAccessSharesFlowlets(t *testing.T) {
	r := newPatientLeaf(t, "letflow", 5*time.Second)
	r.prove(0)
	r.speak()
	worker := func(flow int) uint8 {
		t.Helper()
		out := r.byWorker(acc0, hostFrame(flow))
		for tag, port := range []PortID{up0, up1} {
			if len(out[port]) == 1 {
				return uint8(tag)
			}
		}
		t.Fatalf("flow %d did not leave: %v", flow, r.drops())
		return 0
	}
	for flow := range 100 {
		var uplinks []uint8
		for i := range 4 {
			if (flow+i)%2 == 0 {
				uplinks = append(uplinks, worker(flow))
			} else {
				_, f := r.wraps(hostFrame(flow))
				uplinks = append(uplinks, f.LBTag)
			}
		}
		if slices.Max(uplinks) != slices.Min(uplinks) {
			t.Fatalf("flow %d went by uplinks %v", flow, uplinks)
		}
	}
	if n := r.w.leaf.classes[0].Policy.Stats().Flowlets; n.Started != 50 || n.Moved != 0 {
		t.Errorf("the worker began %+v, want 50 of 100 flowlets", n)
	}
}

// With other classes XDP goes by their schemes, and the counters of those before stay.
func TestFastAccessTakesOtherClasses(t *testing.T) {
	cfg := leafConfig()
	cfg.Scheme = "letflow"
	r := newFastLeafRig(t, cfg, leafTables())
	r.knows(0, hostA, overlay.DestLocal(uint16(acc0), 0))
	r.knows(0, hostB, overlay.DestRemote(0))
	r.prove(0)
	r.speak()
	r.uplinksOf(10)
	before := r.flow
	for _, next := range []struct {
		scheme string
		fast   bool
	}{{"conga", true}, {"drill", false}, {"ecmp", true}, {"letflow", true}} {
		rules := []Class{{Scheme: next.scheme}}
		made, err := r.fast.rules(rules)
		if err != nil {
			t.Fatal(err)
		}
		classes, err := r.w.leaf.makeClasses(rules, made)
		if err != nil {
			t.Fatal(err)
		}
		r.fast.pause()
		r.w.leaf.setClasses(classes)
		r.fast.reclass(made)
		r.use()
		if !next.fast {
			if why := r.both(acc0, hostFrame(1)); why != "scheme" {
				t.Errorf("%s: slow for %q", next.scheme, why)
			}
			r.drain()
			continue
		}
		r.uplinksOf(10)
	}
	if n := r.flow - before; n != 30 {
		t.Errorf("%d flows", n)
	}
	want := map[string]uint64{"letflow": 20, "conga": 10, "ecmp": 10, "drill": 0}
	for _, s := range r.fast.stats().Schemes {
		if s.Decisions != want[s.Scheme] {
			t.Errorf("scheme %s: %d decisions, want %d", s.Scheme, s.Decisions, want[s.Scheme])
		}
		delete(want, s.Scheme)
	}
	delete(want, "drill")
	if len(want) > 0 {
		t.Errorf("no counters of %v", want)
	}
}

// A table of flowlets that XDP has no room for is the worker's, and so is a scheme's shadow.
func TestFastRulesSayWhy(t *testing.T) {
	cfg := leafConfig()
	completeConfig(t, &cfg, 1)
	large := Class{Scheme: "conga"}
	large.Options.Keys = flowletKeys(1 << 17)
	shadowed := Class{Scheme: "ecmp"}
	shadowed.Options.Shadow = "conga"
	rules := []Class{large, shadowed, {Scheme: "letflow"}, {Scheme: "letflow"}, {Scheme: "letflow"}, {Scheme: "letflow"}, {Scheme: "reed"}, {}}
	f, err := newFastRules(&cfg, rules, 1, newShared(&cfg).leaf)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"131072 flowlets", "conga is a shadow", "", "", "", "4 classes", "reed sees each frame", ""} {
		if got := f.classes[i].why; (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("class %d: %q, want %q", i, got, want)
		}
	}
	if why := f.why(); why != "" {
		t.Errorf("nothing is fast: %s", why)
	}
}
