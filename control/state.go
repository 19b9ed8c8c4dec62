// Package control keeps the data plane's tables in step with the kernel and
// with what is configured of the overlay: it mirrors links, addresses, routes
// and neighbours over netlink, and publishes immutable tables. It never touches
// a worker's state and never forwards a frame; it changes nothing in the kernel
// but asks it to resolve neighbours.
package control

import (
	"net/netip"
	"slices"

	"github.com/loomfabric/loom/overlay"
)

// Kind is one kind of kernel object that is mirrored.
type Kind uint8

// The kinds, in the order in which they are listed: an address, a route or a
// neighbour means nothing before its link is known.
const (
	Links Kind = iota
	Addrs
	Routes
	Neighbours
	numKinds
)

// String is the kind's name in logs and metrics.
func (k Kind) String() string {
	return [...]string{"links", "addresses", "routes", "neighbours"}[k]
}

// State is what the kernel says, complete for each kind. It is a value to
// compare and to build tables from; see [Build].
type State struct {
	Links      []Link
	Addrs      []Addr
	Routes     []Route
	Neighbours []Neighbour
}

// Link is a network interface.
type Link struct {
	Index int
	Name  string
	Up    bool // administratively up and with carrier
	MAC   overlay.MAC
	MTU   int
	Speed uint64 // bits per second, of ports; 0: unknown
}

// Addr is an address of this machine.
type Addr struct {
	Ifindex int
	Addr    netip.Addr
}

// Route is a route of the main table that decides for its prefix, that is the
// one with the smallest metric.
type Route struct {
	Dst    netip.Prefix
	Metric int
	// Reject marks unreachable, blackhole, prohibit and throw routes: they
	// have no next hops, and hide wider prefixes all the same.
	Reject bool
	Hops   []NextHop
}

// NextHop is one next hop of a route. Gateway is not valid when the
// destination is on the link.
type NextHop struct {
	Ifindex int
	Gateway netip.Addr
	Dead    bool // the kernel itself has ruled it out
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
	// every kind.
	Watch(changed func(Kind)) (stop func(), err error)
}

// equal reports whether one kind is the same in both states, apart from what
// tables do not depend on.
func (s *State) equal(k Kind, o *State) bool {
	switch k {
	case Links:
		return slices.Equal(s.Links, o.Links)
	case Addrs:
		return slices.Equal(s.Addrs, o.Addrs)
	case Routes:
		return slices.EqualFunc(s.Routes, o.Routes, func(a, b Route) bool {
			return a.Dst == b.Dst && a.Metric == b.Metric && a.Reject == b.Reject && slices.Equal(a.Hops, b.Hops)
		})
	default:
		return slices.EqualFunc(s.Neighbours, o.Neighbours, func(a, b Neighbour) bool {
			a.Stale, b.Stale = false, false
			return a == b
		})
	}
}

// take copies one kind from o.
func (s *State) take(k Kind, o *State) {
	switch k {
	case Links:
		s.Links = o.Links
	case Addrs:
		s.Addrs = o.Addrs
	case Routes:
		s.Routes = o.Routes
	default:
		s.Neighbours = o.Neighbours
	}
}
