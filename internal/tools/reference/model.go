package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"net/netip"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/config"
	"github.com/loomfabric/loom/config/fabric"
	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/internal/units"
	"github.com/loomfabric/loom/internal/yamlfile"
	"github.com/loomfabric/loom/sim"
)

const module = "github.com/loomfabric/loom/"

// files are the kinds of files, in the order of the page.
var files = []struct {
	name, title, doc string
	is               reflect.Type
}{
	{"leafd", "leafd", "The file of a leaf's daemon. What sections leave out has its value of profile datacenter.", reflect.TypeFor[config.Leaf]()},
	{"spined", "spined", "The file of a spine's daemon.", reflect.TypeFor[config.Spine]()},
	{"fabric", "fabric.yaml", "A fabric for [loomlab](lab.md). What sections leave out has its value of profile lab.", reflect.TypeFor[fabric.File]()},
	{"experiment", "experiments", "The model of a run of [loomsim](loomsim.md#the-file), where an experiment's other keys are explained. What sections leave out " +
		"has its value of profile datacenter; for topology.kind file, of profile lab.", reflect.TypeFor[sim.Spec]()},
}

// comments are doc comments by package, type and field: "config.Leaf.VTEP".
type comments map[string]string

func readComments(root string, dirs ...string) (comments, error) {
	c := make(comments)
	for _, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
		if err != nil {
			return nil, err
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
			if err != nil {
				return nil, err
			}
			c.add(dir, f)
		}
		if len(files) == 0 {
			return nil, fmt.Errorf("%s: %w", dir, fs.ErrNotExist)
		}
	}
	return c, nil
}

func (c comments) add(dir string, f *ast.File) {
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.TYPE {
			continue
		}
		for _, s := range g.Specs {
			ts := s.(*ast.TypeSpec)
			at := dir + "." + ts.Name.Name
			c[at] = plain(g.Doc)
			if st, ok := ts.Type.(*ast.StructType); ok {
				for _, fl := range st.Fields.List {
					for _, n := range fl.Names {
						c[at+"."+n.Name] = plain(fl.Doc)
					}
				}
			}
		}
	}
}

var links = regexp.MustCompile(`\[([A-Za-z.]+)\]`)

// plain returns the first paragraph of a comment; what follows is for those who
// read the code.
func plain(g *ast.CommentGroup) string {
	first, _, _ := strings.Cut(g.Text(), "\n\n")
	return links.ReplaceAllString(strings.Join(strings.Fields(first), " "), "$1")
}

// of returns the comment of a type, or of a field of it.
func (c comments) of(t reflect.Type, field string) string {
	key := strings.TrimPrefix(t.PkgPath(), module) + "." + t.Name()
	if field != "" {
		key += "." + field
	}
	return c[key]
}

// row is a key, what it means and what its value is.
type row struct {
	key  string
	doc  string
	is   reflect.Type // of the value; nil: section is
	of   *balance.Section
	enum []string // words that the value is one of
	// value is what a struct has by default, if that is known.
	value reflect.Value
}

// rows returns the keys of a struct: those of its fields and, behind the scheme and
// at the end, those of schemes.
func (c comments) rows(t reflect.Type) (out []row) {
	v := reflect.New(t)
	own := yamlfile.Fields(t)
	keys := yamlfile.Names(v.Interface())[len(own):]
	beside := new(vocab.Keys).ExtraKeys()
	for _, f := range own {
		r := row{key: f.Key, doc: c.of(f.Owner, f.Name), is: f.Type}
		if f.Type == reflect.TypeFor[vocab.Congestion]() {
			r.is, r.of = nil, vocab.CongestionSection
		}
		if f.Key != "scheme" || !slices.Contains(keys, beside[0]) {
			out = append(out, r)
			continue
		}
		r.enum, r.doc = balance.Names(), schemeDoc(r.doc)
		out = append(out, r)
		for _, key := range beside {
			out = append(out, c.extra(key))
		}
	}
	for _, key := range keys {
		if !slices.Contains(beside, key) {
			out = append(out, c.extra(key))
		}
	}
	return out
}

// valueRows returns the keys of a struct with the values that it has by default in
// the profiles datacenter and lab.
func (c comments) valueRows(dc, lab reflect.Value) (out []row) {
	for _, f := range yamlfile.Fields(dc.Type()) {
		a, b := dc.FieldByIndex(f.Index), lab.FieldByIndex(f.Index)
		r := row{key: f.Key, is: f.Type, doc: sentences(c.of(f.Owner, f.Name), defaults(a, b))}
		if f.Type.Kind() == reflect.Struct && words[f.Type] == "" {
			r.value = a
		}
		out = append(out, r)
	}
	return out
}

