package control

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/ethtool"
	"github.com/loomfabric/loom/overlay"
)

// watchBuffer is the receive buffer of the event socket: some ten thousand
// events, more than come while one list is read.
const watchBuffer = 8 << 20

// maxDumps bounds how often a list is read that the kernel says it changed
// while it was being read (NLM_F_DUMP_INTR).
const maxDumps = 3

// Netlink is the [Kernel] of this machine, in the network namespace of the
// thread that made it. List and Resolve may be called by one goroutine at a
// time.
type Netlink struct {
	h      *netlink.Handle
	events *nl.NetlinkSocket
	closed atomic.Bool
	ports  names // whose carriers are polled

	ethtool *ethtool.Socket
}

// OpenNetlink opens the sockets. The watch begins here, so that nothing is
// missed between the first list and Watch. The carriers of ports are watched
// more closely than the kernel's events allow.
func OpenNetlink(ports ...string) (*Netlink, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	events, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_NEXTHOP, unix.RTNLGRP_IPV4_IFADDR)
	if err != nil {
		h.Close()
		return nil, fmt.Errorf("subscribe to netlink events: %w", err)
	}
	tool, err := ethtool.Open()
	if err != nil {
		events.Close()
		h.Close()
		return nil, err
	}
	k := &Netlink{h: h, events: events, ethtool: tool}
	k.SetPorts(ports...)
	if err := events.SetReceiveBufferSize(watchBuffer, true); err != nil {
		// Without CAP_NET_ADMIN the limit of the system holds. Lost events are
		// noticed and made up for, so a smaller buffer only costs time.
		if err := events.SetReceiveBufferSize(watchBuffer, false); err != nil {
			k.Close()
			return nil, fmt.Errorf("set the netlink receive buffer to %d bytes: %w", watchBuffer, err)
		}
	}
	return k, nil
}

// Close closes the sockets. A watch must have been stopped.
func (k *Netlink) Close() {
	k.closeEvents()
	_ = k.ethtool.Close() // it holds nothing that could be lost
	k.h.Close()
}

// Watch calls changed until stop is called, from two goroutines.
func (k *Netlink) Watch(changed func(Kind), failing func(error)) (stop func(), err error) {
	end := make(chan struct{})
	var both sync.WaitGroup
	both.Go(func() { pollCarriers(k.ethtool, k.ports.get, end, func() { changed(Links) }) })
	both.Go(func() { follow(k.events.Receive, k.closed.Load, end, changed, failing) })
	return func() {
		close(end)
		k.closeEvents()
		both.Wait()
	}, nil
}

// The pause after an error of the event socket, which doubles with each one that
// follows.
const (
	firstPause = 10 * time.Millisecond
	lastPause  = time.Second
)

// follow passes on what a socket receives until it is closed. An error means that
// events were lost: all has to be listed. ENOBUFS says so and is over with that. Any
// other may last, and is reported when it does; meanwhile only the pauses and the
// mirror's own rounds tell of changes.
func follow(receive func() ([]syscall.NetlinkMessage, *unix.SockaddrNetlink, error), closed func() bool, end <-chan struct{}, changed func(Kind), failing func(error)) {
	for failures, pause := 0, firstPause; ; {
		msgs, from, err := receive()
		switch {
		case closed():
			return
		case err == nil:
			if failures > 1 {
				failing(nil)
			}
			failures, pause = 0, firstPause
			if from.Pid == 0 { // only the kernel is believed
				note(msgs, changed)
			}
			continue
		}
		for kind := range numKinds {
			changed(kind)
		}
		if errors.Is(err, unix.ENOBUFS) {
			continue
		}
		if failures++; failures == 2 {
			failing(err)
		}
		select {
		case <-end:
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, lastPause)
	}
}

// closeEvents marks the end first: the error of a read from a socket that is
// being closed has no name of its own.
func (k *Netlink) closeEvents() {
	if !k.closed.Swap(true) {
		k.events.Close()
	}
}

// kindOf says what a message is about.
var kindOf = map[uint16]Kind{
	unix.RTM_NEWLINK: Links, unix.RTM_DELLINK: Links,
	unix.RTM_NEWROUTE: Routes, unix.RTM_DELROUTE: Routes, unix.RTM_NEWNEXTHOP: Routes, unix.RTM_DELNEXTHOP: Routes,
	unix.RTM_NEWNEIGH: Neighbours, unix.RTM_DELNEIGH: Neighbours,
	unix.RTM_NEWADDR: Addresses, unix.RTM_DELADDR: Addresses,
}

// note names the kinds that messages are about.
func note(msgs []syscall.NetlinkMessage, changed func(Kind)) {
	for _, m := range msgs {
		kind, ok := kindOf[m.Header.Type]
		if !ok {
			continue
		}
		changed(kind)
		if kind == Links {
			// The kernel drops routes, neighbours and addresses of a link that goes
			// away, partly without saying so for each.
			changed(Routes)
			changed(Neighbours)
			changed(Addresses)
		}
	}
}

