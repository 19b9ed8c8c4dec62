package balance

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/flowtable"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// Of everything that two hosts send each other, each packet arrives once and by the path
// that was fastest for the SYN; all copies but one are late.
func TestTCPPathSetUp(t *testing.T) {
	for _, fastest := range []uint8{0, 1, 2, 3} {
		b := newTCPPathFabric(t, "tcp-path", nil, nil)
		id := overlay.PathID(0)
		_, h := b.send(0, 0, syn)
		for _, f := range h {
			if f.LBTag == fastest {
				id = f.Path
			}
			if f.Opcode != overlay.OpData || !f.Shim || f.Rerouted || f.Tail || f.Scheme != tcpPathID || f.TxTstamp != h[0].TxTstamp || overlay.PathID(f.Arg) != h[0].Path {
				t.Errorf("a copy of a SYN: %+v", f)
			}
		}
		if len(h) != 4 {
			t.Fatalf("%d copies by 4 uplinks", len(h))
		}
		b.wire = nil
		b.now = b.now.Add(time.Second) // this one was only to find the selector
		b.open(0, id)
		for range 100 {
			b.send(0, 0, ack)
			b.send(1, 0, ack)
		}
		b.pass(time.Millisecond)
		if n, m := len(b.end[1].delivers), len(b.end[0].delivers); n != 102 || m != 102 || b.copies != [2]int{0, 3} {
			t.Errorf("%d and %d packets arrived, late copies %v", n, m, b.copies)
		}
		a, c := b.end[0].p.stats, b.end[1].r.stats
		if a.Explorations != 2 || a.Copies != 8 || a.Bytes != 480 || a.Missed+a.Waiting+a.Broken != 0 || c.Requests != 1 || c.Late != 3 || c.Bytes != 240 {
			t.Errorf("source %+v\ndestination %+v", a, c)
		}
		if st := b.end[1].p.stats; st.Replies != 1 || st.Explorations != 0 {
			t.Errorf("the answering leaf: %+v", st)
		}
		if st := b.end[0].r.Stats().(*TCPPathReceiverStats); st.Replies != 1 || st.InTable != 1 {
			t.Errorf("the exploring leaf's receiver: %+v", st)
		}
	}
}

// With several selectors each PathID gets a copy, and the packets back have the selector
// of the copy that was first.
func TestTCPPathTriesSelectors(t *testing.T) {
	section := newTCPPathParams(Datacenter).(*TCPPathParams).WithSelectors(3).(*TCPPathParams)
	b := newTCPPathFabric(t, "tcp-path", nil, section)
	_, h := b.send(0, 0, syn)
	seen := map[overlay.PathID]bool{}
	for _, f := range h {
		seen[f.Path] = true
	}
	if len(h) != 12 || len(seen) != 12 {
		t.Errorf("%d copies by %d paths", len(h), len(seen))
	}
	for id := range seen {
		b = newTCPPathFabric(t, "tcp-path", nil, section)
		b.open(0, id)
	}
}

// A packet that comes before its connection has a path, or has none ever, goes as ecmp
// would have it, with no mark.
func TestTCPPathFallsBack(t *testing.T) {
	b := newTCPPathFabric(t, "tcp-path", nil, nil)
	ecmp := mustNew(t, "ecmp", 0).(*ecmp)
	want := func(from int, key overlay.FlowKey) uint8 {
		pkts := []Packet{{Leaf: 1, Hash: uint32(key.Hash(9))}}
		ecmp.seed = b.end[from].p.seed
		ecmp.Choose(0, b.end[from].view, pkts)
		return b.end[from].view.Paths[1].Uplink[pkts[0].Path]
	}
	key := func(proto uint8, port uint16) overlay.FlowKey {
		return overlay.FlowKey{Version: 4, Proto: proto, Src: [16]byte{10, 0, 0, 1}, Dst: [16]byte{10, 0, 1, 1}, SrcPort: port, DstPort: 80}
	}
	for port := range uint16(200) {
		for _, tt := range []struct {
			k     overlay.FlowKey
			flags uint8
		}{
			{key(overlay.ProtoTCP, port), ack}, {key(overlay.ProtoTCP, port), synAck}, {key(overlay.ProtoTCP, port), rst},
			{key(overlay.ProtoUDP, port), 0}, {key(1, 0), 0},
		} {
			if _, h := b.sendKey(0, tt.k, tt.flags); len(h) != 1 || h[0].Shim || h[0].LBTag != want(0, tt.k) {
				t.Fatalf("%+v, flags %#x: %+v, want uplink %d", tt.k, tt.flags, h, want(0, tt.k))
			}
		}
	}
	if st := b.end[0].p.stats; st.Missed != 600 || st.Others != 400 {
		t.Errorf("%+v", st)
	}
	// The answer is under way.
	b.send(0, 0, syn)
	if _, h := b.send(0, 0, ack); len(h) != 1 || h[0].Shim || b.end[0].p.stats.Waiting != 1 {
		t.Errorf("before the answer: %+v, %+v", h, b.end[0].p.stats)
	}
}

