package leaf

import (
	"errors"
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
	FlowletGap                          bool // of schemes whose flowlets are no flows
}

// AutoState is what a leaf makes of round trips.
type AutoState struct {
	_ struct{} `stat:"auto"`

	// Samples is the number of round trips of the last half minute, those that
	// schemes measure and those of HELLOs together; the others are percentiles.
	Samples uint64        `json:"samples" stat:"-"`
	P50     time.Duration `json:"p50_ns" stat:"-"`
	P99     time.Duration `json:"p99_ns" stat:"-"`
	P999    time.Duration `json:"p999_ns" stat:"-"`
	// Times are in force; all 0: those that it starts with still are.
	Times   reorder.Times `json:"times" stat:",inline"`
	Changes uint64        `json:"changes" stat:"changes" help:"Times that other values of loom_auto_time_seconds came into force."`
}

// AutoEvery is how often a [Tuner] is to be asked.
const AutoEvery = 2 * time.Second

const (
	autoWindows = 15 // what was measured in this many AutoEverys counts
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
// from the next by, and for two round trips as in the paper (16 µs of 8). HELLOs
// go ahead of data, and few packets are timed when a queue is full: all but θ_reply
// allow for that, by which also the delays of two paths may differ (CONGA §3.4).
func derive(rtt *reorder.Histogram, queue time.Duration, want Auto) (t reorder.Times) {
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
func near(t, u *reorder.Times) bool {
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

// Tuner derives a leaf's times from its round trips, all workers' together. The
// zero value has measured nothing. Not safe for concurrent use.
type Tuner struct {
	state   AutoState
	last    reorder.Histogram // all that was measured up to the last look
	windows [autoWindows]reorder.Histogram
	next    int
}

// State returns what was made of round trips so far.
func (u *Tuner) State() AutoState { return u.state }

// Tune takes note of all that was measured since the start, every AutoEvery, and of
// how long the full queue of an uplink takes at most. It reports whether other times
// follow, which are to be put in force with Retime.
func (u *Tuner) Tune(all *reorder.Histogram, queue time.Duration, want Auto) bool {
	u.windows[u.next] = since(all, &u.last)
	u.last, u.next = *all, (u.next+1)%autoWindows
	var lately reorder.Histogram
	for i := range u.windows {
		lately.Merge(&u.windows[i])
	}
	s := &u.state
	s.Samples, s.P50, s.P99, s.P999 = lately.N, lately.Quantile(0.5), lately.Quantile(0.99), lately.Quantile(0.999)
	t := derive(&lately, queue, want)
	if lately.N < autoSamples || s.Changes > 0 && near(&s.Times, &t) {
		return false
	}
	s.Times = t
	s.Changes++
	return true
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

// Retime puts derived times in force in all classes and receivers.
func (l *Leaf[T]) Retime(now mono.Time, t *reorder.Times) error {
	var errs []error
	for _, c := range l.classes {
		if p, ok := c.Policy.(balance.Tuned); ok {
			errs = append(errs, p.Retime(now, t))
		}
		if c.shadow == nil {
			continue
		}
		if p, ok := c.shadow.policy.(balance.Tuned); ok {
			errs = append(errs, p.Retime(now, t))
		}
	}
	for _, rx := range l.active {
		if r, ok := rx.r.(balance.Tuned); ok {
			errs = append(errs, r.Retime(now, t))
		}
	}
	return errors.Join(errs...)
}
