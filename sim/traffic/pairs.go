package traffic

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/loomfabric/loom/sim/network"
)

// Pair is who sends, and who receives.
type Pair struct{ Src, Dst network.HostID }

// Pairs is a distribution of pairs.
type Pairs interface {
	// Pick draws a pair.
	Pick(r *rand.Rand) Pair
	// Each calls yield with each pair that can be drawn and its probability; a
	// pair may come several times. Loads are checked by it.
	Each(yield func(p Pair, share float64))
}

// AnyPair draws two different hosts out of Hosts, which must be at least 2
// (ConWeave §4.1).
type AnyPair struct{ Hosts int }

// Validate reports too few hosts.
func (a AnyPair) Validate() error {
	if a.Hosts < 2 {
		return fmt.Errorf("%d hosts make no pair: it takes 2", a.Hosts)
	}
	return nil
}

// checkPairs reports what is wrong with pairs, as far as they know it. Whoever
// takes pairs asks, as drawing from impossible ones panics.
func checkPairs(p Pairs) error {
	if p == nil {
		return errors.New("there are no pairs of hosts")
	}
	if v, ok := p.(interface{ Validate() error }); ok {
		return v.Validate()
	}
	return nil
}

// Pick draws a pair.
func (a AnyPair) Pick(r *rand.Rand) Pair {
	src := r.IntN(a.Hosts)
	return Pair{network.HostID(src), network.HostID(another(r, a.Hosts, src))}
}

// another draws one of n that is not i.
func another(r *rand.Rand, n, i int) int {
	k := r.IntN(n - 1)
	if k >= i {
		k++
	}
	return k
}

