package control

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/rtnl"
	"github.com/loomfabric/loom/overlay"
)

// List reads one kind.
func (k *Netlink) List(kind Kind, s *State) error {
	list := [numKinds]func(*State) error{k.links, k.routes, k.neighbours, k.addresses}[kind]
	var err error
	for range maxDumps {
		err = list(s)
		if !errors.Is(err, netlink.ErrDumpInterrupted) && !errors.Is(err, rtnl.ErrInterrupted) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("list the kernel's %v: %w", kind, err)
	}
	return nil
}

func (k *Netlink) links(s *State) error {
	list, err := k.h.LinkList()
	if err != nil {
		return err
	}
	out := make([]Link, 0, len(list))
	for _, l := range list {
		a := l.Attrs()
		link := Link{
			Index: a.Index, Name: a.Name, MTU: a.MTU, Up: running(a), Kind: l.Type(),
			Master: a.MasterIndex, Loopback: a.RawFlags&unix.IFF_LOOPBACK != 0,
		}
		if link.Kind == "device" { // what package netlink calls one that has no kind
			link.Kind = ""
		}
		if vrf, ok := l.(*netlink.Vrf); ok {
			link.Table = vrf.Table
		}
		if len(a.HardwareAddr) == len(link.MAC) {
			link.MAC = overlay.MAC(a.HardwareAddr)
		}
		if k.ports.has(a.Name) {
			// A driver that does not tell leaves it at 0: unknown.
			link.Speed, _ = k.ethtool.Speed(a.Name)
		}
		out = append(out, link)
	}
	slices.SortFunc(out, func(a, b Link) int { return cmp.Compare(a.Index, b.Index) })
	s.Links, k.known = out, out
	watching := make(map[int32]bool)
	for _, l := range out {
		if k.ports.has(l.Name) {
			watching[int32(l.Index)] = true
		}
	}
	k.watching.Store(&watching)
	return nil
}

// running reports whether an interface is up and has carrier. LOWER_UP is the carrier;
// RUNNING also knows of RFC 2863's operational states (dormant, a lower layer that is
// down).
func running(a *netlink.LinkAttrs) bool {
	const all = unix.IFF_UP | unix.IFF_LOWER_UP | unix.IFF_RUNNING
	return a.RawFlags&all == all
}

// families are the families of the underlay's routes: that of the VTEP, or both on a node
// without one.
func (k *Netlink) families() []byte {
	switch {
	case !k.vtep.IsValid():
		return []byte{unix.AF_INET, unix.AF_INET6}
	case k.vtep.Is4():
		return []byte{unix.AF_INET}
	}
	return []byte{unix.AF_INET6}
}

// routes lists the routes of the underlay's table. Those that name a next hop object get
// the object's next hops.
func (k *Netlink) routes(s *State) error {
	table, err := k.table()
	if err != nil {
		return err
	}
	var all []rawRoute
	objects := false
	for _, family := range k.families() {
		body := append([]byte{family}, make([]byte, rtMsgLen-1)...)
		err = k.dumps.Dump(unix.RTM_GETROUTE, unix.RTM_NEWROUTE, rtnl.AppendUint32(body, unix.RTA_TABLE, table), func(b []byte) {
			if r, ok := parseRoute(b); ok && r.table == table && !r.fewer {
				objects = objects || r.nexthop != 0
				all = append(all, r)
			}
		}, nil)
		// The table has never had a route, or the kernel has no IPv6.
		if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EOPNOTSUPP) {
			return err
		}
	}
	var hops nexthops
	if objects {
		if hops, err = k.nexthops(); err != nil {
			return err
		}
	}
	out := make([]Route, len(all))
	for i := range all {
		if !hops.resolve(&all[i]) {
			return rtnl.ErrInterrupted // an object that came or went between the two lists
		}
		out[i] = all[i].Route
	}
	slices.SortStableFunc(out, func(a, b Route) int {
		return cmp.Or(a.Dst.Addr().Compare(b.Dst.Addr()), cmp.Compare(a.Dst.Bits(), b.Dst.Bits()), cmp.Compare(a.Metric, b.Metric))
	})
	s.Routes = out
	return nil
}

// nexthops lists the next hop objects. A kernel before Linux 5.3 has none.
func (k *Netlink) nexthops() (nexthops, error) {
	all := make(nexthops)
	err := k.dumps.Dump(unix.RTM_GETNEXTHOP, unix.RTM_NEWNEXTHOP, make([]byte, nhMsgLen), func(b []byte) {
		if id, n, ok := parseNexthop(b); ok {
			all[id] = n
		}
	}, nil)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil
	}
	return all, err
}

