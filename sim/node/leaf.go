package node

import (
	"fmt"
	"math"
	"slices"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/leaf"
	"github.com/loomfabric/loom/liveness"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
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

	access  []*network.Port // by Index less balance.MaxPaths
	uplinks []meter         // by LBTag
	paths   []balance.Paths // by leaf
	places  [][]uint8       // by leaf: the uplinks of its paths and of those that have gone since

	brain  *leaf.Leaf[*network.Packet] // nil before Join
	shared *leaf.Shared
	tuner  leaf.Tuner
	looked mono.Time
	timer  engine.Timer
	id     engine.ID

	// The one packet that the brain is asked about.
	choice  [1]balance.Packet
	exact   [1]balance.Exact
	arrival [1]reorder.Arrival
	item    [1]*network.Packet
	from    [1]uint8
	note    overlay.Message // the message that is handled

	explores func(*overlay.Fabric) bool // the scheme's
	stats    LeafStats
}

// LeafStats counts what leaves tell each other.
type LeafStats struct {
	Control  uint64 // messages and HELLOs that were for this leaf
	Messages uint64 // messages and HELLOs that were sent
	// What explores that came, all copies, and what it was on the wire; and the payload of
	// what went into the fabric for hosts and came out of it. Counted if the scheme explores.
	Requests, RequestBytes, DataBytes uint64
}

// Directory says behind which leaf a host is. It is shared by all leaves.
type Directory struct{ Leaf []uint16 }

// NewLeaf returns a leaf of a fabric with so many leaves, without ports. It
// reports configurations that make no sense.
func NewLeaf(net *network.Network, name string, index uint16, leaves int, where *Directory, cfg Config) (*Leaf, error) {
	l := &Leaf{Name: name, Index: index, net: net, cfg: cfg, where: where, looked: math.MinInt64, timer: engine.NewTimer()}
	if err := cfg.Congestion.Validate(); err != nil {
		return nil, fmt.Errorf("leaf %s: congestion: %w", name, err)
	}
	if _, err := balance.New(l.cfg.Scheme, l.cfg.Options); err != nil {
		return nil, fmt.Errorf("leaf %s: %w", name, err)
	}
	l.explores = balance.Find(cfg.Scheme).Explores
	l.paths, l.places = make([]balance.Paths, leaves), make([][]uint8, leaves)
	for i := range l.paths {
		l.paths[i] = balance.MakePaths()
	}
	l.id = net.Engine.Register(l)
	return l, nil
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
	p := l.net.NewPort(name, balance.MaxPaths+len(l.access), l, c, nil)
	l.access = append(l.access, p)
	l.hosts[h] = p
	return p
}

// Join lets leaves, given in the order of their indices, know each other. It comes
// after their ports, and before the first packet.
//
// A fabric is up before its hosts are used: every leaf has heard of every other one at
// time 0, but of plain VTEPs. From then on HELLOs are packets, as everywhere.
func Join(leaves []*Leaf) error {
	senders := []string{}
	for _, l := range leaves {
		senders = append(senders, l.cfg.Senders...)
		for _, c := range l.classes() {
			senders = append(senders, c.Scheme)
		}
	}
	slices.Sort(senders)
	senders = slices.Compact(senders)
	for i, l := range leaves {
		if int(l.Index) != i || len(leaves) != len(l.paths) {
			return fmt.Errorf("leaf %s has index %d of %d: it stands at %d of %d", l.Name, l.Index, len(l.paths), i, len(leaves))
		}
		l.shared = leaf.NewShared(len(leaves), 1, leaf.Secret{l.cfg.Seed, uint64(l.Index)}, &l.cfg.Congestion)
		for j := range leaves {
			if i != j && !l.cfg.Plain && !leaves[j].cfg.Plain {
				l.shared.Capable.Confirm(uint16(j), 0)
			}
		}
		var err error
		l.brain, err = leaf.New[*network.Packet](leaf.Config{
			Seed: l.cfg.Seed, Classes: l.classes(), Congestion: l.cfg.Congestion, Sections: l.cfg.Sections, Senders: senders,
			Leaves: len(leaves), Ports: len(l.access), Uplinks: len(l.uplinks), Links: l, Node: leafNode{l}, Rows: l.cfg.Rows,
		}, l.shared)
		if err != nil {
			return fmt.Errorf("leaf %s: %w", l.Name, err)
		}
		for u := range l.uplinks {
			l.brain.ByteTime[u] = balance.ByteTime(l.uplinks[u].port.Rate)
			l.brain.Room[u] = uint32(min(l.uplinks[u].port.Limit, math.MaxUint32))
		}
		l.brain.SetPaths(l.paths)
		l.brain.Number(l.Index, nil)
		first := reorder.Never
		if !l.cfg.Plain {
			first = mono.Time(liveness.Interval(len(leaves) - 1))
		}
		l.brain.SetHello(first)
		l.wake(l.net.Engine.Now())
		if l.cfg.Auto != (leaf.Auto{}) {
			l.net.Engine.At(engine.Of(leaf.AutoEvery), l.id, eventTune)
		}
	}
	return nil
}

