// Package yamlfile is the one reader of the project's YAML files: it decodes them
// into structs and says of all that is wrong, at once, in which line it stands and
// what to do. It knows nothing of what the files are about.
package yamlfile

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Document is a YAML file: its tree, and what is wrong with it.
type Document struct {
	File string // its name in errors
	Help string // where the keys are documented: "docs/config.md"
	Errs Errors
	// Root is the tree; nil: there is none, and Errs says why.
	Root ast.Node

	lines   []string
	anchors map[string]ast.Node
}

// Source is the text of the file.
func (d *Document) Source() string { return strings.Join(d.lines, "\n") }

// Load reads a file. Files that cannot be read, too, are reported in Errs; what
// is the kind of file that the caller wants: "a fabric file".
func Load(path, help, what string) *Document {
	src, err := os.ReadFile(path)
	if err != nil {
		d := &Document{File: path, Help: help}
		d.addAt(nil, "", err.Error(), "give the path of "+what)
		return d
	}
	return Parse(path, help, src)
}

// Parse reads src; file is its name in errors, help says where its keys are
// documented.
func Parse(file, help string, src []byte) *Document {
	d := &Document{File: file, Help: help, lines: strings.Split(string(src), "\n")}
	f, err := parser.ParseBytes(src, 0)
	if err != nil {
		d.AddYAML(err)
		return d
	}
	var root ast.Node
	for _, doc := range f.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.CommentType {
			continue
		}
		if root != nil {
			d.addAt(doc.Body.GetToken(), "", "a second document in one file", "keep one document; remove the --- line")
			return d
		}
		root = doc.Body
	}
	if root == nil {
		d.addAt(nil, "", "the file is empty", "start from an example, "+d.help())
		return d
	}
	// No value here needs a tag, and the library ignores most of them.
	for _, n := range ast.Filter(ast.TagType, root) {
		d.addAt(n.GetToken(), "", fmt.Sprintf("a YAML tag (%s)", n.GetToken().Value), "write the value without it")
	}
	if len(d.Errs) > 0 {
		return d
	}
	d.anchors = make(map[string]ast.Node)
	for _, n := range ast.Filter(ast.AnchorType, root) {
		a := n.(*ast.AnchorNode)
		d.anchors[Text(a.Name)] = a.Value
	}
	d.Root = root
	return d
}

// Of returns the same file with another tree, and without mistakes.
func (d *Document) Of(root ast.Node) *Document {
	return &Document{File: d.File, Help: d.Help, Root: root, lines: d.lines, anchors: d.anchors}
}

// Has reports whether the file gives a value at a path such as vnis[1].hosts.
func (d *Document) Has(path string) bool {
	_, n := d.find(path)
	return n != nil && n.Type() != ast.NullType
}

// Line returns where a path stands, for "already on line N"; 0: nowhere.
func (d *Document) Line(path string) int {
	if t := d.token(path); t != nil && t.Position != nil {
		return t.Position.Line
	}
	return 0
}

// token returns where a path stands, or the nearest mapping or list above it.
func (d *Document) token(path string) *token.Token {
	for path != "" {
		if t, n := d.find(path); n != nil {
			return t
		}
		i := strings.LastIndexAny(path, ".[")
		if i < 0 {
			break // the file as a whole lacks it
		}
		path = path[:i]
	}
	return nil
}

// find returns the value at a path, and the token to point at: the key's for
// mappings and lists, not their bracket.
func (d *Document) find(path string) (at *token.Token, n ast.Node) {
	n = d.resolve(d.Root)
	if path == "" {
		return nil, n
	}
	for _, step := range strings.Split(strings.ReplaceAll(path, "[", ".["), ".") {
		if s, ok := n.(*ast.SequenceNode); ok {
			i, err := strconv.Atoi(strings.Trim(step, "[]"))
			if err != nil || i < 0 || i >= len(s.Values) {
				return nil, nil
			}
			n = d.resolve(s.Values[i])
			at = tokenOf(n)
			continue
		}
		pairs := d.pairs(n)
		i := slices.IndexFunc(pairs, func(p *ast.MappingValueNode) bool { return Text(p.Key) == step })
		if i < 0 {
			return nil, nil
		}
		n = d.resolve(pairs[i].Value)
		at = tokenOfPair(pairs[i], n)
	}
	return at, n
}

// tokenOfPair returns what to point at for a pair.
func tokenOfPair(p *ast.MappingValueNode, value ast.Node) *token.Token {
	if p.Key.Type() == ast.IntegerType { // a number that a map goes by
		return p.Key.GetToken()
	}
	switch value.(type) {
	case *ast.MappingNode, *ast.MappingValueNode, *ast.SequenceNode, *ast.NullNode:
		return p.Key.GetToken()
	}
	return value.GetToken()
}

// resolve follows an alias to what it stands for, and an anchor to its value.
func (d *Document) resolve(n ast.Node) ast.Node {
	for range 16 { // an alias may stand for an alias, but not for itself
		switch x := n.(type) {
		case *ast.AnchorNode:
			n = x.Value
		case *ast.AliasNode:
			n = d.anchors[Text(x.Value)]
		default:
			return n
		}
	}
	return nil
}

// pairs returns the keys and values of a mapping with those of the mappings that
// it merges in (<<), which its own win over.
func (d *Document) pairs(n ast.Node) []*ast.MappingValueNode {
	return d.merged(n, 16)
}

func (d *Document) merged(n ast.Node, depth int) (out []*ast.MappingValueNode) {
	if depth == 0 { // it merges itself in
		return nil
	}
	var below []*ast.MappingValueNode
	seen := make(map[string]bool)
	for _, p := range Pairs(d.resolve(n)) {
		if !p.Key.IsMergeKey() {
			out = append(out, p)
			seen[Text(p.Key)] = true
			continue
		}
		from := []ast.Node{p.Value}
		if list, ok := d.resolve(p.Value).(*ast.SequenceNode); ok {
			from = list.Values
		}
		for _, v := range from {
			below = append(below, d.merged(v, depth-1)...)
		}
	}
	for _, p := range below {
		if !seen[Text(p.Key)] {
			seen[Text(p.Key)] = true
			out = append(out, p)
		}
	}
	return out
}

// Pairs returns the keys and values of a mapping, which the parser has two kinds
// of; none if n is not one.
func Pairs(n ast.Node) []*ast.MappingValueNode {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}
	}
	return nil
}

// IsMapping reports whether a node is a mapping.
func IsMapping(n ast.Node) bool {
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return true
	}
	return false
}

// Text returns the text of a scalar or a key, without quotes.
func Text(n ast.Node) string {
	if t := n.GetToken(); t != nil {
		return t.Value
	}
	return n.String()
}

// tokenOf returns the token at which a node starts; nil if it comes from no file.
// A mapping's own token is the colon of its first pair, a sequence's its first dash.
func tokenOf(n ast.Node) *token.Token {
	if n == nil {
		return nil
	}
	if m, ok := n.(*ast.MappingNode); ok && len(m.Values) > 0 {
		return m.Values[0].Key.GetToken()
	}
	return n.GetToken()
}
