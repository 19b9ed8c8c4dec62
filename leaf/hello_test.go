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

const interval = mono.Time(100 * time.Millisecond)

// A round of HELLOs goes to each peer that there is a path to, capable or not, by all
// paths.
func TestHellosGoByAllPaths(t *testing.T) {
	s := newSite(t, "ecmp")
	s.SetHello(s.now)
	for round := range uint32(40) {
		if s.Deadline() != s.now {
			t.Fatalf("round %d is due at %d, not %d", round, s.Deadline(), s.now)
		}
		o := s.Tick(s.now, false)
		used := map[uint16]uint16{}
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
			h := &m.Hello
			large := (h.Round+uint32(m.Leaf))%liveness.LargeEvery == 0
			if h.Round != round+1 || h.Boot == 0 || h.Nonce == 0 || h.Echo != 0 || h.Large != large || large != (h.LargeRound == h.Round) {
				t.Errorf("round %d: %+v", round, h)
			}
			used[m.Leaf] |= 1 << uplink
		}
		if used[1] != 0b1111 || used[2] != 0b1010 || len(o.Messages) != 6 {
			t.Errorf("round %d: %d HELLOs, by uplinks %v", round, len(o.Messages), used)
		}
		if again := s.Tick(s.now+interval-1, false); len(again.Messages) != 0 {
			t.Errorf("round %d, and one more before its time: %+v", round, again.Messages)
		}
		s.now += interval
	}
}

// A round to many peers is spread over the interval: a queue of control packets does not
// hold one for every leaf of a large fabric.
func TestHellosAreSpread(t *testing.T) {
	const peers = 63
	p := congestion.Datacenter()
	shared := NewShared(peers, 2, Secret{}, &p)
	site := func(worker int) *Leaf[int] {
		l, err := New[int](Config{Worker: worker, Classes: []ClassConfig{{}}, Leaves: peers, Uplinks: 2}, shared)
		if err != nil {
			t.Fatal(err)
		}
		paths := make([]balance.Paths, peers)
		for i := range paths {
			paths[i] = balance.MakePaths(0, 1)
		}
		l.SetPaths(paths)
		l.SetHello(7e9)
		return l
	}
	l := site(0)
	every := mono.Time(liveness.Interval(peers))
	for round := range mono.Time(3) {
		seen := map[uint16]int{}
		for now := 7e9 + round*every; now < 7e9+(round+1)*every; now = l.hello.at {
			o := l.Tick(now, false)
			if len(o.Messages) > 2*helloPeers {
				t.Errorf("%d HELLOs at a time", len(o.Messages))
			}
			for _, m := range o.Messages {
				seen[m.Leaf]++
			}
			if d := l.hello.at - now; d < every/10 || d > every/5 {
				t.Errorf("the next ones come after %v of %v", time.Duration(d), time.Duration(every))
			}
		}
		for peer := range uint16(peers) {
			if seen[peer] != 2 {
				t.Errorf("round %d: %d HELLOs to leaf %d", round, seen[peer], peer)
			}
		}
	}
	// The first worker does it for all.
	second := site(1)
	if o := second.Tick(7e9, false); len(o.Messages) != 0 || second.Deadline() != reorder.Never {
		t.Errorf("the second worker says %d HELLOs, the next at %d", len(o.Messages), second.Deadline())
	}
}

// pair is two leaves that are each other's peer 1, by four paths.
type pair struct {
	t    *testing.T
	site [2]*site
	// lost says whether a path of one of them, 0 or 1, loses a HELLO.
	lost func(from int, uplink uint8, large bool) bool
}

func newPair(t *testing.T, schemes ...string) *pair {
	p := &pair{t: t, lost: func(int, uint8, bool) bool { return false }}
	for i := range p.site {
		p.site[i] = newSiteOf(t, Config{Seed: uint64(i)}, schemes...)
		p.site[i].shared.secret = Secret{uint64(i), 1}
		p.site[i].shared.boot = uint32(i + 1)
		p.site[i].now = mono.Time(time.Hour) * mono.Time(i+1)
	}
	return p
}

// hellos returns what a leaf says to its peer 1 now.
func (p *pair) hellos(i int) (out []Outgoing[int]) {
	s := p.site[i]
	s.SetHello(s.now)
	for _, m := range s.Tick(s.now, false).Messages {
		if m.Leaf == 1 && m.Fabric.Opcode == overlay.OpHello { // schemes say things, too
			out = append(out, m)
		}
	}
	return out
}

