package chart

import (
	"math"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

const (
	labelGap   = 4   // points between labels side by side
	labelLines = 3   // most lines of a wrapped label
	labelLead  = 1.1 // distance of turned labels, in heights
	slant      = math.Pi / 5
)

// fitLabels arranges the labels of bars in a line, wrapped, slanting or upright: in
// the first way in which they neither touch each other nor leave the chart. It
// returns the height that the chart needs in addition.
func fitLabels(p *plot.Plot, labels []plot.Tick, width vg.Length) (more vg.Length) {
	style := &p.X.Tick.Label
	line := style.Height("X")
	set := func(labels []plot.Tick, turn float64, x draw.XAlignment, y draw.YAlignment) {
		p.X.Tick.Marker = plot.ConstantTicks(labels)
		style.Rotation, style.XAlign, style.YAlign = turn, x, y
	}
	upright := func(labels []plot.Tick) { set(labels, math.Pi/2, draw.XRight, draw.YCenter) }
	more = func() vg.Length {
		if set(labels, 0, draw.XCenter, draw.YTop); labelsFit(p, width) {
			return 0
		}
		upright(labels) // takes the least room
		apart := labelsApart(p, width)
		if lines, ok := wrapAll(labels, apart-labelGap, style.Width); ok {
			if set(lines, 0, draw.XCenter, draw.YTop); labelsFit(p, width) {
				return labelsHeight(p)
			}
		}
		if set(labels, slant, draw.XRight, draw.YTop); labelsFit(p, width) {
			return labelsHeight(p)
		}
		upright(thin(labels, int(math.Ceil(float64(line*labelLead/apart)))))
		return labelsHeight(p)
	}()
	return max(more-line, 0)
}

// positions returns the labels and their anchors on a chart of the given width.
func positions(p *plot.Plot, width vg.Length) (labels []plot.Tick, at []vg.Length) {
	area := p.DataCanvas(frame(draw.Canvas{Rectangle: vg.Rectangle{Max: vg.Point{X: width, Y: 10 * height}}}))
	labels = p.X.Tick.Marker.Ticks(p.X.Min, p.X.Max)
	for _, l := range labels {
		at = append(at, area.X(p.X.Norm(l.Value)))
	}
	return labels, at
}

// labelsApart returns the least distance of two labels.
func labelsApart(p *plot.Plot, width vg.Length) vg.Length {
	_, at := positions(p, width)
	apart := width
	for i := 1; i < len(at); i++ {
		apart = min(apart, at[i]-at[i-1])
	}
	return apart
}

// labelsFit reports whether the labels are clear of each other and inside the chart.
func labelsFit(p *plot.Plot, width vg.Length) bool {
	labels, at := positions(p, width)
	style := &p.X.Tick.Label
	for i, l := range labels {
		box := style.Rectangle(l.Label)
		if at[i]+box.Min.X < 0 || at[i]+box.Max.X > width {
			return false
		}
		if i == 0 {
			continue
		}
		apart := at[i] - at[i-1]
		if style.Rotation == 0 {
			if before := style.Rectangle(labels[i-1].Label); apart < before.Max.X-box.Min.X+labelGap {
				return false
			}
		} else if apart*vg.Length(math.Sin(style.Rotation)) < style.Height("X")*labelLead {
			return false
		}
	}
	return true
}

// labelsHeight returns the height of the highest label.
func labelsHeight(p *plot.Plot) (most vg.Length) {
	for _, l := range p.X.Tick.Marker.Ticks(p.X.Min, p.X.Max) {
		most = max(most, p.X.Tick.Label.Rectangle(l.Label).Size().Y)
	}
	return most
}

// wrapAll wraps all labels. It reports whether that is possible.
func wrapAll(labels []plot.Tick, room vg.Length, width func(string) vg.Length) ([]plot.Tick, bool) {
	out := make([]plot.Tick, len(labels))
	for i, l := range labels {
		lines, ok := wrap(l.Label, room, width)
		if !ok {
			return nil, false
		}
		out[i] = plot.Tick{Value: l.Value, Label: strings.Join(lines, "\n")}
	}
	return out, true
}

// wrap breaks a label between words and behind hyphens so that no line is wider
// than there is room. It reports whether that is possible.
func wrap(label string, room vg.Length, width func(string) vg.Length) (lines []string, ok bool) {
	line := ""
	for _, word := range strings.Fields(label) {
		for i, part := range strings.SplitAfter(word, "-") {
			longer := line + part
			if i == 0 && line != "" {
				longer = line + " " + part
			}
			if line != "" && width(longer) > room {
				lines, longer = append(lines, line), part
			}
			if line = longer; width(line) > room {
				return nil, false
			}
		}
	}
	lines = append(lines, line)
	return lines, len(lines) <= labelLines
}

// thin returns every step-th label.
func thin(labels []plot.Tick, step int) []plot.Tick {
	var out []plot.Tick
	for i := 0; i < len(labels); i += max(step, 1) {
		out = append(out, labels[i])
	}
	return out
}
