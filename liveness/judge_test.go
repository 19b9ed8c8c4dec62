package liveness

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
)

// rounds is a peer's HELLOs as they come to a leaf over four paths, by hand. The peer is 1.
type rounds struct {
	*Table
	*Judge
	traffic *Traffic
	t       *testing.T
	rng     *rand.Rand
	now     mono.Time
	boot    uint32
	round   uint32
	sent    [MaxTags]uint32
	came    [MaxTags]uint32
	present uint16
	// drops says whether a path loses a packet: a HELLO, a padded one, or of data.
	drops func(tag int, k kind) bool
	data  int // packets a round and path
	full  uint16
	last  Report
}

type kind int

const (
	short kind = iota
	long
	tenants
)

const allPaths = 0b1111

func newRounds(t *testing.T) *rounds {
	table := NewTable(3, 1)
	traffic := NewTraffic(table, 0)
	return &rounds{
		Table: table, Judge: NewJudge(table, traffic), traffic: traffic, t: t, rng: rand.New(rand.NewPCG(1, 2)), now: mono.Time(time.Hour),
		boot: 7, present: allPaths, data: 100, drops: func(int, kind) bool { return false },
	}
}

// next lets n rounds pass.
func (r *rounds) next(n int) Report {
	for range n {
		r.round++
		r.now = r.now.Add(Interval(1))
		h := overlay.Hello{Boot: r.boot, Round: r.round, Present: r.present, LargeRound: r.round / LargeEvery * LargeEvery, Nonce: 5}
		for tag := range MaxTags {
			if r.present>>tag&1 == 0 {
				continue
			}
			for range r.data {
				r.sent[tag]++
				if !r.drops(tag, tenants) {
					r.came[tag]++
					r.traffic.Arrive(1, uint8(tag))
					if r.full>>tag&1 != 0 {
						r.traffic.ArriveHot(1, uint8(tag))
					}
				}
			}
			h.Sent, h.Large = r.sent[tag], h.LargeRound == r.round || (r.last.Silent|r.last.Lossy|r.last.Narrow)>>tag&1 != 0 && r.round%2 == 0
			k := short
			if h.Large {
				k = long
			}
			if !r.drops(tag, k) {
				r.Hear(1, uint8(tag), &h, 0, r.came[tag], r.now)
			}
		}
		r.last = r.From(1)
	}
	return r.last
}

func (r *rounds) want(what string, got Report, want Report) {
	r.t.Helper()
	if got != want {
		r.t.Errorf("%s: %+v, want %+v", what, got, want)
	}
}

// until returns how many rounds pass until the report is want; it gives up after limit.
func (r *rounds) until(want Report, limit int) int {
	r.t.Helper()
	for n := 1; n <= limit; n++ {
		if r.next(1) == want {
			return n
		}
	}
	r.t.Fatalf("after %d rounds: %+v, want %+v", limit, r.last, want)
	return 0
}

func TestAllPathsAreAlive(t *testing.T) {
	r := newRounds(t)
	for range 1000 {
		r.want("all deliver", r.next(1), Report{})
	}
}

// A path that delivers nothing is found after MissedRounds, and is trusted again when it
// has brought ProofRounds of them, a padded one among them.
func TestSilentPath(t *testing.T) {
	r := newRounds(t)
	r.next(100)
	r.drops = func(tag int, k kind) bool { return tag == 2 }
	r.want("too early", r.next(MissedRounds-1), Report{})
	r.want("silent", r.next(1), Report{Silent: 1 << 2})
	if r.Loss(1, 2) != 65535 {
		t.Errorf("its loss is %d of 65535", r.Loss(1, 2))
	}
	r.want("still", r.next(300), Report{Silent: 1 << 2})
	r.drops = func(tag int, k kind) bool { return tag == 2 && k == long }
	r.want("only short packets come", r.next(300), Report{Silent: 1 << 2})
	r.drops = func(int, kind) bool { return false }
	if n := r.until(Report{}, 2*ProofRounds); n < ProofRounds-1 || n > ProofRounds+1 {
		t.Errorf("healed, and trusted again after %d rounds", n)
	}
	if r.Loss(1, 2) != 0 {
		t.Errorf("its loss is %d of 65535 after that", r.Loss(1, 2))
	}
}