// A lock that nobody confirms is gone after its time, and a SYN that is sent again by
// then explores anew. One that comes earlier does not.
func TestTCPPathLockExpires(t *testing.T) {
	b := newTCPPathFabric(t, "tcp-path", nil, nil)
	b.send(0, 0, syn)
	b.pass(400 * time.Millisecond)
	if _, h := b.send(0, 0, syn); len(h) != 1 {
		t.Errorf("a SYN during an exploration went %d times", len(h))
	}
	b.pass(200 * time.Millisecond)
	if b.end[0].r.Entries(b.now) != 0 || b.end[1].r.Entries(b.now) != 0 {
		t.Errorf("after 600 ms there are %d and %d entries", b.end[0].r.Entries(b.now), b.end[1].r.Entries(b.now))
	}
	if _, h := b.send(1, 0, synAck); len(h) != 1 || h[0].Shim {
		t.Errorf("an answer after the lock's time: %+v", h)
	}
	_, h := b.send(0, 0, syn)
	if len(h) != 4 {
		t.Errorf("a SYN after the lock's time went %d times", len(h))
	}
	b.pass(time.Millisecond)
	b.send(1, 0, synAck)
	b.pass(time.Millisecond)
	if _, h := b.send(0, 0, ack); len(h) != 1 || b.end[0].p.stats.Waiting != 1 {
		t.Errorf("%+v, %+v", h, b.end[0].p.stats)
	}
}

// A connection is forgotten when it has paused for the table's age. The leaf that
// explored looks for a path again with its next packet; the other one does not.
func TestTCPPathAges(t *testing.T) {
	b := newTCPPathFabric(t, "tcp-path", nil, nil)
	b.open(0, 0x21)
	b.pass(9 * time.Second)
	b.send(0, 0, ack) // renews end 0's entry
	b.pass(2 * time.Second)
	if n, m := b.end[0].r.Entries(b.now), b.end[1].r.Entries(b.now); n != 1 || m != 0 {
		t.Errorf("%d and %d entries", n, m)
	}
	b.pass(9 * time.Second)
	if _, h := b.send(1, 0, ack); len(h) != 1 || h[0].Shim {
		t.Errorf("after the age the answering leaf sends %+v", h)
	}
	_, h := b.send(0, 0, ack)
	if len(h) != 4 || !h[0].Rerouted || !h[0].Tail || b.end[0].p.stats.Recoveries != 1 {
		t.Errorf("after the age the exploring leaf sends %+v", h)
	}
}

// A SYN-ACK or a SYN that is lost is sent again by its host, and the path is found all
// the same.
func TestTCPPathLosesPackets(t *testing.T) {
	b := newTCPPathFabric(t, "tcp-path", nil, nil)
	lost := 0
	b.lose = func(from int, f *overlay.Fabric) bool { lost++; return from == 1 && f.Shim }
	b.send(0, 0, syn)
	b.pass(time.Millisecond)
	b.send(1, 0, synAck) // is lost
	b.lose = nil
	b.pass(time.Second)
	if _, h := b.send(1, 0, synAck); len(h) != 1 || !h[0].Rerouted || h[0].Tail {
		t.Fatalf("a SYN-ACK sent again: %+v", h)
	}
	b.pass(time.Millisecond)
	for from := range 2 {
		if _, h := b.send(from, 0, ack); len(h) != 1 || h[0].Shim {
			t.Errorf("from %d: %+v", from, h)
		}
	}
	if st := b.end[0].p.stats; st.Waiting+st.Missed != 0 {
		t.Errorf("%+v", st)
	}
	// All copies are lost: the SYN that is sent again finds a path.
	b.lose = func(int, *overlay.Fabric) bool { return true }
	b.send(0, 1, syn)
	b.lose = nil
	b.pass(time.Second)
	b.open(1, 0x30)
}

