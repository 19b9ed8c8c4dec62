package reorder_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/internal/units"
	"github.com/loomfabric/loom/reorder"
)

// calm is a fabric in which every delay is below what the parameters allow for:
// θ_resume_extra covers the spread of delays, θ_inactive the longest way.
func calm(rng *rand.Rand) modelConfig {
	source := balance.DatacenterConWeave()
	source.Connections = 64
	c := modelConfig{
		paths: 1 + rng.IntN(5), flows: 1 + rng.IntN(4), packets: 150, selectors: 1,
		delay: mono.Time(rng.Int64N(int64(5 * us))), spread: mono.Time(rng.Int64N(int64(60 * us))), back: mono.Time(rng.Int64N(int64([]mono.Time{30 * us, 200 * us}[rng.IntN(2)]))),
		mark: rng.Float64() * 0.2, scheme: []string{"conweave", "conweave-informed"}[rng.IntN(2)], source: source,
		start: mono.Time(rng.Uint64() >> (2 + rng.IntN(40))),
	}
	if rng.IntN(2) == 0 {
		c.lose, c.copy, c.loseBack = rng.Float64()*0.1, rng.Float64()*0.1, rng.Float64()*0.3
	}
	if rng.IntN(3) == 0 {
		c.source.Selectors = 1 + rng.IntN(4)
	}
	if rng.IntN(4) == 0 {
		c.start = -mono.Time(rng.Int64N(int64(time.Second)))
	}
	c.extra = c.spread + 3*us
	c.deflt = c.delay + c.spread + 5*us
	return c
}

func seeds(t *testing.T, n int) int {
	if testing.Short() {
		return n / 10
	}
	return n
}

// TestModelCalm: whatever is lost or copied, packets come out in order, none is
// held for ever, and no flow has packets on more than two paths.
func TestModelCalm(t *testing.T) {
	var all reorder.Stats
	n := seeds(t, 2000)
	for seed := range n {
		cfg := calm(rand.New(rand.NewPCG(uint64(seed), 1)))
		m := newModel(t, &cfg, uint64(seed))
		m.run()
		m.check()
		if m.disorder != 0 {
			t.Errorf("%d packets came out of order", m.disorder)
		}
		if m.maxFlight > 2 {
			t.Errorf("packets of a flow were on %d paths at once", m.maxFlight)
		}
		m.settle()
		if t.Failed() {
			t.Fatalf("seed %d: %+v\n%+v\n%+v", seed, cfg, m.src.Stats().Own.(*balance.ConWeaveStats), m.dst.Counters())
		}
		all.Held += m.ended.Held
		all.Expiries += m.ended.Expiries
		all.TailFlushes += m.ended.TailFlushes
		all.Tails += m.ended.Tails
	}
	t.Logf("%d reroutes, %d packets held, %d queues drained by TAIL, %d by T_resume", all.Tails, all.Held, all.TailFlushes, all.Expiries)
	if all.Held < uint64(n) || all.Expiries < uint64(n)/20 || all.TailFlushes < uint64(n)/2 {
		t.Error("the model hardly reorders anything")
	}
}

// tight is calm with tables that do not hold all flows: what has no place at the
// source goes by hash, on one path, and stays in order when it gets one.
func TestModelSourceTableOverflows(t *testing.T) {
	overflow := uint64(0)
	for seed := range seeds(t, 150) {
		cfg := calm(rand.New(rand.NewPCG(uint64(seed), 2)))
		cfg.source.Connections = 4
		cfg.flows = 12
		m := newModel(t, &cfg, uint64(seed))
		m.run()
		m.check()
		if m.disorder != 0 || m.maxFlight > 2 {
			t.Errorf("%d packets out of order, a flow on %d paths", m.disorder, m.maxFlight)
		}
		if t.Failed() {
			t.Fatalf("seed %d: %+v\n%+v", seed, cfg, m.src.Stats().Own.(*balance.ConWeaveStats))
		}
		overflow += m.src.Stats().Own.(*balance.ConWeaveStats).Overflow
	}
	if overflow == 0 {
		t.Error("the table never overflowed")
	}
}

