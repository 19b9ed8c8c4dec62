package config

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"strings"
	"testing"
)

// TestReference holds docs/config.md against the types: the page is made of
// their doc comments, so every key is in it and none is out of date.
func TestReference(t *testing.T) {
	const page = "../docs/config.md"
	r := &reference{docs: fieldDocs(t)}
	r.out.WriteString("# Configuration\n\n" +
		"<!-- Made from the doc comments of package config; rewrite with `go test ./config -run Reference -update`. -->\n\n" +
		"`leafd` and `spined` read one YAML file each; `leafd check -c FILE` and `spined check -c FILE` find its mistakes without\n" +
		"touching anything. Keys that do not exist are mistakes. Rates are written as `10Gbit` or `2.5Gbit` (bits per second),\n" +
		"sizes as `256KiB`, `150KB` or `1500` (bytes), times as `50us`, `1.5s` or `5m`. Examples stand in\n" +
		"[deploy/examples](../deploy/examples).\n\n" +
		"A running `leafd` takes over changes of `scheme`, `weights`, `drill`, `flowlets`, `classes` and, of `conweave`, what the\n" +
		"sending side is told (`reply`, `path_busy`, `samples`, `selectors`, `connections`) at SIGHUP (`systemctl\n" +
		"reload leafd`), and loses no frame; flowlets and connections start anew. A file that is wrong, or has any other change, is refused whole: the log names\n" +
		"what is wrong, or the keys that need a restart, and everything stays as it was.\n")
	r.section("leafd", reflect.TypeFor[Leaf]())
	r.section("spined", reflect.TypeFor[Spine]())
	for len(r.queue) > 0 {
		next := r.queue[0]
		r.queue = r.queue[1:]
		r.section(next.Name(), next)
	}
	got := r.out.String()
	if *update {
		if err := os.WriteFile(page, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s does not match the types; rewrite it with -update", page)
	}
}

type reference struct {
	out   strings.Builder
	docs  map[string]string // by "Type.Field"
	queue []reflect.Type
	seen  map[reflect.Type]bool
}

func (r *reference) section(title string, t reflect.Type) {
	fmt.Fprintf(&r.out, "\n## %s\n\n%s\n\n| key | value | meaning |\n| --- | --- | --- |\n", title, r.docs[t.Name()])
	r.rows(t)
}

func (r *reference) rows(t reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, opts, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if opts == "inline" {
			r.rows(f.Type)
			continue
		}
		doc := r.docs[t.Name()+"."+f.Name]
		if doc == "" {
			doc = "undocumented"
		}
		fmt.Fprintf(&r.out, "| `%s` | %s | %s |\n", name, r.value(f.Type), strings.ReplaceAll(doc, "|", "\\|"))
	}
}

// value names what is written for a type, and queues structs for a section of
// their own.
func (r *reference) value(t reflect.Type) string {
	words := map[string]string{
		"Addr": "address", "Prefix": "prefix", "MAC": "MAC address", "Rate": "rate", "Size": "size", "Duration": "time",
		"Polling": "word", "XDPMode": "word", "CopyMode": "word",
		"Protocol": "word or number", "DSCP": "word or number", "Profile": "word", "ConWeaveProfile": "word", "Gap": "time or auto", "Detector": "word", "PathMetric": "word",
	}
	switch {
	case words[t.Name()] != "":
		return words[t.Name()]
	case t.Kind() == reflect.Slice:
		return "list of " + r.value(t.Elem())
	case t.Kind() == reflect.Map:
		return "mapping of " + r.value(t.Key()) + " to " + r.value(t.Elem())
	case t.Kind() == reflect.Struct:
		if r.seen == nil {
			r.seen = make(map[reflect.Type]bool)
		}
		if !r.seen[t] {
			r.seen[t] = true
			r.queue = append(r.queue, t)
		}
		return fmt.Sprintf("[%s](#%s)", t.Name(), strings.ToLower(t.Name()))
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.String:
		return "text"
	}
	return "number"
}

// fieldDocs collects the doc comments of the package's structs and fields.
func fieldDocs(t *testing.T) map[string]string {
	t.Helper()
	docs := make(map[string]string)
	for _, file := range []string{"common.go", "leaf.go", "spine.go", "balance.go", "conweave.go"} {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.TYPE {
				continue
			}
			for _, s := range g.Specs {
				ts := s.(*ast.TypeSpec)
				st, ok := ts.Type.(*ast.StructType)
				if !ok {
					continue
				}
				docs[ts.Name.Name] = oneLine(g.Doc)
				for _, fl := range st.Fields.List {
					for _, n := range fl.Names {
						docs[ts.Name.Name+"."+n.Name] = oneLine(fl.Doc)
						if fl.Doc == nil {
							t.Errorf("%s.%s has no doc comment", ts.Name.Name, n.Name)
						}
					}
				}
			}
		}
	}
	return docs
}

func oneLine(c *ast.CommentGroup) string { return strings.Join(strings.Fields(c.Text()), " ") }
