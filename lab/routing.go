package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
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
func (l *Lab) converge(context.Context) error {
	up, err := l.linkState()
	if err != nil {
		return err
	}
	routes := l.Topo.Routes(up)
	for i, n := range l.Topo.Leaves {
		if err := l.setRoutes(n, routes.Leaves[i]); err != nil {
			return fmt.Errorf("routes of %s: %w", n.Name, err)
		}
	}
	for i, n := range l.Topo.Spines {
		if err := l.setRoutes(n, routes.Spines[i]); err != nil {
			return fmt.Errorf("routes of %s: %w", n.Name, err)
		}
	}
	return nil
}

// linkState reads from the kernel which links are up. The leaf's end has carrier only
// when both ends are up.
func (l *Lab) linkState() ([]bool, error) {
	up := make([]bool, len(l.Topo.Links))
	for i, n := range l.Topo.Leaves {
		h, err := openNS(l.ns(n.Name))
		if err != nil {
			return nil, err
		}
		for _, link := range l.Topo.Links {
			if link.Leaf != i {
				continue
			}
			dev, err := h.link(link.LeafPort)
			if err != nil {
				h.Close()
				return nil, err
			}
			raw := dev.Attrs().RawFlags
			up[link.Index] = raw&unix.IFF_UP != 0 && raw&unix.IFF_LOWER_UP != 0
		}
		h.Close()
	}
	return up, nil
}

// setRoutes replaces the routes to VTEPs in one node.
func (l *Lab) setRoutes(n fabric.Node, routes []fabric.Route) error {
	h, err := openNS(l.ns(n.Name))
	if err != nil {
		return err
	}
	defer h.Close()
	have, err := h.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Protocol: protoBGP}, netlink.RT_FILTER_PROTOCOL)
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	wanted := map[string]bool{}
	for _, r := range routes {
		wanted[r.Dst.String()] = true
		kr := &netlink.Route{Dst: hostNet(r.Dst), Protocol: protoBGP}
		for _, hop := range r.Hops {
			index, err := h.index(hop.Port)
			if err != nil {
				return err
			}
			kr.MultiPath = append(kr.MultiPath, &netlink.NexthopInfo{LinkIndex: index, Gw: hop.Gateway.AsSlice()})
		}
		if err := h.RouteReplace(kr); err != nil {
			return fmt.Errorf("%s over %d next hops: %w", r.Dst, len(r.Hops), err)
		}
	}
	for i := range have {
		if have[i].Dst == nil || wanted[have[i].Dst.IP.String()] {
			continue
		}
		if err := h.RouteDel(&have[i]); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("delete %s: %w", have[i].Dst, err)
		}
	}
	return nil
}

func hostNet(a netip.Addr) *net.IPNet {
	return &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(32, 32)}
}

// Fail takes a link down at the leaf's end, so that both ends lose carrier, and
// lets the routes follow.
func (l *Lab) Fail(link string) error { return l.change(link, (*handle).setDown, false) }

// Restore brings a failed link up again and lets the routes follow.
func (l *Lab) Restore(link string) error { return l.change(link, (*handle).setUp, true) }

func (l *Lab) change(name string, set func(*handle, string) error, up bool) error {
	link, ok := l.Topo.Link(name)
	if !ok {
		return l.named(fmt.Errorf("no link is called %q", name))
	}
	unlock, err := l.lock()
	if err != nil {
		return l.named(err)
	}
	defer unlock()
	if !l.IsUp() {
		return l.named(errors.New("is not up: `loomlab up` starts it"))
	}
	h, err := openNS(l.ns(l.Topo.Leaves[link.Leaf].Name))
	if err != nil {
		return l.named(err)
	}
	defer h.Close()
	if err := set(h, link.LeafPort); err != nil {
		return l.named(err)
	}
	if up {
		if err := l.waitCarrier(link.Index); err != nil {
			return l.named(err)
		}
	}
	if err := l.converge(context.Background()); err != nil {
		return l.named(err)
	}
	return nil
}

// waitCarrier waits for a link that was just brought up; the kernel reports a
// veth's carrier from a work queue.
func (l *Lab) waitCarrier(index int) error {
	for range 100 {
		state, err := l.linkState()
		if err != nil || state[index] {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
	return fmt.Errorf("link %s has no carrier half a second after it was brought up", l.Topo.Links[index].Name)
}
