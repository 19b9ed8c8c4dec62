package experiment

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/loomfabric/loom/internal/yamlfile"
)

// Overrides are merged as YAML, not as decoded values, so that what is left out
// differs from what is zero, and so that an error in the merged run still names the
// line that the value came from.
//
// The rules: a mapping is merged key by key; anything else, a list too, replaces
// what was there; null removes it, so that the default holds again. A key may be a
// path (topology.leaves, workloads[0].load or, the same, workloads.0.load), which
// reaches into mappings and into lists that are there already. Keys apply in the
// order of the file.

// merge puts over on top of base; either may be nil. Neither is changed.
func merge(base, over ast.Node) (ast.Node, error) {
	switch over := over.(type) {
	case nil:
		return base, nil
	case *ast.NullNode:
		return nil, nil
	case *ast.SequenceNode:
		return plainList(over)
	case *ast.MappingNode, *ast.MappingValueNode:
		if len(yamlfile.Pairs(base)) == 0 {
			base = emptyMapping(over)
		}
		for _, p := range yamlfile.Pairs(over) {
			steps, err := parsePath(p.Key)
			if err != nil {
				return nil, err
			}
			if base, err = put(base, steps, p.Key, p.Value); err != nil {
				return nil, err
			}
		}
		return base, nil
	}
	return over, nil
}

// plainList resolves path keys in the mappings of a list.
func plainList(list *ast.SequenceNode) (ast.Node, error) {
	out := copyList(list)
	for i, v := range list.Values {
		if _, isNull := v.(*ast.NullNode); isNull {
			continue // a list's null is an item; the decoder judges it
		}
		var err error
		if out.Values[i], err = merge(nil, v); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func copyList(list *ast.SequenceNode) *ast.SequenceNode {
	out := ast.Sequence(list.Start, list.IsFlowStyle)
	out.Values = slices.Clone(list.Values)
	return out
}

// emptyMapping is one with the token that like has: the decoder refuses unknown
// keys only of mappings that have one.
func emptyMapping(like ast.Node) *ast.MappingNode {
	t := token.New(":", ":", &token.Position{})
	if like != nil && like.GetToken() != nil {
		t = like.GetToken()
	}
	return ast.Mapping(t, false)
}

// pathRE is what a key may be; in a list positions are keys, too, for {}, where YAML
// has no room for [0].
var pathRE = regexp.MustCompile(`^[^.\[\]]+(\[\d+\]|\.[^.\[\]]+)*$`)

// parsePath splits a key such as workloads[0].load.
func parsePath(key ast.Node) ([]string, error) {
	text := yamlfile.Text(key)
	if !pathRE.MatchString(text) {
		return nil, nodeError(key, "%q is not made of keys and positions; write it as in topology.leaves or workloads[0].load, 0 is the first", text)
	}
	return strings.Split(strings.NewReplacer("[", ".", "]", "").Replace(text), "."), nil
}

// put merges v into n at the path; key is what the path was read from.
func put(n ast.Node, path []string, key, v ast.Node) (ast.Node, error) {
	if len(path) == 0 {
		return merge(n, v)
	}
	text := yamlfile.Text(key)
	at, noPosition := strconv.ParseUint(path[0], 10, 16)
	switch n := n.(type) {
	case *ast.SequenceNode:
		switch {
		case noPosition != nil:
			return nil, nodeError(key, "%q: %s is no position in a list; write a number, 0 is the first", text, path[0])
		case int(at) >= len(n.Values):
			return nil, nodeError(key, "%q is item %d of a list of %d; use a smaller position", text, at, len(n.Values))
		}
		out := copyList(n)
		changed, err := put(n.Values[at], path[1:], key, v)
		if err == nil && changed == nil {
			err = nodeError(key, "%q removes an item of a list; give the whole list", text)
		}
		out.Values[at] = changed
		return out, err
	case *ast.MappingNode:
		return putKey(n, path[0], path[1:], key, v)
	case nil:
		if noPosition != nil {
			return putKey(emptyMapping(key), path[0], path[1:], key, v)
		}
		return nil, nodeError(key, "%q: there is no list to take item %d of; give the whole list", text, at)
	}
	return nil, nodeError(key, "%q: what stands before %s has no keys; give the whole mapping", text, path[0])
}

func putKey(m *ast.MappingNode, name string, rest []string, key, v ast.Node) (ast.Node, error) {
	out := ast.Mapping(m.Start, false)
	out.Values = slices.Clone(m.Values)
	at := slices.IndexFunc(out.Values, func(p *ast.MappingValueNode) bool { return yamlfile.Text(p.Key) == name })
	var old ast.Node
	if at >= 0 {
		old = out.Values[at].Value
	}
	changed, err := put(old, rest, key, v)
	switch {
	case err != nil:
		return nil, err
	case changed == nil && at >= 0:
		out.Values = slices.Delete(out.Values, at, at+1)
	case changed == nil:
	case at >= 0:
		out.Values[at] = pair(key, name, changed)
	default:
		out.Values = append(out.Values, pair(key, name, changed))
	}
	return out, nil
}

// pair is name: value, said to stand where key does.
func pair(key ast.Node, name string, value ast.Node) *ast.MappingValueNode {
	t := token.New(name, name, &token.Position{})
	if k := key.GetToken(); k != nil && k.Position != nil {
		t.Position = k.Position
	}
	return ast.MappingValue(t, ast.String(t), value)
}

// override is a mapping with one value under several keys.
func override(value ast.Node, keys ...ast.Node) ast.Node {
	m := emptyMapping(value)
	for _, key := range keys {
		m.Values = append(m.Values, pair(key, yamlfile.Text(key), value))
	}
	return m
}

// scalar is a value that comes from no file, as a file would have it.
func scalar(text string) ast.Node {
	n := yamlfile.Parse("", "", []byte(text)).Root
	n.GetToken().Position.Line = 0
	return n
}

// find returns what a mapping has under a key; nil if there is none.
func find(n ast.Node, key string) ast.Node {
	for _, p := range yamlfile.Pairs(n) {
		if yamlfile.Text(p.Key) == key {
			return p.Value
		}
	}
	return nil
}

// textOf returns the text under a key; "" if there is none.
func textOf(n ast.Node, key string) string {
	if v := find(n, key); v != nil {
		return yamlfile.Text(v)
	}
	return ""
}

// nodeError is an error at a node's line.
func nodeError(n ast.Node, format string, args ...any) error {
	return &yaml.SyntaxError{Message: fmt.Sprintf(format, args...), Token: n.GetToken()}
}
