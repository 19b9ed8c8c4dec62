package control

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/gaissmai/bart"

	"github.com/loomfabric/loom/config"
	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/ids"
	"github.com/loomfabric/loom/overlay"
)

// Builder makes tables of the kernel's state and the overlay. All that it
// remembers is which ID belongs to what, and which next hops went lately. It is not safe
// for concurrent use.
type Builder struct {
	role  dataplane.Role
	ports []dataplane.PortConfig
	// overhead returns what uplinks' MTU must exceed hosts' by.
	overhead func() int
	hops     ids.Table[hopKey]
	peers    ids.Table[netip.Addr]
	vnis     ids.Table[overlay.VNI]
	places   map[netip.Prefix]*places
	round    uint64         // counts builds
	vteps    []netip.Prefix // spine: where leaves are; nil: anywhere
	strays   map[stray]strayTo
	prev     *dataplane.Tables
}

// idRetention is how long an ID stays with a key that is gone. Workers index
// their counters and held frames by ID, so that a reused one would mix two
// things up: it is far longer than any frame is held, and longer than a route
// or an interface usually flaps.
const idRetention = 10 * time.Minute

type hopKey struct {
	port    dataplane.PortID
	gateway netip.Addr
}

// NewBuilder returns a builder for a node with these ports.
func NewBuilder(role dataplane.Role, ports []dataplane.PortConfig) *Builder {
	return &Builder{
		role: role, ports: ports, overhead: func() int { return overlay.Overhead },
		hops:  ids.New[hopKey](dataplane.MaxHops, idRetention),
		peers: ids.New[netip.Addr](dataplane.MaxPeers, idRetention),
		vnis:  ids.New[overlay.VNI](dataplane.MaxVNIs, idRetention), places: make(map[netip.Prefix]*places),
	}
}

// Full is how often a hop, peer or VNI was left out because the tables were
// full.
func (b *Builder) Full() int { return b.hops.Full() + b.peers.Full() + b.vnis.Full() }

// build is the work of one call of Build.
type build struct {
	*Builder
	s       *State
	now     time.Time
	t       *dataplane.Tables
	byIndex map[int]dataplane.PortID // our ports by ifindex
	names   map[int]string           // of interfaces by ifindex
}

// Build returns the tables of s and, on a leaf, of the overlay that o describes; now is only compared with the now of
// other calls. It returns the very tables that it returned last when they are
// still right. The result must not be changed.
func (b *Builder) Build(s *State, o *config.Leaf, now time.Time) *dataplane.Tables {
	w := build{Builder: b, s: s, now: now, t: &dataplane.Tables{}, byIndex: make(map[int]dataplane.PortID), names: make(map[int]string)}
	b.strays = make(map[stray]strayTo)
	b.round++
	w.portStates()
	b.hops.Begin()
	if b.role == dataplane.Leaf {
		b.peers.Begin()
		b.vnis.Begin()
		w.t.NoVTEP = o.VTEP.IsValid() && !slices.Contains(s.Addresses, o.VTEP)
		w.overlay(o)
		b.peers.End(now)
		b.vnis.End(now)
	} else {
		w.routes()
	}
	b.hops.End(now)
	b.forget(now)
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
		byName[l.Name], w.names[l.Index] = l, l.Name
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
	need, _ := neededMTU(w.role, w.ports, w.overhead(), func(i int) int { return w.t.Ports[i].MTU })
	for _, port := range w.byIndex {
		w.t.Ports[port].NeedMTU = need
	}
}

// usable returns the IDs of a route's next hops that lie behind ports of ours
// that are up, in the order of port and gateway: the order of the kernel's list
// may change with every replacement of the route. A next hop that is listed twice
// has the weight of both; weights is nil if all are alike. gone are those that there were
// lately on the way to dst. onLink is the gateway of a next hop without one, unless it is
// not valid.
func (w *build) usable(dst netip.Prefix, r *Route, onLink netip.Addr) (hops []dataplane.HopID, weights []uint16, gone []dataplane.Gone) {
	weight := make(map[hopKey]int)
	for _, h := range r.Hops {
		port, ours := w.byIndex[h.Ifindex]
		if !ours || h.Dead || h.Encap != 0 || !w.t.Ports[port].Up {
			continue
		}
		gw := h.Gateway
		if !gw.IsValid() {
			gw = onLink
		}
		if gw.IsValid() {
			weight[hopKey{port, gw}] += max(int(h.Weight), 1)
		}
	}
	keys := slices.SortedFunc(maps.Keys(weight), hopKey.compare)
	return w.remember(dst, keys[:min(len(keys), dataplane.MaxPaths)], weight, w.now)
}

