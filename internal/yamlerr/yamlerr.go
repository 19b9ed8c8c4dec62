// Package yamlerr reads YAML so that whatever is wrong can be said with file and
// line: it parses, brings errors into one form and finds where a path stands.
package yamlerr

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Error is one thing that is wrong with a file.
type Error struct {
	File string
	Line int    // 1-based; 0: the file as a whole
	Path string // of the value, as in workloads[0].load; empty for YAML itself
	Msg  string
}

// Error writes file:line: path: message.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d", e.Line)
	}
	b.WriteString(": ")
	if e.Path != "" {
		b.WriteString(e.Path + ": ")
	}
	b.WriteString(e.Msg)
	return b.String()
}

// Parse reads data; name stands in for the file in errors, which are [*Error].
// YAML tags are refused: the decoder ignores most, and panics when one of them
// turns a list into something else.
func Parse(name string, data []byte) (*ast.File, error) {
	doc, err := parser.ParseBytes(data, 0)
	if err != nil {
		return nil, Wrap(name, err)
	}
	for _, d := range doc.Docs {
		var tags tagFinder
		ast.Walk(&tags, d)
		if tags.found != nil {
			return nil, Wrap(name, &yaml.SyntaxError{Message: "YAML tags have no place here", Token: tags.found})
		}
	}
	return doc, nil
}

// tagFinder looks for a tag.
type tagFinder struct{ found *token.Token }

// Visit implements [ast.Visitor].
func (f *tagFinder) Visit(n ast.Node) ast.Visitor {
	if t, ok := n.(*ast.TagNode); ok && f.found == nil {
		f.found = t.GetToken()
	}
	return f
}

// Wrap brings a parser's or decoder's error into the form of [Error].
func Wrap(name string, err error) error {
	var ye yaml.Error
	if !errors.As(err, &ye) {
		return &Error{File: name, Msg: err.Error()}
	}
	e := &Error{File: name, Msg: ye.GetMessage()}
	if t := ye.GetToken(); t != nil && t.Position != nil {
		e.Line = t.Position.Line
	}
	return e
}

// LineOf finds the line of a path such as vnis[1].hosts below root, or of the
// nearest parent that is there; 0 if none is.
func LineOf(root ast.Node, path string) int {
	line := 0
	for n, rest := root, path; rest != "" && n != nil; {
		key, tail, index := cut(rest)
		if index >= 0 {
			n = item(n, index)
		} else {
			n = value(n, key)
		}
		if n != nil {
			line = Line(n)
		}
		rest = tail
	}
	return line
}

// cut takes the first step off a path: a key, or a position (index ≥ 0).
func cut(path string) (key, rest string, index int) {
	if inner, ok := strings.CutPrefix(path, "["); ok {
		number, rest, _ := strings.Cut(inner, "]")
		if i, err := strconv.Atoi(number); err == nil && i >= 0 {
			return "", strings.TrimPrefix(rest, "."), i
		}
		return path, "", -1
	}
	end := strings.IndexAny(path, ".[")
	if end < 0 {
		return path, "", -1
	}
	return path[:end], strings.TrimPrefix(path[end:], "."), -1
}

// Pairs are the keys and values of a mapping, of which the parser has two kinds;
// none if n is not one.
func Pairs(n ast.Node) []*ast.MappingValueNode {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}
	}
	return nil
}

// Text is the text of a scalar or a key, without quotes.
func Text(n ast.Node) string {
	if t := n.GetToken(); t != nil {
		return t.Value
	}
	return n.String()
}

func value(n ast.Node, key string) ast.Node {
	for _, p := range Pairs(n) {
		if Text(p.Key) == key {
			return p.Value
		}
	}
	return nil
}

func item(n ast.Node, index int) ast.Node {
	if s, ok := n.(*ast.SequenceNode); ok && index < len(s.Values) {
		return s.Values[index]
	}
	return nil
}

// Line is the line on which a node starts; 0 if it comes from no file. A mapping's
// own token is the colon of its first pair, a sequence's its first dash.
func Line(n ast.Node) int {
	t := n.GetToken()
	if m, ok := n.(*ast.MappingNode); ok && len(m.Values) > 0 {
		t = m.Values[0].Key.GetToken()
	}
	if t == nil || t.Position == nil {
		return 0
	}
	return t.Position.Line
}
