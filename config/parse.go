package config

import (
	"encoding"
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// LoadLeaf reads leafd's file, fills in defaults and validates it. Interfaces
// are the names of the machine's network interfaces; nil skips the checks that
// need them. The error, if any, is an [Errors].
func LoadLeaf(file string, interfaces []string) (*Leaf, error) {
	src, err := os.ReadFile(file)
	if err != nil {
		return nil, Errors{{File: file, Problem: err.Error(), Fix: "give the path of a leafd configuration"}}
	}
	return ParseLeaf(file, src, interfaces)
}

// LoadSpine is [LoadLeaf] for spined's file.
func LoadSpine(file string, interfaces []string) (*Spine, error) {
	src, err := os.ReadFile(file)
	if err != nil {
		return nil, Errors{{File: file, Problem: err.Error(), Fix: "give the path of a spined configuration"}}
	}
	return ParseSpine(file, src, interfaces)
}

// ParseLeaf is [LoadLeaf] for a file's contents; file is its name in errors.
func ParseLeaf(file string, src []byte, interfaces []string) (*Leaf, error) {
	l := DefaultLeaf()
	d := newDocument(file, src)
	if d.decode(l); len(d.errs) == 0 {
		l.validate(d, interfaces)
	}
	if len(d.errs) > 0 {
		return nil, d.errs
	}
	l.fill(d)
	return l, nil
}

// ParseSpine is [LoadSpine] for a file's contents; file is its name in errors.
func ParseSpine(file string, src []byte, interfaces []string) (*Spine, error) {
	s := DefaultSpine()
	d := newDocument(file, src)
	if d.decode(s); len(d.errs) == 0 {
		s.validate(d, interfaces)
	}
	if len(d.errs) > 0 {
		return nil, d.errs
	}
	s.fill()
	return s, nil
}

// document is one YAML file: its text, where each of its nodes stands, and
// what is wrong with it.
type document struct {
	file  string
	lines []string
	src   []byte
	at    map[string]*token.Token // by path, as in "vnis[1].flood[0]"
	errs  Errors
}

func newDocument(file string, src []byte) *document {
	return &document{
		file: file, src: src,
		lines: strings.Split(string(src), "\n"),
		at:    make(map[string]*token.Token),
	}
}

// decode fills the struct that v points to. It checks keys and scalars on the
// syntax tree first, so that every such mistake is reported, not only the
// first.
func (d *document) decode(v any) {
	f, err := parser.ParseBytes(d.src, 0)
	if err != nil {
		d.addYAML(err)
		return
	}
	var body ast.Node
	for _, doc := range f.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.CommentType {
			continue
		}
		if body != nil {
			d.addAt(doc.Body.GetToken(), "a second document in one file", "keep one document; remove the --- line")
			return
		}
		body = doc.Body
	}
	if body == nil {
		d.addAt(nil, "the file is empty", "start from the example in deploy/examples")
		return
	}
	// The decoder panics on some tags, and no value here needs one.
	for _, n := range ast.Filter(ast.TagType, body) {
		d.addAt(n.GetToken(), fmt.Sprintf("a YAML tag (%s)", n.GetToken().Value), "write the value without it")
	}
	if len(d.errs) > 0 {
		return
	}
	if d.walk("", body, reflect.TypeOf(v).Elem()); len(d.errs) > 0 {
		return
	}
	if err := yaml.UnmarshalWithOptions(d.src, v, yaml.Strict()); err != nil {
		d.addYAML(err)
	}
}

