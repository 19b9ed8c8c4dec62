package report

import (
	"bytes"
	_ "embed" // the page
	"fmt"
	"html/template"
	"io"

	"github.com/loomfabric/loom/internal/chart"
	"github.com/loomfabric/loom/internal/experiment"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Parse(pageText))

// HTML writes one page with everything in it: it loads nothing from anywhere.
func HTML(out io.Writer, title string, all []*experiment.Results) error {
	if err := page.Execute(out, map[string]any{"Title": title, "Sections": sections(all)}); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// Text is the experiment's file.
func (s section) Text() string { return string(s.Exp().Text) }

// inline is a figure in the page.
type inline struct {
	SVG  template.HTML
	Wide bool
}

// Figures draws the plots.
func (s section) Figures() (out []inline, err error) {
	for _, f := range Figures(s.Results) {
		var b bytes.Buffer
		if err := f.SVG(&b); err != nil {
			return nil, err
		}
		out = append(out, inline{chart.Inline(b.String()), f.Wide()})
	}
	return out, nil
}
