package experiment

import (
	"fmt"
	"strings"
	"time"

	"github.com/loomfabric/loom/internal/status"
)

// Progress tells people how far the runs of a size have come: on a terminal one
// line that is rewritten, elsewhere a line a run.
type Progress struct {
	*status.Line
	hops    float64 // of finished runs
	seconds float64 // that they took
}

// Report is for [RunOptions].
func (p *Progress) Report(e Event) {
	if e.Result != nil {
		p.hops += float64(e.Result.PacketHops)
		p.seconds += e.Wall.Seconds()
	}
	if e.Err != nil {
		first, _, _ := strings.Cut(e.Err.Error(), "\n")
		p.Print("%s failed: %s", e.ID, first)
	}
	switch {
	case p.Terminal:
		p.Rewrite("%d/%d%s  %s", e.Done, e.Total, p.pace(e), strings.Join(e.Running, " "))
	case !e.Begins && e.Err == nil:
		p.Print("%d/%d  %s in %v%s", e.Done, e.Total, e.ID, round(e.Wall), p.pace(e))
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

func round(d time.Duration) time.Duration {
	if d >= 10*time.Second {
		return d.Round(time.Second)
	}
	return d.Round(10 * time.Millisecond)
}
