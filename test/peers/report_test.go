package peers

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// quantiles are those of the time under way.
var quantiles = [...]float64{0.5, 0.99, 0.999}

// fastShare is the share of frames that XDP has to have forwarded for a measurement to be one of
// the fast path.
const fastShare = 0.99

// measured is one measurement of one device.
type measured struct {
	pps     float64 // frames that reached the sink as they should, per second
	cpu     float64 // ns of CPU time a frame
	own     float64 // those of them that the device's own threads had
	fast    float64 // share of them that XDP has forwarded; only of Loom's fast path
	why     string  // why it has not forwarded the others
	latency [len(quantiles)]time.Duration
	offered float64 // load under which latency was measured, as a share of pps
	lost    float64 // share of frames that were lost then
}

// cell is what is measured once a round.
type cell struct {
	placement, job string
	size           int
	device         string
}

// results are by cell and round.
type results struct {
	of map[cell]map[int]measured
	// least is the smallest share of a core that a thread had which could have done with all of
	// it: the generator, or a device that was given more than it can do. The rest is not
	// accounted for: others had it, and now and then a softirq of the device ran on top of them.
	least float64
}

func newResults() *results { return &results{of: map[cell]map[int]measured{}, least: 1} }

func (r *results) add(c cell, round int, m measured) {
	if r.of[c] == nil {
		r.of[c] = map[int]measured{}
	}
	r.of[c][round] = m
}

// got notes which share of a core was accounted for that should have been busy all the time.
func (r *results) got(share float64) { r.least = min(r.least, share) }

// slow returns why rounds of a cell were not by the fast path although they are called so; "":
// all were.
func (r *results) slow(c cell) string {
	if !strings.HasPrefix(c.device, loomFast) {
		return ""
	}
	for _, m := range r.of[c] {
		if m.fast < fastShare {
			return fmt.Sprintf("XDP forwarded %.1f %%: %s", 100*m.fast, first(m.why, "no reason given"))
		}
	}
	return ""
}

// values returns a number of each round.
func (r *results) values(c cell, of func(m *measured) float64) (v []float64) {
	for _, m := range r.of[c] {
		v = append(v, of(&m))
	}
	return v
}

// ratios returns a number of one device by that of another in the same round.
func (r *results) ratios(c, by cell, of func(m *measured) float64) (v []float64) {
	for round, m := range r.of[c] {
		if other, ok := r.of[by][round]; ok {
			v = append(v, of(&m)/of(&other))
		}
	}
	return v
}

func cpuTimeOf(m *measured) float64 { return m.cpu }
func rateOf(m *measured) float64    { return m.pps }

// goal is a number that the fast path is to reach on one core.
type goal struct {
	job  string
	rate bool // of the rate; else of CPU time
	by   string
	wish float64
	most bool // it is to be at most that
}

// goals are in the order in which they are printed.
var goals = []goal{
	{encapsulation, false, openVSwitch, 5, false},
	{encapsulation, false, theKernel, 6, false},
	{encapsulation, false, loomWorkers, 4.5, false},
	{encapsulation, false, theFloor, 1.6, true},
	{encapsulation, true, openVSwitch, 3, false},
	{encapsulation, true, theKernel, 4, false},
	{decapsulation, false, openVSwitch, 5.5, false},
	{decapsulation, false, theKernel, 5.5, false},
	{decapsulation, false, loomWorkers, 5, false},
	{spine, false, theKernel, 3.5, false},
	{spine, false, loomWorkers, 5.5, false},
}

func (g *goal) String() string {
	switch {
	case g.rate:
		return "rate of the fast path ÷ " + g.by
	case g.most:
		return "CPU time of the fast path ÷ " + g.by
	}
	return "CPU time of " + g.by + " ÷ the fast path"
}

// reached says whether the median of ratios, NaN if there are none, is as wanted.
func (g *goal) reached(v float64) string {
	sign, ok := "≥", v >= g.wish
	if g.most {
		sign, ok = "≤", v <= g.wish
	}
	verdict := "NOT REACHED"
	switch {
	case ok:
		verdict = "reached"
	case math.IsNaN(v):
		verdict = "NOT MEASURED"
	}
	return fmt.Sprintf("%s %g\t%s\t", sign, g.wish, verdict)
}

