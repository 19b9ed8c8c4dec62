package main

import (
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/internal/yamlfile"
)

// Types that read a value of their own.
var (
	textType = reflect.TypeFor[encoding.TextUnmarshaler]()
	nodeType = reflect.TypeFor[yaml.NodeUnmarshaler]()
)

const intro = `# Configuration

<!-- Made from the types' doc comments; rewrite with ` + "`go run ./internal/tools/reference`" + `. -->

` + "`leafd`, `spined`, `loomlab` (fabric.yaml) and `loomsim`" + ` (experiments) read YAML with one vocabulary: a key has one spelling, one
unit and one meaning, whichever file it stands in. Keys that do not exist are mistakes, and so are keys of another scheme or of
another type of workload. Every mistake in a file is reported at once, with its line and what to do. Rates are written as
` + "`10Gbit` or `2.5Gbit` (bits per second), sizes as `256KiB`, `150KB` or `1500` (bytes), times as `50us`, `1.5s` or `5m`" + `.

` + "`leafd check -c FILE` and `spined check -c FILE`" + ` find mistakes of the file and of the machine without touching anything;
` + "`--offline`" + ` looks at the file alone, ` + "`-o json`" + ` prints each finding with severity, place, text and fix. Examples stand in
[deploy/examples](../deploy/examples), [test/netns](../test/netns) and [experiments](../experiments).

**In an editor.** [schema/](schema) has a JSON Schema for each kind of file, for completion and checks while you type. The YAML
language server (VS Code's YAML extension, Neovim, Emacs) takes it from a comment in the file's first line, with the path
from the file to the schema:

` + "```yaml\n# yaml-language-server: $schema=../docs/schema/experiment.json\n```" + `

`

// live is what can change while a daemon runs.
const live = "**While leafd runs** it takes over at SIGHUP (`systemctl reload leafd`) what has changed of `peers`, `vnis`, `access`, `uplinks` and `log.level`;\n" +
	"of `scheme` and the keys beside it (%s), of `classes`, and of what sections tell the\n" +
	"sending side (%s). spined takes over `ports`, `vteps` and\n" +
	"`log.level`. No frame is lost but those on a port that goes, and on one whose `fail` changes: it is opened anew. With another scheme\n" +
	"flowlets and connections start anew. A file that is wrong, or has any other change, is refused whole: the log names what is wrong,\n" +
	"or the keys that need a restart, and everything stays as it was. `loomctl config diff` says so before it is done.\n\n" +
	"**Before an uplink is removed** that is in use, have routing take it out of use, on both sides. The leaf itself moves its flows to other\n" +
	"uplinks at once, and sends what waits; but what spines and other leaves still send by it is lost, up to a second, until they see that\n" +
	"the path does not deliver. An access port that is removed stays closed as after a stop of leafd: `ip link set dev IF xdp off` opens it.\n"

// page returns docs/config.md.
func page(c comments) []byte {
	p := &writer{comments: c}
	p.out.WriteString(intro)
	fmt.Fprintf(&p.out, live, quoted(new(vocab.Keys).ExtraKeys()), quoted(reloadable()))
	for _, f := range files {
		p.section(f.title, f.doc, c.rows(f.is))
	}
	for len(p.queue) > 0 {
		next := p.queue[0]
		p.queue = p.queue[1:]
		next()
	}
	return []byte(p.out.String())
}

func reloadable() (keys []string) {
	for _, s := range balance.Sections() {
		for _, key := range s.Reloadable {
			keys = append(keys, s.Name+"."+key)
		}
	}
	return keys
}

func quoted(words []string) string {
	q := slices.Clone(words)
	for i := range q {
		q[i] = "`" + q[i] + "`"
	}
	return strings.Join(q, ", ")
}

// writer writes the page; sections that are linked to come later.
type writer struct {
	comments
	out   strings.Builder
	queue []func()
	seen  []string
}

func (p *writer) section(title, doc string, rows []row) {
	fmt.Fprintf(&p.out, "\n## %s\n\n%s\n\n| key | value | meaning |\n| --- | --- | --- |\n", title, doc)
	for _, r := range rows {
		doc := r.doc
		if doc == "" {
			doc = "undocumented"
		}
		fmt.Fprintf(&p.out, "| `%s` | %s | %s |\n", r.key, p.cell(&r), strings.ReplaceAll(doc, "|", "\\|"))
	}
}

// later queues a section that is linked to.
func (p *writer) later(title string, write func()) string {
	if !slices.Contains(p.seen, title) {
		p.seen = append(p.seen, title)
		p.queue = append(p.queue, write)
	}
	return fmt.Sprintf("[%s](#%s)", title, strings.ReplaceAll(strings.ToLower(title), " ", "-"))
}

func (p *writer) cell(r *row) string {
	switch {
	case r.of != nil:
		return p.later(r.of.Name, func() { p.section(r.of.Name, r.of.Summary, p.sectionRows(r.of)) })
	case r.enum != nil:
		return "word"
	case r.value.IsValid():
		return p.later(title(r.is), func() { p.section(title(r.is), p.of(r.is, ""), p.valueRows(r.value, r.value)) })
	}
	return p.value(r.is)
}

// value names what is written for a type.
func (p *writer) value(t reflect.Type) string {
	if w := word(t); w != "" {
		return w
	}
	switch t.Kind() {
	case reflect.Pointer:
		return p.value(t.Elem())
	case reflect.Slice:
		if w, ok := reflect.Zero(t).Interface().(yamlfile.Worded); ok {
			return w.Word() + " or list of " + p.value(t.Elem())
		}
		return "list of " + p.value(t.Elem())
	case reflect.Map:
		return "mapping of " + p.value(t.Key()) + " to " + p.value(t.Elem())
	case reflect.Struct:
		return p.later(title(t), func() { p.section(title(t), p.of(t, ""), p.rows(t)) })
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "text"
	}
	return "number"
}
