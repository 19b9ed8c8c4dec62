package report

import (
	_ "embed" // the templates
	"fmt"
	"io"
	"maps"
	"regexp"
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

// Markdown rewrites the generated parts of a document: a table with a row for each
// claim, and a section for each experiment. A part stands between markers; what is
// outside stays as it is. A part whose markers the document lacks is added at its
// end. What the document has of experiments that are not among results stays, their
// rows in the table too. Only sizes that are published are shown: it is an error if
// no result is of one.
func Markdown(doc string, all []*experiment.Results) (string, error) {
	rest := slices.DeleteFunc(sections(all), func(s section) bool { return !s.Size.Published })
	if len(rest) == 0 {
		return "", fmt.Errorf("no result is of a published size: run one that has published: true")
	}
	summary, err := summarize(doc, rest)
	if err != nil {
		return "", err
	}
	doc, err = replacePart(doc, "summary", summary)
	for err == nil && len(rest) > 0 {
		exp := rest[0].Exp()
		n := slices.IndexFunc(rest, func(s section) bool { return s.Exp() != exp })
		if n < 0 {
			n = len(rest)
		}
		var text strings.Builder
		if err := document.ExecuteTemplate(&text, "experiment", rest[:n]); err != nil {
			return "", err
		}
		doc, err = replacePart(doc, exp.Name, text.String())
		rest = rest[n:]
	}
	return doc, err
}

// rowRE finds the experiment that a row of the table belongs to.
var rowRE = regexp.MustCompile(`^\| \[.*<!-- ([a-z0-9-]+) --> \|`)

// summarize makes the table: the rows of sections, and those that the document has
// of other experiments, by their names. A table of another form is not kept.
func summarize(doc string, of []section) (string, error) {
	var head strings.Builder
	if err := document.ExecuteTemplate(&head, "summary-head", nil); err != nil {
		return "", err
	}
	rows := map[string]string{}
	if _, after, ok := strings.Cut(doc, marker("summary")+"\n"+head.String()); ok {
		for line := range strings.Lines(after) {
			found := rowRE.FindStringSubmatch(line)
			if found == nil {
				break
			}
			rows[found[1]] += line
		}
	}
	for _, s := range of {
		delete(rows, s.Exp().Name)
	}
	for i := range of {
		var text strings.Builder
		if err := document.ExecuteTemplate(&text, "summary-rows", of[i:i+1]); err != nil {
			return "", err
		}
		rows[of[i].Exp().Name] += text.String()
	}
	out := head.String()
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		out += rows[name]
	}
	return out, nil
}

// marker begins the part of a name.
func marker(name string) string { return "<!-- loomsim: " + name + " -->" }

// replacePart puts a text between the markers of a name.
func replacePart(doc, name, content string) (string, error) {
	begin, end := marker(name), marker("end of "+name)
	text := begin + "\n" + content + end
	b, e := strings.Index(doc, begin), strings.Index(doc, end)
	switch {
	case b < 0 && e < 0:
		if doc != "" {
			doc = strings.TrimRight(doc, "\n") + "\n\n"
		}
		return doc + text + "\n", nil
	case b < 0 || e < b || strings.Count(doc, begin) > 1 || strings.Count(doc, end) > 1:
		return "", fmt.Errorf("the markers %q and %q are not there once each and in this order: mend or remove them", begin, end)
	}
	return doc[:b] + text + doc[e+len(end):], nil
}
