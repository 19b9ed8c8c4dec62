package loomctl

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/internal/admin"
	"github.com/loomfabric/loom/internal/stat"
	"github.com/loomfabric/loom/leaf"
)

// Counters are printed by the tables of their types: names and meanings stand there.

// opcodeLabel is the label of what there is for each kind of message.
const opcodeLabel = "opcode"

// words makes a name one for people.
func words(name string) string { return strings.ReplaceAll(name, "_", " ") }

// meaning returns the first sentence about a row.
func meaning(f *stat.Field) string {
	first, _, _ := strings.Cut(either(f.About != "", f.About, f.Help), ". ")
	return strings.TrimSuffix(first, ".")
}

// count returns the value of a row.
func count(c admin.Counters, f *stat.Field) uint64 {
	if f.Label != "" {
		return c.Family(f.Name)[f.Value]
	}
	return c.Number(f.Name)
}

// printCounters shows the numbers of a table, with a column for each of all under the
// scheme's name, and an empty line. Of a family it shows what is not 0.
func printCounters(w io.Writer, title string, all []admin.Counters, table *stat.Table) {
	head := []any{title}
	for _, c := range all {
		head = append(head, either(c.Scheme() != "", c.Scheme(), "COUNT"))
	}
	t := newTable(w, append(head, "MEANING")...)
	for i := range table.Fields {
		f := &table.Fields[i]
		if f.Kind == stat.Times || f.Kind == stat.Depth || f.Label == opcodeLabel {
			continue
		}
		cells, sum := []any{words(f.Name) + either(f.Label != "", ": "+f.Value, "")}, uint64(0)
		for _, c := range all {
			cells, sum = append(cells, count(c, f)), sum+count(c, f)
		}
		if f.Label == "" || sum > 0 {
			t.row(append(cells, meaning(f))...)
		}
	}
	t.endWithGap()
}

// printDecisions has a row for each scheme, and an empty line.
func printDecisions(w io.Writer, schemes []admin.Counters) {
	table := stat.TableOf(&balance.Stats{}, "")
	head := []any{"SCHEME"}
	for i := range table.Fields {
		head = append(head, strings.ToUpper(words(table.Fields[i].Name)))
	}
	t := newTable(w, head...)
	for _, c := range schemes {
		cells := []any{c.Scheme()}
		for i := range table.Fields {
			cells = append(cells, count(c, &table.Fields[i]))
		}
		t.row(cells...)
	}
	t.endWithGap()
}

// printMessages has a row for each kind of message that there was, with its share of
// the data's bytes unless these are 0, and an empty line.
func printMessages(w io.Writer, c admin.Counters, data uint64) {
	var names, opcodes []string
	table := stat.TableOf(&leaf.Stats{}, "")
	for i := range table.Fields {
		f := &table.Fields[i]
		if f.Label != opcodeLabel {
			continue
		}
		if !slices.Contains(names, f.Name) {
			names = append(names, f.Name)
		}
		if !slices.Contains(opcodes, f.Value) {
			opcodes = append(opcodes, f.Value)
		}
	}
	names = append(names, "messages_unknown")
	head := []any{"MESSAGE"}
	for _, n := range names {
		head = append(head, strings.ToUpper(words(strings.TrimPrefix(n, "messages_"))))
	}
	if data > 0 {
		head = append(head, "SHARE OF DATA")
	}
	t := newTable(w, head...)
	for _, op := range opcodes {
		cells, sum := []any{op}, uint64(0)
		for _, n := range names {
			cells, sum = append(cells, c.Family(n)[op]), sum+c.Family(n)[op]
		}
		if data > 0 {
			cells = append(cells, share(c.Family("control_bytes")[op], data))
		}
		if sum > 0 {
			t.row(cells...)
		}
	}
	t.endUnlessEmpty()
}

// share writes a part of the whole in percent, small ones to three digits.
func share(part, whole uint64) string {
	if whole == 0 {
		return none
	}
	return fmt.Sprintf("%.3g%%", 100*float64(part)/float64(whole))
}

// timesRow is a histogram in a table.
type timesRow struct {
	admin.Times
	name, meaning string
}

// timesOf returns the times of a table.
func timesOf(c admin.Counters, table *stat.Table) (all []timesRow) {
	for i := range table.Fields {
		if f := &table.Fields[i]; f.Kind == stat.Times {
			name := words(f.Key())
			if c.Scheme() != "" {
				name += ", " + c.Scheme()
			}
			all = append(all, timesRow{c.Times(f.Key()), name, meaning(f)})
		}
	}
	return all
}

func printTimes(w io.Writer, all []timesRow) {
	if len(all) == 0 {
		return
	}
	t := newTable(w, "TIME", "COUNT", "MEAN", "P50", "P90", "P99", "P99.9", "MAX", "MEANING")
	for i := range all {
		x := &all[i]
		cells := []any{x.name, x.Count}
		for _, d := range []time.Duration{x.Mean, x.P50, x.P90, x.P99, x.P999, x.Max} {
			cells = append(cells, either(x.Count > 0, age(d), none))
		}
		t.row(append(cells, x.meaning)...)
	}
	t.end()
}

// printSchemes shows what only one scheme counts: where it sends, and where it
// receives.
func printSchemes(w io.Writer, s *admin.Stats) {
	if len(s.Schemes)+len(s.Receivers) == 0 {
		fmt.Fprintln(w, "no scheme has decided anything")
		return
	}
	printDecisions(w, s.Schemes)
	printShadows(w, s.Shadows)
	var times []timesRow
	show := func(title string, c admin.Counters, like any) {
		switch table := stat.TableOf(like, ""); {
		case len(table.Fields) == 0:
			fmt.Fprintf(w, "%s %s: this loomctl does not know the scheme; -o json shows its counters\n\n", title, c.Scheme())
		case !counted(c, table):
			fmt.Fprintf(w, "%s %s: nothing\n\n", title, c.Scheme())
		default:
			printCounters(w, title, []admin.Counters{c}, table)
			times = append(times, timesOf(c, table)...)
		}
	}
	for _, c := range s.Schemes {
		if own := c.Own(); own != nil {
			like, _ := counts(c.Scheme())
			show("SENT UNDER", own, like)
		}
	}
	for _, c := range s.Receivers {
		_, like := counts(c.Scheme())
		show("RECEIVED UNDER", c, like)
	}
	printTimes(w, times)
}

// printShadows shows what second schemes would have done.
func printShadows(w io.Writer, all []admin.Shadow) {
	if len(all) == 0 {
		return
	}
	t := newTable(w, "CLASS", "SCHEME", "SHADOW", "FRAMES", "AGREED", "IMBALANCE", "OF SHADOW")
	for i := range all {
		x := &all[i]
		t.row(x.Class, x.Scheme, x.Shadow, x.Counters.Number("frames"), percent(x.Agreement), percent(x.Imbalance.Sent), percent(x.Imbalance.Would))
	}
	t.end()
}

// counted reports whether a number of the table is not 0.
func counted(c admin.Counters, table *stat.Table) bool {
	return slices.ContainsFunc(table.Fields, func(f stat.Field) bool { return count(c, &f) > 0 })
}

// counts returns what a scheme and its receiver count; structs without fields for
// schemes of another version.
func counts(scheme string) (own, receiver any) {
	own, receiver = new(struct{}), new(struct{})
	if s := balance.Find(scheme); s != nil {
		return leaf.Counts(s)
	}
	return own, receiver
}
