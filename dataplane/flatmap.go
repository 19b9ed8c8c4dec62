package dataplane

import "math/bits"

// flatMap is an immutable open-addressing table from keys to uint16. It is
// built by the control plane and read by workers; unlike a Go map it costs
// usually one cache line. The zero value is no key: neither VNI 0 nor
// an unspecified address means anything here, and tables have zeroes in the places of
// what is gone. Who asks brings the key's hash: the upper bits of a product.
type flatMap[K comparable] struct {
	slots []flatSlot[K] // power of two, at most half full
	shift uint8
}

type flatSlot[K comparable] struct {
	key   K
	value uint16
	used  bool
}

func makeFlatMap[K comparable](keys []K, hash func(K) uint32) flatMap[K] {
	size := 8
	for size < 2*len(keys) {
		size *= 2
	}
	var none K
	m := flatMap[K]{slots: make([]flatSlot[K], size), shift: uint8(32 - bits.TrailingZeros(uint(size)))}
	for i, k := range keys {
		if k == none {
			continue
		}
		s := hash(k) >> m.shift
		for m.slots[s].used && m.slots[s].key != k {
			s = (s + 1) & uint32(len(m.slots)-1)
		}
		m.slots[s] = flatSlot[K]{key: k, value: uint16(i), used: true}
	}
	return m
}

// get returns the position of k, whose hash is given, in the keys the table was made from.
func (m *flatMap[K]) get(k K, hash uint32) (uint16, bool) {
	if len(m.slots) == 0 {
		return 0, false
	}
	for s := hash >> m.shift; ; s = (s + 1) & uint32(len(m.slots)-1) {
		e := &m.slots[s]
		if !e.used {
			return 0, false
		}
		if e.key == k {
			return e.value, true
		}
	}
}
