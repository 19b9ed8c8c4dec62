package leaf

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// SpineConfig is what one worker of a spine with a scheme of its own is told.
type SpineConfig struct {
	Scheme     string
	Options    balance.Options // Keys and Section count
	Seed       uint64
	Worker     int
	Congestion congestion.Params
	// Sections are the schemes' sections of the configuration, by name; see Config.
	Sections map[string]balance.Params
	Links    SpineLinks
	// Node is what the driver knows of the spine's ports; nil: schemes do without.
	Node balance.Node
}

// SpineLinks is what a driver knows of a spine's ports.
type SpineLinks interface {
	// Link returns the metric of a port's own meter at now, and the bytes in its queue.
	Link(now mono.Time, port int) (metric uint8, queue uint32)
}

// Spine is one worker's part of a spine that chooses next hops by a scheme: local
// choice at every tier, as DRILL is meant. It is not safe for concurrent use.
type Spine struct {
	cfg     SpineConfig
	scheme  *balance.Scheme
	bundles []*Bundle
	by      []*Bundle // by destination; nil: there is no choice
	sw      balance.Switch

	messenger bool // bundles' policies handle messages
	timed     bool // and act when time has passed
	said      []overlay.Message
	out       []balance.PortMessage
	counted
}

// NewSpine returns a spine without routes. It reports schemes that are not for
// spines.
func NewSpine(cfg SpineConfig) (*Spine, error) {
	s, err := balance.Named(cfg.Scheme)
	if err != nil {
		return nil, err
	}
	return NewSpineOf(s, cfg)
}

// NewSpineOf is NewSpine for a scheme that need not have a name.
func NewSpineOf(scheme *balance.Scheme, cfg SpineConfig) (*Spine, error) {
	s := &Spine{cfg: cfg, scheme: scheme}
	if s.scheme.NeedsPeer {
		return nil, fmt.Errorf("scheme %s is for leaves: it needs an answer from the far end", s.scheme.Name)
	}
	if o := s.options(); scheme.Switch != nil && cfg.Node != nil {
		if err := scheme.Complete(&o); err != nil {
			return nil, fmt.Errorf("scheme %s: %w", scheme.Name, err)
		}
		s.sw = scheme.Switch(&o, cfg.Node)
	}
	c, err := s.class(0, nil)
	if err != nil {
		return nil, err
	}
	s.messenger, s.timed = c.messenger != nil, c.timed != nil
	return s, nil
}

// options returns those of the spine's scheme.
func (s *Spine) options() balance.Options {
	o := s.cfg.Options
	o.Seed, o.Worker, o.Congestion = s.cfg.Seed, s.cfg.Worker<<16, s.cfg.Congestion
	if o.Section == nil && s.scheme.Section != nil {
		o.Section = s.cfg.Sections[s.scheme.Section.Name]
	}
	return o
}

// class returns the scheme at work in a bundle.
func (s *Spine) class(bundle int, ports []int) (*Class, error) {
	o := s.options()
	o.Worker = s.cfg.Worker<<16 | bundle // bundles and workers draw from generators of their own
	o.Switch, o.Links = s.sw, ports
	return newClass(s.scheme, o, nil)
}

// Bundle is a set of ports among which a spine's scheme chooses: those that lead to
// the same destinations. A scheme knows at most balance.MaxPaths links, and a spine
// has a port for every leaf, so each bundle has a policy to itself.
type Bundle struct {
	*Class

	links SpineLinks
	ports []int // by the number that the policy knows the port by
	view  balance.View
	local [balance.MaxPaths]uint8
	queue [balance.MaxPaths]uint32

	looked bool // local and queue are those of at
	at     mono.Time
}

// SetRoute names the ports that lead to a destination, at most balance.MaxPaths, in a
// stable order, and their weights; nil: all are alike. Those that are set in gone do not
// lead there any more, and may again; the paths that are left are numbered without
// them. A route that has lost some of its next hops stays in the bundle that it had.
func (s *Spine) SetRoute(dest int, ports []int, weights []uint16, gone uint16) error {
	for dest >= len(s.by) {
		s.by = append(s.by, nil)
	}
	gone &= 1<<len(ports) - 1
	if left := len(ports) - bits.OnesCount16(gone); left == 0 || left == 1 && s.sw == nil {
		return nil // there is no choice; the bundle that it had stays for later
	}
	var b *Bundle
	for _, have := range s.bundles {
		if !slices.ContainsFunc(ports, func(p int) bool { return have.number(p) < 0 }) {
			b = have
		}
	}
	if b == nil {
		own := slices.Clone(ports)
		c, err := s.class(len(s.bundles), own)
		if err != nil {
			return err
		}
		b = &Bundle{Class: c, links: s.cfg.Links, ports: own}
		b.view = balance.View{Links: b, Local: &b.local, Queue: &b.queue}
		s.bundles = append(s.bundles, b)
	}
	for dest >= len(b.view.Paths) {
		b.view.Paths = append(b.view.Paths, balance.MakePaths())
	}
	numbers := [balance.MaxPaths]uint8{}
	for i, p := range ports {
		numbers[i] = uint8(b.number(p))
	}
	paths := balance.MakeWeightedPaths(numbers[:len(ports)], weights)
	b.view.Paths[dest] = paths.Without(gone)
	s.by[dest] = b
	return nil
}

