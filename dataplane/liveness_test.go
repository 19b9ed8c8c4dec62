package dataplane

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/liveness"
	"github.com/loomfabric/loom/overlay"
)

// A HELLO that is padded is as long as the longest frame that a host may send by that
// path, and no longer than the path's first link lets through.
func TestPaddedHellos(t *testing.T) {
	tables := leafTables()
	tables.Ports[up1].MTU = 1520
	r := newRig(t, leafConfig(), tables)
	r.w.leaf.brain.SetHello(r.now)
	lengths := map[PortID]map[int]int{up0: {}, up1: {}}
	for end := r.now.Add(2 * liveness.LargeEvery * liveness.Interval(2)); r.now < end; r.now = r.w.leaf.brain.Deadline() {
		out := r.settle()
		for port, seen := range lengths {
			for _, b := range out[port] {
				var d overlay.Decapped
				var h overlay.Hello
				if why := overlay.Decap(b, overlay.DefaultPort, &d); why != drop.None || h.Decode(b[d.Inner:d.End]) != drop.None {
					t.Fatalf("a HELLO cannot be read: %v", why)
				}
				if small := overlay.MaxOverhead + overlay.EthernetLen + overlay.HelloLen; h.Large == (len(b) == small) {
					t.Errorf("%d bytes, padded: %v", len(b), h.Large)
				}
				seen[len(b)]++
			}
		}
	}
	const longest = 1500 + overlay.EthernetLen + overlay.Overhead // ecmp adds no shim
	if lengths[up0][longest] != 4 || lengths[up1][1520+overlay.EthernetLen] != 4 || len(lengths[up0]) != 2 || len(lengths[up1]) != 2 {
		t.Errorf("lengths of HELLOs to two peers: %v, want 4 of %d and %d bytes", lengths, longest, 1520+overlay.EthernetLen)
	}
	if d := r.drops(); len(d) != 0 {
		t.Errorf("drops: %v", d)
	}
}

// A HELLO of another version, or without a body, is dropped by name and proves nothing.
func TestHelloThatCannotBeRead(t *testing.T) {
	r := newRig(t, leafConfig(), leafTables())
	short := make([]byte, overlay.EthernetLen+overlay.HelloLen-1)
	overlay.Ethernet(short).SetEtherType(overlay.EtherTypeLocal)
	other := append(bytes.Clone(short), 0)
	other[overlay.EthernetLen] = 9
	for _, inner := range [][]byte{short, other, udp4(hostA, hostB, 0, 1, 100)} {
		r.send(up0, wrap(vtep2, own(), 0, inner, &overlay.Fabric{Capable: true, Opcode: overlay.OpHello, Shim: true}))
	}
	if d := r.drops(); d[drop.BadHello] != 3 || r.w.consumed != 0 || r.w.shared.leaf.Capable.Capable(0, r.now) {
		t.Errorf("drops %v, %d consumed", d, r.w.consumed)
	}
}

// What goes by a dead path is known to the node, and the log says when that begins and
// ends, once.
func TestPathsAreReported(t *testing.T) {
	f := newTwoLeaves(t, "ecmp")
	n := node(f.a)
	var log bytes.Buffer
	n.log = slog.New(slog.NewTextHandler(&log, nil))
	n.view.Store(f.a.w.view)
	report := pathReporter{node: n, was: make(map[pathKey]string)}
	rounds := func(want int, dead bool) {
		t.Helper()
		for range 25 {
			for _, r := range []*rig{f.a, f.b} {
				r.w.leaf.brain.SetHello(0)
				out := r.settle()
				if dead && r == f.a {
					out[up1] = nil
				}
				f.carry(r, out)
				r.w.leaf.brain.SetHello(idle)
			}
			report.report(f.a.now)
			f.pass(100 * time.Millisecond)
		}
		if got := strings.Count(log.String(), "msg="); got != want {
			t.Errorf("%d lines in the log, want %d:\n%s", got, want, log.String())
		}
	}
	rounds(0, false)
	rounds(1, true)
	if s := log.String(); !strings.Contains(s, "path delivers nothing") || !strings.Contains(s, "uplink=up1") || !strings.Contains(s, "peer=10.0.0.2") || !strings.Contains(s, "paths=1 of=2") {
		t.Errorf("the log says %s", s)
	}
	for flow := range uint16(64) {
		if u := f.exchange(f.a, acc0, udp4(hostB, hostA, 0, flow, 100)); len(u) != 1 || u[0] != 0 {
			t.Fatalf("flow %d goes by uplinks %v", flow, u)
		}
	}
	rounds(2, false)
	if s := log.String(); !strings.Contains(s, "path delivers again") || !strings.Contains(s, "was=silent paths=2 of=2") {
		t.Errorf("the log says %s", s)
	}
}
