package dataplane_test

import (
	"fmt"
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

// hellos are those of one round, by an uplink at a time.
func hellos(uplink, tx int) (s string) {
	for peer := range peerCount {
		s += fmt.Sprintf("  HELLO to %d by %d path %d.%d scheme 0 HELLO epoch 0 tx %d arg 0\n", peer, uplink, uplink, uplink, tx)
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
		// fabric's fields were not counted.
		Name: "a peer that falls silent is sent plain VXLAN", Scheme: "conweave",
		Events: []event{
			{At: us(10), Send: []packet{{ID: 1, Flow: 1, Peer: 0, Size: leastSize}}},
			{At: mono.Time(899 * time.Millisecond), Send: []packet{{ID: 2, Flow: 1, Peer: 0, Size: leastSize}}},
			{At: mono.Time(901 * time.Millisecond), Send: []packet{{ID: 3, Flow: 1, Peer: 0, Size: leastSize}}},
			{At: mono.Time(902 * time.Millisecond), Uplink: 1, Receive: []packet{
				{ID: 4, Peer: 0, Size: leastSize, Fabric: overlay.Fabric{Capable: true, Opcode: overlay.OpHello, Shim: true, TxTstamp: 7}},
			}},
			{At: mono.Time(903 * time.Millisecond), Send: []packet{{ID: 5, Flow: 1, Peer: 0, Size: leastSize}}},
		},
		Want: []string{
			"  packet 1 to 0 by 2 path 2.7 scheme 1 RTT_REQUEST epoch 1 tx 10 arg 10\n",
			"  packet 2 to 0 by 2 path 2.7 scheme 1 RTT_REQUEST epoch 2 tx 47032 arg 47032\n" +
				hellos(1, 53392) + hellos(2, 41248) + hellos(3, 29104),
			"  packet 3 to 0 by 3 plain\n",
			"",
			"  packet 5 to 0 by 0 path 0.7 scheme 1 RTT_REQUEST epoch 1 tx 51032 arg 51032\n",
		},
	},
}
