package tcp

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

// fork is a fabric of several paths: one host, a switch, links side by side, a switch,
// and one host. A flow's number decides about its path, both ways.
type fork struct {
	*rig
	paths []path
	lost  func(p *network.Packet, path int) bool
}

type path struct{ there, back *network.Port }

// side is one of the switches.
type side struct {
	*fork
	near bool
	host *network.Port
}

func (s *side) Receive(now engine.Time, p *network.Packet, in *network.Port) {
	if in != s.host {
		s.host.Send(now, p, network.DataClass)
		return
	}
	i := int(p.Flow) % len(s.paths)
	out := s.paths[i].there
	if !s.near {
		out = s.paths[i].back
	}
	if s.lost != nil && s.lost(p, i) {
		s.net.Drop(p, network.QueueFull)
		return
	}
	out.Send(now, p, network.DataClass)
}

func newFork(t *testing.T, cfg Config, hosts link, paths ...link) *fork {
	t.Helper()
	r := newRig(t, cfg)
	f := &fork{rig: r}
	near, far := &side{fork: f, near: true}, &side{fork: f}
	port := func(name string, i int, n network.Node, l link) *network.Port {
		return r.net.NewPort(name, i, n, network.PortConfig{Rate: l.rate, Delay: l.delay, Limit: l.limit}, nil)
	}
	for i, s := range []*side{near, far} {
		h := r.net.NewHost()
		h.Quantum = uint64(cfg.Burst)
		h.Port = port("host", 0, h, link{hosts.rate, hosts.delay, 0})
		s.host = port("switch", i, s, hosts)
		network.Connect(h.Port, s.host)
	}
	for i, l := range paths {
		p := path{port("near", i+1, near, l), port("far", i+1, far, l)}
		network.Connect(p.there, p.back)
		f.paths = append(f.paths, p)
	}
	return f
}

// subflows are n subflows of a connection, by all paths in turn; the numbers of
// connections are some hundreds apart.
func (r *rig) subflows(first network.FlowID, n, src, dst int) (subs []network.Flow) {
	for i := range n {
		subs = append(subs, r.flow(first+network.FlowID(i), src, dst, 0).Flow)
	}
	return subs
}

// multipath is the configuration of a host with MPTCP.
func multipath(control Control) Config {
	cfg := Defaults()
	cfg.Control, cfg.MinRTO = control, 10*ms
	cfg.Options = DSSOption
	cfg.Header += DSSOption
	return cfg
}

// TestMPTCPTakesAllPaths: over paths of unequal rates a connection has the capacity of
// both, of which one TCP has one path's (RFC 6356 §1, goal 1: "improve throughput").
func TestMPTCPTakesAllPaths(t *testing.T) {
	const mbit = 1_000_000
	for _, tc := range []struct{ a, b uint64 }{{100, 100}, {100, 300}, {50, 500}} {
		cfg := multipath(LIA)
		cfg.Window = 16 << 20
		f := newFork(t, cfg, link{gbit, 100 * us, 0}, link{tc.a * mbit, 500 * us, 100 * frame}, link{tc.b * mbit, 500 * us, 100 * frame})
		m := f.stack.OpenMulti(f.subflows(0, 2, 0, 1))
		m.Send(0, 0, Endless)
		f.run(engine.Second)
		before := m.Goodput()
		f.run(3 * engine.Second)
		got := float64(m.Goodput()-before) * 8 / 2
		most := float64(tc.a+tc.b) * mbit * float64(cfg.Segment()) / frame
		t.Logf("%d and %d Mbit/s: %.0f Mbit/s, %.1f %% of what fits", tc.a, tc.b, got/1e6, 100*got/most)
		if got < 0.9*most || got > most*1.01 {
			t.Errorf("%d and %d Mbit/s: %.1f Mbit/s arrive, and %.1f fit", tc.a, tc.b, got/1e6, most/1e6)
		}
		m.Abort(f.net.Engine.Now())
		f.finish()
	}
}

