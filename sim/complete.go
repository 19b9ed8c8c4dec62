package sim

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/fabric"
	"github.com/loomfabric/loom/workload"
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
	problems []*Problem
}

func (c *completer) errorf(path, format string, args ...any) {
	c.problems = append(c.problems, &Problem{path, fmt.Sprintf(format, args...)})
}

// oneOf reports a word that is not in the list.
func (c *completer) oneOf(path, word string, words ...string) {
	if !slices.Contains(words, word) {
		c.errorf(path, "%q does not exist: write one of %s", word, strings.Join(words, ", "))
	}
}

// Complete fills in defaults, and returns all that is wrong without a look at
// files or at how the parts fit: [Run] reports the rest. File names that are
// relative become relative to dir. It may be called again.
func (s *Spec) Complete(dir string) []*Problem {
	c := &completer{spec: s}
	if s.Scheme == "" {
		s.Scheme = "ecmp"
	}
	c.oneOf("scheme", s.Scheme, balance.Names()...)
	c.congestion()
	c.topology(dir)
	c.transport()
	if len(s.Workloads) == 0 && s.Topology.Kind != "file" {
		c.errorf("workloads", "there are none: nothing would happen")
	}
	for i := range s.Workloads {
		c.workload(i, dir)
	}
	c.times()
	c.measure()
	return c.problems
}

func def[T comparable](v *T, value T) {
	var zero T
	if *v == zero {
		*v = value
	}
}

func (c *completer) congestion() {
	k := &c.spec.Congestion
	def(&k.Profile, "datacenter")
	c.oneOf("congestion.profile", k.Profile, "lab", "datacenter")
	def(&k.Detector, "timestamp")
	c.oneOf("congestion.detector", k.Detector, "timestamp", "agebit")
	def(&k.PathMetric, "max")
	c.oneOf("congestion.path_metric", k.PathMetric, "max", "sum")
	p := k.Params()
	if err := p.Validate(); err != nil {
		c.errorf("congestion", "%v", err)
	}
}

func (c *completer) topology(dir string) {
	t := &c.spec.Topology
	def(&t.Kind, "leaf-spine")
	c.oneOf("topology.kind", t.Kind, "leaf-spine", "fat-tree", "three-layer", "vl2", "file")
	if t.Kind == "file" {
		if t.File == "" {
			c.errorf("topology.file", "kind file needs the name of a fabric.yaml")
		}
		t.File = within(dir, t.File)
	} else if t.File != "" {
		c.errorf("topology.file", "it is for kind file, not for %s", t.Kind)
	}
	def(&t.Parallel, 1)
	def(&t.Delay, fabric.Duration(time.Microsecond))
	def(&t.HostDelay, t.Delay)
	def(&t.Alpha, 1)
	if t.Overhead == nil {
		overhead := 50
		t.Overhead = &overhead
	}
	if *t.Overhead < 0 || *t.Overhead > 1000 {
		c.errorf("topology.overhead", "%d bytes: use 0 to 1000", *t.Overhead)
	}
	if t.Kind != "file" {
		for _, r := range []struct {
			key  string
			rate fabric.Rate
		}{{"host-rate", t.HostRate}, {"rate", t.Rate}} {
			if r.rate == 0 {
				c.errorf("topology."+r.key, "it is missing: a link without a rate has no queue")
			}
		}
	}
	if t.Buffer != 0 && t.PortBuffer != 0 {
		c.errorf("topology.port-buffer", "buffer is set too: choose a shared buffer or one for each port")
	}
	if t.PFC && t.Buffer == 0 {
		c.errorf("topology.pfc", "it needs a shared buffer: set buffer")
	}
	if t.Alpha < 0 {
		c.errorf("topology.alpha", "%g: use a number above 0", t.Alpha)
	}
	if e := t.ECN; e != nil && (e.Kmax < e.Kmin || e.Kmax == 0 || !(e.Pmax >= 0 && e.Pmax <= 1)) {
		c.errorf("topology.ecn", "kmin %v, kmax %v, pmax %g: kmax must be kmin or more and above 0, pmax from 0 to 1", e.Kmin, e.Kmax, e.Pmax)
	}
	for i := range t.Overrides {
		def(&t.Overrides[i].Direction, "both")
		c.oneOf(fmt.Sprintf("topology.overrides[%d].direction", i), t.Overrides[i].Direction, "up", "down", "both")
	}
}

