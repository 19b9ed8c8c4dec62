// Package vocab is the vocabulary of the project's files: what leafd.yaml,
// spined.yaml, fabric.yaml and experiments have in common. Each thing has one
// spelling, one unit, one meaning and one default there, whichever file it stands
// in. Schemes and their parameters come from package balance. The package touches
// neither machine nor network.
package vocab

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/internal/field"
	"github.com/loomfabric/loom/internal/yamlfile"
	"github.com/loomfabric/loom/leaf"
)

// Balancing is a scheme, and what it is told in keys beside its name.
type Balancing struct {
	// Scheme is how load is balanced over the uplinks. Default: ecmp; required in
	// classes.
	Scheme string `yaml:"scheme,omitempty"`
	// Shadow is a second scheme that sees the same packets, links and feedback, and whose
	// choices are only counted: how often it agrees, and how many bytes it would have sent by
	// each uplink. Frames go as they do without it. Not every scheme can be one. Default: none.
	Shadow string `yaml:"shadow,omitempty"`
	Keys   `yaml:",inline"`
}

// Check resolves the keys and returns what is wrong with scheme and keys. The
// scheme stands below the path at; uplinks is how many there are, 0: unknown.
func (b *Balancing) Check(at string, uplinks int) (errs yamlfile.Errors) {
	if !errs.OneOf(join(at, "scheme"), "scheme", b.Scheme, balance.Names()...) {
		return errs
	}
	if b.Shadow != "" {
		errs.OneOf(join(at, "shadow"), "scheme that can be a shadow", b.Shadow, leaf.Shadows()...)
	}
	return b.Resolve(b.Scheme, uplinks)
}

// Keys are what a scheme is told in keys beside its name. What they are is known
// when the scheme is.
type Keys struct {
	given []givenKey
	// Params are what the scheme is told, with its defaults for what is left out;
	// nil: it is told nothing, or Resolve has not been called.
	Params balance.Params `yaml:"-"`
}

type givenKey struct {
	key string
	yamlfile.Node
}

// Extra keeps what stands under a key that some scheme has.
func (k *Keys) Extra(key string) any {
	if len(having(key)) == 0 {
		return nil
	}
	// A second decoding, of a file on top of another one, replaces the key.
	k.given = slices.DeleteFunc(slices.Clone(k.given), func(g givenKey) bool { return g.key == key })
	k.given = append(k.given, givenKey{key: key})
	return &k.given[len(k.given)-1].Node
}

// ExtraKeys returns the keys of all schemes.
func (*Keys) ExtraKeys() (keys []string) {
	for _, s := range balance.Schemes() {
		if s.Keys == nil {
			continue
		}
		for _, key := range yamlfile.Names(s.Keys()) {
			if !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// Extras returns the values.
func (k *Keys) Extras() (out yaml.MapSlice) {
	if k.Params == nil {
		for _, g := range k.given {
			out = append(out, yaml.MapItem{Key: g.key, Value: g.Any()})
		}
		return out
	}
	for _, key := range yamlfile.Names(k.Params) {
		value := yamlfile.FieldOf(k.Params, key)
		if v := reflect.ValueOf(value).Elem(); v.Kind() != reflect.Slice || v.Len() > 0 {
			out = append(out, yaml.MapItem{Key: key, Value: value})
		}
	}
	return out
}

// Under puts the keys of another file below those that k has.
func (k *Keys) Under(below *Keys) {
	out := slices.Clone(below.given)
	for _, g := range k.given {
		out = slices.DeleteFunc(out, func(o givenKey) bool { return o.key == g.key })
	}
	k.given = append(out, k.given...)
}

// Resolve completes Params for a scheme that exists, and returns what is wrong
// with them: keys of other schemes, too. uplinks is how many a leaf has, 0:
// unknown.
func (k *Keys) Resolve(scheme string, uplinks int) (errs yamlfile.Errors) {
	s := balance.Find(scheme)
	k.Params = nil
	if s.Keys != nil {
		k.Params = s.Keys()
	}
	k.given = slices.DeleteFunc(slices.Clone(k.given), func(g givenKey) bool { return g.Node == (yamlfile.Node{}) }) // null
	for _, g := range k.given {
		var to any
		if k.Params != nil {
			to = yamlfile.FieldOf(k.Params, g.key)
		}
		if to == nil {
			errs = append(errs, g.Errorf("", "scheme %s has no %s; remove the key, or use scheme %s", scheme, g.key, yamlfile.OrList(having(g.key))))
			continue
		}
		errs = append(errs, g.Decode(to)...)
	}
	if k.Params == nil || len(errs) > 0 {
		return errs
	}
	errs = validate(k.Params, s.Keys(), k.errorOf)
	if fit, ok := k.Params.(balance.UplinkParams); ok && len(errs) == 0 && uplinks > 0 {
		if err := fit.FitUplinks(uplinks); err != nil {
			errs = append(errs, k.errorOf(fieldOf(err)))
		}
	}
	return errs
}

// errorOf places an error of the parameters.
func (k *Keys) errorOf(e *field.Error) *yamlfile.Error {
	key, below, _ := strings.Cut(e.Key, ".")
	for _, g := range k.given {
		if g.key == key {
			return g.Errorf(below, "%s; %s", e.Problem, e.Remedy)
		}
	}
	return &yamlfile.Error{Path: e.Key, Problem: e.Problem, Fix: e.Remedy}
}

// MarshalJSON writes what was given.
func (k Keys) MarshalJSON() ([]byte, error) {
	m := make(map[string]any, len(k.given))
	for _, g := range k.given {
		m[g.key] = g.Any()
	}
	return json.Marshal(m)
}

// having returns the schemes that have a key.
func having(key string) (schemes []string) {
	for _, s := range balance.Schemes() {
		if s.Keys != nil && slices.Contains(yamlfile.Names(s.Keys()), key) {
			schemes = append(schemes, s.Name)
		}
	}
	return schemes
}

// fieldOf returns an error of a Validate as one about a field.
func fieldOf(err error) *field.Error {
	var e *field.Error
	if errors.As(err, &e) {
		return e
	}
	problem, remedy, ok := strings.Cut(err.Error(), ": ")
	if !ok {
		remedy = "correct it, or leave it out"
	}
	return &field.Error{Problem: problem, Remedy: remedy}
}

func join(at, key string) string {
	return strings.TrimPrefix(fmt.Sprintf("%s.%s", at, key), ".")
}
