package sim

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/loomfabric/loom/fabric"
	"github.com/loomfabric/loom/sim/topo"
)

// fileDrain is for how long flows may go on after the last workload of a
// fabric.yaml, as in the lab.
const fileDrain = fabric.Duration(5 * time.Second)

// hostMTU is that of the hosts of a fabric.yaml. They have segmentation offload
// off, so nothing sends in longer bursts.
const hostMTU = fabric.Bytes(fabric.HostMTU)

// adopt fills in what the experiment leaves to its fabric.yaml: scheme, CONGA's
// parameters, the hosts' congestion control and, if it has none of its own,
// workloads and for how long they run. It returns what is wrong then, and what
// the lab does and the simulator does not.
func (r *run) adopt(f *fabric.File) error {
	s := r.spec
	if len(f.Classes) > 0 {
		return fmt.Errorf("classes: they cannot be simulated: remove them, one scheme is for all")
	}
	def(&s.Scheme, f.Scheme)
	Inherit(&s.Congestion, &f.Congestion)
	if s.Transport.Type != "rdma" {
		def(&s.Transport.CongestionControl, f.TCP)
		def(&s.Transport.Burst, hostMTU)
	}
	if len(s.Workloads) == 0 {
		if err := r.adoptWorkloads(f); err != nil {
			return err
		}
	}
	if problems := s.complete("", true); len(problems) > 0 {
		return problems[0]
	}
	return nil
}

// Inherit sets the parameters that c leaves out to those of a checked file.
func Inherit(c, from *fabric.Congestion) {
	def(&c.Profile, from.Profile)
	def(&c.Q, from.Q)
	def(&c.Tau, from.Tau)
	def(&c.Alpha, from.Alpha)
	def(&c.FlowletGap, from.FlowletGap)
	def(&c.FlowGap, from.FlowGap)
	def(&c.Ageing, from.Ageing)
	def(&c.Detector, from.Detector)
	def(&c.PathMetric, from.PathMetric)
	c.FewestBottlenecks = c.FewestBottlenecks || from.FewestBottlenecks
}

func (r *run) adoptWorkloads(f *fabric.File) error {
	s, end, requests := r.spec, fabric.Duration(0), 0
	for i := range f.Workloads {
		if f.Workloads[i].Type == fabric.Request {
			def(&s.Measure.Small, f.Workloads[i].Small)
			def(&s.Measure.Large, f.Workloads[i].Large)
			if requests++; s.Topology.Load > 0 {
				f.Workloads[i].Load = s.Topology.Load
			}
		}
		w, err := workloadOf(&f.Workloads[i], filepath.Dir(s.Topology.File))
		if err != nil {
			return fmt.Errorf("workloads[%d] (%s): %w", i, f.Workloads[i].Name, err)
		}
		s.Workloads = append(s.Workloads, w)
		end = max(end, w.Start+w.Duration)
	}
	if s.Topology.Load > 0 && requests == 0 {
		return fmt.Errorf("topology.load is %g, and no workload of type request has a load", s.Topology.Load)
	}
	r.adopted = true
	if s.Duration == 0 {
		s.Duration = end - s.Warmup
	}
	def(&s.Drain, fileDrain)
	return nil
}

// workloadOf translates a workload of a fabric.yaml in a directory. It reports
// one that the simulator does not have.
func workloadOf(from *fabric.Workload, dir string) (Workload, error) {
	w := Workload{
		Name: from.Name, From: from.From, To: from.To, Start: from.Start, Duration: from.Duration,
		Flows: from.Flows, Bytes: from.Bytes, FanIn: from.FanIn, Rate: from.Rate, Size: from.Size,
	}
	switch from.Type {
	case fabric.BulkTCP:
		w.Type = Bulk
	case fabric.UDP:
		w.Type = UDP
		w.Flows = 1
	case fabric.Request:
		// Answers are what loads the fabric: servers send.
		w.Type, w.From, w.To = Poisson, from.To, from.From
		w.Pairs, w.Pool, w.Load, w.Sizes = "any", from.Persistent, from.Load, from.Sizes
		if strings.HasSuffix(w.Sizes, ".csv") {
			w.Sizes = within(dir, w.Sizes)
		}
	case fabric.Incast:
		if from.Interval > 0 {
			return w, fmt.Errorf("interval: %v: a simulated query starts when the last one has ended: remove it", from.Interval)
		}
		w.Type, w.Pairs = Incast, "any"
		w.Connections, w.Repeat = 1, maxRepeat
	default:
		return w, fmt.Errorf("type %q cannot be simulated", from.Type)
	}
	return w, nil
}

// maxRepeat is how many queries incast makes that goes on until its time is up.
const maxRepeat = 1 << 30

// fromFile reads a fabric.yaml: its links, hosts, faults, and what the
// experiment leaves to it.
func (r *run) fromFile() (topo.Spec, error) {
	name := r.spec.Topology.File
	f, err := fabric.Load(name)
	if err != nil {
		return topo.Spec{}, err
	}
	if err := r.adopt(f); err != nil {
		return topo.Spec{}, fmt.Errorf("%s: %w", name, err)
	}
	for _, h := range f.Expand().Hosts {
		r.vni = append(r.vni, h.VNI)
	}
	r.file = f
	spec := topo.FromFile(f)
	spec.Faults = append(spec.Faults, topo.FromFaults(r.spec.Faults)...)
	return spec, nil
}
