package dataplane_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
)

// script is a script that is written out, and what a leaf has to do.
type script struct {
	Name   string
	Scheme string
	Events []event
	Want   []string // what the leaf did, of each event, as outcome.String writes it
}

func us(n int64) mono.Time { return mono.Time(n * 1000) }

// hellos are those of some rounds, which go by all uplinks.
func hellos(first, last int) (s string) {
	for uplink := range uplinkCount {
		for round := first; round <= last; round++ {
			for peer := range peerCount {
				tx := overlay.TstampOf(mono.Time(round) * mono.Time(100*time.Millisecond))
				s += fmt.Sprintf("  HELLO to %d by %d path %d.%d scheme 0 HELLO epoch 0 tx %d arg 0\n", peer, uplink, uplink, round, tx)
			}
		}
	}
	return s
}

// marked is a packet of flow 1 from a peer that is under ConWeave.
func marked(id uint32, peer uint16, f overlay.Fabric) packet {
	f.Capable, f.Scheme, f.Shim = true, 1, true
	return packet{ID: id, Flow: 1, Peer: peer, Size: leastSize, Fabric: f}
}

// written are scripts in which drivers have come apart before: each names what was
// different.
var written = []script{
	{
		// One driver sent answers by hash. The round trip that θ_reply is held against
		// (ConWeave §3.2.1) is then not that of the path which is asked about.
		Name: "answers go back by the uplink that their cause came by", Scheme: "ecmp",
		Events: []event{
			{At: us(10), Uplink: 2, Receive: []packet{marked(1, 0, overlay.Fabric{Opcode: overlay.OpRTTRequest, Epoch: 1, TxTstamp: 3, Path: 0x15})}},
			{At: us(20), Uplink: 3, Receive: []packet{marked(2, 0, overlay.Fabric{Tail: true, Epoch: 1, TxTstamp: 8, Arg: 8, Path: 0x15})}},
			{At: us(30), Peer: 0, Paths: []uint8{0, 1}},
			{At: us(40), Uplink: 3, Receive: []packet{marked(3, 0, overlay.Fabric{Opcode: overlay.OpRTTRequest, Epoch: 2, TxTstamp: 30, Path: 0x25})}},
		},
		Want: []string{
			"  RTT_REPLY to 0 by 2 path 1.5 scheme 1 feedback 0=0 RTT_REPLY epoch 1 tx 0 arg 3\n  delivered [1]\n",
			"  CLEAR to 0 by 3 path 1.5 scheme 1 feedback 0=0 CLEAR epoch 1 tx 0 arg 8\n  delivered [2]\n",
			"",
			"  RTT_REPLY to 0 by 1 path 2.5 scheme 1 feedback 0=0 RTT_REPLY epoch 2 tx 0 arg 30\n  delivered [3]\n",
		},
	},
	{
		// One driver had a destination side only where a class of its own signalled, and
		// let go of what it held by a queue of higher priority.
		Name: "a leaf under ecmp puts a peer's packets in order", Scheme: "ecmp",
		Events: []event{
			{At: us(10), Uplink: 0, Receive: []packet{marked(1, 0, overlay.Fabric{Epoch: 1, TxTstamp: 1})}},
			{At: us(20), Uplink: 1, Receive: []packet{
				marked(2, 0, overlay.Fabric{Epoch: 1, TxTstamp: 12, Rerouted: true, Arg: 10}),
				{ID: 3, Flow: 2, Peer: 1, Size: leastSize},
				marked(4, 0, overlay.Fabric{Epoch: 1, TxTstamp: 13, Rerouted: true, Arg: 10}),
			}},
			{At: us(25), Uplink: 0, Receive: []packet{
				{ID: 5, Flow: 2, Peer: 1, Size: leastSize},
				marked(6, 0, overlay.Fabric{Epoch: 1, TxTstamp: 10, Tail: true, Arg: 10}),
				{ID: 7, Flow: 2, Peer: 1, Size: leastSize},
			}},
		},
		Want: []string{
			"  delivered [1]\n",
			"  delivered [3]\n",
			"  CLEAR to 0 by 0 path 0.0 scheme 1 feedback 0=0 CLEAR epoch 1 tx 0 arg 10\n  delivered [5 6 2 4 7]\n",
		},
	},
	{
		// In one driver HELLOs were a formula that never lost one, and packets without the
		// fabric's fields were not counted. A HELLO that echoes nothing proves nothing.
		Name: "a peer that falls silent is sent plain VXLAN", Scheme: "conweave",
		Events: []event{
			{At: us(10), Send: []packet{{ID: 1, Flow: 1, Peer: 0, Size: leastSize}}},
			{At: mono.Time(899 * time.Millisecond), Send: []packet{{ID: 2, Flow: 1, Peer: 0, Size: leastSize}}},
			{At: mono.Time(901 * time.Millisecond), Send: []packet{{ID: 3, Flow: 1, Peer: 0, Size: leastSize}}},
			{At: mono.Time(902 * time.Millisecond), Uplink: 1, Receive: []packet{hello(4, overlay.Hello{Round: 1})}},
			{At: mono.Time(903 * time.Millisecond), Send: []packet{{ID: 5, Flow: 1, Peer: 0, Size: leastSize}}},
			{At: mono.Time(904 * time.Millisecond), Uplink: 1, Receive: []packet{hello(6, overlay.Hello{Round: 1, Echo: 1})}},
			{At: mono.Time(905 * time.Millisecond), Send: []packet{{ID: 7, Flow: 1, Peer: 0, Size: leastSize}}},
		},
		Want: []string{
			"  packet 1 to 0 by 2 path 2.7 scheme 1 RTT_REQUEST epoch 1 tx 10 arg 10\n",
			"  packet 2 to 0 by 2 path 2.7 scheme 1 RTT_REQUEST epoch 2 tx 47032 arg 47032\n" + hellos(1, 8),
			"  packet 3 to 0 by 3 plain\n" + hellos(9, 9),
			"",
			"  packet 5 to 0 by 3 plain\n",
			"",
			"  packet 7 to 0 by 0 path 0.7 scheme 1 RTT_REQUEST epoch 1 tx 53032 arg 53032\n",
		},
	},
	{
		// A path that a peer reports is kept from the scheme with the next round of HELLOs.
		Name: "traffic leaves a path that does not deliver", Scheme: "ecmp",
		Events: []event{
			{At: us(100_005)},
			{At: us(100_010), Uplink: 1, Receive: []packet{hello(1, overlay.Hello{Round: 1, Echo: 1, Silent: 0b0111})}},
			{At: us(100_020), Send: []packet{{ID: 2, Flow: 1, Peer: 0, Size: leastSize}, {ID: 3, Flow: 2, Peer: 0, Size: leastSize}, {ID: 4, Flow: 5, Peer: 0, Size: leastSize}}},
			{At: us(200_010)},
			{At: us(200_020), Send: []packet{{ID: 5, Flow: 1, Peer: 0, Size: leastSize}, {ID: 6, Flow: 2, Peer: 0, Size: leastSize}, {ID: 7, Flow: 5, Peer: 0, Size: leastSize}}},
		},
		Want: []string{
			hellos(1, 1),
			"",
			"  packet 4 to 0 by 1 path 1.0 scheme 0\n  packet 2 to 0 by 3 path 3.14 scheme 0\n  packet 3 to 0 by 3 path 3.3 scheme 0\n",
			strings.Replace(hellos(2, 2), "to 0 by 2 path 2.2 scheme 0 HELLO epoch 0 tx 3392 arg 0", "to 0 by 2 path 2.2 scheme 0 HELLO epoch 0 tx 3392 arg 34461 T", 1),
			"  packet 5 to 0 by 3 path 3.14 scheme 0\n  packet 6 to 0 by 3 path 3.3 scheme 0\n  packet 7 to 0 by 3 path 3.0 scheme 0\n",
		},
	},
}

// hello is one of peer 0, which has the leaf's uplinks as tags.
func hello(id uint32, h overlay.Hello) packet {
	h.Boot, h.Present, h.Nonce = 1, 1<<uplinkCount-1, 9
	return packet{ID: id, Peer: 0, Size: leastSize, Hello: h, Fabric: overlay.Fabric{Capable: true, Opcode: overlay.OpHello, Shim: true, TxTstamp: 7}}
}
