package control

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/gaissmai/bart"

	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/overlay"
)

// Builder makes tables of the kernel's state and the overlay. All that it
// remembers is which ID belongs to what, so that the same input gives the same
// tables. It is not safe for concurrent use.
type Builder struct {
	role  dataplane.Role
	ports []dataplane.PortConfig
	hops  ids[hopKey]
	peers ids[netip.Addr]
	vnis  ids[overlay.VNI]
	prev  *dataplane.Tables
	cache routeCache
}

type hopKey struct {
	port    dataplane.PortID
	gateway netip.Addr
}

// routeCache keeps a spine's routes between builds that change nothing about
// them, such as those that a neighbour caused.
type routeCache struct {
	routes []Route
	ports  []dataplane.PortState
	table  *bart.Table[uint32]
	groups []dataplane.Group
}

// NewBuilder returns a builder for a node with these ports.
func NewBuilder(role dataplane.Role, ports []dataplane.PortConfig) *Builder {
	return &Builder{
		role: role, ports: ports,
		hops:  newIDs[hopKey](dataplane.MaxHops),
		peers: newIDs[netip.Addr](dataplane.MaxPeers),
		vnis:  newIDs[overlay.VNI](dataplane.MaxVNIs),
	}
}

// Full is how often a hop, peer or VNI was left out because the tables were
// full.
func (b *Builder) Full() int { return b.hops.full + b.peers.full + b.vnis.full }

// build is the work of one call of Build.
type build struct {
	*Builder
	s       *State
	now     time.Time
	t       *dataplane.Tables
	byIndex map[int]dataplane.PortID // our ports by ifindex
}

// Build returns the tables of s and o; now is only compared with the now of
// other calls. It returns the very tables that it returned last when they are
// still right. The result must not be changed.
func (b *Builder) Build(s *State, o *Overlay, now time.Time) *dataplane.Tables {
	w := build{Builder: b, s: s, now: now, t: &dataplane.Tables{}, byIndex: make(map[int]dataplane.PortID)}
	w.portStates()
	b.hops.begin()
	if b.role == dataplane.Leaf {
		b.peers.begin()
		b.vnis.begin()
		w.overlay(o)
		b.peers.end(now)
		b.vnis.end(now)
	} else {
		w.routes()
	}
	b.hops.end(now)
	w.hopTable()
	if b.prev == nil || !sameTables(b.prev, w.t) {
		b.prev = w.t
	}
	return b.prev
}

// portStates finds the configured ports among the kernel's links.
func (w *build) portStates() {
	byName := make(map[string]Link, len(w.s.Links))
	for _, l := range w.s.Links {
		byName[l.Name] = l
	}
	w.t.Ports = make([]dataplane.PortState, len(w.ports))
	for i, p := range w.ports {
		l, ok := byName[p.Name]
		if !ok {
			continue
		}
		w.t.Ports[i] = dataplane.PortState{Ifindex: l.Index, Up: l.Up, MAC: l.MAC, MTU: l.MTU, Speed: l.Speed}
		if p.Kind != dataplane.Access { // hosts are never a next hop of the underlay
			w.byIndex[l.Index] = dataplane.PortID(i)
		}
	}
}

// usable returns the IDs of a route's next hops that lie behind ports of ours
// that are up, in the order of port and gateway: the order of the kernel's list
// may change with every replacement of the route. dst is the gateway of a next
// hop without one, unless it is not valid.
func (w *build) usable(r *Route, dst netip.Addr) (hops []dataplane.HopID) {
	var keys []hopKey
	for _, h := range r.Hops {
		port, ours := w.byIndex[h.Ifindex]
		if !ours || h.Dead || !w.t.Ports[port].Up {
			continue
		}
		gw := h.Gateway
		if !gw.IsValid() {
			gw = dst
		}
		if gw.IsValid() {
			keys = append(keys, hopKey{port, gw})
		}
	}
	slices.SortFunc(keys, func(a, b hopKey) int {
		return cmp.Or(cmp.Compare(a.port, b.port), a.gateway.Compare(b.gateway))
	})
	for _, k := range slices.Compact(keys) {
		if len(hops) == dataplane.MaxPaths {
			break
		}
		if id, ok := w.hops.get(k, w.now); ok {
			hops = append(hops, dataplane.HopID(id))
		}
	}
	return hops
}

// overlay fills a leaf's tables: peers with their next hops, VNIs and static
// addresses.
func (w *build) overlay(o *Overlay) {
	table := new(bart.Table[*Route])
	for i := range w.s.Routes {
		if r := &w.s.Routes[i]; w.alive(r) {
			table.Insert(r.Dst, r)
		}
	}
	ids := make(map[netip.Addr]dataplane.PeerID, len(o.Peers))
	var peers []dataplane.Peer
	for _, vtep := range o.Peers {
		i, ok := w.peers.get(vtep, w.now)
		if !ok {
			continue
		}
		p := dataplane.Peer{VTEP: vtep}
		if r, ok := table.Lookup(vtep); ok {
			p.Hops = w.usable(r, vtep)
		}
		peers = grown(peers, i+1)
		peers[i] = p
		ids[vtep] = dataplane.PeerID(i)
	}
	w.t.Peers = grown(peers, len(w.peers.slots)) // a peer that is gone keeps its place
	w.networks(o, ids)
}

// alive reports whether a route takes part in the lookup. Like the kernel with
// ignore_routes_with_linkdown, a route all of whose next hops are out gives
// way to a wider one.
func (w *build) alive(r *Route) bool {
	if r.Reject {
		return true
	}
	return slices.ContainsFunc(r.Hops, func(h NextHop) bool {
		port, ours := w.byIndex[h.Ifindex]
		return !h.Dead && (!ours || w.t.Ports[port].Up)
	})
}

