package dataplane

import (
	"cmp"
	"net/netip"

	"github.com/gaissmai/bart"

	"github.com/loomfabric/loom/bpf"
	"github.com/loomfabric/loom/leaf"
)

// fastPort is what stands between a port and the fast path.
type fastPort struct {
	ifindex int    // 0: it is not open
	in, out string // why frames that come, or leave, by it are user space's; "": they need not be
}

const notOpen = "the port is not open"

// slowEgress says which setting of a port frames have to wait in a queue for; "": none.
// The limit of the queue is none of them: a frame that does not wait needs no room.
func slowEgress(e *EgressConfig) string {
	switch {
	case e.Rate != 0:
		return "it has a shaper"
	case e.Delay != 0:
		return "it has a delay"
	}
	return ""
}

// unmarked says why congestion of a port cannot be marked (ecn) without a queue; "": it can, or
// need not. A phantom queue takes the place of the queue where the link's rate is known.
func (v *view) unmarked(id PortID) string {
	e := &v.layout.ports[id].Egress
	switch rate, _ := e.Speed(v.tables.Ports[id].Speed); {
	case e.Kmax == 0:
	case v.layout.ports[id].Kind == Access:
		return "it marks congestion of hosts' frames by its queue (ecn)"
	case rate == 0:
		return "it marks congestion (ecn), and its speed is not known"
	}
	return ""
}

// fastEgress says why the fast path must not send by a port; "": it may.
func (v *view) fastEgress(ports []fastPort, id PortID) string {
	if int(id) >= len(ports) || ports[id].ifindex == 0 {
		return notOpen
	}
	if why := cmp.Or(slowEgress(&v.layout.ports[id].Egress), v.unmarked(id)); why != "" {
		return why
	}
	return ports[id].out
}

// fastTables writes what a view says into a copy of the XDP programs' tables that is not in
// force. ours says which VXLAN is the fabric's, by prefix, at a spine.
func (v *view) fastTables(t *bpf.Fast, i int, ports []fastPort, ours map[netip.Prefix]bool) error {
	toPorts, toHops, toGroups := t.Copy(i)
	v.fastRows(ports, toPorts, toHops, toGroups)
	if t.Size().FDB > 0 {
		v.fastLeaf(t.LeafCopy(i))
		return nil
	}
	return t.SetRoutes(i, v.fastRoutes(ours))
}

// fastRows writes what a view says of ports, next hops and groups as the XDP programs read
// it. What there is no room for stays user space's.
func (v *view) fastRows(ports []fastPort, toPorts []bpf.FastPort, toHops []bpf.FastHop, toGroups []bpf.FastGroup) {
	clear(toPorts)
	clear(toHops)
	clear(toGroups)
	for i := range min(len(v.ports), len(toPorts)) {
		p := &v.ports[i]
		toPorts[i] = bpf.FastPort{
			Mac: p.mac, On: flag(i < len(ports) && ports[i].ifindex != 0 && ports[i].in == ""),
			Out: flag(p.up && v.fastEgress(ports, PortID(i)) == ""), MaxFrame: p.maxFrame, Tag: v.layout.ports[i].tag, KeepTags: uint8(flag(p.keepTags)),
		}
	}
	for i := range min(len(v.hops), len(toHops)) {
		h := &v.hops[i]
		toHops[i] = bpf.FastHop{
			Dst: h.dst, Src: h.src, MaxFrame: h.maxFrame, Port: uint16(h.port), On: flag(h.resolved && v.fastEgress(ports, h.port) == ""),
		}
	}
	for i := range min(len(v.groups), len(toGroups)) {
		v.groups[i].fastRow(&toGroups[i])
	}
}

func flag(b bool) uint16 {
	if b {
		return 1
	}
	return 0
}

// fastRow writes a group as the XDP programs read it.
func (g *viewGroup) fastRow(to *bpf.FastGroup) {
	to.From = g.from
	if g.n == 0 {
		return
	}
	t := g.choice.Table()
	to.Places, to.Vacant, to.Choice = t.N, t.Places.Vacant, t.Places.Choice
	to.Weighted = uint8(flag(t.Places.Weighted))
	for i, s := range t.Selector {
		if s == leaf.ByHash {
			s = bpf.FastByHash
		}
		to.Selector[i] = s
	}
	to.Shares.Keep, to.Shares.Other = t.Shares.Table()
	to.Rest.Keep, to.Rest.Other = t.Rest.Table()
	for i, h := range g.hops {
		to.Hops[i] = uint16(h)
	}
}

// fastRoutes returns the routes of a view as the XDP programs of the fast path look them up.
// ours says which VXLAN is the fabric's, by prefix.
func (v *view) fastRoutes(ours map[netip.Prefix]bool) map[netip.Prefix]uint32 {
	var fabric bart.Table[bool]
	all := make(map[netip.Prefix]uint32, len(ours))
	for p, is := range ours {
		fabric.Insert(p, is)
		all[p] = 0
	}
	if v.routes != nil {
		for p := range v.routes.All() {
			all[p] = 0
		}
	}
	for p := range all {
		is, _ := fabric.LookupPrefix(p)
		if v.routes == nil {
			continue
		}
		if g, ok := v.routes.LookupPrefix(p); ok && int(g) < len(v.groups) {
			all[p] = bpf.FastRoute(g, is)
		}
	}
	return all
}
