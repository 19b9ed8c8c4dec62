package lab

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/loomfabric/loom/config/fabric"
	"github.com/loomfabric/loom/internal/natural"
)

// clab is as much of a containerlab topology as an import reads.
type clab struct {
	Name     string `yaml:"name"`
	Topology struct {
		Defaults clabNode            `yaml:"defaults"`
		Groups   map[string]clabNode `yaml:"groups"`
		Nodes    map[string]clabNode `yaml:"nodes"`
		Links    []clabLink          `yaml:"links"`
	} `yaml:"topology"`
}

type clabNode struct {
	Kind   string         `yaml:"kind"`
	Group  string         `yaml:"group"`
	Labels map[string]any `yaml:"labels"`
}

// clabLink has endpoints of the short form, node:interface, or of the long one.
type clabLink struct {
	Endpoints []clabEnd `yaml:"endpoints"`
}

type clabEnd struct{ node string }

// UnmarshalYAML reads both forms of an endpoint. The interface's name does not count: the
// lab gives its own.
func (e *clabEnd) UnmarshalYAML(b []byte) error {
	var long struct {
		Node string `yaml:"node"`
	}
	if err := yaml.Unmarshal(b, &long); err == nil {
		e.node = long.Node
		return nil
	}
	var short string
	if err := yaml.Unmarshal(b, &short); err != nil {
		return err
	}
	e.node, _, _ = strings.Cut(short, ":")
	return nil
}

// Roles of nodes, by what a label or a group says.
const (
	roleLeaf  = "leaf"
	roleSpine = "spine"
	roleHost  = "host"
)

var clabRoles = map[string]string{
	"leaf": roleLeaf, "leaves": roleLeaf, "spine": roleSpine, "spines": roleSpine,
	"host": roleHost, "hosts": roleHost, "server": roleHost, "servers": roleHost, "client": roleHost, "clients": roleHost,
}

// importer turns a topology into a fabric, and collects what is in the way.
type importer struct {
	clab
	byRole map[string][]string // names of nodes, as people count
	roles  map[string]string   // by node
	errs   []error
}

// Import returns the text of the fabric.yaml that a containerlab topology amounts to: leaves
// and spines with daemons of Loom's, and hosts. It reports all that a fabric cannot be.
func Import(file string, src []byte) (string, error) {
	m := &importer{byRole: make(map[string][]string), roles: make(map[string]string)}
	if err := yaml.Unmarshal(src, &m.clab); err != nil {
		return "", fmt.Errorf("%s is no containerlab topology: %w", file, err)
	}
	for _, name := range slices.SortedFunc(maps.Keys(m.Topology.Nodes), natural.Compare) {
		m.node(name)
	}
	parallel, leaves := m.links()
	if err := errors.Join(m.errs...); err != nil {
		return "", fmt.Errorf("%s:\n%w", file, err)
	}
	text := m.text(file, parallel, leaves)
	if _, err := fabric.Parse("what "+file+" amounts to", []byte(text)); err != nil {
		return "", err
	}
	return text, nil
}

func (m *importer) fail(format string, args ...any) {
	m.errs = append(m.errs, fmt.Errorf(format, args...))
}

// node finds out what a node is.
func (m *importer) node(name string) {
	n := m.Topology.Nodes[name]
	group := n.Group
	if group == "" {
		group = m.Topology.Defaults.Group
	}
	of := m.Topology.Groups[group]
	kind := n.Kind
	for _, k := range []string{of.Kind, m.Topology.Defaults.Kind} {
		if kind == "" {
			kind = k
		}
	}
	if kind != "linux" {
		m.fail("node %s is of kind %q: make it kind: linux, whose place a namespace with Loom's daemon takes", name, kind)
		return
	}
	says := group
	for _, labels := range []map[string]any{m.Topology.Defaults.Labels, of.Labels, n.Labels} {
		if role, ok := labels["role"].(string); ok {
			says = role
		}
	}
	role, ok := clabRoles[strings.ToLower(says)]
	if !ok {
		m.fail("node %s is no leaf, spine or host, as far as its group or its label role say (%q): add labels: {role: leaf}, or spine, or host", name, says)
		return
	}
	m.roles[name] = role
	m.byRole[role] = append(m.byRole[role], name)
}