// wild is a fabric that does not keep to what the parameters say.
func wild(rng *rand.Rand) modelConfig {
	c := calm(rng)
	c.lose, c.copy, c.loseBack = rng.Float64()*0.2, rng.Float64()*0.2, rng.Float64()*0.5
	c.mark = rng.Float64()
	c.spread = mono.Time(rng.Int64N(int64(2000 * us))) // beyond θ_inactive
	c.back = mono.Time(rng.Int64N(int64(2000 * us)))
	c.extra = mono.Time(rng.Int64N(int64(20 * us)))
	c.deflt = 1 + mono.Time(rng.Int64N(int64(300*us)))
	c.flows = 1 + rng.IntN(12)
	bytes := units.Size(rng.IntN(20_000))
	admission, queues, packets, flows := rng.IntN(101), rng.IntN(5), rng.IntN(20), 4<<rng.IntN(3)
	c.dest = func(p *reorder.Params) {
		p.Admission, p.Flows = admission, flows
		p.Queues, p.PortQueues = queues+rng.IntN(5), queues
		p.Packets, p.PortPackets = packets+rng.IntN(10), packets
		p.PortBytes, p.Bytes = bytes, bytes+units.Size(rng.IntN(9000))
		p.MaxHold = max(time.Duration(c.deflt), time.Duration(c.extra), 100*time.Microsecond)
	}
	return c
}

// TestModelWild: delays beyond all parameters, and room for hardly anything.
// Packets that come out of order are counted, and nothing else breaks.
func TestModelWild(t *testing.T) {
	disorder, refused := 0, uint64(0)
	for seed := range seeds(t, 700) {
		cfg := wild(rand.New(rand.NewPCG(uint64(seed), 3)))
		m := newModel(t, &cfg, uint64(seed))
		m.run()
		m.check()
		if m.disorder != 0 && m.excused() == 0 {
			t.Errorf("%d packets came out of order, and nothing was counted", m.disorder)
		}
		disorder += m.disorder
		refused += m.src.Stats().Own.(*balance.ConWeaveStats).Refused
		if cfg.flows <= 4 {
			m.settle()
		}
		if t.Failed() {
			t.Fatalf("seed %d: %+v\n%+v\n%+v", seed, cfg, m.src.Stats().Own.(*balance.ConWeaveStats), m.dst.Counters())
		}
	}
	if disorder == 0 || refused == 0 {
		t.Errorf("%d packets out of order, %d reroutes refused: the model is too tame", disorder, refused)
	}
}

// TestModelUpset: leaves restart and links go down and come up in the middle of
// all that. Nothing is held for ever, nothing is lost but what the network or
// the restart of a leaf that held it lost, and both sides come to rest.
func TestModelUpset(t *testing.T) {
	restarts, moves := 0, uint64(0)
	for seed := range seeds(t, 700) {
		rng := rand.New(rand.NewPCG(uint64(seed), 4))
		cfg := wild(rng)
		cfg.restart = rng.IntN(2) == 0
		cfg.linkDown = rng.Float64() * 0.1
		m := newModel(t, &cfg, uint64(seed))
		m.run()
		m.check()
		restarts += m.restarts
		moves += m.src.Stats().Own.(*balance.ConWeaveStats).Moves
		if cfg.flows <= 4 {
			m.settle()
		}
		if t.Failed() {
			t.Fatalf("seed %d: %+v\n%+v\n%+v", seed, cfg, m.src.Stats().Own.(*balance.ConWeaveStats), m.dst.Counters())
		}
	}
	if restarts == 0 || moves == 0 {
		t.Errorf("%d restarts, %d moves", restarts, moves)
	}
}

// TestModelLinkDown: links go down and up in a fabric that is calm otherwise.
// Flows leave a path that is gone at once; besides those that went away they use
// two at most.
func TestModelLinkDown(t *testing.T) {
	moves := uint64(0)
	for seed := range seeds(t, 300) {
		rng := rand.New(rand.NewPCG(uint64(seed), 6))
		cfg := calm(rng)
		cfg.paths, cfg.linkDown = 3+rng.IntN(3), 0.01
		m := newModel(t, &cfg, uint64(seed))
		m.run()
		m.check()
		if m.disorder != 0 && m.src.Stats().Own.(*balance.ConWeaveStats).Moves == 0 {
			t.Errorf("%d packets came out of order, and no flow moved", m.disorder)
		}
		moves += m.src.Stats().Own.(*balance.ConWeaveStats).Moves
		m.settle()
		if t.Failed() {
			t.Fatalf("seed %d: %+v\n%+v\n%+v", seed, cfg, m.src.Stats().Own.(*balance.ConWeaveStats), m.dst.Counters())
		}
	}
	if moves == 0 {
		t.Error("no flow moved")
	}
}
