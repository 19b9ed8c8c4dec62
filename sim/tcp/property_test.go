package tcp

import (
	"math/rand/v2"
	"testing"

	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

// TestAnyNetwork runs flows and messages over networks that lose, copy, mark and
// hold back packets of either kind, with any configuration: each byte reaches
// the application once, nothing is stuck, and nothing stays.
func TestAnyNetwork(t *testing.T) {
	seeds := uint64(3000)
	if testing.Short() {
		seeds = 300
	}
	for seed := range seeds {
		if !anyNetwork(t, seed) {
			t.Fatalf("seed %d", seed)
		}
	}
}

func anyConfig(rnd *rand.Rand) Config {
	cfg := Defaults()
	coin := func() bool { return rnd.IntN(2) == 0 }
	cfg.Control = []Control{NewReno, Cubic, DCTCP}[rnd.IntN(3)]
	cfg.MSS = []uint32{100, 536, 1460, 8960}[rnd.IntN(4)]
	cfg.InitialWindow = 1 + rnd.Uint32N(20)
	cfg.Window = uint64(cfg.MSS) * uint64(1+rnd.IntN(200))
	cfg.Burst = []uint32{0, 64 << 10}[rnd.IntN(2)]
	cfg.MinRTO = []engine.Time{ms, 200 * ms}[rnd.IntN(2)]
	cfg.AckEvery = 1 + rnd.Uint32N(3)
	cfg.QuickAcks = rnd.Uint32N(20)
	cfg.DupThresh = 1 + rnd.Uint32N(5)
	cfg.Defer, cfg.LimitedTransmit = coin(), coin()
	cfg.SlowStartAfterIdle, cfg.Handshake, cfg.ECN = coin(), coin(), coin()
	return cfg
}

func anyNetwork(t *testing.T, seed uint64) bool {
	rnd := seeded(seed)
	cfg := anyConfig(rnd)
	rate := []uint64{100_000_000, 10 * gbit}[rnd.IntN(2)]
	delay := []engine.Time{us, 100 * us}[rnd.IntN(2)]
	limit := uint64(rnd.IntN(3)) * 20 * uint64(cfg.MSS)
	r := newRig(t, cfg, link{rate, delay, limit}, link{rate, delay, limit}, link{rate, delay, limit})

	bad := rnd.Float64() * 0.3
	drop, dup, hold, mark := bad*rnd.Float64(), bad*rnd.Float64(), rnd.Float64()*rnd.Float64(), rnd.Float64()*0.5
	r.box.filter = func(_ engine.Time, p *network.Packet) (v verdict) {
		if rnd.Float64() < mark && p.ECT {
			p.CE = true
		}
		v.drop = rnd.Float64() < drop
		v.copy = rnd.Float64() < dup
		if rnd.Float64() < hold {
			v.hold = 1 + engine.Time(rnd.Int64N(int64(50*us)))
		}
		return v
	}
	total := uint64(0)
	want := map[network.FlowID]int{}
	size := func() uint64 {
		n := 1 + rnd.Uint64N(uint64(cfg.MSS)*[]uint64{1, 10, 100}[rnd.IntN(3)])
		total += n
		return n
	}
	for i := range network.FlowID(1 + rnd.IntN(4)) {
		a := rnd.IntN(3)
		f := r.flow(i, a, (a+1+rnd.IntN(2))%3, 0)
		if rnd.IntN(2) == 0 {
			f.Bytes = size()
			want[i] = 1
			r.stack.Start(r.net.Engine.Now(), f)
			continue
		}
		c := r.stack.Open(f)
		at := r.net.Engine.Now()
		for j := range network.FlowID(1 + rnd.IntN(4)) {
			id := 100*(i+1) + j
			want[id] = 1
			c.Send(at, id, size())
			at += engine.Time(rnd.Int64N(int64(500 * us)))
			r.run(at)
		}
		c.close(at)
	}
	r.run(3600 * engine.Second)
	sum := r.stack.Counters()
	ok := r.net.Engine.Pending() == 0 && r.stack.live() == 0 && r.net.Pool.Out() == 0 && sum.Goodput == total && len(r.done) == len(want)
	for _, id := range r.done {
		want[id]--
	}
	for _, n := range want {
		ok = ok && n == 0
	}
	if !ok {
		t.Errorf("%d of %d messages, %d of %d bytes, %d connections, %d packets and %d events are left\n%+v\n%+v", len(r.done), len(want), sum.Goodput, total, r.stack.live(), r.net.Pool.Out(), r.net.Engine.Pending(), cfg, sum)
	}
	ledger := r.net.Ledger()
	if err := ledger.Check(); err != nil {
		t.Error(err)
		ok = false
	}
	return ok
}

// TestSameSeed: a run is the same each time.
func TestSameSeed(t *testing.T) {
	run := func() (Counters, engine.Time, uint64) {
		rnd := seeded(5)
		r := newRig(t, Defaults(), link{gbit, 10 * us, 100_000}, link{gbit, 10 * us, 100_000}, link{gbit, 10 * us, 100_000})
		r.box.filter = func(engine.Time, *network.Packet) verdict { return verdict{drop: rnd.IntN(100) == 0} }
		for i := range network.FlowID(50) {
			r.stack.Start(r.net.Engine.Now(), r.flow(i, int(i%3), int(i+1)%3, 1+rnd.Uint64N(500_000)))
		}
		r.finish()
		return r.stack.Counters(), r.net.Engine.Now(), r.net.Engine.Handled()
	}
	c1, t1, n1 := run()
	c2, t2, n2 := run()
	if c1 != c2 || t1 != t2 || n1 != n2 {
		t.Errorf("%+v until %v in %d events; then %+v until %v in %d", c1, t1, n1, c2, t2, n2)
	}
}

// TestRanges holds the scoreboard against one bool a byte.
func TestRanges(t *testing.T) {
	const size = 64
	for seed := range uint64(2000) {
		rnd := seeded(seed)
		var r ranges
		var naive [size]bool
		count := func(a, b uint64) (in uint64) {
			for i := a; i < b; i++ {
				if naive[i] {
					in++
				}
			}
			return in
		}
		for range 30 {
			a := rnd.Uint64N(size)
			b := a + rnd.Uint64N(size-a) + 1
			switch rnd.IntN(3) {
			case 0, 1:
				b = min(b, a+8)
				want := b - a - count(a, b)
				for i := a; i < b; i++ {
					naive[i] = true
				}
				if got := r.add(network.Block{From: a, To: b}); got != want {
					t.Fatalf("seed %d: add %d-%d: %d new, want %d", seed, a, b, got, want)
				}
			case 2:
				a /= 4
				want := count(0, a)
				clear(naive[:a])
				if got := r.cut(a); got != want {
					t.Fatalf("seed %d: cut %d: %d, want %d", seed, a, got, want)
				}
			}
			a = rnd.Uint64N(size)
			b = a + rnd.Uint64N(size-a) + 1
			in := count(a, b)
			if r.has(network.Block{From: a, To: b}) != (in == b-a) || r.missing(a, b) != b-a-in || r.bytes != count(0, size) {
				t.Fatalf("seed %d: %d-%d in %v", seed, a, b, r.blocks)
			}
			from := a
			for from < b && naive[from] {
				from++
			}
			to := from
			for to < b && !naive[to] {
				to++
			}
			if s, e := r.hole(a, b); from < b && (s != from || e != to) || from == b && s < e {
				t.Fatalf("seed %d: hole in %d-%d: %d-%d, want %d-%d of %v", seed, a, b, s, e, from, to, r.blocks)
			}
			for i := 1; i < len(r.blocks); i++ {
				if r.blocks[i].From <= r.blocks[i-1].To {
					t.Fatalf("seed %d: %v", seed, r.blocks)
				}
			}
		}
	}
}

// TestAllocs: a steady run of flows with losses allocates nothing.
func TestAllocs(t *testing.T) {
	for _, control := range []Control{NewReno, Cubic, DCTCP} {
		cfg := Defaults()
		cfg.Control, cfg.MinRTO, cfg.Handshake = control, ms, false
		cfg.Window = 60 * segment // and no more holes than half of that
		r := newRig(t, cfg, link{10 * gbit, 5 * us, 0}, link{10 * gbit, 5 * us, 100_000}, link{10 * gbit, 5 * us, 100_000})
		r.box.mark = 50_000
		// First such losses that slices reach their size.
		rnd, lossy := seeded(2), 10
		r.box.filter = func(engine.Time, *network.Packet) (v verdict) {
			v.drop = rnd.IntN(lossy) == 0
			if rnd.IntN(50) == 0 {
				v.hold = 5 * us
			}
			return v
		}
		// As many connections at one time as will do, and all numbers once.
		r.onDone = func(engine.Time, network.FlowID) {}
		for i := range network.FlowID(100) {
			r.stack.Start(0, r.flow(2999-i, int(i%3), int(i+1)%3, 100*segment))
		}
		r.run(200 * ms)
		next := network.FlowID(0)
		r.onDone = func(now engine.Time, _ network.FlowID) {
			// When a number comes again, the flow that had it is long gone.
			next = (next + 1) % 3000
			a := rnd.IntN(3)
			r.stack.Start(now, r.flow(next, a, (a+1+rnd.IntN(2))%3, 1+rnd.Uint64N(300_000)))
		}
		until := r.net.Engine.Now()
		for range 12 {
			r.onDone(until, 0)
		}
		until += 100 * ms
		r.run(until)
		lossy = 200
		until += 20 * ms // for queues to reach theirs
		r.run(until)
		before := r.stack.Counters()
		n := testing.AllocsPerRun(5, func() {
			until += 4 * ms
			r.run(until)
		})
		after := r.stack.Counters()
		if n != 0 {
			t.Errorf("%s: %v allocations in 4 ms", control, n)
		}
		if after.Segments-before.Segments < 10_000 || after.Timeouts == before.Timeouts || after.Recoveries == before.Recoveries {
			t.Errorf("%s: %+v, then %+v: too little happened", control, before, after)
		}
	}
}

// BenchmarkSegment is a segment and its share of ACKs through two links.
func BenchmarkSegment(b *testing.B) {
	for _, control := range []Control{Cubic, DCTCP} {
		b.Run(string(control), func(b *testing.B) {
			cfg := Defaults()
			cfg.Control = control
			net := network.New(engine.New())
			box := &box{net: net, mark: 100_000}
			for i := range 2 {
				h := net.NewHost()
				h.Quantum = uint64(cfg.Burst)
				a := net.NewPort("host", 0, h, network.PortConfig{Rate: 10 * gbit, Delay: 10 * us}, nil)
				h.Port = a
				p := net.NewPort("box", i, box, network.PortConfig{Rate: 10 * gbit, Delay: 10 * us}, nil)
				network.Connect(a, p)
				box.ports = append(box.ports, p)
			}
			s := New(net, cfg, nil)
			s.Start(0, Flow{network.Flow{Src: net.Hosts[0], Dst: net.Hosts[1]}, Endless})
			net.Engine.Run(ms)
			b.ReportAllocs()
			b.ResetTimer()
			start := s.Counters().Segments
			for at := 2 * ms; s.Counters().Segments-start < uint64(b.N); at += ms {
				net.Engine.Run(at)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(s.Counters().Segments-start), "ns/segment")
		})
	}
}
