package vocab

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/internal/field"
	"github.com/loomfabric/loom/internal/units"
	"github.com/loomfabric/loom/internal/yamlfile"
	"github.com/loomfabric/loom/leaf"
)

// Section is a mapping whose values start from those of a profile, which it names
// under its key `profile`. What is left out is the profile's.
type Section struct {
	of     *balance.Section
	layers []yamlfile.Node // what files give, the lowest first
	// Profile and Params are known once Resolve has been called.
	Profile balance.Profile
	Params  balance.Params
	derived []string // keys whose values follow from measured round trips
}

// Capture keeps what a file gives. A second file is put on top of the first one.
func (s *Section) Capture(n yamlfile.Node) { s.layers = append(slices.Clone(s.layers), n) }

// Under puts what another file gives below what s has.
func (s *Section) Under(below *Section) { s.layers = slices.Concat(below.layers, s.layers) }

// Given reports whether a file gives a key.
func (s *Section) Given(key string) bool {
	return slices.ContainsFunc(s.layers, func(n yamlfile.Node) bool { return n.Given(key) })
}

// sectionKeys are a section's keys while it is decoded.
type sectionKeys struct {
	Profile yamlfile.Node `yaml:"profile"`
	params  balance.Params
}

func (k *sectionKeys) Extra(key string) any  { return yamlfile.FieldOf(k.params, key) }
func (k *sectionKeys) ExtraKeys() []string   { return yamlfile.Names(k.params) }
func (k *sectionKeys) Extras() yaml.MapSlice { return nil }

// Resolve completes Profile and Params, and returns what is wrong with them. base
// is the profile of a section that names none.
func (s *Section) Resolve(base balance.Profile) (errs yamlfile.Errors) {
	s.Profile, s.derived = base, nil
	for _, n := range s.layers {
		w := word{of: s.of.Profiles, is: s.Profile}
		if p, ok := n.Get("profile"); ok {
			errs = append(errs, p.Decode(&w)...)
		}
		s.Profile = w.is
	}
	start := s.Profile
	if start == balance.Auto {
		start = base // for what does not follow from round trips
	}
	s.Params = s.of.New(start)
	for _, n := range s.layers {
		errs = append(errs, n.Decode(&sectionKeys{params: s.Params})...)
	}
	if len(errs) > 0 {
		return errs
	}
	if p, ok := s.Params.(interface{ SetAuto(func(key string) bool) }); ok && s.Profile == balance.Auto {
		p.SetAuto(func(key string) bool {
			given := s.Given(key)
			if !given {
				s.derived = append(s.derived, key)
			}
			return given
		})
	}
	return append(errs, validate(s.Params, s.of.New(start), s.errorOf)...)
}

// errorOf places an error of the parameters: at its key or, if no file gives that,
// at one that it mentions.
func (s *Section) errorOf(e *field.Error) *yamlfile.Error {
	for _, key := range append([]string{e.Key}, strings.Fields(e.Problem)...) {
		for _, n := range slices.Backward(s.layers) {
			if n.Given(key) {
				return n.Errorf(key, "%s; %s", e.Problem, e.Remedy)
			}
		}
	}
	if n := len(s.layers); n > 0 {
		return s.layers[n-1].Errorf(e.Key, "%s; %s", e.Problem, e.Remedy)
	}
	return &yamlfile.Error{Path: join(s.of.Name, e.Key), Problem: e.Problem, Fix: e.Remedy}
}

// validate returns all that is wrong with parameters. Validate reports one thing at
// a time, so what it reports is set to its default in turn.
func validate(p, defaults balance.Params, at func(*field.Error) *yamlfile.Error) (errs yamlfile.Errors) {
	last := ""
	for {
		err := p.Validate()
		if err == nil {
			return errs
		}
		e := fieldOf(err)
		if e.Key == last {
			return errs // its default is wrong beside another value
		}
		last = e.Key
		errs = append(errs, at(e))
		to := yamlfile.FieldOf(p, e.Key)
		if to == nil {
			return errs
		}
		reflect.ValueOf(to).Elem().Set(reflect.ValueOf(yamlfile.FieldOf(defaults, e.Key)).Elem())
	}
}

// Map returns the section in full, but for values that are derived. It returns what
// was given before the rest is known.
func (s Section) Map() any {
	if s.Params == nil {
		return s.merged()
	}
	out := yaml.MapSlice{{Key: "profile", Value: s.Profile.String()}}
	for _, item := range yamlfile.Map(s.Params) {
		if !slices.Contains(s.derived, item.Key.(string)) {
			out = append(out, item)
		}
	}
	return out
}

// MarshalJSON writes what was given.
func (s Section) MarshalJSON() ([]byte, error) { return json.Marshal(s.merged()) }

// merged returns what files give.
func (s *Section) merged() map[string]any {
	out := make(map[string]any)
	for _, n := range s.layers {
		m, _ := n.Any().(map[string]any)
		maps.Copy(out, m)
	}
	return out
}

// word reads a profile's name.
type word struct {
	of []balance.Profile
	is balance.Profile
}

// UnmarshalText reads a profile's name.
func (w *word) UnmarshalText(b []byte) error {
	var names []string
	for _, p := range w.of {
		names = append(names, p.String())
	}
	i, err := yamlfile.Choose("profile", b, names)
	if err == nil {
		w.is = w.of[i]
	}
	return err
}

// Sections are the sections of all schemes, each under its name.
type Sections struct{ all []Section }

// list returns all sections, in the order in which package balance lists them.
func (s *Sections) list() []Section {
	if s.all == nil {
		for _, of := range balance.Sections() {
			s.all = append(s.all, Section{of: of})
		}
	}
	return s.all
}

