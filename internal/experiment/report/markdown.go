package report

import (
	"fmt"
	"strings"

	"github.com/loomfabric/loom/internal/experiment"
)

// Markdown rewrites the generated parts of a document: a table with a row an
// experiment and size, and a section for each experiment. A part stands between
// markers; what is outside stays as it is. A part whose markers the document lacks
// is added at its end, and one that is not among results stays.
func Markdown(document string, all []*experiment.Results) (string, error) {
	out, err := replacePart(document, "summary", summaryPart(all))
	for i := 0; err == nil && i < len(all); i++ {
		name := all[i].Size.Experiment.Name
		if i > 0 && all[i-1].Size.Experiment == all[i].Size.Experiment {
			continue // it is in that one's section
		}
		sizes := []*experiment.Results{}
		for _, r := range all[i:] {
			if r.Size.Experiment == all[i].Size.Experiment {
				sizes = append(sizes, r)
			}
		}
		out, err = replacePart(out, name, experimentPart(sizes))
	}
	return out, err
}

func markers(name string) (begin, end string) {
	return "<!-- loomsim: " + name + " -->", "<!-- loomsim: end of " + name + " -->"
}

// replacePart puts text between the markers of a name.
func replacePart(document, name, text string) (string, error) {
	begin, end := markers(name)
	text = begin + "\n" + text + end
	b, e := strings.Index(document, begin), strings.Index(document, end)
	switch {
	case b < 0 && e < 0:
		if document != "" {
			document = strings.TrimRight(document, "\n") + "\n\n"
		}
		return document + text + "\n", nil
	case b < 0 || e < b || strings.Count(document, begin) > 1 || strings.Count(document, end) > 1:
		return "", fmt.Errorf("the markers %q and %q are not there once each and in this order: mend or remove them", begin, end)
	}
	return document[:b] + text + document[e+len(end):], nil
}

// cell makes text fit for a table.
func cell(s string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(s), " "), "|", `\|`)
}

func summaryPart(all []*experiment.Results) string {
	var b strings.Builder
	b.WriteString("| figure | the paper's claim | ours | command | where we differ, and why |\n|---|---|---|---|---|\n")
	for _, r := range all {
		e := r.Size.Experiment
		name := e.Paper
		if name == "" {
			name = e.Name
		}
		ours := []string{}
		outcomes := r.Outcomes()
		for i := range outcomes {
			ours = append(ours, cell(outcomeText(&outcomes[i])))
		}
		if missing := len(r.Records) - r.Stored(); missing > 0 {
			ours = append(ours, fmt.Sprintf("%d of %d runs are not made", missing, len(r.Records)))
		}
		fmt.Fprintf(&b, "| [%s](#%s) | %s | %s | `%s` | %s |\n", cell(name), anchor(e), cell(e.Claim), strings.Join(ours, "<br>"), Command(r), cell(strings.Join(notes(r.Size), " ")))
	}
	return b.String()
}

// heading is that of an experiment's section; GitHub makes its anchor of it.
func heading(e *experiment.Experiment) string {
	if e.Paper == "" {
		return e.Name + ": " + e.Title
	}
	return e.Paper + ": " + e.Title
}

// anchor is what GitHub makes of a heading: lower case, punctuation dropped, blanks
// to hyphens.
func anchor(e *experiment.Experiment) string {
	var b strings.Builder
	for _, c := range strings.ToLower(heading(e)) {
		switch {
		case c == ' ' || c == '-':
			b.WriteByte('-')
		case c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_' || c > 127 && c != '–' && c != '×' && c != '’':
			b.WriteRune(c)
		}
	}
	return b.String()
}

func experimentPart(sizes []*experiment.Results) string {
	var b strings.Builder
	e := sizes[0].Size.Experiment
	fmt.Fprintf(&b, "## %s\n\n", heading(e))
	if e.Claim != "" {
		fmt.Fprintf(&b, "> %s\n\n", strings.ReplaceAll(e.Claim, "\n", "\n> "))
	}
	if e.Note != "" {
		fmt.Fprintf(&b, "%s\n\n", e.Note)
	}
	for _, r := range sizes {
		fmt.Fprintf(&b, "`%s` (%s)\n\n", Command(r), runsCount(r))
		if r.Size.Note != "" {
			fmt.Fprintf(&b, "%s\n\n", r.Size.Note)
		}
		for i, t := range Tables(r) {
			if i == 0 {
				fmt.Fprintf(&b, "%s.\n\n", legend(r))
			}
			fmt.Fprintf(&b, "| %s |", cell(t.Label))
			for _, s := range t.Schemes {
				fmt.Fprintf(&b, " %s |", cell(s))
			}
			b.WriteString("\n|---|" + strings.Repeat("---:|", len(t.Schemes)) + "\n")
			for _, row := range t.Rows {
				fmt.Fprintf(&b, "| %s | %s |\n", cell(row.Label), strings.Join(row.Cells, " | "))
			}
			b.WriteString("\n")
		}
		outcomes := r.Outcomes()
		for i := range outcomes {
			fmt.Fprintf(&b, "- %s\n", outcomeText(&outcomes[i]))
		}
		for _, w := range Warnings(r) {
			fmt.Fprintf(&b, "- note: %s\n", w)
		}
		if len(outcomes)+len(Warnings(r)) > 0 {
			b.WriteString("\n")
		}
	}
	return b.String()
}

// runsCount leaves out what differs from machine to machine.
func runsCount(r *experiment.Results) string {
	return fmt.Sprintf("%d runs", r.Stored()) + maker(r)
}
