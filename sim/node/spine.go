package node

import (
	"fmt"
	"math"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

// Spine is a switch between leaves, of any tier: the simulator's spined. It
// routes by destination leaf. Among several next hops it takes the one that a
// capable packet's selector says, and lets a hash with a seed of its own choose
// for the others, or asks a scheme of its own for every packet.
type Spine struct {
	Name  string
	Index int // among all spines

	net   *network.Network
	cfg   Config
	ports []meter // by Port.Index
	hops  []hops  // by leaf
	plain balance.Policy
	view  balance.View // of plain: next hops by their place
	own   []*bundle
	byHop []*bundle // by leaf; nil entries: no choice
	one   [1]balance.Packet

	stats SpineStats
}

// SpineStats counts packets.
type SpineStats struct {
	Forwarded uint64
	Pinned    uint64 // of those, with a choice that their selector made
}

// hops are the next hops to a leaf, in a stable order.
type hops struct {
	n  uint8
	to [balance.MaxPaths]*network.Port
}

// NewSpine returns a spine of a fabric with so many leaves, without ports. It
// reports configurations that make no sense.
func NewSpine(net *network.Network, name string, index, leaves int, cfg Config) (*Spine, error) {
	s := &Spine{Name: name, Index: index, net: net, cfg: cfg, hops: make([]hops, leaves)}
	if err := s.cfg.complete(); err != nil {
		return nil, fmt.Errorf("spine %s: %w", name, err)
	}
	var err error
	if s.plain, err = balance.New("ecmp", balance.Options{Seed: cfg.Seed}); err != nil {
		return nil, fmt.Errorf("spine %s: %w", name, err)
	}
	s.view.Paths = make([]balance.Paths, leaves)
	for i := range s.view.Paths {
		s.view.Paths[i] = balance.MakePaths()
	}
	if cfg.Spine != "" {
		if _, err := s.newPolicy(0); err != nil {
			return nil, fmt.Errorf("spine %s: %w", name, err)
		}
		s.byHop = make([]*bundle, leaves)
	}
	return s, nil
}

func (s *Spine) newPolicy(bundle int) (balance.Policy, error) {
	o := s.cfg.SpineOptions
	o.Seed, o.Worker, o.Params = s.cfg.Seed, bundle, s.cfg.Congestion
	p, err := balance.New(s.cfg.Spine, o)
	if err != nil {
		return nil, err
	}
	if _, ok := p.(balance.Signaller); ok {
		return nil, fmt.Errorf("scheme %s is for leaves: it needs an answer from the far end", s.cfg.Spine)
	}
	return p, nil
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
// packets are dropped. There are at most balance.MaxPaths.
func (s *Spine) SetRoute(leaf uint16, ports []int) error {
	if len(ports) > balance.MaxPaths {
		return fmt.Errorf("spine %s: %d next hops to leaf %d: at most %d are possible", s.Name, len(ports), leaf, balance.MaxPaths)
	}
	h := &s.hops[leaf]
	*h = hops{n: uint8(len(ports))}
	places := [balance.MaxPaths]uint8{}
	for i, p := range ports {
		h.to[i] = s.ports[p].port
		places[i] = uint8(i)
	}
	s.view.Paths[leaf] = balance.MakePaths(places[:len(ports)]...)
	if s.cfg.Spine != "" {
		return s.bundle(leaf, ports)
	}
	return nil
}

// Receive forwards a packet.
func (s *Spine) Receive(now engine.Time, p *network.Packet, _ *network.Port) {
	h := &s.hops[p.DstLeaf]
	pick := uint8(0)
	if h.n <= 1 {
		if h.n == 0 {
			s.net.Drop(p, network.NoRoute)
			return
		}
	} else if s.byHop != nil {
		pick = s.byHop[p.DstLeaf].choose(now.Mono(), p)
	} else if p.Fabric.Capable {
		s.stats.Pinned++
		pick = p.Fabric.Path.Selector() % h.n
	} else {
		c := &s.one[0]
		c.Hash, c.Leaf, c.Len = p.Hash, p.DstLeaf, uint16(p.Size)
		s.plain.Choose(now.Mono(), &s.view, s.one[:])
		pick = c.Path
	}
	s.stats.Forwarded++
	h.to[pick&(balance.MaxPaths-1)].Send(now, p, p.Class)
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

// Stats returns what happened so far.
func (s *Spine) Stats() SpineStats { return s.stats }

// Metric returns the congestion metric of a port's link as of now.
func (s *Spine) Metric(now engine.Time, port int) uint8 {
	m := &s.ports[port]
	return m.dre.Metric(now.Mono(), m.port.Rate)
}

// bundle is a set of ports among which a spine's own scheme chooses: those that
// lead to the same leaves. A scheme knows at most balance.MaxPaths links, and a
// spine has a port for every leaf, so each bundle has a policy to itself.
type bundle struct {
	spine  *Spine
	policy balance.Policy
	ports  []int // by the number that the policy knows the port by
	view   balance.View
	local  [balance.MaxPaths]uint8
	queue  [balance.MaxPaths]uint32
	looked mono.Time
	one    [1]balance.Packet
}

// bundle finds or makes the bundle that has a leaf's next hops in it. A route
// that has lost some of its next hops stays in the bundle that it had.
func (s *Spine) bundle(leaf uint16, ports []int) error {
	if len(ports) < 2 {
		return nil // no choice; the bundle that the leaf had stays for later
	}
	var b *bundle
	for _, have := range s.own {
		if have.has(ports) {
			b = have
		}
	}
	if b == nil {
		b = &bundle{spine: s, looked: math.MinInt64, ports: append([]int(nil), ports...)}
		var err error
		if b.policy, err = s.newPolicy(len(s.own)); err != nil {
			return err
		}
		b.view = balance.View{Paths: make([]balance.Paths, len(s.hops)), Links: b, Local: &b.local, Queue: &b.queue}
		s.own = append(s.own, b)
	}
	numbers := [balance.MaxPaths]uint8{}
	for i, p := range ports {
		numbers[i] = uint8(b.number(p))
	}
	b.view.Paths[leaf] = balance.MakePaths(numbers[:len(ports)]...)
	s.byHop[leaf] = b
	return nil
}

// number returns what the policy knows a port by; -1: not at all.
func (b *bundle) number(port int) int {
	for i, p := range b.ports {
		if p == port {
			return i
		}
	}
	return -1
}

func (b *bundle) has(ports []int) bool {
	for _, p := range ports {
		if b.number(p) < 0 {
			return false
		}
	}
	return true
}

// Look is balance.Links.
func (b *bundle) Look(now mono.Time) {
	if b.looked == now {
		return
	}
	b.looked = now
	for i, port := range b.ports {
		m := &b.spine.ports[port]
		b.local[i] = m.dre.Metric(now, m.port.Rate)
		b.queue[i] = uint32(m.port.QueuedIn(network.DataClass))
	}
}

// choose returns the place of p's next hop among those to its leaf.
func (b *bundle) choose(now mono.Time, p *network.Packet) uint8 {
	c := &b.one[0]
	c.Hash, c.Leaf, c.Len = p.Hash, p.DstLeaf, uint16(p.Size)
	b.policy.Choose(now, &b.view, b.one[:])
	// Others of the same time see what this one adds, as those of a vector do.
	b.queue[b.view.Paths[p.DstLeaf].Uplink[c.Path]] += p.Size
	return c.Path
}