// SetLeaf names the ports that lead to a leaf by the number that all nodes know it by, for
// a scheme that wants to know ([Spine.KnowsLeaves]).
func (s *Spine) SetLeaf(number uint16, ports []int) { s.sw.SetRoute(number, ports, false) }

// KnowsLeaves reports whether the scheme tells leaves from each other, and decides where
// there is no choice, too: it has a balance.Switch.
func (s *Spine) KnowsLeaves() bool { return s.sw != nil }

// Bundle returns the bundle that a destination's next hops are in; nil if SetRoute
// never named two for it.
func (s *Spine) Bundle(dest int) *Bundle { return s.by[dest] }

// Bundles returns all bundles.
func (s *Spine) Bundles() []*Bundle { return s.bundles }

// SchemeStats returns what the scheme decided in all bundles.
func (s *Spine) SchemeStats() []SchemeStats {
	sums := []SchemeStats{{Scheme: s.scheme.Name}}
	for _, b := range s.bundles {
		sums = addScheme(sums, SchemeStats{s.scheme.Name, b.Policy.Stats()})
	}
	return sums
}

// Handle gives a message of the node at the other end of a port to the policies that
// know the port, and tells each by which of its links it came. It reports false if the
// scheme handles no messages of that kind. first says that the message came to this
// worker, and not by way of another one of the spine.
func (s *Spine) Handle(now mono.Time, port int, m *overlay.Message, first bool) (ok bool) {
	if !s.messenger && s.sw == nil || s.scheme.Wire != m.Fabric.Scheme {
		return false
	}
	known := s.sw != nil && s.sw.Handle(now, port, m)
	if !s.messenger {
		s.handled(m.Fabric.Opcode, first, known && first)
		return true
	}
	for _, b := range s.bundles {
		if link := b.number(port); link >= 0 {
			m.Link = uint8(link)
			known = b.messenger.Handle(now, &b.view, m) || known
		}
	}
	s.handled(m.Fabric.Opcode, first, known && first)
	return true
}

// Deadline returns when Tick is to be called next; reorder.Never: no policy asks for it.
func (s *Spine) Deadline() mono.Time {
	t := reorder.Never
	if s.sw != nil {
		t = s.sw.Deadline()
	}
	if !s.timed {
		return t
	}
	for _, b := range s.bundles {
		t = min(t, b.timed.Deadline())
	}
	return t
}

// Tick wakes the policies that ask for it, and returns what they have to say to the
// nodes at the other ends of their links. It is valid until the next call. A spine has
// nothing to say to leaves: what names no link of the bundle is not sent.
func (s *Spine) Tick(now mono.Time) []balance.PortMessage {
	s.out = s.out[:0]
	if s.sw != nil && now >= s.sw.Deadline() {
		s.out = s.sw.Tick(now, s.out)
	}
	if s.timed {
		s.tickBundles(now)
	}
	for i := range s.out {
		m := &s.out[i]
		m.Cause, m.Fabric.Capable, m.Fabric.Scheme = overlay.NoCause, true, s.scheme.Wire
	}
	return s.out
}

// tickBundles wakes the policies of the bundles.
func (s *Spine) tickBundles(now mono.Time) {
	for _, b := range s.bundles {
		if now < b.timed.Deadline() {
			continue
		}
		s.said = b.timed.Tick(now, &b.view, s.said[:0])
		for _, m := range s.said {
			if int(m.Link) >= len(b.ports) {
				s.stats.Unsent.NoPath++
				continue
			}
			s.out = append(s.out, balance.PortMessage{Message: m, Port: b.ports[m.Link]})
		}
	}
}

// number returns what the policy knows a port by; -1: not at all.
func (b *Bundle) number(port int) int { return slices.Index(b.ports, port) }

// Look is balance.Links.
func (b *Bundle) Look(now mono.Time) {
	if b.looked && b.at == now {
		return
	}
	b.looked, b.at = true, now
	for i, port := range b.ports {
		b.local[i], b.queue[i] = b.links.Link(now, port)
	}
}

// Choose gives every packet of a vector its next hop: Path is the index of the port
// in the order that SetRoute was given for the packet's destination, which stands in
// Leaf.
func (b *Bundle) Choose(now mono.Time, pkts []balance.Packet) { b.choose(now, &b.view, pkts) }
