package network

import (
	"math/rand/v2"
	"testing"

	"github.com/loomfabric/loom/sim/engine"
)

// loaded is a fabric in which each host sends to one of the next leaf, in
// packets that are spaced at random to a load of its link.
func loaded(leaves, spines, hosts int, buffer func() *Buffer, load float64) *lab {
	l, all := fabric(leaves, spines, hosts, buffer, PortConfig{Rate: 100e9, Delay: engine.Microsecond, ECN: ECN{Kmin: 100e3, Kmax: 400e3, Pmax: 0.2}})
	r := rand.New(rand.NewPCG(1, 2))
	for i, h := range all {
		s, _ := l.flow(h, all[(i+hosts)%len(all)], 1500, -1)
		s.ect = true
		if load < 1 {
			s.gap = engine.Time(float64(TxTime(1500, h.Port.Rate)) / load * (0.99 + 0.02*r.Float64()))
		}
		l.start(s)
	}
	return l
}

var speedKinds = []struct {
	name string
	make func() *Buffer
	load float64
}{
	{"no buffer, load 0.4", func() *Buffer { return nil }, 0.4},
	{"shared buffer, load 0.4", func() *Buffer { return NewBuffer(BufferConfig{Total: 12 << 20}) }, 0.4},
	{"PFC, load 1", func() *Buffer { return NewBuffer(BufferConfig{Total: 12 << 20, PFC: &PFC{}}) }, 1},
}

func TestSteadyNetworkAllocatesNothing(t *testing.T) {
	for _, c := range speedKinds {
		l := loaded(2, 2, 4, c.make, c.load)
		at := engine.Millisecond
		l.run(at)
		before := l.Hops()
		if n := testing.AllocsPerRun(5, func() {
			at += 100 * engine.Microsecond
			l.run(at)
		}); n != 0 {
			t.Errorf("%s: %v allocations in 100 µs", c.name, n)
		}
		if l.Hops() < before+5000 {
			t.Errorf("%s: %d hops: nothing moves", c.name, l.Hops()-before)
		}
		l.check(t)
	}
}

// BenchmarkHops: packets through 8 leaves and 8 spines with 128 hosts. A hop is
// an arrival at a switch or a host.
func BenchmarkHops(b *testing.B) {
	for _, c := range speedKinds {
		b.Run(c.name, func(b *testing.B) {
			l := loaded(8, 8, 16, c.make, c.load)
			if err := l.Validate(); err != nil {
				b.Fatal(err)
			}
			at := 100 * engine.Microsecond
			l.run(at)
			start, events := l.Hops(), l.Engine.Handled()
			b.ReportAllocs()
			b.ResetTimer()
			for l.Hops()-start < uint64(b.N) {
				at += 10 * engine.Microsecond
				l.run(at)
			}
			hops := float64(l.Hops() - start)
			b.ReportMetric(hops/b.Elapsed().Seconds(), "hops/s")
			b.ReportMetric(float64(l.Engine.Handled()-events)/hops, "events/hop")
			b.ReportMetric(float64(l.Engine.Pending()), "pending")
		})
	}
}
