package lab

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/loomfabric/loom/internal/measure"
)

// MinSample is the shortest interval between samples: below it, asking would
// take more of a shared core than the daemons.
const MinSample = 10 * time.Millisecond

// UplinkSeries is the throughput of a leaf's uplinks in intervals. All uplinks
// of one interval were read in the same instant.
type UplinkSeries struct {
	Leaf  string          `json:"leaf"`
	Links []string        `json:"links"`
	At    []time.Duration `json:"at_ns"` // the intervals' ends, after the run's start
	Bits  [][]uint64      `json:"bits"`  // by interval and link: bits per second, overlay included
}

// sampler reads the leaves' uplinks every so often, each leaf for itself.
type sampler struct {
	lab    *Lab
	every  time.Duration
	leaves []leafSamples
	cancel context.CancelFunc
	done   sync.WaitGroup
}

type leafSamples struct {
	at    []time.Duration
	bytes [][]uint64 // by sample and uplink
	err   error
}

// startSampler begins; nil when every is 0.
func (l *Lab) startSampler(ctx context.Context, epoch int64, every time.Duration) *sampler {
	if every == 0 {
		return nil
	}
	s := &sampler{lab: l, every: max(every, MinSample), leaves: make([]leafSamples, len(l.Topo.Leaves))}
	ctx, s.cancel = context.WithCancel(ctx)
	for i := range s.leaves {
		s.done.Go(func() { s.leaves[i].take(ctx, s, i, epoch) })
	}
	return s
}

// take samples one leaf until ctx ends or the leaf does not answer.
func (k *leafSamples) take(ctx context.Context, s *sampler, leaf int, epoch int64) {
	tick := time.NewTicker(s.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		sent, err := s.lab.sentBytes(ctx, s.lab.Topo.Leaves[leaf].Name)
		if err != nil {
			if ctx.Err() == nil {
				k.err = err
			}
			return
		}
		var bytes []uint64
		for _, l := range s.lab.Topo.Links {
			if l.Leaf == leaf {
				bytes = append(bytes, sent[l.LeafPort])
			}
		}
		k.at = append(k.at, time.Duration(monotonic()-epoch))
		k.bytes = append(k.bytes, bytes)
	}
}

// stop ends sampling and reports what failed.
func (s *sampler) stop() error {
	if s == nil {
		return nil
	}
	s.cancel()
	s.done.Wait()
	for i := range s.leaves {
		if err := s.leaves[i].err; err != nil {
			return fmt.Errorf("sample the uplinks of %s: %w", s.lab.Topo.Leaves[i].Name, err)
		}
	}
	return nil
}

// series turns samples into rates.
func (s *sampler) series() (out []UplinkSeries) {
	if s == nil {
		return nil
	}
	for i := range s.leaves {
		u := UplinkSeries{Leaf: s.lab.Topo.Leaves[i].Name}
		for _, l := range s.lab.Topo.Links {
			if l.Leaf == i {
				u.Links = append(u.Links, l.Name)
			}
		}
		u.fill(&s.leaves[i])
		out = append(out, u)
	}
	return out
}

// imbalance sums up how uneven the leaves' uplinks were between two times. up
// tells which links were up at a time.
func (s *sampler) imbalance(up func(time.Duration) []bool, from, to time.Duration) []measure.Distribution {
	if s == nil {
		return nil
	}
	var names []string
	var recs []*measure.Imbalance
	for i := range s.leaves {
		var index []int
		for _, l := range s.lab.Topo.Links {
			if l.Leaf == i {
				index = append(index, l.Index)
			}
		}
		if len(index) < 2 {
			continue
		}
		rec, isUp := measure.NewImbalance(len(index), 100_000), make([]bool, len(index))
		for k, at := range s.leaves[i].at {
			if at < from || at > to {
				continue
			}
			state := up(at)
			for j, link := range index {
				isUp[j] = state[link]
			}
			rec.Sample(s.leaves[i].bytes[k], isUp)
		}
		names, recs = append(names, s.lab.Topo.Leaves[i].Name), append(recs, rec)
	}
	return measure.Distributions(names, recs)
}

func (u *UplinkSeries) fill(k *leafSamples) {
	for n := 1; n < len(k.at); n++ {
		dt := (k.at[n] - k.at[n-1]).Seconds()
		row := make([]uint64, len(u.Links))
		for j := range row {
			row[j] = uint64(float64(k.bytes[n][j]-k.bytes[n-1][j]) * 8 / dt)
		}
		u.At = append(u.At, k.at[n])
		u.Bits = append(u.Bits, row)
	}
}

// What "has followed" means.
const (
	splitWindow = 200 * time.Millisecond
	splitWithin = 0.2
)

// bytes is what links, by position, sent between two times.
func (u *UplinkSeries) bytes(links []int, from, to time.Duration) (sum float64) {
	for k := 1; k < len(u.At); k++ {
		if u.At[k-1] < from || u.At[k] > to {
			continue
		}
		for _, j := range links {
			sum += float64(u.Bits[k][j]) / 8 * (u.At[k] - u.At[k-1]).Seconds()
		}
	}
	return sum
}

// share is the part that links, by position, have of all bytes between two times;
// ok is false if nothing was sent.
func (u *UplinkSeries) share(links []int, from, to time.Duration) (share float64, ok bool) {
	all := 0.0
	for j := range u.Links {
		all += u.bytes([]int{j}, from, to)
	}
	if all == 0 {
		return 0, false
	}
	return u.bytes(links, from, to) / all, true
}

// reaction measures how a leaf's split followed a fault at a time: the share of its
// traffic to the links, in percent, and the time until the first span of
// splitWindow in which that was within splitWithin of what it came to. until is the
// next fault's time, or the end of the load. ok is false if the leaf sent nothing
// before or after.
func (u *UplinkSeries) reaction(links []int, at, until time.Duration) (r measure.Reaction, ok bool) {
	before, ok1 := u.share(links, at-time.Second, at)
	after, ok2 := u.share(links, at+(until-at)/2, until)
	if !ok1 || !ok2 {
		return r, false
	}
	r.BeforePercent, r.AfterPercent = 100*before, 100*after
	for k := 1; k < len(u.At); k++ {
		begin := u.At[k-1]
		if begin < at || begin+splitWindow > until {
			continue
		}
		if s, ok := u.share(links, begin, begin+splitWindow+splitWindow/10); ok && s >= after*(1-splitWithin) && s <= after*(1+splitWithin) {
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
		for leaf := range series {
			var same []int
			for _, k := range l.Topo.Links {
				if k.Leaf == leaf && k.Spine == link.Spine {
					same = append(same, k.LeafUplinkID)
				}
			}
			if r, ok := series[leaf].reaction(same, f.At, until); ok {
				r.Name = f.Action + " " + f.Link + ": " + series[leaf].Leaf
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
