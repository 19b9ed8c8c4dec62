package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/loomfabric/loom/fabric"
)

// CompareOptions say what to run one fabric file under.
type CompareOptions struct {
	Schemes []string
	// Seeds is how often each is repeated. Seed 1, 2, ... replaces that of all
	// workloads.
	Seeds int
	// Loads replace the load of all request workloads; none: the file's.
	Loads  []float64
	Sample time.Duration // as in [RunOptions]
	// MinIdle is the share of the cores that must have been idle under the load. A
	// run with less measured the machine, not the fabric: it is made again, up to
	// three times in all, and does not count if that does not help.
	MinIdle  float64
	Progress *os.File
}

// CompareRun is one run of a comparison.
type CompareRun struct {
	Scheme string
	Load   float64 // 0: the file's
	Seed   uint64
	Report *Report // nil if the run ended early
	Err    error   // why the run does not count; nil if it does
	// Again says that the run was made again because the machine was busy: Err does
	// not fail the comparison.
	Again  bool
	Values []Value
}

// Value is one number that a run found out.
type Value struct {
	Name   string
	Number float64
}

// Comparison is a fabric file under several schemes.
type Comparison struct {
	Options CompareOptions
	Runs    []CompareRun // in the order they were made
}

// Compare runs the fabric that open returns, a fresh one each time, under every
// scheme, load and seed, one after the other. Schemes alternate within a seed, so
// that what else the machine does falls on all of them. A run that fails does not
// end the comparison; the end of ctx does: the error is then ctx's, and what was
// run until then is in the result.
func Compare(ctx context.Context, open func() (*Lab, error), opt CompareOptions) (*Comparison, error) {
	loads := opt.Loads
	if len(loads) == 0 {
		loads = []float64{0}
	}
	c := &Comparison{Options: opt}
	n, total := 0, opt.Seeds*len(loads)*len(opt.Schemes)
	for seed := 1; seed <= opt.Seeds; seed++ {
		for _, load := range loads {
			for _, scheme := range opt.Schemes {
				n++
				if opt.Progress != nil {
					fmt.Fprintf(opt.Progress, "run %d of %d: %s%s, seed %d\n", n, total, scheme, atLoad(load), seed)
				}
				if err := c.run(ctx, open, CompareRun{Scheme: scheme, Load: load, Seed: uint64(seed)}); err != nil {
					return c, err
				}
			}
		}
	}
	return c, nil
}

// runs is how often a run is made at most until the machine was idle enough.
const runs = 3

// run makes one run, again if the machine was busy, and adds all to c. What goes
// wrong with a run alone does not end the comparison; the error returned does.
func (c *Comparison) run(ctx context.Context, open func() (*Lab, error), r CompareRun) error {
	for left := runs - 1; ; left-- {
		l, err := open()
		if err == nil {
			err = l.vary(r.Load, r.Seed)
		}
		if err != nil {
			return err
		}
		r.Report, r.Err = l.Run(ctx, RunOptions{Scheme: r.Scheme, Sample: c.Options.Sample, Progress: c.Options.Progress})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		busy := false
		if r.Err == nil {
			r.Values, r.Err = r.Report.values(), r.Report.Failure()
			busy = r.Report.CPUIdle < c.Options.MinIdle
		}
		if busy {
			r.Err = errors.Join(r.Err, fmt.Errorf("%.0f %% of the CPU was idle, less than %.0f %%", 100*r.Report.CPUIdle, 100*c.Options.MinIdle))
		}
		r.Again = busy && left > 0
		c.Runs = append(c.Runs, r)
		if !r.Again {
			return nil
		}
		if p := c.Options.Progress; p != nil {
			fmt.Fprintf(p, "again: %v\n", r.Err)
		}
	}
}

func atLoad(load float64) string {
	if load == 0 {
		return ""
	}
	return fmt.Sprintf(" at %g %% load", load)
}

