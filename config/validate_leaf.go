package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/dataplane"
)

func (l *Leaf) validate(d *checker) {
	d.common(&l.Common)
	kernel := l.Overlay == OverlayKernel
	if kernel {
		l.validateKernel(d)
	} else if !d.ErrorIf(!l.VTEP.IsValid(), "vtep", "a leaf without a VTEP; add vtep, an address of this machine, as in vtep: 10.255.0.1 or vtep: 2001:db8::1") {
		d.vtep("vtep", l.VTEP)
	}
	l.validatePeers(d)
	n := len(l.Uplinks)
	d.ErrorIf(l.Uplinks == nil, "uplinks", "a leaf without uplinks; list the ports towards the spines, as in uplinks: [{interface: eth1}], or write uplinks: auto")
	d.ErrorIf(n > dataplane.MaxPaths, "uplinks", "%d uplinks; use at most %d: the fabric header has 4 bits for an uplink", n, dataplane.MaxPaths)
	for i := range l.Uplinks {
		d.port(item("uplinks", i), l.Uplinks[i].Interface, l.Uplinks[i].Required, &l.Uplinks[i].Egress)
	}
	vnis := make(map[uint32]string)
	if !kernel {
		vnis = l.validateVNIs(d)
		l.validateAccess(d, vnis)
	}
	for i := range l.VNIs {
		l.validateStatic(d, item("vnis", i), &l.VNIs[i])
	}
	d.ErrorIf(l.FDB.Size < 16 || l.FDB.Size > 1<<24, "fdb.size", "an FDB of %d addresses; use 16 to 16777216", l.FDB.Size)
	d.Add(l.Balancing.Check("", n))
	d.Add(vocab.CheckClasses(d.Document, l.Classes, n, func(vni uint32) bool { return kernel || vnis[vni] != "" }))
	d.Add(l.Sections.Resolve(l.Congestion.Profile))
	d.ErrorIf(l.FDB.Age == 0, "fdb.age", "addresses that age at once; use a time, as in 5m")
	if dataplane.FastMode(l.FastPath) == dataplane.FastOn {
		d.fastPath(l.XDPMode)
		d.ErrorIf(kernel, "fast_path", "XDP cannot forward by itself what the kernel's overlay is to be shown; remove overlay: kernel, or use auto")
		d.ErrorIf(l.VTEP.IsValid() && !l.VTEP.Is4(), "fast_path", "XDP forwards VXLAN between VTEPs of IPv4 by itself, and vtep is %v; use auto", l.VTEP)
	}
}

// validateKernel checks that the file does not say what the kernel says.
func (l *Leaf) validateKernel(d *checker) {
	for _, key := range []string{"vtep", "vxlan_port", "access", "vnis", "peers"} {
		d.ErrorIf(d.Has(key), key, "%s beside overlay: kernel, where the kernel's bridges and VXLAN devices say it; remove %s, or remove overlay", key, key)
	}
	d.room(&l.Common, len(l.Uplinks))
}

func (l *Leaf) validatePeers(d *checker) {
	d.ErrorIf(len(l.Peers) > dataplane.MaxPeers, "peers", "%d peers; use at most %d", len(l.Peers), dataplane.MaxPeers)
	for i, a := range l.Peers {
		at := item("peers", i)
		if !d.vtep(at, a) {
			continue
		}
		if l.VTEP.IsValid() && a.Is4() != l.VTEP.Is4() {
			d.Errorf(at, "peer %v is not of the family of this leaf's VTEP %v (line %d); a leaf sends VXLAN over IPv4 or over IPv6: use the peer's other address, or another vtep",
				a, l.VTEP, d.Line("vtep"))
		} else if a == l.VTEP {
			d.Errorf(at, "peer %v is this leaf's own VTEP (line %d); VTEPs may not overlap: remove it here, or correct vtep", a, d.Line("vtep"))
		} else if j := slices.Index(l.Peers, a); j < i {
			d.Errorf(at, "peer %v is already listed on line %d; VTEPs may not overlap: remove one of the two", a, d.Line(item("peers", j)))
		}
	}
}

// validateVNIs returns where each VNI is defined, by number.
func (l *Leaf) validateVNIs(d *checker) map[uint32]string {
	n := len(l.VNIs)
	d.ErrorIf(n == 0, "vnis", "a leaf without virtual networks; list them, as in vnis: [{vni: 100}]")
	d.ErrorIf(n > dataplane.MaxVNIs, "vnis", "%d virtual networks; use at most %d", n, dataplane.MaxVNIs)
	seen := make(map[uint32]string)
	for i := range l.VNIs {
		v, at := &l.VNIs[i], item("vnis", i)
		if first, dup := seen[v.VNI]; dup {
			d.Errorf(at+".vni", "VNI %d is already defined on line %d; merge the two entries, or give one another number", v.VNI, d.Line(first))
		} else if !d.ErrorIf(v.VNI < 1 || v.VNI > maxVNI, at+".vni", "VNI %d is out of range; use 1 to %d", v.VNI, maxVNI) {
			seen[v.VNI] = at + ".vni"
		}
		for j, a := range v.Flood {
			at := item(at+".flood", j)
			if !d.ErrorIf(!slices.Contains(l.Peers, a), at, "VNI %d floods to %v, which is not among peers; add it to peers, or remove it here", v.VNI, a) {
				d.ErrorIf(slices.Contains(v.Flood[:j], a), at, "VNI %d floods to %v twice; remove one of the two", v.VNI, a)
			}
		}
		for j, a := range v.Members {
			at := item(at+".members", j)
			d.ErrorIf(!slices.Contains(l.Peers, a), at, "VNI %d has member %v, which is not among peers; add it to peers, or remove it here", v.VNI, a)
		}
	}
	return seen
}

