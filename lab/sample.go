package lab

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/loomfabric/loom/config/fabric"
	"github.com/loomfabric/loom/internal/measure"
)

// MinSample is the shortest interval between samples. With a shorter one the
// questions would take more of a shared core than the daemons.
const MinSample = 10 * time.Millisecond

// UplinkSeries has the throughput of a leaf's uplinks in intervals. All uplinks
// of one interval were read in the same instant.
type UplinkSeries struct {
	Leaf  string          `json:"leaf"`
	Links []string        `json:"links"`
	At    []time.Duration `json:"at_ns"` // the intervals' ends, after the run's start
	Bits  [][]uint64      `json:"bits"`  // by interval and link: bits per second, overlay included

	samples []sample // one more than intervals
}

// sample has what a leaf's uplinks had sent by a time, in bytes.
type sample struct {
	at   time.Duration
	sent []uint64
}

// add ends an interval.
func (u *UplinkSeries) add(s sample) {
	if n := len(u.samples); n > 0 {
		last, row := u.samples[n-1], make([]uint64, len(s.sent))
		for j := range row {
			row[j] = uint64(float64(s.sent[j]-last.sent[j]) * 8 / (s.at - last.at).Seconds())
		}
		u.At, u.Bits = append(u.At, s.at), append(u.Bits, row)
	}
	u.samples = append(u.samples, s)
}

// sampler reads the leaves' uplinks every so often, each leaf for itself.
type sampler struct {
	lab    *Lab
	series []UplinkSeries // by leaf; none if nobody wants samples
	spines []UplinkSeries // by spine, if somebody wants them, too
	cancel context.CancelFunc
	leaves errgroup.Group
}

// startSampler begins to sample, unless every is 0. spines says whether they are wanted, too.
func (l *Lab) startSampler(ctx context.Context, load *load, every time.Duration, spines bool) *sampler {
	s := &sampler{lab: l}
	ctx, s.cancel = context.WithCancel(ctx)
	if every == 0 {
		return s
	}
	s.series = make([]UplinkSeries, len(l.Topo.Leaves))
	if spines {
		s.spines = make([]UplinkSeries, len(l.Topo.Spines))
	}
	for i, n := range l.nodes() {
		var u *UplinkSeries
		switch {
		case i < len(s.series):
			u = &s.series[i]
		case spines:
			u = &s.spines[i-len(s.series)]
		default:
			return s
		}
		u.Leaf = n.Name
		for _, p := range l.ports(n) {
			u.Links = append(u.Links, l.Topo.Links[p.link].Name)
		}
		s.leaves.Go(func() error { return u.take(ctx, l, n, load, max(every, MinSample)) })
	}
	return s
}

// take samples a leaf until ctx ends or the leaf does not answer.
func (u *UplinkSeries) take(ctx context.Context, l *Lab, leaf fabric.Node, load *load, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		sent, err := l.uplinkBytes(ctx, leaf)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("sample the uplinks of %s: %w", leaf.Name, err)
		}
		u.add(sample{load.since(), sent})
	}
}

// stop ends sampling and returns what failed.
func (s *sampler) stop() error {
	s.cancel()
	return s.leaves.Wait()
}

// imbalance sums up how uneven the leaves' uplinks were between two times. up
// returns which links were up at a time.
func (s *sampler) imbalance(up func(time.Duration) []bool, from, to time.Duration) []measure.Distribution {
	var names []string
	var recs []*measure.Imbalance
	for i, u := range s.series {
		ports := s.lab.ports(s.lab.Topo.Leaves[i])
		if len(ports) < 2 {
			continue
		}
		rec, isUp := measure.NewImbalance(len(ports), 100_000), make([]bool, len(ports))
		for _, x := range u.samples {
			if x.at < from || x.at > to {
				continue
			}
			state := up(x.at)
			for j, p := range ports {
				isUp[j] = state[p.link]
			}
			rec.Sample(x.sent, isUp)
		}
		names, recs = append(names, u.Leaf), append(recs, rec)
	}
	return measure.Distributions(names, recs)
}

// A split has followed a fault when its mean over splitWindow is within splitWithin
// of what it came to.
const (
	splitWindow = 200 * time.Millisecond
	splitWithin = 0.2
)

// bytes returns what each link sent between two times.
func (u *UplinkSeries) bytes(from, to time.Duration) []float64 {
	out := make([]float64, len(u.Links))
	for k := 1; k < len(u.At); k++ {
		if u.At[k-1] < from || u.At[k] > to {
			continue
		}
		for j, bits := range u.Bits[k] {
			out[j] += float64(bits) / 8 * (u.At[k] - u.At[k-1]).Seconds()
		}
	}
	return out
}

// share returns the part that links, by position, have of all bytes between two
// times, or NaN if nothing was sent.
func (u *UplinkSeries) share(links []int, from, to time.Duration) float64 {
	part, all := 0.0, 0.0
	for j, n := range u.bytes(from, to) {
		all += n
		if slices.Contains(links, j) {
			part += n
		}
	}
	return part / all
}

// reaction measures how a leaf's split followed a fault at a time. It returns the share
// of traffic that the links had before and after the fault, and how long the leaf took
// to follow. until is the next fault's time, or the end of the load. ok is false if the
// leaf sent nothing before or after.
func (u *UplinkSeries) reaction(links []int, at, until time.Duration) (r measure.Reaction, ok bool) {
	before, after := u.share(links, at-time.Second, at), u.share(links, at+(until-at)/2, until)
	if math.IsNaN(before) || math.IsNaN(after) {
		return r, false
	}
	r.BeforePercent, r.AfterPercent = 100*before, 100*after
	for k := 1; k < len(u.At); k++ {
		begin := u.At[k-1]
		if begin < at || begin+splitWindow > until {
			continue
		}
		s := u.share(links, begin, begin+splitWindow+splitWindow/10)
		if s >= after*(1-splitWithin) && s <= after*(1+splitWithin) { // not NaN either
			followed := (begin - at).Seconds()
			r.FollowedS = &followed
			break
		}
	}
	return r, true
}

// reactions measures every fault on every leaf.
func (l *Lab) reactions(faults []FaultReport, series []UplinkSeries, end time.Duration) (out []measure.Reaction) {
	for i, f := range faults {
		until := end
		if i+1 < len(faults) {
			until = min(end, faults[i+1].At)
		}
		link, ok := l.Topo.Link(f.Link)
		if !ok || until <= f.At || f.At < time.Second {
			continue // there is no before, or no after
		}
		for leaf, u := range series {
			var same []int
			for _, k := range l.Topo.Links {
				if k.Leaf == leaf && k.Spine == link.Spine {
					same = append(same, k.LeafUplinkID)
				}
			}
			if r, ok := u.reaction(same, f.At, until); ok {
				r.Name = f.Action + " " + f.Link + ": " + u.Leaf
				out = append(out, r)
			}
		}
	}
	return out
}

// cpuTimes reads the machine's idle and total time, in clock ticks (proc(5)).
func cpuTimes() (idle, total uint64, err error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0, err
	}
	var t [8]uint64
	if _, err := fmt.Sscanf(string(b), "cpu %d %d %d %d %d %d %d %d", &t[0], &t[1], &t[2], &t[3], &t[4], &t[5], &t[6], &t[7]); err != nil {
		return 0, 0, fmt.Errorf("/proc/stat: %w", err)
	}
	return t[3] + t[4], sum(t[:]), nil
}