// vary sets what differs from run to run.
func (l *Lab) vary(load float64, seed uint64) error {
	if l.isUp() {
		return l.named(errors.New("it is up, and a comparison needs a fresh fabric for each run: take it down (`loomlab down`)"))
	}
	requests := 0
	for i := range l.File.Workloads {
		w := &l.File.Workloads[i]
		w.Seed = seed
		if w.Type == fabric.Request || w.Type == fabric.RoCE {
			requests++
			if load > 0 {
				w.Load = load
			}
		}
	}
	if load > 0 && requests == 0 {
		return l.named(errors.New("it has no workload of type request or roce that a load could be for"))
	}
	return nil
}

// values are the numbers of a report that are worth comparing.
func (r *Report) values() []Value {
	var out []Value
	add := func(format string, number float64, args ...any) {
		out = append(out, Value{fmt.Sprintf(format, args...), number})
	}
	var total float64
	for _, w := range r.Workloads {
		total += w.GoodputBits
		if len(r.Workloads) > 1 {
			add("%s goodput Mbit/s", w.GoodputBits/1e6, w.Name)
		}
		for _, class := range []struct {
			name string
			f    *FCTStats
		}{{"FCT", w.FCT}, {"FCT small", w.FCTSmall}, {"FCT large", w.FCTLarge}} {
			if f := class.f; f != nil {
				add("%s %s mean ms", float64(f.Mean)/1e6, w.Name, class.name)
			}
		}
		if f := w.FCT; f != nil {
			add("%s FCT p99 ms", float64(f.P99)/1e6, w.Name)
			add("%s FCT p99.9 ms", float64(f.P999)/1e6, w.Name)
			if f.NormMean > 0 {
				add("%s FCT mean ×idle", f.NormMean, w.Name)
			}
			add("%s flows", float64(f.Flows), w.Name)
		}
		if c := w.RoCE; c != nil {
			add("%s reordered %%", share(c.Reordered, c.Packets), w.Name)
			add("%s distance mean", c.MeanDistance, w.Name)
			add("%s distance max", float64(c.MaxDistance), w.Name)
			add("%s out of sequence %%", share(c.OutOfSequence, c.Packets), w.Name)
			add("%s retransmitted %%", share(c.Retransmitted, c.Sent), w.Name)
		}
		if n := w.Unfinished + w.Failed + w.Refused; w.FCT != nil || n > 0 {
			add("%s not finished", float64(n), w.Name)
		}
	}
	if len(r.Workloads) > 0 {
		out = slices.Insert(out, 0, Value{"goodput Mbit/s", total / 1e6})
	}
	for _, u := range r.Uplinks {
		if u.Imbalance.Intervals > 0 {
			add("%s imbalance mean", u.Imbalance.Mean, u.Leaf)
			add("%s imbalance p50", u.Imbalance.P50, u.Leaf)
			add("%s imbalance p90", u.Imbalance.P90, u.Leaf)
		}
	}
	for _, s := range r.shares() {
		add("%s", s.Number, s.Name)
	}
	for _, f := range r.Faults {
		for _, x := range f.Reactions {
			add("%s %s: %s share before %%", 100*x.Before, f.Action, f.Link, x.Leaf)
			add("%s %s: %s share after %%", 100*x.After, f.Action, f.Link, x.Leaf)
			followed := float64(x.Followed) / 1e6
			if x.Followed < 0 {
				followed = math.NaN()
			}
			add("%s %s: %s followed ms", followed, f.Action, f.Link, x.Leaf)
		}
	}
	add("CPU idle %%", 100*r.CPUIdle)
	return out
}

// shares are the parts in percent of the leaves' traffic on each of their
// uplinks, from one workload's start to the next one's. Leaves that send little
// else than acknowledgements are left out.
func (r *Report) shares() (out []Value) {
	starts := []time.Duration{}
	for _, w := range r.Workloads {
		starts = append(starts, w.Start)
	}
	slices.Sort(starts)
	starts = slices.Compact(starts)
	for _, u := range r.Uplinks {
		for i, from := range starts {
			to := r.LoadEnd
			if i+1 < len(starts) {
				to = starts[i+1]
			}
			if u.rate(from, to) < 1e6*float64(len(u.Links)) {
				continue
			}
			for j, link := range u.Links {
				share, _ := u.share([]int{j}, from, to)
				out = append(out, Value{fmt.Sprintf("%s share %% from %v", link, from), 100 * share})
			}
		}
	}
	return out
}