// A connection that is refused leaves a lock, which expires.
func TestTCPPathReset(t *testing.T) {
	b := newTCPPathFabric(t, "tcp-path", nil, nil)
	b.send(0, 0, syn)
	b.pass(time.Millisecond)
	if _, h := b.send(1, 0, rst); len(h) != 1 || h[0].Shim {
		t.Errorf("a RST: %+v", h)
	}
	b.pass(600 * time.Millisecond)
	if b.end[0].r.Entries(b.now)+b.end[1].r.Entries(b.now) != 0 {
		t.Error("the connection is still known")
	}
}

// Both hosts send a SYN at a time: both leaves explore, each takes the other one's first
// copy for the packets back, and nothing is lost or comes twice.
func TestTCPPathSimultaneousOpen(t *testing.T) {
	b := newTCPPathFabric(t, "tcp-path", nil, nil)
	b.send(0, 0, syn)
	b.send(1, 0, syn)
	b.pass(time.Millisecond)
	b.send(0, 0, synAck)
	b.send(1, 0, synAck)
	b.pass(time.Millisecond)
	for range 10 {
		b.send(0, 0, ack)
		b.send(1, 0, ack)
	}
	b.pass(time.Millisecond)
	if n, m := len(b.end[0].delivers), len(b.end[1].delivers); n != 12 || m != 12 {
		t.Errorf("%d and %d packets arrived, want 12 each", n, m)
	}
	if st := b.end[0].p.stats; st.Missed+st.Waiting != 0 {
		t.Errorf("%+v", st)
	}
}

// A leaf that loses an uplink tells the other one. Whichever explored does so again with
// its next packet, which is delivered, and both directions move together.
func TestTCPPathRecovers(t *testing.T) {
	for loser := range 2 {
		for first := range 2 { // who sends first after the loss
			b := newTCPPathFabric(t, "tcp-path", nil, nil)
			b.tick()
			b.open(0, 0x2a)
			b.pass(10 * time.Millisecond)
			for i, e := range b.end {
				b.end[i].delivers = nil
				if i == loser {
					e.view.Paths[1] = MakePaths(without(b.uplinks(i), uint8(2+8*i))...)
				}
			}
			if n := b.tick(); n != 1 {
				t.Fatalf("%d messages about a lost uplink", n)
			}
			if n := b.tick(); n != 0 {
				t.Fatalf("%d more messages", n)
			}
			b.lose = func(from int, f *overlay.Fabric) bool { return f.LBTag == uint8(2+8*from) } // it is gone
			b.delay[0x10] = time.Microsecond
			for _, from := range []int{first, 1 - first} {
				b.send(from, 0, ack)
				b.pass(time.Millisecond)
			}
			b.send(1, 0, ack) // the answer, if the source was first
			b.pass(time.Millisecond)
			for from := range 2 {
				_, h := b.send(from, 0, ack)
				if len(h) != 1 || h[0].Shim || h[0].LBTag == uint8(2+8*from) {
					t.Errorf("leaf %d lost its uplink, %d sent first: %d sends %+v", loser, first, from, h)
				}
			}
			b.pass(time.Millisecond)
			if h0, h1 := b.end[0].p.explainOf(b, 0), b.end[1].p.explainOf(b, 1); b.path(0, h0, 0) != b.path(1, h1, 0) {
				t.Errorf("leaf %d lost its uplink: the directions go by uplinks %d and %d", loser, h0, h1)
			}
			st := b.end[0].p.stats
			if st.Recoveries != 1 || b.end[1].p.stats.Recoveries != 0 {
				t.Errorf("recoveries %d and %d", st.Recoveries, b.end[1].p.stats.Recoveries)
			}
			if fails := b.end[1-loser].p.stats.Fails; fails != 1 {
				t.Errorf("%d PathFails", fails)
			}
		}
	}
}