// TestMPTCPLossLaw: where packets get lost at random, as many on each path, the subflows of
// a connection together send as much as one TCP by one of the paths, however many they are
// (RFC 6356 §2.1); without the coupling each sends as much.
func TestMPTCPLossLaw(t *testing.T) {
	rate := func(control Control, subflows int) (segments float64) {
		cfg := multipath(control)
		cfg.Window, cfg.Defer, cfg.Handshake = 64<<20, false, false
		paths := make([]link, 8)
		for i := range paths {
			paths[i] = link{gbit, 5 * ms, 0}
		}
		f := newFork(t, cfg, link{10 * gbit, us, 0}, paths...)
		rnd := seeded(1)
		f.lost = func(p *network.Packet, _ int) bool { return p.Kind == network.Data && rnd.IntN(500) == 0 }
		m := f.stack.OpenMulti(f.subflows(0, subflows, 0, 1))
		m.Send(0, 0, Endless)
		f.run(5 * engine.Second)
		before := m.Goodput()
		f.run(45 * engine.Second)
		return float64(m.Goodput()-before) / float64(cfg.Segment()) / 40
	}
	one := rate(NewReno, 1)
	for _, n := range []int{2, 4} {
		within(t, fmt.Sprintf("segments a second of %d subflows", n), rate(LIA, n), one, 0.2)
	}
	within(t, "segments a second without coupling", rate(NewReno, 4), 4*one, 0.1)
}

// TestMPTCPSharesALink: on one bottleneck the subflows of a connection together take about
// as much as one TCP (RFC 6356 §1, goal 2: "do no harm"); without the coupling eight of
// them take eight shares. It is somewhat more than as much, since a full queue drops a few
// packets in a row: one subflow of eight halves a window that is an eighth.
func TestMPTCPSharesALink(t *testing.T) {
	share := func(control Control, subflows int) float64 {
		cfg := multipath(control)
		cfg.Window, cfg.Defer = 16<<20, false
		r := newRig(t, cfg, link{gbit, ms, 0}, link{gbit, ms, 0}, link{200_000_000, 4 * ms, 300 * frame})
		m := r.stack.OpenMulti(r.subflows(0, subflows, 0, 2))
		m.Send(0, 0, Endless)
		single := r.stack.OpenMulti(r.subflows(100, 1, 1, 2))
		single.Send(0, 100, Endless)
		r.run(5 * engine.Second)
		a, b := m.Goodput(), single.Goodput()
		r.run(25 * engine.Second)
		a, b = m.Goodput()-a, single.Goodput()-b
		t.Logf("%s, %d subflows: %.1f Mbit/s beside %.1f", control, subflows, float64(a)*8/20e6, float64(b)*8/20e6)
		return float64(a) / float64(a+b)
	}
	if got := share(LIA, 8); got < 0.4 || got > 0.7 {
		t.Errorf("eight coupled subflows take %.2f of the link, want about half", got)
	}
	if got := share(NewReno, 8); got < 0.8 {
		t.Errorf("eight subflows without coupling take %.2f of the link, want some 8/9: nothing is tested", got)
	}
}

// TestLIA is RFC 6356 §3 by hand: what one ACK of a segment adds to a subflow's window.
func TestLIA(t *testing.T) {
	type sub struct {
		cwnd float64 // segments
		rtt  engine.Time
	}
	for _, tc := range []struct {
		name string
		subs []sub
		want float64 // segments, of the first one
	}{
		{"alone: NewReno", []sub{{20, ms}}, 1. / 20},
		{"four alike: alpha is 1/4, of 1/80", []sub{{20, ms}, {20, ms}, {20, ms}, {20, ms}}, 1. / 320},
		// alpha = 50 (10/1)/(10/1+40/2)² = 50·10/900; of 40/4 and 10/1 the latter is no less.
		{"unequal", []sub{{10, ms}, {40, 2 * ms}}, 10. / 900},
		{"the best path is another one", []sub{{10, 10 * ms}, {10, ms}}, (10 / 1.) / (11 * 11)},
		{"never more than NewReno", []sub{{1000, engine.Second}, {2, ms}}, 1. / 1000},
		{"one without a round trip yet", []sub{{20, ms}, {10, 0}}, 1. / 20},
	} {
		s := Stack{cfg: Defaults(), control: lia{}}
		m := &Multi{stack: &s}
		for _, x := range tc.subs {
			m.subs = append(m.subs, &Conn{stack: &s, multi: m, cwnd: x.cwnd * segment, srtt: x.rtt})
		}
		c := m.subs[0]
		before := c.cwnd
		s.control.avoid(c, 0, segment)
		if got := (c.cwnd - before) / segment; math.Abs(got-tc.want) > 1e-9 {
			t.Errorf("%s: %g segments, want %g", tc.name, got, tc.want)
		}
	}
}

