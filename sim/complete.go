package sim

import (
	"cmp"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/internal/units"
	"github.com/loomfabric/loom/internal/workload"
	"github.com/loomfabric/loom/internal/yamlfile"
	"github.com/loomfabric/loom/sim/tcp"
	"github.com/loomfabric/loom/sim/topo"
)

// completer fills in defaults and collects what is wrong.
type completer struct {
	spec     *Spec
	settled  bool            // what is left out is left out for good
	profile  balance.Profile // of sections that name none
	problems yamlfile.Errors
}

// errorf adds a mistake. The text has the form "problem; remedy".
func (c *completer) errorf(path, format string, args ...any) {
	c.problems.Errorf(path, format, args...)
}

// oneOf reports a word that is not in the list.
func (c *completer) oneOf(path, word string, words ...string) {
	if word == "" && !c.settled {
		return
	}
	if _, err := yamlfile.Choose(path, word, words); err != nil {
		c.errorf(path, "%v", err)
	}
}

// Complete fills in defaults, and returns all that is wrong without a look at
// files or at how the parts fit: [Run] reports the rest. What a fabric.yaml
// decides stays open. File names that are relative become relative to dir; ""
// leaves them, so with it Complete may be called again.
func (s *Spec) Complete(dir string) yamlfile.Errors {
	return s.complete(dir, s.Topology.Kind != "file", profile)
}

// complete is Complete; settled says that no file has still to be asked.
func (s *Spec) complete(dir string, settled bool, profile balance.Profile) yamlfile.Errors {
	c := &completer{spec: s, settled: settled, profile: profile}
	c.balancing()
	c.topology(dir)
	c.transport()
	if len(s.Workloads) == 0 && settled {
		c.errorf("workloads", "a run without workloads; add one: nothing would happen")
	}
	for i := range s.Workloads {
		c.workload(i, dir)
	}
	c.faults()
	c.times()
	c.measure()
	return c.problems
}

// balancing completes the scheme and what it is told.
func (c *completer) balancing() {
	s := c.spec
	c.def(&s.Scheme, "ecmp")
	if c.oneOf("scheme", s.Scheme, balance.Names()...); balance.Find(s.Scheme) != nil {
		c.problems = append(c.problems, s.Keys.Resolve(s.Scheme, s.uplinks())...)
	}
	if s.TableRefresh != 0 && (s.TableRefresh < time.Microsecond || s.TableRefresh > time.Second) {
		c.errorf("table_refresh", "tables are made every %v; use 1us to 1s, or leave it out", s.TableRefresh)
	}
	for i := range s.Classes {
		k, at := &s.Classes[i], fmt.Sprintf("classes[%d]", i)
		if !slices.ContainsFunc(s.Workloads, func(w vocab.Workload) bool { return w.Name == k.Workload }) {
			c.errorf(at+".workload", "no workload is named %q", k.Workload)
		}
		c.oneOf(at+".scheme", k.Scheme, balance.Names()...)
		if x := balance.Find(k.Scheme); x != nil && (x.Exact || x.EveryTier) {
			c.errorf(at+".scheme", "%s is for spines too, or for connections; make it the run's scheme, and name the others here", k.Scheme)
		}
	}
	c.problems = append(c.problems, s.Congestion.Resolve(c.profile)...)
	c.problems = append(c.problems, s.Sections.Resolve(s.Congestion.Profile)...)
}

// uplinks returns how many uplinks a leaf has; 0: that is for the topology to say.
func (s *Spec) uplinks() int {
	if t := &s.Topology; t.Kind == "" || t.Kind == string(topo.LeafSpine) {
		return t.Spines * max(t.Links.Parallel, 1)
	}
	return 0
}

// def is def, unless a file has still to be asked.
func (c *completer) def(v *string, value string) {
	if c.settled {
		def(v, value)
	}
}

func def[T comparable](v *T, value T) { *v = cmp.Or(*v, value) }

func (c *completer) topology(dir string) {
	t := &c.spec.Topology
	def(&t.Kind, "leaf-spine")
	kinds := []string{"leaf-spine", "fat-tree", "three-layer", "altoona", "vl2", "tree", "file"}
	c.oneOf("topology.kind", t.Kind, kinds...)
	if t.Kind == "file" && t.File == "" {
		c.errorf("topology.file", "kind file without a file; give the name of a fabric.yaml")
	}
	c.belong("topology.", t.Kind, t, topologyKeys)
	t.File = within(dir, t.File)
	if !(t.Load >= 0 && t.Load <= 200) {
		c.errorf("topology.load", "a load of %g percent; use a number above 0 and up to 200", t.Load)
	}
	if t.Load > 0 && len(c.spec.Workloads) > 0 && !c.settled {
		c.errorf("topology.load", "a load for the workloads of the file; remove it, or the experiment's own workloads")
	}
	if t.Overhead == nil {
		overhead := 50
		t.Overhead = &overhead
	}
	if *t.Overhead < 0 || *t.Overhead > 1000 {
		c.errorf("topology.overhead", "an overhead of %d bytes; use 0 to 1000", *t.Overhead)
	}
	if slices.Contains(kinds, t.Kind) && t.Kind != "file" {
		c.links()
	}
}

