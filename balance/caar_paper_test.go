package balance

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/mono"
)

// The tests in this file name the claim of CAAR (Zhang et al., "Congestion-aware adaptive
// forwarding in datacenter networks", Computer Communications 2015) that they hold the code
// to. Where the code differs, the test says how.

// packetLen is the length of the paper's packets, bytes (Table 2).
const packetLen = 1400

// caarNode is a node under CAAR with links to neighbours, for one leaf. Queues are in
// packets.
type caarNode struct {
	t     testing.TB
	sw    *caarSwitch
	c     *caar
	v     *View
	ports *fakeNode
	now   mono.Time
}

// fakeNode is what a node's ports are like, and what was done with them.
type fakeNode struct {
	queue [MaxPaths]uint32
	hosts uint32
	held  [MaxPaths]mono.Time
}

func (n *fakeNode) Queue(_ mono.Time, port int) uint32 {
	if port >= len(n.queue) { // a spine has more, and a node knows of no queue there
		return 0
	}
	return n.queue[port]
}
func (n *fakeNode) Hosts(mono.Time) uint32                      { return n.hosts }
func (n *fakeNode) Hold(_ mono.Time, port int, until mono.Time) { n.held[port] = until }
func (n *fakeNode) own(v *View, port int, packets uint32) {
	n.queue[port], v.Queue[port] = packets*packetLen, packets*packetLen
}

// newCAARNode returns a node with thresholds in packets of a buffer of 50.
func newCAARNode(t testing.TB, scheme string, m1, m2 float64, links int, change func(*CAARParams)) *caarNode {
	t.Helper()
	s := Find(scheme)
	p := s.Section.New(Datacenter).(*CAARParams)
	p.M1, p.M2 = m1/50, m2/50
	if change != nil {
		change(p)
	}
	o := Options{Seed: 1, Section: p}
	if err := s.Complete(&o); err != nil {
		t.Fatal(err)
	}
	n := &caarNode{t: t, ports: &fakeNode{}, now: mono.Time(time.Hour)}
	n.sw = s.Switch(&o, n.ports).(*caarSwitch)
	ports := make([]int, links)
	for i := range ports {
		ports[i] = i
	}
	n.sw.SetRoute(9, ports, false)
	o.Switch = n.sw
	n.c = s.New(&o).(*caar)
	n.v = newView(firstPaths(links))
	return n
}

// hear has the neighbour behind a link tell its queue to leaf 9.
func (n *caarNode) hear(link int, packets uint32) {
	n.t.Helper()
	units := (uint64(packets)*packetLen*caarUnits + n.sw.buffer - 1) / n.sw.buffer
	f := joinCAAR(caarQueue, 9, uint16(units))
	if n.sw.all {
		f = joinCAAR(caarQueue, caarAnyLeaf, uint16(units))
	}
	if !n.sw.Handle(n.now, link, messageOf(f)) {
		n.t.Fatal("the message was not handled")
	}
}

// send sends the next packet of a flow, and returns its link.
func (n *caarNode) send(flow uint32) uint8 {
	pkts := []Packet{{Hash: flow * 0x9E3779B1, Number: 9, Len: packetLen}}
	n.c.Choose(n.now, n.v, pkts)
	return n.v.Paths[0].Uplink[pkts[0].Path]
}

// slot begins the next slot, and returns what is said in it.
func (n *caarNode) slot() []PortMessage {
	n.now = (n.now/n.sw.slot + 1) * n.sw.slot
	if d := n.sw.Deadline(); d > n.now {
		n.t.Fatalf("the slot begins at %d, and the switch wants to be called at %d", n.now, d)
	}
	return n.sw.Tick(n.now, nil)
}

// §4.6, with M1 = 3 and M2 = 8: at a1 (queue 4, next hop 5) the packet goes to the next hop
// of its flow "since Q_a1(t) is not bigger than M2 and Q_a1(t) − Q_a2(t) = −1 > −3"; at a2
// (5, 8) it "will select buffer b2 as the next hop and change the corresponding routing
// items"; at b2 (2, 7), which has one next hop, it "will wait for a time slot according to
// the local caching rule".
//
// We differ: the packet waits in the queue of its port, which is held.
func TestCAARExample(t *testing.T) {
	for _, x := range []struct {
		name      string
		own, next uint32 // of the flow's hop
		hops      int
		move      bool
		wait      bool
	}{
		{"a1", 4, 5, 2, false, false},
		{"a2", 5, 8, 2, true, false},
		{"b2", 2, 7, 1, false, true},
		{"b2 with another hop", 2, 7, 2, true, false},
		{"above the threshold by less than a packet", 5, 7, 2, false, false},
	} {
		n := newCAARNode(t, "caar", 3, 8, x.hops, nil)
		h := n.send(1)
		n.ports.own(n.v, int(h), x.own)
		n.hear(int(h), x.next)
		n.slot()
		got := n.send(1)
		if (got != h) != x.move || (n.ports.held[h] > n.now) != x.wait {
			t.Errorf("%s: moved %v, held until %d at %d", x.name, got != h, n.ports.held[h], n.now)
		}
		if x.wait && n.ports.held[h] != (n.now/n.sw.slot+1)*n.sw.slot {
			t.Errorf("%s: held until %d, the next slot begins at %d", x.name, n.ports.held[h], (n.now/n.sw.slot+1)*n.sw.slot)
		}
		if again := n.send(1); again != got {
			t.Errorf("%s: the table was not changed: link %d, then %d", x.name, got, again)
		}
	}
}

