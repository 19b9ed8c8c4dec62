// Package status writes progress for people: on a terminal one line that is
// rewritten, elsewhere lines that stay.
package status

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Line is where a program says how far it has come. A nil Out is silent. It is not
// safe for concurrent use.
type Line struct {
	Out      io.Writer
	Terminal bool
	open     bool // a line that may be rewritten is not ended
}

// New returns a line on out, which may be a terminal.
func New(out io.Writer) *Line {
	l := &Line{Out: out}
	if f, ok := out.(*os.File); ok {
		_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
		l.Terminal = err == nil
	}
	return l
}

// Rewrite shows text until the next call, on a terminal.
func (l *Line) Rewrite(format string, args ...any) {
	if l.Out != nil && l.Terminal {
		fmt.Fprintf(l.Out, "\r\x1b[K"+format, args...)
		l.open = true
	}
}

// Print writes a line that stays, in the place of one that does not.
func (l *Line) Print(format string, args ...any) {
	if l.Out == nil {
		return
	}
	if l.open {
		fmt.Fprint(l.Out, "\r\x1b[K")
		l.open = false
	}
	fmt.Fprintf(l.Out, format+"\n", args...)
}

// End leaves what stands there.
func (l *Line) End() {
	if l.open {
		fmt.Fprintln(l.Out)
		l.open = false
	}
}
