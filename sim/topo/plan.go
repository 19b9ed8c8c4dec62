package topo

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/loomfabric/loom/config/vocab"
)

// plan is a fabric on paper. Switches are numbered leaves first, then tier by
// tier.
type plan struct {
	leaves   int
	switches []planSwitch
	links    []*Link // between switches
	access   []*Link // hosts', numbered behind those
	hosts    []string
	byName   map[string]*Link
}

type planSwitch struct {
	name string
	tier int // 0: leaf
}

// draw makes the plan of a complete spec.
func draw(s *Spec) (*plan, error) {
	p := &plan{leaves: s.Leaves, byName: make(map[string]*Link)}
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
			for n := range s.Links.Parallel {
				p.connect(l, s.Leaves+a, n, s)
			}
		}
	}
	for a := range s.Spines {
		for _, c := range s.coresOf(a) {
			p.connect(s.Leaves+a, s.Leaves+s.Spines+c, 0, s)
		}
	}
	for l := range s.Leaves {
		for range s.Hosts.PerLeaf {
			p.attach(fmt.Sprintf("h%d", len(p.hosts)), l, s)
		}
	}
	for _, h := range s.Hosts.List {
		number, ok := strings.CutPrefix(h.Leaf, "L")
		leaf, err := strconv.Atoi(number)
		if !ok || err != nil {
			return nil, fmt.Errorf("host %q is behind %q: leaves are called L0, L1 and so on", h.Name, h.Leaf)
		}
		if leaf < 0 || leaf >= s.Leaves {
			return nil, fmt.Errorf("host %q is behind leaf %d: there are %d leaves", h.Name, leaf, s.Leaves)
		}
		p.attach(h.Name, leaf, s)
	}
	for i := range s.Overrides {
		l, err := p.find(s.Overrides[i].Link)
		if err != nil {
			return nil, fmt.Errorf("override: %w", err)
		}
		s.Overrides[i].Apply(&l.up, &l.down)
	}
	return p, p.check(s)
}

func (p *plan) add(letter string, n, tier int) {
	for i := range n {
		p.switches = append(p.switches, planSwitch{fmt.Sprintf("%s%d", letter, i), tier})
	}
}

func (p *plan) connect(low, high, nth int, s *Spec) {
	l := &Link{
		Name: fmt.Sprintf("%s-%s.%d", p.switches[low].name, p.switches[high].name, nth), index: len(p.links),
		low: low, high: high, nth: nth, up: s.Links.Link, down: s.Links.Link,
	}
	p.links, p.byName[l.Name] = append(p.links, l), l
}

func (p *plan) attach(name string, leaf int, s *Spec) {
	l := &Link{
		Name: name + "-" + p.switches[leaf].name, index: len(p.links) + len(p.access),
		low: len(p.hosts), high: leaf, up: s.NIC, down: s.Hosts.Link,
	}
	p.access, p.byName[l.Name] = append(p.access, l), l
	p.hosts = append(p.hosts, name)
}

// above returns the spines of a leaf, by their number among spines.
func (s *Spec) above(leaf int) []int {
	switch s.Kind {
	case FatTree, ThreeLayer:
		per := s.Spines / s.pods
		return span(leaf/(s.Leaves/s.pods)*per, per)
	case VL2:
		a, b := leaf%s.Spines, (leaf+1)%s.Spines
		return []int{min(a, b), max(a, b)}
	case Tree:
		return []int{leaf * s.Spines / s.Leaves}
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

// find returns a link by its name.
func (p *plan) find(link string) (*Link, error) {
	if l, ok := p.byName[link]; ok {
		return l, nil
	}
	like := p.access[0].Name
	if len(p.links) > 0 {
		like = p.links[0].Name + " or " + like
	}
	return nil, fmt.Errorf("link %q does not exist: a link is called like %s", link, like)
}

// check completes the links, and reports what cannot be built.
func (p *plan) check(s *Spec) error {
	for _, l := range append(p.links[:len(p.links):len(p.links)], p.access...) {
		for _, c := range []*vocab.Link{&l.up, &l.down} {
			if c.Rate == 0 {
				c.Rate = s.Unlimited
			}
			switch {
			case c.Rate == 0:
				return fmt.Errorf("link %s has no rate: a simulated link needs one", l.Name)
			case c.Delay < 0:
				return fmt.Errorf("link %s has a delay of %v: it must not be negative", l.Name, c.Delay)
			}
		}
	}
	uplinks := make([]int, p.leaves)
	for _, l := range p.links {
		if l.low < p.leaves {
			uplinks[l.low]++
		}
	}
	for l, n := range uplinks {
		if n > maxNext {
			return fmt.Errorf("leaf %s has %d uplinks: at most %d are possible, an LBTag has 4 bits", p.switches[l].name, n, maxNext)
		}
	}
	names := make(map[string]bool)
	for i, name := range p.hosts {
		if name == "" || names[name] {
			return fmt.Errorf("host %d is called %q: each needs a name of its own", i, name)
		}
		names[name] = true
	}
	return nil
}
