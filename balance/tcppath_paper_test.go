package balance

import (
	"testing"
	"time"

	"github.com/loomfabric/loom/overlay"
)

// The tests in this file name the claim of TCP-Path (Alvarez-Horcajo et al., 2020) that
// they hold the code to. Where the code differs, the test says how. Table 2 is held in
// sim/theory, and what leaves and spines make of it in sim.

// §III-B: "The fastest copy arriving at the destination edge switch sets the path to be
// used by that flow", and "Late copies of the original Path Request [...] are discarded".
// We differ: copies are told by their exploration's number, where the paper takes any
// request on another port for late as long as the lock lives.
func TestPaperFastestCopySetsThePath(t *testing.T) {
	b := newTCPPathFabric(t, "tcp-path", nil, nil)
	for u := range uint8(4) {
		b.delay[overlay.MakePathID(u, 0)] = time.Duration(40-10*int(u)) * time.Microsecond
	}
	b.send(0, 0, syn)
	b.pass(time.Millisecond)
	if n := len(b.end[1].delivers); n != 1 || b.copies[1] != 3 {
		t.Errorf("the SYN was delivered %d times, and %d copies were discarded", n, b.copies[1])
	}
	if _, h := b.send(1, 0, synAck); h[0].LBTag != 8+3 {
		t.Errorf("the answer goes by uplink %d", h[0].LBTag-8)
	}
}

// §III-B: "At this point, a bidirectional symmetric path between L1 and L3 [...] exists".
func TestPaperPathIsSymmetric(t *testing.T) {
	for u := range uint8(4) {
		b := newTCPPathFabric(t, "tcp-path", nil, nil)
		b.open(0, overlay.MakePathID(u, 0)) // which looks at both directions
	}
}

// §III-B: "Newly created SD tuples remain in a locking state to avoid loops until they
// are confirmed or have expired, whichever happens first", and "Unconfirmed SD tuples on
// other ports at switches will simply expire". Our lock is for 500 ms: above any round
// trip, and below the second after which a host sends its SYN again.
func TestPaperLocksExpire(t *testing.T) {
	p := newTCPPathParams(Datacenter).(*TCPPathParams)
	if p.Lock != 500*time.Millisecond {
		t.Errorf("a lock lasts %v", p.Lock)
	}
	b := newTCPPathFabric(t, "tcp-path", nil, nil)
	b.send(0, 0, syn)
	b.pass(p.Lock - time.Millisecond)
	if b.end[1].r.Entries(b.now) != 1 {
		t.Error("the lock is gone before its time")
	}
	b.pass(3 * time.Millisecond)
	if b.end[1].r.Entries(b.now) != 0 {
		t.Error("the lock is still there")
	}
}

// §V-D.1: "we set a 10-second aging timeout for each unused entry", and §III-C: "it
// renews the expiration timer for the matched tuple".
func TestPaperEntriesAge(t *testing.T) {
	b := newTCPPathFabric(t, "tcp-path", nil, nil)
	b.open(0, 0x20)
	for range 4 {
		b.pass(9900 * time.Millisecond)
		for from := range 2 {
			if _, h := b.send(from, 0, ack); len(h) != 1 || b.path(from, h[0].LBTag, 0) != 0x20 {
				t.Fatalf("after 9.9 s leaf %d sends %+v", from, h)
			}
		}
	}
	b.pass(10100 * time.Millisecond)
	if n := b.end[0].r.Entries(b.now); n != 0 {
		t.Errorf("after 10.1 s there are %d entries", n)
	}
}

// §III: "different application flows between a pair of hosts can use different paths".
func TestPaperFlowsOfAPairUseDifferentPaths(t *testing.T) {
	b := newTCPPathFabric(t, "tcp-path", nil, nil)
	for flow := range 8 {
		b.open(flow, overlay.MakePathID(uint8(flow%4), 0))
	}
	for flow := range 8 { // and keep them
		if _, h := b.send(0, flow, ack); h[0].LBTag != uint8(flow%4) {
			t.Errorf("flow %d goes by uplink %d", flow, h[0].LBTag)
		}
	}
}

// §III-D: "When the source edge switch of a flow receives a Path Fail message it simply
// starts the discovery and setup of a new path for that flow", by requests and replies of
// their own; "In-transit flow data packets are lost until the new path is established".
// We differ: the packet that finds its path broken is what explores, and it arrives.
func TestPaperRecovery(t *testing.T) {
	b := newTCPPathFabric(t, "tcp-path", nil, nil)
	b.tick()
	b.open(0, 0x10)
	b.pass(10 * time.Millisecond)
	before := len(b.end[1].delivers)
	b.end[1].view.Paths[1] = MakePaths(without(b.uplinks(1), 8+1)...)
	b.tick() // the PathFail
	_, h := b.send(0, 0, ack)
	if len(h) != 4 || !h[0].Rerouted || !h[0].Tail {
		t.Fatalf("the packet behind the PathFail: %+v", h)
	}
	b.pass(time.Millisecond)
	if _, h := b.send(1, 0, ack); len(h) != 1 || !h[0].Rerouted || h[0].Tail {
		t.Fatalf("the answer: %+v", h)
	}
	b.pass(time.Millisecond)
	if got := len(b.end[1].delivers) - before; got != 1 {
		t.Errorf("%d packets of 1 arrived", got)
	}
}

// §IV: "restrict its application solely to some relevant TCP flows, leaving the other
// TCP flows (the majority) and other non-TCP traffic to default forwarding", told "by
// inspecting the TCP port". The reserved ports follow on Linux's default range of those
// that hosts use unasked, 32768 to 60999.
func TestPaperTFEIsForElephants(t *testing.T) {
	k := newTFEKeys().(*TFEKeys)
	if k.ElephantPorts.First != 61000 || k.ElephantPorts.Last != 65535 || k.ElephantSize != 10_000_000 {
		t.Errorf("elephants are above %v, and have ports %v", k.ElephantSize, k.ElephantPorts)
	}
	b := newTCPPathFabric(t, "tfe", nil, nil)
	b.send(0, 0, syn) // port 40000
	if st := b.end[0].p.stats; st.Explorations != 0 || st.Others != 1 {
		t.Errorf("%+v", st)
	}
	b.send(0, 22000, syn) // port 62000
	if st := b.end[0].p.stats; st.Explorations != 1 {
		t.Errorf("%+v", st)
	}
}
