package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

const root = "../../.."

// TestCurrent: the page and the schemas are those of the types, and every key is
// documented.
func TestCurrent(t *testing.T) {
	files, err := generate(root)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Error(err)
		} else if !bytes.Equal(got, want) {
			t.Errorf("%s does not match the types; run `go run ./internal/tools/reference` at the top of the repository", name)
		}
	}
	for line := range strings.Lines(string(files["docs/config.md"])) {
		if strings.Contains(line, "undocumented") {
			t.Errorf("no doc comment: %s", line)
		}
	}
}

// compile returns a schema of the repository.
func compile(t *testing.T, name string) *jsonschema.Schema {
	t.Helper()
	s, err := jsonschema.NewCompiler().Compile(filepath.Join(root, "docs/schema", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// validate holds YAML against a schema.
func validate(t *testing.T, s *jsonschema.Schema, text []byte) error {
	t.Helper()
	b, err := yaml.YAMLToJSON(text)
	if err != nil {
		return err
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		return err
	}
	return s.Validate(v)
}

// TestShippedFiles: every file of the tree keeps to its schema.
func TestShippedFiles(t *testing.T) {
	for schema, patterns := range map[string][]string{
		"leafd":      {"deploy/examples/leafd.yaml"},
		"spined":     {"deploy/examples/spined.yaml"},
		"fabric":     {"test/netns/*.yaml", "test/netns/*/*.yaml"},
		"experiment": {"experiments/*.yaml"},
	} {
		s := compile(t, schema)
		for _, p := range patterns {
			names, err := filepath.Glob(filepath.Join(root, p))
			if err != nil || len(names) == 0 {
				t.Fatalf("%s: %v, %v", p, names, err)
			}
			for _, name := range names {
				text, err := os.ReadFile(name)
				if err = errors.Join(err, validate(t, s, text)); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
	}
}

// TestSchemasRefuse: the schemas say what is wrong, too.
func TestSchemasRefuse(t *testing.T) {
	for _, c := range []struct{ schema, text string }{
		{"leafd", "vtep: 10.0.0.1\nuplinks: []\naccess: []\nvnis: []\nworker: 1\n"},
		{"leafd", "vtep: 10.0.0.1\nuplinks: []\naccess: []\nvnis: []\nscheme: best\n"},
		{"leafd", "vtep: 10.0.0.1\nuplinks: []\naccess: []\nvnis: []\nconweave: {path-busy: 1ms}\n"},
		{"leafd", "vtep: 10.0.0.1\nuplinks: []\naccess: []\nvnis: []\ncongestion: {profile: auto}\n"},
		{"leafd", "vtep: 10.0.0.1\naccess: []\nvnis: []\n"}, // without uplinks
		{"fabric", "name: x\nleaves: 1\nspines: 1\nhosts: {per-leaf: 1}\nvnis: []\n"},
		{"fabric", "name: x\nleaves: 1\nspines: 1\nhosts: {}\nvnis: []\nlinks: {rate: fast}\n"},
		{"experiment", "topology: {leaves: 2}\n"},
		{"experiment", "name: x\ntopology: {hosts-per-leaf: 2}\n"},
		{"experiment", "name: x\nsizes: {quick: {topolgy: {leaves: 1}}}\n"},
	} {
		if err := validate(t, compile(t, c.schema), []byte(c.text)); err == nil {
			t.Errorf("%s: %q is accepted", c.schema, c.text)
		}
	}
}
