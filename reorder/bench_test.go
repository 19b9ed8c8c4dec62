package reorder_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// BenchmarkReceive is the cost of a packet of one of a thousand flows that have
// not been rerouted, and of a reroute: three packets held, one TAIL, drained.
func BenchmarkReceive(b *testing.B) {
	b.Run("data", func(b *testing.B) {
		c := mustNew[int](b, nil).ConWeave
		rng := rand.New(rand.NewPCG(1, 2))
		var hashes [1024]uint32
		for i := range hashes {
			hashes[i] = rng.Uint32()
		}
		pkts := []reorder.Arrival{{Leaf: 1, Len: 1000, Fabric: overlay.Fabric{Capable: true, Shim: true, Epoch: 1}}}
		p, now := &pkts[0], mono.Time(0)
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			now += 100
			p.Hash, p.Fabric.TxTstamp = hashes[i%len(hashes)], overlay.TstampOf(now)
			if c.Receive(now, pkts); p.Verdict != reorder.Pass {
				b.Fatal(p.Verdict)
			}
		}
	})
	b.Run("reroute", func(b *testing.B) {
		c := mustNew[int](b, nil).ConWeave
		now := mono.Time(0)
		var pkts [4]reorder.Arrival
		b.ReportAllocs()
		for epoch := overlay.Epoch(0); b.Loop(); epoch = epoch.Next() {
			now += mono.Time(time.Microsecond)
			tx := overlay.TstampOf(now)
			for i := range pkts {
				last := i == len(pkts)-1
				pkts[i] = reorder.Arrival{Hash: 7, Leaf: 1, Len: 1000, Fabric: overlay.Fabric{
					Capable: true, Shim: true, Epoch: epoch, TxTstamp: tx, Arg: tx, Rerouted: !last, Tail: last,
				}}
			}
			if c.Receive(now, pkts[:]); pkts[2].Verdict != reorder.Hold || pkts[3].Verdict != reorder.PassDrain {
				b.Fatal(pkts)
			}
		}
	})
}
