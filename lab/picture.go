package lab

import (
	"bytes"
	_ "embed" // the page
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"time"

	"github.com/loomfabric/loom/internal/chart"
	"github.com/loomfabric/loom/internal/measure"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"rate": rate, "seconds": func(s float64) string { return round(seconds(s)).String() }, "round": round,
	"fixed":   func(x float64) string { return fmt.Sprintf("%.2f", x) },
	"percent": func(x *float64) string { return fmt.Sprintf("%.0f %%", *x) },
}).Parse(pageText))

// picture is what only a page shows of a run.
type picture struct {
	Nodes  []place
	Lines  []wire
	Width  int
	Height int
	File   string // the fabric file

	spines []UplinkSeries
	flows  []flowSet
}

// place is where a node stands on the map.
type place struct {
	Name, Kind string
	X, Y       int
}

// wire is a link of the map, from the leaf to the spine, or from a host to its leaf.
type wire struct {
	Name           string
	X1, Y1, X2, Y2 int
	MX, MY         int     // the middle
	Rate           float64 // bits per second; 0: nobody says
	Host           bool
}

// flowSet has how long flows of a workload took.
type flowSet struct {
	name  string
	taken []float64 // seconds
}

// Places of the map, in pixels.
const (
	mapColumn = 150
	mapTop    = 40
	mapRow    = 150
	hostRow   = 34
)

// picture draws the map, and keeps flows' times.
func (l *Lab) picture(load *load, spines []UplinkSeries) *picture {
	p := &picture{File: l.File.Source(), spines: spines}
	columns := max(len(l.Topo.Leaves), len(l.Topo.Spines))
	p.Width = columns*mapColumn + 20
	at := func(i, of int) int { return 10 + (2*i+1)*columns*mapColumn/(2*of) }
	for i, n := range l.Topo.Spines {
		p.Nodes = append(p.Nodes, place{n.Name, "spine", at(i, len(l.Topo.Spines)), mapTop})
	}
	leafY := mapTop + mapRow
	most := 0
	for i, n := range l.Topo.Leaves {
		x := at(i, len(l.Topo.Leaves))
		p.Nodes = append(p.Nodes, place{n.Name, "leaf", x, leafY})
		for k, h := range l.members(i) {
			y := leafY + 60 + hostRow*k
			p.Nodes = append(p.Nodes, place{h.Name, "host", x + 18, y})
			p.Lines = append(p.Lines, wire{Name: h.Name, X1: x - 22, Y1: leafY + 14, X2: x - 22, Y2: y, Host: true}, wire{Name: h.Name, X1: x - 22, Y1: y, X2: x - 8, Y2: y, Host: true})
			most = max(most, k+1)
		}
	}
	p.Height = leafY + 50 + hostRow*most + 10
	n := l.File.Links.Parallel
	for _, k := range l.Topo.Links {
		aside := (2*k.Parallel - n + 1) * min(22, 60/n) / 2 // parallel links side by side
		w := wire{Name: k.Name, X1: at(k.Leaf, len(l.Topo.Leaves)) + aside, Y1: leafY - 14, X2: at(k.Spine, len(l.Topo.Spines)) + aside, Y2: mapTop + 14, Rate: float64(k.Up.Rate)}
		w.MX, w.MY = (w.X1+w.X2)/2, (w.Y1+w.Y2)/2
		p.Lines = append(p.Lines, w)
	}
	for _, w := range load.works {
		s := flowSet{name: w.Name}
		for _, f := range unique(slices.Clone(w.flows)) {
			if !f.open {
				s.taken = append(s.taken, f.fct.Seconds())
			}
		}
		p.flows = append(p.flows, s)
	}
	return p
}

// figure is a plot of the page.
type figure struct {
	SVG  template.HTML
	Wide bool
}

// HTML writes the report as one page with everything in it. It needs [RunOptions.Page].
func (r *Report) HTML(out io.Writer) error {
	if r.page == nil {
		return errors.New("the run kept nothing for a page: nobody asked for one before it")
	}
	figures, err := r.figures()
	if err != nil {
		return err
	}
	moments, err := json.Marshal(r.moments())
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if err := r.Table(&text); err != nil {
		return err
	}
	verdict := "all pairs of hosts reach each other, and all accounts balance"
	failure := r.Failure()
	if failure != nil {
		verdict = failure.Error()
	}
	return page.Execute(out, map[string]any{
		"R": r, "P": r.page, "Figures": figures, "Moments": template.JS(moments), "Text": text.String(), "Verdict": verdict, "Failed": failure != nil, "FCT": r.fcts(),
	})
}

// classFCT is a row of the table of completion times.
type classFCT struct {
	Workload string
	measure.ClassFCT
}

func (r *Report) fcts() (rows []classFCT) {
	for _, w := range r.Result.Workloads {
		fcts := w.FCT
		if len(r.Result.Workloads) == 1 {
			fcts = r.Result.FCT
		}
		for _, f := range fcts {
			rows = append(rows, classFCT{w.Name, f})
		}
	}
	return rows
}