// pass lets time pass at both.
func (p *pair) pass(d mono.Time) {
	p.site[0].now += d
	p.site[1].now += d
}

// say has a leaf say HELLO to the other one, which gets it after a time.
func (p *pair) say(i int, after mono.Time) {
	out := p.hellos(i)
	p.pass(after)
	for _, m := range out {
		if p.lost(i, m.Fabric.LBTag, m.Hello.Large) {
			continue
		}
		if kind := p.site[1-i].Accept(p.site[1-i].now, 1, &m.Fabric); kind != Greeting {
			p.t.Fatalf("a HELLO is %d", kind)
		}
		p.site[1-i].Hello(p.site[1-i].now, 1, &m.Fabric, &m.Hello)
	}
}

// rounds lets n rounds pass.
func (p *pair) rounds(n int) {
	for range n {
		p.say(0, 0)
		p.say(1, 0)
		p.pass(interval)
	}
}

func (p *pair) capable(i int) bool { return p.site[i].View().Capable.Capable(1, p.site[i].now) }

// A peer is sent the fabric's fields when its HELLO has echoed this leaf's nonce: nobody
// can make a peer capable who does not get what is sent to it.
func TestOnlyAnEchoProvesAPeer(t *testing.T) {
	p := newPair(t, "ecmp")
	a := p.site[0]
	forge := func(h overlay.Hello) {
		f := overlay.Fabric{Capable: true, Opcode: overlay.OpHello, Shim: true}
		a.Accept(a.now, 1, &f)
		a.Hello(a.now, 1, &f, &h)
		a.Accept(a.now, 1, &overlay.Fabric{Capable: true, CE: 3})
	}
	for echo := range uint64(1000) {
		forge(overlay.Hello{Boot: 66, Round: uint32(echo + 1), Present: 1, Silent: 0xfe, Nonce: 6, Echo: echo})
	}
	if p.capable(0) || a.Stats().Unproved != 1000 || a.shared.Paths.EchoTag(1, 0) != 0 {
		t.Fatal("a forged HELLO is believed")
	}
	p.rounds(1)
	if !p.capable(0) || p.capable(1) { // 1 has heard 0 and has echoed
		t.Errorf("after a round: %v, %v", p.capable(0), p.capable(1))
	}
	p.rounds(1)
	if !p.capable(0) || !p.capable(1) {
		t.Errorf("after two rounds: %v, %v", p.capable(0), p.capable(1))
	}
	// Forged ones do not disturb leaves that know each other, nor speak of their paths.
	for range 50 {
		forge(overlay.Hello{Boot: 66, Round: 1 << 20, Present: 1, Silent: 0x0e, Nonce: 6, Echo: 7})
		p.rounds(1)
		forge(overlay.Hello{Boot: 66, Round: 1 << 20, Present: 1, Silent: 0x0e, Nonce: 6, Echo: 7})
	}
	if !p.capable(0) || !p.capable(1) || a.shared.Paths.Dead(1) != 0 {
		t.Error("forged HELLOs disturb")
	}
	// A nonce counts for two times nonceRounds.
	old := p.hellos(1)[0]
	p.rounds(2*nonceRounds + 1)
	p.lost = func(int, uint8, bool) bool { return true }
	p.rounds(10)
	if p.capable(0) {
		t.Error("a peer that is silent is capable")
	}
	a.Hello(a.now, 1, &old.Fabric, &old.Hello)
	if p.capable(0) {
		t.Error("a HELLO of long ago is believed")
	}
}

// Leaves that restart find each other within some rounds, whichever it is.
func TestLeavesRestart(t *testing.T) {
	for i := range 2 {
		p := newPair(t, "ecmp")
		p.rounds(20)
		p.site[i] = newPair(t, "ecmp").site[i]
		p.site[i].shared.boot, p.site[i].shared.secret = 77, Secret{7, 7}
		p.rounds(3)
		if !p.capable(0) || !p.capable(1) {
			t.Errorf("leaf %d has restarted: %v, %v", i, p.capable(0), p.capable(1))
		}
	}
}

// What a HELLO met on its way is not a data packet's.
func TestHellosDoNotMeasureCongestion(t *testing.T) {
	s := newSite(t, "ecmp")
	s.Accept(s.now, 1, &overlay.Fabric{Capable: true, Opcode: overlay.OpHello, CE: 7, LBTag: 2})
	s.shared.Capable.Confirm(1, s.now)
	_, f, ok := s.send(1, 1)
	if x := s.Exchange(); !ok || f.FBValid || x.Arrived != 1 || x.CongestedArrived != 0 {
		t.Errorf("%v, %+v, %+v", ok, f, x)
	}
	s.now = s.now.Add(overlay.CapableFor)
	if _, _, ok := s.send(1, 1); !ok {
		t.Error("plain too early")
	}
	s.now++
	if _, _, ok := s.send(1, 1); ok {
		t.Error("fields to a peer that has been silent for long")
	}
}

