package sim

import (
	"slices"
	"strings"
	"testing"

	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/internal/measure"
	"github.com/loomfabric/loom/internal/units"
)

// TestConWeave: a fabric with a slow link makes flows move; what both sides of
// the scheme count appears, adds up, and agrees.
func TestConWeave(t *testing.T) {
	slow := units.Rate(25e9)
	for _, scheme := range []string{"conweave", "conweave-informed"} {
		s := lossless(3)
		s.Scheme, s.Measure.Reorder = scheme, us(2)
		s.Topology.Overrides = []vocab.Override{{Link: "L1-S0.0", Rate: &slow}}
		s.Workloads[0].Load = 40
		r, res := parts(t, s)
		c := res.ConWeave
		if c == nil {
			t.Fatal("no result of ConWeave")
		}
		n := c.Counters
		for _, name := range []string{
			"source_epochs", "source_requests", "source_replies", "source_reroutes", "source_clears",
			"destination_arrived_frames", "destination_requests", "destination_replies", "destination_tails", "destination_rerouted_frames", "destination_arrived_bytes",
		} {
			if n[name] == 0 {
				t.Errorf("%s: %s is 0", scheme, name)
			}
		}
		if n["source_requests"] < n["destination_requests"] || n["destination_replies"] < n["source_replies"] || n["source_reroutes"] < n["destination_tails"] {
			t.Errorf("%s: more is received than was sent: %v", scheme, n)
		}
		held := uint64(0)
		for _, l := range r.topo.Leaves {
			side := conweaveOf(l).Counters()
			held += side.Held
			if peak := uint64(side.WaitingPeak); peak > n["destination_waiting_peak_frames"] {
				t.Errorf("%s: %s held %d packets at a time, the most of all is %d", scheme, l.Name, peak, n["destination_waiting_peak_frames"])
			}
		}
		if held != n["destination_held_frames"] {
			t.Errorf("%s: leaves held %d packets, in sum %d", scheme, held, n["destination_held_frames"])
		}
		if c.DataBytes != n["destination_arrived_bytes"] || c.ControlBytes["RTT_REPLY"] == 0 || c.ControlBytes["CLEAR"] == 0 {
			t.Errorf("%s: %d bytes of data, control %v", scheme, c.DataBytes, c.ControlBytes)
		}
		if len(c.Control) != 3 || c.Control[0].Opcode != "RTT_REPLY" || c.Control[0].Percent != 100*float64(c.ControlBytes["RTT_REPLY"])/float64(c.DataBytes) {
			t.Errorf("%s: control beside data: %+v", scheme, c.Control)
		}
		// 100 intervals, for each of 12 host ports and of 3 leaves; the first at once.
		if c.Queues.N != 12*101 || c.Bytes.N != 3*101 {
			t.Errorf("%s: %d samples of queues, %d of bytes", scheme, c.Queues.N, c.Bytes.N)
		}
		for _, d := range []measure.Distribution{c.HoldTimeNs, c.ReplyTimeNs} {
			if d.N == 0 || d.Mean <= 0 || d.Mean > d.Max || d.P50 > d.P99 || len(d.CDF) == 0 || d.CDF[len(d.CDF)-1].Y != 1 {
				t.Errorf("%s: %+v", scheme, d)
			}
		}
	}
	if r := must(t, lossless(2)); r.ConWeave != nil {
		t.Errorf("ecmp has a result of ConWeave: %+v", r.ConWeave)
	}
}

// TestConWeaveKeys: what an experiment tells ConWeave arrives on both sides, and
// the choices of the next tier are the fabric's.
func TestConWeaveKeys(t *testing.T) {
	s := lossless(2)
	s.Scheme = "conweave"
	give("conweave", "{reply: 7us, path_busy: 30us, inactive: 500us, resume_extra: 11us, resume_default: 300us, port_queues: 3, admission: 90}")(s)
	r, err := assemble(s)
	if err != nil {
		t.Fatal(err)
	}
	p := conweaveOf(r.topo.Leaves[0]).Params()
	if p.ResumeExtra != us(11) || p.ResumeDefault != us(300) || p.Inactive != us(500) || p.PortQueues != 3 ||
		p.Admission != 90 || p.NotifyInterval != us(4) || p.MaxHold != us(2000) || p.Ports != 4 || p.Leaves != 2 {
		t.Errorf("destination: %+v", p)
	}
	for kind, want := range map[string]int{"fat-tree": 2, "leaf-spine": 1, "parallel": 2} {
		s := lossless(2)
		s.Scheme, s.Workloads[0].Load = "conweave", 20
		switch kind {
		case "fat-tree":
			s.Topology.Kind, s.Topology.K, s.Topology.Leaves, s.Topology.Spines = kind, 4, 0, 0
		case "parallel":
			s.Topology.Links.Parallel = 2
		}
		r, err := assemble(s)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.topo.Selectors(); got != want {
			t.Errorf("%s: %d choices behind a leaf's uplink, want %d", kind, got, want)
		}
	}
}

// TestCounterNames: results list counters by names of words, as metrics do.
func TestCounterNames(t *testing.T) {
	s := lossless(2)
	s.Scheme = "conweave"
	var names []string
	for name := range must(t, s).ConWeave.Counters {
		if name != strings.ToLower(name) || strings.Contains(name, "__") {
			t.Errorf("counter %q", name)
		}
		names = append(names, name)
	}
	for _, want := range []string{"source_late_replies", "destination_queues_peak", "destination_waiting_peak_bytes", "destination_no_queue"} {
		if !slices.Contains(names, want) {
			t.Errorf("no counter %q", want)
		}
	}
}
