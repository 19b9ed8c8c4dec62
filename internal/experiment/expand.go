package experiment

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/internal/yamlfile"
	"github.com/loomfabric/loom/sim"
)

// expand makes the runs of a size and adds it to the experiment. Later overrides
// win: the file, the size, the point of the axis, the scheme, the load.
func (r *reader) expand(s *Size, m matrix) {
	r.chosen(&m)
	r.seeds(s, &m)
	// What all runs override is not decoded with any of them.
	if m.spec != nil {
		r.decode(m.spec, &sim.Spec{})
	}
	if len(m.schemes) == 0 {
		name := textOf(m.spec, "scheme")
		if Slug(name) == "" {
			name = "default"
		}
		m.schemes = []variant{{name: name}}
	}
	for _, v := range m.schemes {
		s.Schemes = append(s.Schemes, v.name)
	}
	for _, l := range m.loads {
		s.Loads = append(s.Loads, l.percent)
	}
	s.Axis = axisOf(m)
	if n := m.seeds * len(s.Cells()) * len(s.Schemes); n > maxRuns {
		r.fail(nil, "", "size %s has %d runs; use at most %d", s.Name, n, maxRuns)
	}
	if len(m.loads) == 0 {
		m.loads = []load{{}}
	}
	if len(m.axis) == 0 {
		m.axis = []variant{{}}
	}
	check := r.opt.Check != nil && r.chose(s)
	for i := range m.seeds {
		for _, point := range m.axis {
			base := r.merged(m.spec, point.over)
			for _, l := range m.loads {
				for _, scheme := range m.schemes {
					run := Run{Cell: Cell{Scheme: scheme.name, Load: l.percent, Axis: point.name}}
					if !r.wrong() {
						r.run(&run, r.withLoad(r.merged(base, scheme.over), l.node), i, check)
					}
					s.Runs = append(s.Runs, run)
				}
			}
		}
		if r.wrong() {
			return
		}
		seed := s.Runs[len(s.Runs)-1].Seed
		if published := seed >= FirstPublished; published != s.Published {
			r.fail(find(m.spec, "seed"), "seed", "size %s has seed %d; use seeds from %d on for sizes with published: true, and below it for all others", s.Name, seed, FirstPublished)
			return
		}
		s.Seeds = append(s.Seeds, seed)
	}
	r.exp.Sizes = append(r.exp.Sizes, s)
}

// chose reports whether a size that is not yet among the experiment's is one that
// the caller means.
func (r *reader) chose(s *Size) bool {
	if len(r.opt.Sizes) == 0 {
		return len(r.exp.Sizes) == 0
	}
	return slices.Contains(r.opt.Sizes, s.Name)
}

// seeds fills in how many seeds a size has, and where those of a published one begin.
func (r *reader) seeds(s *Size, m *matrix) {
	if !s.Published {
		m.seeds = cmp.Or(m.seeds, 1)
		return
	}
	if m.seeds = cmp.Or(m.seeds, PublishedSeeds); m.seeds < PublishedSeeds && r.opt.Seeds > 0 && !r.chose(s) {
		m.seeds = PublishedSeeds // the flag is for another size
	}
	if m.seeds < PublishedSeeds {
		r.fail(nil, "seeds", "size %s is published with %d seeds; use at least %d, or a size that is not published", s.Name, m.seeds, PublishedSeeds)
	}
	if find(m.spec, "seed") == nil {
		m.spec = r.merged(m.spec, override(scalar(strconv.Itoa(FirstPublished)), scalar("seed")))
	}
}