// pair is a leaf and a spine.
type pair struct{ leaf, spine string }

// links returns how many links there are between each leaf and each spine, and the leaf of
// each host.
func (m *importer) links() (parallel int, leaves map[string]string) {
	between := make(map[pair]int)
	leaves = make(map[string]string)
	for i, l := range m.Topology.Links {
		if len(l.Endpoints) != 2 {
			m.fail("link %d has %d endpoints: give two", i+1, len(l.Endpoints))
			continue
		}
		a, b := l.Endpoints[0].node, l.Endpoints[1].node
		if strange := m.strange(a, b); strange != "" {
			m.fail("link %d leads to %s, which is no node of the topology: remove the link, a lab has no ways out", i+1, strange)
			continue
		}
		ra, rb := m.roles[a], m.roles[b]
		if ra == "" || rb == "" {
			continue // that has been said
		}
		if ra != roleLeaf && rb == roleLeaf {
			a, b, ra, rb = b, a, rb, ra
		}
		switch {
		case ra == roleLeaf && rb == roleSpine:
			between[pair{a, b}]++
		case ra == roleLeaf && rb == roleHost && leaves[b] == "":
			leaves[b] = a
		case ra == roleLeaf && rb == roleHost:
			m.fail("host %s has links to %s and %s: a host of a lab has one", b, leaves[b], a)
		default:
			m.fail("link %d joins %s (%s) and %s (%s): links go from leaves to spines and hosts", i+1, a, ra, b, rb)
		}
	}
	for _, host := range m.byRole[roleHost] {
		if leaves[host] == "" && len(m.errs) == 0 {
			m.fail("host %s has no link to a leaf: add one, or remove the host", host)
		}
	}
	return m.parallel(between), leaves
}

// parallel returns how many links each leaf has to each spine.
func (m *importer) parallel(between map[pair]int) (most int) {
	for _, n := range between {
		most = max(most, n)
	}
	for _, leaf := range m.byRole[roleLeaf] {
		for _, spine := range m.byRole[roleSpine] {
			if n := between[pair{leaf, spine}]; n != most || n == 0 {
				m.fail("there are %d links between %s and %s: a leaf of a lab has as many to each spine, here %d", n, leaf, spine, max(most, 1))
			}
		}
	}
	return most
}

// strange returns which of two ends of a link is no node; "": both are.
func (m *importer) strange(ends ...string) string {
	for _, e := range ends {
		if _, ok := m.Topology.Nodes[e]; !ok {
			return e
		}
	}
	return ""
}

var notInNames = regexp.MustCompile(`[^a-z0-9_]+`)

// text writes the file.
func (m *importer) text(file string, parallel int, leaves map[string]string) string {
	var b strings.Builder
	clean := func(name string) string {
		return strings.Trim(notInNames.ReplaceAllString(strings.ToLower(name), "_"), "_")
	}
	fmt.Fprintf(&b, "# loomlab import made this of %s. Images, configurations, commands, mounts and addresses are left out:\n", filepath.Base(file))
	fmt.Fprintf(&b, "# leaves and spines run leafd and spined, and the lab gives addresses.\n")
	number := make(map[string]string)
	for _, role := range []struct{ name, letter string }{{roleLeaf, "L"}, {roleSpine, "S"}} {
		for i, name := range m.byRole[role.name] {
			number[name] = fmt.Sprint(role.letter, i)
			fmt.Fprintf(&b, "# %s is %s\n", number[name], name)
		}
	}
	fmt.Fprintf(&b, "name: %s\nleaves: %d\nspines: %d\n", clean(m.Name), len(m.byRole[roleLeaf]), len(m.byRole[roleSpine]))
	fmt.Fprintf(&b, "links: {parallel: %d} # with a rate, as in rate: 100Mbit, schemes see load\nhosts:\n  list:\n", parallel)
	for _, host := range m.byRole[roleHost] {
		fmt.Fprintf(&b, "    - {name: %s, leaf: %s}", clean(host), number[leaves[host]])
		if clean(host) != host {
			fmt.Fprintf(&b, " # %s", host)
		}
		b.WriteByte('\n')
	}
	b.WriteString("vnis: [{vni: 100}]\n")
	return b.String()
}
