package dataplane

import (
	"encoding/binary"
	"net/netip"

	"github.com/loomfabric/loom/dataplane/xsk"
	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
)

const (
	routeCacheSize = 256 // power of two
	noGroup        = ^uint32(0)
)

// routeCacheEntry remembers one longest-prefix match.
type routeCacheEntry struct {
	dst   uint32
	group uint32 // index into view.groups plus one; 0: empty; noGroup: no route
}

// spineInput routes a burst of VXLAN packets by their outer header.
func (w *worker) spineInput(p *port, descs []xsk.Desc, now mono.Time) {
	for i := range descs {
		f := frame{off: uint32(descs[i].Addr), len: uint16(descs[i].Len), in: p.id}
		if r := w.route(p, &f, now); r != drop.None {
			w.discard(&f, r)
		}
	}
}

// route forwards f, or says why it is to be dropped.
func (w *worker) route(p *port, f *frame, now mono.Time) drop.Reason {
	b := w.bytes(f)
	if r := overlay.CheckOuter(b); r != drop.None {
		return r
	}
	ip := overlay.IPv4(b[overlay.EthernetLen:])
	m := w.metaOf(p, f.off, b)
	f.hash, f.l3, f.flags = m.Hash, overlay.EthernetLen, overlay.FlagIPv4
	if ip.TTL() <= 1 {
		return drop.TTLExpired
	}
	group := w.lookup(ip.Dst())
	if group == noGroup {
		return drop.NoRoute
	}
	g := &w.view.groups[group]
	if g.n == 0 {
		return drop.NoRoute
	}
	// Multiply-shift spreads the hash over the hops without a division. The
	// hash has this node's seed in it, so tiers do not polarise.
	pick := uint32(uint64(f.hash) * uint64(g.n) >> 32)
	if fab, ok := fabricOf(b, ip, w.cfg.VXLANPort); ok {
		pick = uint32(fab.Path().Selector()) % g.n
		f.kind = kindCapable
		if fab.Opcode().Control() {
			f.kind = kindCapable | kindControl
		}
	}
	id := g.hops[pick]
	hop := &w.view.hops[id]
	if f.len > hop.maxFrame {
		return drop.TooBig
	}
	ip.DecTTL()
	if !hop.resolved {
		w.hold(f, id, now)
		return drop.None
	}
	eth := overlay.Ethernet(b)
	eth.SetDst(hop.dst)
	eth.SetSrc(hop.src)
	w.stats.HopSent[id].Add(uint32(f.len))
	w.enqueue(f, hop.port)
	return drop.None
}

// lookup returns the group that the kernel's routes give for dst, or noGroup.
func (w *worker) lookup(dst uint32) uint32 {
	e := &w.routeCache[dst*0x9E3779B1>>24]
	if e.group != 0 && e.dst == dst {
		if e.group == noGroup {
			return noGroup
		}
		return e.group - 1
	}
	var a [4]byte
	binary.BigEndian.PutUint32(a[:], dst)
	group, ok := uint32(0), false
	if w.view.routes != nil {
		group, ok = w.view.routes.Lookup(netip.AddrFrom4(a))
	}
	e.dst = dst
	if !ok || int(group) >= len(w.view.groups) {
		e.group = noGroup
		return noGroup
	}
	e.group = group + 1
	return group
}

// fabricOf returns the VXLAN header of a packet whose sender uses the fabric's
// fields. Such senders put no options into the outer header.
func fabricOf(b []byte, ip overlay.IPv4, port uint16) (overlay.VXLAN, bool) {
	if len(b) < vxlanAt+overlay.VXLANLen || ip.HeaderLen() != overlay.IPv4Len || ip.Proto() != overlay.ProtoUDP ||
		overlay.UDP(b[vxlanAt-overlay.UDPLen:]).DstPort() != port {
		return nil, false
	}
	v := overlay.VXLAN(b[vxlanAt:])
	return v, v.Capable()
}
