package sim

import (
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/fabric"
	"github.com/loomfabric/loom/internal/workload"
)

// Problem is one thing that is wrong with a Spec.
type Problem struct {
	Path string // of the key, as in workloads[0].load
	Msg  string
}

// Error writes path and message.
func (p *Problem) Error() string { return p.Path + ": " + p.Msg }

// completer fills in defaults and collects what is wrong.
type completer struct {
	spec     *Spec
	settled  bool // what is left out is left out for good
	problems []*Problem
}

func (c *completer) errorf(path, format string, args ...any) {
	c.problems = append(c.problems, &Problem{path, fmt.Sprintf(format, args...)})
}

// oneOf reports a word that is not in the list.
func (c *completer) oneOf(path, word string, words ...string) {
	if word == "" && !c.settled {
		return
	}
	if !slices.Contains(words, word) {
		c.errorf(path, "%q does not exist: write one of %s", word, strings.Join(words, ", "))
	}
}

// Complete fills in defaults, and returns all that is wrong without a look at
// files or at how the parts fit: [Run] reports the rest. What a fabric.yaml
// decides stays open. File names that are relative become relative to dir; ""
// leaves them, so with it Complete may be called again.
func (s *Spec) Complete(dir string) []*Problem { return s.complete(dir, s.Topology.Kind != "file") }

// complete is Complete; settled says that no file has still to be asked.
func (s *Spec) complete(dir string, settled bool) []*Problem {
	c := &completer{spec: s, settled: settled}
	c.def(&s.Scheme, "ecmp")
	c.oneOf("scheme", s.Scheme, balance.Names()...)
	c.congestion()
	c.topology(dir)
	c.transport()
	c.conweave()
	if len(s.Workloads) == 0 && settled {
		c.errorf("workloads", "there are none: nothing would happen")
	}
	for i := range s.Workloads {
		c.workload(i, dir)
	}
	c.faults()
	c.times()
	c.measure()
	return c.problems
}

// def is def, unless a file has still to be asked.
func (c *completer) def(v *string, value string) {
	if c.settled {
		def(v, value)
	}
}

func def[T comparable](v *T, value T) {
	var zero T
	if *v == zero {
		*v = value
	}
}

func (c *completer) congestion() {
	k := &c.spec.Congestion
	c.def(&k.Profile, "datacenter")
	c.oneOf("congestion.profile", k.Profile, "lab", "datacenter")
	c.def(&k.Detector, "timestamp")
	c.oneOf("congestion.detector", k.Detector, "timestamp", "agebit")
	c.def(&k.PathMetric, "max")
	c.oneOf("congestion.path_metric", k.PathMetric, "max", "sum")
	p := k.Params()
	if err := p.Validate(); err != nil {
		c.errorf("congestion", "%v", err)
	} else if p.Q > congestion.WireQ {
		c.errorf("congestion.q", "%d: at most %d bits fit the fabric's header", p.Q, congestion.WireQ)
	}
}

func (c *completer) topology(dir string) {
	t := &c.spec.Topology
	def(&t.Kind, "leaf-spine")
	kinds := []string{"leaf-spine", "fat-tree", "three-layer", "vl2", "file"}
	c.oneOf("topology.kind", t.Kind, kinds...)
	if t.Kind == "file" && t.File == "" {
		c.errorf("topology.file", "kind file needs the name of a fabric.yaml")
	}
	c.belong("topology.", t.Kind, t.fields())
	t.File = within(dir, t.File)
	if !(t.Load >= 0 && t.Load <= 200) {
		c.errorf("topology.load", "%g percent: above 0 and at most 200", t.Load)
	}
	if t.Load > 0 && len(c.spec.Workloads) > 0 && !c.settled {
		c.errorf("topology.load", "it is for the workloads of the file, and there are others")
	}
	if t.Overhead == nil {
		overhead := 50
		t.Overhead = &overhead
	}
	if *t.Overhead < 0 || *t.Overhead > 1000 {
		c.errorf("topology.overhead", "%d bytes: use 0 to 1000", *t.Overhead)
	}
	if slices.Contains(kinds, t.Kind) && t.Kind != "file" {
		c.links()
	}
}

