package loomctl

import (
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/admin"
	"github.com/loomfabric/loom/leaf"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// conweaveAnswer is what a leaf with two schemes says that was rerouting just now.
var conweaveAnswer = admin.ConWeave{
	ConWeaveState: &dataplane.ConWeaveState{
		Auto: &dataplane.AutoState{AutoState: leaf.AutoState{
			Samples: 4321, P50: 412345, P99: 2 * time.Millisecond, P999: 3 * time.Millisecond, Changes: 2,
			Times: reorder.Times{Reply: time.Millisecond, Inactive: 10 * time.Millisecond, ResumeExtra: 3 * time.Millisecond, ResumeDefault: 6 * time.Millisecond, MaxHold: 18 * time.Millisecond},
		}},
		Sources: []dataplane.ConWeaveSource{
			{
				Scheme: "conweave", Reply: time.Millisecond, PathBusy: time.Millisecond, Inactive: 10 * time.Millisecond,
				Samples: 2, Selectors: 1, Size: 65536, Active: 4, Asked: 1, Rerouted: 1, Moved: 1,
				Connections: []dataplane.ConnectionEntry{
					{Hash: 0xcafe, VTEP: vtep2, State: balance.ConnectionRerouted, Epoch: 3, Path: "1.7", Old: "0.7", Port: "eth2", Idle: 1234},
					{Hash: 0xbeef, VTEP: vtep3, State: balance.ConnectionBegins, Path: "2.0", Idle: 9 * time.Millisecond},
				},
				Busy: []dataplane.BusyPath{{VTEP: vtep2, Path: "0.0", Port: "eth1", For: 654321}},
			},
			{Class: 1, Scheme: "conweave-informed", Reply: 8000, ReplyExtra: 4000, PathBusy: 8000, Inactive: 300000, Samples: 2, Selectors: 4, Size: 64},
		},
		Destination: dataplane.ConWeaveDestination{
			ResumeExtra: time.Millisecond, ResumeDefault: 5 * time.Millisecond, Inactive: 10 * time.Millisecond, MaxHold: 20 * time.Millisecond,
			NotifyInterval: 500 * time.Microsecond, Admission: 75,
			Limit: dataplane.HoldUse{Queues: 1024, Packets: 8192, Bytes: 8 << 20}, PortLimit: dataplane.HoldUse{Queues: 31, Packets: 2048, Bytes: 2 << 20},
			Held: dataplane.HoldUse{Queues: 1, Packets: 4, Bytes: 6000}, Peak: dataplane.HoldUse{Queues: 3, Packets: 40, Bytes: 60000},
			Ports: []dataplane.PortHoldUse{
				{Port: "eth3", Held: dataplane.HoldUse{Queues: 1, Packets: 4, Bytes: 6000}, Peak: dataplane.HoldUse{Queues: 2, Packets: 38, Bytes: 57000}},
				{Peak: dataplane.HoldUse{Queues: 1, Packets: 2, Bytes: 3000}},
			},
		},
	},
	SourceCounters: []admin.Counters{
		admin.NewCounters("conweave", &balance.ConWeaveStats{
			Epochs: 100, Requests: 99, Replies: 90, LateReplies: 8, CutOffs: 9, Reroutes: 6, Aborts: 5, Refused: 1,
			Clears: 4, Notifies: 7, Inactive: 3, Unclear: 2, Moves: 1, Overflow: 11, Incapable: 12,
			StaleReplies: 13, ReplyTime: some(98, 300*time.Microsecond),
		}),
		admin.NewCounters("conweave-informed", &balance.ConWeaveStats{Epochs: 1, StaleClears: 15}),
	},
	DestinationCounters: destination(),
}

// some is a histogram of n times that differ.
func some(n int, d time.Duration) (h reorder.Histogram) {
	for i := range n {
		h.Add(d + time.Duration(i*i)*time.Microsecond)
	}
	return h
}

func destination() admin.Counters {
	c := admin.NewCounters("", &receiverStats)
	for name, x := range admin.NewCounters("", &leafStats) {
		c[name] = x
	}
	return c
}

var (
	receiverStats = reorder.Stats{
		Packets: 10000, Bytes: 15000000, Unmarked: 16, Epochs: 200, Requests: 190, Tails: 21, Rerouted: 50,
		Held: 44, HeldBytes: 66000, Queues: 20, NoQueue: 1, Defaults: 2, Capped: 3,
		TailFlushes: 18, Expiries: 2, Premature: 5, Late: 6, NotifiesSuppressed: 18, Refusals: 19,
		Hold: some(20, 600*time.Microsecond), TailEarly: some(15, 15*time.Microsecond),
	}
	leafStats = leaf.Stats{
		Received: leaf.Messages[uint64]{overlay.OpRTTReply: 98, overlay.OpClear: 6}, Known: leaf.Messages[uint64]{overlay.OpRTTReply: 98, overlay.OpClear: 4},
		Relayed: 104, Sent: leaf.Messages[leaf.Amount]{overlay.OpRTTReply: {Frames: 190, Bytes: 19000}, overlay.OpClear: {Frames: 23, Bytes: 2300}},
		Unsent: leaf.Unsent{NoPath: 17}, RoundTrip: some(40, 200*time.Microsecond),
	}
)

func TestConnectionStates(t *testing.T) {
	for state, says := range map[string]string{
		balance.ConnectionBegins: "on path 1.2 (eth1), its next packet", balance.ConnectionAsked: "on path 1.2 (eth1), asked",
		balance.ConnectionRerouted: "from path 0.2 to path 1.2 (eth1)", balance.ConnectionMoved: "moved to path 1.2",
	} {
		c := &dataplane.ConnectionEntry{State: state, Path: "1.2", Old: "0.2", Port: "eth1"}
		if got := connectionState(c); !strings.Contains(got, says) {
			t.Errorf("%s: %q, want %q", state, got, says)
		}
	}
}

func TestShare(t *testing.T) {
	for want, of := range map[string][2]uint64{"-": {1, 0}, "0%": {0, 5}, "0.545%": {12, 2201}, "12.5%": {1, 8}} {
		if got := share(of[0], of[1]); got != want {
			t.Errorf("%v: %s, want %s", of, got, want)
		}
	}
}
