package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/config/fabric"
	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/internal/measure"
	"github.com/loomfabric/loom/internal/workload"
)

const busy = `dataplane: kernel
leaves: 2
spines: 2
links: {parallel: 1, rate: 50Mbit}
hosts: {per_leaf: 3, link: {rate: 100Mbit}}
vnis:
  - {vni: 10}
workloads:
  - {name: bulk, type: bulk, from: [L0], to: [L1], flows: 2, duration: 4s}
  - {name: web, type: poisson, from: [L0], to: [L1], sizes: solar-rpc, load: 2, duration: 3s, seed: 7}
  - {name: push, type: poisson, push: true, from: [L0], to: [L1], sizes: solar-rpc, load: 2, duration: 3s, seed: 8}
  - {name: fan, type: incast, from: [h0], to: [L1], fan_in: 3, bytes: 60KB, interval: 200ms, start: 500ms, duration: 2s}
  - {name: cbr, type: udp, from: [h5], to: [h2], rate: 2Mbit, size: 500, start: 500ms, duration: 2s}
faults:
  - {at: 1500ms, fail: L0-S1.0}
  - {at: 3s, restore: L0-S1.0}
`

// TestRun runs every kind of workload over the kernel's data plane, through a
// failure, and holds the report against what was asked for.
func TestRun(t *testing.T) {
	l, _ := newLab(t, busy)
	rep, err := l.Run(context.Background(), RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	gone(t, l, 0)
	if rep.Failure() != nil || rep.Reachability.Pairs != 30 || rep.Reachability.Reachable != 30 {
		t.Errorf("reachability %d of %d, failure %v", rep.Reachability.Reachable, rep.Reachability.Pairs, rep.Failure())
	}
	w := map[string]measure.WorkloadResult{}
	for _, x := range rep.Result.Workloads {
		w[x.Name] = x
	}
	// Two uplinks of 50 Mbit, one of them down for a third of the time; and not
	// more than they carry.
	if g := w["bulk"].GoodputBps; g < 20e6 || g > 100e6 {
		t.Errorf("bulk goodput %.1f Mbit/s", g/1e6)
	}
	if w["push"].ReceivedBytes == 0 {
		t.Error("nothing of what was pushed arrived")
	}
	for _, name := range []string{"web", "push", "fan"} {
		f := w[name].FCT
		if len(f) < 2 || f[0].Class != "all" || f[0].Flows != w[name].Flows || f[0].P50S <= 0 || f[0].P50S > f[0].P99S || f[0].Norm <= 0 || f[0].SlowdownMean <= 0 {
			t.Errorf("%s: %d flows, FCT %+v", name, w[name].Flows, f)
		}
		if w[name].Failed > 0 {
			t.Errorf("%s: %d flows failed", name, w[name].Failed)
		}
	}
	if s := w["cbr"]; s.DatagramsSent < 900 || s.DatagramsSent > 1001 || s.DatagramsReceived < s.DatagramsSent/2 || s.DatagramsReceived > s.DatagramsSent {
		t.Errorf("cbr: sent %d, received %d datagrams; 2 s at 2 Mbit/s are 1000 of 500 bytes", s.DatagramsSent, s.DatagramsReceived)
	}
	if len(rep.Faults) != 2 || rep.Faults[0].Action != "fail" || rep.Faults[0].AfterBits <= 0 {
		t.Fatalf("faults %+v", rep.Faults)
	}
	if len(rep.Phases) != 3 {
		t.Fatalf("%d phases, want 3", len(rep.Phases))
	}
	for _, u := range rep.Phases[1].Leaves[0].Uplinks {
		if down := u.Link == "L0-S1.0"; down == u.Up || down != (u.Bytes == 0) {
			t.Errorf("while L0-S1.0 was down: %+v", u)
		}
	}
	res := rep.Result
	if n := w["web"].Flows + w["push"].Flows + w["fan"].Flows; res.Flows != n || res.FCT[0].Flows != n || res.LengthS < 4 || res.GoodputBps < 10e6 || res.Load != 2 || res.Seed == 0 {
		t.Errorf("of all: %+v", res)
	}
	// From one start to the next one's there are no samples here; the uplinks'
	// counters there are.
	if len(res.Uplinks) != 4 || res.Uplinks[0].Link != "L0->S0.0" || res.Uplinks[0].Bytes == 0 || math.Abs(res.Uplinks[0].Percent+res.Uplinks[1].Percent-100) > 1e-9 || res.Phases != nil {
		t.Errorf("uplinks %+v, phases %+v", res.Uplinks, res.Phases)
	}
	if len(rep.Timeline) != 4 {
		t.Errorf("%d seconds in the timeline, want 4", len(rep.Timeline))
	}
	var table, js bytes.Buffer
	if err := rep.Table(&table); err != nil || !strings.Contains(table.String(), "30 of 30 pairs") || !strings.Contains(table.String(), "fail L0-S1.0") {
		t.Errorf("table: %v\n%s", err, table.String())
	}
	var back Report
	if err := rep.JSON(&js); err != nil || json.Unmarshal(js.Bytes(), &back) != nil || back.Result.Workloads[0].GoodputBps != rep.Result.Workloads[0].GoodputBps {
		t.Errorf("JSON: %v", err)
	}
}

// TestRunKeepsWhatWasUp: run uses a lab that is up and leaves it up.
func TestRunKeepsWhatWasUp(t *testing.T) {
	l, file := newLab(t, small)
	up(t, l)
	rep, err := New(l.File).Run(context.Background(), RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if rep.Reachability.Pairs != 4 || rep.Reachability.Reachable != 4 {
		t.Errorf("reachability %+v", rep.Reachability)
	}
	if code, out := inHost(t, file, "h0", "true"); code != 0 {
		t.Errorf("the lab is gone: %s", out)
	}
}

func TestUnreachableIsSaid(t *testing.T) {
	l, file := newLab(t, small)
	up(t, l)
	if code, out := inHost(t, file, "h2", "ip", "link", "set", "eth0", "down"); code != 0 {
		t.Fatal(out)
	}
	rep, err := New(l.File).Run(context.Background(), RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if rep.Reachability.Reachable != 2 || rep.Failure() == nil {
		t.Errorf("reachable %d, failure %v", rep.Reachability.Reachable, rep.Failure())
	}
}

func TestLookup(t *testing.T) {
	points := []IdlePoint{{1000, 1 * time.Millisecond}, {10_000, 10 * time.Millisecond}, {100_000, 55 * time.Millisecond}}
	for bytes, want := range map[uint64]time.Duration{
		1: time.Millisecond, 1000: time.Millisecond, 5500: 5500 * time.Microsecond, 55_000: 32500 * time.Microsecond,
		100_000: 55 * time.Millisecond, 200_000: 105 * time.Millisecond,
	} {
		if got := lookup(points, bytes); got != want {
			t.Errorf("idle time of %d bytes: %v, want %v", bytes, got, want)
		}
	}
	if lookup(nil, 5) != 0 || lookup(points[:1], 1e6) != time.Millisecond {
		t.Error("short tables")
	}
}

// TestResult: flows that did not finish count with their age at the end, in the
// classes of their workload, whatever kept them from it; messages that only their
// senders take for unfinished do not.
func TestResult(t *testing.T) {
	ms := time.Millisecond
	l := &Lab{File: &fabric.File{Workloads: []vocab.Workload{
		{Name: "web", Type: vocab.Poisson, Small: 2000, Large: 4000, Load: 30, Seed: 7, Duration: time.Duration(time.Second)},
		{Name: "rdma", Type: vocab.RoCE, Small: 10, Large: 20, Start: time.Duration(500 * ms), Duration: time.Duration(500 * ms)},
	}}}
	rep := &Report{Result: &measure.Result{Scheme: "ecmp"}, Duration: 3 * time.Second, LoadEnd: time.Second, IdleFresh: []IdlePoint{{1000, 10 * ms}, {10_000, 100 * ms}}, Uplinks: []UplinkSeries{{
		Leaf: "L0", Links: []string{"L0-S0.0", "L0-S1.0"}, At: []time.Duration{0, 500 * ms, 1000 * ms}, Bits: [][]uint64{{0, 0}, {3e6, 1e6}, {1e6, 1e6}},
	}}}
	c := newLoad(time.Now(), 3*time.Second, l.File.Workloads, make([]*workload.CDF, 2))
	c.works[0].flows = []flowRecord{
		{bytes: 1000, start: 0, fct: 20 * ms},         // twice the idle time
		{bytes: 10_000, start: 1000 * ms, open: true}, // 2 s old, 20 times
		{bytes: 1000, start: 2995 * ms, open: true},   // younger than a flow takes
	}
	c.works[1].flows = []flowRecord{
		{bytes: 15, start: 600 * ms, fct: 5 * ms}, // arrived ...
		{bytes: 15, start: 600 * ms, open: true},  // ... and not acknowledged
		{bytes: 15, start: 700 * ms, open: true},
	}
	c.works[0].received[0].Store(125_000)
	c.works[0].failed.Store(1)
	(&runner{lab: l, rep: rep}).result(c)
	res := rep.Result
	if res.Flows != 5 || res.Unfinished != 3 || res.End != "time" || res.Load != 30 || res.Seed != 7 || res.LengthS != 3 || res.GoodputBps != 1e6 {
		t.Errorf("%+v", res)
	}
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-9 {
			t.Errorf("%s: %g, want %g", what, got, want)
		}
	}
	web, rdma := res.Workloads[0], res.Workloads[1]
	if len(web.FCT) != 3 || web.FCT[1].Class != "small" || web.FCT[1].Flows != 2 || web.FCT[2].Class != "large" || web.Failed != 1 || web.Unfinished != 2 {
		t.Fatalf("%+v", web)
	}
	near("mean", web.FCT[0].MeanS, (0.02+2+0.01)/3)
	near("slowdown", web.FCT[0].SlowdownMean, (2+20+1)/3.0)
	near("norm", web.FCT[0].Norm, 2.03/0.12)
	if rdma.Flows != 2 || rdma.Unfinished != 1 || len(rdma.FCT) != 2 || rdma.FCT[1].Class != "medium" || rdma.FCT[0].SlowdownMean != 0 {
		t.Errorf("%+v", rdma)
	}
	near("RDMA's mean", rdma.FCT[0].MeanS, (0.005+2.3)/2)
	near("all flows' mean", res.FCT[0].MeanS, (2.03+2.305)/5)
	if len(res.Phases) != 4 || res.Phases[0].Link != "L0->S0.0 from 0s" || res.Phases[0].Percent != 75 || res.Phases[3].Link != "L0->S1.0 from 500ms" || res.Phases[3].Percent != 50 {
		t.Errorf("phases %+v", res.Phases)
	}
}

func TestFaultMeasure(t *testing.T) {
	total := make([]uint64, 40)
	for i := range total {
		total[i] = 1000
	}
	total[20], total[21], total[25] = 0, 0, 0
	f := FaultReport{At: 2 * time.Second}
	f.measure(total)
	if f.BeforeBits != 80_000 || f.AfterBits != 56_000 || f.LongestGap != 200*time.Millisecond {
		t.Errorf("fault %+v", f)
	}
}
