package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"
)

const busy = `dataplane: kernel
leaves: 2
spines: 2
links: {parallel: 1, rate: 50Mbit}
hosts: {per-leaf: 3, link: {rate: 100Mbit}}
vnis:
  - {vni: 10}
workloads:
  - {name: bulk, type: tcp, from: [L0], to: [L1], flows: 2, duration: 4s}
  - {name: web, type: request, from: [L1], to: [L0], sizes: solar-rpc, load: 2, duration: 3s, seed: 7}
  - {name: fan, type: incast, from: [h0], to: [L1], fan-in: 3, bytes: 60KB, interval: 200ms, start: 500ms, duration: 2s}
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
	gone(t, l, nil, 0)
	if rep.Failure() != nil || rep.Reachability.Pairs != 30 || rep.Reachability.Reachable != 30 {
		t.Errorf("reachability %d of %d, failure %v", rep.Reachability.Reachable, rep.Reachability.Pairs, rep.Failure())
	}
	w := map[string]WorkloadReport{}
	for _, x := range rep.Workloads {
		w[x.Name] = x
	}
	// Two uplinks of 50 Mbit, one of them down for a third of the time; and not
	// more than they carry.
	if g := w["bulk"].GoodputBits; g < 20e6 || g > 100e6 {
		t.Errorf("bulk goodput %.1f Mbit/s", g/1e6)
	}
	for _, name := range []string{"web", "fan"} {
		f := w[name].FCT
		if f == nil || f.Flows == 0 || f.P50 <= 0 || f.P50 > f.P99 || f.NormMean <= 0 {
			t.Errorf("%s: FCT %+v", name, f)
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
	if len(rep.Timeline) != 4 {
		t.Errorf("%d seconds in the timeline, want 4", len(rep.Timeline))
	}
	var table, js bytes.Buffer
	if err := rep.Table(&table); err != nil || !strings.Contains(table.String(), "30 of 30 pairs") || !strings.Contains(table.String(), "fail L0-S1.0") {
		t.Errorf("table: %v\n%s", err, table.String())
	}
	var back Report
	if err := rep.JSON(&js); err != nil || json.Unmarshal(js.Bytes(), &back) != nil || back.Workloads[0].GoodputBits != rep.Workloads[0].GoodputBits {
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

func TestStatistics(t *testing.T) {
	var flows []flowRecord
	for i := range 1000 {
		flows = append(flows, flowRecord{Bytes: 1000, FCT: time.Duration(1000 - i)})
	}
	if f := fctStats(flows, nil); f.Flows != 1000 || f.Mean != 500 || f.P50 != 500 || f.P99 != 990 || f.P999 != 999 || f.NormMean != 0 || f.NormP99 != 0 {
		t.Errorf("1 to 1000 ns, idle times unknown: %+v", f)
	}
	if f := fctStats(flows[:3], []IdlePoint{{1000, 10}}); math.Abs(f.NormMean-99.9) > 1e-9 || f.NormP50 != 99.9 || f.NormP99 != 100 {
		t.Errorf("998 to 1000 ns instead of 10: %+v", f)
	}
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
