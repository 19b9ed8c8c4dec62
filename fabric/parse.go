package fabric

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Error is one thing that is wrong with a fabric file.
type Error struct {
	File string
	Line int // 1-based; 0: the file as a whole
	Path string
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

// Load reads and checks the file at path.
func Load(path string) (*File, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("fabric file: %w", err)
	}
	return Parse(path, data)
}

// Parse checks data, fills in defaults and returns the model. name stands in
// for the file in errors. All errors of validation come at once, joined; each
// is an [*Error].
func Parse(name string, data []byte) (*File, error) {
	doc, err := parser.ParseBytes(data, 0)
	if err != nil {
		return nil, yamlError(name, err)
	}
	for _, d := range doc.Docs {
		var tags tagFinder
		ast.Walk(&tags, d)
		if tags.found != nil {
			return nil, yamlError(name, &yaml.SyntaxError{Message: "YAML tags have no place here", Token: tags.found})
		}
	}
	f := &File{}
	dec := yaml.NewDecoder(bytes.NewReader(data), yaml.Strict())
	if err := dec.Decode(f); err != nil {
		return nil, yamlError(name, err)
	}
	f.setDefaults()
	v := &validator{file: f, name: name, doc: doc}
	v.run()
	if err := errors.Join(v.errs...); err != nil {
		return nil, err
	}
	return f, nil
}

// tagFinder looks for a tag. The decoder ignores most, and panics when one of
// them turns a list into something else.
type tagFinder struct{ found *token.Token }

// Visit implements [ast.Visitor].
func (f *tagFinder) Visit(n ast.Node) ast.Visitor {
	if t, ok := n.(*ast.TagNode); ok && f.found == nil {
		f.found = t.GetToken()
	}
	return f
}

// yamlError brings a decoder's error into the form of [Error].
func yamlError(name string, err error) error {
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

// lineOf finds the line of a YAML path such as vnis[1].hosts, or of the nearest
// parent that the file has.
func lineOf(doc *ast.File, path string) int {
	for path != "" {
		if p, err := yaml.PathString("$." + path); err == nil {
			if n, err := p.FilterFile(doc); err == nil && n != nil {
				return firstLine(n)
			}
		}
		cut := strings.LastIndexAny(path, ".[")
		if cut < 0 {
			return 0
		}
		path = path[:cut]
	}
	return 0
}

// firstLine is the line on which a node starts. A mapping's own token is the
// colon of its first pair, a sequence's its first dash.
func firstLine(n ast.Node) int {
	var t *token.Token = n.GetToken()
	if m, ok := n.(*ast.MappingNode); ok && len(m.Values) > 0 {
		t = m.Values[0].Key.GetToken()
	}
	if t == nil || t.Position == nil {
		return 0
	}
	return t.Position.Line
}
