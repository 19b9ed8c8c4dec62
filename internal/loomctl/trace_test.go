package loomctl

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/admin"
)

func traceOf(ways ...Way) *Trace {
	announced := 42 * time.Second
	return &Trace{
		Ingress: "L0", Ways: ways,
		Leaf: &dataplane.Explanation{
			VNI: 100, Hash: 0xcafe, Hashed: "5-tuple", SourcePort: 50000, Scheme: "conga", Destination: dataplane.DestinationRemote,
			VTEP: netip.MustParseAddr("10.255.0.1"), DstMAC: "02:10:00:00:00:02", Announced: &announced,
		},
	}
}

// What is printed of ways that arrive, are dropped, or end where nobody answers.
func TestPrintTrace(t *testing.T) {
	first := TraceHop{Node: "L0", In: "acc-h0", Out: "up-s0-0", NextHop: netip.MustParseAddr("10.254.0.1"), Load: 0.815, QueueBytes: 4500, Wait: 900 * time.Microsecond, Reason: "its flowlet is under way there"}
	second := TraceHop{Node: "S0", In: "dn-l0-0", Out: "dn-l1-0", NextHop: netip.MustParseAddr("10.254.0.4"), Wait: 75 * time.Millisecond, Reason: "it is the route's only next hop"}
	last := TraceHop{Node: "L1", In: "up-s0-0", Out: "acc-h2", Reason: "the address lives behind this port"}
	var out bytes.Buffer
	printTrace(&out, traceOf(Way{VTEP: vtep2, Hops: []TraceHop{first, second, last}, End: endArrives, State: "alive", RoundTrip: 368123 * time.Nanosecond}))
	golden(t, "trace", out.String())
	second.Out, second.NextHop = "", netip.Addr{}
	dropped := traceOf(
		Way{VTEP: vtep2, Hops: []TraceHop{first, second}, End: endDropped, Drop: "no_route", Reason: "S0: no route leads to the VTEP", State: "silent", Loss: 1},
		Way{VTEP: vtep2, Hops: []TraceHop{first}, End: endUnknown, Reason: "10.254.0.1 is none of the nodes that answer"},
	)
	dropped.Silent, dropped.Leaf.Announced, dropped.Leaf.DstMAC = []string{"S1: there is no socket"}, nil, ""
	out.Reset()
	printTrace(&out, dropped)
	golden(t, "trace-dropped", out.String())
	if ExitCode(judgeTrace(dropped)) != exitFailed || judgeTrace(traceOf(Way{End: endFlooded})) != nil {
		t.Error("a drop has to end with an error, and nothing else")
	}
}

// What waits in a queue takes as long as the port's rate says, if that is known.
func TestTraceWaits(t *testing.T) {
	n := &tracedNode{ports: map[string]admin.Port{"up0": {Rate: 4e6, QueueBytes: 37500}, "up1": {QueueBytes: 37500}}}
	for port, want := range map[string]time.Duration{"up0": 75 * time.Millisecond, "up1": 0, "gone": 0} {
		var h TraceHop
		if h.out(n, port); h.Wait != want {
			t.Errorf("%s: %v, want %v", port, h.Wait, want)
		}
	}
}

func TestTraceMistakes(t *testing.T) {
	file := inventory(t, "a", daemon(t), "gone", "/nowhere")
	for _, tt := range []struct{ args, says string }{
		{"trace a b --socket /x", "leave out --socket"},
		{"trace a b --node L0", "leave out --socket and --node"},
		{"trace 10.0.0.1 10.0.0.2 --inventory /nowhere/nodes.yaml", "trace needs the nodes of an inventory or of a lab"},
		{"trace 10.0.0.1", "give SRC DST"},
		{"trace 10.0.0.1 10.0.0.2 --from b --inventory " + file, "--from b is no leaf that answers"},
		{"trace h0 h1 --inventory " + file, "neither an IP address nor a host of a lab"},
		{"trace 10.0.0.1 10.0.0.2 --inventory " + inventory(t, "gone", "/nowhere"), "nobody has announced 10.0.0.1"},
	} {
		if _, err := run(strings.Fields(tt.args)...); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("loomctl %s: %v, want %q", tt.args, err, tt.says)
		}
	}
}
