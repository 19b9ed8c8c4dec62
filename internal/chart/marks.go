package chart

import (
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// marks draws vertical lines.
type marks []Mark

var markColor = color.RGBA{0xb3, 0x42, 0x0a, 0xff}

// Plot is plot.Plotter.
func (m marks) Plot(c draw.Canvas, p *plot.Plot) {
	x, _ := p.Transforms(&c)
	style := draw.LineStyle{Color: markColor, Width: vg.Points(1), Dashes: []vg.Length{3, 2}}
	label := text.Style{Color: markColor, Font: sans(8), XAlign: text.XLeft, YAlign: text.YTop, Handler: p.TextHandler}
	for i, at := range m {
		if at.X < p.X.Min || at.X > p.X.Max {
			continue
		}
		c.StrokeLine2(style, x(at.X), c.Min.Y, x(at.X), c.Max.Y)
		c.FillText(label, vg.Point{X: x(at.X) + 2, Y: c.Max.Y - vg.Length(i%3)*9}, at.Text)
	}
}
