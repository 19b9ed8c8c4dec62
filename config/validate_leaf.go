package config

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"

	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/yamlfile"
)

func (l *Leaf) validate(d *yamlfile.Document, interfaces []string) {
	l.Common.validate(d)
	if !l.VTEP.IsValid() {
		d.Add("vtep", "a leaf without a VTEP", "add vtep, an IPv4 address of this machine, as in vtep: 10.255.0.1")
	} else {
		validateVTEP(d, "vtep", l.VTEP)
	}
	l.validatePeers(d)
	p := ports{exist: interfaces, seen: make(map[string]string)}
	l.validateUplinks(d, &p)
	vnis := l.validateVNIs(d)
	l.validateAccess(d, &p, vnis)
	for i := range l.VNIs {
		l.validateStatic(d, "vnis["+strconv.Itoa(i)+"]", &l.VNIs[i])
	}
	if l.FDB.Size < 16 || l.FDB.Size > 1<<24 {
		d.Add("fdb.size", fmt.Sprintf("an FDB of %d addresses", l.FDB.Size), "use 16 to 16777216")
	}
	d.Report(l.Balancing.Check("", len(l.Uplinks)))
	vocab.CheckClasses(d, l.Classes, len(l.Uplinks), func(vni uint32) bool { _, ok := vnis[vni]; return ok })
	d.Report(l.Sections.Resolve(l.Congestion.Profile))
	if l.FDB.Age == 0 {
		d.Add("fdb.age", "addresses that age at once", "use a time, as in 5m")
	}
}

func (l *Leaf) validatePeers(d *yamlfile.Document) {
	if len(l.Peers) > dataplane.MaxPeers {
		d.Add("peers", fmt.Sprintf("%d peers", len(l.Peers)), fmt.Sprintf("use at most %d", dataplane.MaxPeers))
	}
	seen := make(map[netip.Addr]int)
	for i, a := range l.Peers {
		at := "peers[" + strconv.Itoa(i) + "]"
		if !validateVTEP(d, at, a) {
			continue
		}
		if a == l.VTEP {
			d.Add(at, fmt.Sprintf("peer %v is this leaf's own VTEP (line %d)", a, d.Line("vtep")), "VTEPs may not overlap: remove it here, or correct vtep")
		} else if j, dup := seen[a]; dup {
			d.Add(at, fmt.Sprintf("peer %v is already listed on line %d", a, d.Line("peers["+strconv.Itoa(j)+"]")), "VTEPs may not overlap: remove one of the two")
		} else {
			seen[a] = i
		}
	}
}

func (l *Leaf) validateUplinks(d *yamlfile.Document, p *ports) {
	switch n := len(l.Uplinks); {
	case n == 0:
		d.Add("uplinks", "a leaf without uplinks", "list the ports towards the spines, as in uplinks: [{interface: eth1}]")
	case n > dataplane.MaxPaths:
		d.Add("uplinks", fmt.Sprintf("%d uplinks", n), fmt.Sprintf("use at most %d: the fabric header has 4 bits for an uplink", dataplane.MaxPaths))
	}
	for i := range l.Uplinks {
		at := "uplinks[" + strconv.Itoa(i) + "]"
		p.validate(d, at, l.Uplinks[i].Interface)
		l.Uplinks[i].Egress.validate(d, at)
	}
}

// validateVNIs returns where each VNI is defined, by number.
func (l *Leaf) validateVNIs(d *yamlfile.Document) map[uint32]string {
	if len(l.VNIs) == 0 {
		d.Add("vnis", "a leaf without virtual networks", "list them, as in vnis: [{vni: 100}]")
	}
	if len(l.VNIs) > dataplane.MaxVNIs {
		d.Add("vnis", fmt.Sprintf("%d virtual networks", len(l.VNIs)), fmt.Sprintf("use at most %d", dataplane.MaxVNIs))
	}
	seen := make(map[uint32]string)
	for i := range l.VNIs {
		v, at := &l.VNIs[i], "vnis["+strconv.Itoa(i)+"]"
		if first, dup := seen[v.VNI]; dup {
			d.Add(at+".vni", fmt.Sprintf("VNI %d is already defined on line %d", v.VNI, d.Line(first)), "merge the two entries, or give one another number")
		} else if v.VNI < 1 || v.VNI > maxVNI {
			d.Add(at+".vni", fmt.Sprintf("VNI %d is out of range", v.VNI), fmt.Sprintf("use 1 to %d", maxVNI))
		} else {
			seen[v.VNI] = at + ".vni"
		}
		flood := make(map[netip.Addr]bool)
		for j, a := range v.Flood {
			fat := at + ".flood[" + strconv.Itoa(j) + "]"
			if !slices.Contains(l.Peers, a) {
				d.Add(fat, fmt.Sprintf("VNI %d floods to %v, which is not among peers", v.VNI, a), "add it to peers, or remove it here")
			} else if flood[a] {
				d.Add(fat, fmt.Sprintf("VNI %d floods to %v twice", v.VNI, a), "remove one of the two")
			}
			flood[a] = true
		}
		if v.Storm.Rate == 0 && v.Storm.Burst > 0 {
			d.Add(at+".storm", "a storm limit without a rate", "add rate, in frames per second")
		}
	}
	return seen
}

