package bridge

import (
	"reflect"
	"slices"
)

// State is what the kernel says of links and of what is on them.
type State struct {
	Links   map[int]*Link  // by index
	VNIs    map[int]VNISet // of devices with vnifilter, by index
	Filters Filters
}

// NewState returns the state of a machine without links.
func NewState() *State {
	return &State{Links: make(map[int]*Link), VNIs: make(map[int]VNISet)}
}

// VNISet is the set of VNIs that a device takes.
type VNISet []vniRange

// Has reports whether a VNI is in the set.
func (s VNISet) Has(vni uint32) bool {
	for _, r := range s {
		if r.first <= vni && vni <= r.last {
			return true
		}
	}
	return false
}

// Filters are what decides about frames beside bridges. A data plane does not apply
// them, so what they are for is left to the kernel.
type Filters struct {
	Qdiscs       map[int]string  // by interface: what is there of clsact, ingress and queues that shape
	Netdev       map[string]bool // interfaces with a chain of nftables' netdev family
	BridgeTables bool            // nftables' bridge family has chains
	IPChains     bool            // nftables or iptables have chains that forwarded packets pass
	CallIPTables bool            // bridged frames pass these chains (net.bridge.bridge-nf-call-*)
}

// setLink takes what a message of AF_UNSPEC says, and reports whether it is new.
func (s *State) setLink(l Link) bool {
	old := s.Links[l.Index]
	if old != nil && l.Member != nil && l.Master == old.Master {
		l.VLANs, l.Tunnels, l.Blocked = old.VLANs, old.Tunnels, old.Blocked
	} else if old != nil && l.Bridge != nil {
		l.VLANs = old.VLANs
	}
	if old != nil && reflect.DeepEqual(*old, l) {
		return false
	}
	s.Links[l.Index] = &l
	return true
}

// setPort takes what a message of AF_BRIDGE says of a link that is known, and reports
// whether it is new.
func (s *State) setPort(p portInfo) bool {
	old := s.Links[p.Index]
	if old == nil {
		return false
	}
	l := *old
	l.VLANs, l.Tunnels = p.VLANs, p.Tunnels
	if p.Member != nil {
		l.Member, l.Master = p.Member, p.Master
	}
	if reflect.DeepEqual(*old, l) {
		return false
	}
	s.Links[p.Index] = &l
	return true
}

// setBlocked takes which VLANs do not forward, by port, and reports whether that is new.
// Others than bridges' members have none.
func (s *State) setBlocked(blocked map[int][]VLANState) (changed bool) {
	for i, old := range s.Links {
		if old.Member == nil || slices.Equal(old.Blocked, blocked[i]) {
			continue
		}
		l := *old
		l.Blocked = blocked[i]
		s.Links[i] = &l
		changed = true
	}
	return changed
}

// leave takes a link out of its bridge.
func (s *State) leave(ifindex int) bool {
	old := s.Links[ifindex]
	if old == nil || old.Member == nil {
		return false
	}
	l := *old
	l.Member, l.Master, l.VLANs, l.Tunnels, l.Blocked = nil, 0, nil, nil, nil
	s.Links[ifindex] = &l
	return true
}
