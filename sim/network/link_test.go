package network

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/loomfabric/loom/sim/engine"
)

func TestLinkDown(t *testing.T) {
	l := newLab()
	c := PortConfig{Rate: 10e9, Delay: 10 * engine.Microsecond}
	s1, s2 := l.hub(nil), l.hub(nil)
	a, b := l.attach(s1, PortConfig{Rate: 20e9}), l.attach(s2, c)
	ab, _ := l.link(s1, s2, c)
	s1.to(ab, b.ID)
	src, at := l.flow(a, b, 1250, -1)
	l.start(src) // two packets come for each that goes on, which takes a microsecond
	l.run(30200 * engine.Nanosecond)
	ab.SetUp(l.Engine.Now(), false)
	ab.Peer.SetUp(l.Engine.Now(), false) // is down already
	d := l.Ledger()
	// 60 have come since 500 ns: 30 left before 30.2 µs, 11 of them since 19.2 µs.
	if d.Dropped[LinkCut] != 11 || d.Dropped[LinkDown] != 30 || ab.Queued() != 0 || ab.Up() {
		t.Errorf("%d cut, %d that waited dropped, %d bytes wait; want 11, 30, 0", d.Dropped[LinkCut], d.Dropped[LinkDown], ab.Queued())
	}
	l.check(t)
	was := at.packets
	l.run(50 * engine.Microsecond)
	if d = l.Ledger(); d.Dropped[LinkCut] != 11 || at.packets <= was || ab.Stats().Dropped[LinkDown] < 65 {
		t.Errorf("while down: %d cut, %d dropped, %d arrived after they had crossed", d.Dropped[LinkCut], ab.Stats().Dropped[LinkDown], at.packets-was)
	}
	was = at.packets
	up := l.Engine.Now()
	ab.Peer.SetUp(up, true)
	at.record = true
	l.run(80 * engine.Microsecond)
	if at.packets == was || at.times[0] < up+22*engine.Microsecond || at.times[0] > up+22*engine.Microsecond+c.Delay/10 {
		t.Errorf("after the link was up, at %v, %d packets came, the first at %v", up, at.packets-was, at.times)
	}
	want := []string{"30.2µs ab false", "50µs ab true"}
	if !slices.Equal(s1.told, want) || len(s2.told) != 2 {
		t.Errorf("switches were told %q and %q, want %q of one", s1.told, s2.told, want)
	}
	// A host's sources wait while its link is down.
	a.Port.SetUp(l.Engine.Now(), false)
	pulls := src.pulls
	a.Ready(l.Engine.Now(), src)
	l.run(100 * engine.Microsecond)
	if src.pulls != pulls {
		t.Errorf("a source was asked for packets of a link that is down")
	}
	a.Port.SetUp(l.Engine.Now(), true)
	l.run(l.Engine.Now() + 2*engine.Microsecond)
	if src.pulls == pulls {
		t.Errorf("a source was not asked when the link came up")
	}
	l.check(t)
}

// TestPauseSurvivesTheLink: a port that is over its threshold when its link
// comes back has its peer pause again.
func TestPauseSurvivesTheLink(t *testing.T) {
	l := newLab()
	c := PortConfig{Rate: 10e9, Delay: engine.Microsecond}
	s := l.hub(NewBuffer(BufferConfig{Total: 100000, PFC: &PFC{}}))
	slow := PortConfig{Rate: 1e6}
	a, b := l.attach(s, c), l.attach(s, slow)
	src, _ := l.flow(a, b, 1000, -1)
	l.start(src)
	l.run(100 * engine.Microsecond)
	if !a.Port.Paused() {
		t.Fatal("the host is not paused")
	}
	made := src.made
	a.Port.SetUp(l.Engine.Now(), false)
	if a.Port.Paused() {
		t.Error("paused by a link that is down")
	}
	a.Port.SetUp(l.Engine.Now(), true)
	l.run(l.Engine.Now() + 50*engine.Microsecond)
	if !a.Port.Paused() || src.made == made || src.made > made+4 || l.Ledger().TotalDropped() > 2 {
		t.Errorf("paused %v, %d packets more, dropped %v", a.Port.Paused(), src.made-made, l.Ledger().Dropped)
	}
	l.check(t)
}

// fabric is a leaf-spine fabric with a host's way through it chosen by its
// number: nothing here balances load.
func fabric(leaves, spines, hosts int, buffer func() *Buffer, c PortConfig) (l *lab, all []*Host) {
	l = newLab()
	for range leaves + spines {
		l.hub(buffer())
	}
	for leaf := range leaves {
		for range hosts {
			all = append(all, l.attach(l.hubs[leaf], c))
		}
	}
	for leaf := range leaves {
		for spine := range spines {
			up, down := l.link(l.hubs[leaf], l.hubs[leaves+spine], c)
			for _, h := range all {
				if int(h.ID)/hosts == leaf {
					l.hubs[leaves+spine].to(down, h.ID)
				} else if int(h.ID)%spines == spine {
					l.hubs[leaf].to(up, h.ID)
				}
			}
		}
	}
	return l, all
}

