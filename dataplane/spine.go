package dataplane

import (
	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/dataplane/xsk"
	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/leaf"
	"github.com/loomfabric/loom/overlay"
)

const (
	routeCacheSize = 256 // power of two
	noGroup        = ^uint32(0)
)

// routeCacheEntry remembers one longest-prefix match.
type routeCacheEntry struct {
	dst   overlay.Addr
	group uint32 // index into view.groups plus one; 0: empty; noGroup: no route
}

// spineWorker is what a spine's worker has besides its rings.
type spineWorker struct {
	*worker
	// routes remember longest-prefix matches, direct-mapped, emptied with each view.
	routes [routeCacheSize]routeCacheEntry
	brain  *leaf.Spine // nil: next hops follow selectors and hashes
	every  bool        // brain decides where there is no choice, too
	hosts  bool        // and wants to know what hosts packets go to

	messages *workerRings[message] // nil with one worker

	outer overlay.Outer // of the frame at hand

	n       int // frames that wait for their next hop to be chosen,
	bundle  *leaf.Bundle
	waiting [burstSize]frame // all among the hops of one bundle
	groups  [burstSize]uint32
	choice  [burstSize]balance.Packet
}

// newSpineWorker makes a spine's part of a worker.
func newSpineWorker(w *worker) (*spineWorker, error) {
	s := &spineWorker{worker: w}
	if w.cfg.Scheme == "" {
		return s, nil
	}
	var err error
	s.brain, err = leaf.NewSpine(leaf.SpineConfig{
		Scheme: w.cfg.Scheme, Options: w.cfg.Options, Seed: w.cfg.Seed, Worker: w.id, Congestion: w.cfg.Congestion,
		Sections: w.cfg.Sections, Links: s, Node: s,
	})
	if err == nil {
		s.every, s.hosts = s.brain.KnowsLeaves(), balance.Find(w.cfg.Scheme).Hosts
	}
	return s, err
}

// Link is leaf.SpineLinks.
func (s *spineWorker) Link(now mono.Time, port int) (metric uint8, queue uint32) {
	e := &s.ports[port].egress
	return e.meter.Metric(now, e.rate), uint32(e.data.bytes)
}

// adopt brings routes in line with a new view.
func (s *spineWorker) adopt(v *view) {
	s.routes = [routeCacheSize]routeCacheEntry{}
	if s.brain == nil {
		return
	}
	for i := range v.groups {
		g := &v.groups[i]
		if err := s.brain.SetRoute(i, v.portsOf(&g.places), g.places.weights, g.places.gone); err != nil {
			panic(err) // a group is no longer than a route may be, and the scheme was made before
		}
	}
	if s.every {
		s.setLeaves(v)
	}
}

// portsOf returns the ports of places. A place that is gone is given that of a next hop
// that is there: it is not looked at.
func (v *view) portsOf(p *places) []int {
	if len(p.hops) == 0 {
		return nil
	}
	ports := make([]int, p.n)
	for i := range ports {
		ports[i] = int(v.hops[p.hops[0]].port)
	}
	for i, place := range p.at {
		ports[place] = int(v.hops[p.hops[i]].port)
	}
	return ports
}

// begin takes in the messages that came to other workers, before the bursts of a round.
func (s *spineWorker) begin() {
	if s.brain == nil || s.messages == nil {
		return
	}
	s.messages.each(s.id, func(m *message) { s.brain.Handle(m.at, int(m.port), &m.Message, false) })
}

// end does what is due, after the bursts of a round.
func (s *spineWorker) end(now mono.Time) {
	if s.brain == nil || s.brain.Deadline() > now {
		return
	}
	out := s.brain.Tick(now)
	for i := range out {
		m := &out[i]
		if s.sendLink(PortID(m.Port), &m.Fabric, s.brain.Unsent(), now) {
			s.brain.Account(m.Fabric.Opcode, overlay.LinkMessageLen)
		}
	}
}

// acceptLink ends a message of the node at the other end of p: the scheme handles it, in
// every worker. It returns drop.Control if the scheme does not expect it.
func (s *spineWorker) acceptLink(p *port, f *frame, now mono.Time) drop.Reason {
	m := &s.note
	*m = message{at: now, port: p.id, Message: overlay.Message{Cause: overlay.NoCause}}
	if r := s.decodeLink(p, s.bytes(f), &m.Fabric); r != drop.None {
		return r
	}
	if s.brain == nil || !s.brain.Handle(now, int(p.id), &m.Message, true) {
		return drop.Control
	}
	if s.messages != nil {
		s.messages.send(s.id, m)
	}
	s.consume(f)
	return drop.None
}

// input routes a burst of VXLAN packets by their outer header.
func (s *spineWorker) input(p *port, descs []xsk.Desc, now mono.Time) {
	for i := range descs {
		f := frame{off: uint32(descs[i].Addr), len: uint16(descs[i].Len), in: p.id}
		if r := s.route(p, &f, now); r != drop.None {
			s.discard(&f, r)
		}
	}
	s.choose(now)
}

