package experiment

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/loomfabric/loom/internal/yamlfile"
	"github.com/loomfabric/loom/sim"
)

// Options are how to read a file.
type Options struct {
	// Check looks for what is wrong with a run beyond [sim.Spec.Complete]; nil: nothing.
	// It is asked about the runs of Size, or of the first size if that is empty.
	Check func(*sim.Spec) yamlfile.Errors
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
	specKeys = yamlfile.Names(&sim.Spec{})
	// headKeys and matrixKeys are the experiment's own. A size may have the latter.
	headKeys   = []string{"name", "title", "paper", "claim", "note", "reference", "plots", "table", "expect", "sizes"}
	matrixKeys = []string{"schemes", "loads", "seeds", "axis"}
)

const help = "docs/loomsim.md"

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
// that is wrong is said at once: the error is a [yamlfile.Errors].
func Parse(name string, data []byte, opt Options) (*Experiment, error) {
	doc := yamlfile.Parse(name, help, data)
	for _, e := range doc.Errs {
		if strings.Contains(e.Problem, "flow map") {
			e.Fix += "; within {} a path has no [0]: write workloads.0.load"
		}
	}
	if doc.Root == nil {
		return nil, doc.Errs
	}
	r := &reader{exp: &Experiment{File: name, Text: data}, opt: opt, dir: filepath.Dir(name), doc: doc}
	var anchors anchorFinder
	switch ast.Walk(&anchors, doc.Root); {
	case !yamlfile.IsMapping(doc.Root):
		r.fail(nil, "", "not an experiment; write a YAML document with keys such as name, topology and workloads")
	case anchors.found != nil:
		r.fail(anchors.found, "", "an anchor, an alias or <<; write the values: they are merged by the experiment's own rules")
	default:
		r.file(doc.Root)
	}
	if err := doc.Errs.Or(); err != nil {
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
	doc  *yamlfile.Document
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

// fail reports that something is wrong at a node. The text has the form "problem;
// remedy". What several runs share is said once.
func (r *reader) fail(n ast.Node, path, format string, args ...any) {
	d := r.doc.Of(r.doc.Root)
	d.AddAt(n, path, format, args...)
	r.add(d.Errs)
}

func (r *reader) add(errs yamlfile.Errors) {
	if r.said == nil {
		r.said = map[string]bool{}
	}
	for _, e := range errs {
		if !r.said[e.Error()] {
			r.said[e.Error()] = true
			r.doc.Errs = append(r.doc.Errs, e)
		}
	}
}

// failed adds what the YAML library says.
func (r *reader) failed(err error) {
	d := r.doc.Of(r.doc.Root)
	d.AddYAML(err)
	r.add(d.Errs)
}

// wrong reports whether something has been found wrong.
func (r *reader) wrong() bool { return len(r.doc.Errs) > 0 }

// decode reads a node into v, strictly.
func (r *reader) decode(n ast.Node, v any) bool {
	plain, err := merge(nil, n) // paths become mappings
	if err != nil {
		r.failed(err)
		return false
	}
	d := r.doc.Of(plain)
	d.Decode(v)
	r.add(d.Errs)
	return len(d.Errs) == 0
}

// split parts a mapping into the keys of own and a fragment of a run's model.
func (r *reader) split(n ast.Node, own ...string) (map[string]ast.Node, ast.Node) {
	mine, rest := map[string]ast.Node{}, ast.Mapping(n.GetToken(), false)
	for _, p := range yamlfile.Pairs(n) {
		key := yamlfile.Text(p.Key)
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
			problem, fix := yamlfile.Unknown(key, nil, slices.Concat(own, specKeys))
			r.fail(p.Key, "", "%s; %s", problem, fix)
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
		r.fail(mine["name"], "name", "%q cannot name a directory of results; use a-z, 0-9 and -, 64 characters at most", e.Name)
	}
	base := matrix{seeds: 1}
	r.matrix(mine, &base)
	base.spec = r.merged(nil, spec)
	if r.wrong() {
		return
	}
	r.sizes(mine["sizes"], base)
	if r.wrong() {
		return
	}
	r.outputs(mine)
}

func (r *reader) text(n ast.Node, path string, to *string) {
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode, *ast.SequenceNode, *ast.NullNode:
		r.fail(n, path, "a list, a mapping or nothing; write a text")
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
		r.failed(err)
	}
	return n
}

// sizes expands each size, or the file as the only one.
func (r *reader) sizes(n ast.Node, base matrix) {
	if n == nil {
		r.expand(&Size{Experiment: r.exp, Name: "default"}, base)
		return
	}
	pairs := yamlfile.Pairs(n)
	if len(pairs) == 0 {
		r.fail(n, "sizes", "no sizes; name at least one, as in quick: {loads: [30]}")
	}
	for _, p := range pairs {
		s := &Size{Experiment: r.exp, Name: yamlfile.Text(p.Key)}
		if !nameRE.MatchString(s.Name) {
			r.fail(p.Key, "sizes", "%q cannot name a size; use a-z, 0-9 and -", s.Name)
			continue
		}
		m, body := base, p.Value
		if _, empty := body.(*ast.NullNode); !empty {
			if !yamlfile.IsMapping(body) {
				r.fail(body, "sizes."+s.Name, "a size that is no mapping; write what it overrides, as in {seeds: 1, duration: 10ms}")
				continue
			}
			mine, spec := r.split(body, append(slices.Clone(matrixKeys), "note")...)
			if mine["note"] != nil {
				r.text(mine["note"], "note", &s.Note)
			}
			r.matrix(mine, &m)
			m.spec = r.merged(m.spec, spec)
		}
		if !r.wrong() {
			r.expand(s, m)
		}
	}
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
				r.fail(l, "loads", "a load of %g percent; use a number above 0 and up to 200", v)
			}
			for _, other := range m.loads[:i] {
				if yamlfile.Text(other) == yamlfile.Text(l) {
					r.fail(l, "loads", "%s is there twice; remove one of the two", yamlfile.Text(l))
				}
			}
		}
	}
	if n := mine["seeds"]; n != nil {
		if r.decode(n, &m.seeds) && (m.seeds < 1 || m.seeds > maxSeeds) {
			r.fail(n, "seeds", "%d seeds; say how often each run is repeated, from 1 to %d", m.seeds, maxSeeds)
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
		r.fail(n, path, "no list, or an empty one; write a list")
		return nil
	}
	return s.Values
}

