package doctor

import (
	"fmt"
	"io"
	"strings"
)

// Print writes a report for people.
func (r *Report) Print(w io.Writer) {
	for _, f := range r.Findings {
		fmt.Fprintf(w, "%s  %-7s  %s  (%s)\n", f.Node, f.Severity, f.Text, f.Probe)
		if f.Mend != "" {
			fmt.Fprintf(w, "    mend: %s\n", f.Mend)
		}
	}
	for _, f := range r.Failed {
		fmt.Fprintf(w, "%s  did not answer: %s\n", f.Node, f.Error)
	}
	for _, f := range r.Blind {
		fmt.Fprintf(w, "%s  its machine was not looked at: %s\n", f.Node, f.Error)
	}
	if r.Behind > 0 {
		fmt.Fprintf(w, "%s more may follow from these: mend them, and look again.\n", count(r.Behind, "finding"))
	}
	fmt.Fprintf(w, "%s looked at %s (%s) for %.1f s: %s\n", count(r.Probes, "probe"), count(len(r.Nodes), "node"), strings.Join(r.Nodes, ", "), r.Took, r.verdict())
}

// verdict is the report in some words.
func (r *Report) verdict() string {
	var n [Error + 1]int
	for _, f := range r.Findings {
		n[f.Severity]++
	}
	var words []string
	for s := Error; s >= Note; s-- {
		if n[s] > 0 {
			words = append(words, count(n[s], s.String()))
		}
	}
	if words == nil {
		return "nothing is wrong"
	}
	return strings.Join(words, ", ")
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
