package measure

// Class is a range of flow sizes.
type Class struct {
	Name string
	From uint64 // bytes; the smallest size
	To   uint64 // bytes; larger than the largest; 0: no limit
}

// SizeClasses returns the classes of CONGA §5.2.1: flows below small bytes, above
// large bytes, and those between.
func SizeClasses(small, large uint64) []Class {
	return []Class{{Name: "small", To: small}, {Name: "medium", From: small, To: large + 1}, {Name: "large", From: large + 1}}
}

// exactFlows is how many flows of a class are kept one by one: beyond it
// quantiles come out of buckets.
const exactFlows = 100_000

// FCT records the flow completion times of a run, and their slowdowns: what a
// flow took divided by what it would have taken in an idle network.
type FCT struct{ classes []fctClass } // the first is all flows

type fctClass struct {
	Class
	fct        *Values // seconds
	slowdown   *Values
	took, idle float64 // sums of flows whose idle time is known, seconds
	rate       float64 // sum of the flows that have ended, bits per second
	ended      int
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

// Add records a flow that took a time, in seconds. idle is its completion time
// in an idle network; a flow has no slowdown if that is 0, for unknown.
func (t *FCT) Add(bytes uint64, took, idle float64) {
	t.add(bytes, took, idle)
	if took <= 0 {
		return
	}
	for i := range t.classes {
		if c := &t.classes[i]; c.holds(bytes) {
			c.rate += float64(bytes) * 8 / took
			c.ended++
		}
	}
}

func (t *FCT) add(bytes uint64, took, idle float64) {
	took = max(took, 0)
	for i := range t.classes {
		c := &t.classes[i]
		if !c.holds(bytes) {
			continue
		}
		c.fct.Add(took)
		if idle > 0 {
			c.slowdown.Add(took / idle)
			c.took += took
			c.idle += idle
		}
	}
}

// Unfinished records a flow that had not ended when the run did. It counts with
// its age, or with its idle time if that is longer: both are lower bounds of what
// it would have taken. To leave it out would praise a scheme for the flows that it
// starves. It has no rate.
func (t *FCT) Unfinished(bytes uint64, age, idle float64) { t.add(bytes, max(age, idle), idle) }

// Summary returns the classes that have flows, "all" first.
func (t *FCT) Summary() (out []ClassFCT) {
	for i := range t.classes {
		c := &t.classes[i]
		f, s := c.fct, c.slowdown
		if f.Count() == 0 {
			continue
		}
		k := ClassFCT{
			Class: c.Name, MinBytes: c.From, MaxBytes: c.To, Flows: int(f.Count()),
			MeanS: f.Mean(), P50S: f.Quantile(0.5), P95S: f.Quantile(0.95), P99S: f.Quantile(0.99), P999S: f.Quantile(0.999),
		}
		if s.Count() > 0 {
			k.Norm, k.SlowdownMean = c.took/c.idle, s.Mean()
			k.SlowdownP50, k.SlowdownP95, k.SlowdownP99, k.SlowdownP999 = s.Quantile(0.5), s.Quantile(0.95), s.Quantile(0.99), s.Quantile(0.999)
		}
		if c.ended > 0 {
			k.RateBps = c.rate / float64(c.ended)
		}
		out = append(out, k)
	}
	return out
}
