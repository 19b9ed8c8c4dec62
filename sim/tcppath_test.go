package sim

import (
	"testing"
	"time"

	"github.com/loomfabric/loom/config/fabric"
	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/sim/network"
)

// paperFabric is TCP-Path's (§V-B), with fewer hosts and flows a tenth in size.
func paperFabric(scheme string) *Spec {
	s := small()
	s.Topology = leafSpine(4, 4, 5, 1e9, 1e9, 150e3)
	s.Transport.CongestionControl = "newreno"
	s.Workloads = []vocab.Workload{{Sizes: "web-search", Load: 40, Scale: 0.1}}
	s.Duration, s.Drain = 150*time.Millisecond, time.Second
	s.Measure.Small, s.Measure.Large = 10e3, 1e6
	s.Scheme = scheme
	return s
}

// Under tcp-path every connection explores once, nothing is reordered, and one copy of
// each SYN arrives; and a connection that has its path goes nowhere else.
func TestTCPPath(t *testing.T) {
	r, res := parts(t, paperFabric("tcp-path"))
	n := res.Scheduler
	flows := uint64(res.Flows)
	if n["own_explorations"] < flows || n["own_explorations"] > flows*103/100 || n["own_exploration_frames"] != 4*n["own_explorations"] {
		t.Errorf("%d flows explored %d times with %d packets", flows, n["own_explorations"], n["own_exploration_frames"])
	}
	if n["receiver_late_frames"] != res.Drops["duplicate"] || n["receiver_requests_frames"]+n["receiver_late_frames"] > n["own_exploration_frames"] {
		t.Errorf("copies: %v, dropped %v", n, res.Drops)
	}
	if n["own_missed_frames"]+n["own_waiting_frames"]+n["own_broken_frames"]+n["own_other_frames"]+n["own_recoveries"] != 0 {
		t.Errorf("packets that took no explored path: %v", n)
	}
	if res.Transport["reordered_segments"] != 0 {
		t.Errorf("%d segments were reordered", res.Transport["reordered_segments"])
	}
	sum := 0
	for _, l := range r.topo.Leaves {
		sum += int(l.Stats().Requests)
	}
	if x := res.Exploration; x == nil || int(x.Requests) != sum || x.OfFormula < 0.9 || x.OfFormula > 1.1 {
		t.Errorf("exploration %+v, leaves counted %d requests", x, sum)
	}
	if res := must(t, paperFabric("ecmp")); res.Exploration != nil || res.Tables != nil {
		t.Errorf("ecmp explores: %+v", res.Exploration)
	}
}

// TFE explores for large flows alone, and its table has a small part of TCP-Path's
// entries.
func TestTFE(t *testing.T) {
	run := func(scheme string) (explorations, large uint64, entries float64) {
		s := paperFabric(scheme)
		s.Measure.Tables = 50 * time.Millisecond
		if scheme == "tfe" {
			give("elephant_size", "1MB")(s)
		}
		res := must(t, s)
		for _, c := range res.FCT {
			if c.Class == "large" {
				large = uint64(c.Flows)
			}
		}
		if len(res.Tables) != 5 || res.Tables[0].Name != "all" || res.Tables[0].N != 4*4 {
			t.Errorf("tables %+v", res.Tables)
		}
		return res.Scheduler["own_explorations"], large, res.Tables[0].Mean
	}
	explorations, large, entries := run("tfe")
	if explorations != large || large == 0 {
		t.Errorf("%d large flows, %d explorations", large, explorations)
	}
	if _, _, all := run("tcp-path"); entries <= 0 || entries > 0.1*all {
		t.Errorf("%.1f entries, tcp-path has %.1f", entries, all)
	}
}

