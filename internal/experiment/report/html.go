package report

import (
	"bytes"
	_ "embed" // the page
	"fmt"
	"html/template"
	"io"
	"regexp"
	"strings"

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
		out = append(out, inline{inlineSVG(b.String()), f.Wide()})
	}
	return out, nil
}

// headRE is what stands before the drawing, and attributeRE what fixes its size.
var (
	headRE      = regexp.MustCompile(`(?s)^.*?<svg[^>]*>`)
	attributeRE = regexp.MustCompile(`\s(width|height|xmlns[:\w]*)="[^"]*"`)
)

// inlineSVG takes a drawing into the page: without XML's head, as wide as there is
// room, and black in the colour of the page's text.
func inlineSVG(svg string) template.HTML {
	svg = headRE.ReplaceAllStringFunc(svg, func(head string) string {
		tag := head[strings.Index(head, "<svg"):]
		return strings.Replace(attributeRE.ReplaceAllString(tag, ""), "<svg", `<svg role="img"`, 1)
	})
	svg = strings.NewReplacer("#000000", "currentColor", "#DDDDDD", "var(--grid)").Replace(svg)
	return template.HTML(svg) // of our own making: gonum/plot escapes what is text
}