// HELLOs alone do not make a path silent that brings tenants' packets: a node that has no
// time for both loses some of both.
func TestPacketsAreSignsOfLife(t *testing.T) {
	r := newRounds(t)
	r.next(50)
	r.data = 3
	r.drops = func(tag int, k kind) bool { return tag == 2 && (k != tenants || r.rng.IntN(2) == 0) }
	r.want("some packets come", r.next(500), Report{})
	r.data = 0
	if n := r.until(Report{Silent: 1 << 2}, 10); n < MissedRounds {
		t.Errorf("silent after %d rounds", n)
	}
}

// A path that has never delivered is found as well.
func TestSilentFromTheStart(t *testing.T) {
	r := newRounds(t)
	r.drops = func(tag int, k kind) bool { return tag == 0 }
	if n := r.until(Report{Silent: 1}, 10); n < MissedRounds || n > MissedRounds+1 {
		t.Errorf("found after %d rounds", n)
	}
}

// A peer that is gone, or has no time, gives no reason to blame a path; nor has one with
// a single path.
func TestNothingComes(t *testing.T) {
	r := newRounds(t)
	r.next(50)
	r.drops = func(int, kind) bool { return true }
	r.want("the peer is silent", r.next(100), Report{})
	r.drops = func(int, kind) bool { return false }
	r.want("it is back", r.next(100), Report{})
	r.present = 1 << 3
	r.want("one path left", r.next(10), Report{})
	r.drops = func(int, kind) bool { return true }
	r.want("which is silent", r.next(100), Report{})
}

// A path that the peer no longer sends by is not missed, and is good when it is back.
func TestPathsThatTheRoutesTakeAway(t *testing.T) {
	r := newRounds(t)
	r.next(50)
	r.present &^= 1 << 1
	r.want("withdrawn", r.next(50), Report{})
	r.present |= 1 << 1
	r.want("back", r.next(50), Report{})
	r.drops = func(tag int, k kind) bool { return tag == 1 }
	r.until(Report{Silent: 1 << 1}, MissedRounds)
	r.present &^= 1 << 1
	r.want("silent, and withdrawn", r.next(5), Report{})
}

// One direction of a gray failure: long packets only.
func TestNarrowPath(t *testing.T) {
	r := newRounds(t)
	r.data = 0
	r.next(3 * LargeEvery)
	r.drops = func(tag int, k kind) bool { return tag == 1 && k == long }
	if n := r.until(Report{Narrow: 1 << 1}, 4*LargeEvery); n < 2*LargeEvery {
		t.Errorf("found after %d rounds: one padded HELLO may be lost", n)
	}
	r.want("still", r.next(10*LargeEvery), Report{Narrow: 1 << 1})
	r.drops = func(int, kind) bool { return false }
	if n := r.until(Report{}, 2*ProofRounds); n < ProofRounds {
		t.Errorf("trusted after %d rounds", n)
	}
	// All of them: there is nothing to compare with, and nothing to compare.
	r.drops = func(tag int, k kind) bool { return k == long }
	r.until(Report{Narrow: allPaths}, 4*LargeEvery)
}

// A path that loses one packet in twenty is found within some seconds, by what arrives
// against what was sent, and one that loses as much as all others is not blamed: then
// it is the receiver or the load.
func TestLossyPath(t *testing.T) {
	r := newRounds(t)
	share := func(p ...float64) func(int, kind) bool {
		return func(tag int, k kind) bool { return k == tenants && r.rng.Float64() < p[tag] }
	}
	r.next(50)
	r.drops = share(0.01, 0.01, 0.01, 0.01)
	r.want("one in a hundred", r.next(6000), Report{})
	r.drops = share(0, 0, 0, 0.05)
	if n := r.until(Report{Lossy: 1 << 3}, 120); n < lossyWindows*WindowRounds {
		t.Errorf("found after %d rounds", n)
	}
	if l := float64(r.Loss(1, 3)) / 65535; l < 0.02 || l > 0.1 {
		t.Errorf("its loss is %v", l)
	}
	r = newRounds(t)
	r.drops = share(0.2, 0.2, 0.15, 0.25)
	r.want("all the same", r.next(6000), Report{})
	r = newRounds(t)
	r.drops, r.full = share(0.1, 0, 0, 0), 1
	r.want("a link on the way is full", r.next(6000), Report{})
	// By little traffic nothing is judged.
	r = newRounds(t)
	r.drops, r.data = share(0.2, 0, 0, 0), 5
	r.want("little traffic", r.next(1000), Report{})
}

