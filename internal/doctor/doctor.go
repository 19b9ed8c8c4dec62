// Package doctor looks at running nodes and the machines below them, and says what is
// wrong and by which command it is mended. It only reads. What it looks for is the table
// [Probes]; it must not know of anything that no probe there names.
package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"time"
)

// Severity says how bad a finding is.
type Severity int

// The severities.
const (
	// Note is worth knowing, and nothing is wrong.
	Note Severity = iota
	// Warning says that the fabric works, and worse than it could, or only for as long as
	// nothing else fails.
	Warning
	// Error says that frames are lost, or will be.
	Error
)

var severities = [...]string{"note", "warning", "error"}

// String is the word for the severity.
func (s Severity) String() string { return severities[s] }

// MarshalText writes the word.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the word.
func (s *Severity) UnmarshalText(text []byte) error {
	i := slices.Index(severities[:], string(text))
	if i < 0 {
		return fmt.Errorf("severity %q is unknown", text)
	}
	*s = Severity(i)
	return nil
}

// Probe is one thing that doctor looks for.
type Probe struct {
	Name     string
	Severity Severity
	Looks    string // what it looks at
	Finds    string // what is wrong
	Mends    string // how it is mended; capitals stand for names
	// Behind are probes whose findings explain this one's: while one of them finds
	// something on any node, this probe says nothing.
	Behind []string

	node   func(n *Node, add adder)       // looks at each node by itself
	host   func(n *Node, add adder)       // looks at one node of each machine that is known
	fabric func(all []*Node, add nodeAdd) // looks at all nodes together
}

// adder adds a finding about an object of a node.
type adder func(about, mend, format string, args ...any)

// nodeAdd does the same for any node.
type nodeAdd func(n *Node, about, mend, format string, args ...any)

// Finding is something that is wrong. The names in the tags are a promise.
type Finding struct {
	Node     string   `json:"node"`
	Probe    string   `json:"probe"`
	Severity Severity `json:"severity"`
	About    string   `json:"about"` // a port, a peer, a file, a key; "": the node
	Text     string   `json:"text"`
	Mend     string   `json:"mend"` // a command, or what to do where there is none
}

// Failure is a node that could not be looked at, or not in full.
type Failure struct {
	Node  string `json:"node"`
	Error string `json:"error"`
}

// Report is what an examination found.
type Report struct {
	Nodes    []string  `json:"nodes"`  // those that answered
	Probes   int       `json:"probes"` // that looked
	Findings []Finding `json:"findings"`
	// Behind is how many findings are left out because others explain them.
	Behind int `json:"behind"`
	// Failed are nodes that did not answer.
	Failed []Failure `json:"failed"`
	// Blind are nodes whose machine could not be looked at: it is another one, or the
	// caller lacks rights. Probes of machines say nothing of them.
	Blind []Failure `json:"blind"`
	Took  float64   `json:"took_s"`
}

// Healthy reports whether nothing is wrong with what was looked at; notes do not count.
func (r *Report) Healthy() bool {
	return !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Severity > Note })
}

// Asker asks a node, as [admin.Client] does.
type Asker interface {
	Get(ctx context.Context, what string, q url.Values) (json.RawMessage, error)
}

// Target is a node to look at.
type Target struct {
	Name   string // for errors, until the node has said its own
	Asker  Asker
	Socket string // path of its admin socket; "": it has none on this machine
}

// DefaultInterval is the time between two looks at counters.
const DefaultInterval = 500 * time.Millisecond

// Examine looks at nodes, twice at what they count, with the interval between the looks.
// It fails if no node answers.
func Examine(ctx context.Context, targets []Target, interval time.Duration) (*Report, error) {
	begun := time.Now()
	nodes, failed := LookAll(ctx, targets, interval)
	if len(nodes) == 0 && len(failed) > 0 {
		return nil, fmt.Errorf("no node answers: %s: %s", failed[0].Node, failed[0].Error)
	}
	r := Diagnose(nodes)
	r.Failed = append(r.Failed, failed...)
	r.Took = time.Since(begun).Seconds()
	return r, nil
}

// LookAll looks at all targets at a time. failed are those that do not answer.
func LookAll(ctx context.Context, targets []Target, interval time.Duration) (nodes []*Node, failed []Failure) {
	found, errs := make([]*Node, len(targets)), make([]error, len(targets))
	var wg sync.WaitGroup
	for i := range targets {
		wg.Go(func() { found[i], errs[i] = Look(ctx, &targets[i], interval) })
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			failed = append(failed, Failure{targets[i].Name, err.Error()})
			continue
		}
		nodes = append(nodes, found[i])
	}
	return nodes, failed
}

// Diagnose has all probes look at what is known of nodes.
func Diagnose(nodes []*Node) *Report {
	r := &Report{Findings: []Finding{}, Failed: []Failure{}, Blind: []Failure{}, Nodes: []string{}, Probes: len(Probes)}
	for _, n := range nodes {
		r.Nodes = append(r.Nodes, n.Name)
		if n.Machine == nil {
			r.Blind = append(r.Blind, Failure{n.Name, n.Why})
		}
	}
	var all []Finding
	found := make(map[string]bool) // probes
	for i := range Probes {
		p := &Probes[i]
		add := func(n *Node, about, mend, format string, args ...any) {
			found[p.Name] = true
			all = append(all, Finding{n.Name, p.Name, p.Severity, about, fmt.Sprintf(format, args...), mend})
		}
		if p.fabric != nil {
			p.fabric(nodes, add)
			continue
		}
		look, hosts := p.node, make(map[string]bool)
		for _, n := range nodes {
			if p.host != nil {
				if n.Machine == nil || hosts[n.Machine.Boot] {
					continue
				}
				look, hosts[n.Machine.Boot] = p.host, true
			}
			look(n, func(about, mend, format string, args ...any) { add(n, about, mend, format, args...) })
		}
	}
	for _, f := range all {
		if slices.ContainsFunc(find(f.Probe).Behind, func(name string) bool { return found[name] }) {
			r.Behind++
		} else {
			r.Findings = append(r.Findings, f)
		}
	}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(b.Severity, a.Severity), cmp.Compare(a.Node, b.Node))
	})
	return r
}

// find returns a probe by its name.
func find(name string) *Probe {
	i := slices.IndexFunc(Probes, func(p Probe) bool { return p.Name == name })
	return &Probes[i]
}