// links fills in and checks what a fabric.yaml says otherwise.
func (c *completer) links() {
	t := &c.spec.Topology
	def(&t.Links.Parallel, 1)
	def(&t.Links.Delay, time.Microsecond)
	def(&t.Hosts.Link.Delay, t.Links.Delay)
	def(&t.Alpha, 1)
	for _, l := range []struct {
		at string
		*vocab.Link
	}{{"topology.links", &t.Links.Link}, {"topology.hosts.link", &t.Hosts.Link}} {
		if l.Rate == 0 {
			c.errorf(l.at+".rate", "a link without a rate has no queue; add rate, as in rate: 10Gbit")
		}
		if t.Buffer != 0 && l.Queue != 0 {
			c.errorf(l.at+".queue", "buffer is set too; choose a shared buffer or a queue for each port")
		}
		l.ECN.Complete()
		c.problems = append(c.problems, l.ECN.Check(l.at+".ecn")...)
		c.positive(l.at+".delay", l.Delay)
	}
	if t.PFC && t.Buffer == 0 {
		c.errorf("topology.pfc", "PFC without a shared buffer; set buffer")
	}
	if t.PFC {
		def(&t.PFCAlpha, 0.125)
	}
	if t.PFCAlpha != 0 && !t.PFC {
		c.errorf("topology.pfc_alpha", "a threshold of PFC without pfc; set pfc, or remove it")
	}
	if !(t.PFCAlpha >= 0) || math.IsInf(t.PFCAlpha, 0) {
		c.errorf("topology.pfc_alpha", "pfc_alpha is %g; use a number above 0, as in 0.0625", t.PFCAlpha)
	}
	if t.Down < 0 {
		c.errorf("topology.down", "%d links that are down; use 0 or more", t.Down)
	}
	if !(t.Alpha > 0) {
		c.errorf("topology.alpha", "alpha is %g; use a number above 0", t.Alpha)
	}
	if len(t.Hosts.List) > 0 && t.Kind != string(topo.LeafSpine) {
		c.errorf("topology.hosts.list", "hosts by name in a %s; use per_leaf", t.Kind)
	}
	for i := range t.Overrides {
		o := &t.Overrides[i]
		def(&o.Direction, "both")
		c.oneOf(fmt.Sprintf("topology.overrides[%d].direction", i), o.Direction, vocab.Directions...)
		if o.ECN != nil {
			o.ECN.Complete()
		}
	}
}

func (c *completer) transport() {
	t := &c.spec.Transport
	def(&t.Type, "tcp")
	c.oneOf("transport.type", t.Type, "tcp", "mptcp", "rdma")
	c.belong("transport.", t.Type, t, transportKeys)
	if t.Type == "rdma" {
		def(&t.CongestionControl, "dcqcn")
		c.oneOf("transport.cc", t.CongestionControl, "dcqcn", "none")
		def(&t.Recovery, "gbn")
		c.oneOf("transport.recovery", t.Recovery, "gbn", "irn")
		def(&t.Payload, 1000)
		if t.Payload > 4096 {
			c.errorf("transport.payload", "a payload of %v; use at most 4096, RoCE's largest", t.Payload)
		}
		return
	}
	if t.Type == "mptcp" {
		c.def(&t.CongestionControl, "lia")
		c.oneOf("transport.cc", t.CongestionControl, "lia", "newreno", "cubic")
		if def(&t.Subflows, 8); t.Subflows < 1 || t.Subflows > tcp.MaxSubflows {
			c.errorf("transport.subflows", "%d subflows; use 1 to %d", t.Subflows, tcp.MaxSubflows)
		}
	} else {
		c.def(&t.CongestionControl, "cubic")
		c.oneOf("transport.cc", t.CongestionControl, "newreno", "cubic", "dctcp")
	}
	def(&t.MTU, 1500)
	def(&t.MinRTO, 200*time.Millisecond)
	def(&t.Window, 2<<20)
	if c.settled {
		def(&t.Burst, 64<<10)
	}
	if t.MTU < 256 || t.MTU > 9216 {
		c.errorf("transport.mtu", "an MTU of %d; use 256 to 9216", t.MTU)
	}
	if t.MinRTO < 0 || t.MinRTO > maxRTO {
		c.errorf("transport.min_rto", "a timeout of %v; use a time above 0 and up to %v", t.MinRTO, maxRTO)
	}
	if t.Window < units.Size(t.MTU) || t.Window > 1<<40 {
		c.errorf("transport.window", "a window of %v; use a packet of %d bytes to a terabyte", t.Window, t.MTU)
	}
	if t.Burst > 1<<30 {
		c.errorf("transport.burst", "bursts of %v; use at most a gigabyte", t.Burst)
	}
}

