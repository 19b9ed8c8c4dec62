package chart

import (
	"html/template"
	"regexp"
	"strings"
)

// headRE is what stands before the drawing, and attributeRE what fixes its size.
var (
	headRE      = regexp.MustCompile(`(?s)^.*?<svg[^>]*>`)
	attributeRE = regexp.MustCompile(`\s(width|height|xmlns[:\w]*)="[^"]*"`)
)

// Inline takes a drawing into a page: without XML's head, as wide as there is room, and
// black in the colour of the page's text. The grid has the page's colour --grid.
func Inline(svg string) template.HTML {
	svg = headRE.ReplaceAllStringFunc(svg, func(head string) string {
		tag := head[strings.Index(head, "<svg"):]
		return strings.Replace(attributeRE.ReplaceAllString(tag, ""), "<svg", `<svg role="img"`, 1)
	})
	svg = strings.NewReplacer("#000000", "currentColor", "#DDDDDD", "var(--grid)").Replace(svg)
	return template.HTML(svg) // of our own making: gonum/plot escapes what is text
}

// Empty reports whether there is nothing to draw.
func (c *Chart) Empty() bool {
	for i := range c.Series {
		if len(c.points(i)) > 0 {
			return false
		}
	}
	return true
}
