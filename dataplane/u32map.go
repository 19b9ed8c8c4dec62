package dataplane

import "math/bits"

// u32map is an immutable open-addressing table from uint32 to uint16. It is
// built by the control plane and read by workers; unlike a Go map it costs a
// multiplication and usually one cache line. Zero is no key: neither VNI 0 nor
// address 0.0.0.0 means anything here, and tables have zeroes in the places of
// what is gone.
type u32map struct {
	slots []u32slot // power of two, at most half full
	shift uint8
}

type u32slot struct {
	key   uint32
	value uint16
	used  bool
}

func makeU32map(keys []uint32) u32map {
	size := 8
	for size < 2*len(keys) {
		size *= 2
	}
	m := u32map{slots: make([]u32slot, size), shift: uint8(32 - bits.TrailingZeros(uint(size)))}
	for i, k := range keys {
		if k == 0 {
			continue
		}
		s := m.start(k)
		for m.slots[s].used && m.slots[s].key != k {
			s = (s + 1) & uint32(len(m.slots)-1)
		}
		m.slots[s] = u32slot{key: k, value: uint16(i), used: true}
	}
	return m
}

func (m *u32map) start(k uint32) uint32 { return k * 0x9E3779B1 >> m.shift }

// get returns the position of k in the keys the table was made from.
func (m *u32map) get(k uint32) (uint16, bool) {
	if k == 0 || len(m.slots) == 0 {
		return 0, false
	}
	for s := m.start(k); ; s = (s + 1) & uint32(len(m.slots)-1) {
		e := &m.slots[s]
		if !e.used {
			return 0, false
		}
		if e.key == k {
			return e.value, true
		}
	}
}