// Packets that stand in queues when a HELLO overtakes them are not lost, however many.
func TestQueuesAreNotLoss(t *testing.T) {
	r := newRounds(t)
	r.next(50)
	for i := range 3000 {
		standing := uint32(r.rng.IntN(80)) // of the hundred that are sent in a round
		if i%100 == 0 {
			standing = 3000 // three rounds' worth
		}
		before := r.came
		for tag := range 4 {
			r.came[tag] -= min(standing, r.came[tag])
		}
		report := r.next(1)
		for tag := range 4 {
			r.came[tag] = before[tag] + uint32(r.data)
		}
		r.want("queues", report, Report{})
	}
}

// A tenant fills a link on the way for a moment of every round or every few of them, and
// what comes then has no room: the path is sound, whatever else goes by it. What is lost
// between such moments is the path's fault all the same.
func TestBurstsAreNotLoss(t *testing.T) {
	for _, every := range []uint32{1, 2, 3, 5} {
		r := newRounds(t)
		r.next(50)
		burst := func() bool { return r.round%every == 0 }
		r.drops = func(tag int, k kind) bool { return tag == 1 && k == tenants && burst() && r.rng.IntN(3) == 0 }
		standing := uint32(0)
		for range 2000 {
			r.full = 0
			if (r.round+1)%every == 0 {
				r.full = 1 << 1
			}
			// Some of the burst stand in the queue as the HELLO overtakes them.
			if r.full != 0 {
				standing = uint32(r.rng.IntN(40))
			}
			r.came[1] -= min(standing, r.came[1])
			got := r.next(1)
			r.came[1] += standing
			standing = 0
			r.want("bursts", got, Report{})
		}
	}
	r := newRounds(t)
	r.next(50)
	r.drops = func(tag int, k kind) bool { return tag == 1 && k == tenants && r.rng.IntN(20) == 0 }
	for range 1000 {
		r.full = 0
		if r.round%5 == 0 {
			r.full = 1 << 1
		}
		if r.next(1) != (Report{}) {
			break
		}
	}
	r.want("one packet in twenty, and bursts", r.last, Report{Lossy: 1 << 1})
}

// A path that fails again and again has to prove itself for longer each time, so that
// traffic does not go to and fro; after a quiet minute that is forgotten.
func TestRelapses(t *testing.T) {
	r := newRounds(t)
	r.next(20)
	dead := func(tag int, k kind) bool { return tag == 0 }
	alive := func(int, kind) bool { return false }
	for _, want := range []int{10, 20, 40, 80, 160, 320, 640, 640} {
		r.drops = dead
		r.until(Report{Silent: 1}, MissedRounds)
		r.drops = alive
		if n := r.until(Report{}, 1000); n < want || n > want+1 {
			t.Errorf("trusted after %d rounds, want %d", n, want)
		}
		r.next(30)
	}
	r.next(relapseRounds + maxProof)
	r.drops = dead
	r.until(Report{Silent: 1}, MissedRounds)
	r.drops = alive
	if n := r.until(Report{}, 1000); n > ProofRounds+1 {
		t.Errorf("after a quiet minute it takes %d rounds", n)
	}
}

// A peer that starts again counts from the beginning, in rounds and in packets.
func TestPeerStartsAgain(t *testing.T) {
	r := newRounds(t)
	r.drops = func(tag int, k kind) bool { return tag == 0 }
	r.next(500)
	r.boot, r.round, r.sent = 8, 0, [MaxTags]uint32{}
	r.drops = func(int, kind) bool { return false }
	r.want("anew", r.next(300), Report{})
	r.drops = func(tag int, k kind) bool { return tag == 3 }
	r.until(Report{Silent: 1 << 3}, MissedRounds)
	// Its place goes to another peer.
	r.Forget(1)
	r.boot, r.round = 9, 0
	r.drops = func(int, kind) bool { return false }
	r.want("another peer", r.next(300), Report{})
}

