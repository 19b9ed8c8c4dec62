package dataplane

import (
	"slices"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/internal/units"
	"github.com/loomfabric/loom/leaf"
	"github.com/loomfabric/loom/overlay"
)

// Class is a kind of traffic and the scheme that balances it. Zero fields of
// the match mean anything.
type Class struct {
	VNI      overlay.VNI
	Protocol uint8       // IP protocol
	Port     units.Ports // source or destination port
	DSCP     uint8       // DSCP plus one: 0 is a codepoint too
	Scheme   string
	Options  balance.Options // Keys and Section count
}

// class is a traffic class at work: its rule, its scheme, and the frames of the
// burst that wait for an uplink.
type class struct {
	*leaf.Class
	rule   Class
	vni    int32 // index of rule.VNI in the view; -1: any; -2: not there
	n      int
	frames [burstSize]fabricFrame
	choice [burstSize]balance.Packet
	exact  []balance.Exact // parallel to choice; nil unless the scheme wants it
}

// rules returns the classes of the configuration in order of precedence, and
// behind them the default one, which takes what is left.
func (c *Config) rules() []Class {
	rules := append([]Class(nil), c.Classes...)
	return append(rules, Class{Scheme: c.Scheme, Options: c.Options})
}

// ofUplinks returns what a class's scheme is told of each uplink; nil: nothing.
func ofUplinks(c *Class) balance.UplinkParams {
	k, _ := c.Options.Keys.(balance.UplinkParams)
	return k
}

// rules returns rules whose schemes know uplinks by their LBTags, of such that know them
// by their order in the configuration.
func (l *layout) rules(rules []Class) []Class {
	rules = slices.Clone(rules)
	for i := range rules {
		if k := ofUplinks(&rules[i]); k != nil {
			rules[i].Options.Keys = k.ForUplinks(l.order)
		}
	}
	return rules
}

// schemes returns the schemes of rules.
func schemes(rules []Class) []leaf.ClassConfig {
	configs := make([]leaf.ClassConfig, len(rules))
	for i, r := range rules {
		configs[i] = leaf.ClassConfig{Scheme: r.Scheme, Options: r.Options}
	}
	return configs
}

// makeClasses makes a worker's classes for setClasses. It changes nothing that is in force.
func (l *leafWorker) makeClasses(rules []Class, fast *fastRules) ([]*class, error) {
	made, err := l.brain.MakeClasses(l.shared.fastSchemes(rules, fast, l.id))
	if err != nil {
		return nil, err
	}
	classes := make([]*class, len(rules))
	for i := range rules {
		classes[i] = newClass(made[i], rules[i])
	}
	return classes, nil
}

func newClass(made *leaf.Class, rule Class) *class {
	c := &class{Class: made, rule: rule, vni: -1}
	if made.Scheme.Exact {
		c.exact = make([]balance.Exact, burstSize)
	}
	return c
}

// setClasses puts classes in force. No frame waits in the old ones: a burst
// ends with all of them sent.
func (l *leafWorker) setClasses(classes []*class) {
	made := make([]*leaf.Class, len(classes))
	for i, c := range classes {
		made[i] = c.Class
	}
	l.brain.SetClasses(made)
	l.classes = classes
	l.bindClasses()
}

// bindClasses finds the VNIs of the classes in the current view.
func (l *leafWorker) bindClasses() {
	for _, c := range l.classes {
		c.vni = -1
		if c.rule.VNI == 0 {
			continue
		}
		c.vni = -2
		if l.view != nil {
			if i, ok := l.view.vniNumber.get(c.rule.VNI, c.rule.VNI.Hash()); ok {
				c.vni = int32(i)
			}
		}
	}
}

// classify returns the index of the first class that a tenant's frame matches.
func (l *leafWorker) classify(b []byte, m *overlay.Meta, l3 uint8, vni VNIIndex) int {
	last := len(l.classes) - 1
	if last == 0 {
		return 0
	}
	proto, dscp := ipFields(b, l3, m.Flags)
	var sport, dport uint16
	if m.Flags&overlay.FlagPorts != 0 {
		// m's offsets count from before a tag was taken off, l3 does not.
		l4 := int(m.L4) - int(m.L3) + int(l3)
		if len(b) >= l4+4 {
			udp := overlay.UDP(b[l4:])
			sport, dport = udp.SrcPort(), udp.DstPort()
		}
	}
	for i, c := range l.classes[:last] {
		r := &c.rule
		if (c.vni == -1 || c.vni == int32(vni)) &&
			(r.Protocol == 0 || r.Protocol == proto) &&
			(r.Port.First == 0 || m.Flags&overlay.FlagPorts != 0 && (r.Port.Contains(sport) || r.Port.Contains(dport))) &&
			(r.DSCP == 0 || m.Flags&(overlay.FlagIPv4|overlay.FlagIPv6) != 0 && r.DSCP == dscp+1) {
			return i
		}
	}
	return last
}

// ipFields returns protocol and DSCP of the IP header at l3; zeroes without one.
func ipFields(b []byte, l3 uint8, flags uint16) (proto, dscp uint8) {
	dscp = overlay.FrameTOS(b, l3, flags) >> 2
	switch {
	case flags&overlay.FlagIPv4 != 0 && len(b) >= int(l3)+overlay.IPv4Len:
		proto = overlay.IPv4(b[l3:]).Proto()
	case flags&overlay.FlagIPv6 != 0 && len(b) >= int(l3)+overlay.IPv6Len:
		proto = overlay.IPv6(b[l3:]).NextHeader()
	}
	return proto, dscp
}

// toFabric puts f into the vector of frames of its class that wait for an
// uplink; a full vector is sent on its way first. m describes f, for schemes that
// want to know flows exactly.
func (l *leafWorker) toFabric(f *frame, vni VNIIndex, peer PeerID, m *overlay.Meta, now mono.Time) {
	c := l.classes[f.kind>>kindClass]
	if c.n == len(c.frames) {
		l.encap(c, now)
	}
	s := &c.frames[c.n] // field by field, as in fifo.push
	s.off, s.len, s.in, s.hash = f.off, f.len, f.in, f.hash
	s.flags, s.l3, s.kind = f.flags, f.l3, f.kind&kindFlood
	s.peer, s.vni = peer, vni
	p := &c.choice[c.n]
	p.Hash, p.Leaf, p.Number, p.Len = f.hash, uint16(peer), l.peerNumbers[peer], f.len
	p.Copies, p.Selectors, p.Until = 0, 0, 0
	if c.Scheme.Hosts {
		p.Host = hostOf(l.bytes(f), int(f.l3), f.flags)
	}
	if c.exact != nil {
		x := &c.exact[c.n]
		x.TCPFlags = overlay.ExactKey(l.bytes(f), f.l3, m, &x.Key)
	}
	c.n++
}
