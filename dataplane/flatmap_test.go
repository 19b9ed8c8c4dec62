package dataplane

import (
	"math/rand/v2"
	"testing"

	"github.com/loomfabric/loom/overlay"
)

func TestFlatMapAgainstMap(t *testing.T) {
	against(t, func(i uint32) overlay.VNI { return overlay.VNI(i) }, overlay.VNI.Hash)
	against(t, func(i uint32) overlay.Addr {
		if i == 0 {
			return overlay.Addr{}
		}
		return overlay.Addr{High: 0x2001_0db8 << 32, Low: uint64(i)}
	}, overlay.Addr.Hash)
	against(t, overlay.Addr4, overlay.Addr.Hash)
	if _, ok := new(flatMap[overlay.VNI]).get(5, 5); ok {
		t.Error("an empty table knows 5")
	}
}

func against[K comparable](t *testing.T, key func(uint32) K, hash func(K) uint32) {
	t.Helper()
	var none K
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 1))
		keys := make([]K, rng.IntN(300))
		naive := make(map[K]uint16)
		for i := range keys {
			keys[i] = key(uint32(rng.IntN(500)) << (rng.IntN(2) * 20))
			if keys[i] != none {
				naive[keys[i]] = uint16(i)
			}
		}
		m := makeFlatMap(keys, hash)
		for i := range uint32(600) {
			for _, k := range []K{key(i), key(i << 20)} {
				want, known := naive[k]
				if got, ok := m.get(k, hash(k)); ok != known || ok && got != want {
					t.Fatalf("seed %d: get(%v) = %d, %v; want %d, %v", seed, k, got, ok, want, known)
				}
			}
		}
	}
}
