package dataplane

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// Auto says which times a leaf derives from the round trips that it measures, in
// place of those that it is configured with. The zero value derives none.
type Auto struct {
	Reply, Inactive                     bool // of classes under ConWeave
	ResumeExtra, ResumeDefault, MaxHold bool
	FlowletGap                          bool // of classes that keep flowlets, but conga-flow
}

// Times are derived from round trips; 0: not derived.
type Times struct {
	Reply         time.Duration `json:"reply_ns"`
	Inactive      time.Duration `json:"inactive_ns"`
	ResumeExtra   time.Duration `json:"resume_extra_ns"`
	ResumeDefault time.Duration `json:"resume_default_ns"`
	MaxHold       time.Duration `json:"max_hold_ns"`
	FlowletGap    time.Duration `json:"flowlet_gap_ns"`
}

// AutoState is what a leaf makes of round trips.
type AutoState struct {
	// Of the last half minute: round trips, those of RTT_REQUESTs and of greetings
	// together, and their percentiles.
	Samples uint64        `json:"samples"`
	P50     time.Duration `json:"p50_ns"`
	P99     time.Duration `json:"p99_ns"`
	P999    time.Duration `json:"p999_ns"`
	// Times are in force since then; all 0: those that it starts with still are.
	Times   Times     `json:"times"`
	Since   time.Time `json:"since"`
	Changes uint64    `json:"changes"`
}

const (
	autoEvery   = 2 * time.Second
	autoWindows = 15 // what counts is what was measured in so many times autoEvery
	autoSamples = 32 // fewer round trips than that say nothing about percentiles

	// Derived times stay within these. The lower ones are about the paper's
	// (ConWeave Table 3, Appendix A); timestamps set the upper ones.
	minReply, maxReply                 = 8 * time.Microsecond, overlay.MaxInactive / 2
	minInactive                        = 300 * time.Microsecond
	minResumeExtra, maxResumeExtra     = 16 * time.Microsecond, 25 * time.Millisecond
	minResumeDefault, maxResumeDefault = 200 * time.Microsecond, 30 * time.Millisecond
	minFlowletGap, maxFlowletGap       = 100 * time.Microsecond, time.Second
)

// derive chooses times by round trips between leaves, the longest full queue of
// an uplink, and what is wanted.
//
// θ_reply has to tell a congested path from others: twice the median, and above
// what three of four take. A bottleneck that all paths share raises it, and then
// there is nowhere to go. θ_inactive and θ_resume_default are to be longer than
// nearly anything is under way. θ_resume_extra allows for what one delay differs
// from the next by, and for two round trips as in the paper (16 µs of 8). Greetings
// go ahead of data, and few packets are timed when a queue is full: all but θ_reply
// allow for that, by which also the delays of two paths may differ (CONGA §3.4).
func derive(rtt *reorder.Histogram, queue time.Duration, want Auto) (t Times) {
	p50, p75, p99, p999 := rtt.Quantile(0.5), rtt.Quantile(0.75), rtt.Quantile(0.99), rtt.Quantile(0.999)
	set := func(to *time.Duration, want bool, d, least, most time.Duration) {
		if want {
			*to = min(max(d, least), most)
		}
	}
	reply := min(max(2*p50, p75, minReply), maxReply)
	extra, def := max(2*(p99-p50), 2*p50, queue), max(2*p999, p999+queue)
	set(&t.Reply, want.Reply, reply, minReply, maxReply)
	set(&t.Inactive, want.Inactive, max(2*p999, 4*reply, p99+queue), minInactive, overlay.MaxInactive)
	set(&t.ResumeExtra, want.ResumeExtra, extra, minResumeExtra, maxResumeExtra)
	set(&t.ResumeDefault, want.ResumeDefault, def, minResumeDefault, maxResumeDefault)
	set(&t.MaxHold, want.MaxHold, 2*(extra+def), 2*(minResumeExtra+minResumeDefault), 2*(maxResumeExtra+maxResumeDefault))
	set(&t.FlowletGap, want.FlowletGap, p99+queue, minFlowletGap, maxFlowletGap)
	return t
}

// near reports whether a change from t to u is not worth making.
func (t *Times) near(u *Times) bool {
	for _, x := range [][2]time.Duration{
		{t.Reply, u.Reply}, {t.Inactive, u.Inactive}, {t.ResumeExtra, u.ResumeExtra},
		{t.ResumeDefault, u.ResumeDefault}, {t.FlowletGap, u.FlowletGap},
	} {
		if d := x[0] - x[1]; d > x[0]/4 || -d > x[0]/4 {
			return false
		}
	}
	return true
}

// tuner is a node's record of round trips.
type tuner struct {
	mu    sync.Mutex // guards state
	state AutoState

	last    reorder.Histogram // all that was measured up to the last look
	windows [autoWindows]reorder.Histogram
	next    int
}