var (
	textType      = reflect.TypeFor[encoding.TextUnmarshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
)

// walk records where the nodes stand, and holds keys and scalars against t.
func (d *document) walk(path string, n ast.Node, t reflect.Type) {
	switch x := n.(type) {
	case *ast.AnchorNode:
		d.walk(path, x.Value, t)
		return
	case *ast.AliasNode, *ast.NullNode:
		d.at[path] = n.GetToken()
		return // checked where the anchor stands; nothing to check
	}
	if _, ok := d.at[path]; !ok {
		d.at[path] = n.GetToken()
	}
	if reflect.PointerTo(t).Implements(textType) {
		d.scalar(n, t)
		return
	}
	switch x := n.(type) {
	case *ast.MappingNode:
		for _, kv := range x.Values {
			d.pair(path, kv, t)
		}
	case *ast.MappingValueNode:
		d.pair(path, x, t)
	case *ast.SequenceNode:
		if t.Kind() != reflect.Slice {
			d.addAt(n.GetToken(), label(path)+" is not a list", "write a single value")
			return
		}
		for i, e := range x.Values {
			d.walk(path+"["+strconv.Itoa(i)+"]", e, t.Elem())
		}
	default:
		d.plain(path, n, t)
	}
}

// pair checks one key of a mapping and goes on with its value.
func (d *document) pair(path string, kv *ast.MappingValueNode, t reflect.Type) {
	key, tok := kv.Key.GetToken().Value, kv.Key.GetToken()
	switch t.Kind() {
	case reflect.Map:
		if path += "." + key; d.at[path] == nil {
			d.at[path] = tok
		}
		d.walk(path, kv.Value, t.Elem())
	case reflect.Struct:
		if kv.Key.IsMergeKey() {
			return
		}
		fields := keysOf(t)
		ft, ok := fields.types[key]
		if !ok {
			fix := "the keys here are " + orList(fields.names)
			if near := nearest(key, fields.names); near != "" {
				fix = fmt.Sprintf("did you mean %q? %s", near, fix)
			}
			d.addAt(tok, fmt.Sprintf("unknown key %q", key), fix)
			return
		}
		p := strings.TrimPrefix(path+"."+key, ".")
		switch kv.Value.(type) {
		case *ast.MappingNode, *ast.MappingValueNode, *ast.SequenceNode, *ast.NullNode:
			d.at[p] = tok // point at the key, not at a bracket
		}
		d.walk(p, kv.Value, ft)
	default:
		d.addAt(tok, label(path)+" is not a mapping", "write a single value or a list, see docs/config.md")
	}
}

// scalar reads a value that has a text form of its own.
func (d *document) scalar(n ast.Node, t reflect.Type) {
	s, ok := n.(ast.ScalarNode)
	if !ok {
		d.addAt(n.GetToken(), "a mapping or list where a single value belongs", "see docs/config.md")
		return
	}
	v := reflect.New(t).Interface().(encoding.TextUnmarshaler)
	err := v.UnmarshalText([]byte(s.GetToken().Value))
	if err == nil {
		return
	}
	problem, fix, ok := strings.Cut(err.Error(), "; ")
	if !ok {
		fix = "write an address as in 10.255.0.1" // netip's own errors have no remedy
	}
	d.addAt(n.GetToken(), problem, fix)
}

// plain checks that a value of one of Go's own types can be one.
func (d *document) plain(path string, n ast.Node, t reflect.Type) {
	v := reflect.New(t)
	err := yaml.NodeToValue(n, v.Interface())
	if err == nil {
		return
	}
	want := map[reflect.Kind]string{
		reflect.Slice: "a list", reflect.Map: "a mapping", reflect.Struct: "a mapping", reflect.Bool: "true or false",
		reflect.String: "text", reflect.Float64: "a number", reflect.Int: "a whole number",
	}[t.Kind()]
	if want == "" {
		want = fmt.Sprintf("a whole number from 0 to %d", uint64(1)<<t.Bits()-1)
	}
	d.addAt(n.GetToken(), fmt.Sprintf("%s is %q", label(path), n.GetToken().Value), "write "+want)
}

func label(path string) string {
	if path == "" {
		return "the file"
	}
	return path
}

// keys are the YAML keys of a struct, in the order of its fields.
type keys struct {
	names []string
	types map[string]reflect.Type
}

func keysOf(t reflect.Type) keys {
	k := keys{types: make(map[string]reflect.Type)}
	for i := range t.NumField() {
		f := t.Field(i)
		name, opts, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if opts == "inline" {
			in := keysOf(f.Type)
			k.names = append(k.names, in.names...)
			for n, ft := range in.types {
				k.types[n] = ft
			}
			continue
		}
		k.names = append(k.names, name)
		k.types[name] = f.Type
	}
	return k
}

// nearest is the name that a mistyped key most likely means: at most two
// edits away, or a part of it.
func nearest(key string, names []string) string {
	best, bestDist := "", 3
	for _, n := range names {
		dist := distance(strings.ToLower(key), n)
		if len(key) > 2 && (strings.Contains(n, key) || strings.Contains(key, n)) {
			dist = min(dist, 2)
		}
		if dist < bestDist && dist < len(n) {
			best, bestDist = n, dist
		}
	}
	return best
}

// distance is the Levenshtein distance.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		prev := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := prev
			if a[i] != b[j] {
				cost++
			}
			prev, row[j+1] = row[j+1], min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