// List reads one kind.
func (k *Netlink) List(kind Kind, s *State) error {
	list := [numKinds]func(*State) error{k.links, k.routes, k.neighbours, k.addresses}[kind]
	var err error
	for range maxDumps {
		err = list(s)
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
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
			Index: a.Index, Name: a.Name, MTU: a.MTU, Up: running(a),
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
	s.Links = out
	return nil
}

// running reports whether an interface is up and has carrier. LOWER_UP is the carrier;
// RUNNING also knows of RFC 2863's operational states (dormant, a lower layer that is
// down).
func running(a *netlink.LinkAttrs) bool {
	const all = unix.IFF_UP | unix.IFF_LOWER_UP | unix.IFF_RUNNING
	return a.RawFlags&all == all
}

func (k *Netlink) routes(s *State) error {
	var out []Route
	err := k.h.RouteListFilteredIter(netlink.FAMILY_V4, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE,
		func(r netlink.Route) bool {
			if c, ok := convertRoute(&r); ok {
				out = append(out, c)
			}
			return true
		})
	if err != nil {
		return err
	}
	slices.SortStableFunc(out, func(a, b Route) int {
		return cmp.Or(a.Dst.Addr().Compare(b.Dst.Addr()), cmp.Compare(a.Dst.Bits(), b.Dst.Bits()), cmp.Compare(a.Metric, b.Metric))
	})
	s.Routes = out
	return nil
}

// convertRoute leaves out what never decides about ordinary packets: routes of
// other types than unicast and rejection, and those for one TOS.
func convertRoute(r *netlink.Route) (Route, bool) {
	c := Route{Metric: r.Priority, Dst: netip.PrefixFrom(netip.IPv4Unspecified(), 0)}
	if r.Dst != nil {
		ip, ok := addrOf(r.Dst.IP)
		ones, _ := r.Dst.Mask.Size()
		if !ok {
			return Route{}, false
		}
		c.Dst = netip.PrefixFrom(ip, ones)
	}
	switch r.Type {
	case unix.RTN_UNICAST:
	case unix.RTN_UNREACHABLE, unix.RTN_BLACKHOLE, unix.RTN_PROHIBIT:
		c.Reject = true
		return c, r.Tos == 0
	default:
		return Route{}, false
	}
	if len(r.MultiPath) == 0 {
		c.Hops = []NextHop{nextHop(r.LinkIndex, r.Gw, r.Via, r.Flags)}
	}
	for _, h := range r.MultiPath {
		hop := nextHop(h.LinkIndex, h.Gw, h.Via, h.Flags)
		hop.Weight = uint16(h.Hops) + 1 // rtnh_hops
		c.Hops = append(c.Hops, hop)
	}
	return c, r.Tos == 0
}

func nextHop(ifindex int, gw net.IP, via netlink.Destination, flags int) NextHop {
	h := NextHop{Ifindex: ifindex, Dead: flags&(unix.RTNH_F_DEAD|unix.RTNH_F_LINKDOWN) != 0}
	if v, ok := via.(*netlink.Via); ok { // an IPv4 route by way of an IPv6 neighbour, RFC 8950
		gw = v.Addr
	}
	if a, ok := addrOf(gw); ok && !a.IsUnspecified() {
		h.Gateway = a
	}
	return h
}

func (k *Netlink) neighbours(s *State) error {
	list, err := k.h.NeighList(0, netlink.FAMILY_ALL)
	if err != nil {
		return err
	}
	const usable = unix.NUD_REACHABLE | unix.NUD_STALE | unix.NUD_DELAY | unix.NUD_PROBE | unix.NUD_PERMANENT | unix.NUD_NOARP
	out := make([]Neighbour, 0, len(list))
	for _, n := range list {
		ip, ok := addrOf(n.IP)
		if !ok || n.Family != netlink.FAMILY_V4 && n.Family != netlink.FAMILY_V6 || n.Flags&netlink.NTF_PROXY != 0 {
			continue
		}
		e := Neighbour{Ifindex: n.LinkIndex, Addr: ip}
		if n.State&usable != 0 && len(n.HardwareAddr) == len(e.MAC) {
			e.MAC = overlay.MAC(n.HardwareAddr)
			e.Usable = !e.MAC.IsZero()
			e.Stale = n.State&unix.NUD_STALE != 0
		}
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b Neighbour) int {
		return cmp.Or(cmp.Compare(a.Ifindex, b.Ifindex), a.Addr.Compare(b.Addr))
	})
	s.Neighbours = out
	return nil
}

func (k *Netlink) addresses(s *State) error {
	list, err := k.h.AddrList(nil, netlink.FAMILY_V4)
	if err != nil {
		return err
	}
	out := make([]netip.Addr, 0, len(list))
	for _, a := range list {
		if ip, ok := addrOf(a.IP); ok {
			out = append(out, ip)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	s.Addresses = slices.Compact(out)
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