// overlay fills a leaf's tables: peers with their next hops, VNIs and static
// addresses.
func (w *build) overlay(o *config.Leaf) {
	table := new(bart.Table[*Route])
	for _, r := range w.deciding() {
		table.Insert(r.Dst, r)
	}
	numbers := make(map[netip.Addr]dataplane.PeerID, len(o.Peers))
	var peers []dataplane.Peer
	for _, vtep := range o.Peers {
		i, ok := w.peers.Get(vtep, w.now)
		if !ok {
			continue
		}
		p := dataplane.Peer{VTEP: vtep}
		r, ok := table.Lookup(vtep)
		if !ok {
			r = &Route{}
		}
		dst := netip.PrefixFrom(vtep, vtep.BitLen())
		p.Hops, p.Weights, p.Gone = w.usable(dst, r, vtep)
		w.note(dst, r)
		peers = grown(peers, i+1)
		peers[i] = p
		numbers[vtep] = dataplane.PeerID(i)
	}
	w.t.Peers = grown(peers, w.peers.Len()) // a peer that is gone keeps its place
	w.networks(o, numbers)
}

// deciding returns the routes that decide for their prefixes: of each the first one
// that is alive.
func (w *build) deciding() (routes []*Route) {
	seen := make(map[netip.Prefix]bool, len(w.s.Routes))
	for i := range w.s.Routes {
		if r := &w.s.Routes[i]; !seen[r.Dst] && w.alive(r) {
			seen[r.Dst] = true
			routes = append(routes, r)
		}
	}
	return routes
}

// alive reports whether a route takes part in the lookup. Like the kernel with
// ignore_routes_with_linkdown, a route all of whose next hops are out gives
// way to one with a larger metric, or to a wider one.
func (w *build) alive(r *Route) bool {
	if r.Reject {
		return true
	}
	return slices.ContainsFunc(r.Hops, func(h NextHop) bool {
		port, ours := w.byIndex[h.Ifindex]
		return !h.Dead && (!ours || w.t.Ports[port].Up)
	})
}

func (w *build) networks(o *config.Leaf, peers map[netip.Addr]dataplane.PeerID) {
	for i := range o.VNIs {
		v := &o.VNIs[i]
		index, ok := w.vnis.Get(overlay.VNI(v.VNI), w.now)
		if !ok {
			continue
		}
		n := dataplane.VNI{
			VNI: overlay.VNI(v.VNI), FDBLimit: cmp.Or(v.FDBLimit, fdbShare(o)),
			Refresh: v.Refresh,
			Storm:   dataplane.StormLimit{Rate: v.Storm.Rate, Burst: v.Storm.Burst, Bytes: uint64(v.Storm.Bandwidth) / 8},
		}
		for _, a := range v.Flood {
			if id, ok := peers[a]; ok {
				n.Flood = append(n.Flood, id)
			}
		}
		if v.Members != nil {
			n.Peers = []dataplane.PeerID{} // nobody, but for these
		}
		for _, a := range v.Members {
			if id, ok := peers[a]; ok {
				n.Peers = append(n.Peers, id)
			}
		}
		w.t.VNIs = grown(w.t.VNIs, index+1)
		w.t.VNIs[index] = n
		for _, s := range v.Static {
			e := dataplane.StaticMAC{VNI: dataplane.VNIIndex(index), MAC: overlay.MAC(s.MAC), Port: dataplane.NoPort, VLAN: s.VLAN}
			if s.VTEP.IsValid() {
				e.Peer, ok = peers[s.VTEP]
			} else {
				port := slices.IndexFunc(w.ports, func(p dataplane.PortConfig) bool { return p.Name == s.Interface })
				e.Port, ok = dataplane.PortID(port), port >= 0
			}
			if ok {
				w.t.Static = append(w.t.Static, e)
			}
		}
	}
	w.t.VNIs = grown(w.t.VNIs, w.vnis.Len())
	w.bindings(o)
}

