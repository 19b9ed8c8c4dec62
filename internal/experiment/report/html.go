package report

import (
	"bytes"
	_ "embed" // the page
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"

	"github.com/loomfabric/loom/internal/experiment"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Parse(pageText))

// section is an experiment at one size, as the page shows it.
type section struct {
	ID, Size, Runs, Verdict, Legend, Command, Text string
	Exp                                            *experiment.Experiment
	Stored, Total                                  int
	Outcomes                                       []outcome
	Figures                                        []inline
	Tables                                         []Table
	Notes, Warnings                                []string
}

type outcome struct {
	Claim, Found string
	Holds, Known bool
}

type inline struct {
	SVG  template.HTML
	Wide bool
}

// HTML writes one page with everything in it: it loads nothing from anywhere.
func HTML(out io.Writer, title string, all []*experiment.Results) error {
	data := struct {
		Title    string
		Sections []section
	}{Title: title}
	for _, r := range all {
		s, err := sectionOf(r)
		if err != nil {
			return err
		}
		data.Sections = append(data.Sections, s)
	}
	if err := page.Execute(out, data); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

func sectionOf(r *experiment.Results) (section, error) {
	e := r.Size.Experiment
	s := section{
		ID: ID(r), Size: where(r), Exp: e, Text: string(e.Text),
		Runs: runsText(r), Stored: r.Stored(), Total: len(r.Records), Legend: legend(r),
		Command: Command(r), Tables: Tables(r), Notes: notes(r.Size), Warnings: Warnings(r),
	}
	hold, outcomes := 0, r.Outcomes()
	for i := range outcomes {
		o := &outcomes[i]
		if o.Holds {
			hold++
		}
		s.Outcomes = append(s.Outcomes, outcome{o.Claim(), found(o), o.Holds, o.Spread.N > 0})
	}
	if len(outcomes) > 0 {
		s.Verdict = fmt.Sprintf("%d of %d hold", hold, len(outcomes))
	}
	for _, f := range Figures(r) {
		var b bytes.Buffer
		if err := f.SVG(&b); err != nil {
			return s, fmt.Errorf("%s: %w", s.ID, err)
		}
		s.Figures = append(s.Figures, inline{inlineSVG(b.String()), f.chart.Wide()})
	}
	return s, nil
}

// inlineSVG takes a drawing into the page: without XML's head, as wide as there is
// room, and black in the colour of the page's text.
func inlineSVG(svg string) template.HTML {
	if at := strings.Index(svg, "<svg"); at >= 0 {
		svg = svg[at:]
	}
	tag, rest, _ := strings.Cut(svg, ">")
	fields := []string{}
	for _, f := range strings.Fields(strings.TrimPrefix(tag, "<svg")) {
		if !strings.HasPrefix(f, "width=") && !strings.HasPrefix(f, "height=") && !strings.HasPrefix(f, "xmlns") {
			fields = append(fields, f)
		}
	}
	svg = "<svg role=\"img\" " + strings.Join(fields, " ") + ">" + rest
	svg = strings.NewReplacer("#000000", "currentColor", "#DDDDDD", "var(--grid)").Replace(svg)
	return template.HTML(svg) // of our own making: gonum/plot escapes what is text
}

// Command is what makes a size's results.
func Command(r *experiment.Results) string {
	if c := r.Size.Experiment.Command; c != "" {
		return c
	}
	text := fmt.Sprintf("loomsim run %s --size %s", r.Size.Experiment.File, r.Size.Name)
	if r.On != experiment.OnSim {
		text += " --on " + r.On
	}
	return text
}

// ID names results in files and links.
func ID(r *experiment.Results) string {
	id := r.Size.Experiment.Name + "-" + r.Size.Name
	if r.On != experiment.OnSim {
		id += "-" + r.On
	}
	return id
}

// notes are the experiment's and the size's.
func notes(s *experiment.Size) (out []string) {
	for _, n := range []string{s.Experiment.Note, s.Note} {
		if n != "" {
			out = append(out, n)
		}
	}
	return out
}

// runsText says what the results took.
func runsText(r *experiment.Results) string {
	n, wall, hops := 0, 0.0, uint64(0)
	for _, rec := range r.Records {
		if rec != nil {
			n, wall, hops = n+1, wall+rec.Result.Machine.WallS, hops+rec.Result.PacketHops
		}
	}
	text := fmt.Sprintf("%d runs", n)
	switch took := time.Duration(wall * float64(time.Second)).Round(time.Second / 10); {
	case wall > 0 && hops > 0:
		text += fmt.Sprintf(" in %v of one core, %s M packet-hops/s", took, short(float64(hops)/wall/1e6))
	case wall > 0:
		text += fmt.Sprintf(" in %v", took)
	}
	return text + maker(r)
}

// maker names the program that made the results, if it was one.
func maker(r *experiment.Results) string {
	if len(r.Versions) != 1 {
		return ""
	}
	return ", loom" + r.On + " " + r.Versions[0]
}