// explainOf returns the uplink that flow 0's next packet will take, as Explain has it.
func (t *tcpPath) explainOf(b *tcpPathFabric, from int) uint8 {
	key := overlay.FlowKey{Version: 4, Proto: overlay.ProtoTCP, Src: [16]byte{10, 0, 0, 1}, Dst: [16]byte{10, 0, 1, 1}, SrcPort: 40000, DstPort: 80}
	if from == 1 {
		key = key.Reverse()
	}
	v := *b.end[from].view
	v.Exact = []Exact{{Key: key}}
	x := t.Explain(b.now, &v, &Packet{Leaf: 1, Hash: uint32(key.Hash(9))})
	return v.Paths[1].Uplink[x.Path]
}

// A recovery that nobody answers is repeated a few times, no more.
func TestTCPPathGivesUp(t *testing.T) {
	b := newTCPPathFabric(t, "tcp-path", nil, nil)
	b.open(0, 0x2a)
	b.lose = func(int, *overlay.Fabric) bool { return true }
	b.pass(11 * time.Second)
	for range 50 {
		b.send(0, 0, ack)
		b.pass(100 * time.Millisecond)
	}
	if st := b.end[0].p.stats; st.Recoveries != tcpPathTries {
		t.Errorf("%d recoveries", st.Recoveries)
	}
	if _, h := b.send(0, 0, syn); len(h) != 4 { // a new connection of the same ports
		t.Errorf("a SYN went %d times", len(h))
	}
}

// Where a table has no room, one copy of what explores is delivered, and no more.
func TestTCPPathWithoutRoom(t *testing.T) {
	section := newTCPPathParams(Datacenter).(*TCPPathParams)
	section.Flows = flowtable.Ways
	b := newTCPPathFabric(t, "tcp-path", nil, section)
	b.end[0].p.shared = newTCPPathShared(&Options{Section: newTCPPathParams(Datacenter)}).(*tcpPathShared)
	for flow := range 10 {
		b.send(0, flow, syn)
	}
	b.pass(time.Millisecond)
	if n := len(b.end[1].delivers); n != 10 || b.end[1].r.stats.NoRoom != 6*4 || b.end[1].r.stats.Requests != 4 {
		t.Errorf("%d of 10 SYNs arrived: %+v", n, b.end[1].r.stats)
	}
	slices.Sort(b.end[1].delivers)
	if !slices.Equal(b.end[1].delivers, slices.Compact(slices.Clone(b.end[1].delivers))) {
		t.Errorf("SYNs came twice: %v", b.end[1].delivers)
	}
	// And where the exploring leaf has none, it does not explore.
	for flow := range 10 {
		b.send(1, 100+flow, syn)
	}
	if st := b.end[1].p.stats; st.Overflow != 10 || st.Explorations != 0 {
		t.Errorf("%+v", st)
	}
}

// TFE is TCP-Path for connections with a reserved port at either end, and ecmp for all
// the rest.
func TestTFETellsByPorts(t *testing.T) {
	b := newTCPPathFabric(t, "tfe", nil, nil)
	key := overlay.FlowKey{Version: 4, Proto: overlay.ProtoTCP, SrcPort: 40000, DstPort: 80}
	for port, copies := range map[uint16]int{60999: 1, 61000: 4, 65535: 4, 32768: 1} {
		for _, end := range []*uint16{&key.SrcPort, &key.DstPort} {
			was := *end
			*end = port
			if _, h := b.sendKey(0, key, syn); len(h) != copies {
				t.Errorf("%+v: %d copies, want %d", key, len(h), copies)
			}
			*end = was
		}
	}
	key.Proto, key.SrcPort = overlay.ProtoUDP, 62000
	if _, h := b.sendKey(0, key, 0); len(h) != 1 {
		t.Errorf("UDP: %d copies", len(h))
	}
	k := newTFEKeys().(*TFEKeys)
	if k.Reserves(10_000_000).Number() != 0 || k.Reserves(10_000_001) != k.ElephantPorts {
		t.Errorf("hosts reserve %v for 10 MB and %v for more", k.Reserves(10_000_000), k.Reserves(10_000_001))
	}
}

