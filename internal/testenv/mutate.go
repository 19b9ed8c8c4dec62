package testenv

import "math/rand/v2"

// Mutate changes a few bytes of b, its length, or both.
func Mutate(rng *rand.Rand, b []byte, others [][]byte) []byte {
	for range 1 + rng.IntN(4) {
		if len(b) == 0 {
			return b
		}
		i := rng.IntN(len(b))
		switch rng.IntN(8) {
		case 0, 1:
			b[i] ^= 1 << rng.IntN(8)
		case 2:
			b[i] = byte(rng.Uint32())
		case 3:
			b[i] = [...]byte{0, 1, 0x7f, 0x80, 0xff, 0x45, 0x81, 0x86}[rng.IntN(8)]
		case 4:
			b = b[:i]
		case 5:
			b = append(b, others[rng.IntN(len(others))]...)
			b = b[:min(len(b), 2048)]
		case 6:
			o := others[rng.IntN(len(others))]
			copy(b[i:], o[min(len(o), rng.IntN(64)):])
		case 7:
			copy(b[i:], b[rng.IntN(len(b)):])
		}
	}
	return b
}