// Each lists all pairs.
func (a AnyPair) Each(yield func(p Pair, share float64)) {
	share := 1 / (float64(a.Hosts) * float64(a.Hosts-1))
	for s := range a.Hosts {
		for d := range a.Hosts {
			if s != d {
				yield(Pair{network.HostID(s), network.HostID(d)}, share)
			}
		}
	}
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

// Racks draws pairs of hosts in different racks, by rules about racks.
type Racks struct {
	hosts []network.HostID // sorted by rack
	first []int            // index in hosts of each rack's first; one more at the end
	rack  []int            // of each host
	to    []int            // rack whose servers the clients of each rack use; nil: all others
	from  []network.HostID // clients, if to is given
}

// newRacks sorts hosts by rack, which are numbered from 0.
func newRacks(rack []int) (*Racks, error) {
	racks := 0
	for h, k := range rack {
		if k < 0 {
			return nil, fmt.Errorf("host %d is in rack %d: racks are numbered from 0", h, k)
		}
		racks = max(racks, k+1)
	}
	c := &Racks{rack: slices.Clone(rack), first: make([]int, 0, racks+1)}
	for k := range racks {
		c.first = append(c.first, len(c.hosts))
		for h := range rack {
			if rack[h] == k {
				c.hosts = append(c.hosts, network.HostID(h))
			}
		}
	}
	c.first = append(c.first, len(c.hosts))
	return c, nil
}

// OtherRack draws any host, and another one out of those in other racks. rack
// holds the rack of each host.
func OtherRack(rack []int) (*Racks, error) {
	c, err := newRacks(rack)
	if err != nil {
		return nil, err
	}
	for k := range len(c.first) - 1 {
		if c.size(k) == len(rack) {
			return nil, fmt.Errorf("all %d hosts are in rack %d: none is in another", len(rack), k)
		}
	}
	if len(rack) == 0 {
		return nil, fmt.Errorf("there are no hosts to pair")
	}
	return c, nil
}

// RackToRack draws a client out of all racks r that have a to[r], and a server
// out of rack to[r]; the server sends. to[r] < 0: no clients in rack r. CONGA
// §5.2 has two racks, and clients of each use only servers of the other:
// to = {1, 0}.
func RackToRack(rack, to []int) (*Racks, error) {
	c, err := newRacks(rack)
	if err != nil {
		return nil, err
	}
	if len(to) != len(c.first)-1 {
		return nil, fmt.Errorf("%d racks have clients assigned, but there are %d", len(to), len(c.first)-1)
	}
	c.to = slices.Clone(to)
	for k, d := range to {
		switch {
		case d < 0:
			continue
		case d >= len(to) || d == k || c.size(d) == 0:
			return nil, fmt.Errorf("clients of rack %d cannot use servers of rack %d: name another rack that has hosts", k, d)
		}
		c.from = append(c.from, c.hosts[c.first[k]:c.first[k+1]]...)
	}
	if len(c.from) == 0 {
		return nil, fmt.Errorf("no rack has clients: assign at least one")
	}
	return c, nil
}

func (c *Racks) size(rack int) int { return c.first[rack+1] - c.first[rack] }

// Pick draws a pair.
func (c *Racks) Pick(r *rand.Rand) Pair {
	if c.to != nil {
		client := c.from[r.IntN(len(c.from))]
		k := c.to[c.rack[client]]
		return Pair{c.hosts[c.first[k]+r.IntN(c.size(k))], client}
	}
	src := network.HostID(r.IntN(len(c.hosts)))
	k := c.rack[src]
	i := r.IntN(len(c.hosts) - c.size(k))
	if i >= c.first[k] {
		i += c.size(k)
	}
	return Pair{src, c.hosts[i]}
}

// Each lists the pairs.
func (c *Racks) Each(yield func(p Pair, share float64)) {
	if c.to != nil {
		for _, client := range c.from {
			k := c.to[c.rack[client]]
			for _, server := range c.hosts[c.first[k]:c.first[k+1]] {
				yield(Pair{server, client}, 1/float64(len(c.from)*c.size(k)))
			}
		}
		return
	}
	n := len(c.hosts)
	for _, src := range c.hosts {
		for _, dst := range c.hosts {
			if k := c.rack[src]; k != c.rack[dst] {
				yield(Pair{src, dst}, 1/(float64(n)*float64(n-c.size(k))))
			}
		}
	}
}

// HotSpot draws a sender out of all hosts, and with probability Share a receiver
// out of Hot, else out of all. No host sends to itself: what would be its own
// turn goes to the others.
type HotSpot struct {
	Hosts int // at least 2
	Hot   []network.HostID
	Share float64 // 0..1
}

// Validate reports what is wrong with the pattern.
func (h HotSpot) Validate() error {
	if h.Hosts < 2 || len(h.Hot) == 0 || !(h.Share >= 0 && h.Share <= 1) {
		return fmt.Errorf("a hot spot of %d of %d hosts that gets a share of %g: it needs two hosts, a hot one, and a share from 0 to 1",
			len(h.Hot), h.Hosts, h.Share)
	}
	for i, id := range h.Hot {
		if int(id) >= h.Hosts || slices.Contains(h.Hot[:i], id) {
			return fmt.Errorf("host %d is named as a hot spot: name each of the %d hosts at most once", id, h.Hosts)
		}
	}
	return nil
}

// Pick draws a pair.
func (h HotSpot) Pick(r *rand.Rand) Pair {
	src := network.HostID(r.IntN(h.Hosts))
	if hot := h.others(src); hot > 0 && r.Float64() < h.Share {
		i := r.IntN(hot)
		for _, id := range h.Hot {
			if id == src {
				continue
			}
			if i == 0 {
				return Pair{src, id}
			}
			i--
		}
	}
	return Pair{src, network.HostID(another(r, h.Hosts, int(src)))}
}

// others returns how many hot hosts there are beside src.
func (h HotSpot) others(src network.HostID) int {
	if slices.Contains(h.Hot, src) {
		return len(h.Hot) - 1
	}
	return len(h.Hot)
}

// Each lists the pairs.
func (h HotSpot) Each(yield func(p Pair, share float64)) {
	for s := range network.HostID(h.Hosts) {
		share, hot := h.Share, h.others(s)
		if hot == 0 {
			share = 0
		}
		for _, d := range h.Hot {
			if d != s && share > 0 {
				yield(Pair{s, d}, share/float64(h.Hosts*hot))
			}
		}
		for d := range network.HostID(h.Hosts) {
			if d != s {
				yield(Pair{s, d}, (1-share)/float64(h.Hosts*(h.Hosts-1)))
			}
		}
	}
}