func (l *Leaf) validateAccess(d *checker, vnis map[uint32]string) {
	d.ErrorIf(len(l.Access) == 0, "access", "a leaf without access ports; list the ports towards hosts, as in access: [{interface: eth3, vni: 100}]")
	n := len(l.Access) + len(l.Uplinks)
	d.ErrorIf(n > dataplane.MaxPorts, "access", "%d ports; use at most %d, uplinks included", n, dataplane.MaxPorts)
	d.room(&l.Common, n)
	for i := range l.Access {
		a, at := &l.Access[i], item("access", i)
		d.port(at, a.Interface, a.Required, &a.Egress)
		known := func(at string, vni uint32) {
			d.ErrorIf(vnis[vni] == "", at, "VNI %d is not among vnis; add it to vnis, as in vnis: [{vni: %d}]", vni, vni)
		}
		if d.Has(at + ".vni") {
			known(at+".vni", a.VNI)
		}
		byVNI := make(map[uint32]uint16)
		for _, vid := range slices.Sorted(maps.Keys(a.VLANs)) {
			at, vni := at+".vlans."+strconv.Itoa(int(vid)), a.VLANs[vid]
			d.ErrorIf(vid < 1 || vid > maxVLAN, at, "VLAN %d is out of range; use 1 to %d", vid, maxVLAN)
			if other, dup := byVNI[vni]; dup {
				d.Errorf(at, "VLANs %d and %d of one port lead to VNI %d; a port has one VLAN for each VNI: remove one of the two", other, vid, vni)
			}
			byVNI[vni] = vid
			known(at, vni)
		}
		switch _, both := byVNI[a.VNI]; {
		case a.VNI == 0 && len(a.VLANs) == 0:
			d.Errorf(at, "an access port without a VNI; add vni (untagged frames) or vlans (tagged ones)")
		case a.VNI != 0 && both:
			d.Errorf(at+".vni", "VNI %d has both untagged and tagged frames on one port; remove it from vlans, or remove vni", a.VNI)
		case a.Transparent && len(a.VLANs) > 0:
			d.Errorf(at+".vlans", "a transparent port that maps VLANs; remove vlans, or remove transparent")
		case a.Transparent && a.VNI == 0:
			d.Errorf(at+".transparent", "a transparent port without vni; add vni: all its frames belong to that network")
		}
	}
}

// validateStatic checks the static addresses of one VNI.
func (l *Leaf) validateStatic(d *checker, at string, v *VNI) {
	seen := make(map[MAC]string)
	for i, s := range v.Static {
		at := item(at+".static", i)
		switch first, dup := seen[s.MAC]; {
		case s.MAC[0]&1 != 0:
			d.Errorf(at+".mac", "%v is a group address; static addresses are those of single hosts", s.MAC)
		case s.MAC == MAC{}:
			d.Errorf(at+".mac", "a static entry without an address; add mac, as in mac: 02:00:00:00:00:01")
		case dup:
			d.Errorf(at+".mac", "%v is already defined on line %d; remove one of the two", s.MAC, d.Line(first))
		default:
			seen[s.MAC] = at + ".mac"
		}
		switch remote, local := s.VTEP.IsValid(), s.Interface != ""; {
		case remote == local:
			d.Errorf(at, "%v is behind a VTEP or behind an interface; give exactly one of vtep and interface", s.MAC)
		case remote && !slices.Contains(l.Peers, s.VTEP):
			d.Errorf(at+".vtep", "%v is not among peers; add it to peers", s.VTEP)
		case remote && s.VLAN != 0:
			d.Errorf(at+".vlan", "a VLAN behind a VTEP; remove vlan: tags stay on access ports")
		case local:
			l.validateStaticPort(d, at, v.VNI, &s)
		}
	}
}

// validateStaticPort checks that the port of a static address has members of
// the VNI with that tag.
func (l *Leaf) validateStaticPort(d *checker, at string, vni uint32, s *Static) {
	i := slices.IndexFunc(l.Access, func(a Access) bool { return a.Interface == s.Interface })
	if d.ErrorIf(i < 0, at+".interface", "interface %s is not an access port; add it to access, or correct the name", s.Interface) {
		return
	}
	a := &l.Access[i]
	bound, what := a.VNI, "untagged frames"
	if s.VLAN != 0 && !a.Transparent {
		bound, what = a.VLANs[s.VLAN], fmt.Sprintf("VLAN %d", s.VLAN)
	}
	d.ErrorIf(bound != vni, at, "%s of %s does not belong to VNI %d; correct vlan, or bind it in access", what, s.Interface, vni)
}
