package sim

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/loomfabric/loom/config/vocab"
)

// BenchmarkFabric runs the fabric of ConWeave §4.1, 8 leaves, 8 spines and 128
// hosts at 100 Gbit/s, for half a millisecond of virtual time, with one thread
// and with two: packet-hops per second are what counts.
func BenchmarkFabric(b *testing.B) {
	for _, c := range []struct {
		scheme  string
		threads int
	}{{"ecmp", 1}, {"conga", 1}, {"conweave", 1}, {"ecmp", 2}, {"conweave", 2}} {
		b.Run(fmt.Sprintf("%s/%d", c.scheme, c.threads), func(b *testing.B) {
			s := &Spec{
				Topology:  leafSpine(8, 8, 16, 100e9, 100e9, 0),
				Scheme:    c.scheme,
				Transport: Transport{Type: "rdma"},
				Workloads: []vocab.Workload{{Sizes: "alistorage", Load: 60, Pairs: "any"}},
				Duration:  500 * time.Microsecond,
			}
			s.Topology.Buffer, s.Topology.PFC = 9<<20, true
			s.Topology.mark(vocab.ECN{Kmin: 100e3, Kmax: 400e3, Pmax: 0.2})
			hops, seconds, bytes := uint64(0), 0.0, uint64(0)
			for range b.N {
				r, err := RunThreads(context.Background(), s, c.threads)
				if err != nil {
					b.Fatal(err)
				}
				hops += r.PacketHops
				seconds += r.Machine.WallS
				bytes += r.Machine.AllocBytes
			}
			b.ReportMetric(float64(hops)/seconds/1e6, "Mhops/s")
			b.ReportMetric(float64(bytes)/float64(b.N)/(1<<20), "MiB/run")
			b.ReportMetric(0, "ns/op")
		})
	}
}
