package dataplane

import (
	"encoding/binary"
	"net/netip"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
)

// numberOf returns what all nodes of a fabric know a leaf by: the low 16 bits of its VTEP.
func numberOf(vtep netip.Addr) uint16 { return uint16(overlay.AddrOf(vtep).Low) }

// depth returns the bytes of data that wait for a port, in all workers.
func (w *worker) depth(id PortID) uint32 {
	return w.shared.queues[id].look(w.id, w.ports[id].egress.data.bytes)
}

// holdPort has a port send no data before a time.
func (w *worker) holdPort(id PortID, until mono.Time) {
	w.ports[id].egress.until = until
	w.ports[id].dirty = true
}

// Queue is balance.Node.
func (s *spineWorker) Queue(_ mono.Time, port int) uint32 {
	if port >= len(s.ports) {
		return 0
	}
	return s.depth(PortID(port))
}

// Hosts is balance.Node: no host is behind a spine.
func (s *spineWorker) Hosts(mono.Time) uint32 { return 0 }

// Hold is balance.Node.
func (s *spineWorker) Hold(_ mono.Time, port int, until mono.Time) { s.holdPort(PortID(port), until) }

// setLeaves tells the scheme by which ports leaves are reached: those that a route of their
// own leads to.
func (s *spineWorker) setLeaves(v *view) {
	if v.routes == nil {
		return
	}
	ports := make([]int, 0, MaxPaths)
	for prefix, group := range v.routes.All() {
		if !prefix.IsSingleIP() || int(group) >= len(v.groups) {
			continue
		}
		g := &v.groups[group]
		ports = ports[:0]
		for _, id := range g.hops[:g.n] {
			ports = append(ports, int(v.hops[id].port))
		}
		s.brain.SetLeaf(numberOf(prefix.Addr()), ports)
	}
}

// leafNode is what a leaf's scheme knows of all ports (balance.Node).
type leafNode struct{ *leafWorker }

// Queue returns the bytes of data that wait for an uplink.
func (l leafNode) Queue(_ mono.Time, port int) uint32 {
	if port >= len(l.uplinks) || l.uplinks[port] == NoPort {
		return 0
	}
	return l.depth(l.uplinks[port])
}

// Hosts returns the most bytes that wait for an access port.
func (l leafNode) Hosts(mono.Time) (longest uint32) {
	for _, p := range l.open {
		if p.kind == Access {
			longest = max(longest, l.depth(p.id))
		}
	}
	return longest
}

// Hold has an uplink send no data before a time.
func (l leafNode) Hold(_ mono.Time, port int, until mono.Time) {
	if p := l.uplinks[port]; p != NoPort {
		l.holdPort(p, until)
	}
}

// number tells the brain what all nodes know leaves by.
func (l *leafWorker) number(v *view) {
	l.peerNumbers = make([]uint16, len(v.tables.Peers))
	for i := range l.peerNumbers {
		l.peerNumbers[i] = numberOf(v.tables.Peers[i].VTEP)
	}
	l.brain.Number(numberOf(l.cfg.VTEP), l.peerNumbers)
}

// hostOf returns the low 32 bits of the address that the IP packet at l3 goes to; 0 if it
// is none.
func hostOf(b []byte, l3 int, flags uint16) uint32 {
	end := 0
	switch {
	case flags&overlay.FlagIPv4 != 0:
		end = l3 + overlay.IPv4Len
	case flags&overlay.FlagIPv6 != 0:
		end = l3 + overlay.IPv6Len
	}
	if end == 0 || end > len(b) {
		return 0
	}
	return binary.BigEndian.Uint32(b[end-4:])
}

// innerHost is hostOf for the packet in a tunnel whose outer header is o.
func innerHost(b []byte, o *overlay.Outer, port uint16) uint32 {
	vx, ok := vxlanOf(b, o, port)
	if !ok {
		return 0
	}
	var f overlay.Fabric
	_, n, r := vx.Decode(&f)
	inner := vx[n:]
	if r != 0 || len(inner) < overlay.EthernetLen {
		return 0
	}
	switch overlay.Ethernet(inner).EtherType() {
	case overlay.EtherTypeIPv4:
		return hostOf(inner, overlay.EthernetLen, overlay.FlagIPv4)
	case overlay.EtherTypeIPv6:
		return hostOf(inner, overlay.EthernetLen, overlay.FlagIPv6)
	}
	return 0
}

var (
	_ balance.Node = (*spineWorker)(nil)
	_ balance.Node = leafNode{}
)
