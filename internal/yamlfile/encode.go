package yamlfile

import (
	"encoding"
	"fmt"
	"reflect"
	"time"

	"github.com/goccy/go-yaml"
)

// Marshal writes a struct as YAML that [Document.Decode] reads.
func Marshal(v any) ([]byte, error) {
	m, err := Map(v)
	if err != nil {
		return nil, err
	}
	return yaml.Marshal(m)
}

// Map returns what v, a struct or a pointer to one, says in a file: keys, and as
// values texts, numbers, lists and further maps. What has the tag omitempty and is
// zero is left out.
func Map(v any) (yaml.MapSlice, error) {
	out, err := encode(reflect.ValueOf(v))
	m, ok := out.(yaml.MapSlice)
	if err == nil && !ok {
		err = fmt.Errorf("%T is not a mapping", v)
	}
	return m, err
}

func encode(v reflect.Value) (any, error) {
	if v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		if v.IsNil() {
			return nil, nil
		}
		return encode(v.Elem())
	}
	switch x := v.Interface().(type) {
	case yaml.InterfaceMarshaler:
		return x.MarshalYAML()
	case time.Duration:
		return x.String(), nil
	case encoding.TextMarshaler:
		b, err := x.MarshalText()
		return string(b), err
	}
	switch v.Kind() {
	case reflect.Struct:
		return encodeStruct(v)
	case reflect.Slice:
		out := make([]any, v.Len())
		for i := range out {
			var err error
			if out[i], err = encode(v.Index(i)); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	return v.Interface(), nil
}

func encodeStruct(v reflect.Value) (any, error) {
	if !v.CanAddr() { // open parts are looked at by pointer
		c := reflect.New(v.Type()).Elem()
		c.Set(v)
		v = c
	}
	m, k := yaml.MapSlice{}, keysOf(v.Type())
	add := func(key string, v reflect.Value) error {
		x, err := encode(v)
		if x != nil {
			m = append(m, yaml.MapItem{Key: key, Value: x})
		}
		return err
	}
	for _, f := range k.fields {
		if x := v.FieldByIndex(f.Index); !f.OmitEmpty || !empty(x) {
			if err := add(f.Key, x); err != nil {
				return nil, fmt.Errorf("%s: %w", f.Key, err)
			}
		}
	}
	for _, at := range k.open {
		for _, e := range openAt(v, at).Extras() {
			if err := add(e.Key, reflect.ValueOf(e.Value)); err != nil {
				return nil, fmt.Errorf("%s: %w", e.Key, err)
			}
		}
	}
	return m, nil
}

func empty(v reflect.Value) bool {
	if z, ok := v.Interface().(interface{ IsZero() bool }); ok {
		return z.IsZero()
	}
	switch v.Kind() {
	case reflect.Slice, reflect.Map:
		return v.Len() == 0
	}
	return v.IsZero()
}
