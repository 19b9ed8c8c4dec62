// Package control keeps the data plane's tables in step with the kernel and
// with what is configured of the overlay: it mirrors links, routes and
// neighbours over netlink, and publishes immutable tables. It never touches
// a worker's state and never forwards a frame; it changes nothing in the kernel
// but asks it to resolve neighbours.
package control

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/loomfabric/loom/overlay"
)

// Kind is one kind of kernel object that is mirrored.
type Kind uint8

// The kinds, in the order in which they are listed: a route or a neighbour
// means nothing before its link is known.
const (
	Links Kind = iota
	Routes
	Neighbours
	Addresses
	numKinds
)

// String is the kind's name in logs and metrics.
func (k Kind) String() string {
	return [...]string{"links", "routes", "neighbours", "addresses"}[k]
}

// State is what the kernel says, complete for each kind. It is a value to
// compare and to build tables from; see [Build].
type State struct {
	Links      []Link
	Routes     []Route // those of one prefix in the order of metric
	Neighbours []Neighbour
	Addresses  []netip.Addr // of all interfaces, in order, but for link-local ones of IPv6
	// Tentative are the interfaces whose link-local address the kernel still checks for
	// duplicates (RFC 4862, section 5.4). It sends no neighbour solicitations there.
	Tentative []int
}

// Link is a network interface.
type Link struct {
	Index int
	Name  string
	Up    bool // administratively up and with carrier
	MAC   overlay.MAC
	MTU   int
	Speed uint64 // bits per second, of ports; 0: unknown
	Kind  string // as `ip -d link` has it: bridge, vxlan, vrf, bond; "": a device of hardware
	// Master is the index of the bridge, bond or VRF that the interface is part of; 0: of none.
	Master   int
	Loopback bool
	Table    uint32 // of a VRF: its routes' table
}

// Route is a route of the underlay's table: the main one, or that of a VRF. Of those of
// one prefix the first one decides that has a live next hop.
type Route struct {
	Dst    netip.Prefix
	Metric int
	// Reject marks unreachable, blackhole, prohibit and throw routes: they
	// have no next hops, and hide wider prefixes all the same. A throw route makes the
	// kernel go on with the next rule; tables that rules name are not read, and so
	// nothing is behind it.
	Reject bool
	Hops   []NextHop
}

// NextHop is one next hop of a route. Gateway is not valid when the
// destination is on the link.
type NextHop struct {
	Ifindex int
	Gateway netip.Addr
	Weight  uint16 // its share among the route's next hops; 0 is 1
	Dead    bool   // the kernel itself has ruled it out
	Encap   Encap  // what the kernel puts packets into on that way; 0: nothing
}

// Encap is a kind of lightweight tunnel (linux/lwtunnel.h). Packets of a route with one
// are not sent to its gateway as they are, so that such a next hop is of no use here.
type Encap uint16

var encaps = [...]string{
	"none", "mpls", "ip", "ila", "ip6", "seg6", "bpf", "seg6local", "rpl", "ioam6", "xfrm",
}

// String returns the kind as `ip route` has it.
func (e Encap) String() string {
	if int(e) < len(encaps) {
		return encaps[e]
	}
	return fmt.Sprintf("encap type %d", uint16(e))
}

// Neighbour is an entry of the ARP or neighbour discovery cache.
type Neighbour struct {
	Ifindex int
	Addr    netip.Addr
	MAC     overlay.MAC
	Usable  bool // MAC is known, perhaps not lately confirmed
	Stale   bool // not lately confirmed
}

// Kernel is what the mirror needs of a kernel. List fills one kind of s, and
// leaves it as it is on error.
type Kernel interface {
	List(k Kind, s *State) error
	// Resolve asks the kernel to find out, or to confirm, the MAC of a
	// neighbour. The answer shows as a change of Neighbours.
	Resolve(ifindex int, addr netip.Addr) error
	// Watch calls changed, from goroutines of its own, for each kind that may
	// have changed, until stop is called. It reports lost events by naming
	// every kind. It calls failing, once, with the error for which it has no
	// events any more, and with nil when it has some again.
	Watch(changed func(Kind), failing func(error)) (stop func(), err error)
}

// take copies one kind from o, and reports whether tables may follow from it that
// differ.
func (s *State) take(k Kind, o *State) (differs bool) {
	switch k {
	case Links:
		differs = !slices.Equal(s.Links, o.Links)
		s.Links = o.Links
	case Routes:
		differs = !slices.EqualFunc(s.Routes, o.Routes, func(a, b Route) bool {
			return a.Dst == b.Dst && a.Metric == b.Metric && a.Reject == b.Reject && slices.Equal(a.Hops, b.Hops)
		})
		s.Routes = o.Routes
	case Addresses:
		differs = !slices.Equal(s.Addresses, o.Addresses)
		s.Addresses, s.Tentative = o.Addresses, o.Tentative // no table follows from these
	default:
		differs = !slices.EqualFunc(s.Neighbours, o.Neighbours, func(a, b Neighbour) bool {
			a.Stale, b.Stale = false, false
			return a == b
		})
		s.Neighbours = o.Neighbours
	}
	return differs
}
