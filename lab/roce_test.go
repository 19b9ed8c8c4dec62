package lab

import (
	"bytes"
	"context"
	"math"
	"strings"
	"testing"
)

// unequal is a fabric with a fast and a slow path, and RoCE over both.
const unequal = `dataplane: kernel
leaves: 2
spines: 2
links: {rate: 40Mbit, buffer: 256KB}
hosts: {per-leaf: 2, link: {rate: 20Mbit, buffer: 256KB}}
vnis:
  - {vni: 10}
workloads:
  - {name: rdma, type: roce, from: [L0], to: [L1], sizes: solar-rpc, load: 30, qps: 2, duration: 2s, seed: 3, small: 16KB, large: 60KB}
`

// TestRoCE: ECMP keeps every queue pair's packets in order, and all messages
// arrive; over the kernel's data plane, too.
func TestRoCE(t *testing.T) {
	l, _ := newLab(t, unequal)
	checkOrdered(t, l, "ecmp")
}

// checkOrdered runs the fabric under a scheme that must not reorder.
func checkOrdered(t *testing.T, l *Lab, scheme string) {
	t.Helper()
	rep, err := l.Run(context.Background(), RunOptions{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	gone(t, l, nil, 0)
	w := &rep.Workloads[0]
	if w.RoCE == nil || w.FCT == nil {
		t.Fatalf("no RoCE in the report: %+v", w)
	}
	// A process that the kernel moves to another CPU has two backlogs there for a
	// moment, and a packet of one may overtake the other's: a few in thousands.
	// Spraying reorders one in ten.
	if c := w.RoCE; share(c.Reordered, c.Packets) > 0.5 || c.MaxDistance > 8 || c.Packets < 500 || c.Packets > c.Sent {
		t.Errorf("%s: %+v", scheme, c)
	}
	// 30 % of 40 Mbit/s for 2 s are 76 messages of 39 KB; so many come or more but
	// for one case in a million (Poisson).
	if w.Unfinished+w.Failed+w.Refused > 0 || w.FCT.Flows < 38 || w.ReceivedBytes < 1e6 {
		t.Errorf("%s: %+v, FCT %+v", scheme, w, w.FCT)
	}
	if f := w.FCT; f.Mean <= 0 || f.P50 > f.P99 || f.P99 > f.P999 || f.NormMean != 0 {
		t.Errorf("%s: FCT %+v", scheme, f)
	}
	if s := w.FCTSmall; s == nil || s.Mean > w.FCT.Mean {
		t.Errorf("%s: small messages %+v, all %+v", scheme, s, w.FCT)
	}
	var b bytes.Buffer
	if err := rep.Table(&b); err != nil || !strings.Contains(b.String(), "\nRoCE ") || w.RoCE.Reordered == 0 && !strings.Contains(b.String(), "0 (0.00 %)") {
		t.Errorf("table, %v:\n%s", err, b.String())
	}
	run := CompareRun{Values: rep.values()}
	for _, name := range []string{"rdma FCT mean ms", "rdma FCT p99 ms", "rdma FCT p99.9 ms", "rdma reordered %", "rdma distance max", "rdma retransmitted %"} {
		if math.IsNaN(run.value(name)) {
			t.Errorf("nothing to compare is called %q: %v", name, run.Values)
		}
	}
	if v := run.value("rdma FCT mean ×idle"); !math.IsNaN(v) {
		t.Errorf("a normalised time of %v although nothing was measured to divide by", v)
	}
}

// TestLoomRoCE: over paths of unequal delay, ECMP keeps the order and spraying
// does not, for which Go-Back-N pays.
func TestLoomRoCE(t *testing.T) {
	const slow = unequal + "overrides: [{link: L0-S1.0, direction: up, delay: 5ms}]\n"
	l, _ := withDaemons(t, slow)
	checkOrdered(t, l, "ecmp")

	l, _ = withDaemons(t, slow)
	rep, err := l.Run(context.Background(), RunOptions{Scheme: "spray"})
	if err != nil {
		t.Fatal(err)
	}
	c := rep.Workloads[0].RoCE
	if c == nil || c.Packets < 500 {
		t.Fatalf("spray: %+v", c)
	}
	if share(c.Reordered, c.Packets) < 5 || c.MaxDistance < 2 || c.MeanDistance < 1 || c.MeanDistance > float64(c.MaxDistance) {
		t.Errorf("spray over paths that differ by 5 ms: %+v", c)
	}
	if c.OutOfSequence == 0 || c.Retransmitted == 0 || c.Rewinds == 0 {
		t.Errorf("reordering costs nothing: %+v", c)
	}
}
