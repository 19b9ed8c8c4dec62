package dataplane

import (
	"math/rand/v2"
	"testing"
)

func TestU32mapAgainstMap(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		keys := make([]uint32, rng.IntN(300))
		naive := make(map[uint32]uint16)
		for i := range keys {
			keys[i] = uint32(rng.IntN(500)) << (rng.IntN(2) * 20)
			if keys[i] != 0 {
				naive[keys[i]] = uint16(i)
			}
		}
		m := makeU32map(keys)
		for k := range uint32(600) {
			for _, k := range []uint32{k, k << 20} {
				want, known := naive[k]
				if got, ok := m.get(k); ok != known || ok && got != want {
					t.Fatalf("seed %d: get(%d) = %d, %v; want %d, %v", seed, k, got, ok, want, known)
				}
			}
		}
	}
	if _, ok := new(u32map).get(5); ok {
		t.Error("an empty table knows 5")
	}
}
