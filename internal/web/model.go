package web

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/loomfabric/loom/internal/admin"
	"github.com/loomfabric/loom/internal/natural"
)

// patience is how many rounds a node may miss before it counts as silent.
const patience = 3

// answer is what a node said, or why it did not.
type answer struct {
	snapshot *admin.Snapshot
	err      error
}

// node is one that is watched.
type node struct {
	name      string
	now, last *admin.Snapshot // the newest, and the one before it; nil: none
	fresh     bool            // now has come with this round
	missed    int             // rounds since
	err       string          // why it does not answer; "": it does
	state     int
	events    eventState
}

// model makes frames and events of nodes' snapshots. One goroutine may use it.
type model struct {
	nodes  []*node
	topo   topology
	layout *Layout
	pairs  []pair // of the layout's links
	links  []int  // states at the last frame
	drops  dropWatch
}

// newModel returns a model of nodes by name. Others join when they answer.
func newModel(names []string) *model {
	m := &model{}
	for _, name := range names {
		m.node(name)
	}
	return m
}

// node returns the node of a name.
func (m *model) node(name string) *node {
	for _, n := range m.nodes {
		if n.name == name {
			return n
		}
	}
	n := &node{name: name, err: "it has not been asked yet", state: -1}
	m.nodes = append(m.nodes, n)
	slices.SortFunc(m.nodes, func(a, b *node) int { return natural.Compare(a.name, b.name) })
	return n
}

// step takes in the answers of a round. It returns messages: a new layout if there is
// one, events, and a frame.
func (m *model) step(now time.Time, answers map[string]answer) (messages []any) {
	for name, a := range answers {
		m.node(name).take(a)
	}
	known := make(map[string]*admin.Snapshot)
	for _, n := range m.nodes {
		if _, ok := answers[n.name]; !ok {
			n.fresh = false
			if n.missed++; n.missed >= patience && n.err == "" {
				n.err = fmt.Sprintf("no answer for %d rounds", n.missed)
			}
		}
		if n.now != nil {
			known[n.name] = n.now
		}
	}
	m.topo.learn(known)
	if l, pairs := m.describe(known); m.layout == nil || !same(l, m.layout) {
		l.ID = now.UnixMilli()
		if m.layout != nil {
			l.ID = max(l.ID, m.layout.ID+1)
		}
		m.layout, m.pairs, m.links = l, pairs, nil
		messages = append(messages, l)
	}
	f := m.frame(now)
	messages = append(messages, f)
	for _, e := range m.happened(now, f) {
		messages = append(messages, e)
	}
	m.links = f.Links
	return messages
}

// take keeps an answer.
func (n *node) take(a answer) {
	n.fresh, n.missed = a.snapshot != nil, 0
	if a.err != nil {
		n.err = a.err.Error()
		return
	}
	n.err, n.last, n.now = "", n.now, a.snapshot
}

// same reports whether two layouts differ in their IDs only.
func same(a, b *Layout) bool {
	x := *a
	x.ID = b.ID
	return reflect.DeepEqual(&x, b)
}

// describe makes a layout of what the nodes said last. Leaves come first.
func (m *model) describe(known map[string]*admin.Snapshot) (*Layout, []pair) {
	slices.SortStableFunc(m.nodes, func(a, b *node) int {
		return cmp.Or(cmp.Compare(rank(a.now), rank(b.now)), natural.Compare(a.name, b.name))
	})
	l := &Layout{Type: "layout", Nodes: []NodeInfo{}, Links: []LinkInfo{}, Paths: []PathInfo{}}
	place := make(map[string]int)
	names := make(map[netip.Addr]string) // of VTEPs
	for i, n := range m.nodes {
		place[n.name] = i
		info := NodeInfo{Name: n.name}
		if s := n.now; s != nil {
			info.Version = s.Version
			if info.Leaf = isLeaf(s); info.Leaf {
				info.VTEP = s.VTEP.String()
				names[s.VTEP] = n.name
			}
		}
		l.Nodes = append(l.Nodes, info)
	}
	pairs := m.topo.links(known)
	starts := make(map[end]int)
	for i, p := range pairs {
		k := LinkInfo{A: place[p.a.node], APort: p.a.port, B: -1, ARate: rate(known, p.a), Name: p.a.node + " " + p.a.port}
		if p.b.node != "" {
			k.B, k.BPort, k.BRate = place[p.b.node], p.b.port, rate(known, p.b)
			k.Name += " – " + p.b.node + " " + p.b.port
		}
		starts[p.a] = i
		l.Links = append(l.Links, k)
	}
	for i, n := range m.nodes {
		if n.now == nil {
			continue
		}
		for _, peer := range n.now.Conga {
			to := cmp.Or(names[peer.VTEP], peer.VTEP.String())
			for _, p := range peer.Paths {
				link, ok := starts[end{n.name, p.Port}]
				if !ok {
					link = -1
				}
				l.Paths = append(l.Paths, PathInfo{From: i, Uplink: p.Uplink, Port: p.Port, To: to, VTEP: peer.VTEP.String(), Link: link})
			}
		}
	}
	slices.SortStableFunc(l.Paths, func(a, b PathInfo) int {
		return cmp.Or(cmp.Compare(a.From, b.From), natural.Compare(a.To, b.To), cmp.Compare(a.Uplink, b.Uplink))
	})
	return l, pairs
}

// rank puts leaves before spines, and both before what has never answered.
func rank(s *admin.Snapshot) int {
	switch {
	case s == nil:
		return 2
	case isLeaf(s):
		return 0
	}
	return 1
}

func rate(known map[string]*admin.Snapshot, e end) uint64 {
	if p := portOf(known[e.node], e.port); p != nil {
		return p.Rate
	}
	return 0
}

// portOf returns a port; nil: there is none.
func portOf(s *admin.Snapshot, name string) *admin.Port {
	if s == nil {
		return nil
	}
	for i := range s.Ports {
		if s.Ports[i].Port == name {
			return &s.Ports[i]
		}
	}
	return nil
}

// why says what is wrong with a node; "": nothing.
func (n *node) why() string {
	if n.err != "" {
		return n.err
	}
	if n.now == nil || n.now.Ready {
		return ""
	}
	var all []string
	for _, r := range n.now.Reasons {
		all = append(all, r.String())
	}
	return strings.Join(all, "; ")
}

// hold is the sum and number of the times that queues were held.
func hold(s *admin.Snapshot) (ns, n float64) {
	for _, r := range s.Receivers {
		t := r.Times("hold_time")
		ns, n = ns+float64(t.Mean)*float64(t.Count), n+float64(t.Count)
	}
	return ns, n
}

// real returns a number that need not be whole.
func real(c admin.Counters, name string) (f float64) {
	_ = json.Unmarshal(c[name], &f)
	return f
}
