package balance

import "github.com/loomfabric/loom/mono"

const nameECMP = "ecmp"

// ecmp spreads flows evenly over the paths by a hash of the flow (RFC 2992,
// with the hash's range cut into equal parts). It keeps no state.
type ecmp struct {
	seed uint64
}

func newECMP(seed uint64) *ecmp { return &ecmp{seed: seed} }

func (*ecmp) Name() string { return nameECMP }

// Choose maps each flow to a fixed path as long as the number of paths stays.
// The flow's hash is mixed with the seed again: without that, every tier that
// hashes alike would see only the flows that the tier before sent its way, all
// of which it would send the same way (hash polarisation).
func (e *ecmp) Choose(_ mono.Time, paths []Paths, pkts []Packet) {
	seed := e.seed
	for i := range pkts {
		p := &pkts[i]
		h := uint64(remix(uint64(p.Hash) ^ seed))
		p.Path = uint8(h * uint64(paths[p.Leaf].N) >> 32)
	}
}

// remix is a bijective finaliser with full avalanche (xor, shift, multiply by
// odd constants), of which the high half is returned.
func remix(h uint64) uint32 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	h ^= h >> 33
	return uint32(h >> 32)
}
