package balance

import "math/rand/v2"

// newRNG returns the generator of one worker's policy. Schemes draw from the
// generator itself and not through a rand.Rand, which would make each number an
// interface call.
func newRNG(o *Options) *rand.PCG {
	return rand.NewPCG(o.Seed, uint64(o.Worker)+0x9e3779b97f4a7c15)
}

// draw returns a number from 0 to n-1, all equally likely to 2^-32·n.
func draw(rng *rand.PCG, n int) int {
	return int(rng.Uint64() >> 32 * uint64(n) >> 32)
}

// Remix mixes a flow's hash with a seed again, for all who choose by hash: nodes that
// hash alike would polarise. It is a bijective finaliser with full avalanche (xor,
// shift, multiply by odd constants), and returns the high half.
func Remix(h uint64) uint32 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	h ^= h >> 33
	return uint32(h >> 32)
}

// byHash returns the path that ecmp sends a flow by. A policy of another seed chooses
// independently.
func (p *Paths) byHash(hash uint32, seed uint64) uint8 { return p.Share(Remix(uint64(hash) ^ seed)) }

// selectorByHash returns the next tier's choice for a flow, 0 to 15, independent of its
// uplink.
func selectorByHash(hash uint32, seed uint64) uint8 {
	return uint8(Remix(uint64(hash)^seed^selectorKey) >> 28)
}

// selectorKey makes the selector independent of the uplink.
const selectorKey = 0x73656c6563746f72
