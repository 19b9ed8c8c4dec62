package sim

import (
	"fmt"
	"testing"

	"github.com/loomfabric/loom/internal/yamlfile"
	"github.com/loomfabric/loom/sim/network"
)

// vl2 is a small network as CAAR's (Zhang et al. 2015 §6.1), with ports for 50 packets:
// each host of one rack sends to one of another rack, which two links lead into.
func vl2(t *testing.T, scheme, caar string) *Spec {
	t.Helper()
	doc := yamlfile.Parse("vl2.yaml", "", fmt.Appendf(nil, `
topology: {kind: vl2, leaves: 4, spines: 4, cores: 3, overhead: 0, links: {rate: 10Gbit, delay: 10us, queue: 70KB}, hosts: {per_leaf: 20, link: {rate: 1Gbit, delay: 10us, queue: 70KB}}}
scheme: %s
caar: {%s}
transport: {cc: newreno, mtu: 1400, burst: 1400, window: 28000}
workloads: [{type: stride, from: [L0], stride: 40, stagger: 1ms}]
warmup: 25ms
duration: 20ms
drain: 1ms
measure: {progress: 5ms}
`, scheme, caar))
	s := &Spec{}
	if doc.Decode(s); len(doc.Errs) > 0 {
		t.Fatal(doc.Errs)
	}
	return s
}

// All switches take part, and 20 flows share two links better than under ECMP. A run notes
// what happened in each interval.
func TestCAAR(t *testing.T) {
	r, res := parts(t, vl2(t, "caar", "slot: 50us"))
	if n := res.Scheduler; n["own_updates"] == 0 || n["own_heard"] == 0 || n["own_flows"] < 20 {
		t.Errorf("counted %v", n)
	}
	for _, s := range r.topo.Spines {
		if s.Stats().Control == 0 {
			t.Errorf("%s was told nothing", s.Name)
		}
	}
	_, ecmp := parts(t, vl2(t, "ecmp", ""))
	if res.GoodputBps < 18e9 || res.GoodputBps < 1.05*ecmp.GoodputBps {
		t.Errorf("goodput %.3g bit/s, and %.3g under ecmp", res.GoodputBps, ecmp.GoodputBps)
	}
	p, dropped := ecmp.Progress, ecmp.Conservation
	if len(p) != 9 || p[8].Until != "45ms" || p[8].GoodputBps < 10e9 || p[0].GoodputBps > p[8].GoodputBps {
		t.Errorf("progress %+v", p)
	}
	if dropped.LostPercent <= 0 || dropped.LostPercent != 100*float64(dropped.Dropped)/float64(dropped.Made) {
		t.Errorf("%+v", dropped)
	}
}

// Where many send to one, switches wait, and none of it is PFC.
func TestCAARWaits(t *testing.T) {
	s := vl2(t, "caar", "slot: 50us")
	s.Workloads[0].Type, s.Workloads[0].Stride, s.Workloads[0].To = "bulk", 0, []string{"h45"}
	r, res := parts(t, s)
	if res.Scheduler["own_waits"] == 0 {
		t.Errorf("nothing waits: %v", res.Scheduler)
	}
	if switches, hosts, pauses := held(r); switches == 0 || hosts != 0 || pauses != 0 {
		t.Errorf("switches held ports %d times, hosts %d times, %d pauses", switches, hosts, pauses)
	}
	if res.GoodputBps < 0.9e9 {
		t.Errorf("goodput %.3g of 1 Gbit/s: something waits for ever", res.GoodputBps)
	}
}

// Hosts wait, if they are to, where they send more than a leaf's uplinks carry.
func TestCAARHostsWait(t *testing.T) {
	for _, want := range []bool{false, true} {
		s := vl2(t, "caar", fmt.Sprintf("slot: 50us, pause_hosts: %v", want))
		s.Topology.Links.Rate = 5_000_000_000
		r, res := parts(t, s)
		if _, hosts, pauses := held(r); (hosts > 0) != want || pauses != 0 {
			t.Errorf("pause_hosts %v: hosts waited %d times, %d pauses", want, hosts, pauses)
		}
		if res.GoodputBps < 7e9 { // of few flows that move about: something waits for ever
			t.Errorf("pause_hosts %v: goodput %.3g of 10 Gbit/s", want, res.GoodputBps)
		}
	}
}

// held returns how often ports of switches and of hosts were held, and how often PFC paused
// any.
func held(r *run) (switches, hosts, pauses uint64) {
	for _, p := range r.net.Ports {
		s := p.Stats()
		pauses += s.Pauses
		if _, host := p.Node.(*network.Host); host {
			hosts += s.Holds
		} else {
			switches += s.Holds
		}
	}
	return switches, hosts, pauses
}
