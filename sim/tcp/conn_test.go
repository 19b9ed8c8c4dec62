package tcp

import (
	"maps"
	"slices"
	"testing"

	"github.com/loomfabric/loom/internal/stat"
	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

// TestPersistent sends messages over one connection: they are complete in
// order, the second finds the window and the round-trip time of the first, and
// the connection ends when it is closed and all has arrived.
func TestPersistent(t *testing.T) {
	r := lossy(t, func(c *Config) { c.InitialWindow, c.Handshake = 10, true })
	c := r.stack.Open(r.flow(9, 0, 1, 0))
	const bytes = 100 * segment
	c.Send(0, 100, bytes)
	r.run(10 * ms)
	first := r.at[100]
	if first == 0 || c.srtt == 0 || c.end-c.una != 0 {
		t.Fatalf("done after %v, RTT %v, %d bytes pending", first, c.srtt, c.end-c.una)
	}
	if cwnd := c.cwnd; cwnd < 100*segment {
		t.Errorf("the window is %.0f segments after 100", cwnd/segment)
	}
	c.Send(10*ms, 101, bytes)
	r.run(20 * ms)
	// All at once: the window is open.
	if got, want := r.at[101]-10*ms, 101*1514*800*engine.Picosecond+50*us; got != want {
		t.Errorf("the second took %v, want %v; the first took %v", got, want, first)
	}
	// What stands behind something else waits for it.
	for i := range network.FlowID(20) {
		c.Send(20*ms, 200+i, 10*segment)
	}
	c.close(20 * ms)
	r.finish()
	want := []network.FlowID{100, 101}
	for i := range network.FlowID(20) {
		want = append(want, 200+i)
	}
	if !slices.Equal(r.done, want) || r.at[219]-r.at[200] < 190*1514*800 {
		t.Errorf("messages were done in the order %v, the last two of 20 after %v and %v", r.done, r.at[200], r.at[219])
	}
	if n := r.closed[9]; n.Goodput != 400*segment || n.SYNs != 1 {
		t.Errorf("%+v", n)
	}
}

// TestMessagesFromDone writes the next message when one is complete, as the
// clients of CONGA §5.2 do: memory does not grow.
func TestMessagesFromDone(t *testing.T) {
	r := lossy(t, nil)
	c := r.stack.Open(r.flow(0, 0, 1, 0))
	n := 0
	r.onDone = func(now engine.Time, id network.FlowID) {
		if int(id) != n {
			t.Fatalf("message %d was done after %d others", id, n)
		}
		if n++; n < 1000 {
			c.Send(now, network.FlowID(n), uint64(1+n*7%5000))
		} else {
			c.close(now)
		}
	}
	c.Send(0, 0, 1)
	r.finish()
	if n != 1000 || cap(c.messages.list) > 8 {
		t.Errorf("%d messages, room for %d", n, cap(c.messages.list))
	}
}

// TestSlowStartAfterIdle: each timeout of idleness halves the window, down to
// the initial one (RFC 2861, Linux).
func TestSlowStartAfterIdle(t *testing.T) {
	for _, tc := range []struct {
		on   bool
		idle engine.Time
		want float64 // of the window before; 0: the initial one
	}{
		{true, 190 * ms, 1}, {true, 300 * ms, 0.5}, {true, 500 * ms, 0.25}, {true, 20 * engine.Second, 0},
		{false, 20 * engine.Second, 1},
	} {
		r := lossy(t, func(c *Config) { c.InitialWindow, c.SlowStartAfterIdle = 10, tc.on })
		c := r.stack.Open(r.flow(0, 0, 1, 0))
		c.Send(0, 0, 400*segment)
		r.run(10 * ms)
		before := c.cwnd
		c.ssthresh = 20 * segment
		at := c.lastSent + tc.idle
		r.run(at)
		c.Send(at, 1, 1)
		if want := max(tc.want*before, 10*segment); c.cwnd != want {
			t.Errorf("on: %v, idle for %v: %.1f segments became %.1f, want %.1f", tc.on, tc.idle, before/segment, c.cwnd/segment, want/segment)
		}
		if tc.on && tc.want < 1 && c.ssthresh < before*3/4 {
			t.Errorf("the threshold is %.1f segments", c.ssthresh/segment)
		}
	}
}

// TestIdleCubic: idleness is no time in which CUBIC's window grows.
func TestIdleCubic(t *testing.T) {
	q := cubicState{on: true, epoch: 5 * engine.Second}
	q.pause(3 * engine.Second)
	if q.epoch != 8*engine.Second {
		t.Errorf("the epoch is %v", q.epoch)
	}
}

// TestUnusedWindow: a window that the application does not use does not grow.
func TestUnusedWindow(t *testing.T) {
	r := lossy(t, func(c *Config) { c.InitialWindow = 10 })
	c := r.stack.Open(r.flow(0, 0, 1, 0))
	for i := range engine.Time(100) {
		c.Send(i*ms, network.FlowID(i), 3*segment)
		r.run((i + 1) * ms)
	}
	if c.cwnd != 10*segment {
		t.Errorf("the window is %.1f segments, and 3 are used", c.cwnd/segment)
	}
	// In slow start half of it is enough.
	for i := engine.Time(100); i < 200; i++ {
		c.Send(i*ms, network.FlowID(i), 8*segment)
		r.run((i + 1) * ms)
	}
	if c.cwnd < 16*segment || c.cwnd > 17*segment {
		t.Errorf("the window is %.1f segments, and 8 are used", c.cwnd/segment)
	}
}

// TestInterfaceBound: where the sender's interface is the slowest link, nothing
// queues, and the window stays near what the path holds.
func TestInterfaceBound(t *testing.T) {
	r := newRig(t, Defaults(), link{10 * gbit, 25 * us, 0}, link{40 * gbit, 25 * us, 0})
	r.stack.Start(0, r.flow(0, 0, 1, Endless))
	r.run(100 * ms)
	// 100 µs of 10 Gbit/s are 83 segments.
	if w := r.conn().cwnd / segment; w < 80 || w > 250 {
		t.Errorf("the window is %.0f segments", w)
	}
}

// TestReceiveWindow bounds what is outstanding.
func TestReceiveWindow(t *testing.T) {
	r := lossy(t, func(c *Config) { c.Window = 20 * segment })
	r.stack.Start(0, r.flow(0, 0, 1, 5000*segment))
	c := r.conn()
	most := uint64(0)
	for at := engine.Time(0); at < 10*ms; at += us {
		r.run(at)
		most = max(most, c.nxt-c.una)
	}
	if most != 20*segment {
		t.Errorf("%d bytes were outstanding, the window is %d", most, 20*segment)
	}
	// And the congestion window does not grow without end meanwhile.
	if c.cwnd > 100*segment {
		t.Errorf("the congestion window is %.0f segments", c.cwnd/segment)
	}
}

// TestDelayedAck: an odd segment is acknowledged when the timer expires, two at
// once, the end of a message at once, and the first segments of a connection too.
func TestDelayedAck(t *testing.T) {
	for _, quick := range []uint32{0, 3} {
		// Of 4 segments the window lets out 3; the last one's ACK is late.
		r := lossy(t, func(c *Config) { c.InitialWindow, c.QuickAcks = 3, quick })
		var acks []engine.Time
		r.box.filter = func(now engine.Time, p *network.Packet) verdict {
			if p.Kind == network.Ack {
				acks = append(acks, now)
			}
			return verdict{}
		}
		c := r.stack.Open(r.flow(0, 0, 1, 0))
		c.cwnd, c.ssthresh = 3.5*segment, 3.5*segment
		c.Send(0, 0, 100*segment)
		r.run(100 * us)
		want := 1 // of segments 1 and 2
		if quick == 3 {
			want = 3
		}
		if len(acks) != want {
			t.Fatalf("quick %d: %d ACKs", quick, len(acks))
		}
	}
	// Segments that fill exactly: the last one of a message.
	r := lossy(t, func(c *Config) { c.QuickAcks = 0 })
	c := r.stack.Open(r.flow(0, 0, 1, 0))
	c.Send(0, 0, 3*segment)
	r.run(100 * ms)
	if c.end-c.una != 0 || c.counters.Acks != 2 {
		t.Errorf("%d bytes pending after a message of 3 segments, %d ACKs", c.end-c.una, c.counters.Acks)
	}
	// After idleness segments are acknowledged one by one again.
	c.stack.cfg.QuickAcks = 4
	c.Send(100*ms, 1, 4*segment)
	r.run(400 * ms)
	if c.counters.Acks != 4 {
		t.Errorf("%d ACKs, 2 of them for 4 segments shortly after", c.counters.Acks)
	}
	c.Send(400*ms, 2, 4*segment)
	r.run(500 * ms)
	if c.counters.Acks != 8 {
		t.Errorf("%d ACKs, 4 of them for 4 segments after idleness", c.counters.Acks)
	}
	// A window of one segment and more to come: the timer.
	for _, minRTO := range []engine.Time{200 * ms, ms} {
		r = lossy(t, func(c *Config) { c.QuickAcks, c.InitialWindow, c.MinRTO = 0, 1, minRTO })
		r.stack.Start(0, r.flow(0, 0, 1, 2*segment))
		r.finish()
		delay := min(40*ms, minRTO/2)
		const there = 50*us + 2*1514*800*engine.Picosecond
		const back = 50*us + 2*66*800*engine.Picosecond
		if got, want := r.at[0], there+delay+back+there; got != want || r.closed[0].Timeouts != 0 {
			t.Errorf("done after %v, want %v; %d timeouts", got, want, r.closed[0].Timeouts)
		}
	}
}

// TestDefer: where ACKs come slower than the interface sends, data leave two
// segments at a time, with offload in bursts of a third of the window.
func TestDefer(t *testing.T) {
	for _, deferred := range []bool{false, true} {
		cfg := Defaults()
		cfg.Control, cfg.Handshake, cfg.InitialWindow, cfg.Defer = NewReno, false, 60, deferred
		r := newRig(t, cfg, link{10 * gbit, 5 * us, 0}, link{gbit, 5 * us, 0})
		var last engine.Time
		bursts, segments := 0, 0
		r.box.filter = func(_ engine.Time, p *network.Packet) verdict {
			if p.Kind == network.Data {
				if p.Sent-last > 1514*800 {
					bursts++
				}
				segments++
				last = p.Sent
			}
			return verdict{}
		}
		r.stack.Start(0, r.flow(0, 0, 1, Endless))
		r.conn().ssthresh = 0 // a segment a round trip
		r.run(10 * ms)
		mean := float64(segments) / float64(bursts)
		if !deferred && (mean < 1.9 || mean > 3) || deferred && (mean < 19 || mean > 28) {
			t.Errorf("deferred %v: bursts of %.1f segments", deferred, mean)
		}
	}
}

// TestReuse runs many flows one after another, then many at once: connections
// and events are those of the most at one time.
func TestReuse(t *testing.T) {
	r := lossy(t, func(c *Config) { c.Handshake = true })
	n := 0
	r.onDone = func(now engine.Time, id network.FlowID) {
		if n++; n < 20000 {
			r.stack.Start(now, r.flow(network.FlowID(n), n&1, 1-n&1, uint64(1+n%3000)))
		}
	}
	most := 0
	r.stack.Start(0, r.flow(0, 0, 1, 1))
	for at := engine.Time(0); n < 20000; at += ms {
		r.run(at)
		most = max(most, r.net.Engine.Pending())
	}
	r.finish()
	// A flow starts before the ACK of the last is back.
	if len(r.stack.conns) > 2 || most > 30 {
		t.Errorf("%d connections were made, %d events pending", len(r.stack.conns), most)
	}
	if c := r.stack.Counters(); c.SYNs != 20000 || c.Timeouts != 0 || c.Duplicates != 0 {
		t.Errorf("%+v", c)
	}
}

// TestCounters: the sum is that of open and closed connections.
func TestCounters(t *testing.T) {
	r := lossy(t, nil)
	r.stack.Start(0, r.flow(0, 0, 1, 1000))
	r.run(ms)
	r.stack.Start(ms, r.flow(1, 1, 0, Endless))
	r.run(2 * ms)
	sum := r.stack.Counters()
	want := r.closed[0]
	live := r.stack.conns[0].Counters()
	stat.Add(&want, &live)
	if sum != want || want.Goodput <= 1000 || r.stack.live() != 1 {
		t.Errorf("%+v, want %+v; %d live", sum, want, r.stack.live())
	}
	names := slices.Sorted(maps.Keys(maps.Collect(stat.Counters(&sum))))
	if want := []string{
		"acks", "bytes", "duplicate_segments", "ecn_cuts", "fast_recoveries", "goodput_bytes", "max_reordered_distance",
		"reinjected_bytes", "reordered_by_3", "reordered_segments", "retransmits", "segments", "syns", "timeouts",
	}; !slices.Equal(names, want) {
		t.Errorf("results have %v, want %v", names, want)
	}
}

func TestRefused(t *testing.T) {
	for name, f := range map[string]func(*rig){
		"no bytes":      func(r *rig) { r.stack.Start(0, r.flow(0, 0, 1, 0)) },
		"one host":      func(r *rig) { r.stack.Start(0, r.flow(0, 1, 1, 1)) },
		"closed":        func(r *rig) { c := r.stack.Open(r.flow(0, 0, 1, 0)); c.close(0); c.Send(0, 0, 1) },
		"behind a flow": func(r *rig) { r.stack.Start(0, r.flow(0, 0, 1, 1)); r.conn().Send(0, 1, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("accepted")
				}
			}()
			f(lossy(t, nil))
		})
	}
}
