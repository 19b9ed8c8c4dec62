package measure

import (
	"fmt"
	"math"

	"github.com/loomfabric/loom/sim/engine"
)

// Class is a range of flow sizes.
type Class struct {
	Name string
	From uint64 // bytes; the smallest size
	To   uint64 // bytes; larger than the largest; 0: no limit
}

// exactFlows is how many flows of a class are kept one by one: beyond it
// quantiles come out of buckets.
const exactFlows = 100_000

// FCT records the flow completion times of a run, and their slowdowns: what a
// flow took divided by what it would have taken in an idle network.
type FCT struct {
	classes []fctClass // the first is all flows
	wrong   uint64
	err     error // of the first one
}

type fctClass struct {
	Class
	fct      *Values // seconds
	slowdown *Values
	idle     float64 // sum, seconds
}

// NewFCT returns an empty record that tells the classes apart. All flows
// together are one more class, "all".
func NewFCT(classes []Class) *FCT {
	t := &FCT{}
	for _, k := range append([]Class{{Name: "all"}}, classes...) {
		t.classes = append(t.classes, fctClass{Class: k, fct: NewValues(exactFlows), slowdown: NewValues(exactFlows)})
	}
	return t
}

func (c *fctClass) holds(bytes uint64) bool {
	return bytes >= c.From && (c.To == 0 || bytes < c.To)
}

// Add records a flow that has ended. idle is its completion time in an idle
// network. A flow that beats it has a wrong base: it is counted with a slowdown
// of 1, and [FCT.Err] reports it.
func (t *FCT) Add(bytes uint64, start, end, idle engine.Time) {
	s, err := slowdown(end-start, idle)
	if err != nil {
		s = 1
		if t.wrong++; t.err == nil {
			t.err = fmt.Errorf("a flow of %d bytes: %w", bytes, err)
		}
	}
	t.add(bytes, end-start, idle, s)
}

func (t *FCT) add(bytes uint64, took, idle engine.Time, slowdown float64) {
	for i := range t.classes {
		if c := &t.classes[i]; c.holds(bytes) {
			c.fct.Add(math.Max(0, took.Seconds()))
			c.slowdown.Add(slowdown)
			c.idle += idle.Seconds()
		}
	}
}

// Unfinished records a flow that has not ended at now. It counts with its age,
// or with its idle time if that is longer: both are lower bounds of what it
// would have taken. A flow without an idle time does not count.
func (t *FCT) Unfinished(bytes uint64, start, now, idle engine.Time) {
	if idle > 0 {
		took := max(now-start, idle)
		t.add(bytes, took, idle, float64(took)/float64(idle))
	}
}

// Err reports flows that were faster than an idle network is, which means that
// the idle time is computed wrongly.
func (t *FCT) Err() error {
	if t.err == nil {
		return nil
	}
	return fmt.Errorf("%d flows were faster than the idle network; the first: %w", t.wrong, t.err)
}

// FCTSummary is what a class comes to. Figures are NaN if no flow has them.
type FCTSummary struct {
	Class string
	From  uint64 // bytes
	To    uint64 // 0: no limit
	Flows uint64
	// Completion times, seconds.
	FCTMean, FCT50, FCT95, FCT99, FCT999 float64
	// Normalised is the mean completion time over the mean of idle ones: how
	// CONGA normalises "to the optimal FCT that is achievable in an idle
	// network" (§5.2.1).
	Normalised                                float64
	SlowMean, Slow50, Slow95, Slow99, Slow999 float64
}

// Summary returns all classes, "all" first.
func (t *FCT) Summary() []FCTSummary {
	out := make([]FCTSummary, 0, len(t.classes))
	for i := range t.classes {
		c := &t.classes[i]
		n := math.NaN()
		if c.idle > 0 {
			n = c.fct.Sum() / c.idle
		}
		f, s := c.fct, c.slowdown
		out = append(out, FCTSummary{
			Class: c.Name, From: c.From, To: c.To, Flows: f.Count(), Normalised: n,
			FCTMean: f.Mean(), FCT50: f.Quantile(0.5), FCT95: f.Quantile(0.95), FCT99: f.Quantile(0.99), FCT999: f.Quantile(0.999),
			SlowMean: s.Mean(), Slow50: s.Quantile(0.5), Slow95: s.Quantile(0.95), Slow99: s.Quantile(0.99), Slow999: s.Quantile(0.999),
		})
	}
	return out
}

// slowdown returns how many times longer than in an idle network something
// took. Less than 1 is an error, as then the idle time is wrong, except for
// what rounding on the way explains: a nanosecond, or a part in a million.
func slowdown(took, idle engine.Time) (float64, error) {
	if idle <= 0 {
		return 1, fmt.Errorf("an idle completion time of %v: it must be above 0", idle)
	}
	if took < idle {
		if idle-took > max(engine.Nanosecond, idle/1_000_000) {
			return float64(took) / float64(idle), fmt.Errorf("it took %v, but %v in an idle network: the idle time is wrong", took, idle)
		}
		return 1, nil
	}
	return float64(took) / float64(idle), nil
}
