package bridge

import (
	"cmp"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/overlay"
)

// ethVLAN is the EtherType of an 802.1Q tag.
const ethVLAN = unix.ETH_P_8021Q

// vlans is which VLANs a bridge's port is a member of.
type vlans struct {
	member, untagged [(maxVLAN + 64) / 64]uint64
	pvid             uint16
}

func (l *Link) vlans() (v vlans) {
	for _, r := range l.VLANs {
		for id := r.First; id <= r.Last; id++ {
			v.member[id/64] |= 1 << (id % 64)
			if r.Untagged {
				v.untagged[id/64] |= 1 << (id % 64)
			}
			if r.PVID {
				v.pvid = id
			}
		}
	}
	return v
}

func (v *vlans) has(id uint16) bool    { return v.member[id/64]>>(id%64)&1 != 0 }
func (v *vlans) strips(id uint16) bool { return v.untagged[id/64]>>(id%64)&1 != 0 }

// claim finds the VLANs that a device's VNIs are mapped to.
func (d *derivation) claim(l *Link) {
	x, br := l.VXLAN, d.s.Links[l.Master]
	if x.Local != d.m.VTEP || x.Port != d.m.UDPPort {
		fix := "give all VXLAN devices the same local address and UDP port"
		if d.m.fixed {
			fix += "; for a leaf that has changed its address, restart leafd"
		}
		d.leave(l, false, OtherVTEP, fmt.Sprintf("its VTEP is %v, UDP port %d, and the leaf's is %v, port %d", x.Local, x.Port, d.m.VTEP, d.m.UDPPort), fix)
		return
	}
	add := func(vlan uint16, vni uint32) {
		if state := l.state(vlan); vlan != 0 && state != forwarding {
			d.leave(l, false, STP, fmt.Sprintf("spanning tree: VLAN %d is %s", vlan, stpState(state)), "")
			return
		}
		if vni > 0 && vni <= maxVNI {
			p := place{br.Index, vlan}
			d.claims[p] = append(d.claims[p], claim{l, vni})
		}
	}
	if !br.Bridge.Filtering {
		add(0, x.VNI)
		return
	}
	v := l.vlans()
	if !x.External {
		if v.pvid == 0 || !v.strips(v.pvid) {
			d.leave(l, false, NoVLAN, fmt.Sprintf("no VLAN of bridge %s is untagged on the VXLAN device", br.Name),
				fmt.Sprintf("bridge vlan add dev %s vid VLAN pvid untagged", l.Name))
			return
		}
		add(v.pvid, x.VNI)
		return
	}
	for _, t := range l.Tunnels {
		for id := t.First; id <= t.Last; id++ {
			vni := t.VNI + uint32(id-t.First)
			if v.has(id) && (!x.VNIFilter || d.s.VNIs[l.Index].Has(vni)) {
				add(id, vni)
			}
		}
	}
}

// settle makes domains of claims that nobody else makes.
func (d *derivation) settle() {
	places := make([]place, 0, len(d.claims))
	for p := range d.claims {
		places = append(places, p)
	}
	slices.SortFunc(places, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.bridge, b.bridge), cmp.Compare(a.vlan, b.vlan))
	})
	byVNI := make(map[uint32][]place)
	for _, p := range places {
		for _, c := range d.claims[p] {
			if at := byVNI[c.vni]; len(at) == 0 || at[len(at)-1] != p {
				byVNI[c.vni] = append(at, p)
			}
		}
	}
	for _, p := range places {
		claims := d.claims[p]
		c := claims[0]
		switch {
		case len(claims) > 1:
			for _, c := range claims {
				d.leave(c.device, false, Twice, fmt.Sprintf("VLAN %d of bridge %s has %d VXLAN devices or VNIs", p.vlan, d.s.Links[p.bridge].Name, len(claims)), "")
			}
			continue
		case len(byVNI[c.vni]) > 1:
			d.leave(c.device, false, Twice, fmt.Sprintf("VNI %d is mapped to %d VLANs", c.vni, len(byVNI[c.vni])), "")
			continue
		}
		x := &domain{
			vni: overlay.VNI(c.vni), device: c.device.Index, vtep: d.m.VTEP, udpPort: d.m.UDPPort,
			gateways: make(map[overlay.MAC]bool), ports: make(map[int]local),
		}
		if c.device.VXLAN.External {
			x.src = c.vni
		}
		d.m.domains[p] = x
	}
}

// gateways finds the MACs of bridges and of what is on them: SVIs, and the anycast
// addresses on those.
func (d *derivation) gateways() {
	byBridge := make(map[int][]place)
	for p := range d.m.domains {
		byBridge[p.bridge] = append(byBridge[p.bridge], p)
	}
	for _, l := range d.links {
		bridge, vlan, ok := d.below(l)
		if !ok {
			continue
		}
		for _, p := range byBridge[bridge] {
			if vlan == 0 || p.vlan == 0 || p.vlan == vlan {
				d.m.domains[p].gateways[l.MAC] = true
			}
		}
	}
}

// below finds the bridge that a link is, or stands on, and in which VLAN.
func (d *derivation) below(l *Link) (bridge int, vlan uint16, ok bool) {
	for range 4 { // macvlan on VLAN on bridge is the deepest that is in use
		if l.Bridge != nil {
			return l.Index, vlan, true
		}
		if l.Kind != "vlan" && l.Kind != "macvlan" {
			return 0, 0, false
		}
		if l.Kind == "vlan" {
			vlan = l.VLAN
		}
		if l = d.s.Links[l.Lower]; l == nil {
			return 0, 0, false
		}
	}
	return 0, 0, false
}
