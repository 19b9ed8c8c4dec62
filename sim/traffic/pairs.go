package traffic

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/loomfabric/loom/sim/network"
)

// Pair names a sender and a receiver.
type Pair struct{ Src, Dst network.HostID }

// Pairs is a distribution of pairs.
type Pairs interface {
	// Pick draws a pair.
	Pick(r *rand.Rand) Pair
	// Each calls yield with each pair that can be drawn and its probability; a
	// pair may come several times. Loads are checked by it.
	Each(yield func(p Pair, share float64))
}

// checkPairs reports what is wrong with pairs, as far as they know it. It is
// called before pairs are used, because drawing from impossible ones panics.
func checkPairs(p Pairs) error {
	if p == nil {
		return errors.New("there are no pairs of hosts")
	}
	if v, ok := p.(interface{ Validate() error }); ok {
		return v.Validate()
	}
	return nil
}

// List draws one of some pairs, all alike.
type List []Pair

// Validate reports an empty list, and hosts that send to themselves.
func (l List) Validate() error {
	if len(l) == 0 {
		return errors.New("the list of pairs is empty")
	}
	for _, p := range l {
		if p.Src == p.Dst {
			return fmt.Errorf("host %d sends to itself: name two hosts", p.Src)
		}
	}
	return nil
}

// Pick draws a pair.
func (l List) Pick(r *rand.Rand) Pair { return l[r.IntN(len(l))] }

// Each lists the pairs.
func (l List) Each(yield func(p Pair, share float64)) {
	for _, p := range l {
		yield(p, 1/float64(len(l)))
	}
}

// Stride pairs host i with host (i+stride) mod hosts.
func Stride(hosts, stride int) (List, error) {
	step := stride % max(hosts, 1)
	if step < 0 {
		step += hosts
	}
	if hosts < 2 || step == 0 {
		return nil, fmt.Errorf("a stride of %d over %d hosts makes them send to themselves: choose another", stride, hosts)
	}
	l := make(List, hosts)
	for i := range l {
		l[i] = Pair{network.HostID(i), network.HostID((i + step) % hosts)}
	}
	return l, nil
}

// Permutation pairs each host with a random one, so that each sends to one and
// receives from one, and none from itself.
func Permutation(hosts int, s Stream) (List, error) {
	if hosts < 2 {
		return nil, fmt.Errorf("a permutation of %d hosts makes them send to themselves: it needs 2", hosts)
	}
	r := s.rand(forPairs)
	for {
		to := r.Perm(hosts)
		l := make(List, hosts)
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
