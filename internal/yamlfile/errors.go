package yamlfile

import (
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// Error is one mistake in a file: where it is, what it is and what to do.
type Error struct {
	File         string
	Line, Column int    // from 1; 0: the mistake has no place in the file
	Path         string // of the value, as in workloads[0].load; empty for YAML itself
	Problem      string
	Fix          string
	Source       string // the line's text
}

// Error gives place, problem and remedy, and shows the line with a mark under
// the column. The path stands in for a line that is not known.
func (e *Error) Error() string {
	var b strings.Builder
	if place := e.Place(); place != "" {
		b.WriteString(place + ": ")
	}
	b.WriteString(e.Problem + "\n")
	if e.Line > 0 && e.Source != "" {
		gutter := fmt.Sprintf("%5d | ", e.Line)
		fmt.Fprintf(&b, "%s%s\n%s^\n", gutter, e.Source, strings.Repeat(" ", len(gutter)+e.Column-1))
	}
	fmt.Fprintf(&b, "  fix: %s", e.Fix)
	return b.String()
}

// Place gives FILE:LINE:COLUMN; the path stands in for a line that is not known.
func (e *Error) Place() string {
	switch {
	case e.Line > 0:
		return fmt.Sprintf("%s:%d:%d", e.File, e.Line, e.Column)
	case e.File == "" || e.Path == "":
		return e.File + e.Path
	}
	return e.File + ": " + e.Path
}

// Errors are all the mistakes that were found in a file.
type Errors []*Error

// Error gives the mistakes one after the other.
func (e Errors) Error() string {
	s := make([]string, len(e))
	for i := range e {
		s[i] = e[i].Error()
	}
	return strings.Join(s, "\n")
}

// Or returns the mistakes as an error, nil if there is none.
func (e Errors) Or() error {
	if len(e) == 0 {
		return nil
	}
	return e
}

// Errorf adds a mistake at a path. The text has the form "problem; remedy".
func (e *Errors) Errorf(path, format string, args ...any) {
	problem, fix := cutRemedy(fmt.Sprintf(format, args...))
	*e = append(*e, &Error{Path: path, Problem: problem, Fix: fix})
}

// Add adds mistakes that others found.
func (e *Errors) Add(found Errors) { *e = append(*e, found...) }

// ErrorIf is [Errors.Errorf] for a mistake that may have been made. It reports
// whether it has.
func (e *Errors) ErrorIf(made bool, path, format string, args ...any) bool {
	if made {
		e.Errorf(path, format, args...)
	}
	return made
}

// OneOf adds a word that is not in a list as a mistake. What the word is for is part
// of the text: "profile". It reports whether the word is in the list.
func (e *Errors) OneOf(path, what, word string, words ...string) bool {
	_, err := Choose(what, word, words)
	return !e.ErrorIf(err != nil, path, "%v", err)
}

// cutRemedy parts "problem; remedy" at the last semicolon: what a file says may
// be quoted in the problem.
func cutRemedy(text string) (problem, fix string) {
	if i := strings.LastIndex(text, "; "); i >= 0 {
		return text[:i], text[i+2:]
	}
	return text, "correct it, or leave it out"
}

// addAt reports a mistake at a token; nil stands for the whole file.
func (d *Document) addAt(t *token.Token, path, problem, fix string) {
	d.Errs = append(d.Errs, d.place(t, &Error{Path: path, Problem: problem, Fix: fix}))
}

// place fills in where a mistake is; nil stands for the whole file.
func (d *Document) place(t *token.Token, e *Error) *Error {
	e.File = d.File
	if t != nil && t.Position != nil && t.Position.Line > 0 {
		e.Line, e.Column = t.Position.Line, t.Position.Column
		if e.Line <= len(d.lines) {
			e.Source = strings.TrimRight(d.lines[e.Line-1], "\r")
		}
	}
	return e
}

// Mistake returns a mistake at a path. The text has the form "problem; remedy".
func (d *Document) Mistake(path, format string, args ...any) *Error {
	problem, fix := cutRemedy(fmt.Sprintf(format, args...))
	return d.place(d.token(path), &Error{Path: path, Problem: problem, Fix: fix})
}

// AddAt reports a mistake at a node; nil stands for the whole file. The text has the
// form "problem; remedy".
func (d *Document) AddAt(n ast.Node, path, format string, args ...any) {
	problem, fix := cutRemedy(fmt.Sprintf(format, args...))
	d.addAt(tokenOf(n), path, problem, fix)
}

// Report adds mistakes that have a path and perhaps no place yet. A value that is not
// in the file is reported where the mapping or list stands that it belongs in.
func (d *Document) Report(found Errors) {
	for _, e := range found {
		if e.File == "" { // otherwise another file's, or placed already
			e = d.place(d.token(e.Path), e)
		}
		d.Errs = append(d.Errs, e)
	}
}

// AddYAML reports what the YAML library found.
func (d *Document) AddYAML(err error) {
	var ye yaml.Error
	if !errors.As(err, &ye) {
		problem, fix := cutRemedy(err.Error())
		d.addAt(nil, "", problem, fix)
		return
	}
	problem, fix := ye.GetMessage(), d.help()
	var se *yaml.SyntaxError
	var de *yaml.DuplicateKeyError
	switch {
	case errors.As(err, &de):
		fix = "keep one of the two"
	case errors.As(err, &se) && strings.Contains(se.Message, "already defined"):
		fix = "keep one of the two"
	case strings.Contains(problem, "; "):
		problem, fix = cutRemedy(problem)
	case errors.As(err, &se):
		fix = "this is not YAML; check indentation, colons and quotes"
	}
	d.addAt(ye.GetToken(), "", problem, fix)
}

func (d *Document) help() string {
	if d.Help == "" {
		return "correct it, or leave it out"
	}
	return "see " + d.Help
}
