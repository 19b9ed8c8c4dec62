package topo

import (
	"fmt"

	"github.com/loomfabric/loom/sim/network"
)

// plan is a fabric on paper. Switches are numbered leaves first, then tier by
// tier.
type plan struct {
	leaves   int
	switches []planSwitch
	links    []planLink // between switches
	hosts    []planHost
	byName   map[string]int // of links and, behind them, hosts' links
}

type planSwitch struct {
	name string
	tier int // 0: leaf
}

// planLink is a link between switches; up is what its lower end sends by.
type planLink struct {
	name      string
	low, high int // switches
	nth       int // among those of the pair
	up, down  network.PortConfig
}

type planHost struct {
	name, link string
	leaf       int
	up, down   network.PortConfig
}

// draw makes the plan of a complete spec.
func draw(s *Spec) (*plan, error) {
	p := &plan{leaves: s.Leaves, byName: make(map[string]int)}
	p.add("L", s.Leaves, 0)
	switch s.Kind {
	case LeafSpine:
		p.add("S", s.Spines, 1)
	default:
		p.add("A", s.Spines, 1)
		p.add("C", s.Cores, 2)
	}
	for l := range s.Leaves {
		for _, a := range s.above(l) {
			for n := range s.Parallel {
				p.connect(l, s.Leaves+a, n, s.Fabric)
			}
		}
	}
	for a := range s.Spines {
		for _, c := range s.coresOf(a) {
			p.connect(s.Leaves+a, s.Leaves+s.Spines+c, 0, *s.Core)
		}
	}
	for l := range s.Leaves {
		for range s.HostsPerLeaf {
			p.attach(fmt.Sprintf("h%d", len(p.hosts)), l, s)
		}
	}
	for _, h := range s.Hosts {
		p.attach(h.Name, h.Leaf, s)
	}
	for i := range s.Overrides {
		if err := p.override(&s.Overrides[i]); err != nil {
			return nil, err
		}
	}
	return p, p.check()
}

func (p *plan) add(letter string, n, tier int) {
	for i := range n {
		p.switches = append(p.switches, planSwitch{fmt.Sprintf("%s%d", letter, i), tier})
	}
}

func (p *plan) connect(low, high, nth int, c network.PortConfig) {
	name := fmt.Sprintf("%s-%s.%d", p.switches[low].name, p.switches[high].name, nth)
	p.byName[name] = len(p.links)
	p.links = append(p.links, planLink{name, low, high, nth, c, c})
}

func (p *plan) attach(name string, leaf int, s *Spec) {
	link := name + "-" + p.switches[leaf].name
	p.byName[link] = len(p.links) + len(p.hosts)
	p.hosts = append(p.hosts, planHost{name, link, leaf, s.NIC, s.Access})
}

// above returns the spines of a leaf, by their number among spines.
func (s *Spec) above(leaf int) []int {
	switch s.Kind {
	case FatTree, ThreeLayer:
		per := s.Spines / s.Pods
		return span(leaf/(s.Leaves/s.Pods)*per, per)
	case VL2:
		return span(2*(leaf%(s.Spines/2)), 2)
	}
	return span(0, s.Spines)
}

// coresOf returns the cores of a spine, by their number among cores.
func (s *Spec) coresOf(spine int) []int {
	if s.Kind == FatTree {
		half := s.K / 2
		return span(spine%half*half, half)
	}
	return span(0, s.Cores)
}

func span(first, n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = first + i
	}
	return out
}

func (p *plan) override(o *Override) error {
	up, down := o.Up, o.Down
	if !up && !down {
		up, down = true, true
	}
	i, err := p.find(o.Link)
	if err != nil {
		return fmt.Errorf("override: %w", err)
	}
	var ends [2]*network.PortConfig
	if i < len(p.links) {
		ends = [2]*network.PortConfig{&p.links[i].up, &p.links[i].down}
	} else {
		h := &p.hosts[i-len(p.links)]
		ends = [2]*network.PortConfig{&h.up, &h.down}
	}
	for i, want := range []bool{up, down} {
		if !want {
			continue
		}
		c := ends[i]
		if o.Rate != 0 {
			c.Rate = o.Rate
		}
		if o.Delay != nil {
			c.Delay = *o.Delay
		}
		if o.Limit != nil {
			c.Limit = *o.Limit
		}
		if o.ECN != nil {
			c.ECN = *o.ECN
		}
	}
	return nil
}

// find returns the number of a link: those between switches come first.
func (p *plan) find(link string) (int, error) {
	if i, ok := p.byName[link]; ok {
		return i, nil
	}
	like := p.hosts[0].link
	if len(p.links) > 0 {
		like = p.links[0].name + " or " + like
	}
	return 0, fmt.Errorf("link %q does not exist: a link is called like %s", link, like)
}

// check reports what cannot be built.
func (p *plan) check() error {
	uplinks := make([]int, p.leaves)
	for i := range p.links {
		l := &p.links[i]
		if err := checkLink(l.name, &l.up, &l.down); err != nil {
			return err
		}
		if l.low < p.leaves {
			uplinks[l.low]++
		}
	}
	names := make(map[string]bool)
	for i := range p.hosts {
		h := &p.hosts[i]
		if h.name == "" || names[h.name] {
			return fmt.Errorf("host %d is called %q: each needs a name of its own", i, h.name)
		}
		names[h.name] = true
		if err := checkLink(h.link, &h.up, &h.down); err != nil {
			return err
		}
	}
	for l, n := range uplinks {
		if n > maxNext {
			return fmt.Errorf("leaf %s has %d uplinks: at most %d are possible, an LBTag has 4 bits", p.switches[l].name, n, maxNext)
		}
	}
	return nil
}

func checkLink(name string, up, down *network.PortConfig) error {
	for _, c := range []*network.PortConfig{up, down} {
		switch {
		case c.Rate == 0:
			return fmt.Errorf("link %s has no rate: a simulated link needs one", name)
		case c.Delay < 0:
			return fmt.Errorf("link %s has a delay of %v: it must not be negative", name, c.Delay)
		}
	}
	return nil
}
