package topo

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
	"github.com/loomfabric/loom/sim/node"
)

// Topology is a fabric that was built: the nodes, ports and links of a network.
type Topology struct {
	Network *network.Network
	Leaves  []*node.Leaf
	Spines  []*node.Spine // all switches above the leaves, lower tier first
	Hosts   []*network.Host
	Links   []*Link // between switches, then hosts'
	// Buffers are the memories of the switches, leaves first; nil: there are none.
	Buffers []*network.Buffer
	// HostNames and LeafOf are by HostID: "h0", and the index of its leaf.
	HostNames []string
	LeafOf    []uint16

	plan     *plan
	ports    map[string]*network.Port
	start    routes // as they were at time 0
	up       []bool // links between switches
	faults   []fault
	nets     []*network.Network // of the switches: the whole, or its parts
	overhead uint32
	id       engine.ID
	ways     map[[2]int][][]Hop
}

// Link is a link between two nodes.
type Link struct {
	Name string // "L0-S1.0", "A3-C0.0", "h5-L1"
	// A is the end nearer to hosts, B the other one.
	A, B *network.Port

	index     int // in Topology.Links
	low, high int // switches; of a host's link the host and its leaf
	nth       int // among those of the pair
	up, down  vocab.Link
}

// end returns the port by which a switch sends over the link.
func (l *Link) end(s int) *network.Port {
	if l.low == s {
		return l.A
	}
	return l.B
}

// other returns the switch at the other end.
func (l *Link) other(s int) int {
	if s == l.low {
		return l.high
	}
	return l.low
}

// Build builds a fabric into an empty network. Each switch gets a seed of its
// own, made of cfg's. Where cfg leaves ConWeave's number of selectors at 0
// (balance.ConWeaveParams.Selectors), Build takes the fabric's. It refuses
// topologies that make no sense, and those in which a leaf has no path to
// another one at time 0.
func Build(net *network.Network, spec Spec, cfg node.Config) (*Topology, error) {
	t, err := build(net, &spec, cfg)
	if err != nil {
		return nil, fmt.Errorf("topology: %w", err)
	}
	return t, nil
}

func build(net *network.Network, spec *Spec, cfg node.Config) (*Topology, error) {
	if err := spec.complete(); err != nil {
		return nil, err
	}
	p, err := draw(spec)
	if err != nil {
		return nil, err
	}
	t := &Topology{
		Network: net, HostNames: p.hosts, plan: p, ports: make(map[string]*network.Port),
		overhead: uint32(cfg.Overhead), ways: make(map[[2]int][][]Hop), up: slices.Repeat([]bool{true}, len(p.links)),
	}
	if err := t.prepare(spec.Faults); err != nil {
		return nil, err
	}
	if err := t.takeDown(spec.Down, spec.DownSeed); err != nil {
		return nil, err
	}
	t.start = p.route(t.up)
	t.split(spec.Split)
	if err := t.addSwitches(t.selectors(cfg), spec.Plain); err != nil {
		return nil, err
	}
	if err := t.connect(spec.Buffer); err != nil {
		return nil, err
	}
	t.id = net.Engine.Register(t)
	if err := t.begin(); err != nil {
		return nil, err
	}
	return t, net.Validate()
}

// selectors completes the sections of schemes with how many choices the next tier has,
// where nobody has said more than one.
func (t *Topology) selectors(c node.Config) node.Config {
	sections := maps.Clone(c.Sections)
	if sections == nil {
		sections = make(map[string]balance.Params)
	}
	for _, s := range balance.Sections() {
		p := sections[s.Name]
		if p == nil {
			p = s.New(balance.Datacenter)
		}
		if q, ok := p.(balance.Selecting); ok && q.Selectors() <= 1 {
			sections[s.Name] = q.WithSelectors(t.Selectors())
		}
	}
	c.Sections = sections
	return c
}

func (t *Topology) addSwitches(cfg node.Config, plain []string) error {
	for _, name := range plain {
		if !slices.ContainsFunc(t.plan.switches[:t.plan.leaves], func(s planSwitch) bool { return s.name == name }) {
			return fmt.Errorf("plain leaf %q does not exist: leaves are called L0 to L%d", name, t.plan.leaves-1)
		}
	}
	where := &node.Directory{}
	seeds := rand.NewPCG(cfg.Seed, 0x746f706f)
	for i := range t.plan.switches {
		s, c := &t.plan.switches[i], cfg
		c.Seed = seeds.Uint64()
		if i < t.plan.leaves {
			if slices.Contains(plain, s.name) {
				c.Plain, c.Scheme, c.Options.Keys, c.Classes, c.ClassOf = true, "ecmp", nil, nil, nil
			}
			l, err := node.NewLeaf(t.nets[i], s.name, uint16(i), t.plan.leaves, where, c)
			if err != nil {
				return err
			}
			t.Leaves = append(t.Leaves, l)
			continue
		}
		n, err := node.NewSpine(t.nets[i], s.name, i-t.plan.leaves, t.plan.leaves, c)
		if err != nil {
			return err
		}
		t.Spines = append(t.Spines, n)
	}
	return nil
}