// TestMPTCPJoins: a short flow goes over the first subflow, in the time that it takes
// over TCP; the others begin when that one is established (RFC 8684 §3.2).
func TestMPTCPJoins(t *testing.T) {
	cfg := multipath(LIA)
	f := newFork(t, cfg, link{10 * gbit, 10 * us, 0}, link{10 * gbit, 10 * us, 0}, link{10 * gbit, 10 * us, 0})
	f.stack.Start(0, f.flow(500, 0, 1, 5*1428))
	f.finish()
	alone := f.at[500]
	start := f.net.Engine.Now()
	f.stack.StartMulti(start, f.subflows(0, 8, 0, 1), 5*1428)
	f.run(start + 50*us)
	for i, c := range f.stack.conns[:8] {
		if c.state != synSent && c.flow == 0 || c.state != fresh && c.flow != 0 {
			t.Errorf("connection %d, of subflow %d, is in state %d before the first one is established", i, c.flow, c.state)
		}
	}
	f.finish()
	if got := f.at[0] - start; got > alone+us {
		t.Errorf("done after %v, and after %v over TCP", got, alone)
	}
	for i := range network.FlowID(8) {
		if c := f.closed[i]; c.SYNs != 1 || i > 0 && c.Segments != 0 {
			t.Errorf("subflow %d: %+v", i, c)
		}
	}
}

// TestMPTCPIsOneStream: whatever happens on the paths, each message is done once, in
// order, and every byte arrives; eight subflows bring what one would.
func TestMPTCPIsOneStream(t *testing.T) {
	for seed := range uint64(30) {
		for _, n := range []int{1, 2, 8} {
			rnd := seeded(seed)
			cfg := multipath(LIA)
			cfg.Handshake, cfg.MinRTO = seed%2 == 0, ms
			cfg.Window = []uint64{20 * segment, 2 << 20}[seed/2%2]
			f := newFork(t, cfg, link{10 * gbit, us, 0}, link{gbit, 5 * us, 30 * frame}, link{4 * gbit, 50 * us, 10 * frame}, link{10 * gbit, 20 * us, 0})
			loss := []int{0, 50, 10}[seed%3]
			f.lost = func(*network.Packet, int) bool { return loss > 0 && rnd.IntN(loss) == 0 }
			m := f.stack.OpenMulti(f.subflows(0, n, 0, 1))
			var bytes uint64
			var want []network.FlowID
			for i := range network.FlowID(20) {
				size := 1 + rnd.Uint64N(400_000)
				bytes += size
				want = append(want, 1000+i)
				m.oneShot = i == 19
				m.Send(f.net.Engine.Now(), 1000+i, size)
				if i%4 == 3 {
					f.run(f.net.Engine.Now() + 2*ms)
				}
				if over := m.nxt - m.una; over > cfg.Window {
					t.Fatalf("seed %d, %d subflows: %d bytes under way, and the window is %d", seed, n, over, cfg.Window)
				}
			}
			f.finish()
			sum := f.stack.Counters()
			if !slices.Equal(f.done, want) || sum.Goodput != bytes || m.Goodput() != bytes {
				t.Fatalf("seed %d, %d subflows: %d messages of 20, %d bytes of %d; %+v", seed, n, len(f.done), sum.Goodput, bytes, sum)
			}
			used := 0
			for i := range network.FlowID(n) {
				if c := f.closed[i]; c.Bytes > 0 {
					used++
				}
			}
			if used != n && loss == 0 && cfg.Window > 20*segment {
				t.Errorf("seed %d: %d of %d subflows had data", seed, used, n)
			}
			if sum.Reinjected > 0 && sum.Timeouts == 0 {
				t.Errorf("seed %d, %d subflows: reinjected without a timeout: %+v", seed, n, sum)
			}
		}
	}
}

