package config

import (
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/token"
)

// Error is one mistake in a file: where it is, what it is and what to do.
type Error struct {
	File         string
	Line, Column int // from 1; 0 when the mistake has no place
	Problem      string
	Fix          string
	Source       string // the line's text
}

// Error gives place, problem and remedy, and shows the line with a mark under
// the column.
func (e Error) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", e.Line, e.Column)
	}
	fmt.Fprintf(&b, ": %s\n", e.Problem)
	if e.Line > 0 {
		gutter := fmt.Sprintf("%5d | ", e.Line)
		fmt.Fprintf(&b, "%s%s\n%s^\n", gutter, e.Source, strings.Repeat(" ", len(gutter)+e.Column-1))
	}
	fmt.Fprintf(&b, "  fix: %s", e.Fix)
	return b.String()
}

// Errors are all the mistakes that were found in a file.
type Errors []Error

// Error gives the mistakes one after the other.
func (e Errors) Error() string {
	s := make([]string, len(e))
	for i := range e {
		s[i] = e[i].Error()
	}
	return strings.Join(s, "\n")
}

// addAt reports a mistake at a token; nil stands for the whole file.
func (d *document) addAt(t *token.Token, problem, fix string) {
	e := Error{File: d.file, Problem: problem, Fix: fix}
	if t != nil && t.Position != nil {
		e.Line, e.Column = t.Position.Line, t.Position.Column
		if e.Line >= 1 && e.Line <= len(d.lines) {
			e.Source = strings.TrimRight(d.lines[e.Line-1], "\r")
		}
	}
	d.errs = append(d.errs, e)
}

// add reports a mistake at a path. A value that is not in the file is reported
// where the mapping or list stands that it belongs in.
func (d *document) add(path, problem, fix string) {
	d.addAt(d.token(path), problem, fix)
}

func (d *document) token(path string) *token.Token {
	for {
		if t, ok := d.at[path]; ok {
			return t
		}
		i := strings.LastIndexAny(path, ".[")
		if i < 0 {
			return nil // the file as a whole lacks it
		}
		path = path[:i]
	}
}

// line is where a path stands, for "already on line N".
func (d *document) line(path string) int {
	if t := d.token(path); t != nil {
		return t.Position.Line
	}
	return 0
}

// addYAML reports what the YAML library found.
func (d *document) addYAML(err error) {
	var ye yaml.Error
	if !errors.As(err, &ye) {
		d.addAt(nil, err.Error(), "see docs/config.md")
		return
	}
	fix := "see docs/config.md"
	var se *yaml.SyntaxError
	var de *yaml.DuplicateKeyError
	switch {
	case errors.As(err, &de):
		fix = "keep one of the two"
	case errors.As(err, &se) && strings.Contains(se.Message, "already defined"):
		fix = "keep one of the two"
	case errors.As(err, &se):
		fix = "this is not YAML; check indentation, colons and quotes"
	}
	d.addAt(ye.GetToken(), ye.GetMessage(), fix)
}
