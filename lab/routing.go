package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/config/fabric"
)

// protoBGP marks the lab's routes, which stand in for a routing protocol's
// (rtnetlink(7), RTPROT_BGP).
const protoBGP = unix.RTPROT_BGP

// converge sets every node's routes by the state of the links, as a routing protocol
// would after a change.
//
// Under control frr it waits until FRR has done so.
func (l *Lab) converge(ctx context.Context) error {
	if l.frr() {
		return l.awaitRoutes(ctx)
	}
	up, err := l.linkState()
	if err != nil {
		return err
	}
	all := l.Topo.Routes(up)
	routes := slices.Concat(all.Leaves, all.Spines)
	for i, n := range l.nodes() {
		if err := l.in(n.Name, func() error { return setRoutes(l.family(), routes[i]) }); err != nil {
			return fmt.Errorf("routes of %w", err)
		}
	}
	return nil
}

// linkState reads from the kernel which links are up. The leaf's end has carrier only
// when both ends are up.
func (l *Lab) linkState() ([]bool, error) {
	up := make([]bool, len(l.Topo.Links))
	for _, n := range l.Topo.Leaves {
		err := l.in(n.Name, func() error {
			for _, p := range l.ports(n) {
				dev, err := netlink.LinkByName(p.Name)
				if err != nil {
					return fmt.Errorf("%s: %w", p.Name, err)
				}
				raw := dev.Attrs().RawFlags
				up[p.link] = raw&unix.IFF_UP != 0 && raw&unix.IFF_LOWER_UP != 0
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return up, nil
}

// setRoutes replaces the routes to VTEPs, of a family, in the calling thread's namespace.
func setRoutes(family int, routes []fabric.Route) error {
	have, err := netlink.RouteListFiltered(family, &netlink.Route{Protocol: protoBGP}, netlink.RT_FILTER_PROTOCOL)
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	for _, r := range routes {
		kr := &netlink.Route{Dst: hostNet(r.Dst), Protocol: protoBGP}
		for _, hop := range r.Hops {
			dev, err := netlink.LinkByName(hop.Port)
			if err != nil {
				return fmt.Errorf("%s: %w", hop.Port, err)
			}
			kr.MultiPath = append(kr.MultiPath, &netlink.NexthopInfo{LinkIndex: dev.Attrs().Index, Gw: hop.Gateway.AsSlice()})
		}
		if err := netlink.RouteReplace(kr); err != nil {
			return fmt.Errorf("%s over %d next hops: %w", r.Dst, len(r.Hops), err)
		}
	}
	for _, old := range have {
		wanted := func(r fabric.Route) bool { return old.Dst.IP.Equal(r.Dst.AsSlice()) }
		if old.Dst == nil || slices.ContainsFunc(routes, wanted) {
			continue
		}
		if err := netlink.RouteDel(&old); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("delete %s: %w", old.Dst, err)
		}
	}
	return nil
}

// family is that of the underlay.
func (l *Lab) family() int {
	if l.File.IPv6() {
		return netlink.FAMILY_V6
	}
	return netlink.FAMILY_V4
}

func hostNet(a netip.Addr) *net.IPNet {
	return &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
}

// Fail takes a link down at the leaf's end, so that both ends lose carrier, and
// lets the routes follow.
func (l *Lab) Fail(link string) error { return l.change(link, setDown, false) }

// Restore brings a failed link up again and lets the routes follow.
func (l *Lab) Restore(link string) error { return l.change(link, setUp, true) }

func (l *Lab) change(name string, set func(port string) error, up bool) (err error) {
	defer l.name(&err)
	link, ok := l.Topo.Link(name)
	if !ok {
		return fmt.Errorf("no link is called %q", name)
	}
	unlock, err := l.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if !l.IsUp() {
		return errDown
	}
	if err := l.in(l.Topo.Leaves[link.Leaf].Name, func() error { return set(link.LeafPort) }); err != nil {
		return err
	}
	if up {
		if err := l.waitCarrier(link); err != nil {
			return err
		}
	}
	return l.converge(context.Background())
}

// waitCarrier waits for a link that was just brought up; the kernel reports a
// veth's carrier from a work queue.
func (l *Lab) waitCarrier(link fabric.Link) error {
	for range 100 {
		state, err := l.linkState()
		if err != nil || state[link.Index] {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
	return fmt.Errorf("link %s has no carrier half a second after it was brought up", link.Name)
}
