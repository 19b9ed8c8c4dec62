package network

import (
	"fmt"
	"testing"

	"github.com/loomfabric/loom/sim/engine"
)

// incast has hosts behind two switches send to one host behind the second one
// as fast as they can.
func incast(cfg BufferConfig, c PortConfig, hosts, packets int) (l *lab, to *Host, sinks []*sink) {
	l = newLab()
	b1, b2 := NewBuffer(cfg), NewBuffer(cfg)
	near, far := l.hub(b1), l.hub(b2)
	to = l.attach(near, c)
	up, _ := l.link(far, near, c)
	far.to(up, to.ID)
	for i := range hosts {
		s := near
		if i%2 == 0 {
			s = far
		}
		h := l.attach(s, c)
		src, at := l.flow(h, to, 1000+uint32(i*97%600), packets)
		l.start(src)
		sinks = append(sinks, at)
	}
	return l, to, sinks
}

// small is a buffer with little to share, PFC's headroom besides.
func small(c PortConfig, hosts int, pfc *PFC) BufferConfig {
	ports := uint64(hosts/2 + 2)
	cfg := BufferConfig{Total: 30000 + ports*headroomOf(c.Rate, c.Delay, 1600), PFC: pfc}
	if pfc == nil {
		cfg.Total = 30000
	}
	return cfg
}

// TestPFCLosesNothing at any rate and delay, with the headroom that the link
// needs; and with a part of it, or without PFC, it does.
func TestPFCLosesNothing(t *testing.T) {
	for _, rate := range []uint64{1e9, 10e9, 25e9, 40e9, 100e9, 400e9} {
		for _, delay := range []engine.Time{0, engine.Microsecond, 20 * engine.Microsecond, 100 * engine.Microsecond} {
			const hosts = 8
			packets := 300 + int(2*delay.Seconds()*float64(rate)/8000)
			c := PortConfig{Rate: rate, Delay: delay}
			name := fmt.Sprintf("%d Gbit/s, %v", rate/1e9, delay)
			for _, alpha := range []float64{1. / 8, 8} {
				l, _, sinks := incast(small(c, hosts, &PFC{Alpha: alpha}), c, hosts, packets)
				if err := l.Validate(); err != nil {
					t.Fatal(err)
				}
				for at := engine.Time(0); l.Engine.Pending() > 0; {
					at += engine.Millisecond / 4
					l.run(at)
					l.check(t)
					if stuck := l.Stuck(); stuck != nil {
						t.Fatalf("%s: %d ports are stuck", name, len(stuck))
					}
				}
				for i, at := range sinks {
					if at.packets != uint64(packets) {
						t.Errorf("%s, α = %v: flow %d lost %d of %d packets", name, alpha, i, uint64(packets)-at.packets, packets)
					}
				}
				checkPauses(t, name, l)
			}
			l, _, _ := incast(small(c, hosts, nil), c, hosts, packets)
			l.run(engine.Never)
			if d := l.Ledger(); d.Dropped[BufferFull] == 0 {
				t.Errorf("%s without PFC: nothing was dropped", name)
			}
			if delay < engine.Microsecond {
				continue // headroom is for a few packets in any case
			}
			half := headroomOf(rate, delay, 1600) / 2
			l, _, _ = incast(small(c, hosts, &PFC{Headroom: half}), c, hosts, packets)
			l.run(engine.Never)
			if d := l.Ledger(); d.Dropped[HeadroomFull] == 0 && half > 6000 {
				t.Errorf("%s with %d bytes of headroom: nothing was dropped", name, half)
			}
			l.check(t)
		}
	}
}

// checkPauses compares what was sent with what was obeyed.
func checkPauses(t *testing.T, name string, l *lab) {
	t.Helper()
	frames := uint64(0)
	for _, p := range l.Ports {
		s, peer := p.Stats(), p.Peer.Stats()
		frames += s.PausesSent
		if s.PausesSent != peer.Pauses || s.ResumesSent != s.PausesSent || p.Paused() {
			t.Errorf("%s: %s sent %d pauses and %d resumes, its peer paused %d times, %v in the end", name, p.Name, s.PausesSent, s.ResumesSent, peer.Pauses, p.Peer.Paused())
		}
		if (peer.Paused > 0) != (peer.Pauses > 0) || peer.Paused > l.Engine.Now() {
			t.Errorf("%s: %s paused %d times, for %v", name, p.Peer.Name, peer.Pauses, peer.Paused)
		}
	}
	if frames == 0 {
		t.Errorf("%s: no port paused", name)
	}
}

// TestPauseTiming: a pause frame has an effect after its transmission and
// propagation, on Data only, and never on a packet that is being sent.
func TestPauseTiming(t *testing.T) {
	n, a, b, at := pair(PortConfig{Rate: 10e9, Delay: engine.Microsecond})
	n.Bind(0, at, at)
	src := &testSource{host: a, flow: 0, dst: b.ID, size: 1250, left: -1}
	a.Ready(0, src)
	n.Engine.Run(10 * engine.Microsecond)
	before := src.made
	b.Port.signal(n.Engine.Now(), eventPause)
	effect := n.Engine.Now() + 51200*engine.Picosecond + engine.Microsecond
	n.Engine.Run(effect - 1)
	if a.Port.Paused() {
		t.Errorf("paused before %v", effect)
	}
	n.Engine.Run(effect)
	if !a.Port.Paused() || src.made != before+1 {
		t.Errorf("paused %v at %v, after %d packets more, want 1", a.Port.Paused(), effect, src.made-before)
	}
	for _, c := range []Class{DataClass, ControlClass, ControlClass, ControlClass} {
		p := n.Pool.Get()
		p.Dst, p.Size = b.ID, 100
		a.Send(n.Engine.Now(), p, c)
	}
	n.Engine.Run(engine.Never)
	if src.made != before+1 || a.Port.Queued() != 100 || a.Port.Stats().Packets != [Classes]uint64{3, before + 1} {
		t.Errorf("while paused: %d packets pulled, %d bytes wait, sent %v", src.made-before, a.Port.Queued(), a.Port.Stats().Packets)
	}
	if p := a.Port.Stats().Paused; p != n.Engine.Now()-effect || p < engine.Microsecond {
		t.Errorf("paused for %v, want %v", p, n.Engine.Now()-effect)
	}
	b.Port.signal(n.Engine.Now(), eventResume)
	n.Engine.Run(effect + 15*engine.Microsecond)
	if a.Port.Paused() || src.made < before+9 || a.Port.Queued() != 0 {
		t.Errorf("after the pause: %d packets pulled, %d bytes wait", src.made-before, a.Port.Queued())
	}
	checkLedger(t, n)
}