// bindings puts access ports into their networks, by port and VLAN.
func (w *build) bindings(o *config.Leaf) {
	indices := make(map[uint32]int, len(w.t.VNIs))
	for i := range w.t.VNIs {
		indices[uint32(w.t.VNIs[i].VNI)] = i
	}
	bind := func(port int, vlan uint16, vni uint32) {
		if i, ok := indices[vni]; ok {
			w.t.Bindings = append(w.t.Bindings, dataplane.Binding{Port: dataplane.PortID(port), VLAN: vlan, VNI: dataplane.VNIIndex(i)})
		}
	}
	for i, p := range w.ports {
		n := slices.IndexFunc(o.Access, func(a config.Access) bool { return a.Interface == p.Name })
		if p.Kind != dataplane.Access || n < 0 {
			continue
		}
		a := &o.Access[n]
		w.t.Ports[i].Transparent = a.Transparent
		if a.VNI != 0 {
			bind(i, 0, a.VNI)
		}
		for _, vid := range slices.Sorted(maps.Keys(a.VLANs)) {
			bind(i, vid, a.VLANs[vid])
		}
	}
}

// fdbShare returns how many addresses a network may have that does not say: all have
// the same part, and so no tenant takes the table from the others. It is not so small
// that networks of few hosts among many would notice.
func fdbShare(o *config.Leaf) uint32 {
	return uint32(max(o.FDB.Size/len(o.VNIs), min(1024, o.FDB.Size)))
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
	table, groups := new(bart.Table[uint32]), []dataplane.Group{{}}
	var hiding []netip.Prefix
	for _, r := range w.deciding() {
		// An on-link route to one address has that address as its gateway. A
		// wider one would need a hop for every address in it: VTEPs stand on
		// loopbacks, so it is no route to any, and has no next hops here.
		var dst netip.Addr
		if r.Dst.IsSingleIP() {
			dst = r.Dst.Addr()
		}
		if dst.IsValid() && slices.ContainsFunc(w.vteps, func(p netip.Prefix) bool { return p.Contains(dst) }) {
			w.note(r.Dst, r)
		}
		var g dataplane.Group
		g.Hops, g.Weights, g.Gone = w.usable(r.Dst, r, dst)
		if len(g.Hops) == 0 {
			hiding = append(hiding, r.Dst)
			continue
		}
		i := slices.IndexFunc(groups, func(o dataplane.Group) bool { return sameGroup(g, o) })
		if i < 0 {
			i = len(groups)
			groups = append(groups, g)
		}
		table.Insert(r.Dst, uint32(i))
	}
	for _, p := range hiding {
		if _, covered := table.LookupPrefix(p); covered {
			table.Insert(p, 0)
		}
	}
	w.t.Routes, w.t.Groups, w.t.Local = table, groups, w.s.Addresses
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
	w.t.Hops = make([]dataplane.Hop, w.hops.Len())
	for i := range w.t.Hops {
		k := w.hops.Key(i)
		h := dataplane.Hop{Port: k.port}
		if w.hops.Live(i) {
			h.Gateway = k.gateway
			h.MAC, h.Resolved = macs[target{w.t.Ports[k.port].Ifindex, k.gateway}]
		}
		w.t.Hops[i] = h
	}
}

// sameGroup reports whether two groups of next hops are alike.
func sameGroup(a, b dataplane.Group) bool {
	return slices.Equal(a.Hops, b.Hops) && slices.Equal(a.Weights, b.Weights) && slices.Equal(a.Gone, b.Gone)
}

// sameTables reports whether two tables say the same.
func sameTables(a, b *dataplane.Tables) bool {
	return (a.Routes == nil || a.Routes.Equal(b.Routes)) && a.NoVTEP == b.NoVTEP && slices.Equal(a.Local, b.Local) &&
		slices.Equal(a.Ports, b.Ports) && slices.Equal(a.Hops, b.Hops) && slices.Equal(a.Static, b.Static) && slices.Equal(a.Bindings, b.Bindings) &&
		slices.EqualFunc(a.Groups, b.Groups, sameGroup) &&
		slices.EqualFunc(a.Peers, b.Peers, func(x, y dataplane.Peer) bool {
			return x.VTEP == y.VTEP && sameGroup(dataplane.Group{Hops: x.Hops, Weights: x.Weights, Gone: x.Gone}, dataplane.Group{Hops: y.Hops, Weights: y.Weights, Gone: y.Gone})
		}) &&
		slices.EqualFunc(a.VNIs, b.VNIs, func(x, y dataplane.VNI) bool {
			return x.VNI == y.VNI && slices.Equal(x.Flood, y.Flood) && slices.Equal(x.Peers, y.Peers) && (x.Peers == nil) == (y.Peers == nil) && x.Storm == y.Storm && x.FDBLimit == y.FDBLimit && x.Refresh == y.Refresh
		})
}
