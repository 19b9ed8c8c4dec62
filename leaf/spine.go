package leaf

import (
	"fmt"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/internal/mono"
)

// NextHop returns which of n next hops a packet takes at a spine without a scheme:
// the one that the selector of a packet with the fabric's fields names, for all
// others the one that the hash says. The hash has to differ from node to node, or the
// tiers of a fabric polarise.
func NextHop(capable bool, selector uint8, hash, n uint32) uint32 {
	if capable {
		return uint32(selector) % n
	}
	return uint32(uint64(hash) * uint64(n) >> 32)
}

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
}

// NewSpine returns a spine without routes. It reports schemes that are not for
// spines.
func NewSpine(cfg SpineConfig) (*Spine, error) {
	s := &Spine{cfg: cfg, scheme: balance.Find(cfg.Scheme)}
	if s.scheme != nil && s.scheme.NeedsPeer {
		return nil, fmt.Errorf("scheme %s is for leaves: it needs an answer from the far end", cfg.Scheme)
	}
	if _, err := s.policy(0); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Spine) policy(bundle int) (balance.Policy, error) {
	o := s.cfg.Options
	// Bundles and workers draw from generators of their own.
	o.Seed, o.Worker, o.Congestion = s.cfg.Seed, s.cfg.Worker<<16|bundle, s.cfg.Congestion
	if o.Section == nil && s.scheme != nil && s.scheme.Section != nil {
		o.Section = s.cfg.Sections[s.scheme.Section.Name]
	}
	return balance.New(s.cfg.Scheme, o)
}

// Bundle is a set of ports among which a spine's scheme chooses: those that lead to
// the same destinations. A scheme knows at most balance.MaxPaths links, and a spine
// has a port for every leaf, so each bundle has a policy to itself.
type Bundle struct {
	Policy balance.Policy

	links SpineLinks
	ports []int // by the number that the policy knows the port by
	view  balance.View
	local [balance.MaxPaths]uint8
	queue [balance.MaxPaths]uint32

	looked bool // local and queue are those of at
	at     mono.Time
}

// SetRoute names the ports that lead to a destination, at most balance.MaxPaths, in a
// stable order. A route that has lost some of its next hops stays in the bundle that
// it had.
func (s *Spine) SetRoute(dest int, ports []int) error {
	for dest >= len(s.by) {
		s.by = append(s.by, nil)
	}
	if len(ports) < 2 {
		return nil // there is no choice; the bundle that it had stays for later
	}
	var b *Bundle
	for _, have := range s.bundles {
		if have.has(ports) {
			b = have
		}
	}
	if b == nil {
		p, err := s.policy(len(s.bundles))
		if err != nil {
			return err
		}
		b = &Bundle{Policy: p, links: s.cfg.Links, ports: append([]int(nil), ports...)}
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
	b.view.Paths[dest] = balance.MakePaths(numbers[:len(ports)]...)
	s.by[dest] = b
	return nil
}

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

// number returns what the policy knows a port by; -1: not at all.
func (b *Bundle) number(port int) int {
	for i, p := range b.ports {
		if p == port {
			return i
		}
	}
	return -1
}

func (b *Bundle) has(ports []int) bool {
	for _, p := range ports {
		if b.number(p) < 0 {
			return false
		}
	}
	return true
}

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
//
// What the vector adds to queues is seen by what is chosen at the same time.
func (b *Bundle) Choose(now mono.Time, pkts []balance.Packet) {
	b.Policy.Choose(now, &b.view, pkts)
	for i := range pkts {
		p := &pkts[i]
		b.queue[b.view.Paths[p.Leaf].Uplink[p.Path&(balance.MaxPaths-1)]&(balance.MaxPaths-1)] += uint32(p.Len)
	}
}
