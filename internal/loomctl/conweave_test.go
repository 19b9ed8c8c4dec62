package loomctl

import (
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/admin"
)

// conweaveAnswer is what a leaf with two schemes says that was rerouting just now.
var conweaveAnswer = admin.ConWeave{
	ConWeaveState: &dataplane.ConWeaveState{
		Auto: &dataplane.AutoState{
			Samples: 4321, P50: 412345, P99: 2 * time.Millisecond, P999: 3 * time.Millisecond, Changes: 2,
			Times: dataplane.Times{Reply: time.Millisecond, Inactive: 10 * time.Millisecond, ResumeExtra: 3 * time.Millisecond, ResumeDefault: 6 * time.Millisecond, MaxHold: 18 * time.Millisecond},
		},
		Sources: []dataplane.ConWeaveSource{
			{
				Scheme: "conweave", Reply: time.Millisecond, PathBusy: time.Millisecond, Inactive: 10 * time.Millisecond,
				Samples: 2, Selectors: 1, Size: 65536, Active: 4, Asked: 1, Rerouted: 1, Moved: 1,
				Connections: []dataplane.ConnectionEntry{
					{Hash: 0xcafe, VTEP: vtep2, State: dataplane.ConnectionRerouted, Epoch: 3, Path: "1.7", Old: "0.7", Port: "eth2", Idle: 1234},
					{Hash: 0xbeef, VTEP: vtep3, State: dataplane.ConnectionBegins, Path: "2.0", Idle: 9 * time.Millisecond},
				},
				Busy: []dataplane.BusyPath{{VTEP: vtep2, Path: "0.0", Port: "eth1", For: 654321}},
			},
			{Class: 1, Scheme: "conweave-conga", Reply: 8000, PathBusy: 8000, Inactive: 300000, Samples: 2, Selectors: 4, Size: 64},
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
	SourceCounters: []admin.ConWeaveSource{
		{
			Scheme: "conweave", Epochs: 100, Requests: 99, Replies: 90, LateReplies: 8, CutOffs: 9, Reroutes: 6, Aborts: 5, Refused: 1,
			Clears: 4, Notifies: 7, Inactive: 3, Unclear: 2, Moves: 1, OverflowFrames: 11, IncapableFrames: 12,
			Ignored:   map[string]uint64{"stale_reply": 13, "unknown_flow": 14},
			ReplyTime: admin.Times{Count: 98, Mean: 310000, P50: 300000, P90: 500000, P99: 1500000, P999: 1600000, Max: 1612345},
		},
		{Scheme: "conweave-conga", Epochs: 1, Ignored: map[string]uint64{"stale_clear": 15}},
	},
	DestinationCounters: admin.ConWeaveDestination{
		ArrivedFrames: 10000, ArrivedBytes: 15000000, UnmarkedFrames: 16, Epochs: 200, Requests: 190, Tails: 21, ReroutedFrames: 50,
		HeldFrames: 44, HeldBytes: 66000, QueuesTaken: 20, NoQueue: 1, DefaultResumes: 2, CappedResumes: 3,
		Flushes: map[string]uint64{"tail": 18, "expiry": 2}, UnorderedFrames: map[string]uint64{"premature": 5, "late": 6},
		Control:       []admin.ConWeaveControl{{Opcode: "RTT_REPLY", Frames: 190, Bytes: 19000}, {Opcode: "CLEAR", Frames: 23, Bytes: 2300}, {Opcode: "NOTIFY"}},
		ControlUnsent: map[string]uint64{"no_path": 17}, NotifiesSpared: 18, Refusals: 19,
		HoldTime:         admin.Times{Count: 20, Mean: 700000, P50: 600000, P90: 900000, P99: 1200000, P999: 1200000, Max: 1250000},
		ResumeErrorEarly: admin.Times{Count: 15, Mean: 20000, P50: 15000, P90: 40000, P99: 50000, P999: 50000, Max: 50000},
	},
}

func TestConnectionStates(t *testing.T) {
	for state, says := range map[string]string{
		dataplane.ConnectionBegins: "on path 1.2 (eth1), its next packet", dataplane.ConnectionAsked: "on path 1.2 (eth1), asked",
		dataplane.ConnectionRerouted: "from path 0.2 to path 1.2 (eth1)", dataplane.ConnectionMoved: "moved to path 1.2",
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
