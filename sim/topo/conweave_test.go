package topo

import (
	"testing"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
	"github.com/loomfabric/loom/sim/node"
)

// inOrder is the receiver of a flow whose packets are to come in order.
type inOrder struct {
	pool  *network.Pool
	next  uint64
	got   int
	early int // packets before which others are missing
}

func (k *inOrder) Receive(_ engine.Time, p *network.Packet) {
	k.got++
	if p.Number != k.next {
		k.early++
	}
	k.next = max(k.next, p.Number+1)
	k.pool.Put(p)
}

// conweave returns what both sides of a leaf counted.
func conweave(l *node.Leaf) (source balance.ConWeaveStats, side reorder.Stats) {
	source = *l.Brain().SchemeStats()[0].Own.(*balance.ConWeaveStats)
	return source, l.Brain().Receiver(reorder.SchemeID).(*reorder.ConWeave).Counters()
}

// crowd sends a flow from each host of the first half of the leaves into the
// second half, so many to one host, and returns what the receivers saw.
func crowd(t *testing.T, spec Spec, scheme string, fanIn int, rate uint64) (top *Topology, got, early int) {
	t.Helper()
	cfg := node.DefaultConfig()
	cfg.Scheme = scheme
	top = mustBuild(t, spec, cfg)
	var sinks []*inOrder
	n := len(top.Hosts) / 2
	for h := range network.HostID(n) {
		s, _ := top.stream(network.FlowID(h), h, network.HostID(n+int(h)/fanIn), 2000, 1000, rate)
		k := &inOrder{pool: &top.Network.Pool}
		top.Network.Bind(network.FlowID(h), nil, k)
		s.next = engine.Time(h) * 7 * us
		sinks = append(sinks, k)
	}
	top.settle(t)
	for _, k := range sinks {
		got, early = got+k.got, early+k.early
	}
	top.checkBalance(t)
	return top, got, early
}

// "Any REROUTED packets should only be forwarded to the destination after the
// TAIL is received and transmitted by the DstToR" (ConWeave §3.3.1): hosts see
// every packet in order, although flows are rerouted and wait; that spraying
// would put them out of order shows that there was something to do. Without
// loss nothing may expire early: T_resume has its 16 µs of slack.
func TestConWeave33HostsSeeNoReordering(t *testing.T) {
	unequal := func() Spec {
		s := leafSpine(2, 4, 8, 1)
		s.Links.Rate = 20 * gbit
		delay := 5 * time.Microsecond
		s.Overrides = []vocab.Override{{Link: "L1-S0.0", Direction: "down", Rate: rate(10 * gbit)}, {Link: "L1-S1.0", Delay: &delay}}
		return s
	}
	for _, shape := range []struct {
		name  string
		fanIn int
		rate  uint64
		spec  func() Spec
	}{
		{"leaf-spine", 1, 6 * gbit, unequal},
		// The access ports have queues, too: what is let go must not overtake
		// what waits there.
		{"two to one", 2, 49 * gbit / 10, unequal},
		{"fat-tree", 1, 6 * gbit, func() Spec {
			s := wires()
			s.Kind, s.K, s.Hosts.PerLeaf = FatTree, 4, 4
			s.Links.Rate = 20 * gbit
			s.Overrides = []vocab.Override{{Link: "A0-C0.0", Rate: rate(10 * gbit)}, {Link: "A1-C3.0", Rate: rate(10 * gbit)}}
			return s
		}},
	} {
		t.Run(shape.name, func(t *testing.T) {
			marking := vocab.ECN{Kmin: 20_000, Kmax: 80_000, Pmax: 0.2}
			spec := shape.spec()
			spec.Links.ECN = marking
			top, got, early := crowd(t, spec, "conweave", shape.fanIn, shape.rate)
			var held, reroutes, expired, replies uint64
			for _, l := range top.Leaves {
				source, side := conweave(l)
				held, reroutes, expired = held+side.Held, reroutes+source.Reroutes, expired+side.Expiries
				replies += source.Replies + source.LateReplies
				if l.Held() != 0 || side.Waiting != 0 || side.InUse != 0 {
					t.Errorf("leaf %s still holds %d packets, %d of them in %d queues", l.Name, l.Held(), side.Waiting, side.InUse)
				}
				if s, own := l.Stats(), l.Brain().Stats(); own.Received != own.Known || s.Control == 0 && s.Messages != 0 && source.Epochs != 0 {
					t.Errorf("leaf %s: %+v; %v messages came, %v about something known", l.Name, s, own.Received, own.Known)
				}
			}
			if got != 2000*len(top.Hosts)/2 {
				t.Errorf("%d packets came, want %d", got, 2000*len(top.Hosts)/2)
			}
			if early != 0 {
				t.Errorf("%d packets came before others of their flow; %d queues expired", early, expired)
			}
			if held == 0 || reroutes == 0 || replies == 0 {
				t.Errorf("%d packets held, %d reroutes, %d replies: nothing was tested", held, reroutes, replies)
			}
			if _, _, sprayed := crowd(t, spec, "spray", shape.fanIn, shape.rate); sprayed < 1000 {
				t.Errorf("under spray %d packets come early: there is little to put in order", sprayed)
			}
			t.Logf("%d reroutes, %d packets held, %d queues expired", reroutes, held, expired)
		})
	}
}

