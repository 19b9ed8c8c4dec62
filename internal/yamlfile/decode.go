package yamlfile

import (
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"github.com/loomfabric/loom/internal/units"
)

// Node is a value of a file that is decoded later, when it is known what to. A
// field of a type with a method Capture(Node) is given one.
type Node struct {
	doc  *Document
	path string
	node ast.Node
}

// Capturer is a type that keeps a value of a file until it is known what it is.
type Capturer interface{ Capture(Node) }

// Capture keeps the node itself.
func (n *Node) Capture(from Node) { *n = from }

// Decode fills what v points to with the value. It returns what is wrong.
func (n Node) Decode(v any) Errors {
	d := n.doc.Of(n.doc.Root)
	d.value(n.path, n.node, reflect.ValueOf(v).Elem())
	return d.Errs
}

// Get returns what stands under a key, if the value is a mapping that has it.
func (n Node) Get(key string) (Node, bool) {
	for _, p := range n.doc.pairs(n.node) {
		if Text(p.Key) == key {
			v := n.doc.resolve(p.Value)
			return Node{n.doc, join(n.path, key), v}, v != nil && v.Type() != ast.NullType
		}
	}
	return Node{}, false
}

// Given reports whether the value is a mapping that has a key.
func (n Node) Given(key string) bool {
	_, ok := n.Get(key)
	return ok
}

// Errorf returns a mistake at a key of the value, "": at the value itself. The text
// has the form "problem; remedy".
func (n Node) Errorf(key, format string, args ...any) *Error {
	path := n.path
	if key != "" {
		path += "." + key
	}
	return n.doc.Mistake(strings.TrimPrefix(path, "."), format, args...)
}

// Any returns the value as the YAML library decodes it.
func (n Node) Any() any {
	var v any
	if err := yaml.NodeToValue(n.doc.resolve(n.node), &v); err != nil {
		return nil // it has been parsed, so it can be decoded
	}
	return v
}

// Decode fills what v points to. What the file leaves out, or gives as null,
// stays as it is.
func (d *Document) Decode(v any) {
	if d.Root != nil {
		d.value("", d.Root, reflect.ValueOf(v).Elem())
	}
}

var (
	textType     = reflect.TypeFor[encoding.TextUnmarshaler]()
	captureType  = reflect.TypeFor[Capturer]()
	nodeType     = reflect.TypeFor[yaml.NodeUnmarshaler]()
	durationType = reflect.TypeFor[time.Duration]()
)

// Worded is a list for which a word can stand. It is then empty, and not nil; one that
// says nothing is nil.
type Worded interface{ Word() string }

// value decodes a node into v.
func (d *Document) value(path string, n ast.Node, v reflect.Value) {
	at := n
	if n = d.resolve(n); n == nil {
		d.addAt(tokenOf(at), path, "an alias that stands for nothing", "define the anchor, or write the value")
		return
	}
	if n.Type() == ast.NullType {
		return
	}
	switch p := v.Addr(); {
	case p.Type().Implements(captureType):
		p.Interface().(Capturer).Capture(Node{d, path, n})
	case p.Type().Implements(nodeType):
		if err := p.Interface().(yaml.NodeUnmarshaler).UnmarshalYAML(n); err != nil {
			d.AddYAML(err)
		}
	case v.Type() == durationType:
		d.scalar(path, n, func(b []byte) error {
			t, err := units.ParseDuration(string(b))
			v.SetInt(int64(t))
			return err
		})
	case p.Type().Implements(textType):
		d.scalar(path, n, p.Interface().(encoding.TextUnmarshaler).UnmarshalText)
	default:
		d.kind(path, n, v)
	}
}

// kind decodes into one of Go's own types.
func (d *Document) kind(path string, n ast.Node, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		d.value(path, n, v.Elem())
	case reflect.Struct, reflect.Map:
		switch {
		case IsMapping(n) && v.Kind() == reflect.Struct:
			d.structure(path, n, v)
		case IsMapping(n):
			d.mapping(path, n, v)
		default:
			d.wrong(path, n, v)
		}
	case reflect.Slice:
		s, ok := n.(*ast.SequenceNode)
		w, worded := v.Interface().(Worded)
		if !ok && worded && n.Type() == ast.StringType && n.GetToken().Value == w.Word() {
			v.Set(reflect.MakeSlice(v.Type(), 0, 0))
			return
		}
		if !ok {
			d.wrong(path, n, v)
			return
		}
		if worded && len(s.Values) == 0 {
			v.SetZero()
			return
		}
		out := reflect.MakeSlice(v.Type(), len(s.Values), len(s.Values))
		for i, e := range s.Values {
			d.value(path+"["+strconv.Itoa(i)+"]", e, out.Index(i))
		}
		v.Set(out)
	default:
		if IsMapping(n) || n.Type() == ast.SequenceType && v.Kind() != reflect.Interface {
			d.wrong(path, n, v)
		} else if err := yaml.NodeToValue(n, v.Addr().Interface()); err != nil {
			d.wrong(path, n, v)
		}
	}
}

