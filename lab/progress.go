package lab

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// progress tells people what goes on: one line that is rewritten on a terminal,
// plain and fewer lines elsewhere. A nil file is silent.
type progress struct {
	out      *os.File
	terminal bool
	open     bool // the current line is not ended
	begun    time.Time
	received uint64
	at       time.Duration
	said     time.Duration
}

func newProgress(out *os.File) *progress {
	p := &progress{out: out, begun: time.Now()}
	if out != nil {
		_, err := unix.IoctlGetTermios(int(out.Fd()), unix.TCGETS)
		p.terminal = err == nil
	}
	return p
}

// say reports a step.
func (p *progress) say(format string, args ...any) {
	if p.out == nil {
		return
	}
	p.end()
	fmt.Fprintf(p.out, "%6.1fs  %s\n", time.Since(p.begun).Seconds(), fmt.Sprintf(format, args...))
}

// load reports how far the load has come; off a terminal once in five seconds.
func (p *progress) load(now, length time.Duration, received uint64) {
	if p.out == nil || now <= p.at || now > length { // what comes after the end only drains
		return
	}
	rateNow := float64(received-p.received) * 8 / (now - p.at).Seconds()
	p.received, p.at = received, now
	line := fmt.Sprintf("%6.1fs  load: %.1f of %.0f s, %.0f Mbit/s", time.Since(p.begun).Seconds(), now.Seconds(), length.Seconds(), rateNow/1e6)
	switch {
	case p.terminal:
		fmt.Fprintf(p.out, "\r\x1b[K%s", line)
		p.open = true
	case now-p.said >= 5*time.Second:
		p.said = now
		fmt.Fprintln(p.out, line)
	}
}

// end finishes an open line.
func (p *progress) end() {
	if p.open {
		fmt.Fprintln(p.out)
		p.open = false
	}
}