// value finds a run's number; NaN if it has none.
func (r *CompareRun) value(name string) float64 {
	for _, v := range r.Values {
		if v.Name == name {
			return v.Number
		}
	}
	return math.NaN()
}

// Spread is what the runs of one cell found: mean, least and greatest. N is how
// many there were.
type Spread struct {
	N              int
	Mean, Min, Max float64
}

// Cell sums up one number under one scheme and load, over the seeds of runs that
// did not fail.
func (c *Comparison) Cell(name, scheme string, load float64) Spread {
	s := Spread{Min: math.Inf(1), Max: math.Inf(-1)}
	for i := range c.Runs {
		r := &c.Runs[i]
		if r.Scheme != scheme || r.Load != load || r.Err != nil {
			continue
		}
		if v := r.value(name); !math.IsNaN(v) {
			s.N++
			s.Mean += v
			s.Min, s.Max = min(s.Min, v), max(s.Max, v)
		}
	}
	if s.N == 0 {
		return Spread{}
	}
	s.Mean /= float64(s.N)
	return s
}

// Names lists the numbers that runs found, in the order of the first run that has
// them.
func (c *Comparison) Names() (names []string) {
	for _, r := range c.Runs {
		for _, v := range r.Values {
			if !slices.Contains(names, v.Name) {
				names = append(names, v.Name)
			}
		}
	}
	return names
}

// loads lists the loads that were run.
func (c *Comparison) loads() (loads []float64) {
	for _, r := range c.Runs {
		if !slices.Contains(loads, r.Load) {
			loads = append(loads, r.Load)
		}
	}
	return loads
}

// Failures says which runs do not count and why; nil if all do.
func (c *Comparison) Failures() error {
	var errs []error
	for _, r := range c.Runs {
		if r.Err != nil && !r.Again {
			errs = append(errs, fmt.Errorf("%s%s, seed %d: %w", r.Scheme, atLoad(r.Load), r.Seed, r.Err))
		}
	}
	return errors.Join(errs...)
}

// Table writes mean, spread and the ratio to the first scheme.
func (c *Comparison) Table(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	schemes := c.Options.Schemes
	fmt.Fprintf(w, "mean (min–max) of %d seeds, ×%s\n", c.Options.Seeds, schemes[0])
	for _, load := range c.loads() {
		fmt.Fprint(w, "\n", strings.TrimPrefix(atLoad(load), " at "), "\t", strings.Join(schemes, "\t"), "\n")
		for _, name := range c.Names() {
			fmt.Fprint(w, name)
			first := c.Cell(name, schemes[0], load)
			for i, scheme := range schemes {
				s := c.Cell(name, scheme, load)
				switch {
				case s.N == 0:
					fmt.Fprint(w, "\t-")
					continue
				case s.N < c.Options.Seeds:
					fmt.Fprintf(w, "\t%s (%s–%s; %d runs)", short(s.Mean), short(s.Min), short(s.Max), s.N)
				default:
					fmt.Fprintf(w, "\t%s (%s–%s)", short(s.Mean), short(s.Min), short(s.Max))
				}
				if i > 0 && first.Mean != 0 {
					fmt.Fprintf(w, " ×%.2f", s.Mean/first.Mean)
				}
			}
			fmt.Fprintln(w)
		}
	}
	again := 0
	for _, r := range c.Runs {
		if r.Again {
			again++
		}
	}
	if again > 0 {
		fmt.Fprintf(w, "\n%d runs do not count and were made again: less than %.0f %% of the CPU was idle\n", again, 100*c.Options.MinIdle)
	}
	if err := c.Failures(); err != nil {
		fmt.Fprintf(w, "\nFAILED, and not counted:\n%v\n", err)
	}
	return w.Flush()
}

// short writes a number with three digits, or all before the point.
func short(v float64) string {
	if a := math.Abs(v); a >= 100 || a == 0 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	} else if a >= 10 {
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}
