package experiment

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"github.com/loomfabric/loom/internal/yamlerr"
	"github.com/loomfabric/loom/sim"
)

// Options are how to read a file.
type Options struct {
	// Check looks for what is wrong with a run beyond [sim.Spec.Complete]; nil: nothing.
	// It is asked about the runs of Size, or of the first size if that is empty.
	Check func(*sim.Spec) []*sim.Problem
	Size  string
	// Schemes, Loads and Seeds replace the file's at all sizes. A scheme is one of
	// the file's labels, or else the name of a policy.
	Schemes []string
	Loads   []float64
	Seeds   int
}

// Limits, so that a slip of the pen is not a year of work.
const (
	maxSeeds = 1000
	maxRuns  = 20_000
)

var (
	nameRE = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,63}$`)
	// specKeys are those of a run's model; they stand beside the experiment's own.
	specKeys = keysOf(reflect.TypeFor[sim.Spec]())
	// headKeys and matrixKeys are the experiment's own. A size may have the latter.
	headKeys   = []string{"name", "title", "paper", "claim", "note", "reference", "plots", "table", "expect", "sizes"}
	matrixKeys = []string{"schemes", "loads", "seeds", "axis"}
)

func keysOf(t reflect.Type) (keys []string) {
	for i := range t.NumField() {
		key, _, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ",")
		keys = append(keys, key)
	}
	return keys
}

// Load reads and expands the file at path.
func Load(path string, opt Options) (*Experiment, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("experiment: %w", err)
	}
	return Parse(path, data, opt)
}

// Parse reads data, expands all sizes and checks their runs. name stands for the
// file in errors, and files that data names are relative to name's directory. All
// that is wrong is said at once: the errors are joined, each a [*yamlerr.Error].
func Parse(name string, data []byte, opt Options) (*Experiment, error) {
	doc, err := yamlerr.Parse(name, data)
	if e := (*yamlerr.Error)(nil); errors.As(err, &e) && strings.Contains(e.Msg, "flow map") {
		e.Msg += "; within {} a path has no [0]: write workloads.0.load"
	}
	if err != nil {
		return nil, err
	}
	r := &reader{exp: &Experiment{File: name, Text: data}, opt: opt, dir: filepath.Dir(name)}
	if len(doc.Docs) != 1 || len(yamlerr.Pairs(doc.Docs[0].Body)) == 0 {
		return nil, &yamlerr.Error{File: name, Msg: "it has to be one YAML document with keys such as name, topology and workloads"}
	}
	var anchors anchorFinder
	ast.Walk(&anchors, doc.Docs[0])
	if anchors.found != nil {
		r.fail(anchors.found, "", "anchors, aliases and << have no place here: values are merged by the experiment's own rules")
	} else {
		r.file(doc.Docs[0].Body)
	}
	if err := errors.Join(r.errs...); err != nil {
		return nil, err
	}
	return r.exp, nil
}

// anchorFinder looks for what would make the merge of values ambiguous.
type anchorFinder struct{ found ast.Node }

// Visit implements [ast.Visitor].
func (f *anchorFinder) Visit(n ast.Node) ast.Visitor {
	switch n.(type) {
	case *ast.AnchorNode, *ast.AliasNode, *ast.MergeKeyNode:
		if f.found == nil {
			f.found = n
		}
	}
	return f
}

// reader reads one file.
type reader struct {
	exp  *Experiment
	opt  Options
	dir  string
	errs []error
	said map[string]bool
}

// variant is a named override: a scheme or a point of the axis.
type variant struct {
	name string
	node ast.Node // for its line
	over ast.Node // as the file has it: its paths are resolved on what it changes
}

// matrix is what a file or a size says about the runs to make; nil parts are not said.
type matrix struct {
	spec    ast.Node
	schemes []variant
	loads   []ast.Node
	seeds   int
	axis    []variant
	label   string
}

// fail reports that something is wrong at a node. What several runs share is said once.
func (r *reader) fail(n ast.Node, path, format string, args ...any) {
	e := &yamlerr.Error{File: r.exp.File, Path: path, Msg: fmt.Sprintf(format, args...)}
	if n != nil {
		e.Line = yamlerr.Line(n)
	}
	r.add(e)
}

func (r *reader) add(err error) {
	if r.said == nil {
		r.said = map[string]bool{}
	}
	if !r.said[err.Error()] {
		r.said[err.Error()] = true
		r.errs = append(r.errs, err)
	}
}

// decode reads a node into v, strictly.
func (r *reader) decode(n ast.Node, v any) bool {
	plain, err := merge(nil, n) // keys that are not strings become unknown ones
	if err == nil && plain != nil {
		err = yaml.NodeToValue(plain, v, yaml.Strict())
	}
	if err != nil {
		r.add(yamlerr.Wrap(r.exp.File, err))
	}
	return err == nil
}

// split parts a mapping into the keys of own and a fragment of a run's model.
func (r *reader) split(n ast.Node, own ...string) (map[string]ast.Node, ast.Node) {
	mine, rest := map[string]ast.Node{}, ast.Mapping(n.GetToken(), false)
	for _, p := range yamlerr.Pairs(n) {
		key := yamlerr.Text(p.Key)
		first := key
		if cut := strings.IndexAny(key, ".["); cut >= 0 {
			first = key[:cut]
		}
		switch {
		case slices.Contains(own, key):
			mine[key] = p.Value
		case slices.Contains(specKeys, first):
			rest.Values = append(rest.Values, p)
		default:
			r.fail(p.Key, "", "unknown key %q: here may stand %s", key, strings.Join(slices.Concat(own, specKeys), ", "))
		}
	}
	return mine, rest
}

// file reads the whole.
func (r *reader) file(root ast.Node) {
	mine, spec := r.split(root, slices.Concat(headKeys, matrixKeys)...)
	e := r.exp
	for key, to := range map[string]*string{"name": &e.Name, "title": &e.Title, "paper": &e.Paper, "claim": &e.Claim, "note": &e.Note, "reference": &e.Reference} {
		if n := mine[key]; n != nil {
			r.text(n, key, to)
		}
	}
	if !nameRE.MatchString(e.Name) {
		r.fail(mine["name"], "name", "%q: it names the directory of results: a-z, 0-9 and -, 64 characters at most", e.Name)
	}
	base := matrix{seeds: 1}
	r.matrix(mine, &base)
	base.spec = r.merged(nil, spec)
	if len(r.errs) > 0 {
		return
	}
	r.sizes(mine["sizes"], base)
	if len(r.errs) > 0 {
		return
	}
	r.outputs(mine)
}

func (r *reader) text(n ast.Node, path string, to *string) {
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode, *ast.SequenceNode, *ast.NullNode:
		r.fail(n, path, "it has to be a text")
		return
	}
	if r.decode(n, to) {
		*to = strings.TrimSpace(*to)
	}
}

// merged is over on top of base.
func (r *reader) merged(base, over ast.Node) ast.Node {
	n, err := merge(base, over)
	if err != nil {
		r.add(yamlerr.Wrap(r.exp.File, err))
	}
	return n
}

// sizes expands each size, or the file as the only one.
func (r *reader) sizes(n ast.Node, base matrix) {
	if n == nil {
		r.expand(&Size{Experiment: r.exp, Name: "default"}, base)
		return
	}
	pairs := yamlerr.Pairs(n)
	if len(pairs) == 0 {
		r.fail(n, "sizes", "name at least one, as in quick: {loads: [30]}")
	}
	for _, p := range pairs {
		s := &Size{Experiment: r.exp, Name: yamlerr.Text(p.Key)}
		if !nameRE.MatchString(s.Name) {
			r.fail(p.Key, "sizes", "%q: a size is named by a-z, 0-9 and -", s.Name)
			continue
		}
		m, body := base, p.Value
		if _, empty := body.(*ast.NullNode); !empty {
			if !isMapping(body) {
				r.fail(body, "sizes."+s.Name, "it has to be overrides, as in {seeds: 1, duration: 10ms}")
				continue
			}
			mine, spec := r.split(body, append(slices.Clone(matrixKeys), "note")...)
			if mine["note"] != nil {
				r.text(mine["note"], "note", &s.Note)
			}
			r.matrix(mine, &m)
			m.spec = r.merged(m.spec, spec)
		}
		if len(r.errs) == 0 {
			r.expand(s, m)
		}
	}
}

func isMapping(n ast.Node) bool {
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return true
	}
	return false
}

// matrix reads the keys that say which runs to make; those of flags win.
func (r *reader) matrix(mine map[string]ast.Node, m *matrix) {
	if n := mine["schemes"]; n != nil {
		m.schemes = r.schemes(n)
	}
	if n := mine["loads"]; n != nil {
		m.loads = r.list(n, "loads")
		for i, l := range m.loads {
			var v float64
			if !r.decode(l, &v) {
				return
			}
			if !(v > 0 && v <= 200) {
				r.fail(l, "loads", "%g percent: above 0 and at most 200", v)
			}
			for _, other := range m.loads[:i] {
				if yamlerr.Text(other) == yamlerr.Text(l) {
					r.fail(l, "loads", "%s is there twice", yamlerr.Text(l))
				}
			}
		}
	}
	if n := mine["seeds"]; n != nil {
		if r.decode(n, &m.seeds) && (m.seeds < 1 || m.seeds > maxSeeds) {
			r.fail(n, "seeds", "%d: how often each run is repeated, from 1 to %d", m.seeds, maxSeeds)
		}
	}
	if n := mine["axis"]; n != nil {
		m.label, m.axis = r.axis(n)
	}
}

// list are the items of a list that must not be empty.
func (r *reader) list(n ast.Node, path string) []ast.Node {
	s, ok := n.(*ast.SequenceNode)
	if !ok || len(s.Values) == 0 {
		r.fail(n, path, "it has to be a list with something in it")
		return nil
	}
	return s.Values
}

func (r *reader) schemes(n ast.Node) (out []variant) {
	for _, v := range r.list(n, "schemes") {
		s := variant{name: yamlerr.Text(v), node: v}
		if isMapping(v) {
			mine, spec := r.split(v, "name")
			s.over = spec
			s.name = ""
			if n := mine["name"]; n != nil {
				r.text(n, "schemes", &s.name)
			} else if i := slices.IndexFunc(spec.(*ast.MappingNode).Values, func(p *ast.MappingValueNode) bool { return yamlerr.Text(p.Key) == "scheme" }); i >= 0 {
				s.name = yamlerr.Text(spec.(*ast.MappingNode).Values[i].Value)
			}
		} else {
			s.over = schemeOnly(v)
		}
		r.named(&out, s, "schemes")
	}
	return out
}

// schemeOnly is the override {scheme: v}.
func schemeOnly(v ast.Node) ast.Node {
	m := emptyMapping(v)
	m.Values = append(m.Values, pair(v, "scheme", v))
	return m
}

// named adds a variant whose name is there and new.
func (r *reader) named(list *[]variant, v variant, path string) {
	switch {
	case v.name == "":
		r.fail(v.node, path, "it has no name: write {name: ..., ...}")
	case slices.ContainsFunc(*list, func(o variant) bool { return slug(o.name) == slug(v.name) }):
		r.fail(v.node, path, "%q is there twice, or looks like another in the name of a file", v.name)
	case slug(v.name) == "":
		r.fail(v.node, path, "%q: a name needs letters or digits", v.name)
	default:
		*list = append(*list, v)
	}
}

// axis reads {key, values} or {points}.
func (r *reader) axis(n ast.Node) (label string, points []variant) {
	if !isMapping(n) {
		r.fail(n, "axis", "it has to be {key: ..., values: [...]} or {points: [{name: ..., ...}]}")
		return "", nil
	}
	mine, spec := r.split(n, "label", "key", "values", "points")
	if rest := yamlerr.Pairs(spec); len(rest) > 0 {
		r.fail(rest[0].Key, "axis", "%q has no place here: name it in key, or set it in points", yamlerr.Text(rest[0].Key))
	}
	if mine["label"] != nil {
		r.text(mine["label"], "axis.label", &label)
	}
	byKey, byPoint := mine["key"] != nil && mine["values"] != nil, mine["points"] != nil
	if byKey == byPoint || (byPoint && (mine["key"] != nil || mine["values"] != nil)) {
		r.fail(n, "axis", "it needs either key and values or points")
		return "", nil
	}
	if byPoint {
		if label == "" {
			r.fail(n, "axis", "it has no label: write what the points differ in")
		}
		for _, v := range r.list(mine["points"], "axis.points") {
			p := variant{node: v}
			if isMapping(v) {
				own, over := r.split(v, "name")
				if own["name"] != nil {
					r.text(own["name"], "axis.points", &p.name)
				}
				p.over = over
			}
			r.named(&points, p, "axis.points")
		}
		return label, points
	}
	keys := []ast.Node{mine["key"]}
	if _, ok := mine["key"].(*ast.SequenceNode); ok {
		keys = r.list(mine["key"], "axis.key")
	}
	if label == "" {
		label = yamlerr.Text(keys[0])
	}
	for _, v := range r.list(mine["values"], "axis.values") {
		if _, ok := v.(ast.ScalarNode); !ok {
			r.fail(v, "axis.values", "it has to be one value: for more at once write points")
			continue
		}
		over := emptyMapping(v)
		for _, key := range keys {
			over.Values = append(over.Values, pair(key, yamlerr.Text(key), v))
		}
		if _, bad := r.split(over); len(yamlerr.Pairs(bad)) < len(keys) {
			return "", nil
		}
		r.named(&points, variant{name: yamlerr.Text(v), node: v, over: over}, "axis.values")
	}
	return label, points
}
