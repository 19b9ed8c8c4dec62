package leaf

import (
	"testing"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

const interval = mono.Time(overlay.HelloInterval)

// A round of HELLOs goes to each peer that there is a path to, capable or not; each
// round by the next path, so that one which loses frames does not silence the leaf.
func TestHellosGoRound(t *testing.T) {
	s := newSite(t, "ecmp")
	s.SetHello(s.now)
	used := map[uint16]map[uint8]int{1: {}, 2: {}}
	for round := range 8 {
		if s.Deadline() != s.now {
			t.Fatalf("round %d is due at %d, not %d", round, s.Deadline(), s.now)
		}
		o := s.Tick(s.now, false)
		if len(o.Messages) != 2 {
			t.Fatalf("round %d: %+v", round, o.Messages)
		}
		for _, m := range o.Messages {
			f, paths := &m.Fabric, &s.View().Paths[m.Leaf]
			uplink := paths.Uplink[m.Path]
			want := overlay.Fabric{
				Capable: true, Opcode: overlay.OpHello, LBTag: uplink, Path: overlay.MakePathID(uplink, f.Path.Selector()),
				Shim: true, TxTstamp: overlay.TstampOf(s.now),
			}
			if *f != want || m.Link != overlay.AnyLink || m.Cause != overlay.NoCause {
				t.Errorf("round %d: %+v", round, m)
			}
			used[m.Leaf][uplink]++
		}
		if again := s.Tick(s.now+interval-1, false); len(again.Messages) != 0 {
			t.Errorf("round %d, and one more before its time: %+v", round, again.Messages)
		}
		s.now += interval
	}
	for peer, want := range map[uint16]map[uint8]int{1: {0: 2, 1: 2, 2: 2, 3: 2}, 2: {1: 4, 3: 4}} {
		for uplink, n := range want {
			if used[peer][uplink] != n {
				t.Errorf("HELLOs to leaf %d by uplink: %v, want %v", peer, used[peer], want)
			}
		}
	}
}

// To many peers the round takes several ticks, each of which is due at once: a queue
// of control packets does not hold one for every leaf of a large fabric.
func TestHellosAreSpread(t *testing.T) {
	const peers = 2*Burst + 10
	p := congestion.Datacenter()
	l, err := New[int](Config{Classes: []ClassConfig{{}}, Leaves: peers, Uplinks: 2}, NewShared(peers, &p))
	if err != nil {
		t.Fatal(err)
	}
	paths := make([]balance.Paths, peers)
	for i := range paths {
		paths[i] = balance.MakePaths(0, 1)
	}
	l.SetPaths(paths)
	const now = mono.Time(7e9)
	l.SetHello(now)
	seen := map[uint16]int{}
	for tick, want := range []int{Burst, Burst, 10} {
		if l.Deadline() > now {
			t.Fatalf("tick %d is due at %d", tick, l.Deadline())
		}
		o := l.Tick(now, false)
		if len(o.Messages) != want {
			t.Errorf("tick %d: %d HELLOs, want %d", tick, len(o.Messages), want)
		}
		for _, m := range o.Messages {
			seen[m.Leaf]++
		}
	}
	if l.Deadline() != now+interval || len(seen) != peers {
		t.Errorf("%d peers, the next round at %d", len(seen), l.Deadline())
	}
	// The first worker does it for all.
	second, err := New[int](Config{Worker: 1, Classes: []ClassConfig{{}}, Leaves: peers, Uplinks: 2}, NewShared(peers, &p))
	if err != nil {
		t.Fatal(err)
	}
	second.SetPaths(paths)
	second.SetHello(now)
	if o := second.Tick(now, false); len(o.Messages) != 0 || second.Deadline() != reorder.Never {
		t.Errorf("the second worker says %d HELLOs, the next at %d", len(o.Messages), second.Deadline())
	}
}

// hello returns the HELLO that a leaf sends to a peer now.
func (s *site) hello(peer uint16) overlay.Fabric {
	s.t.Helper()
	s.SetHello(s.now)
	for _, m := range s.Tick(s.now, false).Messages {
		if m.Leaf == peer {
			return m.Fabric
		}
	}
	s.t.Fatalf("no HELLO to leaf %d", peer)
	return overlay.Fabric{}
}

// Two leaves measure the round trip between them: what is there and back, and not how
// long the peer kept the HELLO. Their clocks differ.
func TestHellosMeasureTheRoundTrip(t *testing.T) {
	const there, back = 300 * us, 500 * us
	a, b := newSite(t, "ecmp"), newSite(t, "ecmp")
	b.now = mono.Time(5*time.Hour) + 777*us
	for _, stay := range []mono.Time{0, us, 20 * ms, interval, 2 * interval} {
		before := a.Stats().RoundTrip
		f := a.hello(1)
		a.now, b.now = a.now+there, b.now+there
		if kind := b.Accept(b.now, 2, &f); kind != Ended {
			t.Fatalf("a HELLO is %d", kind)
		}
		a.now, b.now = a.now+stay, b.now+stay
		f = b.hello(2)
		a.now, b.now = a.now+back, b.now+back
		a.Accept(a.now, 1, &f)
		got := a.Stats().RoundTrip
		if !f.Tail || got.N != before.N+1 || got.Sum-before.Sum < time.Duration(there+back-2*us) || got.Sum-before.Sum > time.Duration(there+back+us) {
			t.Errorf("kept for %v: %+v brings a round trip of %v, want %v", time.Duration(stay), f, got.Sum-before.Sum, time.Duration(there+back))
		}
	}
	// One that was kept for longer is not sent back: the clocks are not that equal.
	f := a.hello(1)
	b.Accept(b.now, 2, &f)
	b.now += 2*interval + us
	if f = b.hello(2); f.Tail || f.Arg != 0 {
		t.Errorf("an old HELLO goes back: %+v", f)
	}
	before := a.Stats().RoundTrip
	a.Accept(a.now, 1, &f)                                                                  // nothing of this leaf's is in it
	a.Accept(a.now, 1, &overlay.Fabric{Capable: true, Opcode: overlay.OpHello, Tail: true}) // without a shim
	f.Tail, f.Arg = true, overlay.TstampOf(a.now)+5
	a.Accept(a.now, 1, &f) // as if it were yet to be sent
	if got := a.Stats().RoundTrip; got != before {
		t.Errorf("%d round trips of nothing", got.N-before.N)
	}
}

// A HELLO proves that its sender reads the fields; what it met on its way is not a
// data packet's.
func TestHellosProvePeers(t *testing.T) {
	s := newSite(t, "ecmp")
	if _, _, ok := s.send(1, 1); ok {
		t.Error("fields to a peer that has proved nothing")
	}
	s.Accept(s.now, 1, &overlay.Fabric{Capable: true, Opcode: overlay.OpHello, CE: 7, LBTag: 2})
	_, f, ok := s.send(1, 1)
	if !ok || f.FBValid {
		t.Errorf("after a HELLO: %v, %+v", ok, f)
	}
	s.now = s.now.Add(overlay.CapableFor)
	if _, _, ok := s.send(1, 1); !ok {
		t.Error("plain too early")
	}
	s.now++
	if _, _, ok := s.send(1, 1); ok {
		t.Error("fields to a peer that has been silent for long")
	}
	if x := s.Exchange(); x.Plain != 2 || x.Stamped != 2 || x.Arrived != 1 || x.CongestedArrived != 0 {
		t.Errorf("%+v", x)
	}
}

// When a place goes to another peer nothing of the former one counts.
func TestForget(t *testing.T) {
	s := newSite(t, "conga")
	f := overlay.Fabric{Capable: true, LBTag: 2, CE: 5, FBValid: true, FBTag: 3, FBMetric: 6}
	s.Accept(s.now, 1, &f)
	hello := overlay.Fabric{Capable: true, Opcode: overlay.OpHello, Shim: true, TxTstamp: 99}
	s.Accept(s.now, 1, &hello)
	s.Accept(s.now, 2, &hello)
	if h := s.hello(1); !h.Tail {
		t.Fatalf("%+v", h)
	}
	if s.toLeaf(1, 3) != 6 {
		t.Fatal("feedback was not noted")
	}
	s.shared.Forget(1)
	if h := s.hello(1); h.Tail {
		t.Errorf("the former peer's HELLO goes back: %+v", h)
	}
	if h := s.hello(2); !h.Tail {
		t.Error("another peer's is forgotten, too")
	}
	if _, _, ok := s.send(1, 1); ok || s.toLeaf(1, 3) != 0 {
		t.Error("the former peer's proof or feedback counts")
	}
	s.prove(1)
	if _, f, _ := s.send(1, 1); f.FBValid && f.FBMetric != 0 {
		t.Errorf("the former peer is told: %+v", f)
	}
}

// Timestamps wrap every 65 ms, and clocks begin at 0.
func TestEchoOfAnyTime(t *testing.T) {
	p := congestion.Datacenter()
	for _, now := range []mono.Time{0, 1, 999, 1000, 65_535_999, 65_536_000, mono.Time(8 * 365 * 24 * time.Hour)} {
		s := NewShared(2, &p)
		if _, ok := s.echo(1, now); ok {
			t.Errorf("at %d a HELLO goes back that never came", now)
		}
		s.noteHello(1, 0xfff0, now)
		if got, ok := s.echo(1, now+100*us); !ok || got != overlay.Tstamp(0xfff0).Add(100*time.Microsecond) {
			t.Errorf("at %d: %#x, %v", now, got, ok)
		}
		if _, ok := s.echo(1, now-us); ok {
			t.Errorf("at %d: one from the future goes back", now)
		}
	}
}