// Numbers wrap after 65 ms: a leaf does not explore for a flow twice in a row with one
// number. Of paths that share an uplink one is tried.
func TestTCPPathNumbersWrap(t *testing.T) {
	b := newTCPPathFabric(t, "tcp-path", nil, nil)
	b.tick()
	start := b.now
	b.open(0, 0x20)
	b.pass(start.Add(65536 * time.Microsecond).Sub(b.now))
	b.end[0].p.Handle(b.now, nil, &overlay.Message{Leaf: 1, Link: overlay.AnyLink, Fabric: overlay.Fabric{Opcode: overlay.OpExplore, Tail: true, Path: 0xa0}})
	before := len(b.end[1].delivers)
	for _, copies := range []int{1, 4} {
		if _, h := b.send(0, 0, ack); len(h) != copies {
			t.Errorf("%d copies, want %d", len(h), copies)
		}
		b.pass(time.Microsecond)
	}
	b.pass(time.Millisecond)
	if n := len(b.end[1].delivers) - before; n != 2 {
		t.Errorf("2 packets were delivered %d times", n)
	}
	b.end[0].view.Paths[1] = MakePaths(0, 1, 1, 0, 2)
	if _, h := b.send(0, 1, syn); len(h) != 3 {
		t.Errorf("%d copies by 3 uplinks", len(h))
	}
}

// With arp-path all packets between two hosts that belong to no connection's path share
// the one that was fastest for their first packet.
func TestTCPPathFallsBackOnARPPath(t *testing.T) {
	b := newTCPPathFabric(t, "tcp-path", &TCPPathKeys{fallbackARPPath}, nil)
	ping := overlay.FlowKey{Version: 4, Proto: 1, Src: [16]byte{10, 0, 0, 1}, Dst: [16]byte{10, 0, 1, 1}}
	_, h := b.sendKey(0, ping, 0)
	if len(h) != 4 || h[0].Epoch != tcpPathPair {
		t.Fatalf("the first packet: %+v", h)
	}
	b.wire = nil
	b.pass(time.Second)
	fastest := h[2].Path & b.counts
	b.delay[fastest] = time.Microsecond
	b.sendKey(0, ping, 0)
	b.pass(time.Millisecond)
	b.sendKey(1, ping.Reverse(), 0)
	b.pass(time.Millisecond)
	for port := range uint16(50) {
		k := ping
		k.Proto, k.SrcPort, k.DstPort = overlay.ProtoUDP, port, 53
		for from := range 2 {
			if _, h2 := b.sendKey(from, k, 0); len(h2) != 1 || b.path(from, h2[0].LBTag, h2[0].Path.Selector()) != fastest {
				t.Fatalf("from %d, port %d: %+v, want path %v", from, port, h2, fastest)
			}
			k = k.Reverse()
		}
	}
	delete(b.delay, fastest)
	b.open(7, h[1].Path) // connections have paths of their own
}

// To a leaf that does not read the fabric's fields nothing is copied.
func TestTCPPathToOtherLeaves(t *testing.T) {
	b := newTCPPathFabric(t, "tcp-path", nil, nil)
	b.end[0].view.Capable = overlay.NewCapability(2)
	if _, h := b.send(0, 0, syn); len(h) != 1 || h[0].Shim || b.end[0].p.stats.Incapable != 1 {
		t.Errorf("%+v, %+v", h, b.end[0].p.stats)
	}
}

