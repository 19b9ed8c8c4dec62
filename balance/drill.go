package balance

import (
	"fmt"
	"math/rand/v2"

	"github.com/loomfabric/loom/internal/mono"
)

// drill is DRILL(d, m) (Ghorbani et al., SIGCOMM 2017): each packet goes to the
// shortest queue of d paths drawn at random and of the m uplinks that were
// shortest last time. It is local and decides for every packet.
type drill struct {
	rng       *rand.PCG
	samples   int
	memory    [MaxPaths]uint8 // uplinks, best first
	remember  int             // m
	known     int             // of memory
	decisions uint64
}

var _ = register(Scheme{
	Name: "drill", Summary: "the shortest of sampled queues for each packet",
	New: newDRILL, Keys: func() Params { return &DRILLKeys{DRILL{2, 1}} }, Queues: true, EveryTier: true,
})

// DRILLKeys are what drill is told beside its name.
type DRILLKeys struct {
	// DRILL is what is compared for each packet: d and m of DRILL(d, m).
	DRILL DRILL `yaml:"drill"`
}

// DRILL is what drill compares for each packet: queues drawn at random, and those
// that were the shortest before. DRILL(2, 1) is its authors' choice.
type DRILL struct {
	// Samples is the number of uplinks drawn, 1 to 16.
	Samples int `yaml:"samples"`
	// Memory is the number of uplinks remembered, 0 to 16.
	Memory int `yaml:"memory"`
}

// Validate reports the first number that makes no sense.
func (k *DRILLKeys) Validate() error {
	switch d := &k.DRILL; {
	case d.Samples < 1 || d.Samples > MaxPaths:
		return fieldError("drill.samples", fmt.Sprintf("use 1 to %d", MaxPaths), "DRILL with %d samples", d.Samples)
	case d.Memory < 0 || d.Memory > MaxPaths:
		return fieldError("drill.memory", fmt.Sprintf("use 0 to %d", MaxPaths), "DRILL with %d remembered", d.Memory)
	}
	return nil
}

func newDRILL(o *Options) Policy {
	d := &o.Keys.(*DRILLKeys).DRILL
	return &drill{rng: newRNG(o), samples: d.Samples, remember: d.Memory}
}

func (d *drill) Stats() Stats { return Stats{Decisions: d.decisions} }

// Choose takes the queues as they are before the vector and adds to them what
// it puts there itself: otherwise a whole burst would go to one of them.
func (d *drill) Choose(now mono.Time, v *View, pkts []Packet) {
	v.look(now)
	queue := *v.Queue
	for i := range pkts {
		p := &pkts[i]
		paths := &v.Paths[p.Leaf]
		if paths.N == 0 {
			continue
		}
		uplink := d.shortest(paths, &queue)
		queue[uplink] += uint32(p.Len)
		p.Path = uint8(paths.Index[uplink])
		d.decisions++
	}
}

// shortest returns the best of samples and memory, and remembers the best m of
// them for the next packet. Fresh samples come first and win ties, so that no
// uplink is kept just for having been remembered.
func (d *drill) shortest(paths *Paths, queue *[MaxPaths]uint32) uint8 {
	var best [MaxPaths]uint8 // the best so far, in order
	n := 0
	seen := uint16(0)
	keep := max(d.remember, 1)
	for range d.samples {
		u := paths.Uplink[draw(d.rng, int(paths.N))] % MaxPaths
		if seen&(1<<u) == 0 {
			seen |= 1 << u
			n = insert(&best, n, keep, u, queue)
		}
	}
	for _, u := range d.memory[:d.known] {
		u %= MaxPaths
		if seen&(1<<u) == 0 && paths.Index[u] >= 0 {
			seen |= 1 << u
			n = insert(&best, n, keep, u, queue)
		}
	}
	d.known = min(n, d.remember)
	d.memory = best
	return best[0] % MaxPaths
}

// insert puts u into its place among the n best, of which at most keep stay; it
// returns their new number.
func insert(best *[MaxPaths]uint8, n, keep int, u uint8, queue *[MaxPaths]uint32) int {
	if n == keep {
		if queue[u] >= queue[best[n-1]%MaxPaths] {
			return n
		}
		n-- // the worst gives way
	}
	at := n
	for ; at > 0 && queue[u] < queue[best[at-1]%MaxPaths]; at-- {
		best[at] = best[at-1]
	}
	best[at] = u
	return n + 1
}