// connect makes the ports and links of the plan.
func (t *Topology) connect(buffer *network.BufferConfig) error {
	p := t.plan
	if buffer != nil {
		t.Buffers = make([]*network.Buffer, len(p.switches))
		for i := range t.Buffers {
			t.Buffers[i] = network.NewBuffer(*buffer)
		}
	}
	for _, l := range p.links {
		low, high := p.switches[l.low].name, p.switches[l.high].name
		suffix := fmt.Sprintf(".%d", l.nth)
		a, err := t.port(l.low, low+"->"+high+suffix, &l.up)
		if err != nil {
			return err
		}
		b, err := t.port(l.high, high+"->"+low+suffix, &l.down)
		if err != nil {
			return err
		}
		t.link(l, a, b)
		if l.nth == 0 { // where there is one link, its number goes without saying
			t.ports[low+"->"+high], t.ports[high+"->"+low] = a, b
		}
	}
	for i, l := range p.access {
		name, leaf, host := p.hosts[i], p.switches[l.high].name, t.nets[l.high].NewHost()
		host.Port = t.nets[l.high].NewPort(name+"->"+leaf, 0, host, t.config(&l.up, nil), nil)
		t.link(l, host.Port, t.Leaves[l.high].AddHost(leaf+"->"+name, host.ID, t.config(&l.down, t.buffer(l.high))))
		t.Hosts = append(t.Hosts, host)
		t.LeafOf = append(t.LeafOf, uint16(l.high))
	}
	return node.Join(t.Leaves)
}

// buffer returns a switch's memory, nil if there is no such thing.
func (t *Topology) buffer(s int) *network.Buffer {
	if t.Buffers == nil {
		return nil
	}
	return t.Buffers[s]
}

// port makes a switch's end of a link.
func (t *Topology) port(s int, name string, l *vocab.Link) (*network.Port, error) {
	c := t.config(l, t.buffer(s))
	if s < t.plan.leaves {
		return t.Leaves[s].AddUplink(name, c)
	}
	return t.Spines[s-t.plan.leaves].AddPort(name, c), nil
}

// config is a direction of a link as ports have it.
func (t *Topology) config(l *vocab.Link, b *network.Buffer) network.PortConfig {
	return network.PortConfig{
		Rate: uint64(l.Rate), Delay: engine.Of(l.Delay), Limit: uint64(l.Queue), Buffer: b,
		ECN: network.ECN{Kmin: uint64(l.ECN.Kmin), Kmax: uint64(l.ECN.Kmax), Pmax: l.ECN.Pmax},
	}
}

func (t *Topology) link(l *Link, a, b *network.Port) {
	network.Connect(a, b)
	l.A, l.B = a, b
	t.Links = append(t.Links, l)
	t.ports[a.Name], t.ports[b.Name] = a, b
}

// Port returns a port by its name: "S1->L1.0" is what spine 1 sends to leaf 1
// by on their first link, for which "S1->L1" will do; "L0->h3", "h3->L0".
func (t *Topology) Port(name string) (*network.Port, error) {
	if p, ok := t.ports[name]; ok {
		return p, nil
	}
	return nil, fmt.Errorf("port %q does not exist: a port is called like %s or %s", name, t.Links[0].A.Name, t.Links[0].B.Name)
}

// Select resolves selectors as fabric.yaml has them, names of hosts, names of
// leaves and "all", to hosts in ascending order.
func (t *Topology) Select(selectors []string) ([]network.HostID, error) {
	picked := make([]bool, len(t.Hosts))
	for _, s := range selectors {
		found := false
		for i, name := range t.HostNames {
			if s == "all" || s == name || s == t.Leaves[t.LeafOf[i]].Name {
				picked[i], found = true, true
			}
		}
		if !found {
			return nil, fmt.Errorf("%q is neither a host of this fabric (%s to %s), nor a leaf with hosts (as in L0), nor \"all\"", s, t.HostNames[0], t.HostNames[len(t.HostNames)-1])
		}
	}
	var out []network.HostID
	for i, yes := range picked {
		if yes {
			out = append(out, network.HostID(i))
		}
	}
	return out, nil
}

// Selectors returns how many selectors paths differ by: the largest number of
// next hops that a switch behind a leaf's uplink chooses among. It is 1 in a
// leaf–spine fabric without parallel links.
func (t *Topology) Selectors() int {
	most := 1
	for to := range t.plan.leaves {
		for s := t.plan.leaves; s < len(t.plan.switches); s++ {
			if t.plan.switches[s].tier == 1 {
				most = min(max(most, len(t.start[to][s])), maxNext)
			}
		}
	}
	return most
}

// UplinkRate returns the sum of the rates of a leaf's uplinks that are up, bits per
// second.
func (t *Topology) UplinkRate(leaf int) (sum uint64) {
	for i, l := range t.plan.links {
		if l.low == leaf && t.up[i] {
			sum += l.A.Rate
		}
	}
	return sum
}