// Messages that make no sense change nothing.
func TestTCPPathRefusesMessages(t *testing.T) {
	b := newTCPPathFabric(t, "tcp-path", nil, nil)
	b.open(0, 0x2a)
	fail := overlay.Message{Leaf: 1, Link: overlay.AnyLink, Fabric: overlay.Fabric{Capable: true, Scheme: tcpPathID, Opcode: overlay.OpExplore, Tail: true, Path: 0xa0}}
	for name, change := range map[string]func(m *overlay.Message){
		"another opcode":      func(m *overlay.Message) { m.Fabric.Opcode = overlay.OpNotify },
		"R":                   func(m *overlay.Message) { m.Fabric.Rerouted = true },
		"no T":                func(m *overlay.Message) { m.Fabric.Tail = false },
		"a leaf out of range": func(m *overlay.Message) { m.Leaf = 2 },
		"from a neighbour":    func(m *overlay.Message) { m.Link = 1 },
	} {
		m := fail
		change(&m)
		if b.end[0].p.Handle(b.now, nil, &m) {
			t.Errorf("%s: known", name)
		}
	}
	if _, h := b.send(0, 0, ack); len(h) != 1 {
		t.Errorf("%+v", h)
	}
	if !b.end[0].p.Handle(b.now, nil, &fail) {
		t.Error("a PathFail is not known")
	}
	if _, h := b.send(0, 0, ack); len(h) != 1 { // right behind a packet that took the path
		t.Errorf("right after a PathFail: %+v", h)
	}
	b.pass(3 * time.Millisecond)
	if _, h := b.send(0, 0, ack); len(h) != 4 {
		t.Errorf("after a PathFail: %+v", h)
	}
	// It is forgotten when everything that it was about is.
	b.pass(time.Minute)
	b.tick()
	if b.end[0].p.fails[1].valid != 0 {
		t.Error("the PathFail is still known")
	}
}

// Whatever gets lost, and however paths come and go: what is sent arrives at most once,
// and once if nothing of it was lost; and connections that have both directions confirmed
// use one path for both.
func TestTCPPathAgainstChance(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	b := newTCPPathFabric(t, "tcp-path", nil, newTCPPathParams(Datacenter).(*TCPPathParams).WithSelectors(2).(*TCPPathParams))
	lossy := false
	lost := map[int]bool{}
	b.lose = func(_ int, f *overlay.Fabric) bool {
		if lossy && rng.IntN(10) == 0 {
			lost[b.count] = true
			return true
		}
		return false
	}
	sent := [2]int{}
	for round := range 20_000 {
		lossy = round/1000%2 == 1
		for id := range uint8(8) {
			b.delay[overlay.MakePathID(id>>1, id&1)] = time.Duration(1 + rng.IntN(40000))
		}
		from, flow := rng.IntN(2), rng.IntN(6)
		flags := []uint8{syn, synAck, ack, ack, ack, ack, rst}[rng.IntN(7)]
		if rng.IntN(200) == 0 {
			e := b.end[from]
			gone := b.uplinks(from)[rng.IntN(4)]
			e.view.Paths[1] = MakePaths(without(b.uplinks(from), gone)...)
			b.tick()
		} else if rng.IntN(50) == 0 {
			b.end[from].view.Paths[1] = MakePaths(b.uplinks(from)...)
		}
		b.send(from, flow, flags)
		sent[1-from]++
		b.pass(time.Duration(rng.IntN(300_000)))
		if rng.IntN(300) == 0 {
			b.pass(time.Duration(rng.IntN(12)) * time.Second)
		}
	}
	b.pass(time.Second)
	arrived := map[int]int{}
	for _, e := range b.end {
		for _, n := range e.delivers {
			arrived[n]++
		}
	}
	for n := 1; n <= b.count; n++ {
		if arrived[n] > 1 || arrived[n] == 0 && !lost[n] {
			t.Fatalf("packet %d arrived %d times, a copy was lost: %v", n, arrived[n], lost[n])
		}
	}
	a := b.end[0].p.stats
	if a.Explorations < 20 || a.Recoveries < 3 || a.Replies < 50 || len(lost) < 100 || a.Broken < 3 {
		t.Errorf("%+v, %d lost: the test has lost its point", a, len(lost))
	}
}

// Two workers of a leaf know the same flows: the SYN comes to one, its answer to the
// other.
func TestTCPPathWorkersShare(t *testing.T) {
	b := newTCPPathFabric(t, "tcp-path", nil, nil)
	for _, e := range b.end {
		o := Options{Worker: 1, Seed: e.p.seed, Leaves: 2, Shared: e.p.shared}
		if err := Find("tcp-path").Complete(&o); err != nil {
			t.Fatal(err)
		}
		e.r = newTCPPathReceiver(&o) // the fabric's packets come to worker 1
		if d := newTCPPath(&o).(Timed).Deadline(); d != reorder.Never {
			t.Errorf("worker 1 watches uplinks, too: %v", d)
		}
		if st := e.r.Stats().(*TCPPathReceiverStats); st.InTable != 0 {
			t.Error("worker 1 reports the table")
		}
	}
	b.open(0, 0x13)
}