func (c *completer) transport() {
	t := &c.spec.Transport
	def(&t.Type, "tcp")
	c.oneOf("transport.type", t.Type, "tcp", "rdma")
	if t.Type == "rdma" {
		def(&t.CongestionControl, "dcqcn")
		c.oneOf("transport.cc", t.CongestionControl, "dcqcn", "none")
		def(&t.Recovery, "gbn")
		c.oneOf("transport.recovery", t.Recovery, "gbn", "irn")
		def(&t.Payload, 1000)
		if t.MTU != 0 || t.MinRTO != 0 || t.Window != 0 || t.Burst != 0 {
			c.errorf("transport", "mtu, min-rto, window and burst are TCP's")
		}
		return
	}
	def(&t.CongestionControl, "cubic")
	c.oneOf("transport.cc", t.CongestionControl, "newreno", "cubic", "dctcp")
	def(&t.MTU, 1500)
	def(&t.MinRTO, fabric.Duration(200*time.Millisecond))
	def(&t.Window, 2<<20)
	def(&t.Burst, 64<<10)
	if t.MTU < 256 || t.MTU > 9216 {
		c.errorf("transport.mtu", "%d: use 256 to 9216", t.MTU)
	}
	if t.Recovery != "" || t.Payload != 0 {
		c.errorf("transport", "recovery and payload are RDMA's")
	}
}

func (c *completer) workload(i int, dir string) {
	w, at := &c.spec.Workloads[i], fmt.Sprintf("workloads[%d].", i)
	def(&w.Type, Poisson)
	c.oneOf(at+"type", w.Type, Poisson, Bulk, Incast, Stride, Permutation, AllToAll, UDP, Trace)
	def(&w.Name, fmt.Sprintf("%s%d", w.Type, i))
	if w.From == nil {
		w.From = []string{"all"}
	}
	if w.To == nil {
		w.To = []string{"all"}
	}
	def(&w.Pairs, "racks")
	c.oneOf(at+"pairs", w.Pairs, "racks", "any")
	def(&w.Of, "fabric")
	c.oneOf(at+"of", w.Of, "fabric", "hosts")
	def(&w.Scale, 1)
	def(&w.Flows, 1)
	if w.Scale < 0 || w.Load < 0 || w.Connections < 0 || w.Flows < 0 || w.FanIn < 0 || w.Repeat < 0 {
		c.errorf(at+"type", "a number is negative")
	}
	need := func(key string, missing bool) {
		if missing {
			c.errorf(at+key, "workload %s needs it", w.Type)
		}
	}
	switch w.Type {
	case Poisson:
		need("sizes", w.Sizes == "")
		need("load", w.Load == 0)
		if strings.HasSuffix(w.Sizes, ".csv") {
			w.Sizes = within(dir, w.Sizes)
		} else if w.Sizes != "" {
			c.oneOf(at+"sizes", w.Sizes, workload.Names()...)
		}
	case Incast:
		def(&w.Repeat, 1)
		need("fan-in", w.FanIn == 0)
		need("bytes", w.Bytes == 0)
	case Stride:
		need("stride", w.Stride == 0)
	case UDP:
		def(&w.Size, 1400)
		need("rate", w.Rate == 0)
	case Trace:
		need("file", w.File == "")
		w.File = within(dir, w.File)
	}
}

func (c *completer) times() {
	s := c.spec
	if s.Duration <= 0 && s.Topology.Kind != "file" {
		c.errorf("duration", "it is missing: for how long do flows start?")
	}
	def(&s.Drain, 5*s.Duration)
	def(&s.Seed, 1)
	for i := range s.Workloads {
		def(&s.Workloads[i].Duration, s.Warmup+s.Duration)
	}
}

func (c *completer) measure() {
	m := &c.spec.Measure
	def(&m.Small, 100_000)
	def(&m.Large, 10_000_000)
	if m.Large <= m.Small {
		c.errorf("measure.large", "%v: it must be more than small, which is %v", m.Large, m.Small)
	}
	if !slices.IsSorted(m.Buckets) {
		c.errorf("measure.buckets", "they must ascend")
	}
}

// within returns a file's name relative to dir unless it is absolute.
func within(dir, name string) string {
	if name == "" || filepath.IsAbs(name) || dir == "" || strings.HasPrefix(name, dir+string(filepath.Separator)) {
		return name
	}
	return filepath.Join(dir, name)
}
