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

// CONGAClasses are those of CONGA §5.2.1: small flows below 100 KB, large ones
// above 10 MB.
func CONGAClasses() []Class {
	return []Class{{"small", 0, 100_000}, {"medium", 100_000, 10_000_001}, {"large", 10_000_001, 0}}
}

// BDPClasses are those of ConWeave §4.1.4: flows up to a bandwidth-delay
// product of so many bytes, and above.
func BDPClasses(bdp uint64) []Class {
	return []Class{{"up_to_1bdp", 0, bdp + 1}, {"above_1bdp", bdp + 1, 0}}
}

// QuantileClasses divides sizes into at most n classes that hold equal shares
// of flows, as the size axis of ConWeave's Figures 12 and 13: quantile is that
// of the size distribution, in bytes. Classes are named by the largest size
// that they hold.
func QuantileClasses(n int, quantile func(p float64) float64) []Class {
	var classes []Class
	from := uint64(0)
	for i := 1; i < n; i++ {
		last := uint64(math.Round(quantile(float64(i) / float64(n))))
		if last < from {
			continue // many flows have one size
		}
		classes = append(classes, Class{fmt.Sprintf("up_to_%d", last), from, last + 1})
		from = last + 1
	}
	return append(classes, Class{fmt.Sprintf("from_%d", from), from, 0})
}

// FCTConfig says what to tell apart.
type FCTConfig struct {
	Classes []Class // beside all flows together, which are class "all"
	Exact   int     // flows of a class of which everything is kept; 0: 100000
	// CountAge lets a flow that has not ended count with its age, or with its
	// idle time if that is longer: a lower bound of what it would have taken.
	// Otherwise it is only counted as unfinished.
	CountAge bool
}

// FCT is the flow completion times of a run, and their slowdowns: what a flow
// took divided by what it would have taken in an idle network.
type FCT struct {
	c       FCTConfig
	classes []fctClass // the first is all flows
	wrong   uint64
	err     error // of the first one
}

type fctClass struct {
	Class
	fct        *Values // seconds
	slowdown   *Values
	idle       float64 // sum, seconds
	bytes      uint64  // of finished flows
	unfinished uint64
}