// figures draws courses of time and distributions.
func (r *Report) figures() (all []figure, err error) {
	var marks []chart.Mark
	for _, f := range r.Faults {
		marks = append(marks, chart.Mark{X: f.At.Seconds(), Text: f.Action + " " + f.Link})
	}
	var charts []*chart.Chart
	goodput := &chart.Chart{Title: "Goodput", XLabel: "time (s)", YLabel: "Mbit/s", ZeroY: true, Flat: true, Marks: marks}
	for i, w := range r.Result.Workloads {
		s := chart.Series{Label: w.Name, Style: i + 1, Curve: true}
		for _, t := range r.Timeline { // the middle of each second
			s.Points = append(s.Points, point(t.At.Seconds()+0.5, t.ByWorkload[i]/1e6))
		}
		goodput.Series = append(goodput.Series, s)
	}
	charts = append(charts, goodput)
	for _, u := range slices.Concat(r.Uplinks, r.page.spines) {
		c := &chart.Chart{Title: "What " + u.Leaf + " sends by each link", XLabel: "time (s)", YLabel: "Mbit/s", ZeroY: true, Flat: true, Marks: marks}
		smooth := u.averaged(courseStep)
		for j, link := range u.Links {
			s := chart.Series{Label: link, Style: j + 1, Curve: true}
			for k, at := range smooth.At {
				s.Points = append(s.Points, point(at.Seconds(), float64(smooth.Bits[k][j])/1e6))
			}
			c.Series = append(c.Series, s)
		}
		charts = append(charts, c)
	}
	fct := &chart.Chart{Title: "Flow completion times", XLabel: "time (s)", YLabel: "share of the flows", LogX: true, ZeroY: true, TopY: 1, Flat: true}
	for i, f := range r.page.flows {
		slices.Sort(f.taken)
		s := chart.Series{Label: f.name, Style: i + 1, Curve: true}
		for k := range min(len(f.taken), 200) {
			at := (k + 1) * len(f.taken) / min(len(f.taken), 200)
			s.Points = append(s.Points, point(f.taken[at-1], float64(at)/float64(len(f.taken))))
		}
		if len(s.Points) > 1 {
			fct.Series = append(fct.Series, s)
		}
	}
	if len(fct.Series) > 0 {
		charts = append(charts, fct)
	}
	for _, c := range charts {
		if c.Empty() {
			continue
		}
		var b bytes.Buffer
		if err := c.SVG(&b); err != nil {
			return nil, fmt.Errorf("%s: %w", c.Title, err)
		}
		all = append(all, figure{chart.Inline(b.String()), true})
	}
	return all, nil
}

func point(x, y float64) chart.Point { return chart.Point{X: x, Y: y, Low: y, High: y} }

// courseStep is what courses of time are averaged over: less is noise of bursts.
const courseStep = 200 * time.Millisecond

// averaged returns means over steps of that length at least.
func (u *UplinkSeries) averaged(step time.Duration) *UplinkSeries {
	out := &UplinkSeries{Leaf: u.Leaf, Links: u.Links}
	if len(u.At) == 0 {
		return out
	}
	sum, from := make([]float64, len(u.Links)), u.samples[0].at
	for k, at := range u.At {
		begin := from
		if k > 0 {
			begin = u.At[k-1]
		}
		for j, bits := range u.Bits[k] {
			sum[j] += float64(bits) * (at - begin).Seconds()
		}
		if at-from < step && k < len(u.At)-1 {
			continue
		}
		row := make([]uint64, len(sum))
		for j := range sum {
			row[j] = uint64(sum[j] / (at - from).Seconds())
		}
		out.At, out.Bits = append(out.At, (at+from)/2), append(out.Bits, row)
		clear(sum)
		from = at
	}
	return out
}

// moments is what the map plays: loads of all links, in both directions, and which are down.
type moments struct {
	At    []float64   `json:"at"`    // seconds
	Links []string    `json:"links"` // of Up, Down and Dead
	Up    [][]float64 `json:"up"`    // by moment and link: Mbit/s from the leaf
	Down  [][]float64 `json:"down"`  // and from the spine
	Dead  [][]int     `json:"dead"`  // by moment: links that are down
	Top   float64     `json:"top"`   // Mbit/s that are the full colour of links without a rate
}

func (r *Report) moments() (m moments) {
	index := make(map[string]int)
	for _, w := range r.page.Lines {
		if !w.Host {
			index[w.Name] = len(m.Links)
			m.Links = append(m.Links, w.Name)
		}
	}
	if len(r.Uplinks) == 0 {
		return m
	}
	for _, at := range r.Uplinks[0].averaged(courseStep).At {
		m.At = append(m.At, math.Round(at.Seconds()*100)/100)
	}
	fill := func(series []UplinkSeries) [][]float64 {
		rows := make([][]float64, len(m.At))
		for i := range rows {
			rows[i] = make([]float64, len(m.Links))
		}
		for _, u := range series {
			smooth := u.averaged(courseStep)
			for i := range rows {
				if i >= len(smooth.Bits) {
					break
				}
				for j, link := range u.Links {
					mbit := math.Round(float64(smooth.Bits[i][j])/1e5) / 10
					rows[i][index[link]], m.Top = mbit, max(m.Top, mbit)
				}
			}
		}
		return rows
	}
	m.Up, m.Down = fill(r.Uplinks), fill(r.page.spines)
	for _, at := range m.At {
		dead := []int{}
		for _, f := range r.Faults {
			if i := index[f.Link]; f.At.Seconds() <= at {
				dead = slices.DeleteFunc(dead, func(k int) bool { return k == i })
				if f.Action == "fail" {
					dead = append(dead, i)
				}
			}
		}
		m.Dead = append(m.Dead, dead)
	}
	return m
}
