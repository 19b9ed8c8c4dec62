package dataplane

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/overlay"
)

// TestLoopIsFoundAndNamed: a host's frames come back from the fabric. It stays where it
// is, this is counted, and the log names it, once a hold.
func TestLoopIsFoundAndNamed(t *testing.T) {
	r := newRig(t, leafConfig(), leafTables())
	n := node(r)
	var log strings.Builder
	n.log = slog.New(slog.NewTextHandler(&log, nil))
	seen := make([]uint64, 1)
	for range 10 {
		r.send(acc0, udp4(bcast, hostA, 20, 1, 10))
		r.send(up0, wrap(vtep2, own(), 200, udp4(bcast, hostA, 0, 1, 10), nil))
	}
	r.now = r.now.Add(time.Second)
	r.settle()
	if out := r.send(acc1, udp4(hostA, hostB, 30, 1, 10)); len(out[acc0]) != 1 {
		t.Error("the host is not behind its port any more")
	}
	if s := r.w.snapshot(); s.FDBHeld < 5 || s.FDBMoved > 6 {
		t.Errorf("%d frames moved the address, %d did not", s.FDBMoved, s.FDBHeld)
	}
	n.reportMoves(seen)
	n.reportMoves(seen)
	for _, want := range []string{"a local host's own address comes back from the fabric", "vni=200", "mac=" + hostA.String(), `at="port acc0, VLAN 20"`, `seen="vtep ` + vtep2.String() + `"`} {
		if strings.Count(log.String(), want) != 1 {
			t.Errorf("the log does not say %q once: %s", want, log.String())
		}
	}
	log.Reset()
	for i := range 40 { // more than are remembered
		for range 4 {
			r.send(acc0, udp4(bcast, overlay.MAC{2, 8, 0, 0, 0, byte(i)}, 0, 1, 10))
			r.send(acc1, udp4(bcast, overlay.MAC{2, 8, 0, 0, 0, byte(i)}, 0, 1, 10))
		}
	}
	r.now = r.now.Add(time.Second)
	r.settle()
	n.reportMoves(seen)
	if got := strings.Count(log.String(), "address moves too often"); got != 8 || !strings.Contains(log.String(), "addresses=32") {
		t.Errorf("%d lines about 40 addresses: %s", got, log.String())
	}
}
