package dataplane

import (
	"cmp"
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/loomfabric/loom/leaf"
	"github.com/loomfabric/loom/reorder"
)

// AutoState is what a leaf makes of round trips, and since when its times are in
// force.
type AutoState struct {
	leaf.AutoState
	Since time.Time `json:"since"`
}

// tuner is a node's record of round trips.
type tuner struct {
	mu sync.Mutex // guards both
	leaf.Tuner
	since time.Time
}

// Auto returns what a leaf derives from round trips; nil: nothing.
func (n *Node) Auto() *AutoState {
	if n.cfg.Auto == (leaf.Auto{}) {
		return nil
	}
	n.tuner.mu.Lock()
	defer n.tuner.mu.Unlock()
	return &AutoState{n.tuner.State(), n.tuner.since}
}

// times returns those in force.
func (u *tuner) times() reorder.Times {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.State().Times
}

// tune derives times from round trips until ctx ends.
func (n *Node) tune(ctx context.Context) {
	if n.cfg.Role != Leaf || n.cfg.Auto == (leaf.Auto{}) {
		return
	}
	tick := time.NewTicker(leaf.AutoEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if n.retime(n.roundTrips()) {
			s := n.Auto()
			n.log.Info("times derived from round trips", "samples", s.Samples, "p50", s.P50, "p99", s.P99, "p99.9", s.P999,
				"reply", s.Times.Reply, "inactive", s.Times.Inactive, "resume_extra", s.Times.ResumeExtra,
				"resume_default", s.Times.ResumeDefault, "max_hold", s.Times.MaxHold, "flowlet_gap", s.Times.FlowletGap)
		}
	}
}

// roundTrips adds up all that workers have measured since the start.
func (n *Node) roundTrips() (all reorder.Histogram) {
	for _, w := range n.workers {
		w.call(func() { w.leaf.brain.RoundTrips(&all) })
	}
	return all
}

// retime takes note of what was measured since the start, and puts other times in
// force if they follow from it. It reports whether they do.
func (n *Node) retime(all reorder.Histogram) bool {
	u := &n.tuner
	u.mu.Lock()
	change := u.Tune(&all, n.layout.Load().longestQueue(), n.cfg.Auto)
	if change {
		u.since = time.Now()
	}
	t := u.State().Times
	u.mu.Unlock()
	if !change {
		return false
	}
	var errs []error
	for _, w := range n.workers {
		w.call(func() { errs = append(errs, w.leaf.brain.Retime(w.now, &t)) })
	}
	if err := errors.Join(errs...); err != nil {
		n.log.Error("times derived from round trips do not fit: this is a bug", "error", err)
	}
	n.fast.changed()
	return true
}

// longestQueue returns how long the full queue of an uplink takes at most, of
// those that have a shaper, or else whose rate is configured.
func (l *layout) longestQueue() (longest time.Duration) {
	for i := range l.ports {
		e := &l.ports[i].Egress
		rate := cmp.Or(e.Rate, e.LinkRate)
		if l.ports[i].Kind == Uplink && rate > 0 {
			seconds := float64(e.QueueBytes) * 8 / float64(rate)
			longest = max(longest, time.Duration(min(seconds*1e9, math.MaxInt64/2)))
		}
	}
	return longest
}
