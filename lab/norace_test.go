//go:build !race

package lab

import (
	"context"
	"testing"
)

// What stands here is about leafd and spined, which are processes of their own that the
// race detector does not see. The lab's own goroutines do under it what they do here in
// TestRunLoom, TestDeadDaemon, TestRoCE and TestIsolationAndVLAN.

// TestLoomTenants: tagged access ports, IPv6 and isolation through the daemons.
func TestLoomTenants(t *testing.T) {
	l, file := withDaemons(t, small)
	up(t, l)
	tenants(t, l, file)
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
	c := rep.Result.Workloads[0].Reordering
	if c == nil || c.Packets < 500 {
		t.Fatalf("spray: %+v", c)
	}
	if c.Percent < 5 || c.MaxDistance < 2 || c.MeanDistance < 1 || c.MeanDistance > float64(c.MaxDistance) {
		t.Errorf("spray over paths that differ by 5 ms: %+v", c)
	}
	if c.OutOfSequence == 0 || c.Retransmitted == 0 || c.Rewinds == 0 {
		t.Errorf("reordering costs nothing: %+v", c)
	}
}
