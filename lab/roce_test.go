package lab

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

// unequal is a fabric with a fast and a slow path, and RoCE over both.
const unequal = `dataplane: kernel
leaves: 2
spines: 2
links: {rate: 40Mbit, queue: 256KB}
hosts: {per_leaf: 2, link: {rate: 20Mbit, queue: 256KB}}
vnis:
  - {vni: 10}
workloads:
  - {name: rdma, type: roce, from: [L0], to: [L1], sizes: solar-rpc, load: 30, of: hosts, qps: 2, duration: 2s, seed: 3, small: 16KB, large: 60KB}
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
	gone(t, l, 0)
	w, fct := &rep.Result.Workloads[0], rep.Result.FCT
	if w.Reordering == nil || len(fct) < 2 || fct[1].Class != "small" {
		t.Fatalf("no RoCE in the report: %+v, FCT %+v", w, fct)
	}
	// A thread that the kernel moves to another CPU has two backlogs there for a
	// moment, and a packet of one may overtake the other's: a few in thousands.
	// Spraying reorders one in ten.
	if c := w.Reordering; c.Percent > 0.5 || c.MaxDistance > 8 || c.Packets < 500 || c.Packets > c.Sent {
		t.Errorf("%s: %+v", scheme, c)
	}
	// 30 % of 40 Mbit/s for 2 s are 76 messages of 39 KB; so many come or more but
	// for one case in a million (Poisson).
	if w.Unfinished+w.Failed+w.Refused > 0 || fct[0].Flows < 38 || w.ReceivedBytes < 1e6 {
		t.Errorf("%s: %+v, FCT %+v", scheme, w, fct)
	}
	// Nothing was measured that a time could be divided by.
	if f := fct[0]; f.MeanS <= 0 || f.P50S > f.P99S || f.P99S > f.P999S || f.Norm != 0 || f.SlowdownMean != 0 {
		t.Errorf("%s: FCT %+v", scheme, f)
	}
	if fct[1].MeanS > fct[0].MeanS {
		t.Errorf("%s: small messages %+v, all %+v", scheme, fct[1], fct[0])
	}
	var b bytes.Buffer
	if err := rep.Table(&b); err != nil || !strings.Contains(b.String(), "\nRoCE ") || w.Reordering.Reordered == 0 && !strings.Contains(b.String(), "0 (0.00 %)") {
		t.Errorf("table, %v:\n%s", err, b.String())
	}
}