// §4.2: "at the next time slot, if the queue length of buffer c1 is still very large …,
// then it waits for another time slot again until the queue length in buffer c1 becomes
// smaller". The port is let go at once when its own queue has grown long enough.
func TestCAARWaitsSlotBySlot(t *testing.T) {
	n := newCAARNode(t, "caar", 3, 8, 1, nil)
	n.hear(0, 7)
	n.ports.own(n.v, 0, 2)
	n.send(1)
	for range 5 {
		n.slot()
		if n.ports.held[0] != n.now+n.sw.slot {
			t.Fatalf("held until %d in the slot from %d on", n.ports.held[0], n.now)
		}
	}
	n.hear(0, 4)
	if n.slot(); n.ports.held[0] > n.now {
		t.Error("held although the next hop has room")
	}
	n.hear(0, 20)
	n.send(1)
	if n.ports.held[0] <= n.now {
		t.Fatal("not held")
	}
	n.ports.own(n.v, 0, 18)
	if n.send(1); n.ports.held[0] > n.now || n.c.stats.Opened != 1 {
		t.Errorf("held with a queue of 18 packets before one of 20: %+v", n.c.stats)
	}
	n.ports.own(n.v, 0, 2)
	n.send(1)
	n.ports.own(n.v, 0, 0) // nothing is there to be held
	if n.slot(); n.ports.held[0] > n.now {
		t.Error("an empty port is held")
	}
}

// Figure 3, lines 4 and 5: "node j is congested: Forwarding packet p to k̄^d", and the flow
// table is not touched. Figure 4, lines 5 to 9: the flag is set at the beginning of a slot.
//
// We differ: the queue that counts is that of the port to the flow's next hop.
func TestCAARDivertsWhenItsOwnQueueIsLong(t *testing.T) {
	n := newCAARNode(t, "caar", 25, 45, 2, nil)
	h := n.send(1)
	other := 1 - h
	n.ports.own(n.v, int(h), 46)
	if n.send(1) != h {
		t.Error("diverted before the slot")
	}
	n.slot()
	if n.send(1) != other || n.c.stats.Diverted != 1 {
		t.Errorf("not diverted: %+v", n.c.stats)
	}
	n.ports.own(n.v, int(h), 45)
	n.slot()
	if n.send(1) != h {
		t.Error("the table was changed")
	}
}

// §4.5: "CAAR without reordering mechanism … does not reselect paths for flows".
func TestCAARFlowStays(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	n := newCAARNode(t, "caar-flow", 25, 45, 4, nil)
	var first [50]uint8
	for f := range first {
		first[f] = n.send(uint32(f + 1))
	}
	for range 2000 {
		l := rng.IntN(4)
		n.hear(l, rng.Uint32N(60))
		n.ports.own(n.v, l, rng.Uint32N(60))
		if rng.IntN(10) == 0 {
			n.slot()
		}
		if f := rng.IntN(len(first)); n.send(uint32(f+1)) != first[f] {
			t.Fatalf("flow %d moved", f)
		}
	}
	if s := n.c.stats; s.Moves+s.Diverted != 0 || s.Waits == 0 || s.Flows != 50 {
		t.Errorf("counted %+v", s)
	}
}

// Equation 2: a new flow goes to the next hop with the minimum queue. Figure 4 prints
// argmax, which contradicts it.
//
// We differ: next hops whose queues are told alike are told apart by the own queue.
func TestCAARTakesTheShortestQueue(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	n := newCAARNode(t, "caar", 60, 99, 6, nil)
	for flow := range uint32(2000) {
		var told, own [6]uint32
		best := 0
		for l := range told {
			told[l], own[l] = rng.Uint32N(4), rng.Uint32N(4)
			n.hear(l, told[l])
			n.ports.own(n.v, l, own[l])
			if told[l] < told[best] || told[l] == told[best] && own[l] < own[best] {
				best = l
			}
		}
		if got := n.send(flow + 1); told[got] != told[best] || own[got] != own[best] {
			t.Fatalf("queues %v behind %v: link %d, want one like %d", told, own, got, best)
		}
	}
}

// §4.3 and Figure 4: neighbours are told when "the relative difference between current queue
// length and that in last slot exceeds a threshold Δ" (0.05 of 50 packets), by frames of 64
// bytes, so that they cost at most 64·8·2/(500 µs·10 Gbit/s) = 0.02 % of a link.
//
// We differ: the difference is to what was told last, or queues that change slowly are never
// told; `literal` has the paper's rule.
func TestCAARTellsChanges(t *testing.T) {
	told := func(literal bool, queues ...uint32) (out []int) {
		n := newCAARNode(t, "caar", 25, 45, 2, func(p *CAARParams) { p.Literal = literal })
		n.sw.SetRoute(7, []int{2}, false) // behind a third port
		n.slot()
		for _, q := range queues {
			n.ports.queue[2] = q * packetLen
			out = append(out, len(n.slot()))
		}
		return out
	}
	for _, x := range []struct {
		literal bool
		queues  []uint32
		want    []int // messages, to the two ports that do not lead to the leaf
	}{
		{false, []uint32{0, 2, 3, 5, 6, 3}, []int{0, 0, 2, 0, 2, 2}},
		{true, []uint32{0, 2, 4, 6, 8, 11, 11}, []int{0, 0, 0, 0, 0, 2, 0}},
		{false, []uint32{2, 4, 6, 8, 8, 8}, []int{0, 2, 0, 2, 0, 0}},
	} {
		got := told(x.literal, x.queues...)
		for i := range got {
			if got[i] != x.want[i] {
				t.Errorf("literal %v, queues %v: told %v, want %v", x.literal, x.queues, got, x.want)
				break
			}
		}
	}
	if share := 64 * 8 * 2 / (500e-6 * 10e9); share > 0.00021 {
		t.Errorf("%g of a link", share)
	}
}
