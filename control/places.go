package control

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/loomfabric/loom/dataplane"
)

// places remember the next hops of one destination: those that there are and those that
// went and may return. Flows that the others carry keep their next hops meanwhile
// ([dataplane.Gone]).
type places struct {
	of    []place   // in the order of port and gateway, at most dataplane.MaxPaths
	round uint64    // the last build in which it had a next hop,
	used  time.Time // and when that was
}

type place struct {
	key    hopKey
	weight uint16
	here   bool
	gone   time.Time // since when it is not here
}

func (a hopKey) compare(b hopKey) int {
	return cmp.Or(cmp.Compare(a.port, b.port), a.gateway.Compare(b.gateway))
}

// update takes over the next hops that there are now, which are in order.
func (p *places) update(keys []hopKey, weight map[hopKey]int, now time.Time) {
	for i := range p.of {
		was := p.of[i].here
		if p.of[i].here = slices.Contains(keys, p.of[i].key); was && !p.of[i].here {
			p.of[i].gone = now
		}
	}
	grown := false
	for _, k := range keys {
		w := uint16(min(weight[k], math.MaxUint16))
		i, found := slices.BinarySearchFunc(p.of, k, func(a place, k hopKey) int { return a.key.compare(k) })
		if found {
			p.of[i].weight = w
			continue
		}
		grown = true
		p.of = slices.Insert(p.of, i, place{key: k, weight: w, here: true})
	}
	if !grown {
		return
	}
	// A place more moves flows anyhow: a good time to give up those that nobody will
	// return to.
	p.of = slices.DeleteFunc(p.of, func(a place) bool { return !a.here && now.Sub(a.gone) >= idRetention })
	for len(p.of) > dataplane.MaxPaths {
		oldest := -1
		for i := range p.of {
			if !p.of[i].here && (oldest < 0 || p.of[i].gone.Before(p.of[oldest].gone)) {
				oldest = i
			}
		}
		if oldest < 0 {
			p.of = p.of[:dataplane.MaxPaths]
			return
		}
		p.of = slices.Delete(p.of, oldest, oldest+1)
	}
}

// remember returns the next hops of a destination, their weights or nil if all are alike,
// and the places of those that are gone. A next hop for which there is no number is gone.
func (b *Builder) remember(dst netip.Prefix, keys []hopKey, weight map[hopKey]int, now time.Time) (hops []dataplane.HopID, weights []uint16, gone []dataplane.Gone) {
	if len(keys) == 0 {
		return nil, nil, nil // forget marks those that there were
	}
	p := b.places[dst]
	if p == nil {
		p = new(places)
		b.places[dst] = p
	}
	p.update(keys, weight, now)
	p.round, p.used = b.round, now
	alike := true
	for i := range p.of {
		x := &p.of[i]
		alike = alike && x.weight == p.of[0].weight
		if id, ok := b.number(x, now); ok {
			hops = append(hops, dataplane.HopID(id))
			weights = append(weights, x.weight)
			continue
		}
		gone = append(gone, dataplane.Gone{Place: uint8(i), Weight: x.weight})
	}
	if alike {
		weights = nil
	}
	return hops, weights, gone
}

// number returns the ID of a next hop that is here.
func (b *Builder) number(x *place, now time.Time) (int, bool) {
	if !x.here {
		return 0, false
	}
	return b.hops.Get(x.key, now)
}

// forget drops destinations that have had no next hop for long, and marks what the build
// did not ask for as gone: a spine's routes that are no more.
func (b *Builder) forget(now time.Time) {
	for dst, p := range b.places {
		if p.round != b.round {
			p.update(nil, nil, now)
		}
		if now.Sub(p.used) >= idRetention {
			delete(b.places, dst)
		}
	}
}
