package report

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/loomfabric/loom/internal/experiment"
)

// section is an experiment at one size: what the templates of the page, of the
// document and of the terminal's text ask for.
type section struct{ *experiment.Results }

func sections(all []*experiment.Results) (out []section) {
	for _, r := range all {
		out = append(out, section{r})
	}
	return out
}

// Exp is the experiment.
func (s section) Exp() *experiment.Experiment { return s.Size.Experiment }

// ID names the section in links.
func (s section) ID() string { return s.Size.ID(s.On) }

// Where is the size of results and, if it is the lab, where they were made.
func (s section) Where() string {
	if s.On == experiment.OnSim {
		return s.Size.Name
	}
	return s.Size.Name + ", " + s.On
}

// Aside names the size where that is not the usual one of a page of results.
func (s section) Aside() string {
	if s.Size.Name == "paper" {
		return ""
	}
	return s.Where()
}

// Name is the figure's or, for want of one, the experiment's.
func (s section) Name() string { return cmp.Or(s.Exp().Paper, s.Exp().Name) }

// Heading is the experiment's; GitHub makes its anchor of it.
func (s section) Heading() string { return s.Name() + ": " + s.Exp().Title }

// Anchor is what GitHub makes of the heading: lower case, blanks to hyphens, and nothing
// but letters, digits, hyphens and underscores.
func (s section) Anchor() string {
	return strings.Map(func(c rune) rune {
		switch {
		case c == ' ':
			return '-'
		case c == '-' || c == '_' || unicode.IsLetter(c) || unicode.IsDigit(c):
			return c
		}
		return -1
	}, strings.ToLower(s.Heading()))
}

// Command is what makes the results.
func (s section) Command() string {
	if c := s.Exp().Command; c != "" {
		return c
	}
	text := fmt.Sprintf("loomsim run %s --size %s", s.Exp().File, s.Size.Name)
	if s.On != experiment.OnSim {
		text += " --on " + s.On
	}
	return text
}

// Notes are the experiment's and the size's.
func (s section) Notes() []string {
	return slices.DeleteFunc([]string{s.Exp().Note, s.Size.Note}, func(n string) bool { return n == "" })
}

// Runs says what the results took: how many runs and, on one machine, how long.
func (s section) Runs() string {
	wall, hops := 0.0, uint64(0)
	for _, rec := range s.Records {
		if rec != nil {
			wall, hops = wall+rec.Result.Machine.WallS, hops+rec.Result.PacketHops
		}
	}
	text := fmt.Sprintf("%d runs", s.Stored())
	switch took := time.Duration(wall * float64(time.Second)).Round(time.Second / 10); {
	case wall > 0 && hops > 0:
		text += fmt.Sprintf(" in %v of one core, %s M packet-hops/s", took, short(float64(hops)/wall/1e6))
	case wall > 0:
		text += fmt.Sprintf(" in %v", took)
	}
	return text + s.Maker()
}

// Maker names the program that made the results, if it was one.
func (s section) Maker() string {
	if len(s.Versions) != 1 {
		return ""
	}
	return ", loom" + s.On + " " + s.Versions[0]
}

// Legend says what the cells of tables are.
func (s section) Legend() string {
	text := fmt.Sprintf("%s, size %s: mean", s.Exp().Name, s.Where())
	if n := len(s.Size.Seeds); n > 1 {
		text = fmt.Sprintf("%s ±95 %% interval (least–greatest) of %d seeds", text, n)
	}
	if len(s.Size.Schemes) > 1 {
		text += ", ×ratio to " + s.Exp().Reference + " seed by seed"
	}
	return text
}

// outcome is an expectation and what became of it.
type outcome struct{ experiment.Outcome }

// Outcomes are those of the experiment's expectations.
func (s section) Outcomes() (out []outcome) {
	for _, o := range s.Results.Outcomes() {
		out = append(out, outcome{o})
	}
	return out
}

// Verdicts counts the outcomes by verdict: "2 margins reached, 1 not reproduced".
func (s section) Verdicts() string {
	var counts [experiment.MarginReached + 1]int
	for _, o := range s.Outcomes() {
		counts[o.Outcome.Verdict]++
	}
	var parts []string
	for i, words := range []string{"cannot be told", "not reproduced", "direction only", "reach the paper's margin"} {
		if counts[i] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[i], words))
		}
	}
	slices.Reverse(parts)
	return strings.Join(parts, ", ")
}

// Good and Bad say how the verdict is to be shown.
func (o outcome) Good() bool { return o.Outcome.Verdict == experiment.MarginReached }