// "ConWeave control packets are always transmitted with the highest priority in
// the network and with payload truncation" (§3.4), and never reach a host.
func TestConWeave34ControlPackets(t *testing.T) {
	spec := leafSpine(2, 2, 4, 1)
	spec.Links.Rate = 10 * gbit
	spec.Links.ECN = vocab.ECN{Kmin: 10_000, Kmax: 40_000, Pmax: 1}
	top, _, _ := crowd(t, spec, "conweave", 1, 6*gbit)
	var packets, bytes uint64
	for _, name := range []string{"L1->S0", "L1->S1", "S0->L0", "S1->L0"} {
		p, err := top.Port(name)
		if err != nil {
			t.Fatal(err)
		}
		packets += p.Stats().Packets[network.ControlClass]
		bytes += p.Stats().Bytes[network.ControlClass]
		if p.Stats().Packets[network.DataClass] != 0 {
			t.Errorf("%s carried data", name)
		}
	}
	_, side := conweave(top.Leaves[1])
	sent := side.Replies + side.Clears + side.Notifies
	if packets != 2*sent || side.Replies == 0 || side.Notifies == 0 {
		t.Errorf("%d control packets on two hops, %d were sent: %+v", packets, sent, side)
	}
	// stream's packets are all payload: the smallest frame, and the overlay's.
	var accounted uint64
	for _, a := range top.Leaves[1].Brain().Stats().Sent {
		accounted += a.Bytes
	}
	want := 60*sent + 50*sent + overlay.ShimLen*(side.Replies+side.Clears)
	if bytes != 2*want || accounted != want {
		t.Errorf("%d bytes on two hops, %d accounted for, want %d", bytes, accounted, want)
	}
	if got := top.Leaves[0].Stats().Control; got != sent {
		t.Errorf("leaf 0 had %d of %d", got, sent)
	}
	if l := top.Network.Ledger(); l.Consumed != sent || l.Delivered != 8000 {
		t.Errorf("ledger %+v", l)
	}
}

// An access port that goes down while packets are held for it, and a path that
// dies while packets of the other one are: nothing is left behind in the leaf or
// in its memory, and all that is missing was dropped under a name.
func TestConWeaveSurvivesFailures(t *testing.T) {
	spec := leafSpine(2, 4, 8, 1)
	spec.Links.Rate = 20 * gbit
	spec.Links.ECN = vocab.ECN{Kmin: 20_000, Kmax: 80_000, Pmax: 0.2}
	spec.Buffer = &network.BufferConfig{Total: 2_000_000}
	delay := 5 * time.Microsecond
	spec.Overrides = []vocab.Override{{Link: "L1-S0.0", Direction: "down", Rate: rate(10 * gbit)}, {Link: "L1-S1.0", Delay: &delay}}
	for at := 300 * us; at < 2400*us; at += 300 * us {
		spec.Faults = append(spec.Faults,
			fail(at, "h9-L1"), restore(at+100*us, "h9-L1"),
			fail(at+50*us, "L1-S2.0"), restore(at+150*us, "L1-S2.0"))
	}
	top, got, _ := crowd(t, spec, "conweave", 1, 6*gbit)
	l := top.Network.Ledger()
	if l.Held != 0 || l.Queued != 0 || l.Flying != 0 {
		t.Errorf("in the end: %+v", l)
	}
	if got == 16000 || got < 12000 || l.Dropped[network.LinkDown] == 0 || l.Dropped[network.BufferFull] != 0 {
		t.Errorf("%d of 16000 packets came, drops %v", got, l.Dropped)
	}
	for i, b := range top.Buffers {
		if b.Used() != 0 {
			t.Errorf("switch %d still has %d bytes", i, b.Used())
		}
	}
	if _, side := conweave(top.Leaves[1]); side.Held == 0 || side.InUse != 0 || side.Waiting != 0 {
		t.Errorf("%d packets were held; %d still are, in %d queues", side.Held, side.Waiting, side.InUse)
	}
}