func (l *Leaf) validateAccess(d *yamlfile.Document, p *ports, vnis map[uint32]string) {
	if len(l.Access) == 0 {
		d.Add("access", "a leaf without access ports", "list the ports towards hosts, as in access: [{interface: eth3, vni: 100}]")
	}
	if n := len(l.Access) + len(l.Uplinks); n > dataplane.MaxPorts {
		d.Add("access", fmt.Sprintf("%d ports", n), fmt.Sprintf("use at most %d, uplinks included", dataplane.MaxPorts))
	}
	known := func(at string, vni uint32) {
		if _, ok := vnis[vni]; !ok {
			d.Add(at, fmt.Sprintf("VNI %d is not among vnis", vni), fmt.Sprintf("add it to vnis, as in vnis: [{vni: %d}]", vni))
		}
	}
	for i := range l.Access {
		a, at := &l.Access[i], "access["+strconv.Itoa(i)+"]"
		p.validate(d, at, a.Interface)
		a.Egress.validate(d, at)
		if d.Has(at + ".vni") {
			known(at+".vni", a.VNI)
		}
		byVNI := make(map[uint32]uint16)
		for _, vid := range slices.Sorted(maps.Keys(a.VLANs)) {
			vat, vni := at+".vlans."+strconv.Itoa(int(vid)), a.VLANs[vid]
			if vid < 1 || vid > maxVLAN {
				d.Add(vat, fmt.Sprintf("VLAN %d is out of range", vid), fmt.Sprintf("use 1 to %d", maxVLAN))
			}
			if other, dup := byVNI[vni]; dup {
				d.Add(vat, fmt.Sprintf("VLANs %d and %d of one port lead to VNI %d", other, vid, vni), "a port has one VLAN for each VNI: remove one of the two")
			}
			byVNI[vni] = vid
			known(vat, vni)
		}
		switch _, both := byVNI[a.VNI]; {
		case a.VNI == 0 && len(a.VLANs) == 0:
			d.Add(at, "an access port without a VNI", "add vni (untagged frames) or vlans (tagged ones)")
		case a.VNI != 0 && both:
			d.Add(at+".vni", fmt.Sprintf("VNI %d has both untagged and tagged frames on one port", a.VNI), "remove it from vlans, or remove vni")
		case a.Transparent && len(a.VLANs) > 0:
			d.Add(at+".vlans", "a transparent port that maps VLANs", "remove vlans, or remove transparent")
		case a.Transparent && a.VNI == 0:
			d.Add(at+".transparent", "a transparent port without vni", "add vni: all its frames belong to that network")
		}
	}
}

// validateStatic checks the static addresses of one VNI.
func (l *Leaf) validateStatic(d *yamlfile.Document, at string, v *VNI) {
	seen := make(map[MAC]string)
	for i, s := range v.Static {
		at := at + ".static[" + strconv.Itoa(i) + "]"
		switch first, dup := seen[s.MAC]; {
		case s.MAC[0]&1 != 0:
			d.Add(at+".mac", fmt.Sprintf("%v is a group address", s.MAC), "static addresses are those of single hosts")
		case s.MAC == MAC{}:
			d.Add(at+".mac", "a static entry without an address", "add mac, as in mac: 02:00:00:00:00:01")
		case dup:
			d.Add(at+".mac", fmt.Sprintf("%v is already defined on line %d", s.MAC, d.Line(first)), "remove one of the two")
		default:
			seen[s.MAC] = at + ".mac"
		}
		switch remote, local := s.VTEP.IsValid(), s.Interface != ""; {
		case remote == local:
			d.Add(at, fmt.Sprintf("%v is behind a VTEP or behind an interface", s.MAC), "give exactly one of vtep and interface")
		case remote && !slices.Contains(l.Peers, s.VTEP.Addr):
			d.Add(at+".vtep", fmt.Sprintf("%v is not among peers", s.VTEP), "add it to peers")
		case remote && s.VLAN != 0:
			d.Add(at+".vlan", "a VLAN behind a VTEP", "remove vlan: tags stay on access ports")
		case local:
			l.validateStaticPort(d, at, v.VNI, &s)
		}
	}
}

// validateStaticPort checks that the port of a static address has members of
// the VNI with that tag.
func (l *Leaf) validateStaticPort(d *yamlfile.Document, at string, vni uint32, s *Static) {
	i := slices.IndexFunc(l.Access, func(a Access) bool { return a.Interface == s.Interface })
	if i < 0 {
		d.Add(at+".interface", fmt.Sprintf("interface %s is not an access port", s.Interface), "add it to access, or correct the name")
		return
	}
	a := &l.Access[i]
	bound, what := a.VNI, "untagged frames"
	if s.VLAN != 0 && !a.Transparent {
		bound, what = a.VLANs[s.VLAN], fmt.Sprintf("VLAN %d", s.VLAN)
	}
	if bound != vni {
		d.Add(at, fmt.Sprintf("%s of %s does not belong to VNI %d", what, s.Interface, vni), "correct vlan, or bind it in access")
	}
}
