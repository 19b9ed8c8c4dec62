package web

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// Bounds on files of snapshots.
const (
	maxLine  = 16 << 20
	maxNodes = 1024
	// maxRound is how far apart in time the snapshots of one frame may be.
	maxRound = time.Second
)

// play reads snapshots, one on each line and in the order of time, and writes the
// messages that a page would have got of them. Snapshots of different nodes that were
// taken together make one frame.
func play(in io.Reader, out func(message any) error) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, 64<<10), maxLine)
	m := newModel(nil)
	round := make(map[string]answer)
	var began time.Time
	flush := func() error {
		if len(round) == 0 {
			return nil
		}
		for _, message := range m.step(began, round) {
			if err := out(message); err != nil {
				return err
			}
		}
		clear(round)
		return nil
	}
	for n := 1; lines.Scan(); n++ {
		if len(lines.Bytes()) == 0 {
			continue
		}
		a := decode(lines.Bytes())
		if a.err != nil {
			return fmt.Errorf("line %d: %w", n, a.err)
		}
		s := a.snapshot
		at := time.Unix(0, s.Time)
		if len(m.nodes) > maxNodes {
			return fmt.Errorf("line %d: snapshots of more than %d nodes", n, maxNodes)
		}
		if s.Name == "" || at.Before(began) {
			return fmt.Errorf("line %d: a snapshot of %q at %v, after one at %v: sort the file by time_ns", n, s.Name, at.UTC(), began.UTC())
		}
		if _, again := round[s.Name]; again || at.Sub(began) > maxRound {
			if err := flush(); err != nil {
				return err
			}
		}
		if len(round) == 0 {
			began = at
		}
		round[s.Name] = a
	}
	if err := lines.Err(); err != nil {
		if errors.Is(err, bufio.ErrTooLong) {
			return fmt.Errorf("a line is longer than %d MiB: it is no snapshot", maxLine>>20)
		}
		return fmt.Errorf("read the snapshots: %w", err)
	}
	return flush()
}

// writeLines returns a writer of messages, one on each line.
func writeLines(w io.Writer) func(message any) error {
	return json.NewEncoder(w).Encode
}
