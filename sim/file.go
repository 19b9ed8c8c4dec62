package sim

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/config/fabric"
	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/internal/units"
	"github.com/loomfabric/loom/internal/yamlfile"
	"github.com/loomfabric/loom/sim/topo"
)

// fileDrain is for how long flows may go on after the last workload of a
// fabric.yaml, as in the lab.
const fileDrain = 5 * time.Second

// hostMTU is that of the hosts of a fabric.yaml. They have segmentation offload
// off, so nothing sends in longer bursts.
const hostMTU = units.Size(fabric.HostMTU)

// adopt fills in what the experiment leaves to its fabric.yaml: scheme, the sections
// congestion and those of schemes, the hosts' congestion control and, if it has none of
// its own, workloads and for how long they run. It returns what is wrong then, and
// what the lab does and the simulator does not.
func (r *run) adopt(f *fabric.File) error {
	s := r.spec
	if len(f.Classes) > 0 {
		return f.Errorf("classes", "traffic classes cannot be simulated; remove them: one scheme is for all")
	}
	if f.Hosts.MTU != fabric.HostMTU {
		return f.Errorf("hosts.mtu", "hosts' MTU of %d cannot be simulated; remove it: %d is for all", f.Hosts.MTU, fabric.HostMTU)
	}
	_ = s.Adopt(f) // what is wrong with it is said below
	if s.Transport.Type != "rdma" {
		def(&s.Transport.CongestionControl, f.TCP)
		if f.Subflows > 0 && s.Transport.Type == "tcp" {
			s.Transport.Type, s.Transport.Subflows = "mptcp", f.Subflows
		}
		def(&s.Transport.Burst, hostMTU)
	}
	if len(s.Workloads) == 0 {
		if err := r.adoptWorkloads(f); err != nil {
			return err
		}
	}
	errs := s.complete("", true, balance.Lab)
	for _, e := range errs {
		if e.File == "" {
			e.File = s.Topology.File
		}
	}
	return errs.Or()
}

// Adopt fills in what the run leaves to its fabric.yaml of scheme, keys beside it and
// sections, key by key. It returns what is wrong with them then.
func (s *Spec) Adopt(f *fabric.File) yamlfile.Errors {
	if def(&s.Scheme, f.Scheme); s.Scheme == f.Scheme {
		s.Keys.Under(&f.Balancing.Keys)
	}
	s.Congestion.Under(&f.Congestion.Section)
	s.Sections.Under(&f.Sections)
	c := &completer{spec: s, settled: true, profile: balance.Lab}
	c.balancing()
	return c.problems
}

func (r *run) adoptWorkloads(f *fabric.File) error {
	s, end, loads := r.spec, time.Duration(0), 0
	for i := range f.Workloads {
		w := f.Workloads[i]
		at := fmt.Sprintf("workloads[%d]", i)
		if w.Type == vocab.RoCE {
			return f.Errorf(at+".type", "a workload of type %s cannot be simulated; use type poisson, and transport.type rdma", w.Type)
		}
		if w.Type == vocab.Poisson {
			def(&s.Measure.Small, w.Small)
			def(&s.Measure.Large, w.Large)
			if loads++; s.Topology.Load > 0 {
				f.Workloads[i].Load, w.Load = s.Topology.Load, s.Topology.Load
			}
			if strings.HasSuffix(w.Sizes, ".csv") {
				w.Sizes = within(filepath.Dir(s.Topology.File), w.Sizes)
			}
		}
		if w.Type == vocab.Incast { // queries go on until the workload's time is up
			w.Connections, w.Repeat = 1, maxRepeat
		}
		w.Seed, w.Small, w.Large = 0, 0, 0 // the experiment's, and its measure's
		w.Push = false                     // the file's, whose flows are those
		s.Workloads = append(s.Workloads, w)
		end = max(end, w.Start+w.Duration)
	}
	if s.Topology.Load > 0 && loads == 0 {
		return f.Errorf("workloads", "no workload of type poisson, whose load topology.load could be; remove topology.load")
	}
	r.adopted = true
	if s.Duration == 0 {
		s.Duration = end - s.Warmup
	}
	def(&s.Drain, fileDrain)
	return nil
}

// maxRepeat is how many queries incast makes that goes on until its time is up.
const maxRepeat = 1 << 30

// fromFile reads a fabric.yaml: its links, hosts, faults, and what the
// experiment leaves to it.
func (r *run) fromFile() (topo.Spec, error) {
	f, err := fabric.Load(r.spec.Topology.File)
	if err != nil {
		return topo.Spec{}, err
	}
	if err := r.adopt(f); err != nil {
		return topo.Spec{}, err
	}
	for _, h := range f.Expand().Hosts {
		r.vni = append(r.vni, h.VNI)
	}
	r.file = f
	spec := topo.FromFile(f)
	spec.Faults = append(slices.Clip(spec.Faults), r.spec.Faults...)
	return spec, nil
}
