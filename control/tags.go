package control

import (
	"fmt"

	"github.com/vishvananda/netlink"

	"github.com/loomfabric/loom/bpf"
	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/ethtool"
)

// Look returns what the data plane asks about an interface, in the network namespace of
// the calling thread.
func Look(ifindex int) (dataplane.Interface, error) {
	l, err := netlink.LinkByIndex(ifindex)
	if err != nil {
		return dataplane.Interface{}, fmt.Errorf("find interface %d: %w", ifindex, err)
	}
	s, err := ethtool.Open()
	if err != nil {
		return dataplane.Interface{}, err
	}
	defer s.Close()
	a := l.Attrs()
	i := dataplane.Interface{Name: a.Name}
	if a.Xdp != nil && a.Xdp.Attached {
		i.XDP, i.Program = true, a.Xdp.ProgId
	}
	i.RXQueues, i.TXQueues = s.Queues(a.Name, a.NumRxQueues, a.NumTxQueues)
	i.TagsHidden, i.TagsFix, err = hidesTags(s, l)
	return i, err
}

// hiddenTags says why the XDP program of an access port would not see every VLAN tag,
// and what to do about it.
func hiddenTags(s *ethtool.Socket, l netlink.Link, mode dataplane.XDPMode) (why, fix string, err error) {
	if mode != dataplane.XDPGeneric {
		if told, err := bpf.TellsTags(l.Attrs().Index); told || err != nil {
			return "", "", err
		}
	}
	return hidesTags(s, l)
}

// hidesTags says why XDP programs that drivers tell nothing may see frames of an
// interface without their VLAN tags, and what to do about it; "": they see all tags.
func hidesTags(s *ethtool.Socket, l netlink.Link) (why, fix string, err error) {
	name := l.Attrs().Name
	if l.Type() == "veth" {
		return hiddenByPeer(s, l)
	}
	// A driver that does not tell of the offload does not have it.
	if strips, _ := s.Get(name, ethtool.RXVLAN); strips {
		return fmt.Sprintf("%s strips VLAN tags (rxvlan)", name), fmt.Sprintf("ethtool -K %s rxvlan off", name), nil
	}
	return "", "", nil
}

// hiddenByPeer is hidesTags for a veth: what it receives is as its peer sends it, and
// its own offload, which can be turned off, changes nothing.
func hiddenByPeer(s *ethtool.Socket, l netlink.Link) (why, fix string, err error) {
	name, a := l.Attrs().Name, l.Attrs()
	if a.NetNsID < 0 { // the peer is in this namespace
		if peer, err := netlink.LinkByIndex(a.ParentIndex); err == nil {
			p := peer.Attrs().Name
			on, err := s.Get(p, ethtool.TXVLAN)
			if err != nil || !on {
				return "", "", err
			}
			return fmt.Sprintf("%s, the peer of %s, hands VLAN tags over beside the frames (txvlan)", p, name),
				fmt.Sprintf("ethtool -K %s txvlan off", p), nil
		}
	}
	return fmt.Sprintf("the peer of %s, which is in another network namespace, may hand VLAN tags over beside the frames (txvlan)", name),
		"use a kernel of 6.8 or newer and native XDP, which see them", nil
}