// ratiosOf returns the ratio that a goal is about, by round.
func (r *results) ratiosOf(g *goal, placement string, size int) []float64 {
	us, them := cell{placement, g.job, size, loomFast}, cell{placement, g.job, size, g.by}
	switch {
	case g.rate:
		return r.ratios(us, them, rateOf)
	case g.most:
		return r.ratios(us, them, cpuTimeOf)
	}
	return r.ratios(them, us, cpuTimeOf)
}

// report prints all that was measured, and how the fast path compares.
func (r *results) report(w io.Writer) {
	for _, p := range placements {
		fmt.Fprintf(w, "\n%s\n", p.name)
		r.reportDevices(w, &p)
		fmt.Fprintln(w)
		r.reportGoals(w, &p)
	}
	fmt.Fprintf(w, "\nµs is how long frames are under way at about half of the device's rate; load is what it was given then, and lost what of that did not arrive.\n")
	fmt.Fprintf(w, "Ratios are medians of those within rounds (least–greatest). Wanted numbers are of one core, and of a receiver without socket buffers.\n")
	fmt.Fprintf(w, "At least %.0f %% of a busy core are accounted for in every measurement.\n", 100*r.least)
	if r.least < 0.9 {
		fmt.Fprintln(w, "Other work had the rest: repeat on an idle machine, or compare CPU time only.")
	}
}

func (r *results) reportDevices(out io.Writer, p *placement) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	defer w.Flush()
	fmt.Fprint(w, "job\tframe\tdevice\tns CPU\tof threads\tMpps\t")
	if p.timed {
		fmt.Fprint(w, "p50 µs\tp99 µs\tp99.9 µs\tload\tlost\t")
	}
	fmt.Fprintln(w)
	for i := range jobs {
		for _, size := range frameSizes {
			for _, dev := range jobs[i].devices {
				c := cell{p.name, jobs[i].name, size, dev.name}
				if len(r.of[c]) == 0 {
					continue
				}
				fmt.Fprintf(w, "%s\t%d\t%s\t", c.job, size, c.device)
				if why := r.slow(c); why != "" {
					fmt.Fprintf(w, "not fast: %s\n", why)
					continue
				}
				own := func(m *measured) float64 { return m.own }
				fmt.Fprintf(w, "%.0f\t%.0f\t%.3f\t", median(r.values(c, cpuTimeOf)), median(r.values(c, own)), median(r.values(c, rateOf))/1e6)
				if p.timed {
					r.reportLatency(w, c)
				}
				fmt.Fprintln(w)
			}
		}
	}
}

func (r *results) reportLatency(w io.Writer, c cell) {
	for i := range quantiles {
		fmt.Fprintf(w, "%.1f\t", median(r.values(c, func(m *measured) float64 { return m.latency[i].Seconds() * 1e6 })))
	}
	fmt.Fprintf(w, "%.0f %%\t", 100*median(r.values(c, func(m *measured) float64 { return m.offered })))
	fmt.Fprintf(w, "%.2f %%\t", 100*median(r.values(c, func(m *measured) float64 { return m.lost })))
}

func (r *results) reportGoals(out io.Writer, p *placement) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	defer w.Flush()
	main := p.name == oneCore
	fmt.Fprint(w, "job\tframe\tratio\tmeasured\t")
	if main {
		fmt.Fprint(w, "wanted\t\t")
	}
	fmt.Fprintln(w)
	for i := range goals {
		g := &goals[i]
		for _, size := range frameSizes {
			what, v := "not measured", r.ratiosOf(g, p.name, size)
			slices.Sort(v)
			if r.slow(cell{p.name, g.job, size, loomFast}) != "" {
				what, v = "not fast", nil
			}
			if len(v) > 0 {
				what = fmt.Sprintf("%.2f (%.2f–%.2f)", median(v), v[0], v[len(v)-1])
			} else if !main {
				continue
			}
			fmt.Fprintf(w, "%s\t%d\t%s\t%s\t", g.job, size, g, what)
			if main {
				fmt.Fprint(w, g.reached(median(v)))
			}
			fmt.Fprintln(w)
		}
	}
}