// wrong reports a value of another shape than v's.
func (d *Document) wrong(path string, n ast.Node, v reflect.Value) {
	label := path
	if label == "" {
		label = "the file"
	}
	problem := fmt.Sprintf("%s is %q", label, n.GetToken().Value)
	if IsMapping(n) {
		problem = label + " is not a mapping"
	} else if n.Type() == ast.SequenceType {
		problem = label + " is not a list"
	}
	d.addAt(tokenOf(n), path, problem, "write "+wanted(v.Type()))
}

func wanted(t reflect.Type) string {
	switch k := t.Kind(); k {
	case reflect.Slice:
		if w, ok := reflect.Zero(t).Interface().(Worded); ok {
			return "a list, or " + w.Word()
		}
		return "a list"
	case reflect.Map, reflect.Struct:
		return "a mapping"
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "text"
	case reflect.Float64:
		return "a number"
	case reflect.Int:
		return "a whole number"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return fmt.Sprintf("a whole number from 0 to %d", uint64(1)<<t.Bits()-1)
	}
	return "a single value"
}

// structure decodes a mapping into a struct: first the keys that the type has, on
// which those of its open parts depend.
func (d *Document) structure(path string, n ast.Node, v reflect.Value) {
	k := keysOf(v.Type())
	var rest []*ast.MappingValueNode
	for _, p := range d.pairs(n) {
		if f, ok := k.find(Text(p.Key)); ok {
			d.value(join(path, f.Key), p.Value, v.FieldByIndex(f.Index))
		} else {
			rest = append(rest, p)
		}
	}
	for _, p := range rest {
		key := Text(p.Key)
		if to := k.extra(v, key); to != nil {
			d.value(join(path, key), p.Value, reflect.ValueOf(to).Elem())
			continue
		}
		var old map[string]string
		if r, ok := v.Interface().(Renamed); ok {
			old = r.OldKeys()
		}
		problem, fix := Unknown(key, old, k.names(v))
		d.addAt(p.Key.GetToken(), join(path, key), problem, fix)
	}
}

// Unknown returns what to say of a key that a struct does not have.
func Unknown(key string, old map[string]string, names []string) (problem, fix string) {
	if now, ok := old[key]; ok {
		return fmt.Sprintf("%q has another name now", key), "write " + now
	}
	if snake := strings.ReplaceAll(key, "-", "_"); snake != key && slices.Contains(names, snake) {
		return fmt.Sprintf("%q is spelled %s now", key, snake), "write " + snake
	}
	fix = "the keys here are " + OrList(names)
	if near := Nearest(key, names); near != "" {
		fix = fmt.Sprintf("did you mean %q? %s", near, fix)
	}
	return fmt.Sprintf("unknown key %q", key), fix
}

// mapping decodes a mapping into a map.
func (d *Document) mapping(path string, n ast.Node, v reflect.Value) {
	if v.IsNil() {
		v.Set(reflect.MakeMap(v.Type()))
	}
	for _, p := range d.pairs(n) {
		at := join(path, Text(p.Key))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		before := len(d.Errs)
		d.value(at, p.Key, key)
		d.value(at, p.Value, value)
		if len(d.Errs) == before {
			v.SetMapIndex(key, value)
		}
	}
}

// scalar decodes a value that has a text form of its own.
func (d *Document) scalar(path string, n ast.Node, read func([]byte) error) {
	s, ok := n.(ast.ScalarNode)
	if !ok {
		d.addAt(tokenOf(n), path, "a mapping or list where a single value belongs", d.help())
		return
	}
	err := read([]byte(s.GetToken().Value))
	if err == nil {
		return
	}
	problem, fix, ok := strings.Cut(err.Error(), "; ")
	if !ok {
		fix = "write an address as in 10.255.0.1" // netip's own errors have no remedy
	}
	d.addAt(n.GetToken(), path, problem, fix)
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
