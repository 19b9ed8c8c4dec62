package node

import (
	"fmt"
	"slices"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/leaf"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

// Spine is a switch between leaves, of any tier: the simulator's spined. It
// routes by destination leaf. Among several next hops [leaf.NextHops] chooses, with a
// hash that has a seed of the node's own in it, or a scheme ([leaf.Spine]).
type Spine struct {
	Name  string
	Index int // among all spines

	net   *network.Network
	cfg   Config
	ports []meter     // by Port.Index
	hops  []hops      // by leaf
	brain *leaf.Spine // nil: next hops follow selectors and hashes
	every bool        // brain decides where there is no choice, too
	seed  uint64
	one   [1]balance.Packet
	timer engine.Timer
	id    engine.ID
	note  overlay.Message // the message that is handled

	explores func(*overlay.Fabric) bool // what is flooded; nil: nothing
	stats    SpineStats
}

// SpineStats counts packets.
type SpineStats struct {
	Forwarded uint64
	Pinned    uint64 // of those, with a choice that their selector made
	Flooded   uint64 // copies that were made to flood what explores
	Control   uint64 // messages of neighbours that were handled
	Messages  uint64 // messages to neighbours that were sent
}

// hops are the next hops to a leaf, in a stable order.
type hops struct {
	n      uint8
	to     [balance.MaxPaths]*network.Port
	choice leaf.NextHops
	places []int // ports of these hops and of those that have gone since
}

// NewSpine returns a spine of a fabric with so many leaves, without ports. It
// reports configurations that make no sense.
func NewSpine(net *network.Network, name string, index, leaves int, cfg Config) (*Spine, error) {
	s := &Spine{Name: name, Index: index, net: net, cfg: cfg, hops: make([]hops, leaves), seed: cfg.Seed, timer: engine.NewTimer()}
	if err := cfg.Congestion.Validate(); err != nil {
		return nil, fmt.Errorf("spine %s: congestion: %w", name, err)
	}
	if x := balance.Find(cfg.Scheme); cfg.Flood && x != nil {
		s.explores = x.Explores
	}
	if cfg.Spine == "" {
		return s, nil
	}
	o := cfg.SpineOptions
	var err error
	s.brain, err = leaf.NewSpine(leaf.SpineConfig{
		Scheme: cfg.Spine, Options: o, Seed: cfg.Seed, Congestion: s.cfg.Congestion, Sections: cfg.Sections, Links: s, Node: s,
	})
	if err != nil {
		return nil, fmt.Errorf("spine %s: %w", name, err)
	}
	s.every = s.brain.KnowsLeaves()
	s.id = net.Engine.Register(s)
	s.wake(net.Engine.Now())
	return s, nil
}

// AddPort adds a port.
func (s *Spine) AddPort(name string, c network.PortConfig) *network.Port {
	p := s.net.NewPort(name, len(s.ports), s, c, s)
	s.ports = append(s.ports, meter{port: p, dre: s.cfg.Congestion.DRE()})
	return p
}

// LinkChanged takes a port whose link went down out of all routes, at once
// (network.LinkWatcher). What comes up waits for the routes to say so.
func (s *Spine) LinkChanged(_ engine.Time, p *network.Port, up bool) {
	if up {
		return
	}
	for leaf := range s.hops {
		h, left := s.hops[leaf], make([]int, 0, balance.MaxPaths)
		for _, to := range h.to[:h.n] {
			if to != p {
				left = append(left, to.Index)
			}
		}
		if len(left) < int(h.n) {
			if err := s.SetRoute(uint16(leaf), left); err != nil {
				panic(err) // part of a route that was possible
			}
		}
	}
}

// SetRoute names the ports that lead to a leaf, in a stable order; none: its
// packets are dropped. There are at most balance.MaxPaths. Flows that go by hash keep
// their ports while others go and return.
func (s *Spine) SetRoute(dest uint16, ports []int) error {
	if len(ports) > balance.MaxPaths {
		return fmt.Errorf("spine %s: %d next hops to leaf %d: at most %d are possible", s.Name, len(ports), dest, balance.MaxPaths)
	}
	h := &s.hops[dest]
	gone, ok := balance.Gone(h.places, ports)
	if !ok {
		gone, h.places = 0, slices.Clone(ports)
	}
	h.n, h.choice = uint8(len(ports)), leaf.MakeNextHops(len(h.places), nil).Without(gone, nil)
	for i, p := range ports {
		h.to[i] = s.ports[p].port
	}
	if s.brain == nil {
		return nil
	}
	if err := s.brain.SetRoute(int(dest), h.places, nil, gone); err != nil {
		return fmt.Errorf("spine %s: %w", s.Name, err)
	}
	if s.every {
		s.brain.SetLeaf(dest, ports)
	}
	return nil
}

// Receive forwards a packet.
func (s *Spine) Receive(now engine.Time, p *network.Packet, in *network.Port) {
	if p.Kind == network.Link {
		s.message(now, p, in)
		return
	}
	if s.explores != nil && s.explores(&p.Fabric) {
		s.flood(now, p, in)
	}
	h := &s.hops[p.DstLeaf]
	pick := uint8(0)
	switch {
	case h.n == 0:
		s.net.Drop(p, network.NoRoute)
		return
	case h.n == 1 && !s.every:
	case s.brain != nil:
		s.one[0] = balance.Packet{Hash: p.Hash, Leaf: p.DstLeaf, Number: p.DstLeaf, Host: uint32(p.Dst), Len: uint16(p.Size)}
		s.brain.Bundle(int(p.DstLeaf)).Choose(now.Mono(), s.one[:])
		pick = s.one[0].Path
	default:
		if p.Fabric.Capable {
			s.stats.Pinned++
		}
		pick = h.choice.Of(p.Fabric.Capable, p.Fabric.Path.Selector(), balance.Remix(uint64(p.Hash)^s.seed))
	}
	s.stats.Forwarded++
	h.to[pick&(balance.MaxPaths-1)].Send(now, p, p.Class)
}

// flood sends copies of a packet by all ports but the one that it came by and those that
// lead to its leaf. What has come down is not flooded again.
func (s *Spine) flood(now engine.Time, p *network.Packet, in *network.Port) {
	if s.toLeaf(p.SrcLeaf, in) {
		h := &s.hops[p.DstLeaf]
		for i := range s.ports {
			if to := s.ports[i].port; to != in && !slices.Contains(h.to[:h.n], to) && to.Up() {
				s.stats.Flooded++
				to.Send(now, s.net.Copy(p), p.Class)
			}
		}
	}
}

// toLeaf reports whether a port leads to a leaf.
func (s *Spine) toLeaf(leaf uint16, port *network.Port) bool {
	h := &s.hops[leaf]
	return slices.Contains(h.to[:h.n], port)
}

// Departing is what every port calls (network.Watcher).
func (s *Spine) Departing(now engine.Time, p *network.Packet, out *network.Port) {
	s.ports[out.Index].depart(now.Mono(), p)
}

// Ports returns the ports, by index.
func (s *Spine) Ports() []*network.Port {
	ports := make([]*network.Port, len(s.ports))
	for i := range s.ports {
		ports[i] = s.ports[i].port
	}
	return ports
}

// Brain returns what decides, for its counters; nil: no scheme does.
func (s *Spine) Brain() *leaf.Spine { return s.brain }

// Stats returns what happened so far.
func (s *Spine) Stats() SpineStats { return s.stats }

// Metric returns the congestion metric of a port's link as of now.
func (s *Spine) Metric(now engine.Time, port int) uint8 {
	metric, _ := s.ports[port].link(now.Mono())
	return metric
}

// Link is leaf.SpineLinks.
func (s *Spine) Link(now mono.Time, port int) (metric uint8, queue uint32) {
	return s.ports[port].link(now)
}
