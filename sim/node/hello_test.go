package node

import (
	"testing"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/leaf"
	"github.com/loomfabric/loom/liveness"
	"github.com/loomfabric/loom/reorder"
	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

// couple is two leaves whose uplinks are each other's, with a host behind each.
type couple struct {
	net    *network.Network
	leaves [2]*Leaf
	hosts  [2]*network.Host
}

func newCouple(t *testing.T, delay time.Duration, cfg Config) *couple {
	t.Helper()
	r := &couple{net: network.New(engine.New())}
	where := &Directory{}
	wire := network.PortConfig{Rate: 10 * gbit, Delay: engine.Of(delay), Limit: 1 << 20}
	for i := range r.leaves {
		l, err := NewLeaf(r.net, string(rune('A'+i)), uint16(i), 2, where, cfg)
		if err != nil {
			t.Fatal(err)
		}
		r.leaves[i] = l
		for range 2 {
			if _, err := l.AddUplink("up", wire); err != nil {
				t.Fatal(err)
			}
		}
		l.SetPaths(uint16(1-i), []uint8{0, 1})
		h := r.net.NewHost()
		h.Port = r.net.NewPort("host", 0, h, wire, nil)
		network.Connect(h.Port, l.AddHost("access", h.ID, wire))
		r.hosts[i] = h
	}
	for u := range 2 {
		network.Connect(r.leaves[0].uplinks[u].port, r.leaves[1].uplinks[u].port)
	}
	if err := Join(r.leaves[:]); err != nil {
		t.Fatal(err)
	}
	return r
}

// until lets time pass.
func (r *couple) until(t time.Duration) { r.net.Engine.Run(engine.Of(t)) }

func (r *couple) capable(i int) bool {
	return r.leaves[i].Brain().View().Capable.Capable(uint16(1-i), r.net.Engine.Now().Mono())
}

// rounds is how many rounds of HELLOs there were by a time.
func rounds(t time.Duration) uint64 { return uint64(t / liveness.Interval(1)) }

// Leaves know each other at time 0, and an interval later they begin to say HELLO, ahead
// of data and by each uplink: so a leaf stays capable however long nothing else
// comes from it.
func TestLeavesStayCapable(t *testing.T) {
	const long = 20*time.Second + time.Millisecond
	r := newCouple(t, 10*time.Microsecond, DefaultConfig())
	for at := time.Duration(0); at < long; at += 50 * time.Millisecond {
		r.until(at)
		if !r.capable(0) || !r.capable(1) {
			t.Fatalf("at %v leaves know of each other: %v and %v", at, r.capable(0), r.capable(1))
		}
	}
	r.until(long)
	for i, l := range r.leaves {
		if s := l.Stats(); s.Messages != 2*rounds(long) || s.Control != 2*rounds(long) {
			t.Errorf("leaf %d sent %d HELLOs and got %d, want %d", i, s.Messages, s.Control, 2*rounds(long))
		}
		for u := range l.uplinks {
			s := l.uplinks[u].port.Stats()
			if s.Packets[network.ControlClass] != rounds(long) || s.Packets[network.DataClass] != 0 {
				t.Errorf("leaf %d, uplink %d: %v packets, want %d HELLOs", i, u, s.Packets, rounds(long))
			}
		}
		// A HELLO's time comes back with the peer's next one, once leaves have proved
		// themselves: with the third round.
		if h := l.Brain().Stats().RoundTrip; h.N != 2*rounds(long)-4 || h.Quantile(0) < 15*time.Microsecond || h.Max > 30*time.Microsecond {
			t.Errorf("leaf %d measured %d round trips of %v to %v, want 20µs", i, h.N, h.Quantile(0), h.Max)
		}
	}
	if l := r.net.Ledger(); l.Consumed != 4*rounds(long) || l.Check() != nil || l.TotalDropped() != 0 {
		t.Errorf("ledger %+v", l)
	}
}

// traffic has host 0 send packets of many flows to host 1 at an even pace from now on,
// for a while.
func (r *couple) traffic(flows int, gap, d time.Duration) {
	end := r.net.Engine.Now() + engine.Of(d)
	var id engine.ID
	n := uint32(0)
	id = r.net.Engine.Register(handler(func(now engine.Time) {
		p := r.net.Pool.Get()
		p.Src, p.Dst, p.Size, p.Hash, p.ECT = 0, 1, 1000, n%uint32(flows)*0x9e3779b9, true
		n++
		r.hosts[0].Send(now, p, network.DataClass)
		if now += engine.Of(gap); now < end {
			r.net.Engine.At(now, id, 0)
		}
	}))
	r.net.Engine.At(r.net.Engine.Now(), id, 0)
}

type handler func(now engine.Time)

func (h handler) Handle(now engine.Time, _ uint64) { h(now) }

func allTimes() leaf.Auto {
	return leaf.Auto{Reply: true, Inactive: true, ResumeExtra: true, ResumeDefault: true, MaxHold: true, FlowletGap: true}
}

// labConWeave are ConWeave's values for links that are slow; auto begins with them.
func labConWeave() map[string]balance.Params {
	return map[string]balance.Params{"conweave": balance.Find("conweave").Section.New(balance.Lab)}
}

// Under profile auto a leaf derives its times from the round trips that it measures, in
// virtual time as in the data plane: those of HELLOs, and those of RTT_REQUESTs where
// there is traffic. They are put in force on both sides of ConWeave.
func TestTimesFollowRoundTrips(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Scheme, cfg.Auto, cfg.Sections = "conweave", allTimes(), labConWeave()
	for _, busy := range []bool{false, true} {
		const delay = 500 * time.Microsecond
		r := newCouple(t, delay, cfg)
		l := r.leaves[0]
		lab := balance.LabConWeave()
		reply := func() time.Duration { return l.class().Policy.(balance.ConWeavePolicy).Params().Reply }
		if busy {
			r.traffic(5, 100*time.Microsecond, 60*time.Second)
		}
		r.until(leaf.AutoEvery - time.Millisecond)
		if l.tuner.State().Changes != 0 || reply() != lab.Reply {
			t.Errorf("busy %v: θ_reply is %v before anybody has looked", busy, reply())
		}
		r.until(5*leaf.AutoEvery + time.Millisecond) // HELLOs came back
		s := l.tuner.State()
		if s.Changes != 1 || s.P50 < 900*time.Microsecond || s.P99 > 1200*time.Microsecond {
			t.Fatalf("busy %v: %+v, want round trips of 1ms", busy, s)
		}
		// The last round came back after the leaf had looked.
		if n := l.Brain().Stats().RoundTrip.N - 2; !busy && s.Samples != n || busy && s.Samples < 4*n {
			t.Errorf("busy %v: %d round trips, %d of HELLOs", busy, s.Samples, n)
		}
		queue := time.Duration(1<<20) * 8 / 10 // 1 MiB at 10 Gbit/s, in ns
		if got := s.Times.Inactive; got < 4*s.Times.Reply || s.Times.Reply < 2*delay || got < s.P99+queue {
			t.Errorf("busy %v: derived %+v of %v to %v and a queue of %v", busy, s.Times, s.P50, s.P99, queue)
		}
		side := l.Brain().Receiver(reorder.SchemeID).(*reorder.ConWeave).Params()
		if reply() != s.Times.Reply || side.ResumeExtra != s.Times.ResumeExtra || side.ResumeDefault != s.Times.ResumeDefault || side.MaxHold != s.Times.MaxHold {
			t.Errorf("busy %v: %+v is derived, %v and %+v are in force", busy, s.Times, reply(), side)
		}
	}
}

// Where nothing is to be derived, nothing is, and schemes with flowlets take the gap.
func TestTheFlowletGapFollowsRoundTrips(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Scheme = "letflow"
	gap := func(auto leaf.Auto, delay time.Duration) time.Duration {
		cfg.Auto = auto
		r := newCouple(t, delay, cfg)
		r.until(6 * leaf.AutoEvery)
		table := r.leaves[0].class().Policy.(balance.FlowletPolicy).Flowlets()
		now := r.net.Engine.Now().Mono()
		table.Set(5, 1, now)
		for d := mono.Time(0); ; d += mono.Time(50 * time.Microsecond) {
			if _, active := table.Lookup(5, now+d); !active {
				return time.Duration(d)
			}
		}
	}
	if got := gap(leaf.Auto{}, 2*time.Millisecond); got > time.Millisecond {
		t.Errorf("the gap is %v, and nobody asked for another", got)
	}
	if got := gap(allTimes(), 2*time.Millisecond); got < 4*time.Millisecond || got > 6*time.Millisecond {
		t.Errorf("the gap is %v, with round trips of 4ms and queues of 0.8ms", got)
	}
}
