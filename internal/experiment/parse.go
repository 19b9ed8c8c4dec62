package experiment

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/loomfabric/loom/internal/yamlfile"
	"github.com/loomfabric/loom/sim"
)

// Options are how to read a file.
type Options struct {
	// Check looks for what is wrong with a run beyond [sim.Spec.Complete]; nil: nothing.
	// It is asked about the runs of Sizes, or of the first size if they are empty.
	Check func(*sim.Spec) yamlfile.Errors
	Sizes []string
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
	r := &reader{exp: &Experiment{File: name, Text: data}, opt: opt, dir: filepath.Dir(name), doc: doc, flags: map[string]ast.Node{}}
	if opt.Seeds != 0 {
		r.flags["seeds"] = scalar(strconv.Itoa(opt.Seeds))
	}
	if len(opt.Loads) > 0 {
		list := ast.Sequence(token.New("[", "[", &token.Position{}), true)
		for _, l := range opt.Loads {
			list.Values = append(list.Values, scalar(strconv.FormatFloat(l, 'f', -1, 64)))
		}
		r.flags["loads"] = list
	}
	switch reused := slices.Concat(ast.Filter(ast.AnchorType, doc.Root), ast.Filter(ast.AliasType, doc.Root), ast.Filter(ast.MergeKeyType, doc.Root)); {
	case !yamlfile.IsMapping(doc.Root):
		r.fail(nil, "", "not an experiment; write a YAML document with keys such as name, topology and workloads")
	case len(reused) > 0:
		r.fail(reused[0], "", "an anchor, an alias or <<; write the values: they are merged by the experiment's own rules")
	default:
		r.file(doc.Root)
	}
	// What several runs share is said once.
	said := map[string]bool{}
	doc.Errs = slices.DeleteFunc(doc.Errs, func(e *yamlfile.Error) bool {
		again := said[e.Error()]
		said[e.Error()] = true
		return again
	})
	if err := doc.Errs.Or(); err != nil {
		return nil, err
	}
	return r.exp, nil
}

// reader reads one file.
type reader struct {
	exp *Experiment
	opt Options
	dir string
	doc *yamlfile.Document
	// flags are keys that the caller gives in the place of the file.
	flags map[string]ast.Node
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
	loads   []load
	seeds   int // 0: not said
	axis    []variant
	label   string
}

// load is one of a list.
type load struct {
	node    ast.Node
	percent float64
}

// fail reports that something is wrong at a node. The text has the form "problem;
// remedy".
func (r *reader) fail(n ast.Node, path, format string, args ...any) {
	r.doc.AddAt(n, path, format, args...)
}

// wrong reports whether something has been found wrong.
func (r *reader) wrong() bool { return len(r.doc.Errs) > 0 }

// decode reads a node into v, strictly.
func (r *reader) decode(n ast.Node, v any) bool {
	plain, err := merge(nil, n) // paths become mappings
	if err != nil {
		r.doc.AddYAML(err)
		return false
	}
	d := r.doc.Of(plain)
	d.Decode(v)
	r.doc.Errs = append(r.doc.Errs, d.Errs...)
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
		*to = r.text(mine[key], key)
	}
	if !nameRE.MatchString(e.Name) {
		r.fail(mine["name"], "name", "%q cannot name a directory of results; use a-z, 0-9 and -, 64 characters at most", e.Name)
	}
	var base matrix
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

// text reads a text that may be left out.
func (r *reader) text(n ast.Node, path string) (text string) {
	switch n.(type) {
	case nil:
	case ast.ScalarNode:
		r.decode(n, &text)
	default:
		r.fail(n, path, "a list, a mapping or nothing; write a text")
	}
	return strings.TrimSpace(text)
}

// merged is over on top of base.
func (r *reader) merged(base, over ast.Node) ast.Node {
	n, err := merge(base, over)
	if err != nil {
		r.doc.AddYAML(err)
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
			mine, spec := r.split(body, append(slices.Clone(matrixKeys), "note", "published")...)
			s.Note = r.text(mine["note"], "note")
			if n := mine["published"]; n != nil {
				r.decode(n, &s.Published)
			}
			r.matrix(mine, &m)
			m.spec = r.merged(m.spec, spec)
			if s.Published && find(body, "seeds") == nil && r.flags["seeds"] == nil {
				m.seeds = max(m.seeds, PublishedSeeds) // the file's are for the others
			}
		}
		if !r.wrong() {
			r.expand(s, m)
		}
	}
}

// matrix reads the keys that say which runs to make; those of flags win.
func (r *reader) matrix(mine map[string]ast.Node, m *matrix) {
	maps.Copy(mine, r.flags)
	if n := mine["schemes"]; n != nil {
		m.schemes = r.variants(n, "schemes", scalar("scheme"))
	}
	if n := mine["loads"]; n != nil {
		m.loads = nil
		for _, l := range r.list(n, "loads") {
			one := load{node: l}
			if r.decode(l, &one.percent) && !(one.percent > 0 && one.percent <= 200) {
				r.fail(l, "loads", "a load of %g percent; use a number above 0 and up to 200", one.percent)
			}
			if slices.ContainsFunc(m.loads, func(o load) bool { return o.percent == one.percent }) {
				r.fail(l, "loads", "%g is there twice; remove one of the two", one.percent)
			}
			m.loads = append(m.loads, one)
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

// variants reads a list of overrides. Each is a mapping with a name, for want of
// which it has its scheme's, or the value of some keys.
func (r *reader) variants(n ast.Node, path string, keys ...ast.Node) (out []variant) {
	for _, v := range r.list(n, path) {
		one := variant{node: v}
		switch _, isScalar := v.(ast.ScalarNode); {
		case yamlfile.IsMapping(v):
			mine, spec := r.split(v, "name")
			one.name, one.over = cmp.Or(r.text(mine["name"], path), textOf(spec, "scheme")), spec
		case isScalar && len(keys) > 0:
			one.name, one.over = yamlfile.Text(v), override(v, keys...)
			r.split(one.over)
		case len(keys) > 0:
			r.fail(v, path, "several values in one; write a mapping with a name, or points of an axis")
			continue
		}
		r.named(&out, one, path)
	}
	return out
}

// named adds a variant whose name is there and new.
func (r *reader) named(list *[]variant, v variant, path string) {
	switch {
	case v.name == "":
		r.fail(v.node, path, "it has no name; write {name: ..., ...}")
	case slices.ContainsFunc(*list, func(o variant) bool { return Slug(o.name) == Slug(v.name) }):
		r.fail(v.node, path, "%q is there twice, or looks like another in the name of a file; give it another name", v.name)
	case Slug(v.name) == "":
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
	label = r.text(mine["label"], "axis.label")
	byPoint := mine["points"] != nil
	if byPoint == (mine["key"] != nil) || byPoint == (mine["values"] != nil) {
		r.fail(n, "axis", "an axis of no kind, or of two; write either key and values, or points")
		return "", nil
	}
	if byPoint {
		if label == "" {
			r.fail(n, "axis", "an axis without a label; write what the points differ in")
		}
		return label, r.variants(mine["points"], "axis.points")
	}
	keys := []ast.Node{mine["key"]}
	if _, ok := mine["key"].(*ast.SequenceNode); ok {
		keys = r.list(mine["key"], "axis.key")
	}
	if label == "" && len(keys) > 0 {
		label = yamlfile.Text(keys[0])
	}
	return label, r.variants(mine["values"], "axis.values", keys...)
}
