package dataplane

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/loomfabric/loom/bpf"
)

// notForwarded are destinations that a default route covers and routers keep: this host,
// loopback, multicast, broadcast (RFC 1812 §5.3.7, §5.3.5, RFC 5771), and of IPv6 the
// link's own (RFC 4291 §2.5.2-§2.5.6, §2.7).
var notForwarded = [...]netip.Prefix{
	netip.PrefixFrom(netip.AddrFrom4([4]byte{0}), 8),
	netip.PrefixFrom(netip.AddrFrom4([4]byte{127}), 8),
	netip.PrefixFrom(netip.AddrFrom4([4]byte{224}), 4),
	netip.PrefixFrom(netip.AddrFrom4([4]byte{255, 255, 255, 255}), 32),
	netip.PrefixFrom(netip.IPv6Unspecified(), 64),
	netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfe, 0x80}), 10),
	netip.PrefixFrom(netip.AddrFrom16([16]byte{0xff}), 8),
}

// openRoutes makes what a spine's ports share.
func (n *Node) openRoutes() (err error) {
	if n.cfg.Role != Spine {
		return nil
	}
	if n.routes, err = bpf.NewRoutes(); err != nil || n.cfg.Remotes == nil {
		return err
	}
	return n.routes.Take(listed(n.cfg.Remotes))
}

// SetRemotes says from which prefixes the leaves' VTEPs are, of a spine, or with nil that
// its routes say so. What goes to others is left to the kernel, from the next packet on.
func (n *Node) SetRemotes(remotes []netip.Prefix) error {
	n.publishing.Lock()
	defer n.publishing.Unlock()
	if n.routes == nil {
		return errors.New("a leaf takes VXLAN to its own VTEP alone")
	}
	n.cfg.Remotes = slices.Clone(remotes)
	want := listed(remotes)
	if v := n.view.Load(); remotes == nil && v != nil {
		want = v.taken()
	}
	n.fast.changed()
	// What both have in common is never the kernel's.
	return errors.Join(n.routes.Take(want), n.routes.Leave(want))
}

// listed returns what a list of prefixes takes.
func listed(remotes []netip.Prefix) map[netip.Prefix]bool {
	taken := make(map[netip.Prefix]bool, len(remotes))
	for _, p := range remotes {
		taken[p.Masked()] = true
	}
	return taken
}

// taken returns, by the prefix of its outer destination, which VXLAN is a spine's own to
// forward: that which has a next hop, and is not for this machine.
func (v *view) taken() map[netip.Prefix]bool {
	taken := make(map[netip.Prefix]bool)
	if v.routes != nil {
		for p, g := range v.routes.All() {
			taken[p] = int(g) < len(v.groups) && v.groups[g].n > 0
		}
	}
	for _, p := range notForwarded {
		taken[p] = false
	}
	for _, a := range v.tables.Local {
		taken[netip.PrefixFrom(a, a.BitLen())] = false
	}
	return taken
}

// putInForce gives the workers a view. Around that, the XDP programs of a spine whose
// routes say what is its own learn first what is not, and last what is.
func (n *Node) putInForce(v *view) {
	if n.routes == nil || n.cfg.Remotes != nil {
		n.show(v)
		return
	}
	taken := v.taken()
	left := n.routes.Leave(taken)
	n.show(v)
	for _, err := range []error{left, n.routes.Take(taken)} {
		if err != nil {
			n.log.Error("the kernel keeps VXLAN that is ours, or we drop what is the kernel's", "error", err)
		}
	}
}

// show gives the workers a view.
func (n *Node) show(v *view) {
	n.view.Store(v)
	for _, w := range n.workers {
		w.mail.nudge()
	}
	n.fast.changed()
}
