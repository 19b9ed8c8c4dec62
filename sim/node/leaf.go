package node

import (
	"fmt"
	"math"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

// Leaf is a switch with hosts on one side and up to balance.MaxPaths uplinks on
// the other: the simulator's leafd.
type Leaf struct {
	Name  string
	Index uint16 // among the leaves

	net   *network.Network
	cfg   Config
	where *Directory
	hosts []*network.Port // by HostID: access port, nil for hosts elsewhere

	access  []*network.Port // access ports, by Index less balance.MaxPaths
	uplinks []meter         // by LBTag
	peers   []peer          // by leaf
	classes []class         // the last one takes what the others do not
	plain   balance.Policy  // for the leaf's own packets
	order   *order          // nil: no class signals

	view     balance.View
	local    [balance.MaxPaths]uint8
	queue    [balance.MaxPaths]uint32
	looked   mono.Time
	choice   [1]balance.Packet
	capable  *overlay.Capability
	from     *congestion.FromLeaf
	exchange *congestion.Exchange

	stats LeafStats
}

// LeafStats counts packets, by what became of them.
type LeafStats struct {
	Local        uint64 // host to host behind the leaf
	Encapsulated uint64 // host to fabric
	Decapsulated uint64 // fabric to host
	Control      uint64 // control packets that were for this leaf
	Signals      uint64 // control packets that were sent
	Unheard      uint64 // control packets of a flow whose scheme does not signal
}

// class is a traffic class at work.
type class struct {
	match  Match
	policy balance.Policy
	signal balance.Signaller // policy, if it is one
}

// Directory says behind which leaf a host is. It is shared by all leaves.
type Directory struct{ Leaf []uint16 }

// NewLeaf returns a leaf of a fabric with so many leaves, without ports. It
// reports configurations that make no sense.
func NewLeaf(net *network.Network, name string, index uint16, leaves int, where *Directory, cfg Config) (*Leaf, error) {
	l := &Leaf{Name: name, Index: index, net: net, cfg: cfg, where: where, looked: math.MinInt64}
	if err := l.cfg.complete(); err != nil {
		return nil, fmt.Errorf("leaf %s: %w", name, err)
	}
	l.view = balance.View{Paths: make([]balance.Paths, leaves), Links: l, Local: &l.local, Queue: &l.queue}
	for i := range l.view.Paths {
		l.view.Paths[i] = balance.MakePaths()
	}
	l.peers = make([]peer, leaves)
	if err := l.makeClasses(); err != nil {
		return nil, fmt.Errorf("leaf %s: %w", name, err)
	}
	return l, nil
}

func (l *Leaf) makeClasses() error {
	rules := append([]Class(nil), l.cfg.Classes...)
	rules = append(rules, Class{Scheme: l.cfg.Scheme, Options: l.cfg.Options})
	if l.cfg.Plain {
		rules = []Class{{Scheme: "ecmp"}}
	}
	for i := range rules {
		r := &rules[i]
		p, err := l.newPolicy(r.Scheme, r.Options)
		if err != nil {
			return fmt.Errorf("traffic class %d: %w", i, err)
		}
		c := class{match: r.Match, policy: p}
		c.signal, _ = p.(balance.Signaller)
		l.classes = append(l.classes, c)
	}
	var err error
	l.plain, err = l.newPolicy("ecmp", balance.Options{})
	return err
}

func (l *Leaf) newPolicy(scheme string, o balance.Options) (balance.Policy, error) {
	o.Seed, o.Params = l.cfg.Seed, l.cfg.Congestion
	return balance.New(scheme, o)
}

// AddUplink adds a port towards the fabric; its Index is its LBTag. All uplinks
// are there before [Join].
func (l *Leaf) AddUplink(name string, c network.PortConfig) (*network.Port, error) {
	if len(l.uplinks) == balance.MaxPaths {
		return nil, fmt.Errorf("leaf %s: at most %d uplinks are possible, an LBTag has 4 bits", l.Name, balance.MaxPaths)
	}
	p := l.net.NewPort(name, len(l.uplinks), l, c, l)
	l.uplinks = append(l.uplinks, meter{port: p, dre: l.cfg.Congestion.DRE()})
	return p, nil
}

// AddHost adds an access port, before [Join]. Access ports' Index starts at
// balance.MaxPaths.
func (l *Leaf) AddHost(name string, h network.HostID, c network.PortConfig) *network.Port {
	for int(h) >= len(l.where.Leaf) {
		l.where.Leaf = append(l.where.Leaf, 0)
	}
	for int(h) >= len(l.hosts) {
		l.hosts = append(l.hosts, nil)
	}
	l.where.Leaf[h] = l.Index
	var w network.Watcher
	if l.signals() {
		w = l
	}
	p := l.net.NewPort(name, balance.MaxPaths+len(l.access), l, c, w)
	l.access = append(l.access, p)
	l.hosts[h] = p
	return p
}

// signals reports whether a class of the leaf signals: then its peers' classes
// do, and packets come that are to be put in order.
func (l *Leaf) signals() bool {
	for i := range l.classes {
		if l.classes[i].signal != nil {
			return true
		}
	}
	return false
}

// SetPaths names the uplinks that lead to a leaf, in a stable order; none: its
// packets are dropped. Flowlets on an uplink that is no longer among them move
// with their next packet.
func (l *Leaf) SetPaths(leaf uint16, uplinks []uint8) {
	l.view.Paths[leaf] = balance.MakePaths(uplinks...)
}

// LinkChanged takes an uplink whose link went down out of all paths, at once
// (network.LinkWatcher). One that comes up waits for the routes to say so.
func (l *Leaf) LinkChanged(now engine.Time, p *network.Port, up bool) {
	if up {
		return
	}
	if p.Index >= balance.MaxPaths {
		if l.order != nil {
			l.order.down(now, p.Index-balance.MaxPaths)
		}
		return
	}
	for leaf := range l.view.Paths {
		paths := &l.view.Paths[leaf]
		if paths.Index[p.Index] < 0 {
			continue
		}
		left := make([]uint8, 0, balance.MaxPaths)
		for _, u := range paths.Uplink[:paths.N] {
			if int(u) != p.Index {
				left = append(left, u)
			}
		}
		l.SetPaths(uint16(leaf), left)
	}
}

// Paths returns the uplinks that lead to a leaf.
func (l *Leaf) Paths(leaf uint16) *balance.Paths { return &l.view.Paths[leaf] }

// Uplinks returns the ports towards the fabric, by LBTag.
func (l *Leaf) Uplinks() []*network.Port {
	ports := make([]*network.Port, len(l.uplinks))
	for i := range l.uplinks {
		ports[i] = l.uplinks[i].port
	}
	return ports
}

// Receive takes a packet from a host or from the fabric.
func (l *Leaf) Receive(now engine.Time, p *network.Packet, in *network.Port) {
	if in.Index < balance.MaxPaths {
		l.fromFabric(now, p)
	} else {
		l.fromHost(now, p)
	}
}

// Departing is what ports call (network.Watcher).
func (l *Leaf) Departing(now engine.Time, p *network.Packet, out *network.Port) {
	if out.Index >= balance.MaxPaths {
		l.order.departing(now, p, out.Index-balance.MaxPaths)
		return
	}
	l.uplinks[out.Index].depart(now.Mono(), p)
}

// Look fills the view of links that policies are shown, once a time
// (balance.Links).
func (l *Leaf) Look(now mono.Time) {
	if l.looked == now {
		return
	}
	l.looked = now
	for i := range l.uplinks {
		u := &l.uplinks[i]
		l.local[i] = u.dre.Metric(now, u.port.Rate)
		l.queue[i] = uint32(u.port.QueuedIn(network.DataClass))
	}
}

// fromHost takes a host's packet: where to, and for what goes into the fabric,
// which uplink and the tunnel header.
func (l *Leaf) fromHost(now engine.Time, p *network.Packet) {
	if int(p.Dst) >= len(l.where.Leaf) {
		l.net.Drop(p, network.NoRoute)
		return
	}
	dst := l.where.Leaf[p.Dst]
	if dst == l.Index {
		l.stats.Local++
		l.hosts[p.Dst].Send(now, p, p.Class)
		return
	}
	t := now.Mono()
	capable := l.exchange != nil && l.capableNow(dst, t)
	c := l.classify(p)
	choice := &l.choice[0]
	choice.Hash, choice.Leaf, choice.Len = p.Hash, dst, uint16(p.Size)
	c.policy.Choose(t, &l.view, l.choice[:])
	paths := &l.view.Paths[dst]
	if paths.N == 0 {
		l.net.Drop(p, network.NoRoute)
		return
	}
	uplink := paths.Uplink[choice.Path]
	overhead := l.cfg.Overhead
	if capable && l.exchange.Depart(dst, uplink, overlay.MakePathID(uplink, uint8(p.Hash)), t, &p.Fabric) {
		if c.signal != nil {
			if choice.Marks.Stamp(t, uplink, &p.Fabric); p.Fabric.Shim {
				overhead += l.cfg.Shim
			}
		}
	} else {
		p.Fabric = overlay.Fabric{}
	}
	p.SrcLeaf, p.DstLeaf, p.Overhead = l.Index, dst, overhead
	p.Size += uint32(overhead)
	l.queue[uplink] += p.Size // others of the same time see it, as those of a vector do
	l.stats.Encapsulated++
	l.uplinks[uplink].port.Send(now, p, p.Class)
}

// classify returns the first class that a packet matches.
func (l *Leaf) classify(p *network.Packet) *class {
	last := len(l.classes) - 1
	if last == 0 {
		return &l.classes[0]
	}
	tag := l.cfg.Tags.Get(p.Flow)
	for i := range l.classes[:last] {
		if l.classes[i].match.hit(tag, p.Kind) {
			return &l.classes[i]
		}
	}
	return &l.classes[last]
}
