package tcp

import (
	"math"
	"slices"
	"testing"

	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

// TestSample follows RFC 6298 §2 by hand, and RFC 7323 appendix G: with 8
// segments outstanding, each of 4 samples a window weighs a quarter.
func TestSample(t *testing.T) {
	s := Stack{cfg: Defaults()}
	s.cfg.MinRTO = ms
	c := &Conn{stack: &s, backoff: 3}
	check := func(srtt, rttvar, rto engine.Time) {
		t.Helper()
		if c.srtt != srtt || c.rttvar != rttvar || c.timeoutAfter != rto || c.backoff != 0 {
			t.Errorf("SRTT %v, RTTVAR %v, RTO %v, backoff %d; want %v, %v, %v", c.srtt, c.rttvar, c.timeoutAfter, c.backoff, srtt, rttvar, rto)
		}
	}
	c.sample(80 * ms)
	check(80*ms, 40*ms, 240*ms)
	c.sample(160 * ms) // RTTVAR += (80-40)/4, SRTT += 80/8
	check(90*ms, 50*ms, 290*ms)
	c.nxt = 8 * segment
	c.sample(10 * ms) // RTTVAR += (80-50)/16, SRTT -= 80/32
	check(87500*us, 51875*us, 295*ms)
	for range 1000 {
		c.sample(100 * us)
	}
	if c.timeoutAfter != ms {
		t.Errorf("RTO %v, and at least %v", c.timeoutAfter, ms)
	}
	c.sample(engine.Of(1e9 * 1000))
	if c.timeoutAfter != 120*engine.Second {
		t.Errorf("RTO %v after a sample of 1000 s", c.timeoutAfter)
	}
}

// TestEdge: what is lost by the scoreboard (RFC 6675 §4, IsLost).
func TestEdge(t *testing.T) {
	type blocks [][2]uint64
	const S = segment
	for _, tc := range []struct {
		sacked blocks
		want   uint64
	}{
		{nil, 0},
		{blocks{{S, 3 * S}}, 0},                                       // two segments are not more than two
		{blocks{{S, 3*S + 1}}, S},                                     // and a byte are
		{blocks{{S, 2 * S}, {3 * S, 5 * S}}, S},                       // in two blocks
		{blocks{{10, 20}, {30, 40}}, 0},                               // little
		{blocks{{10, 20}, {30, 40}, {50, 60}}, 10},                    // three blocks
		{blocks{{10, 20}, {30, 40}, {50, 60}, {70, 80}}, 30},          // above the second hole
		{blocks{{10, 20}, {30, 40}, {50, 60}, {2 * S, 7 * S}}, 2 * S}, // above the last one
	} {
		s := Stack{cfg: Defaults()}
		c := &Conn{stack: &s, nxt: 100 * S}
		for _, b := range tc.sacked {
			c.sacked.blocks = append(c.sacked.blocks, network.Block{From: b[0], To: b[1]})
		}
		if got := c.edge(); got != tc.want {
			t.Errorf("%v: lost up to %d, want %d", tc.sacked, got, tc.want)
		}
		c.phase, c.recover = loss, 50*S
		if got := c.edge(); got != 50*S {
			t.Errorf("%v: lost up to %d after a timeout, want %d", tc.sacked, got, 50*S)
		}
	}
}

// TestScore: what an ACK brings is counted once, whether SACKed before or not.
func TestScore(t *testing.T) {
	s := Stack{cfg: Defaults()}
	c := &Conn{stack: &s, nxt: 1000}
	for i, tc := range []struct {
		seq       uint64
		blocks    []network.Block
		delivered uint64
		news      bool
	}{
		{100, nil, 100, false},
		{100, []network.Block{{From: 300, To: 400}}, 100, true},
		{100, []network.Block{{From: 300, To: 400}}, 0, false},
		{100, []network.Block{{From: 500, To: 600}, {From: 300, To: 450}}, 150, true},
		{50, []network.Block{{From: 80, To: 90}, {From: 600, To: 610}}, 10, true}, // late
		{320, []network.Block{{From: 310, To: 450}}, 200, false},
		{700, nil, 90 + 50, false},
	} {
		p := &network.Packet{Seq: tc.seq}
		p.NBlocks = uint8(copy(p.Blocks[:], tc.blocks))
		delivered, news := c.score(p)
		c.una = max(c.una, tc.seq)
		if delivered != tc.delivered || news != tc.news {
			t.Errorf("ACK %d: %d bytes, news %v; want %d, %v; scoreboard %v", i, delivered, news, tc.delivered, tc.news, c.sacked.blocks)
		}
	}
}

// TestGrow: slow start ends at the threshold, and what is left counts beyond it.
func TestGrow(t *testing.T) {
	s := Stack{cfg: Defaults(), control: newReno{}}
	c := &Conn{stack: &s, limited: true, cwnd: 9 * segment, ssthresh: 10 * segment}
	c.grow(0, 3*segment)
	if got := c.cwnd / segment; math.Abs(got-10.2) > 1e-9 {
		t.Errorf("the window is %g segments, want 10.2", got)
	}
}

// TestCubicTarget: the acknowledgement of a whole window takes it to where the
// curve is a round trip later (RFC 9438 §4.4), by no more than half of it.
func TestCubicTarget(t *testing.T) {
	s := Stack{cfg: Defaults(), control: cubic{}}
	for _, rtt := range []engine.Time{10 * ms, 500 * ms, 60 * engine.Second} {
		c := &Conn{stack: &s, cwnd: 700 * segment, srtt: rtt}
		c.cubic = cubicState{on: true, wmax: 1000, k: math.Cbrt(750), epoch: engine.Second, prior: 1000}
		c.stack.control.avoid(c, engine.Second, 700*segment)
		want := min(0.4*math.Pow(rtt.Seconds()-math.Cbrt(750), 3)+1000, 1.5*700)
		if got := c.cwnd / segment; math.Abs(got-want) > 1e-6 {
			t.Errorf("RTT %v: the window is %g segments, want %g", rtt, got, want)
		}
	}
}

// TestReceiver feeds a receiver by hand and reads its ACKs.
func TestReceiver(t *testing.T) {
	r := lossy(t, func(c *Config) { c.QuickAcks = 0 })
	c := r.stack.Open(r.flow(0, 0, 1, 0))
	c.nxt, c.end = 100*segment, 100*segment
	type sack = []network.Block
	block := func(from, to uint64) network.Block {
		return network.Block{From: from * segment, To: to * segment}
	}
	var acks []network.Packet
	r.box.filter = func(_ engine.Time, p *network.Packet) verdict {
		acks = append(acks, *p)
		return verdict{drop: true}
	}
	for _, tc := range []struct {
		seq, n uint64 // segments
		sent   engine.Time
		acks   int
		next   uint64
		echo   engine.Time // RFC 7323 §4.3
		blocks sack        // RFC 2018 §4
	}{
		{0, 1, 10, 0, 0, 0, nil},
		{1, 1, 11, 1, 2, 10, nil}, // the first of two is what is echoed
		{5, 1, 15, 1, 2, 10, sack{block(5, 6)}},
		{7, 1, 17, 1, 2, 10, sack{block(7, 8), block(5, 6)}},
		{9, 1, 19, 1, 2, 10, sack{block(9, 10), block(7, 8), block(5, 6)}},
		{11, 1, 21, 1, 2, 10, sack{block(11, 12), block(9, 10), block(7, 8)}},
		{9, 1, 30, 1, 2, 10, sack{block(11, 12), block(9, 10), block(7, 8)}}, // had it
		{6, 1, 16, 1, 2, 10, sack{block(5, 8), block(11, 12), block(9, 10)}}, // joins two
		{0, 1, 31, 1, 2, 31, sack{block(5, 8), block(11, 12), block(9, 10)}}, // had it
		{2, 1, 12, 1, 3, 31, sack{block(5, 8), block(11, 12), block(9, 10)}}, // fills
		{3, 2, 33, 1, 8, 33, sack{block(11, 12), block(9, 10)}},              // up to the first block
		{8, 5, 34, 1, 13, 34, nil},                                           // over the others
		{13, 1, 40, 0, 0, 0, nil},
		{14, 1, 41, 1, 15, 40, nil},
	} {
		acks = acks[:0]
		p := r.net.Pool.Get()
		p.Kind, p.Seq, p.Len, p.Sent = network.Data, tc.seq*segment, uint32(tc.n*segment), tc.sent
		c.recv.Receive(r.net.Engine.Now(), p)
		r.run(r.net.Engine.Now() + 30*us)
		if len(acks) != tc.acks {
			t.Fatalf("segment %d: %d ACKs", tc.seq, len(acks))
		}
		if tc.acks == 0 {
			continue
		}
		a := acks[0]
		if a.Seq != tc.next*segment || a.Sent != tc.echo || !slices.Equal(a.Blocks[:a.NBlocks], tc.blocks) {
			t.Errorf("segment %d: ACK %d, echo %d, blocks %v; want %d, %d, %v", tc.seq, a.Seq/segment, a.Sent, a.Blocks[:a.NBlocks], tc.next, tc.echo, tc.blocks)
		}
		want := uint32(66)
		if a.NBlocks > 0 {
			want += 4 + 8*uint32(a.NBlocks)
		}
		if a.Size != want {
			t.Errorf("segment %d: an ACK of %d bytes, want %d", tc.seq, a.Size, want)
		}
	}
	if n := c.counters; n.Goodput != 15*segment || n.Duplicates != 2 {
		t.Errorf("%+v", n)
	}
}

// TestReusedNumber: a flow's number that comes again too soon is told, and does
// not corrupt the run.
func TestReusedNumber(t *testing.T) {
	r := lossy(t, nil)
	r.stack.Start(0, r.flow(0, 0, 1, segment))
	defer func() {
		if recover() == nil {
			t.Error("accepted")
		}
	}()
	r.conn().Receive(0, &network.Packet{Kind: network.Ack, Seq: 2 * segment})
}