// classes returns the leaf's traffic classes, the default one last.
func (l *Leaf) classes() []leaf.ClassConfig {
	return append(slices.Clone(l.cfg.Classes), leaf.ClassConfig{Scheme: l.cfg.Scheme, Options: l.cfg.Options})
}

// Acquaint tells leaves by which uplinks each of them sends, as HELLOs do later. It comes
// after the first routes.
func Acquaint(leaves []*Leaf) {
	for _, l := range leaves {
		for _, peer := range leaves {
			if paths := &peer.paths[l.Index]; peer != l {
				used := uint16(0)
				for _, u := range paths.Uplink[:paths.N] {
					used |= 1 << u
				}
				l.shared.Paths.Expect(peer.Index, used)
			}
		}
	}
}

// SetPaths names the uplinks that lead to a leaf, in a stable order; none: its
// packets are dropped. Flowlets on an uplink that is no longer among them move
// with their next packet. Flows that go by hash keep their uplinks while others go and
// return.
func (l *Leaf) SetPaths(leaf uint16, uplinks []uint8) {
	gone, ok := balance.Gone(l.places[leaf], uplinks)
	if !ok {
		gone, l.places[leaf] = 0, slices.Clone(uplinks)
	}
	all := balance.MakePaths(l.places[leaf]...)
	l.paths[leaf] = all.Without(gone)
	if l.brain != nil {
		l.brain.SetPaths(l.paths)
	}
}

// LinkChanged takes an uplink whose link went down out of all paths, at once
// (network.LinkWatcher). One that comes up waits for the routes to say so.
func (l *Leaf) LinkChanged(_ engine.Time, p *network.Port, up bool) {
	if up || p.Index >= balance.MaxPaths {
		return
	}
	for leaf := range l.paths {
		paths := &l.paths[leaf]
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
func (l *Leaf) Paths(leaf uint16) *balance.Paths { return &l.paths[leaf] }

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
	if p.Kind == network.Link {
		l.neighbour(now, p, uint8(in.Index))
	} else if in.Index < balance.MaxPaths {
		l.fromFabric(now, p, uint8(in.Index))
	} else {
		l.fromHost(now, p)
	}
}

// Departing is what uplinks call (network.Watcher).
func (l *Leaf) Departing(now engine.Time, p *network.Packet, out *network.Port) {
	l.uplinks[out.Index].depart(now.Mono(), p)
	if p.Kind < network.Control && p.Fabric.Capable {
		l.brain.Sent(p.DstLeaf, p.Fabric.LBTag)
	}
}

// Look brings what schemes are shown of links up to now (balance.Links).
func (l *Leaf) Look(now mono.Time) {
	if l.looked == now {
		return
	}
	l.looked = now
	for i := range l.uplinks {
		l.brain.Local[i], l.brain.Queue[i] = l.uplinks[i].link(now)
	}
}

// Glance says what is known of links now (leaf.Glancer).
func (l *Leaf) Glance(now mono.Time, local *[balance.MaxPaths]uint8, queue *[balance.MaxPaths]uint32) {
	for i := range l.uplinks {
		local[i], queue[i] = l.uplinks[i].link(now)
	}
}

// class is that of what no other class takes.
func (l *Leaf) class() *leaf.Class { return l.brain.Classes()[len(l.cfg.Classes)] }

// classOf returns the class of a host's packet.
func (l *Leaf) classOf(p *network.Packet) *leaf.Class {
	if l.cfg.ClassOf == nil {
		return l.class()
	}
	return l.brain.Classes()[l.cfg.ClassOf(p)]
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
		l.hosts[p.Dst].Send(now, p, p.Class)
		return
	}
	p.DstLeaf = dst
	if l.explores != nil && p.Kind == network.Data {
		l.stats.DataBytes += uint64(p.Len)
	}
	l.toFabric(now, p)
}