// TestThresholdsRise: a port whose packets all wait where nothing moves has its
// peer go on when others make room, and not only when one of its own leaves.
func TestThresholdsRise(t *testing.T) {
	l := newLab()
	c := PortConfig{Rate: 10e9, Delay: engine.Microsecond}
	s := l.hub(NewBuffer(BufferConfig{Total: 120000, PFC: &PFC{Alpha: 1}}))
	a, b, to := l.attach(s, c), l.attach(s, c), l.attach(s, c)
	blocked := l.attach(s, PortConfig{Rate: 10e9})
	blocked.Port.signal(0, eventPause)
	l.run(engine.Microsecond)
	first, _ := l.flow(a, blocked, 1000, 30)
	first.gap = 2 * engine.Microsecond
	l.start(first)
	var other [2]*testSource
	for i, h := range [2]*Host{b, blocked} { // twice what can leave, for a while
		other[i], _ = l.flow(h, to, 1000, 200)
		l.start(other[i])
	}
	off := false
	for at := engine.Time(0); l.Engine.Pending() > 0; at += 5 * engine.Microsecond {
		l.run(at)
		off = off || s.ports[0].account.off
		l.check(t)
	}
	if !off || s.ports[0].account.off || a.Port.Paused() || first.left > 0 {
		t.Errorf("was off %v, is %v; %d packets are left that would have room", off, s.ports[0].account.off, first.left)
	}
	if other[0].left+other[1].left > 0 || l.Ledger().TotalDropped() > 0 || l.Stuck() != nil {
		t.Errorf("the others have %d packets left, %v dropped, %d ports stuck", other[0].left+other[1].left, l.Ledger().Dropped, len(l.Stuck()))
	}
	if p := s.ports[3]; p.QueuedIn(DataClass) != 30000 || !p.Paused() {
		t.Errorf("%d bytes wait at the port that is blocked, want 30000", p.QueuedIn(DataClass))
	}
}

// TestDeadlock: three switches in a ring, each of whose flows goes two links
// around, wait for each other for ever. Nothing else is stuck.
func TestDeadlock(t *testing.T) {
	build := func(hops int) *lab {
		c := PortConfig{Rate: 10e9, Delay: engine.Microsecond}
		l := newLab()
		var hosts [3]*Host
		for i := range hosts {
			l.hub(NewBuffer(BufferConfig{Total: 60000, PFC: &PFC{}}))
			hosts[i] = l.attach(l.hubs[i], c)
		}
		for i := range hosts {
			ab, _ := l.link(l.hubs[i], l.hubs[(i+1)%3], c)
			l.hubs[i].to(ab, hosts[(i+1)%3].ID, hosts[(i+2)%3].ID)
		}
		for i := range hosts {
			s, _ := l.flow(hosts[i], hosts[(i+hops)%3], 1000, 5000)
			l.start(s)
		}
		return l
	}
	l := build(2)
	l.run(engine.Never) // nothing happens any more
	l.check(t)
	stuck := l.Stuck()
	ring := 0
	for _, p := range stuck {
		if _, ok := p.Node.(*hub); ok {
			ring++
		}
	}
	if ring != 3 || l.Ledger().Queued == 0 {
		t.Errorf("%d of %d stuck ports are of the ring, want 3; %d packets wait", ring, len(stuck), l.Ledger().Queued)
	}
	// A packet that a switch keeps to put it in order will move on.
	for _, p := range stuck {
		if _, ok := p.Peer.Node.(*hub); !ok || p.host != nil {
			continue
		}
		k := l.Pool.Get()
		k.Size, k.in = 100, p.Peer
		if !p.Peer.Charge(l.Engine.Now(), k) {
			t.Fatal("no room for a packet of 100 bytes")
		}
		if l.Stuck() != nil {
			t.Error("stuck, though a switch keeps a packet that it will let go")
		}
		p.Peer.Release(l.Engine.Now(), k)
		l.Drop(k, Unwanted)
		l.made++ // it has not come by a wire
	}
	if len(l.Stuck()) != len(stuck) {
		t.Error("not stuck any more")
	}
	// A link that fails lets go what waits for it.
	l.hubs[0].route[1].SetUp(l.Engine.Now(), false)
	l.run(engine.Never)
	if stuck := l.Stuck(); stuck != nil {
		t.Errorf("%d ports are stuck in a ring that is open", len(stuck))
	}
	l.check(t)

	l = build(1)
	l.run(engine.Never)
	if l.Stuck() != nil || l.Ledger().Delivered != 15000 {
		t.Errorf("flows of one hop: %d stuck, %d delivered", len(l.Stuck()), l.Ledger().Delivered)
	}
}