// route forwards f, or says why it is to be dropped.
func (s *spineWorker) route(p *port, f *frame, now mono.Time) drop.Reason {
	b, o := s.bytes(f), &s.outer
	switch r := overlay.CheckOuter(b, o); r {
	case drop.None:
	case drop.BadEtherType:
		return s.acceptLink(p, f, now) // which says so of what is not a neighbour's either
	default:
		return r
	}
	m := s.metaAt(f.off)
	if m == nil {
		m = s.dissect(p, b)
	}
	f.hash, f.l3, f.flags = m.Hash, overlay.EthernetLen, o.Family
	if r := s.believe(p, b, o.Src); r != drop.None {
		return r
	}
	if o.TTL <= 1 {
		return drop.TTLExpired
	}
	group := s.lookup(o.Dst)
	if group == noGroup {
		return drop.NoRoute
	}
	g := &s.view.groups[group]
	if g.n == 0 {
		return drop.NoRoute
	}
	fab, capable := fabricOf(b, o, s.cfg.VXLANPort)
	selector := uint8(0)
	if capable {
		selector = fab.Path().Selector()
		f.kind = kindCapable
		if fab.Opcode().Control() {
			f.kind = kindCapable | kindControl
		}
	}
	if s.brain != nil && (g.n > 1 || s.every) {
		s.wait(f, group, now)
		return drop.None
	}
	// The hash has this node's seed in it, so tiers do not polarise.
	return s.forward(f, g.hops[g.choice.Of(capable, selector, f.hash)%MaxPaths], now)
}

// believe checks that a packet was sent to this port, and that its source is where it
// says, or says why it is to be dropped.
func (s *spineWorker) believe(p *port, b []byte, src overlay.Addr) drop.Reason {
	if overlay.Ethernet(b).DstKey(0) != p.mac {
		return drop.NotOurMAC
	}
	if s.cfg.ReversePath == AnyPath {
		return drop.None
	}
	if src == p.believed && src != (overlay.Addr{}) {
		return drop.None
	}
	group := s.lookup(src)
	if group == noGroup || !s.view.groups[group].leadsTo(p.id) {
		if s.passed.spine(src, p.id, s.now) {
			return drop.None
		}
		return drop.ReversePath
	}
	p.believed = src
	return drop.None
}

// wait puts f into the vector of frames whose next hop the spine's scheme chooses. A
// full vector, or one among other hops, is sent on its way first.
func (s *spineWorker) wait(f *frame, group uint32, now mono.Time) {
	b := s.brain.Bundle(int(group))
	if s.n == len(s.waiting) || b != s.bundle {
		s.choose(now)
	}
	s.bundle = b
	s.waiting[s.n], s.groups[s.n] = *f, group
	s.choice[s.n] = balance.Packet{Hash: f.hash, Leaf: uint16(group), Number: uint16(s.outer.Dst.Low), Len: f.len}
	if s.hosts {
		s.choice[s.n].Host = innerHost(s.bytes(f), &s.outer, s.cfg.VXLANPort)
	}
	s.n++
}

// choose sends the frames of the vector by the hops that the scheme chooses.
func (s *spineWorker) choose(now mono.Time) {
	if s.n == 0 {
		return
	}
	n := s.n
	s.n = 0
	s.bundle.Choose(now, s.choice[:n])
	for i := range s.waiting[:n] {
		f := &s.waiting[i]
		if s.taps != nil {
			s.taps.note(f.off).scheme = s.cfg.Scheme
		}
		if r := s.forward(f, s.view.groups[s.groups[i]].hops[s.choice[i].Path], now); r != drop.None {
			s.discard(f, r)
		}
	}
}

// forward sends f to a next hop, or says why it is to be dropped.
func (s *spineWorker) forward(f *frame, id HopID, now mono.Time) drop.Reason {
	hop := &s.view.hops[id]
	if f.len > hop.maxFrame {
		return drop.TooBig
	}
	b := s.bytes(f)
	if f.flags&overlay.FlagIPv6 != 0 {
		overlay.IPv6(b[overlay.EthernetLen:]).DecHopLimit()
	} else {
		overlay.IPv4(b[overlay.EthernetLen:]).DecTTL()
	}
	if !hop.resolved {
		return s.hold(f, id, now)
	}
	eth := overlay.Ethernet(b)
	eth.SetDst(hop.dst)
	eth.SetSrc(hop.src)
	s.hopSent[id].Add(uint32(f.len))
	return s.enqueue(f, hop.port)
}

// lookup returns the group that the kernel's routes give for dst, or noGroup.
func (s *spineWorker) lookup(dst overlay.Addr) uint32 {
	e := &s.routes[dst.Hash()>>24]
	if e.group != 0 && e.dst == dst {
		if e.group == noGroup {
			return noGroup
		}
		return e.group - 1
	}
	group, ok := uint32(0), false
	if s.view.routes != nil {
		group, ok = s.view.routes.Lookup(dst.Netip())
	}
	e.dst = dst
	if !ok || int(group) >= len(s.view.groups) {
		e.group = noGroup
		return noGroup
	}
	e.group = group + 1
	return group
}

// fabricOf returns the VXLAN header of a packet whose sender uses the fabric's fields.
func fabricOf(b []byte, o *overlay.Outer, port uint16) (overlay.VXLAN, bool) {
	v, ok := vxlanOf(b, o, port)
	return v, ok && v.Capable()
}

// vxlanOf returns the VXLAN header of a packet, and what follows. It reports false for
// one with IP options, which leaves do not send: its header is not at vxlanAt.
func vxlanOf(b []byte, o *overlay.Outer, port uint16) (overlay.VXLAN, bool) {
	at := int(vxlanAt(o.Family))
	if o.L4+overlay.UDPLen != at || o.Proto != overlay.ProtoUDP || len(b) < at+overlay.VXLANLen {
		return nil, false
	}
	udp := b[at-overlay.UDPLen:]
	return overlay.VXLAN(udp[overlay.UDPLen:]), overlay.UDP(udp).DstPort() == port
}

// snapshot copies what is a spine's with a scheme of its own.
func (s *spineWorker) snapshot(to *WorkerStats) {
	to.Schemes, to.Leaf = s.brain.SchemeStats(), s.brain.Stats()
	if s.messages != nil {
		to.MessagesLost = s.messages.lost[s.id].n.Load()
	}
}
