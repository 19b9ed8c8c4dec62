package tcp

import (
	"fmt"
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