// toFabric sends a host's packet into the tunnel to its leaf.
func (l *Leaf) toFabric(now engine.Time, p *network.Packet) {
	c, t := l.classOf(p), now.Mono()
	choice := &l.choice[0]
	choice.Hash, choice.Leaf, choice.Number, choice.Len = p.Hash, p.DstLeaf, p.DstLeaf, uint16(p.Size)
	choice.Host, choice.Copies, choice.Selectors, choice.Until = uint32(p.Dst), 0, 0, 0
	var exact []balance.Exact
	if c.Scheme.Exact && l.cfg.Exact != nil {
		exact = l.exact[:]
		l.cfg.Exact(p, &exact[0])
	}
	l.brain.Choose(t, c, l.choice[:], exact)
	paths := &l.paths[p.DstLeaf]
	if paths.N == 0 {
		l.net.Drop(p, network.NoRoute)
		return
	}
	if c.Scheme.Waits && choice.Until > t && l.brain.Wait(c, choice, p) {
		l.wake(now)
		return
	}
	if c.Switch != nil {
		l.pauseHost(now, p.Src, l.uplinks[paths.Uplink[choice.Path]].port)
	}
	if c.Scheme.Copies && choice.Copies|choice.Selectors != 0 {
		choice.EachCopy(paths.N, func(path uint8) { l.depart(now, l.net.Copy(p), int(path)) })
	}
	l.depart(now, p, int(choice.Path))
}

// depart sends a packet by a path that its scheme chose.
func (l *Leaf) depart(now engine.Time, p *network.Packet, path int) {
	c, choice := l.classOf(p), &l.choice[0]
	uplink := l.paths[p.DstLeaf].Uplink[path]
	overhead := l.cfg.Overhead
	if l.brain.Depart(now.Mono(), c, choice, uplink, &p.Fabric) {
		if p.Fabric.Shim {
			overhead += l.cfg.Shim
		}
	} else {
		p.Fabric = overlay.Fabric{}
	}
	p.SrcLeaf, p.Overhead = l.Index, overhead
	p.Size += uint32(overhead)
	l.uplinks[uplink].port.Send(now, p, p.Class)
}

// The events of a leaf.
const (
	eventTick = iota // the brain's deadline
	eventTune        // round trips are looked at
)

// Handle is the engine's to call.
func (l *Leaf) Handle(now engine.Time, event uint64) {
	if event == eventTune {
		l.tune(now)
		return
	}
	if l.timer.Due(l.net.Engine, now, l.id, eventTick) {
		l.act(now, l.brain.Tick(now.Mono(), false))
		l.wake(now)
	}
}

// wake sets the timer to the brain's next deadline.
func (l *Leaf) wake(now engine.Time) {
	if at := l.brain.Deadline(); at != reorder.Never {
		l.timer.Set(l.net.Engine, max(engine.Time(at)*engine.Nanosecond, now), l.id, eventTick)
	} else {
		l.timer.Off()
	}
}

// tune derives times from round trips, as a leaf of the data plane does.
func (l *Leaf) tune(now engine.Time) {
	l.net.Engine.At(now+engine.Of(leaf.AutoEvery), l.id, eventTune)
	var all reorder.Histogram
	l.brain.RoundTrips(&all)
	if l.tuner.Tune(&all, l.longestQueue(), l.cfg.Auto) {
		t := l.tuner.State().Times
		if err := l.brain.Retime(now.Mono(), &t); err != nil {
			panic(fmt.Sprintf("node: leaf %s: times derived from round trips do not fit: %v", l.Name, err))
		}
		l.wake(now)
	}
}