// No path is given up because of random losses of HELLOs below one in fifty, in ten
// minutes with a hundred seeds.
func TestNoFalseAlarm(t *testing.T) {
	for seed := range uint64(100) {
		r := newRounds(t)
		r.rng = rand.New(rand.NewPCG(seed, 3))
		r.data = 0
		r.drops = func(int, kind) bool { return r.rng.IntN(50) == 0 }
		for range 6000 {
			if r.next(1) != (Report{}) {
				t.Fatalf("seed %d, round %d: %+v", seed, r.round, r.last)
			}
		}
	}
}

// What a peer says of the paths to it is in force as long as it says so, and as long as
// there is a better one.
func TestReportsInForce(t *testing.T) {
	table := NewTable(2, 1)
	j := NewJudge(table, NewTraffic(table, 0))
	now := mono.Time(time.Second)
	say := func(round uint32, r Report) {
		h := overlay.Hello{Boot: 1, Round: round, Present: 1, Silent: r.Silent, Lossy: r.Lossy, Narrow: r.Narrow, EchoTag: 2, Loss: 6553}
		table.Hear(1, 0, &h, 0, 0, now)
	}
	for i, c := range []struct {
		report     Report
		used, dead uint16
	}{
		{Report{}, allPaths, 0},
		{Report{Silent: 1, Lossy: 2, Narrow: 4}, allPaths, 7},
		{Report{Silent: 1, Lossy: 2, Narrow: 4}, 0b0111, 1},  // lossy is better than silent
		{Report{Silent: 1, Lossy: 2, Narrow: 4}, 0b0001, 0},  // the only one
		{Report{Silent: allPaths}, allPaths, 0},              // none is better
		{Report{Silent: 0b0011}, allPaths, 0b0011},           //
		{Report{Silent: 0b0011, Lossy: 1}, 0b1100, 0},        // not of those in use
		{Report{Lossy: 0b1111, Silent: 0b0001}, 0b1111, 0b1}, //
	} {
		say(uint32(i+1), c.report)
		before := table.Changes()
		old := table.Dead(1)
		j.To(1, c.used, now)
		if got := table.Dead(1); got != c.dead || (table.Changes() != before) != (old != c.dead) {
			t.Errorf("case %d: %04b, want %04b", i, got, c.dead)
		}
	}
	p := table.Path(1, 0, now)
	if !p.Avoided || p.State != Silent || p.GivenUp != 3 {
		t.Errorf("path 0: %+v", p)
	}
	if p := table.Path(1, 2, now); p.Avoided || p.State != Lossy || p.Loss < 0.099 || p.Loss > 0.101 {
		t.Errorf("path 2: %+v", p)
	}
	now = now.Add(overlay.CapableFor + 1)
	j.To(1, allPaths, now)
	if table.Dead(1) != 0 || table.Path(1, 0, now).State != Unknown {
		t.Error("an old report is in force")
	}
	say(100, Report{Silent: 1})
	j.To(1, allPaths, now)
	before := table.Changes()
	table.Forget(1)
	if table.Dead(1) != 0 || table.Changes() == before {
		t.Error("of a former peer, too")
	}
}

// Counts of several workers add up, within shareEvery.
func TestTrafficOfSeveralWorkers(t *testing.T) {
	table := NewTable(2, 3)
	var w [3]*Traffic
	for i := range w {
		w[i] = NewTraffic(table, i)
	}
	now := mono.Time(time.Second)
	for i, c := range w {
		for range 10 * (i + 1) {
			c.Send(1, 3)
			c.Arrive(1, 4)
			c.Arrive(1, 4)
			c.ArriveHot(1, 4)
		}
	}
	if w[0].Sent(1, 3) != 10 || w[1].Came(1, 4) != 40 {
		t.Error("copies before they are made")
	}
	for _, c := range w {
		if c.Deadline() > now {
			t.Error("nobody shares")
		}
		c.Share(now, 2)
		if c.Deadline() < now+shareEvery {
			t.Error("at once again")
		}
	}
	for i, c := range w {
		if c.Sent(1, 3) != 60 || c.Came(1, 4) != 120 || c.Hot(1, 4) != 60 || c.Sent(0, 3) != 0 || c.Sent(1, 4) != 0 {
			t.Errorf("worker %d sees %d and %d", i, c.Sent(1, 3), c.Came(1, 4))
		}
	}
	w[1].Send(1, 3)
	w[1].Share(now+shareEvery-1, 2)
	if w[0].Sent(1, 3) != 60 {
		t.Error("shared before its time")
	}
	w[1].Share(now+shareEvery, 2)
	if w[0].Sent(1, 3) != 61 {
		t.Error("not shared")
	}
	one := NewTraffic(NewTable(2, 1), 0)
	one.Send(1, 1)
	if one.Deadline() != mono.Time(1<<63-1) {
		t.Error("a single worker shares")
	}
}

