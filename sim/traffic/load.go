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
	// Nominal is what 100 % of a rack's uplinks means, bit/s.
	// CONGA §5.2.2 states loads of a fabric with a failed link as if it worked.
	Nominal []uint64
}

// Sizes draws flow sizes in bytes. *workload.CDF is one.
type Sizes interface {
	Sample(r *rand.Rand) uint64
	Mean() float64 // bytes
}

var _ Sizes = (*workload.CDF)(nil)

// Load is how much is offered, in percent of the bisection: the uplinks of the racks
// that send to others are full. Flows inside a rack come on top, and count for nothing.
type Load struct {
	Percent float64 // payload counts, headers do not
	// OfHosts makes it a share of the links of the hosts that send; all flows count.
	OfHosts bool
}

// FlowRate returns how many flows per second of these pairs and sizes offer the
// load. A selection that has no pairs is the caller's to refuse. It refuses a load that a host's link or a rack's uplinks cannot carry,
// with the numbers: queues would grow without end.
func (l Load) FlowRate(f *Fabric, p *Selection, s Sizes) (float64, error) {
	if !(l.Percent > 0) || math.IsInf(l.Percent, 0) {
		return 0, fmt.Errorf("a load of %g %% cannot be offered: give a number above 0", l.Percent)
	}
	bits := 8 * s.Mean()
	if !(bits > 0) {
		return 0, errors.New("the mean flow size is 0: there is no rate that offers a load")
	}
	d := demandOf(f, p)
	full := d.full(f, l.OfHosts)
	if !(full > 0) {
		return 0, fmt.Errorf("no load of the %s can be offered: the pairs send nothing over it, or it has no capacity", l.base())
	}
	offered := l.Percent / 100 * full // bit/s, of all flows
	if err := d.check(f, l, offered); err != nil {
		return 0, err
	}
	return offered / bits, nil
}

// base names what 100 % are as people do.
func (l Load) base() string {
	if l.OfHosts {
		return "hosts' links"
	}
	return "bisection"
}

// demand is how one bit of traffic spreads on average.
type demand struct {
	hostOut, hostIn []float64
	racks           [][]float64 // from rack, to rack
}

func demandOf(f *Fabric, p *Selection) *demand {
	d := &demand{make([]float64, len(f.Rack)), make([]float64, len(f.Rack)), make([][]float64, len(f.Uplinks))}
	for k := range d.racks {
		d.racks[k] = make([]float64, len(f.Uplinks))
	}
	p.each(func(p Pair, share float64) {
		d.hostOut[p.Src] += share
		d.hostIn[p.Dst] += share
		d.racks[f.Rack[p.Src]][f.Rack[p.Dst]] += share
	})
	return d
}

// crossing returns what leaves and enters a rack.
func (d *demand) crossing(rack int) (out, into float64) {
	for k := range d.racks {
		if k != rack {
			out += d.racks[rack][k]
			into += d.racks[k][rack]
		}
	}
	return out, into
}

// full returns the rate of all flows together, bit/s, at which the base is full.
func (d *demand) full(f *Fabric, ofHosts bool) float64 {
	var capacity, share float64
	if ofHosts {
		for h, s := range d.hostOut {
			if s > 0 {
				capacity += float64(f.HostRate[h])
			}
		}
		return capacity
	}
	for k := range d.racks {
		if out, _ := d.crossing(k); out > 0 {
			capacity += float64(f.Nominal[k])
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
		out, in := d.crossing(k)
		look(out, f.Uplinks[k], "the way out of rack %d", k)
		look(in, f.Uplinks[k], "the way into rack %d", k)
	}
	if at == "" {
		return nil
	}
	return fmt.Errorf("the load is more than the fabric carries: at %g %% of the %s %s: ask for at most %.4g %%", l.Percent, l.base(), at, l.Percent/worst)
}