// chosen leaves the schemes that the caller asks for, if it does: the file's, or
// others by the names of their policies.
func (r *reader) chosen(m *matrix) {
	if len(r.opt.Schemes) == 0 {
		return
	}
	own := m.schemes
	m.schemes = nil
	for _, name := range r.opt.Schemes {
		named := func(v variant) bool { return v.name == name }
		i := slices.IndexFunc(own, named)
		switch {
		case slices.ContainsFunc(m.schemes, named):
			r.fail(nil, "schemes", "%s is there twice; name it once", name)
		case i >= 0:
			m.schemes = append(m.schemes, own[i])
		case slices.Contains(balance.Names(), name):
			m.schemes = append(m.schemes, variant{name: name, over: override(scalar(name), scalar("scheme"))})
		default:
			r.fail(nil, "schemes", "%q is neither one of the file's schemes nor a scheme; use %s", name, yamlfile.OrList(balance.Names()))
		}
	}
}

func axisOf(m matrix) *Axis {
	if len(m.axis) == 0 {
		return nil
	}
	a := &Axis{Label: m.label}
	for _, p := range m.axis {
		a.Points = append(a.Points, p.name)
		if v, err := finite(p.name); err == nil {
			a.Values = append(a.Values, v)
		}
	}
	if len(a.Values) < len(a.Points) {
		a.Values = nil
	}
	return a
}

// withLoad sets the load of all workloads of type poisson, or of those of a
// fabric.yaml; nil leaves them as they are.
func (r *reader) withLoad(root, load ast.Node) ast.Node {
	if load == nil {
		return root
	}
	var keys []ast.Node
	list, _ := find(root, "workloads").(*ast.SequenceNode)
	switch {
	case list != nil:
		for i, w := range list.Values {
			if kind := textOf(w, "type"); kind == vocab.Poisson || kind == "" && yamlfile.IsMapping(w) {
				keys = append(keys, scalar(fmt.Sprintf("workloads[%d].load", i)))
			}
		}
	case textOf(find(root, "topology"), "kind") == "file":
		keys = []ast.Node{scalar("topology.load")}
	}
	if keys == nil {
		r.fail(load, "loads", "no workload is of type %s, whose load it could be; remove loads", vocab.Poisson)
	}
	return r.merged(root, override(load, keys...))
}

// run decodes and checks one run; repeat counts its seeds from 0.
func (r *reader) run(run *Run, root ast.Node, repeat int, check bool) {
	spec := &sim.Spec{}
	if root == nil {
		root = emptyMapping(nil)
	}
	d := r.doc.Of(root)
	if d.Decode(spec); len(d.Errs) == 0 {
		problems := spec.Complete(r.dir)
		if len(problems) == 0 && check && repeat == 0 { // another seed is as right
			problems = r.opt.Check(spec)
		}
		d.Report(problems)
	}
	r.doc.Errs = append(r.doc.Errs, d.Errs...)
	spec.Seed += uint64(repeat)
	run.Spec, run.Seed = spec, spec.Seed
	run.ID = run.id()
}

// fileNames are the fields of a model that name files.
func fileNames(s *sim.Spec) []*string {
	names := []*string{}
	if s.Topology.File != "" {
		names = append(names, &s.Topology.File)
	}
	for i := range s.Workloads {
		w := &s.Workloads[i]
		if w.File != "" {
			names = append(names, &w.File)
		}
		if strings.HasSuffix(w.Sizes, ".csv") {
			names = append(names, &w.Sizes)
		}
	}
	return names
}

// id names a run: axis, scheme, load, seed, as far as they are said.
func (run *Run) id() string {
	parts := []string{}
	if run.Axis != "" {
		parts = append(parts, Slug(run.Axis))
	}
	parts = append(parts, Slug(run.Scheme))
	if run.Load != 0 {
		parts = append(parts, "load"+Slug(strconv.FormatFloat(run.Load, 'f', -1, 64)))
	}
	return strings.Join(append(parts, fmt.Sprintf("seed%d", run.Seed)), "_")
}

var notSlugRE = regexp.MustCompile(`[^a-z0-9.]+`)

// Slug makes a name fit for files: a-z, 0-9, . and -.
func Slug(s string) string {
	return strings.Trim(notSlugRE.ReplaceAllString(strings.ToLower(s), "-"), "-.")
}