func (w *build) networks(o *Overlay, peers map[netip.Addr]dataplane.PeerID) {
	index := make(map[overlay.VNI]dataplane.VNIIndex, len(o.VNIs))
	for _, v := range o.VNIs {
		i, ok := w.vnis.get(v.VNI, w.now)
		if !ok {
			continue
		}
		n := dataplane.VNI{VNI: v.VNI, StormRate: v.StormRate, StormBurst: v.StormBurst, FDBLimit: v.FDBLimit}
		for _, a := range v.Flood {
			if id, ok := peers[a]; ok {
				n.Flood = append(n.Flood, id)
			}
		}
		w.t.VNIs = grown(w.t.VNIs, i+1)
		w.t.VNIs[i] = n
		index[v.VNI] = dataplane.VNIIndex(i)
	}
	w.t.VNIs = grown(w.t.VNIs, len(w.vnis.slots))
	for _, s := range o.Static {
		vni, ok := index[s.VNI]
		if !ok {
			continue
		}
		e := dataplane.StaticMAC{VNI: vni, MAC: s.MAC, Port: dataplane.NoPort, VLAN: s.VLAN}
		if s.VTEP.IsValid() {
			if e.Peer, ok = peers[s.VTEP]; !ok {
				continue
			}
		} else {
			i := slices.IndexFunc(w.ports, func(p dataplane.PortConfig) bool { return p.Name == s.Interface })
			if i < 0 {
				continue
			}
			e.Port = dataplane.PortID(i)
		}
		w.t.Static = append(w.t.Static, e)
	}
}

// grown returns s with zero values appended up to length n.
func grown[T any](s []T, n int) []T {
	if len(s) >= n {
		return s
	}
	return append(s, make([]T, n-len(s))...)
}

// routes fills a spine's routes: those whose next hops are behind our ports.
// A route that leads elsewhere is left out, except where one of ours covers
// it: there it must hide the wider one, as it does in the kernel, and gets a
// group without next hops.
func (w *build) routes() {
	c := &w.cache
	if c.table != nil && slices.Equal(c.ports, w.t.Ports) && sameRoutes(c.routes, w.s.Routes) {
		for _, g := range c.groups {
			for _, h := range g.Hops {
				w.hops.slots[h].used = true
			}
		}
		w.t.Routes, w.t.Groups = c.table, c.groups
		return
	}
	table, groups := new(bart.Table[uint32]), []dataplane.Group{{}}
	var hiding []netip.Prefix
	for i := range w.s.Routes {
		r := &w.s.Routes[i]
		if !r.Dst.Addr().Is4() || !w.alive(r) {
			continue
		}
		// An on-link route to one address has that address as its gateway. A
		// wider one would need a hop for every address in it: VTEPs stand on
		// loopbacks, so it is no route to any, and has no next hops here.
		var dst netip.Addr
		if r.Dst.IsSingleIP() {
			dst = r.Dst.Addr()
		}
		hops := w.usable(r, dst)
		if len(hops) == 0 {
			hiding = append(hiding, r.Dst)
			continue
		}
		g := slices.IndexFunc(groups, func(g dataplane.Group) bool { return slices.Equal(g.Hops, hops) })
		if g < 0 {
			g = len(groups)
			groups = append(groups, dataplane.Group{Hops: hops})
		}
		table.Insert(r.Dst, uint32(g))
	}
	for _, p := range hiding {
		if _, covered := table.LookupPrefix(p); covered {
			table.Insert(p, 0)
		}
	}
	*c = routeCache{routes: w.s.Routes, ports: w.t.Ports, table: table, groups: groups}
	w.t.Routes, w.t.Groups = table, groups
}

// hopTable fills Hops from the IDs in use and the neighbours' MACs. A hop that
// no route uses any more keeps its place, without a gateway.
func (w *build) hopTable() {
	macs := make(map[target]overlay.MAC, len(w.s.Neighbours))
	for _, n := range w.s.Neighbours {
		if n.Usable {
			macs[target{n.Ifindex, n.Addr}] = n.MAC
		}
	}
	w.t.Hops = make([]dataplane.Hop, len(w.hops.slots))
	for i := range w.hops.slots {
		k := w.hops.slots[i].key
		h := dataplane.Hop{Port: k.port}
		if w.hops.live(i) {
			h.Gateway = k.gateway
			h.MAC, h.Resolved = macs[target{w.t.Ports[k.port].Ifindex, k.gateway}]
		}
		w.t.Hops[i] = h
	}
}

// sameTables reports whether two tables say the same. Routes are compared by
// identity: routes makes new ones only when something changed.
func sameTables(a, b *dataplane.Tables) bool {
	return a.Routes == b.Routes &&
		slices.Equal(a.Ports, b.Ports) && slices.Equal(a.Hops, b.Hops) && slices.Equal(a.Static, b.Static) &&
		slices.EqualFunc(a.Groups, b.Groups, func(x, y dataplane.Group) bool { return slices.Equal(x.Hops, y.Hops) }) &&
		slices.EqualFunc(a.Peers, b.Peers, func(x, y dataplane.Peer) bool {
			return x.VTEP == y.VTEP && slices.Equal(x.Hops, y.Hops)
		}) &&
		slices.EqualFunc(a.VNIs, b.VNIs, func(x, y dataplane.VNI) bool {
			return x.VNI == y.VNI && slices.Equal(x.Flood, y.Flood) && x.StormRate == y.StormRate &&
				x.StormBurst == y.StormBurst && x.FDBLimit == y.FDBLimit
		})
}