func (r *reader) schemes(n ast.Node) (out []variant) {
	for _, v := range r.list(n, "schemes") {
		s := variant{name: yamlfile.Text(v), node: v}
		if yamlfile.IsMapping(v) {
			mine, spec := r.split(v, "name")
			s.over = spec
			s.name = ""
			if n := mine["name"]; n != nil {
				r.text(n, "schemes", &s.name)
			} else if i := slices.IndexFunc(spec.(*ast.MappingNode).Values, func(p *ast.MappingValueNode) bool { return yamlfile.Text(p.Key) == "scheme" }); i >= 0 {
				s.name = yamlfile.Text(spec.(*ast.MappingNode).Values[i].Value)
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
		r.fail(v.node, path, "it has no name; write {name: ..., ...}")
	case slices.ContainsFunc(*list, func(o variant) bool { return slug(o.name) == slug(v.name) }):
		r.fail(v.node, path, "%q is there twice, or looks like another in the name of a file; give it another name", v.name)
	case slug(v.name) == "":
		r.fail(v.node, path, "%q cannot be a name; use letters or digits", v.name)
	default:
		*list = append(*list, v)
	}
}

// axis reads {key, values} or {points}.
func (r *reader) axis(n ast.Node) (label string, points []variant) {
	if !yamlfile.IsMapping(n) {
		r.fail(n, "axis", "an axis that is no mapping; write {key: ..., values: [...]} or {points: [{name: ..., ...}]}")
		return "", nil
	}
	mine, spec := r.split(n, "label", "key", "values", "points")
	if rest := yamlfile.Pairs(spec); len(rest) > 0 {
		r.fail(rest[0].Key, "axis", "%q has no place here; name it in key, or set it in points", yamlfile.Text(rest[0].Key))
	}
	if mine["label"] != nil {
		r.text(mine["label"], "axis.label", &label)
	}
	byKey, byPoint := mine["key"] != nil && mine["values"] != nil, mine["points"] != nil
	if byKey == byPoint || (byPoint && (mine["key"] != nil || mine["values"] != nil)) {
		r.fail(n, "axis", "an axis of no kind, or of two; write either key and values, or points")
		return "", nil
	}
	if byPoint {
		if label == "" {
			r.fail(n, "axis", "an axis without a label; write what the points differ in")
		}
		for _, v := range r.list(mine["points"], "axis.points") {
			p := variant{node: v}
			if yamlfile.IsMapping(v) {
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
		label = yamlfile.Text(keys[0])
	}
	for _, v := range r.list(mine["values"], "axis.values") {
		if _, ok := v.(ast.ScalarNode); !ok {
			r.fail(v, "axis.values", "several values in one; for more at once write points")
			continue
		}
		over := emptyMapping(v)
		for _, key := range keys {
			over.Values = append(over.Values, pair(key, yamlfile.Text(key), v))
		}
		if _, bad := r.split(over); len(yamlfile.Pairs(bad)) < len(keys) {
			return "", nil
		}
		r.named(&points, variant{name: yamlfile.Text(v), node: v, over: over}, "axis.values")
	}
	return label, points
}