// Where spines flood, what it costs to explore is Equation 3's (TCP-Path §V-D.2).
func TestFloodCostsWhatTheFormulaSays(t *testing.T) {
	for _, leaves := range []int{2, 4, 6} {
		s := paperFabric("tcp-path")
		s.Topology.Leaves, s.Topology.Flood = leaves, true
		none := 0
		s.Topology.Overhead = &none
		s.Duration = 100 * time.Millisecond
		res := must(t, s)
		x := res.Exploration
		n, copies := res.Scheduler["own_explorations"], uint64(4*(leaves-1))
		if x.Requests > n*copies || x.Requests < n*copies*98/100 {
			t.Errorf("%d leaves: %d requests, of %d explorations", leaves, x.Requests, n)
		}
		near(t, "measured ÷ formula", x.OfFormula, 1, 0.1)
		if x.RequestBytes != 74*x.Requests { // a SYN with its options
			t.Errorf("%d bytes of %d requests", x.RequestBytes, x.Requests)
		}
	}
}

// A link fails under load: the connections on it look for another path as soon as the
// leaves know, and all of them end.
func TestTCPPathRecovery(t *testing.T) {
	s := paperFabric("tcp-path")
	s.Faults = []vocab.Fault{{At: 60 * time.Millisecond, Fail: "L0-S1.0"}}
	s.Drain = 3 * time.Second
	res := must(t, s)
	n := res.Scheduler
	// L0 loses its uplink to the three others, and they lose theirs to L0.
	if n["own_path_fails_sent"] != 6 || n["own_path_fails_received"] != 6 {
		t.Errorf("%d PathFails were sent, %d received", n["own_path_fails_sent"], n["own_path_fails_received"])
	}
	if n["own_recoveries"] == 0 || n["own_broken_frames"] < n["own_recoveries"] || n["own_explorations"] < uint64(res.Flows)+n["own_recoveries"] || res.Unfinished != 0 {
		t.Errorf("%d flows, %d not finished: %v", res.Flows, res.Unfinished, n)
	}
	if res.Drops["duplicate"] != n["receiver_late_frames"] {
		t.Errorf("%d copies were dropped, %d came late", res.Drops["duplicate"], n["receiver_late_frames"])
	}
}

// Data and acknowledgements of a connection pass the same links, in every fabric in which
// a PathID names the way, both ways.
func TestTCPPathIsSymmetric(t *testing.T) {
	for name, change := range map[string]func(s *Spec){
		"leaf-spine": func(*Spec) {},
		"fat-tree": func(s *Spec) {
			s.Topology.Kind, s.Topology.K, s.Topology.Leaves, s.Topology.Spines = "fat-tree", 4, 0, 0
		},
		"altoona": func(s *Spec) {
			s.Topology.Kind, s.Topology.Leaves, s.Topology.Spines, s.Topology.Cores = "altoona", 4, 8, 4
		},
	} {
		for seed := range uint64(5) {
			s := paperFabric("tcp-path")
			s.Seed = 1 + seed
			s.Topology.Hosts = fabric.Hosts{PerLeaf: 1, Link: s.Topology.Hosts.Link}
			s.Workloads = []vocab.Workload{{Type: vocab.Bulk, From: []string{"h0"}, To: []string{"h3"}, Bytes: 1e6}}
			change(s)
			r, res := parts(t, s)
			if res.Flows != 1 || res.Unfinished != 0 {
				t.Fatalf("%s: %+v", name, res)
			}
			used := 0
			for _, l := range r.topo.Links {
				if _, host := l.A.Node.(*network.Host); host {
					continue
				}
				a, b := l.A.Stats().Bytes[network.DataClass], l.B.Stats().Bytes[network.DataClass]
				if data := max(a, b); data > 1e6 {
					used++
					if acks := min(a, b); acks < 20e3 || acks > 100e3 {
						t.Errorf("%s, seed %d: link %s had %d bytes there and %d back", name, seed, l.Name, a, b)
					}
				} else if data > 1000 { // copies of the SYN
					t.Errorf("%s, seed %d: link %s, on no way of the flow, had %d bytes", name, seed, l.Name, data)
				}
			}
			if used != 2 && used != 4 {
				t.Errorf("%s, seed %d: the flow passed %d links", name, seed, used)
			}
		}
	}
}
