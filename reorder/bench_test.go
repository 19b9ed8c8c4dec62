package reorder_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

func mustNew[T any](t testing.TB, change func(*reorder.Params)) *reorder.ConWeave[T] {
	t.Helper()
	p := reorder.Datacenter()
	if change != nil {
		change(&p)
	}
	c, err := reorder.New[T](p)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// BenchmarkArrive is the cost of a packet of one of a thousand flows that have
// not been rerouted, and of a reroute: three packets held, one TAIL, drained.
func BenchmarkArrive(b *testing.B) {
	b.Run("data", func(b *testing.B) {
		c := mustNew[uint64](b, nil)
		rng := rand.New(rand.NewPCG(1, 2))
		var hashes [1024]uint32
		for i := range hashes {
			hashes[i] = rng.Uint32()
		}
		f := overlay.Fabric{Capable: true, Shim: true, Epoch: 1}
		now := mono.Time(0)
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			now += 100
			f.TxTstamp = overlay.TstampOf(now)
			if v, _ := c.Arrive(now, 1, hashes[i%len(hashes)], &f, false, 0, 1000, 0); v != reorder.Pass {
				b.Fatal(v)
			}
		}
	})
	b.Run("reroute", func(b *testing.B) {
		c := mustNew[uint64](b, nil)
		now := mono.Time(0)
		f := overlay.Fabric{Capable: true, Shim: true}
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			now += mono.Time(time.Microsecond)
			f.Epoch, f.TxTstamp, f.Arg = f.Epoch.Next(), overlay.TstampOf(now), overlay.TstampOf(now)
			f.Rerouted, f.Tail = true, false
			for range 3 {
				if v, _ := c.Arrive(now, 1, 7, &f, false, 0, 1000, 0); v != reorder.Hold {
					b.Fatal(v)
				}
			}
			f.Rerouted, f.Tail = false, true
			v, q := c.Arrive(now, 1, 7, &f, false, 0, 1000, 0)
			if v != reorder.PassDrain {
				b.Fatal(v)
			}
			for _, ok := c.Pop(q); ok; _, ok = c.Pop(q) {
			}
		}
	})
}