// table returns the table of the underlay's routes: that of the VRF that the VTEP's
// interface is in, or the first port that is in one.
func (k *Netlink) table() (uint32, error) {
	if !slices.ContainsFunc(k.known, func(l Link) bool { return l.Table != 0 }) {
		return unix.RT_TABLE_MAIN, nil
	}
	list, err := k.h.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return 0, err
	}
	vtep := 0
	for _, a := range list {
		if ip, ok := addrOf(a.IP); ok && ip == k.vtep {
			vtep = a.LinkIndex
		}
	}
	return underlayTable(k.known, vtep, k.ports.get()), nil
}

// underlayTable returns the table of an underlay whose VTEP is on an interface; 0: on none
// that there is. Then the first port that is in a VRF says which.
func underlayTable(links []Link, vtep int, ports []string) uint32 {
	if vtep != 0 {
		return tableOf(links, vtep)
	}
	for _, l := range links {
		if t := tableOf(links, l.Index); t != unix.RT_TABLE_MAIN && slices.Contains(ports, l.Name) {
			return t
		}
	}
	return unix.RT_TABLE_MAIN
}

// tableOf returns the table in which packets of an interface are routed: that of the VRF
// that it is, or is part of, or that the bridge or bond is part of which it is part of.
func tableOf(links []Link, index int) uint32 {
	for range 4 { // devices above each other; more only if somebody lies
		i := slices.IndexFunc(links, func(l Link) bool { return l.Index == index })
		switch {
		case i < 0:
			return unix.RT_TABLE_MAIN
		case links[i].Table != 0:
			return links[i].Table
		}
		index = links[i].Master
	}
	return unix.RT_TABLE_MAIN
}

// neighbours lists those behind ports, a port at a time: a leaf has as many others as it
// has hosts.
func (k *Netlink) neighbours(s *State) error {
	var out []Neighbour
	for _, l := range k.known {
		if !k.ports.has(l.Name) {
			continue
		}
		err := k.dumps.Dump(unix.RTM_GETNEIGH, unix.RTM_NEWNEIGH, rtnl.AppendUint32(make([]byte, ndMsgLen), ndaIfindex, uint32(l.Index)), func(b []byte) {
			if n, ok := parseNeighbour(b); ok && n.Ifindex == l.Index {
				out = append(out, n)
			}
		}, nil)
		if err != nil && !errors.Is(err, unix.ENODEV) { // the link's event tells
			return err
		}
	}
	slices.SortFunc(out, func(a, b Neighbour) int {
		return cmp.Or(cmp.Compare(a.Ifindex, b.Ifindex), a.Addr.Compare(b.Addr))
	})
	s.Neighbours = out
	return nil
}

func (k *Netlink) addresses(s *State) error {
	list, err := k.h.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return err
	}
	out := make([]netip.Addr, 0, len(list))
	var tentative []int
	for _, a := range list {
		switch ip, ok := addrOf(a.IP); {
		case !ok:
		case !ip.Is6() || !ip.IsLinkLocalUnicast(): // no VTEP is one
			out = append(out, ip)
		case a.Flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED) == unix.IFA_F_TENTATIVE: // one that has failed stays so
			tentative = append(tentative, a.LinkIndex)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	s.Addresses, s.Tentative = slices.Compact(out), tentative
	return nil
}

// Resolve makes the kernel act as if it had a packet for the neighbour
// (NTF_USE): it sends an ARP request for one that it does not know, and
// confirms a stale one.
func (k *Netlink) Resolve(ifindex int, addr netip.Addr) error {
	family := netlink.FAMILY_V4
	if addr.Is6() {
		family = netlink.FAMILY_V6
	}
	err := k.h.NeighSet(&netlink.Neigh{
		LinkIndex: ifindex, Family: family, IP: net.IP(addr.AsSlice()),
		State: unix.NUD_NONE, Flags: netlink.NTF_USE,
	})
	if err != nil {
		return fmt.Errorf("ask the kernel to resolve %v on interface %d: %w", addr, ifindex, err)
	}
	return nil
}

func addrOf(ip net.IP) (netip.Addr, bool) {
	a, ok := netip.AddrFromSlice(ip)
	return a.Unmap(), ok
}