// Auto returns what a leaf derives from round trips; nil: nothing.
func (n *Node) Auto() *AutoState {
	if n.cfg.Auto == (Auto{}) {
		return nil
	}
	n.tuner.mu.Lock()
	defer n.tuner.mu.Unlock()
	s := n.tuner.state
	return &s
}

// times returns those in force.
func (u *tuner) times() Times {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.state.Times
}

// tune derives times from round trips until ctx ends.
func (n *Node) tune(ctx context.Context) {
	if n.cfg.Role != Leaf || n.cfg.Auto == (Auto{}) {
		return
	}
	tick := time.NewTicker(autoEvery)
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
		w.call(func() {
			all.Merge(&w.stats.RoundTrip)
			for i := range w.retired {
				all.Merge(&w.retired[i].ConWeave.ReplyTime)
			}
			for _, c := range w.classes {
				if c.signal != nil {
					s := c.policy.Stats()
					all.Merge(&s.ConWeave.ReplyTime)
				}
			}
		})
	}
	return all
}

// retime takes note of what was measured since the last call, and puts other
// times in force if they follow from it. It reports whether they do.
func (n *Node) retime(all reorder.Histogram) bool {
	u := &n.tuner
	u.windows[u.next] = since(&all, &u.last)
	u.last, u.next = all, (u.next+1)%autoWindows
	var lately reorder.Histogram
	for i := range u.windows {
		lately.Merge(&u.windows[i])
	}
	u.mu.Lock()
	s := &u.state
	s.Samples, s.P50, s.P99, s.P999 = lately.N, lately.Quantile(0.5), lately.Quantile(0.99), lately.Quantile(0.999)
	t := derive(&lately, n.cfg.longestQueue(), n.cfg.Auto)
	change := lately.N >= autoSamples && (s.Changes == 0 || !s.Times.near(&t))
	if change {
		s.Times, s.Since = t, time.Now()
		s.Changes++
	}
	u.mu.Unlock()
	var errs []error
	if change {
		for _, w := range n.workers {
			w.call(func() { errs = append(errs, w.retime(&t)) })
		}
	}
	if err := errors.Join(errs...); err != nil {
		n.log.Error("times derived from round trips do not fit: this is a bug", "error", err)
	}
	return change
}

// since returns what a histogram has counted after it was as before.
func since(now, before *reorder.Histogram) (h reorder.Histogram) {
	for i := range now.Counts {
		h.Counts[i] = now.Counts[i] - before.Counts[i]
		if h.Counts[i] > 0 {
			h.Max = min(reorder.Upper(i), now.Max)
		}
	}
	h.N, h.Sum = now.N-before.N, now.Sum-before.Sum
	return h
}

// longestQueue returns how long the full queue of an uplink takes at most, of
// those that have a shaper, or else whose rate is configured.
func (c *Config) longestQueue() (longest time.Duration) {
	for i := range c.Ports {
		e := &c.Ports[i].Egress
		rate := e.Rate
		if rate == 0 {
			rate = e.LinkRate
		}
		if c.Ports[i].Kind == Uplink && rate > 0 {
			seconds := float64(e.QueueBytes) * 8 / float64(rate)
			longest = max(longest, time.Duration(min(seconds*1e9, math.MaxInt64/2)))
		}
	}
	return longest
}

// retime puts derived times in force, and makes them fit those that were not
// derived.
func (w *worker) retime(t *Times) error {
	or := func(derived, own time.Duration) time.Duration {
		if derived == 0 {
			return own
		}
		return derived
	}
	var errs []error
	for _, c := range w.classes {
		if p, ok := c.policy.(balance.Retimer); ok && (t.Reply != 0 || t.Inactive != 0) {
			own := p.Params()
			reply, inactive := or(t.Reply, own.Reply), or(t.Inactive, own.Inactive)
			if t.Inactive == 0 {
				reply = min(reply, inactive)
			}
			errs = append(errs, p.Retime(reply, max(inactive, reply)))
		}
		if p, ok := c.policy.(balance.FlowletPolicy); ok && t.FlowletGap != 0 && p.Name() != "conga-flow" {
			p.Flowlets().SetGap(w.now, t.FlowletGap)
		}
	}
	if t.ResumeExtra != 0 || t.ResumeDefault != 0 || t.MaxHold != 0 {
		own := w.order.side.Params()
		hold := or(t.MaxHold, own.MaxHold)
		extra, def := or(t.ResumeExtra, own.ResumeExtra), or(t.ResumeDefault, own.ResumeDefault)
		if t.MaxHold == 0 {
			extra, def = min(extra, hold), min(def, hold)
		}
		errs = append(errs, w.order.side.Retime(extra, def, max(hold, extra, def)))
		w.order.grace = mono.Time(extra)
	}
	return errors.Join(errs...)
}
