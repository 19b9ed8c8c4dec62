package yamlfile

import (
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
)

// Open is a part of a struct, with the tag `yaml:",inline"`, whose keys the type
// does not say: they depend on what else there is.
type Open interface {
	// Extra returns a pointer to where the value of a key belongs; nil: the key is
	// not one of its own.
	Extra(key string) any
	// ExtraKeys returns the keys that Extra knows, for messages.
	ExtraKeys() []string
	// Extras returns the values that there are, for [Map].
	Extras() yaml.MapSlice
}

// Renamed is a struct that had other keys before. It returns what is to be
// written for each of them: "fan_in".
type Renamed interface{ OldKeys() map[string]string }

// Field is a key of a struct, or of one that is inlined in it.
type Field struct {
	Key       string
	Index     []int // as reflect.Value.FieldByIndex takes it
	Type      reflect.Type
	OmitEmpty bool
	Owner     reflect.Type // the struct that has the field
	Name      string       // of the field
}

type structKeys struct {
	fields []Field
	open   [][]int // inlined parts that are Open
}

var openType = reflect.TypeFor[Open]()

// Fields returns the keys of a struct type in the order of its fields. Where two have
// a key, the first one counts.
func Fields(t reflect.Type) []Field { return keysOf(t).fields }

func keysOf(t reflect.Type) *structKeys {
	k := new(structKeys)
	k.add(t, nil)
	return k
}

func (k *structKeys) add(t reflect.Type, at []int) {
	opens := len(k.open)
	for i := range t.NumField() {
		f := t.Field(i)
		name, opts, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		index := append(slices.Clone(at), i)
		if opts == "inline" && f.Type.Kind() == reflect.Struct {
			k.add(f.Type, index)
		} else if _, dup := k.find(name); !dup && name != "" && name != "-" {
			k.fields = append(k.fields, Field{name, index, f.Type, opts == "omitempty", t, f.Name})
		}
	}
	if p := reflect.PointerTo(t); len(k.open) == opens && p.Implements(openType) {
		k.open = append(k.open, at)
	}
}

func (k *structKeys) find(key string) (Field, bool) {
	i := slices.IndexFunc(k.fields, func(f Field) bool { return f.Key == key })
	if i < 0 {
		return Field{}, false
	}
	return k.fields[i], true
}

// names returns the keys of a struct, those of its open parts included.
func (k *structKeys) names(v reflect.Value) (names []string) {
	for _, f := range k.fields {
		names = append(names, f.Key)
	}
	for _, at := range k.open {
		names = append(names, openAt(v, at).ExtraKeys()...)
	}
	return names
}

// extra returns a pointer to where the value of a key of an open part belongs; nil:
// none has it.
func (k *structKeys) extra(v reflect.Value, key string) any {
	for _, at := range k.open {
		if to := openAt(v, at).Extra(key); to != nil {
			return to
		}
	}
	return nil
}

func openAt(v reflect.Value, at []int) Open { return v.FieldByIndex(at).Addr().Interface().(Open) }

// FieldOf returns a pointer to the field of a key, such as drill.samples, in the struct
// that v points to; nil: it has no such key. [Open] parts that wrap a struct are made
// of it.
func FieldOf(v any, key string) any {
	for _, step := range strings.Split(key, ".") {
		s := reflect.ValueOf(v).Elem()
		if s.Kind() != reflect.Struct {
			return nil
		}
		f, ok := keysOf(s.Type()).find(step)
		if !ok {
			return nil
		}
		v = s.FieldByIndex(f.Index).Addr().Interface()
	}
	return v
}

// Names returns the keys that the struct which v points to can have, those of its
// open parts included.
func Names(v any) []string {
	s := reflect.ValueOf(v).Elem()
	return keysOf(s.Type()).names(s)
}
