package traffic

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/loomfabric/loom/internal/workload"
)

// Fabric is what a load is a share of.
type Fabric struct {
	Rack     []int    // of each host, numbered from 0
	HostRate []uint64 // bit/s of each host's link
	Uplinks  []uint64 // bit/s of each rack's uplinks that work, each direction
	// Nominal is what 100 % of a rack's uplinks means, bit/s; nil: Uplinks.
	// CONGA §5.2.2 states loads of a fabric with a failed link as if it worked.
	Nominal []uint64
}

// Validate reports what does not fit together.
func (f *Fabric) Validate() error {
	if len(f.HostRate) != len(f.Rack) {
		return fmt.Errorf("the fabric has %d hosts in racks and %d links to hosts", len(f.Rack), len(f.HostRate))
	}
	if f.Nominal != nil && len(f.Nominal) != len(f.Uplinks) {
		return fmt.Errorf("the fabric has %d racks and %d nominal capacities", len(f.Uplinks), len(f.Nominal))
	}
	for h, k := range f.Rack {
		if k < 0 || k >= len(f.Uplinks) {
			return fmt.Errorf("host %d is in rack %d, but there are %d racks", h, k, len(f.Uplinks))
		}
	}
	return nil
}

// Base is what 100 % of a load is.
type Base uint8

// The bases.
const (
	// OfBisection: the uplinks of the racks that send to others are full.
	// Flows inside a rack come on top, and count for nothing.
	OfBisection Base = iota
	// OfHostLinks: the links of the hosts that send are full; all flows count.
	OfHostLinks
)

// Sizes draws flow sizes in bytes. *workload.CDF is one.
type Sizes interface {
	Sample(r *rand.Rand) uint64
	Mean() float64 // bytes
}

var _ Sizes = (*workload.CDF)(nil)

// Load is how much is offered.
type Load struct {
	Percent float64 // payload counts, headers do not
	Of      Base
}

// FlowRate returns how many flows per second of these pairs and sizes offer the
// load. It refuses a load that a host's link or a rack's uplinks cannot carry,
// with the numbers: queues would grow without end.
func (l Load) FlowRate(f *Fabric, p Pairs, s Sizes) (float64, error) {
	if err := f.Validate(); err != nil {
		return 0, err
	}
	if err := checkPairs(p); err != nil {
		return 0, err
	}
	if !(l.Percent > 0) || math.IsInf(l.Percent, 0) {
		return 0, fmt.Errorf("a load of %g %% cannot be offered: give a number above 0", l.Percent)
	}
	bits := 8 * s.Mean()
	if !(bits > 0) {
		return 0, errors.New("the mean flow size is 0: there is no rate that offers a load")
	}
	d, err := demandOf(f, p)
	if err != nil {
		return 0, err
	}
	full := d.full(f, l.Of)
	if !(full > 0) {
		return 0, fmt.Errorf("no load of the %s can be offered: the pairs send nothing over it, or it has no capacity", l.Of)
	}
	offered := l.Percent / 100 * full // bit/s, of all flows
	if err := d.check(f, l, offered); err != nil {
		return 0, err
	}
	return offered / bits, nil
}

// String names the base as people do.
func (b Base) String() string {
	if b == OfHostLinks {
		return "hosts' links"
	}
	return "bisection"
}

// demand is how one bit of traffic spreads on average.
type demand struct {
	hostOut, hostIn []float64
	racks           [][]float64 // from rack, to rack
}

func demandOf(f *Fabric, p Pairs) (*demand, error) {
	d := &demand{make([]float64, len(f.Rack)), make([]float64, len(f.Rack)), make([][]float64, len(f.Uplinks))}
	for k := range d.racks {
		d.racks[k] = make([]float64, len(f.Uplinks))
	}
	var err error
	p.Each(func(p Pair, share float64) {
		if int(max(p.Src, p.Dst)) >= len(f.Rack) {
			err = fmt.Errorf("a pair of hosts %d and %d is wanted, but there are %d hosts", p.Src, p.Dst, len(f.Rack))
			return
		}
		d.hostOut[p.Src] += share
		d.hostIn[p.Dst] += share
		d.racks[f.Rack[p.Src]][f.Rack[p.Dst]] += share
	})
	return d, err
}

// crossing returns what leaves and enters the racks for which in is true.
func (d *demand) crossing(in func(rack int) bool) (out, into float64) {
	for a := range d.racks {
		for b, share := range d.racks[a] {
			switch {
			case in(a) && !in(b):
				out += share
			case !in(a) && in(b):
				into += share
			}
		}
	}
	return out, into
}

// full returns the rate of all flows together, bit/s, at which the base is full.
func (d *demand) full(f *Fabric, of Base) float64 {
	var capacity, share float64
	if of == OfHostLinks {
		for h, s := range d.hostOut {
			if s > 0 {
				capacity += float64(f.HostRate[h])
			}
		}
		return capacity
	}
	nominal := f.Nominal
	if nominal == nil {
		nominal = f.Uplinks
	}
	for k := range d.racks {
		if out, _ := d.crossing(func(r int) bool { return r == k }); out > 0 {
			capacity += float64(nominal[k])
			share += out
		}
	}
	if share == 0 {
		return 0
	}
	return capacity / share
}

// check refuses more than links carry, and says what they would. It names what
// is overloaded most.
func (d *demand) check(f *Fabric, l Load, offered float64) error {
	worst, at := 1+1e-9, "" // rounding is no overload
	look := func(share float64, rate uint64, format string, arg any) {
		if bits := share * offered; bits > worst*float64(rate) {
			worst = bits / float64(rate)
			at = fmt.Sprintf(format+", which carries %.4g Gbit/s, would get %.4g Gbit/s", arg, float64(rate)/1e9, bits/1e9)
		}
	}
	for h := range f.Rack {
		look(d.hostOut[h], f.HostRate[h], "the link from host %d", h)
		look(d.hostIn[h], f.HostRate[h], "the link to host %d", h)
	}
	for k := range f.Uplinks {
		out, in := d.crossing(func(r int) bool { return r == k })
		look(out, f.Uplinks[k], "the way out of rack %d", k)
		look(in, f.Uplinks[k], "the way into rack %d", k)
	}
	if at == "" {
		return nil
	}
	return fmt.Errorf("the load is more than the fabric carries: at %g %% of the %s %s: ask for at most %.4g %%", l.Percent, l.Of, at, l.Percent/worst)
}