// bufferKinds are the kinds of memory that switches have in random runs.
var bufferKinds = []struct {
	name string
	make func() *Buffer
}{
	{"none", func() *Buffer { return nil }},
	{"thresholds", func() *Buffer { return NewBuffer(BufferConfig{Total: 50000}) }},
	{"PFC", func() *Buffer { return NewBuffer(BufferConfig{Total: 150000, PFC: &PFC{}}) }},
	{"PFC, little headroom", func() *Buffer { return NewBuffer(BufferConfig{Total: 40000, PFC: &PFC{Headroom: 3000}}) }},
}

// faulty runs a fabric with random flows while links fail and come back at
// random, and checks that no packet and no byte is lost from sight.
func faulty(t *testing.T, buffer func() *Buffer, seed uint64) (*lab, []PortStats) {
	r := rand.New(rand.NewPCG(seed, 11))
	l, hosts := fabric(3, 2, 3, buffer, PortConfig{Rate: 10e9, Delay: engine.Microsecond, Limit: uint64(r.IntN(2) * 30000), ECN: ECN{Kmin: 3000, Kmax: 20000, Pmax: 0.3, Enqueue: r.IntN(2) == 0}})
	if err := l.Validate(); err != nil {
		t.Fatal(err)
	}
	for range 40 {
		a, b := hosts[r.IntN(len(hosts))], hosts[r.IntN(len(hosts))]
		if a == b {
			continue
		}
		a.Quantum = uint64(r.IntN(3) * 4000)
		s, _ := l.flow(a, b, 64+uint32(r.IntN(1500)), 20+r.IntN(200))
		s.gap, s.ect = engine.Time(r.IntN(3))*700*engine.Nanosecond, true
		l.start(s)
	}
	for step := range 150 {
		l.run(engine.Time(step) * 3 * engine.Microsecond)
		now := l.Engine.Now()
		switch p := l.Ports[r.IntN(len(l.Ports))]; r.IntN(4) {
		case 0:
			p.SetUp(now, false)
		case 1, 2:
			p.SetUp(now, true)
		}
		// Switches send of their own accord, in all classes, to hosts or nobody.
		p := l.Pool.Get()
		p.Size, p.Dst, p.Kind = 64+uint32(r.IntN(1000)), HostID(r.IntN(len(hosts))), Kind(r.IntN(int(Control+1)))
		p.Flow = FlowID(r.IntN(len(l.sinks) + 3))
		s := l.hubs[r.IntN(len(l.hubs))]
		s.ports[r.IntN(len(s.ports))].Send(now, p, Class(r.IntN(Classes)))
		if r.IntN(5) == 0 {
			l.Consume(l.Pool.Get())
		}
		l.check(t)
	}
	for _, p := range l.Ports {
		p.SetUp(l.Engine.Now(), true)
	}
	l.run(engine.Never)
	l.check(t)
	if d := l.Ledger(); l.Stuck() == nil && (d.Queued+d.Flying > 0 || l.Pool.Out() > 0) {
		t.Errorf("in the end %d packets wait and %d fly, though nothing is stuck", d.Queued, d.Flying)
	}
	var stats []PortStats
	for _, p := range l.Ports {
		stats = append(stats, p.Stats())
	}
	return l, stats
}

// TestConservation is a property test: also of determinism, since each run is
// made twice.
func TestConservation(t *testing.T) {
	for _, kind := range bufferKinds {
		var dropped [Reasons]uint64
		for seed := range uint64(25) {
			t.Run(fmt.Sprintf("%s/%d", kind.name, seed), func(t *testing.T) {
				l, stats := faulty(t, kind.make, seed)
				again, same := faulty(t, kind.make, seed)
				if !reflect.DeepEqual(stats, same) || l.Ledger() != again.Ledger() || l.Engine.Handled() != again.Engine.Handled() || l.Engine.Now() != again.Engine.Now() {
					t.Error("two runs with the same seed differ")
				}
				d := l.Ledger()
				for i := range dropped {
					dropped[i] += d.Dropped[i]
				}
			})
		}
		for _, why := range []Reason{LinkDown, LinkCut, NoFlow} {
			if dropped[why] == 0 {
				t.Errorf("%s: nothing was dropped for %v: the test does not test that", kind.name, why)
			}
		}
		if kind.name == "thresholds" && dropped[BufferFull] == 0 || kind.name == "PFC, little headroom" && dropped[HeadroomFull] == 0 {
			t.Errorf("%s: buffers were never full", kind.name)
		}
	}
}

func TestLedgerFindsLostPackets(t *testing.T) {
	n, a, b, at := pair(PortConfig{Rate: 1e9})
	n.Bind(0, at, at)
	p := n.Pool.Get()
	p.Dst, p.Size = b.ID, 100
	a.Send(0, p, DataClass)
	a.Port.Peer.land() // the wire lost it
	l := n.Ledger()
	if l.Check() == nil {
		t.Error("a packet that vanished is not missed")
	}
	for r := range Reason(Reasons + 1) {
		if r.String() == "" || r < Reasons && slices.Contains(reasonNames[:r], r.String()) {
			t.Errorf("reason %d is called %q", r, r)
		}
	}
}
