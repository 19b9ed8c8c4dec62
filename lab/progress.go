package lab

import (
	"fmt"
	"io"
	"time"

	"github.com/loomfabric/loom/internal/status"
)

// progress tells people what goes on in a run.
type progress struct {
	*status.Line
	begun    time.Time
	received uint64
	at       time.Duration
	said     time.Duration
}

func newProgress(out io.Writer) *progress {
	return &progress{Line: status.New(out), begun: time.Now()}
}

// say reports a step.
func (p *progress) say(format string, args ...any) {
	p.Print("%6.1fs  %s", time.Since(p.begun).Seconds(), fmt.Sprintf(format, args...))
}

// step reports what is being done now; off a terminal only what takes long is worth a line,
// and nobody knows what will.
func (p *progress) step(format string, args ...any) {
	text := fmt.Sprintf("%6.1fs  %s", time.Since(p.begun).Seconds(), fmt.Sprintf(format, args...))
	if p.Terminal {
		p.Rewrite("%s ...", text)
	} else {
		p.Print("%s", text)
	}
}

// load reports how far the load has come; off a terminal once in five seconds.
func (p *progress) load(now, length time.Duration, received uint64) {
	if now <= p.at || now > length { // what comes after the end only drains
		return
	}
	rateNow := float64(received-p.received) * 8 / (now - p.at).Seconds()
	p.received, p.at = received, now
	line := fmt.Sprintf("%6.1fs  load: %.1f of %.0f s, %.0f Mbit/s", time.Since(p.begun).Seconds(), now.Seconds(), length.Seconds(), rateNow/1e6)
	switch {
	case p.Terminal:
		p.Rewrite("%s", line)
	case now-p.said >= 5*time.Second:
		p.said = now
		p.Print("%s", line)
	}
}
