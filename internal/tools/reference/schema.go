package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"strings"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/internal/experiment"
	"github.com/loomfabric/loom/internal/yamlfile"
	"github.com/loomfabric/loom/sim"
)

// schema is a JSON Schema (2020-12).
type schema map[string]any

func (s schema) write() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	err := e.Encode(s)
	return b.Bytes(), err
}

// schemas returns the schemas of all kinds of files.
func schemas(c comments) map[string]schema {
	out := make(map[string]schema)
	for _, f := range files {
		b := &builder{comments: c, defs: make(map[string]any), partial: f.is == reflect.TypeFor[sim.Spec]()}
		root := b.object(f.is)
		if b.partial {
			root = b.experiment(root)
		}
		root["$schema"], root["title"], root["$defs"] = "https://json-schema.org/draft/2020-12/schema", "Loom: "+f.title, b.defs
		out[f.name] = root
	}
	return out
}

// builder makes the schema of one kind of file.
type builder struct {
	comments
	defs map[string]any
	// partial: keys may be left out for another layer to give, be null, or be paths
	// such as topology.leaves, as in experiments.
	partial bool
}

// object returns the schema of a struct.
func (b *builder) object(t reflect.Type) schema { return b.keys(b.rows(t)) }

func (b *builder) keys(rows []row) schema {
	properties, required := schema{}, []string{}
	for _, r := range rows {
		s := b.row(&r)
		s["description"] = r.doc
		properties[r.key] = s
		if strings.Contains(r.doc, "Required.") {
			required = append(required, r.key)
		}
	}
	s := schema{"type": "object", "properties": properties, "additionalProperties": false}
	if b.partial {
		s["patternProperties"] = schema{`[.\[]`: schema{}}
	} else if len(required) > 0 {
		s["required"] = required
	}
	return s
}

func (b *builder) row(r *row) schema {
	s := schema{}
	switch {
	case r.of != nil:
		s = b.ref(r.of.Name, func() schema { return b.section(r.of) })
	case r.enum != nil:
		s["enum"] = r.enum
	default:
		s = b.value(r.is)
	}
	if b.partial {
		return schema{"anyOf": []any{s, schema{"type": "null"}}}
	}
	return s
}

func (b *builder) section(of *balance.Section) schema { return b.keys(b.sectionRows(of)) }

// ref defines a schema once and refers to it.
func (b *builder) ref(name string, define func() schema) schema {
	name = strings.ReplaceAll(name, " ", "-")
	if b.defs[name] == nil {
		b.defs[name] = true // it may refer to itself
		b.defs[name] = define()
	}
	return schema{"$ref": "#/$defs/" + name}
}

// texts are the patterns of values that have a unit.
var texts = map[string]string{
	"rate": `^[0-9.eE+]+ ?([tgmkTGMK]?[bB][iI][tT](/s)?|(/s)?)$`,
	"size": `^[0-9.eE+]+ ?([gmkGMK]?[iI]?[bB])?$`,
	"time": `^([0-9.]+(ns|us|µs|ms|s|m|h))+$|^0$`,
}

func (b *builder) value(t reflect.Type) schema {
	switch w := word(t); w {
	case "":
	case "rate", "size", "time":
		return schema{"type": []string{"string", "integer"}, "pattern": texts[w], "minimum": 0}
	case "word or number", "port or range":
		return schema{"type": []string{"string", "integer"}}
	default:
		return schema{"type": "string"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return b.value(t.Elem())
	case reflect.Slice:
		whole := *b // a list replaces the list before it, so its items are complete
		whole.partial = false
		list := schema{"type": "array", "items": whole.value(t.Elem())}
		if w, ok := reflect.Zero(t).Interface().(yamlfile.Worded); ok {
			return schema{"anyOf": []schema{{"const": w.Word()}, list}}
		}
		return list
	case reflect.Map:
		return schema{"type": "object", "additionalProperties": b.value(t.Elem())}
	case reflect.Struct:
		return b.ref(title(t), func() schema { return b.object(t) })
	case reflect.Bool:
		return schema{"type": "boolean"}
	case reflect.String:
		return schema{"type": []string{"string", "number"}}
	case reflect.Float64:
		return schema{"type": "number"}
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uint:
		return schema{"type": "integer", "minimum": 0}
	}
	return schema{"type": "integer"}
}

// experiment adds to a run's model what an experiment has besides: the matrix of runs,
// plots, tables and expectations. Overrides are models of their own.
func (b *builder) experiment(spec schema) schema {
	text := schema{"type": "string"}
	with := func(extra schema) schema {
		s := schema{"type": "object", "additionalProperties": false, "patternProperties": spec["patternProperties"]}
		all := maps.Clone(spec["properties"].(schema))
		maps.Copy(all, extra)
		s["properties"] = all
		return s
	}
	list := func(items schema) schema { return schema{"type": "array", "minItems": 1, "items": items} }
	anyOf := func(s ...any) schema { return schema{"anyOf": s} }
	scalar := schema{"type": []string{"string", "number", "boolean", "null"}}
	b.defs["scheme"] = anyOf(text, with(schema{"name": text}))
	b.defs["axis"] = schema{"type": "object", "additionalProperties": false, "properties": schema{
		"label": text, "key": anyOf(text, list(text)), "values": list(scalar), "points": list(with(schema{"name": schema{"type": []string{"string", "number"}}})),
	}}
	matrix := schema{
		"schemes": list(schema{"$ref": "#/$defs/scheme"}), "loads": list(schema{"type": "number", "exclusiveMinimum": 0, "maximum": 200}),
		"seeds": schema{"type": "integer", "minimum": 1}, "axis": schema{"$ref": "#/$defs/axis"}, "note": text,
	}
	size := maps.Clone(matrix)
	size["published"] = schema{"type": "boolean"}
	b.defs["size"] = anyOf(with(size), schema{"type": "null"})
	head := schema{
		"name": text, "title": text, "paper": text, "claim": text, "reference": text,
		"sizes":  schema{"type": "object", "additionalProperties": schema{"$ref": "#/$defs/size"}},
		"plots":  list(b.value(reflect.TypeFor[experiment.Plot]())),
		"table":  list(anyOf(text, b.value(reflect.TypeFor[experiment.Column]()))),
		"expect": list(b.value(reflect.TypeFor[experiment.Expectation]())),
	}
	bounds := b.value(reflect.TypeFor[experiment.Bounds]())
	b.defs["Expectation"].(schema)["properties"].(schema)["paper"] = anyOf(bounds, schema{"type": "object", "additionalProperties": bounds})
	maps.Copy(head, matrix)
	s := with(head)
	s["required"] = []string{"name"}
	return s
}
