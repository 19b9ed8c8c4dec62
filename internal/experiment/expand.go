package experiment

import (
	"fmt"
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
	r.flags(&m)
	// What all runs override is not decoded with any of them.
	if m.spec != nil {
		r.decode(m.spec, &sim.Spec{})
	}
	if len(m.schemes) == 0 {
		m.schemes = []variant{{name: r.baseScheme(m.spec), over: emptyMapping(m.spec)}}
	}
	for _, v := range m.schemes {
		s.Schemes = append(s.Schemes, v.name)
	}
	for _, l := range m.loads {
		v, _ := finite(yamlfile.Text(l))
		s.Loads = append(s.Loads, v)
	}
	s.Axis = axisOf(m)
	if n := m.seeds * len(s.LoadPoints()) * len(s.Points()) * len(s.Schemes); n > maxRuns {
		r.fail(nil, "", "size %s has %d runs; use at most %d", s.Name, n, maxRuns)
		return
	}
	if r.wrong() {
		return
	}
	for i := range m.seeds {
		for a, point := range s.Points() {
			base := m.spec
			if len(m.axis) > 0 {
				base = r.merged(base, m.axis[a].over)
			}
			for l, load := range s.LoadPoints() {
				for _, scheme := range m.schemes {
					root := r.merged(base, scheme.over)
					if len(m.loads) > 0 {
						root = r.withLoad(root, m.loads[l])
					}
					run := Run{Scheme: scheme.name, Load: load, Axis: point}
					if r.run(&run, root, i, r.checked(s)); r.wrong() {
						return
					}
					s.Runs = append(s.Runs, run)
				}
			}
		}
	}
	for _, run := range s.Runs {
		if !slices.Contains(s.Seeds, run.Seed) {
			s.Seeds = append(s.Seeds, run.Seed)
		}
	}
	r.exp.Sizes = append(r.exp.Sizes, s)
}

// flags puts what the caller asked for in the place of the file's.
func (r *reader) flags(m *matrix) {
	if r.opt.Seeds != 0 {
		m.seeds = r.opt.Seeds
		if m.seeds < 1 || m.seeds > maxSeeds {
			r.fail(nil, "seeds", "%d seeds; use 1 to %d", m.seeds, maxSeeds)
		}
	}
	if len(r.opt.Loads) > 0 {
		m.loads = nil
		for _, l := range r.opt.Loads {
			if !(l > 0 && l <= 200) {
				r.fail(nil, "loads", "a load of %g percent; use a number above 0 and up to 200", l)
				return
			}
			n, err := scalarNode(strconv.FormatFloat(l, 'f', -1, 64))
			if err != nil {
				r.failed(err)
				return
			}
			m.loads = append(m.loads, n)
		}
	}
	if len(r.opt.Schemes) == 0 {
		return
	}
	own := m.schemes
	m.schemes = nil
	for _, name := range r.opt.Schemes {
		i := slices.IndexFunc(own, func(v variant) bool { return v.name == name })
		switch {
		case slices.ContainsFunc(m.schemes, func(v variant) bool { return v.name == name }):
			r.fail(nil, "schemes", "%s is there twice; name it once", name)
		case i >= 0:
			m.schemes = append(m.schemes, own[i])
		case slices.Contains(balance.Names(), name):
			if n, err := scalarNode(name); err == nil {
				m.schemes = append(m.schemes, variant{name: name, over: schemeOnly(n)})
			}
		default:
			r.fail(nil, "schemes", "%q is neither one of the file's schemes nor a scheme; use %s", name, yamlfile.OrList(balance.Names()))
		}
	}
}

// baseScheme is the label of the only scheme.
func (r *reader) baseScheme(spec ast.Node) string {
	for _, p := range yamlfile.Pairs(spec) {
		if yamlfile.Text(p.Key) == "scheme" {
			if name := yamlfile.Text(p.Value); slug(name) != "" {
				return name
			}
		}
	}
	return "default"
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
// fabric.yaml.
func (r *reader) withLoad(root, load ast.Node) ast.Node {
	found := 0
	if ofFile(root) {
		over := emptyMapping(load)
		over.Values = append(over.Values, pair(load, "topology.load", load))
		return r.merged(root, over)
	}
	for _, p := range yamlfile.Pairs(root) {
		list, ok := p.Value.(*ast.SequenceNode)
		if !ok || yamlfile.Text(p.Key) != "workloads" {
			continue
		}
		for i, w := range list.Values {
			if !isPoisson(w) {
				continue
			}
			over := emptyMapping(load)
			over.Values = append(over.Values, pair(load, fmt.Sprintf("workloads[%d].load", i), load))
			root = r.merged(root, over)
			found++
		}
	}
	if found == 0 {
		r.fail(load, "loads", "no workload is of type %s, whose load it could be; remove loads", vocab.Poisson)
	}
	return root
}

// ofFile tells whether a run has the workloads of a fabric.yaml.
func ofFile(root ast.Node) bool {
	file := false
	for _, p := range yamlfile.Pairs(root) {
		switch yamlfile.Text(p.Key) {
		case "workloads":
			return false
		case "topology":
			for _, f := range yamlfile.Pairs(p.Value) {
				file = file || yamlfile.Text(f.Key) == "kind" && yamlfile.Text(f.Value) == "file"
			}
		}
	}
	return file
}

// isPoisson tells whether a workload is of the type that has a load; it is the default.
func isPoisson(w ast.Node) bool {
	for _, f := range yamlfile.Pairs(w) {
		if yamlfile.Text(f.Key) == "type" {
			return yamlfile.Text(f.Value) == vocab.Poisson
		}
	}
	return yamlfile.IsMapping(w)
}

// checked tells whether the caller wants a size looked into.
func (r *reader) checked(s *Size) bool {
	return r.opt.Check != nil && (s.Name == r.opt.Size || r.opt.Size == "" && len(r.exp.Sizes) == 0)
}

// run decodes and checks one run; repeat counts its seeds from 0.
func (r *reader) run(run *Run, root ast.Node, repeat int, check bool) {
	spec := &sim.Spec{}
	if root == nil {
		root = emptyMapping(nil)
	}
	d := r.doc.Of(root)
	if d.Decode(spec); len(d.Errs) > 0 {
		r.add(d.Errs)
		return
	}
	problems := spec.Complete(r.dir)
	if len(problems) == 0 && check && repeat == 0 { // another seed is as right
		problems = r.opt.Check(spec)
	}
	d.Report(problems)
	r.add(d.Errs)
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
		parts = append(parts, slug(run.Axis))
	}
	parts = append(parts, slug(run.Scheme))
	if run.Load != 0 {
		parts = append(parts, "load"+slug(strconv.FormatFloat(run.Load, 'f', -1, 64)))
	}
	return strings.Join(append(parts, fmt.Sprintf("seed%d", run.Seed)), "_")
}

// slug makes a name fit for files: a-z, 0-9, . and -.
func slug(s string) string {
	out := []byte{}
	for _, c := range []byte(strings.ToLower(s)) {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '.':
			out = append(out, c)
		case len(out) > 0 && out[len(out)-1] != '-':
			out = append(out, '-')
		}
	}
	return strings.Trim(string(out), "-.")
}
