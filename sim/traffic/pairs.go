package traffic

import (
	"fmt"
	"math/rand/v2"

	"github.com/loomfabric/loom/sim/network"
)

// Pair names a sender and a receiver.
type Pair struct{ Src, Dst network.HostID }

// Selection draws a sender out of From, and a receiver out of those of To that
// it may send to: any other host, or any in another rack, of its VNI.
type Selection struct {
	From, To []network.HostID
	Rack     []int    // by host
	VNI      []uint32 // by host; nil: there is one
	Any      bool     // hosts of one rack are a pair as well
}

// Allowed reports whether a may send to b.
func (s *Selection) Allowed(a, b network.HostID) bool {
	return s.mates(a, b) && (s.Any || s.Rack[a] != s.Rack[b])
}

// mates reports whether two hosts can talk at all.
func (s *Selection) mates(a, b network.HostID) bool {
	return a != b && (s.VNI == nil || s.VNI[a] == s.VNI[b])
}

// pick draws a pair. Those of a selection that Validate refuses it looks for without
// end.
func (s *Selection) pick(r *rand.Rand) Pair {
	src := s.From[r.IntN(len(s.From))]
	for {
		if dst := s.To[r.IntN(len(s.To))]; s.Allowed(src, dst) {
			return Pair{src, dst}
		}
	}
}

// each calls yield with each pair that can be drawn and its probability; a pair may
// come several times.
func (s *Selection) each(yield func(p Pair, share float64)) {
	for _, src := range s.From {
		n := s.choices(src)
		for _, dst := range s.To {
			if s.Allowed(src, dst) {
				yield(Pair{src, dst}, 1/float64(len(s.From))/float64(n))
			}
		}
	}
}

func (s *Selection) choices(src network.HostID) (n int) {
	for _, dst := range s.To {
		if s.Allowed(src, dst) {
			n++
		}
	}
	return n
}

// Pairs is a list of From[i] with the i-th of those in To that it can talk to,
// wrapping around, as fabric.yaml pairs hosts of its bulk and udp workloads.
func (s *Selection) Pairs() (out []Pair) {
	var partners []network.HostID
	for i, src := range s.From {
		partners = partners[:0]
		for _, dst := range s.To {
			if s.mates(src, dst) {
				partners = append(partners, dst)
			}
		}
		if n := len(partners); n > 0 {
			out = append(out, Pair{src, partners[i%n]})
		}
	}
	return out
}

// Validate reports a host that has nobody to talk to.
func (s *Selection) Validate() error {
	if len(s.From) == 0 || len(s.To) == 0 {
		return fmt.Errorf("no hosts are selected: from has %d, to has %d", len(s.From), len(s.To))
	}
	for _, h := range s.From {
		if s.choices(h) > 0 {
			continue
		}
		if s.Any {
			return fmt.Errorf("host h%d has nobody to send to", h)
		}
		return fmt.Errorf("host h%d has nobody to send to behind another leaf: name some in to, or write pairs: any", h)
	}
	return nil
}

// Stride pairs host i with host (i+stride) mod hosts.
func Stride(hosts, stride int) ([]Pair, error) {
	step := stride % max(hosts, 1)
	if step < 0 {
		step += hosts
	}
	if hosts < 2 || step == 0 {
		return nil, fmt.Errorf("a stride of %d over %d hosts makes them send to themselves: choose another", stride, hosts)
	}
	l := make([]Pair, hosts)
	for i := range l {
		l[i] = Pair{network.HostID(i), network.HostID((i + step) % hosts)}
	}
	return l, nil
}

// Permutation pairs each host with a random one, so that each sends to one and
// receives from one, and none from itself.
func Permutation(hosts int, s Stream) ([]Pair, error) {
	if hosts < 2 {
		return nil, fmt.Errorf("a permutation of %d hosts makes them send to themselves: it needs 2", hosts)
	}
	r := s.rand(forPairs)
	for {
		to := r.Perm(hosts)
		l := make([]Pair, hosts)
		fixed := false
		for i, d := range to {
			l[i] = Pair{network.HostID(i), network.HostID(d)}
			fixed = fixed || i == d
		}
		if !fixed { // about one in e is without
			return l, nil
		}
	}
}

// Shuffle pairs all hosts with all: each fetches from each other one, in a random
// order of its own.
func Shuffle(hosts []network.HostID, s Stream) ([]Pair, error) {
	n := len(hosts)
	if n < 2 {
		return nil, fmt.Errorf("%d hosts cannot exchange anything: it needs 2", n)
	}
	r := s.rand(forPairs)
	from := make([][]network.HostID, n) // whom each host fetches from, in order
	for i := range hosts {
		for _, k := range r.Perm(n) {
			if k != i {
				from[i] = append(from[i], hosts[k])
			}
		}
	}
	var l []Pair
	for round := range n - 1 {
		for i, h := range hosts {
			l = append(l, Pair{from[i][round], h})
		}
	}
	return l, nil
}