// Packets that met a link in use for more than half are known as such, by path.
func TestPacketsThatMetBusyLinks(t *testing.T) {
	s := newSite(t, "ecmp")
	for ce := range uint8(8) {
		s.Accept(s.now, 1, &overlay.Fabric{Capable: true, CE: ce, LBTag: 3})
	}
	s.Accept(s.now, 1, &overlay.Fabric{CE: 7, LBTag: 3}) // not the fabric's
	if came, hot := s.traffic.Came(1, 3), s.traffic.Hot(1, 3); came != 8 || hot != 4 {
		t.Errorf("%d packets came, %d of them met busy links; want 8 and 4", came, hot)
	}
}

// Two leaves measure the round trip between them, by each path: what is there and back,
// and not how long the peer kept the HELLO. Their clocks differ.
func TestHellosMeasureTheRoundTrip(t *testing.T) {
	const there, back = 300 * us, 500 * us
	for _, stay := range []mono.Time{0, us, 20 * ms, 90 * ms} {
		p := newPair(t, "ecmp")
		a := p.site[0]
		for range 12 {
			p.say(0, there)
			p.pass(stay)
			p.say(1, back)
			p.pass(interval - stay)
		}
		h := a.Stats().RoundTrip
		if h.N < 4*9 || h.Quantile(0) < time.Duration(there+back-2*us) || h.Max > time.Duration(there+back+2*us) {
			t.Errorf("kept for %v: %d round trips of %v to %v, want %v", time.Duration(stay), h.N, h.Quantile(0), h.Max, time.Duration(there+back))
		}
		for tag := range uint8(4) {
			x := a.shared.Paths.Path(1, tag, a.now)
			if x.State != liveness.Alive || (x.RoundTrip-time.Duration(there+back)).Abs() > 2*time.Microsecond {
				t.Errorf("kept for %v: path %d: %+v", time.Duration(stay), tag, x)
			}
		}
	}
	p := newPair(t, "ecmp")
	p.rounds(4)
	// A HELLO that was kept for too long is not sent back: the clocks are not that equal.
	p.pass(600 * ms)
	for _, m := range p.hellos(1) {
		if m.Fabric.Tail || m.Fabric.Arg != 0 {
			t.Errorf("an old HELLO goes back: %+v", m.Fabric)
		}
	}
	a := p.site[0]
	before := a.Stats().RoundTrip
	m := p.hellos(1)[0]
	m.Fabric.Tail, m.Fabric.Arg = true, overlay.TstampOf(a.now)+5
	a.Hello(a.now, 1, &m.Fabric, &m.Hello) // as if it were yet to be sent
	if got := a.Stats().RoundTrip; got != before {
		t.Errorf("%d round trips of nothing", got.N-before.N)
	}
}

// Under every scheme traffic leaves a path that does not deliver, within a second of
// rounds, comes back within two when it is healed, and meanwhile what a scheme chooses
// among the paths that it is shown is sent by these.
func TestQuarantine(t *testing.T) {
	for _, scheme := range balance.Names() {
		p := newPair(t, scheme)
		a := p.site[0]
		flow := uint32(0)
		uplinks := func() (used uint16) {
			for range 400 {
				flow++
				pkts := []balance.Packet{{Hash: flow * 0x9e3779b1, Leaf: 1, Host: flow, Len: 1000}}
				a.Choose(a.now, a.Classes()[0], pkts, make([]balance.Exact, 1))
				used |= 1 << a.paths[1].Uplink[pkts[0].Path]
				a.now += 10 * us
			}
			p.site[1].now += 400 * 10 * us
			return used
		}
		p.rounds(20)
		if got := uplinks(); got != 0b1111 && scheme != "static" {
			t.Errorf("%s: at first by uplinks %04b", scheme, got)
		}
		p.lost = func(from int, uplink uint8, _ bool) bool { return from == 0 && (uplink == 1 || uplink == 2) }
		p.rounds(8)
		if got := uplinks(); got&^0b1001 != 0 {
			t.Errorf("%s: by uplinks %04b, want 1001: %04b are dead", scheme, got, a.shared.Paths.Dead(1))
		}
		if got := p.site[1].shared.Paths.Dead(1); got != 0 {
			t.Errorf("%s: the other direction is dead, too: %04b", scheme, got)
		}
		p.lost = func(int, uint8, bool) bool { return false }
		p.rounds(14)
		if got := uplinks(); got&0b0110 == 0 && scheme != "static" {
			t.Errorf("%s: healed, by uplinks %04b", scheme, got)
		}
		p.lost = func(from int, uplink uint8, _ bool) bool { return from == 0 }
		p.rounds(14)
		if got := uplinks(); got&0b0110 == 0 && scheme != "static" {
			t.Errorf("%s: with no better path by uplinks %04b", scheme, got)
		}
	}
}

