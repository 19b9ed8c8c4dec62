package leaf

import (
	"encoding/binary"

	"github.com/dchest/siphash"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/liveness"
	"github.com/loomfabric/loom/overlay"
)

// Shared is what the workers of one leaf have in common: what leaves tell each
// other. All of it is made of atomic words; see package congestion.
type Shared struct {
	To      *congestion.ToLeaf
	From    *congestion.FromLeaf
	Capable *overlay.Capability
	Paths   *liveness.Table
	secret  Secret
	boot    uint32
	states  [overlay.NumSchemes]any // what schemes have made for the workers; by wire number
}

// state returns what a scheme's policies and receivers share, and has it made for the
// leaf's first worker. Workers are made one after the other.
func (s *Shared) state(scheme *balance.Scheme, o balance.Options) (any, error) {
	if scheme.Shared == nil {
		return nil, nil
	}
	have := &s.states[scheme.Wire]
	if *have == nil {
		if err := scheme.Complete(&o); err != nil {
			return nil, err
		}
		*have = scheme.Shared(&o)
	}
	return *have, nil
}

// Secret is what a leaf knows alone, as long as it runs: its nonces are made of it.
type Secret [2]uint64

// NewShared returns tables for so many peers of which nothing is known, for a leaf with
// so many workers. p must be valid.
func NewShared(peers, workers int, secret Secret, p *congestion.Params) *Shared {
	return &Shared{
		To: congestion.NewToLeaf(peers, p), From: congestion.NewFromLeaf(peers, p),
		Capable: overlay.NewCapability(peers), Paths: liveness.NewTable(peers, workers),
		secret: secret, boot: secret.boot(),
	}
}

// hash is a keyed hash of a number (SipHash-2-4).
func (s Secret) hash(x uint64) uint64 {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], x)
	return siphash.Hash(s[0], s[1], b[:])
}

// Forget drops what is known of a peer, as when its place goes to another one.
func (s *Shared) Forget(peer uint16) {
	s.Capable.Forget(peer)
	s.To.Forget(peer)
	s.From.Forget(peer)
	s.Paths.Forget(peer)
}

// ForgetUplink drops what is known of the paths by an own uplink, as when its LBTag goes to
// another one.
func (s *Shared) ForgetUplink(tag uint8) {
	s.To.ForgetTag(tag)
	s.Paths.ForgetTag(tag)
}

// nonceRounds is the number of rounds after which a peer gets another nonce, a power of
// two. The one before counts as long.
const nonceRounds = 64

// nonce returns what the peer's HELLOs have to echo to prove that it gets this leaf's.
// It is never 0.
func (s *Shared) nonce(peer uint16, round uint32) uint64 {
	return s.secret.hash(uint64(peer)<<32|uint64(round/nonceRounds)) | 1
}

// proves reports whether an echo is that of a nonce of late.
func (s *Shared) proves(peer uint16, echo uint64) bool {
	round := s.Paths.Round()
	return echo == s.nonce(peer, round) || echo == s.nonce(peer, round-nonceRounds)
}