// TestMPTCPReinjects: when a path goes dead in the middle of a flow, what is lost on it
// comes by the other one after the first timeout, and the flow ends.
func TestMPTCPReinjects(t *testing.T) {
	cfg := multipath(LIA)
	f := newFork(t, cfg, link{10 * gbit, 10 * us, 0}, link{gbit, 50 * us, 0}, link{gbit, 50 * us, 0})
	f.lost = func(_ *network.Packet, path int) bool { return path == 1 && f.net.Engine.Now() > 2*ms }
	m := f.stack.OpenMulti(f.subflows(0, 2, 0, 1))
	m.Send(0, 0, 4_000_000) // 32 ms by one path
	f.run(engine.Second)
	if at := f.at[0]; at == 0 || at > 60*ms {
		t.Errorf("done after %v", at)
	}
	dead, other := m.subs[1].Counters(), m.subs[0].Counters()
	if other.Reinjected == 0 || dead.Reinjected != 0 || dead.Timeouts == 0 || other.Timeouts != 0 {
		t.Errorf("by the dead path %+v, by the other one %+v", dead, other)
	}
	if m.una != m.end {
		t.Errorf("%d of %d bytes are acknowledged", m.una, m.end)
	}
	m.Abort(f.net.Engine.Now())
	f.finish()
}

// TestMPTCPAllocs: a steady run of flows with losses allocates nothing.
func TestMPTCPAllocs(t *testing.T) {
	cfg := multipath(LIA)
	cfg.MinRTO, cfg.Window, cfg.Handshake = ms, 60*segment, false
	f := newFork(t, cfg, link{10 * gbit, us, 0}, link{gbit, 5 * us, 30 * frame}, link{gbit, 5 * us, 30 * frame})
	rnd := seeded(3)
	f.lost = func(*network.Packet, int) bool { return rnd.IntN(100) == 0 }
	ids := make([][]network.Flow, 200)
	for i := range ids {
		ids[i] = f.subflows(network.FlowID(8*i), 8, 0, 1)
	}
	next := 0
	f.onDone = func(now engine.Time, _ network.FlowID) {
		next = (next + 1) % len(ids)
		f.stack.StartMulti(now, ids[next], 1+rnd.Uint64N(300_000))
	}
	for range 4 {
		f.onDone(0, 0)
	}
	until := 300 * ms
	f.run(until)
	before := f.stack.Counters()
	n := testing.AllocsPerRun(5, func() {
		until += 4 * ms
		f.run(until)
	})
	if after := f.stack.Counters(); n > 0 || after.Segments-before.Segments < 2000 || after.Reinjected == before.Reinjected {
		t.Errorf("%v allocations; %+v, then %+v", n, before, after)
	}
}

func TestMPTCPRefused(t *testing.T) {
	for name, f := range map[string]func(*rig){
		"no subflows":   func(r *rig) { r.stack.OpenMulti(nil) },
		"too many":      func(r *rig) { r.stack.OpenMulti(r.subflows(0, MaxSubflows+1, 0, 1)) },
		"no bytes":      func(r *rig) { r.stack.StartMulti(0, r.subflows(0, 2, 0, 1), 0) },
		"behind a flow": func(r *rig) { r.stack.StartMulti(0, r.subflows(0, 2, 0, 1), 1); r.stack.conns[0].multi.Send(0, 1, 1) },
		"closed":        func(r *rig) { m := r.stack.OpenMulti(r.subflows(0, 2, 0, 1)); m.Abort(0); m.Send(0, 0, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if p := recover(); p == nil {
					t.Error("accepted")
				} else if fmt.Sprint(p) == "" {
					t.Error("no reason is given")
				}
			}()
			f(lossy(t, nil))
		})
	}
}
