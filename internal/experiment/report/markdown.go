package report

import (
	_ "embed" // the templates
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"text/template"

	"github.com/loomfabric/loom/internal/experiment"
)

//go:embed document.tmpl
var documentText string

var document = template.Must(template.New("document").Funcs(template.FuncMap{
	"join": strings.Join, "replace": strings.ReplaceAll,
	// cell makes text fit for a table.
	"cell": func(s string) string {
		return strings.ReplaceAll(strings.Join(strings.Fields(s), " "), "|", `\|`)
	},
}).Parse(documentText))

// Text writes tables, expectations and warnings for a terminal.
func Text(w io.Writer, r *experiment.Results) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if err := document.ExecuteTemplate(tw, "text", section{r}); err != nil {
		return err
	}
	return tw.Flush()
}

// Markdown rewrites the generated parts of a document: a table with a row an
// experiment and size, and a section for each experiment. A part stands between
// markers; what is outside stays as it is. A part whose markers the document lacks
// is added at its end, and one that is not among results stays.
func Markdown(doc string, all []*experiment.Results) (string, error) {
	rest := sections(all)
	doc, err := replacePart(doc, "summary", "summary", rest)
	for err == nil && len(rest) > 0 {
		exp := rest[0].Exp()
		n := slices.IndexFunc(rest, func(s section) bool { return s.Exp() != exp })
		if n < 0 {
			n = len(rest)
		}
		doc, err = replacePart(doc, exp.Name, "experiment", rest[:n])
		rest = rest[n:]
	}
	return doc, err
}

// replacePart puts what a template makes of sections between the markers of a name.
func replacePart(doc, name, with string, of []section) (string, error) {
	begin, end := "<!-- loomsim: "+name+" -->", "<!-- loomsim: end of "+name+" -->"
	var text strings.Builder
	text.WriteString(begin + "\n")
	if err := document.ExecuteTemplate(&text, with, of); err != nil {
		return "", err
	}
	text.WriteString(end)
	b, e := strings.Index(doc, begin), strings.Index(doc, end)
	switch {
	case b < 0 && e < 0:
		if doc != "" {
			doc = strings.TrimRight(doc, "\n") + "\n\n"
		}
		return doc + text.String() + "\n", nil
	case b < 0 || e < b || strings.Count(doc, begin) > 1 || strings.Count(doc, end) > 1:
		return "", fmt.Errorf("the markers %q and %q are not there once each and in this order: mend or remove them", begin, end)
	}
	return doc[:b] + text.String() + doc[e+len(end):], nil
}