// maxRTO is TCP's longest timeout (Linux).
const maxRTO = 120 * time.Second

func (c *completer) workload(i int, dir string) {
	w, at := &c.spec.Workloads[i], fmt.Sprintf("workloads[%d]", i)
	def(&w.Type, vocab.Poisson)
	w.Complete()
	def(&w.Name, fmt.Sprintf("%s%d", w.Type, i))
	errs := w.Check(at, vocab.Simulator)
	c.problems = append(c.problems, errs...)
	if len(errs) > 0 {
		return
	}
	switch w.Type {
	case vocab.Poisson:
		c.poisson(w, at, dir)
	case vocab.Bulk, vocab.Stride, vocab.Permutation, vocab.Random:
		if w.Sizes != "" {
			c.sizes(w, at, dir)
		}
	case vocab.Incast:
		def(&w.Repeat, 1)
	case vocab.UDP:
		if w.Size > maxDatagram {
			c.errorf(at+".size", "datagrams of %v; use at most %d bytes", w.Size, maxDatagram)
		}
	case vocab.Trace:
		w.File = within(dir, w.File)
	}
}

// maxDatagram is the most payload that UDP over IPv4 can have, bytes.
const maxDatagram = 65507

// sizes completes the distribution of a workload's sizes.
func (c *completer) sizes(w *vocab.Workload, at, dir string) {
	def(&w.Scale, 1)
	if strings.HasSuffix(w.Sizes, ".csv") {
		w.Sizes = within(dir, w.Sizes)
	} else {
		c.oneOf(at+".sizes", w.Sizes, workload.Names()...)
	}
}

func (c *completer) poisson(w *vocab.Workload, at, dir string) {
	c.sizes(w, at, dir)
	switch {
	case w.Pool && w.Connections > 0:
		c.errorf(at+".pool", "connections is set too; remove one of the two: a pool has as many as it takes")
	case w.Pool && c.spec.Transport.Type == "rdma":
		c.errorf(at+".pool", "a pool of rdma's queue pairs; give a number of connections: pools are for TCP")
	}
}

func (c *completer) faults() {
	for i, f := range c.spec.Faults {
		if (f.Fail == "") == (f.Restore == "") {
			c.errorf(fmt.Sprintf("faults[%d]", i), "a fault that does nothing, or two things; give one of fail and restore")
		}
		c.positive(fmt.Sprintf("faults[%d].at", i), f.At)
	}
}

// positive reports a time that is negative.
func (c *completer) positive(path string, t time.Duration) {
	if t < 0 {
		c.errorf(path, "a time of %v; use one that is not negative", t)
	}
}

func (c *completer) times() {
	s := c.spec
	c.positive("drain", s.Drain)
	c.positive("duration", s.Duration)
	c.positive("warmup", s.Warmup)
	if s.Duration == 0 && (c.settled || len(s.Workloads) > 0) {
		c.errorf("duration", "a run without a duration; say for how long flows start, as in duration: 10ms")
	}
	def(&s.Seed, 1)
	if !c.settled || s.Duration <= 0 {
		return
	}
	def(&s.Drain, 5*s.Duration)
	for i := range s.Workloads {
		def(&s.Workloads[i].Duration, max(s.Warmup+s.Duration-s.Workloads[i].Start, 0))
		if s.Workloads[i].Duration == 0 {
			c.errorf(fmt.Sprintf("workloads[%d].start", i), "a start at %v, and the run begins no flows after %v; start earlier, or raise duration", s.Workloads[i].Start, s.Warmup+s.Duration)
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
		c.errorf("measure.large", "large flows of %v and small ones of %v; raise large, or lower small", m.Large, m.Small)
	}
	if !slices.IsSorted(m.Buckets) {
		c.errorf("measure.buckets", "buckets that do not ascend; sort them")
	}
	c.positive("measure.imbalance", m.Imbalance)
	c.positive("measure.reorder", m.Reorder)
	c.positive("measure.tables", m.Tables)
	c.positive("measure.progress", m.Progress)
}

// within returns a file's name relative to dir unless it is absolute.
func within(dir, name string) string {
	if name == "" || filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(dir, name)
}
