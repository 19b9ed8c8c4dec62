package fabric

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// What finds the routes between leaves.
const (
	ControlStatic = "static"
	ControlFRR    = "frr"
)

// What VXLAN travels over.
const (
	UnderlayIPv4 = "ipv4"
	UnderlayIPv6 = "ipv6"
)

// The routing protocols of FRR.
const (
	RoutingUnnumbered = "bgp-unnumbered"
	RoutingBGP        = "bgp"
	RoutingOSPF       = "ospf"
	RoutingISIS       = "isis"
)

// minBFD is the shortest interval that FRR's bfdd takes (RFC 5880 §4.1 counts
// microseconds, FRR milliseconds from 10 up).
const minBFD = 10 * time.Millisecond

// FRR is what FRR does on leaves and spines.
type FRR struct {
	// Routing finds the routes between the VTEPs: bgp-unnumbered (RFC 5549, links without
	// IPv4 addresses), bgp (eBGP between the links' addresses), ospf or isis.
	// Default: bgp-unnumbered.
	Routing string `yaml:"routing,omitempty"`
	// BFD is the interval at which BFD probes each link. A link is down when three probes
	// in a row are lost. Default: 0, no BFD.
	BFD time.Duration `yaml:"bfd,omitempty"`
	// EVPN builds a bridge and a vxlan device for each VNI on each leaf, as for
	// fallback kernel, and has BGP exchange their addresses and flood lists (RFC 8365).
	EVPN bool `yaml:"evpn,omitempty"`
	// Gateway gives each VNI's bridge the last address of the subnet and one MAC address
	// on all leaves, and hosts a default route by it. It needs EVPN.
	Gateway bool `yaml:"gateway,omitempty"`
}

// setFRR completes what the file leaves out.
func (f *File) setFRR() {
	f.Control = cmp.Or(f.Control, ControlStatic)
	f.Overlay = cmp.Or(f.Overlay, "file")
	f.Underlay = cmp.Or(f.Underlay, UnderlayIPv4)
	if f.Control == ControlFRR {
		f.FRR.Routing = cmp.Or(f.FRR.Routing, RoutingUnnumbered)
	}
}

// IPv6 reports whether VTEPs and links have addresses of IPv6.
func (f *File) IPv6() bool { return f.Underlay == UnderlayIPv6 }

// Unnumbered reports whether the fabric's links have only the addresses that the kernel
// gives them.
func (f *File) Unnumbered() bool {
	return f.Control == ControlFRR && f.FRR.Routing == RoutingUnnumbered
}

// KernelLeaf reports whether the kernel's own bridge and vxlan devices carry the overlay
// of a leaf, which then has no leafd.
func (f *File) KernelLeaf(leaf string) bool {
	return f.Dataplane == "kernel" || slices.Contains(f.KernelLeaves, leaf)
}

// control checks who routes, and which leaves have no daemon.
func (v *validator) control() {
	f := v.file
	v.OneOf("control", "control", f.Control, ControlStatic, ControlFRR)
	if f.Control == ControlFRR {
		v.OneOf("frr.routing", "frr.routing", f.FRR.Routing, RoutingUnnumbered, RoutingBGP, RoutingOSPF, RoutingISIS)
		v.ErrorIf(f.FRR.BFD != 0 && f.FRR.BFD < minBFD, "frr.bfd", "BFD every %v; use %v or more, or 0 for none", f.FRR.BFD, minBFD)
		v.ErrorIf(f.FRR.BFD%time.Millisecond != 0, "frr.bfd", "BFD every %v; FRR counts milliseconds; use a whole number of them", f.FRR.BFD)
		v.ErrorIf(f.FRR.Gateway && !f.FRR.EVPN, "frr.gateway", "there is no bridge that could be a gateway; set frr.evpn too")
	} else {
		v.ErrorIf(f.FRR != FRR{}, "frr", "nothing runs FRR; set control: frr, or remove it")
	}
	v.OneOf("underlay", "underlay", f.Underlay, UnderlayIPv4, UnderlayIPv6)
	v.ErrorIf(f.IPv6() && f.Control == ControlFRR, "underlay", "loomlab configures FRR for IPv4 alone; use control: static, or underlay: ipv4")
	v.OneOf("fast_path", "fast path", f.FastPath, "off", "auto", "on")
	v.OneOf("hosts.checksums", "checksums", f.Hosts.Checksums, "leaf", "host")
	v.ErrorIf(f.FastPath == "on" && (f.IPv6() || f.Overlay == "kernel"), "fast_path", "XDP forwards neither over IPv6 nor beside the kernel's overlay by itself; use auto")
	v.OneOf("overlay", "overlay", f.Overlay, "file", "kernel")
	v.ErrorIf(f.Overlay == "kernel" && !f.FRR.EVPN, "overlay", "there is no bridge that leafd could follow; set control: frr and frr.evpn, or use overlay: file")
	v.ErrorIf(f.Overlay == "kernel" && f.Dataplane == "kernel", "overlay", "there is no leafd that could follow the kernel; remove it, or use dataplane loom")
	v.ErrorIf(f.FRR.EVPN && f.Fallback == "kernel", "fallback", "frr.evpn has the kernel's bridges already, with flood lists of its own; remove fallback")
	v.ErrorIf(f.Dataplane == "kernel" && len(f.KernelLeaves) > 0, "kernel_leaves", "no leaf has a daemon under dataplane kernel; remove it")
	seen := map[string]bool{}
	for i, name := range f.KernelLeaves {
		path := fmt.Sprintf("kernel_leaves[%d]", i)
		_, ok := nodeIndex(name, 'L', f.Leaves)
		v.ErrorIf(!ok, path, "%q is not a leaf; leaves are L0 to L%d", name, f.Leaves-1)
		v.ErrorIf(seen[name], path, "leaf %s is named twice; remove one of the two", name)
		seen[name] = true
	}
}

// gateways checks that the bridges' addresses are free, and of one VNI each: the leaves
// route between them in one table.
func (v *validator) gateways() {
	f := v.file
	if !f.FRR.Gateway {
		return
	}
	names, _ := f.hostNames()
	for i, n := range f.VNIs {
		p, err := netip.ParsePrefix(n.Subnet)
		if err != nil {
			continue // said elsewhere
		}
		path := fmt.Sprintf("vnis[%d].subnet", i)
		v.ErrorIf(1<<(32-p.Bits()) < len(names)+3, path, "%s has no address left for a gateway; use a shorter prefix", n.Subnet)
		for _, other := range f.VNIs[:i] {
			if q, err := netip.ParsePrefix(other.Subnet); err == nil && q.Overlaps(p) {
				v.Errorf(path, "%s overlaps that of VNI %d, and leaves route between the two; use another one, or no frr.gateway", n.Subnet, other.VNI)
			}
		}
	}
}

// lastAddr returns the last address of an IPv4 prefix before the broadcast address.
func lastAddr(p netip.Prefix) netip.Addr { return addrAt(p, 1<<(32-p.Bits())-2) }
