package yamlfile

import (
	"encoding"
	"reflect"

	"github.com/goccy/go-yaml"
)

// Mapper is a type that says itself what stands for it in what [Map] returns.
type Mapper interface{ Map() any }

// Marshal writes a struct as YAML that [Document.Decode] reads.
func Marshal(v any) ([]byte, error) { return yaml.Marshal(Map(v)) }

// Map returns what v, a struct or a pointer to one, says in a file: keys, and as
// values scalars, lists and further maps. What has the tag omitempty and is zero is
// left out.
func Map(v any) yaml.MapSlice { return encode(reflect.ValueOf(v)).(yaml.MapSlice) }

func encode(v reflect.Value) any {
	if v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		if v.IsNil() {
			return nil
		}
		return encode(v.Elem())
	}
	switch x := v.Interface().(type) {
	case Mapper:
		return x.Map()
	case encoding.TextMarshaler:
		return x
	}
	switch v.Kind() {
	case reflect.Struct:
		return encodeStruct(v)
	case reflect.Slice:
		if w, ok := v.Interface().(Worded); ok && !v.IsNil() && v.Len() == 0 {
			return w.Word()
		}
		out := make([]any, v.Len())
		for i := range out {
			out[i] = encode(v.Index(i))
		}
		return out
	}
	return v.Interface()
}

func encodeStruct(v reflect.Value) yaml.MapSlice {
	if !v.CanAddr() { // open parts are looked at by pointer
		c := reflect.New(v.Type()).Elem()
		c.Set(v)
		v = c
	}
	m, k := yaml.MapSlice{}, keysOf(v.Type())
	add := func(key string, v reflect.Value) {
		if x := encode(v); x != nil {
			m = append(m, yaml.MapItem{Key: key, Value: x})
		}
	}
	for _, f := range k.fields {
		if x := v.FieldByIndex(f.Index); !f.OmitEmpty || !empty(x) {
			add(f.Key, x)
		}
	}
	for _, at := range k.open {
		for _, e := range openAt(v, at).Extras() {
			add(e.Key.(string), reflect.ValueOf(e.Value))
		}
	}
	return m
}

func empty(v reflect.Value) bool {
	return v.IsZero() || v.Kind() == reflect.Slice && v.Len() == 0 || v.Kind() == reflect.Map && v.Len() == 0
}