// links fills in and checks what a fabric.yaml says otherwise.
func (c *completer) links() {
	t := &c.spec.Topology
	def(&t.Parallel, 1)
	def(&t.Delay, fabric.Duration(time.Microsecond))
	def(&t.HostDelay, t.Delay)
	def(&t.Alpha, 1)
	for _, r := range []struct {
		key  string
		rate fabric.Rate
	}{{"host-rate", t.HostRate}, {"rate", t.Rate}} {
		if r.rate == 0 {
			c.errorf("topology."+r.key, "it is missing: a link without a rate has no queue")
		}
	}
	if t.Buffer != 0 && t.PortBuffer != 0 {
		c.errorf("topology.port-buffer", "buffer is set too: choose a shared buffer or one for each port")
	}
	if t.PFC && t.Buffer == 0 {
		c.errorf("topology.pfc", "it needs a shared buffer: set buffer")
	}
	if !(t.Alpha > 0) {
		c.errorf("topology.alpha", "%g: use a number above 0", t.Alpha)
	}
	if e := t.ECN; e != nil && (e.Kmax < e.Kmin || e.Kmax == 0 || !(e.Pmax >= 0 && e.Pmax <= 1)) {
		c.errorf("topology.ecn", "kmin %v, kmax %v, pmax %g: kmax must be kmin or more and above 0, pmax from 0 to 1", e.Kmin, e.Kmax, e.Pmax)
	}
	c.positive("topology.", map[string]fabric.Duration{"delay": t.Delay, "host-delay": t.HostDelay})
	for i := range t.Overrides {
		def(&t.Overrides[i].Direction, "both")
		c.oneOf(fmt.Sprintf("topology.overrides[%d].direction", i), t.Overrides[i].Direction, "up", "down", "both")
	}
}

func (c *completer) transport() {
	t := &c.spec.Transport
	def(&t.Type, "tcp")
	c.oneOf("transport.type", t.Type, "tcp", "rdma")
	c.belong("transport.", t.Type, t.fields())
	if t.Type == "rdma" {
		def(&t.CongestionControl, "dcqcn")
		c.oneOf("transport.cc", t.CongestionControl, "dcqcn", "none")
		def(&t.Recovery, "gbn")
		c.oneOf("transport.recovery", t.Recovery, "gbn", "irn")
		def(&t.Payload, 1000)
		if t.Payload > 4096 {
			c.errorf("transport.payload", "%v: RoCE has at most 4096", t.Payload)
		}
		return
	}
	c.def(&t.CongestionControl, "cubic")
	c.oneOf("transport.cc", t.CongestionControl, "newreno", "cubic", "dctcp")
	def(&t.MTU, 1500)
	def(&t.MinRTO, fabric.Duration(200*time.Millisecond))
	def(&t.Window, 2<<20)
	if c.settled {
		def(&t.Burst, 64<<10)
	}
	if t.MTU < 256 || t.MTU > 9216 {
		c.errorf("transport.mtu", "%d: use 256 to 9216", t.MTU)
	}
	if t.MinRTO < 0 || t.MinRTO.D() > maxRTO {
		c.errorf("transport.min-rto", "%v: use a time above 0, up to %v", t.MinRTO, maxRTO)
	}
	if t.Window < fabric.Bytes(t.MTU) || t.Window > 1<<40 {
		c.errorf("transport.window", "%v: use a packet of %d bytes to a terabyte", t.Window, t.MTU)
	}
	if t.Burst > 1<<30 {
		c.errorf("transport.burst", "%v: use at most a gigabyte", t.Burst)
	}
}

// maxRTO is TCP's longest timeout (Linux).
const maxRTO = 120 * time.Second

func (c *completer) workload(i int, dir string) {
	w, at := &c.spec.Workloads[i], fmt.Sprintf("workloads[%d].", i)
	def(&w.Type, Poisson)
	types := []string{Poisson, Bulk, Incast, Stride, Permutation, AllToAll, UDP, Trace}
	if c.oneOf(at+"type", w.Type, types...); !slices.Contains(types, w.Type) {
		return
	}
	def(&w.Name, fmt.Sprintf("%s%d", w.Type, i))
	c.belong(at, w.Type, w.fields())
	if w.From == nil {
		w.From = []string{"all"}
	}
	if w.To == nil {
		w.To = []string{"all"}
	}
	c.positive(at, map[string]fabric.Duration{"start": w.Start, "duration": w.Duration, "gap": w.Gap})
	for _, n := range []struct {
		key   string
		value float64
	}{{"scale", w.Scale}, {"load", w.Load}, {"connections", float64(w.Connections)}, {"flows", float64(w.Flows)}, {"fan-in", float64(w.FanIn)}, {"repeat", float64(w.Repeat)}} {
		if !(n.value >= 0) || math.IsInf(n.value, 0) {
			c.errorf(at+n.key, "%g: use a number above 0", n.value)
		}
	}
	need := func(key string, missing bool) {
		if missing {
			c.errorf(at+key, "workload %s needs it", w.Type)
		}
	}
	switch w.Type {
	case Poisson:
		c.poisson(w, at, dir)
		need("sizes", w.Sizes == "")
		need("load", w.Load == 0)
	case Bulk, Permutation:
		def(&w.Flows, 1)
	case Stride:
		def(&w.Flows, 1)
		need("stride", w.Stride == 0)
	case Incast:
		def(&w.Repeat, 1)
		def(&w.Pairs, "racks")
		c.oneOf(at+"pairs", w.Pairs, "racks", "any")
		need("fan-in", w.FanIn == 0)
		need("bytes", w.Bytes == 0)
	case AllToAll:
		need("bytes", w.Bytes == 0)
	case UDP:
		def(&w.Flows, 1)
		def(&w.Size, 1400)
		need("rate", w.Rate == 0)
		if w.Size > maxDatagram {
			c.errorf(at+"size", "%v: at most %d bytes fit a datagram", w.Size, maxDatagram)
		}
	case Trace:
		need("file", w.File == "")
		w.File = within(dir, w.File)
	}
}