// extra returns the row of a key that schemes have: their section's, or one beside
// their name.
func (c comments) extra(key string) row {
	for _, s := range balance.Sections() {
		if s.Name == key {
			return row{key: key, of: s, doc: s.Summary}
		}
	}
	r := row{key: key}
	var of []string
	for _, s := range balance.Schemes() {
		if s.Keys == nil {
			continue
		}
		keys := reflect.ValueOf(s.Keys()).Elem()
		for _, own := range c.valueRows(keys, keys) {
			if own.key == key {
				of = append(of, s.Name)
				r = own
			}
		}
	}
	r.doc = sentences("For scheme "+yamlfile.OrList(of)+".", r.doc)
	return r
}

// schemeDoc lists the schemes where a comment has its first full stop.
func schemeDoc(doc string) string {
	var list []string
	for _, s := range balance.Schemes() {
		list = append(list, fmt.Sprintf("%s (%s)", s.Name, s.Summary))
	}
	first, rest, _ := strings.Cut(doc, ". ")
	return first + ": " + yamlfile.OrList(list) + ". " + rest
}

// sectionRows returns the keys of a section, with their defaults by profile.
func (c comments) sectionRows(s *balance.Section) (out []row) {
	var profiles []string
	for _, p := range s.Profiles {
		profiles = append(profiles, p.String())
	}
	doc := "Profile is the set of values that the other keys start from: datacenter (the papers', for links of 10Gbit and more in hardware), " +
		"or lab (for fabrics in software, with links of some 100Mbit to 1Gbit)."
	dc, lab := s.New(balance.Datacenter), s.New(balance.Lab)
	if p, ok := s.New(balance.Lab).(interface{ SetAuto(func(string) bool) }); ok {
		var keys []string
		p.SetAuto(func(key string) bool { keys = append(keys, key); return false })
		doc += " With auto " + strings.Join(keys, ", ") + ", those that are left out, follow from the round trips between leaves that a leaf measures and " +
			"from the time that the full queue of an uplink with a shaper takes; they begin with the lab's."
	}
	if s == vocab.CongestionSection {
		doc += " Default: datacenter (fabric.yaml: lab)."
	} else {
		doc += " Default: that of congestion."
	}
	out = append(out, row{key: "profile", doc: doc, enum: profiles, is: reflect.TypeFor[string]()})
	return append(out, c.valueRows(reflect.ValueOf(dc).Elem(), reflect.ValueOf(lab).Elem())...)
}

// defaults says what a value is that is left out, in the profiles datacenter and
// lab. Structs' fields say it themselves.
func defaults(dc, lab reflect.Value) string {
	if dc.Kind() == reflect.Struct && words[dc.Type()] == "" || dc.Kind() == reflect.Slice && dc.Len() == 0 {
		return ""
	}
	a, b := text(dc), text(lab)
	if a != b {
		a += " (lab: " + b + ")"
	}
	return "Default: " + a + "."
}

func text(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case vocab.Gap:
		return text(reflect.ValueOf(time.Duration(x)))
	case time.Duration:
		s := strings.ReplaceAll(x.String(), "µs", "us")
		if strings.HasSuffix(s, "m0s") {
			s = strings.TrimSuffix(s, "0s")
		}
		return s
	}
	return fmt.Sprint(v.Interface())
}

func sentences(parts ...string) string {
	return strings.TrimSpace(strings.Join(parts, " "))
}

// title returns the heading of a struct. Two packages may have one of a name.
func title(t reflect.Type) string {
	if t == reflect.TypeFor[fabric.VNI]() {
		return "VNI of a fabric"
	}
	return t.Name()
}

// words names what is written for types that have a text of their own.
var words = map[reflect.Type]string{
	reflect.TypeFor[units.Rate]():     "rate",
	reflect.TypeFor[units.Size]():     "size",
	reflect.TypeFor[time.Duration]():  "time",
	reflect.TypeFor[vocab.Gap]():      "time or auto",
	reflect.TypeFor[vocab.Protocol](): "word or number",
	reflect.TypeFor[vocab.DSCP]():     "word or number",
	reflect.TypeFor[units.Ports]():    "port or range",
	reflect.TypeFor[config.MAC]():     "MAC address",
	reflect.TypeFor[config.Prefix]():  "prefix",
	reflect.TypeFor[netip.Addr]():     "address",
}

// word returns a type's entry in words. Other types that read a text are a word.
func word(t reflect.Type) string {
	if p := reflect.PointerTo(t); words[t] == "" && (p.Implements(textType) || p.Implements(nodeType)) {
		return "word"
	}
	return words[t]
}
