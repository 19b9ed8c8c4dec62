package leaf

import (
	"testing"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/liveness"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// farewell returns what a leaf says to its peer 1 when it stops, and when: all of it.
func (p *pair) farewell(i int) (out []Outgoing[int], at []mono.Time) {
	s := p.site[i]
	if d := s.Leave(s.now); d != FarewellFor {
		p.t.Fatalf("it goes on for %v", d)
	}
	for now := s.now; now < s.now.Add(time.Second); now = s.Deadline() {
		for _, m := range s.Tick(now, false).Messages {
			if m.Leaf == 1 {
				out, at = append(out, m), append(at, now)
			}
		}
	}
	return out, at
}

func (p *pair) hear(i int, m *Outgoing[int]) {
	p.site[i].Accept(p.site[i].now, 1, &m.Fabric)
	p.site[i].Hello(p.site[i].now, 1, &m.Fabric, &m.Hello)
}

func (p *pair) standing(i int) overlay.Standing {
	return p.site[i].shared.Capable.Standing(1, p.site[i].now)
}

// A leaf that stops says so to each peer by all paths, some times within FarewellFor, and
// nothing after that. One of these is enough: the next packet is plain.
func TestFarewell(t *testing.T) {
	p := newPair(t, "ecmp")
	p.rounds(20)
	out, at := p.farewell(0)
	if len(out) != farewells*4 || at[len(at)-1]-p.site[0].now > mono.Time(FarewellFor)*2/3 {
		t.Fatalf("%d farewells, the last one after %v", len(out), time.Duration(at[len(at)-1]-p.site[0].now))
	}
	seen, hashes := map[uint8]int{}, map[uint32]bool{}
	for i := range out {
		h := &out[i].Hello
		if !h.Leaving || h.Large || h.Echo == 0 || out[i].Fabric.Opcode != overlay.OpHello {
			t.Errorf("%+v", out[i])
		}
		seen[out[i].Fabric.LBTag]++
		hashes[out[i].Hash] = true
	}
	if len(seen) != 4 || len(hashes) != farewells {
		t.Errorf("by uplinks %v, with source ports of %d hashes", seen, len(hashes))
	}
	b := p.site[1]
	for i := range out { // whichever one comes first
		q := newPair(t, "ecmp")
		q.rounds(20)
		out, _ := q.farewell(0)
		if _, _, ok := q.site[1].send(1, 1); !ok {
			t.Fatal("plain before the farewell")
		}
		q.hear(1, &out[i])
		if _, _, ok := q.site[1].send(1, 1); ok || q.standing(1) != overlay.Left || q.site[1].Stats().Farewells != 1 {
			t.Errorf("farewell %d: %v, %+v", i, q.standing(1), q.site[1].Stats().Farewells)
		}
	}
	for i := range out {
		p.hear(1, &out[i])
	}
	if n := b.Stats().Farewells; n != 1 || !p.capable(0) {
		t.Errorf("%d farewells are counted; the leaf that leaves can read what comes: %v", n, p.capable(0))
	}
	// It stays plain, and is not missed.
	p.pass(2 * interval)
	if out := p.hellos(1); out[0].Hello.Echo != 0 {
		t.Error("the nonce of a leaf that is gone is echoed")
	}
	for range 40 {
		b.now += mono.Time(liveness.LookEvery)
		b.Tick(b.now, false)
	}
	if b.Stats().Silent != 0 || p.standing(1) != overlay.Left {
		t.Errorf("%v, silent %d times", p.standing(1), b.Stats().Silent)
	}
}

// A leaf of which no peer has proved anything has nobody to say goodbye to, and nor has one
// that has never said HELLO.
func TestNobodyToSayGoodbyeTo(t *testing.T) {
	s := newSite(t, "ecmp")
	s.shared.Paths.Greet(1, 5)
	if d := s.Leave(s.now); d != 0 {
		t.Errorf("it goes on for %v without ever having said HELLO", d)
	}
	s = newSite(t, "ecmp")
	s.SetHello(s.now)
	s.Tick(s.now, false)
	if d := s.Leave(s.now); d != 0 || s.Deadline() != reorder.Never {
		t.Errorf("it goes on for %v, and is due again at %d", d, s.Deadline())
	}
}

// What is not a peer's own word, of the process that runs, revokes nothing.
func TestForgedFarewells(t *testing.T) {
	for _, tt := range []struct {
		name  string
		forge func(p *pair, m *Outgoing[int]) // from the peer's last HELLO
		want  overlay.Standing
	}{
		{"the peer's own", func(*pair, *Outgoing[int]) {}, overlay.Left},
		{"no echo", func(_ *pair, m *Outgoing[int]) { m.Hello.Echo = 0 }, overlay.Proved},
		{"a wrong echo", func(_ *pair, m *Outgoing[int]) { m.Hello.Echo++ }, overlay.Proved},
		{"the echo of another peer's nonce", func(p *pair, m *Outgoing[int]) {
			m.Hello.Echo = p.site[1].shared.nonce(2, p.site[1].Leaf.hello.round)
		}, overlay.Proved},
		{"an echo of long ago", func(p *pair, m *Outgoing[int]) {
			p.rounds(2*nonceRounds + 1)
		}, overlay.Proved},
		{"no shim", func(_ *pair, m *Outgoing[int]) { m.Fabric.Shim = false }, overlay.Proved},
		{"of a process that ran before", func(_ *pair, m *Outgoing[int]) { m.Hello.Boot++ }, overlay.Proved},
	} {
		p := newPair(t, "ecmp")
		p.rounds(20)
		m := p.hellos(0)[0]
		m.Hello.Leaving = true
		tt.forge(p, &m)
		p.hear(1, &m)
		if got := p.standing(1); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// A leaf restarts, and somebody plays back what it said before: neither its farewell nor
// its HELLOs of then count, in whatever order.
func TestFarewellsPlayedBack(t *testing.T) {
	p := newPair(t, "ecmp")
	p.rounds(20)
	old := p.hellos(0)
	bye, _ := p.farewell(0)
	p.hear(1, &bye[0])
	for i := range old { // HELLOs that were under way
		p.hear(1, &old[i])
	}
	if got := p.standing(1); got != overlay.Left || p.site[1].Stats().Stale != uint64(len(old)) {
		t.Errorf("after HELLOs of before the farewell: %v, %d stale", got, p.site[1].Stats().Stale)
	}
	q := newPair(t, "ecmp").site[0]
	q.shared.secret, q.shared.boot, q.now = Secret{9, 9}, 99, p.site[0].now
	p.site[0] = q
	p.rounds(3)
	if p.standing(1) != overlay.Proved || p.standing(0) != overlay.Proved {
		t.Fatalf("a leaf has restarted: %v and %v", p.standing(0), p.standing(1))
	}
	for range 3 {
		p.hear(1, &bye[1])
		p.hear(1, &old[0])
		p.hear(1, &bye[0])
		if got := p.standing(1); got != overlay.Proved || p.site[1].shared.Paths.Present(1) != 0b1111 {
			t.Fatalf("what a leaf said before its restart counts: %v", got)
		}
		p.rounds(1)
	}
}

// look lets a time pass at both, in the steps in which a driver calls Tick. Nothing is
// said.
func (p *pair) look(d mono.Time) {
	for end := p.site[0].now + d; p.site[0].now < end; p.pass(mono.Time(liveness.LookEvery)) {
		for _, s := range p.site {
			s.Leaf.hello.at = reorder.Never
			s.Tick(s.now, false)
		}
	}
}

// A leaf that is killed is plain after two of its rounds and a half; if it is there after
// all, from its next HELLO on.
func TestSilence(t *testing.T) {
	p := newPair(t, "ecmp")
	p.rounds(20)
	b := p.site[1]
	p.look(150 * ms)
	if p.standing(1) != overlay.Proved {
		t.Error("silent too early")
	}
	p.look(150 * ms)
	if p.standing(1) != overlay.Silent || b.Stats().Silent != 1 {
		t.Errorf("%v, silent %d times", p.standing(1), b.Stats().Silent)
	}
	if _, _, ok := b.send(1, 1); ok {
		t.Error("a silent leaf is sent the fabric's fields")
	}
	p.lost = func(from int, uplink uint8, _ bool) bool { return from == 0 && uplink != 2 }
	p.say(0, 0) // by one path
	if p.standing(1) != overlay.Proved {
		t.Error("a leaf that was silent is not back with its first HELLO")
	}
}

// A worker that did not run for long, or that cannot keep up, takes nobody for silent: what
// has come waits in its rings.
func TestNoTimeIsNotSilence(t *testing.T) {
	p := newPair(t, "ecmp")
	p.rounds(20)
	b := p.site[1]
	for range 5 {
		p.pass(600 * ms) // nothing was said in this time, as far as the worker knows
		b.Leaf.hello.at = reorder.Never
		b.Tick(b.now, false)
	}
	for range 100 {
		p.pass(mono.Time(liveness.LookEvery))
		b.Tick(b.now, true)
	}
	if b.Stats().Silent != 0 {
		t.Errorf("silent %d times", b.Stats().Silent)
	}
}

// Packets of tenants are signs of life, as long as the last proof counts: somebody who
// forges them cannot keep a leaf capable that is gone.
func TestTrafficIsNoProof(t *testing.T) {
	p := newPair(t, "ecmp")
	p.rounds(20)
	b := p.site[1]
	last := b.now - interval
	for p.standing(1) == overlay.Proved && b.now < last.Add(2*time.Second) {
		b.Accept(b.now, 1, &overlay.Fabric{Capable: true, LBTag: 1})
		p.look(mono.Time(liveness.LookEvery))
	}
	if d := time.Duration(b.now - last); d < overlay.CapableFor || d > overlay.CapableFor+2*liveness.LookEvery {
		t.Errorf("capable for %v", d)
	}
}

// A leaf of a large fabric says goodbye to all of its peers in time, and a part of them at
// a time: a control queue holds no more.
func TestManyFarewells(t *testing.T) {
	const peers = 1000
	c := congestion.Datacenter()
	shared := NewShared(peers, 1, Secret{}, &c)
	l, err := New[int](Config{Classes: []ClassConfig{{}}, Leaves: peers, Uplinks: 2}, shared)
	if err != nil {
		t.Fatal(err)
	}
	paths := make([]balance.Paths, peers)
	for i := range paths {
		paths[i] = balance.MakePaths(0, 1)
		shared.Paths.Greet(uint16(i), 5)
	}
	l.SetPaths(paths)
	l.SetHello(0)
	l.Tick(0, false)
	const start = mono.Time(time.Second)
	seen := map[uint16]int{}
	l.Leave(start)
	for now := start; now < reorder.Never; now = l.Deadline() {
		o := l.Tick(now, false)
		if len(o.Messages) > 2*100 || now.Sub(start) > FarewellFor*2/3 {
			t.Errorf("%d farewells after %v", len(o.Messages), now.Sub(start))
		}
		for _, m := range o.Messages {
			seen[m.Leaf]++
		}
	}
	for peer := range uint16(peers) {
		if seen[peer] != 2*farewells {
			t.Fatalf("%d farewells to leaf %d", seen[peer], peer)
		}
	}
}