// HELLOs take at most a thousandth of a link of 1 Gb/s, padding included: at 64 leaves, and
// at the 126 up to which the interval grows.
func TestHellosAreCheap(t *testing.T) {
	const peers, wire = 63, 24 // FCS, preamble and gap
	const small, large = overlay.MaxOverhead + overlay.EthernetLen + overlay.HelloLen + wire, 1514 + overlay.MaxOverhead + wire
	for _, n := range []int{peers, 125} {
		perSecond := float64(n) / Interval(n).Seconds()
		share := 8 * perSecond * (small*(LargeEvery-1) + large) / LargeEvery / 1e9
		t.Logf("%d peers: %.3f %% of 1 Gb/s", n, 100*share)
		if share > 0.001 {
			t.Errorf("%d peers: %.4f %% of 1 Gb/s on each uplink", n, 100*share)
		}
	}
	for _, c := range []struct {
		peers int
		want  time.Duration
	}{{0, 100}, {1, 100}, {50, 100}, {63, 126}, {125, 250}, {1024, 250}} {
		if got := Interval(c.peers); got != c.want*time.Millisecond {
			t.Errorf("%d peers: %v", c.peers, got)
		}
	}
	if d := Interval(peers) * (MissedRounds + 1); d > time.Second {
		t.Errorf("a dead path is found after %v", d)
	}
	if d := Interval(4) * (ProofRounds + 2); d > 2*time.Second {
		t.Errorf("a healed path is back after %v", d)
	}
}

// Timestamps wrap every 65 ms, and clocks begin at 0.
func TestEchoOfAnyTime(t *testing.T) {
	const us = mono.Time(time.Microsecond)
	for _, now := range []mono.Time{0, 1, 999, 1000, 65_535_999, 65_536_000, mono.Time(8 * 365 * 24 * time.Hour)} {
		s := NewTable(2, 1)
		if _, ok := s.Echo(1, 3, now); ok {
			t.Errorf("at %d a HELLO goes back that never came", now)
		}
		s.Hear(1, 3, &overlay.Hello{Boot: 1, Round: 1}, 0xfff0, 0, now)
		if got, ok := s.Echo(1, 3, now+100*us); !ok || got != overlay.Tstamp(0xfff0).Add(100*time.Microsecond) {
			t.Errorf("at %d: %#x, %v", now, got, ok)
		}
		if _, ok := s.Echo(1, 3, now-us); ok {
			t.Errorf("at %d: one from the future goes back", now)
		}
	}
}

// What is known of the paths by a tag goes when the tag goes to another uplink, and what is
// known of others stays.
func TestForgetTag(t *testing.T) {
	table := NewTable(2, 1)
	for p := range uint16(2) {
		for tag := range uint8(2) {
			table.RoundTrip(p, tag, time.Millisecond)
		}
		table.dead[p].Store(0b11)
	}
	changes := table.Changes()
	table.ForgetTag(1)
	for p := range uint16(2) {
		if table.Trip(p, 0) == 0 || table.Trip(p, 1) != 0 || table.Dead(p) != 0b01 {
			t.Errorf("peer %d: round trips %v and %v, dead %b", p, table.Trip(p, 0), table.Trip(p, 1), table.Dead(p))
		}
	}
	if table.Changes() == changes {
		t.Error("nobody is told that paths may be used again")
	}
}
