package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// followEvery is how often logs are looked at that are followed.
const followEvery = 200 * time.Millisecond

// Logs writes the last lines of the logs of some nodes' daemons, of all if none are named;
// lines of several begin with the node. With follow it goes on with what comes, until ctx
// ends.
func (l *Lab) Logs(ctx context.Context, out io.Writer, nodes []string, lines int, follow bool) (err error) {
	defer l.name(&err)
	if !l.IsUp() {
		return errDown
	}
	var known []string
	for _, n := range l.withDaemon() {
		known = append(known, n.Name)
	}
	if len(nodes) == 0 {
		nodes = known
	}
	var all []*tail
	for _, n := range nodes {
		if !slices.Contains(known, n) {
			return fmt.Errorf("%q has no daemon: %s have", n, strings.Join(known, ", "))
		}
		t := &tail{path: l.path(n + ".log")}
		if len(nodes) > 1 {
			t.prefix = fmt.Sprintf("%-*s  ", longest(nodes), n)
		}
		all = append(all, t)
	}
	for _, t := range all {
		if err := t.last(out, lines); err != nil {
			return err
		}
	}
	for follow {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(followEvery):
		}
		for _, t := range all {
			if err := t.more(out); err != nil {
				return err
			}
		}
	}
	return nil
}

func longest(names []string) (n int) {
	for _, s := range names {
		n = max(n, len(s))
	}
	return n
}

// tail is a log that is read on.
type tail struct {
	path, prefix string
	at           int64 // what has been read
	part         []byte
}

// last writes the last lines.
func (t *tail) last(out io.Writer, lines int) error {
	b, err := os.ReadFile(t.path)
	if err != nil {
		return err
	}
	t.at = int64(len(b))
	whole := bytes.SplitAfter(b, []byte("\n"))
	if n := len(whole); n > 0 && len(whole[n-1]) == 0 {
		whole = whole[:n-1]
	}
	return t.write(out, whole[max(0, len(whole)-lines):])
}

// more writes what has come since, by whole lines. A log that became shorter is another one.
func (t *tail) more(out io.Writer) error {
	f, err := os.Open(t.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil // the lab is being removed
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.Size() < t.at {
		t.at, t.part = 0, nil
	}
	b, err := io.ReadAll(io.NewSectionReader(f, t.at, 1<<30))
	if err != nil {
		return err
	}
	t.at += int64(len(b))
	b = append(t.part, b...)
	end := bytes.LastIndexByte(b, '\n') + 1
	t.part = slices.Clone(b[end:])
	whole := bytes.SplitAfter(b[:end], []byte("\n"))
	return t.write(out, whole[:len(whole)-1])
}

func (t *tail) write(out io.Writer, lines [][]byte) error {
	for _, line := range lines {
		if _, err := fmt.Fprintf(out, "%s%s\n", t.prefix, bytes.TrimSuffix(line, []byte("\n"))); err != nil {
			return err
		}
	}
	return nil
}