// Bad reports whether the verdict is that it is not reproduced, or cannot be told.
func (o outcome) Bad() bool { return o.Outcome.Verdict <= experiment.NotReproduced }

// Verdict is one of three, or that it cannot be told, and what to know of it.
func (o outcome) Verdict() string {
	text := o.Outcome.Verdict.String()
	switch {
	case o.Contradicted:
		text += ": contradicted"
	case o.Outcome.Verdict == experiment.NotReproduced && !o.ByMean:
		text += ": the interval crosses the bound"
	case o.Outcome.Verdict == experiment.Untold && o.Spread.N > 0:
		text += fmt.Sprintf(": %d of at least %d seeds", o.Spread.N, experiment.PublishedSeeds)
	}
	if o.ByMean && o.Spread.N > 0 {
		text += " (by the mean)"
	}
	return text
}

// scale is the unit in which the outcome is shown.
func (o outcome) scale() scale {
	if o.Expectation.Unit() == "" {
		return scale{1, ""}
	}
	return scaleFor(o.Expectation.Metric, o.Spread.Mean)
}

// Margin is what the paper's number makes of the quantity, and for want of one the
// direction that it claims.
func (o outcome) Margin() string {
	sc := o.scale()
	if b := o.Expectation.Paper.Of(o.Cell); b != nil {
		return strings.TrimSpace(pretty(b, sc.factor) + " " + sc.unit)
	}
	b := o.Expectation.Ratio
	if b == nil {
		b = o.Expectation.Value
	}
	return strings.TrimSpace(pretty(b, sc.factor)+" "+sc.unit) + ", no number"
}

// boundRE finds the numbers of bounds.
var boundRE = regexp.MustCompile(`[0-9][0-9.]*([eE][+-]?[0-9]+)?`)

// pretty writes bounds as a text does, scaled.
func pretty(b *experiment.Bounds, factor float64) string {
	text := strings.NewReplacer("<=", "≤", ">=", "≥", " to ", "–").Replace(b.String())
	return boundRE.ReplaceAllStringFunc(text, func(number string) string {
		v, err := strconv.ParseFloat(number, 64)
		if err != nil || factor == 1 {
			return number
		}
		return strconv.FormatFloat(v*factor, 'g', 4, 64)
	})
}

// Found is what the value came to.
func (o outcome) Found() string {
	if o.Spread.N == 0 {
		return "no run has it"
	}
	sc := o.scale()
	return strings.TrimSpace(spreadText(o.Spread, sc) + " " + sc.unit)
}

// String is all of it in one line.
func (o outcome) String() string {
	text := fmt.Sprintf("%s: %s: %s; the paper: %s", o.Verdict(), o.Claim(), o.Found(), o.Margin())
	if d := o.Differs(); d != "" {
		text += ". " + d
	}
	return text
}

// Differs says why ours is otherwise, unless it is not.
func (o outcome) Differs() string {
	if o.Good() {
		return ""
	}
	return o.Expectation.Differs
}

// Missing counts the runs that are not stored.
func (s section) Missing() int { return len(s.Records) - s.Stored() }

// Warnings are what a reader of the numbers has to know besides: what is missing,
// and runs that did not end as they should.
func (s section) Warnings() (out []string) {
	add := func(n int, format string, args ...any) {
		if n > 0 {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	add(s.Missing(), "%d of %d runs are not stored", s.Missing(), len(s.Records))
	add(s.Stale, "%d stored runs are of another model, for the experiment was changed since: they are not shown", s.Stale)
	add(len(s.Versions)-1, "the runs were made by different versions of the program: %s", strings.Join(s.Versions, ", "))
	for _, cell := range s.Size.Cells() {
		for _, cell.Scheme = range s.Size.Schemes {
			where := strings.TrimSuffix(cell.Scheme+" at "+cell.Place(), " at ")
			flows, unfinished, stuck := 0, 0, 0
			for _, rec := range s.Of(cell) {
				res := rec.Result
				flows, unfinished = flows+res.Flows, unfinished+res.Unfinished
				if res.End == "stuck" {
					stuck++
				}
				if c := res.Conservation; c.Made != c.Delivered+c.Dropped+c.InFlight {
					add(1, "%s, seed %d: packets are lost or made without account (%+v)", where, res.Seed, c)
				}
			}
			add(unfinished, "%s: %d of %d flows did not finish, and count with their age", where, unfinished, flows)
			add(stuck, "%s: %d runs got stuck, nothing moving although something waited", where, stuck)
		}
	}
	return out
}