// NewFCT returns an empty record.
func NewFCT(c FCTConfig) *FCT {
	if c.Exact <= 0 {
		c.Exact = 100_000
	}
	t := &FCT{c: c}
	for _, k := range append([]Class{{Name: "all"}}, c.Classes...) {
		t.classes = append(t.classes, fctClass{Class: k, fct: NewValues(c.Exact), slowdown: NewValues(c.Exact)})
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
	s, err := Slowdown(end-start, idle)
	if err != nil {
		t.note(bytes, err)
		s = 1
	}
	for i := range t.classes {
		if c := &t.classes[i]; c.holds(bytes) {
			c.bytes += bytes
			c.add(end-start, idle, s)
		}
	}
}

func (c *fctClass) add(took, idle engine.Time, slowdown float64) {
	c.fct.Add(math.Max(0, took.Seconds()))
	c.slowdown.Add(slowdown)
	c.idle += idle.Seconds()
}

func (t *FCT) note(bytes uint64, err error) {
	t.wrong++
	if t.err == nil {
		t.err = fmt.Errorf("a flow of %d bytes: %w", bytes, err)
	}
}

// Unfinished records a flow that has not ended at now. One without an idle time
// has no age to count either.
func (t *FCT) Unfinished(bytes uint64, start, now, idle engine.Time) {
	for i := range t.classes {
		c := &t.classes[i]
		if !c.holds(bytes) {
			continue
		}
		c.unfinished++
		if t.c.CountAge && idle > 0 {
			took := max(now-start, idle)
			c.add(took, idle, float64(took)/float64(idle))
		}
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

// Merge adds all flows of a record with the same configuration, for instance of
// another seed.
func (t *FCT) Merge(o *FCT) error {
	if len(t.classes) != len(o.classes) {
		return fmt.Errorf("flow completion times in %d and %d classes cannot be merged", len(t.classes), len(o.classes))
	}
	for i := range t.classes {
		if a, b := t.classes[i].Class, o.classes[i].Class; a != b {
			return fmt.Errorf("flow completion times of classes %q and %q cannot be merged", a.Name, b.Name)
		}
	}
	for i := range t.classes {
		a, b := &t.classes[i], &o.classes[i]
		a.fct.Merge(b.fct)
		a.slowdown.Merge(b.slowdown)
		a.idle += b.idle
		a.bytes += b.bytes
		a.unfinished += b.unfinished
	}
	t.wrong += o.wrong
	if t.err == nil {
		t.err = o.err
	}
	return nil
}

// FCTSummary is a class in numbers. Quantiles of what nobody had are null.
type FCTSummary struct {
	Class      string `json:"class"`
	From       uint64 `json:"from_bytes"`
	To         uint64 `json:"to_bytes"` // 0: no limit
	Flows      uint64 `json:"flows"`    // counted in what follows
	Unfinished uint64 `json:"unfinished"`
	Bytes      uint64 `json:"bytes"` // of finished flows
	FCTMean    Number `json:"fct_mean_us"`
	FCT50      Number `json:"fct_p50_us"`
	FCT95      Number `json:"fct_p95_us"`
	FCT99      Number `json:"fct_p99_us"`
	FCT999     Number `json:"fct_p999_us"`
	FCTMax     Number `json:"fct_max_us"`
	// Normalised is the mean completion time over the mean of idle ones: how
	// CONGA normalises "to the optimal FCT that is achievable in an idle
	// network" (§5.2.1).
	Normalised Number `json:"fct_mean_to_idle"`
	SlowMean   Number `json:"slowdown_mean"`
	Slow50     Number `json:"slowdown_p50"`
	Slow95     Number `json:"slowdown_p95"`
	Slow99     Number `json:"slowdown_p99"`
	Slow999    Number `json:"slowdown_p999"`
	SlowMax    Number `json:"slowdown_max"`
	Exact      bool   `json:"exact"` // quantiles are exact, else within RelativeError
}

// Summary returns all classes, "all" first.
func (t *FCT) Summary() []FCTSummary {
	out := make([]FCTSummary, 0, len(t.classes))
	for i := range t.classes {
		c := &t.classes[i]
		us := func(seconds float64) Number { return Number(seconds * 1e6) }
		n := Number(math.NaN())
		if c.idle > 0 {
			n = Number(c.fct.Sum() / c.idle)
		}
		out = append(out, FCTSummary{
			Class: c.Name, From: c.From, To: c.To, Flows: c.fct.Count(), Unfinished: c.unfinished, Bytes: c.bytes,
			FCTMean: us(c.fct.Mean()), FCT50: us(c.fct.Quantile(0.5)), FCT95: us(c.fct.Quantile(0.95)),
			FCT99: us(c.fct.Quantile(0.99)), FCT999: us(c.fct.Quantile(0.999)), FCTMax: us(c.fct.Max()),
			Normalised: n,
			SlowMean:   Number(c.slowdown.Mean()), Slow50: Number(c.slowdown.Quantile(0.5)), Slow95: Number(c.slowdown.Quantile(0.95)),
			Slow99: Number(c.slowdown.Quantile(0.99)), Slow999: Number(c.slowdown.Quantile(0.999)), SlowMax: Number(c.slowdown.Max()),
			Exact: c.fct.Exact(),
		})
	}
	return out
}

// CDF returns the distributions of completion times, in seconds, and of
// slowdowns of a class by its name; nil if there is none.
func (t *FCT) CDF(class string, limit int) (fct, slowdown []Point) {
	for i := range t.classes {
		if c := &t.classes[i]; c.Name == class {
			return c.fct.CDF(limit), c.slowdown.CDF(limit)
		}
	}
	return nil, nil
}

// Slowdown returns how many times longer than in an idle network something
// took. Less than 1 is an error, as then the idle time is wrong, except for
// what rounding on the way explains: a nanosecond, or a part in a million.
func Slowdown(took, idle engine.Time) (float64, error) {
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