// Get returns the section of a name; nil: no scheme has it.
func (s *Sections) Get(name string) *Section {
	for i := range s.list() {
		if s.all[i].of.Name == name {
			return &s.all[i]
		}
	}
	return nil
}

// Extra returns the section of a name.
func (s *Sections) Extra(name string) any {
	if x := s.Get(name); x != nil {
		return x
	}
	return nil
}

// ExtraKeys returns the sections' names.
func (*Sections) ExtraKeys() (names []string) {
	for _, of := range balance.Sections() {
		names = append(names, of.Name)
	}
	return names
}

// Extras returns the sections that are known.
func (s *Sections) Extras() (out yaml.MapSlice) {
	for _, x := range s.all {
		if x.Params != nil || len(x.layers) > 0 {
			out = append(out, yaml.MapItem{Key: x.of.Name, Value: x})
		}
	}
	return out
}

// Under puts what another file gives below what s has.
func (s *Sections) Under(below *Sections) {
	for i := range below.all {
		s.list()[i].Under(&below.all[i])
	}
}

// Resolve completes every section and returns what is wrong. base is the profile of
// those that name none.
func (s *Sections) Resolve(base balance.Profile) (errs yamlfile.Errors) {
	for i := range s.list() {
		errs.Add(s.all[i].Resolve(base))
	}
	return errs
}

// Auto says which times leaves derive from round trips: those that sections under
// profile auto leave out.
func (s *Sections) Auto() (a leaf.Auto) {
	for key, to := range map[string]*bool{
		"reply": &a.Reply, "inactive": &a.Inactive, "resume_extra": &a.ResumeExtra, "resume_default": &a.ResumeDefault, "max_hold": &a.MaxHold,
	} {
		*to = slices.ContainsFunc(s.all, func(x Section) bool { return slices.Contains(x.derived, key) })
	}
	return a
}

// Clone returns a copy that shares nothing that changes.
func (s *Sections) Clone() Sections { return Sections{slices.Clone(s.all)} }

// Only returns a copy that says of the other sections what nobody has said.
func (s *Sections) Only(name string) (out Sections) {
	for i, x := range s.list() {
		if x.of.Name == name {
			*out.Get(name) = s.all[i]
		}
	}
	return out
}

// ByName returns the sections' parameters by their names.
func (s *Sections) ByName() map[string]balance.Params {
	out := make(map[string]balance.Params, len(s.all))
	for _, x := range s.all {
		out[x.of.Name] = x.Params
	}
	return out
}

// MarshalJSON writes what was given.
func (s Sections) MarshalJSON() ([]byte, error) {
	m := make(map[string]Section)
	for _, x := range s.all {
		if len(x.layers) > 0 {
			m[x.of.Name] = x
		}
	}
	return json.Marshal(m)
}

// Congestion are the parameters of CONGA.
type Congestion struct{ Section }

// CongestionSection describes the section congestion as a scheme's own is described.
// Its times do not follow from a profile: only the flowlet gap can be auto.
var CongestionSection = &balance.Section{
	Name: "congestion",
	Summary: "Congestion are the parameters of CONGA. They must be the same on all leaves and spines of a fabric, whatever the scheme: " +
		"each link is metered by the node that sends on it.",
	New: func(p balance.Profile) balance.Params {
		c := congestion.Lab()
		if p == balance.Datacenter {
			c = congestion.Datacenter()
		}
		return &CongestionParams{FlowletGap: Gap(c.FlowletGap), Params: c}
	},
	Profiles: []balance.Profile{balance.Datacenter, balance.Lab},
}

// CongestionParams are what the section congestion has.
type CongestionParams struct {
	// FlowletGap is the pause after which a flow may move, a time or auto. It should
	// exceed the time that the full queue of an uplink with a shaper takes: a leaf
	// warns of one that does not. With auto it follows from the round trips that a
	// leaf measures, and that time.
	FlowletGap        Gap `yaml:"flowlet_gap"`
	congestion.Params `yaml:",inline"`
}

// Validate reports the first parameter that makes no sense.
func (p *CongestionParams) Validate() error {
	if p.Q < 1 || p.Q > congestion.WireQ {
		return field.Errorf("q", fmt.Sprintf("use 1 to %d: that is the room in the fabric's header", congestion.WireQ), "a metric of %d bits", p.Q)
	}
	if p.FlowletGap != AutoGap {
		p.Params.FlowletGap = time.Duration(p.FlowletGap)
	}
	return p.Params.Validate()
}

// Resolve completes the parameters and returns what is wrong with them. base is the
// profile if the file names none.
func (c *Congestion) Resolve(base balance.Profile) yamlfile.Errors {
	c.of = CongestionSection
	return c.Section.Resolve(base)
}

// CONGA returns the parameters in full, once they are resolved.
func (c *Congestion) CONGA() congestion.Params { return c.Params.(*CongestionParams).Params }

// Auto reports whether leaves derive the flowlet gap from round trips.
func (c *Congestion) Auto() bool { return c.Params.(*CongestionParams).FlowletGap == AutoGap }

// Gap is a time span, or auto.
type Gap time.Duration

// AutoGap is the Gap that a leaf derives from round trips.
const AutoGap Gap = -1

// UnmarshalText reads a time span or auto.
func (g *Gap) UnmarshalText(b []byte) error {
	if string(b) == "auto" {
		*g = AutoGap
		return nil
	}
	t, err := units.ParseDuration(string(b))
	*g = Gap(t)
	return err
}

// MarshalText writes what UnmarshalText reads.
func (g Gap) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// String is the text that UnmarshalText reads.
func (g Gap) String() string {
	if g == AutoGap {
		return "auto"
	}
	return time.Duration(g).String()
}
