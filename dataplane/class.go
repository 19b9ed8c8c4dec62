package dataplane

import (
	"fmt"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
)

// MaxClasses is how many traffic classes a leaf can have, the default one
// included.
const MaxClasses = 16

// Class is a kind of traffic and the scheme that balances it. Zero fields of
// the match mean anything.
type Class struct {
	VNI      overlay.VNI
	Protocol uint8  // IP protocol
	Port     uint16 // source or destination port
	DSCP     uint8  // DSCP plus one: 0 is a codepoint too
	Scheme   string
	Options  balance.Options // Seed and Worker are the node's to fill
}

// class is a traffic class at work: its rule, its policy, and the frames of the
// burst that wait for an uplink.
type class struct {
	rule   Class
	vni    int32 // index of rule.VNI in the view; -1: any; -2: not there
	policy balance.Policy
	signal balance.Signaller // policy, if it is one
	n      int
	frames [burstSize]fabricFrame
	choice [burstSize]balance.Packet
}

// makeClasses makes a worker's classes: those of the configuration in order of
// precedence, and behind them the default one, which takes what is left.
func makeClasses(cfg *Config, worker int) ([]*class, error) {
	rules := append([]Class(nil), cfg.Classes...)
	rules = append(rules, Class{Scheme: cfg.Scheme, Options: cfg.Options})
	if len(rules) > MaxClasses {
		return nil, fmt.Errorf("%d traffic classes: at most %d, besides the default one", len(cfg.Classes), MaxClasses-1)
	}
	classes := make([]*class, len(rules))
	for i := range rules {
		r := rules[i]
		if r.Scheme == "" {
			r.Scheme = "ecmp"
		}
		r.Options.Seed, r.Options.Worker, r.Options.Params = cfg.Seed, worker, cfg.Congestion
		p, err := balance.New(r.Scheme, r.Options)
		if err != nil {
			return nil, fmt.Errorf("traffic class %d: %w", i, err)
		}
		signal, _ := p.(balance.Signaller)
		classes[i] = &class{rule: r, vni: -1, policy: p, signal: signal}
	}
	return classes, nil
}

// setClasses puts classes in force. No frame waits in the old ones: a burst
// ends with all of them sent.
func (w *worker) setClasses(classes []*class) {
	for _, c := range w.classes {
		w.retired = addSchemeStats(w.retired, c.stats())
	}
	w.classes = classes
	w.bindClasses()
}

// bindClasses finds the VNIs of the classes in the current view.
func (w *worker) bindClasses() {
	for _, c := range w.classes {
		c.vni = -1
		if c.rule.VNI == 0 {
			continue
		}
		c.vni = -2
		if w.view != nil {
			if i, ok := w.view.vniNumber.get(uint32(c.rule.VNI)); ok {
				c.vni = int32(i)
			}
		}
	}
}

// classify returns the index of the first class that a tenant's frame matches.
func (w *worker) classify(b []byte, m *overlay.Meta, l3 uint8, vni VNIIndex) int {
	last := len(w.classes) - 1
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
	for i, c := range w.classes[:last] {
		r := &c.rule
		if (c.vni == -1 || c.vni == int32(vni)) &&
			(r.Protocol == 0 || r.Protocol == proto) &&
			(r.Port == 0 || m.Flags&overlay.FlagPorts != 0 && (r.Port == sport || r.Port == dport)) &&
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
// uplink; a full vector is sent on its way first.
func (w *worker) toFabric(f *frame, vni VNIIndex, peer PeerID, now mono.Time) {
	c := w.classes[f.kind>>kindClass]
	if c.n == len(c.frames) {
		w.encap(c, now)
	}
	s := &c.frames[c.n] // field by field, as in fifo.push
	s.off, s.len, s.in, s.hash = f.off, f.len, f.in, f.hash
	s.flags, s.l3, s.kind = f.flags, f.l3, 0
	s.peer, s.vni = peer, vni
	p := &c.choice[c.n]
	p.Hash, p.Leaf, p.Len = f.hash, uint16(peer), f.len
	c.n++
}

// SchemeStats counts what a scheme decided, over all workers and, after a
// reload, its predecessors of the same name.
type SchemeStats struct {
	Scheme string
	balance.Stats
}

func (c *class) stats() SchemeStats { return SchemeStats{c.policy.Name(), c.policy.Stats()} }

// addSchemeStats adds s to its scheme's place in sums.
func addSchemeStats(sums []SchemeStats, s SchemeStats) []SchemeStats {
	for i := range sums {
		if sums[i].Scheme == s.Scheme {
			sums[i].Add(&s.Stats)
			return sums
		}
	}
	return append(sums, s)
}