// Answers leave by paths that deliver, too.
func TestAnswersKeepOffDeadPaths(t *testing.T) {
	p := newPair(t, "conweave")
	a := p.site[0]
	p.rounds(20)
	p.lost = func(from int, uplink uint8, _ bool) bool { return from == 0 && uplink != 3 }
	p.rounds(8)
	x := request(1)
	for hash := range uint32(100) {
		x.Hash, x.Fabric.TxTstamp = hash*0x01000193, overlay.Tstamp(hash)
		for _, m := range a.arrive(0, []uint8{1}, x).Messages {
			if got := a.paths[1].Uplink[m.Path]; got != 3 || m.Fabric.LBTag != 3 {
				t.Fatalf("an answer leaves by uplink %d with tag %d", got, m.Fabric.LBTag)
			}
		}
	}
	if n := a.Stats().Unsent; n != (Unsent{}) {
		t.Errorf("%+v", n)
	}
}

// New paths of the driver's are in force at once, with what is known of them.
func TestQuarantineFollowsPaths(t *testing.T) {
	p := newPair(t, "ecmp")
	a := p.site[0]
	p.rounds(20)
	p.lost = func(from int, uplink uint8, _ bool) bool { return from == 0 && uplink == 2 }
	p.rounds(8)
	a.SetPaths([]balance.Paths{balance.MakePaths(), balance.MakePaths(2, 0), balance.MakePaths(), balance.MakePaths()})
	for hash := range uint32(100) {
		pkts := []balance.Packet{{Hash: hash * 0x9e3779b1, Leaf: 1, Copies: 1}}
		a.Choose(a.now, a.Classes()[0], pkts, nil)
		if pkts[0].Path != 1 {
			t.Fatalf("path %d, want 1: the one by uplink 0", pkts[0].Path)
		}
	}
	a.SetPaths([]balance.Paths{balance.MakePaths(), balance.MakePaths(2), balance.MakePaths(), balance.MakePaths()})
	p.rounds(1)
	pkts := []balance.Packet{{Hash: 1, Leaf: 1}}
	if a.Choose(a.now, a.Classes()[0], pkts, nil); pkts[0].Path != 0 || a.View().Paths[1].N != 1 {
		t.Error("the last path is taken away")
	}
	copies := []balance.Packet{{Leaf: 0, Path: 1, Copies: 0b101}}
	q := quarantine{index: [][balance.MaxPaths]uint8{{3, 5, 7}}}
	if q.translate(copies, true); copies[0].Path != 5 || copies[0].Copies != 1<<3|1<<7 {
		t.Errorf("%+v", copies[0])
	}
}

// When a place goes to another peer nothing of the former one counts.
func TestForget(t *testing.T) {
	s := newSite(t, "conga")
	f := overlay.Fabric{Capable: true, LBTag: 2, CE: 5, FBValid: true, FBTag: 3, FBMetric: 6}
	s.Accept(s.now, 1, &f)
	s.prove(1)
	s.shared.Paths.Greet(1, 99)
	s.shared.Paths.Greet(2, 98)
	if s.toLeaf(1, 3) != 6 {
		t.Fatal("feedback was not noted")
	}
	s.shared.Forget(1)
	if s.shared.Paths.Nonce(1) != 0 || s.shared.Paths.Nonce(2) != 98 {
		t.Error("the former peer's nonce goes back, or another one's is forgotten, too")
	}
	if _, _, ok := s.send(1, 1); ok || s.toLeaf(1, 3) != 0 {
		t.Error("the former peer's proof or feedback counts")
	}
	s.prove(1)
	if _, f, _ := s.send(1, 1); f.FBValid && f.FBMetric != 0 {
		t.Errorf("the former peer is told: %+v", f)
	}
}
