package experiment

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// Progress tells people how far the runs of a size have come: on a terminal one
// line that is rewritten, elsewhere a line a run.
type Progress struct {
	Out      io.Writer
	Terminal bool
	hops     float64 // of finished runs
	seconds  float64 // that they took
	open     bool    // the line is not ended
}

// Report is for [RunOptions].
func (p *Progress) Report(e Event) {
	if e.Result != nil {
		p.hops += float64(e.Result.PacketHops)
		p.seconds += e.Wall.Seconds()
	}
	if e.Err != nil {
		first, _, _ := strings.Cut(e.Err.Error(), "\n")
		p.line("%s failed: %s", e.ID, first)
	}
	switch {
	case p.Terminal:
		fmt.Fprintf(p.Out, "\r\x1b[K%d/%d%s  %s", e.Done, e.Total, p.pace(e), strings.Join(e.Running, " "))
		p.open = true
	case !e.Begins && e.Err == nil:
		p.line("%d/%d  %s in %v%s", e.Done, e.Total, e.ID, round(e.Wall), p.pace(e))
	}
}

// pace is the time that is left and the speed of a core.
func (p *Progress) pace(e Event) (text string) {
	if e.Done > 0 && e.Done < e.Total {
		text += fmt.Sprintf(", %v left", round(e.Left))
	}
	if p.seconds > 0 && p.hops > 0 {
		text += fmt.Sprintf(", %.2f M hops/s", p.hops/p.seconds/1e6)
	}
	return text
}

func (p *Progress) line(format string, args ...any) {
	if p.open {
		fmt.Fprint(p.Out, "\r\x1b[K")
		p.open = false
	}
	fmt.Fprintf(p.Out, format+"\n", args...)
}

// End leaves the line.
func (p *Progress) End() {
	if p.open {
		fmt.Fprintln(p.Out)
		p.open = false
	}
}

func round(d time.Duration) time.Duration {
	if d >= 10*time.Second {
		return d.Round(time.Second)
	}
	return d.Round(10 * time.Millisecond)
}