// maxDatagram is the most payload that UDP over IPv4 can have, bytes.
const maxDatagram = 65507

func (c *completer) poisson(w *Workload, at, dir string) {
	def(&w.Scale, 1)
	def(&w.Pairs, "racks")
	c.oneOf(at+"pairs", w.Pairs, "racks", "any")
	def(&w.Of, "fabric")
	c.oneOf(at+"of", w.Of, "fabric", "hosts")
	if strings.HasSuffix(w.Sizes, ".csv") {
		w.Sizes = within(dir, w.Sizes)
	} else if w.Sizes != "" {
		c.oneOf(at+"sizes", w.Sizes, workload.Names()...)
	}
	switch {
	case w.Pool && w.Connections > 0:
		c.errorf(at+"pool", "connections is set too: a pool has as many as it takes")
	case w.Pool && c.spec.Transport.Type == "rdma":
		c.errorf(at+"pool", "it is for TCP: give rdma a number of connections")
	}
}

func (c *completer) conweave() {
	w := &c.spec.ConWeave
	c.positive("conweave.", map[string]fabric.Duration{
		"reply": w.Reply, "path-busy": w.PathBusy, "inactive": w.Inactive, "resume-extra": w.ResumeExtra, "resume-default": w.ResumeDefault,
	})
	if w.Queues < 0 {
		c.errorf("conweave.queues", "%d: use a number above 0", w.Queues)
	}
}

func (c *completer) faults() {
	for i, f := range c.spec.Faults {
		if (f.Fail == "") == (f.Restore == "") {
			c.errorf(fmt.Sprintf("faults[%d]", i), "write one of fail and restore")
		}
		c.positive(fmt.Sprintf("faults[%d].", i), map[string]fabric.Duration{"at": f.At})
	}
}

// positive reports times that are negative.
func (c *completer) positive(at string, times map[string]fabric.Duration) {
	for _, key := range slices.Sorted(maps.Keys(times)) {
		if times[key] < 0 {
			c.errorf(at+key, "%v: a time is not negative", times[key])
		}
	}
}

func (c *completer) times() {
	s := c.spec
	c.positive("", map[string]fabric.Duration{"warmup": s.Warmup, "duration": s.Duration, "drain": s.Drain})
	if s.Duration == 0 && (c.settled || len(s.Workloads) > 0) {
		c.errorf("duration", "it is missing: for how long do flows start?")
	}
	def(&s.Seed, 1)
	if !c.settled {
		return
	}
	if s.Duration <= 0 {
		return
	}
	def(&s.Drain, 5*s.Duration)
	for i := range s.Workloads {
		def(&s.Workloads[i].Duration, max(s.Warmup+s.Duration-s.Workloads[i].Start, 0))
		if s.Workloads[i].Duration == 0 {
			c.errorf(fmt.Sprintf("workloads[%d].start", i), "%v: the run begins no flows after %v", s.Workloads[i].Start, s.Warmup+s.Duration)
		}
	}
}

func (c *completer) measure() {
	m := &c.spec.Measure
	if c.settled {
		def(&m.Small, 100_000)
		def(&m.Large, max(10_000_000, m.Small+1))
	}
	if m.Large != 0 && m.Large <= m.Small {
		c.errorf("measure.large", "%v: it must be more than small, which is %v", m.Large, m.Small)
	}
	if !slices.IsSorted(m.Buckets) {
		c.errorf("measure.buckets", "they must ascend")
	}
	c.positive("measure.", map[string]fabric.Duration{"imbalance": m.Imbalance, "reorder": m.Reorder})
}

// within returns a file's name relative to dir unless it is absolute.
func within(dir, name string) string {
	if name == "" || filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(dir, name)
}
