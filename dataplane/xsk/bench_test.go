package xsk

import (
	"fmt"
	"testing"

	"github.com/loomfabric/loom/internal/testenv"
)

// BenchmarkTransmit sends 64-byte frames into a veth whose other end drops
// them: what a frame costs in the kernel, with and without a raised budget.
func BenchmarkTransmit(b *testing.B) {
	testenv.NeedRoot(b)
	for _, budget := range []int{kernelBudget, 256, wantBudget} {
		b.Run(fmt.Sprintf("budget=%d", budget), func(b *testing.B) {
			ns := testenv.NewNamespace(b, "lmxsk")
			testenv.VethPair(b, ns, "a", ns, "b", testenv.VethOptions{})
			u, p := newArea(b, 4096)
			a := openOn(b, ns, "a", u, p, 0, smallConfig(), 0)
			openOn(b, ns, "b", u, p, 1, smallConfig(), 0)
			if err := a.setBudget(budget); err != nil {
				b.Skipf("the kernel takes no budget of %d: %v", budget, err)
			}
			descs := make([]Desc, budget)
			for i := range descs {
				addr, _ := p.Get()
				descs[i] = Desc{Addr: addr, Len: uint32(copy(u.Area()[addr:addr+64], frame(1)))}
			}
			done := make([]uint64, budget)
			b.ReportAllocs()
			b.ResetTimer()
			for sent := 0; sent < b.N; {
				sent += a.Transmit(descs[:min(budget, b.N-sent, a.TXFree())])
				a.Kick()
				a.Complete(done)
			}
		})
	}
}
