//go:build uml

package bridge

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/overlay"
)

// The ports of a VLAN-aware bridge: an access port, a trunk, and a VLAN subinterface of
// another trunk, whose frames have tag 30 there and are of the bridge's VLAN 20.
var vlanPorts = map[string]Place{"acc": {}, "trunk": {}, "sub.30": {Tag: 30}}

var vlanBridge = []string{
	"ip link add br0 type bridge vlan_filtering 1 vlan_default_pvid 0",
	"ip link add acc type veth peer name hacc", "ip link add trunk type veth peer name htrunk", "ip link add sub type veth peer name hsub",
	"ip link add link sub name sub.30 type vlan id 30",
	"ip link set acc master br0", "ip link set trunk master br0", "ip link set sub.30 master br0",
	"bridge vlan add dev acc vid 10 pvid untagged", "bridge vlan add dev trunk vid 10-25", "bridge vlan add dev sub.30 vid 20 pvid untagged",
	"ip link set hacc up", "ip link set htrunk up", "ip link set hsub up", "ip link set acc up", "ip link set trunk up", "ip link set sub up", "ip link set sub.30 up",
	"ip link set br0 up", "bridge vlan add dev br0 vid 10 self", "bridge vlan add dev br0 vid 20 self",
	"ip link add link br0 name br0.10 address 02:00:5e:00:01:10 up type vlan id 10", "ip link add link br0 name br0.20 address 02:00:5e:00:01:20 up type vlan id 20",
}

var devicePerVNI = []string{
	"ip link add vx10 type vxlan id 10010 local 10.0.0.1 dstport 4789 nolearning", "ip link add vx20 type vxlan id 10020 local 10.0.0.1 dstport 4789 nolearning",
	"ip link set vx10 master br0", "ip link set vx20 master br0",
	"bridge vlan add dev vx10 vid 10 pvid untagged", "bridge vlan add dev vx20 vid 20 pvid untagged",
	"ip link set vx10 up", "ip link set vx20 up",
}

var singleDevice = []string{
	"ip link add vxd type vxlan dstport 4789 local 10.0.0.1 external vnifilter nolearning",
	"ip link set vxd master br0", "bridge link set dev vxd vlan_tunnel on neigh_suppress on learning off",
	"bridge vni add vni 10010 dev vxd", "bridge vni add vni 10020-10022 dev vxd",
	"bridge vlan add dev vxd vid 10", "bridge vlan add dev vxd vid 10 tunnel_info id 10010",
	"bridge vlan add dev vxd vid 20-22", "bridge vlan add dev vxd vid 20-22 tunnel_info id 10020-10022",
	"ip link set vxd up",
}

// vlanRig is a rig with a VLAN-aware bridge.
type vlanRig struct {
	*rig
	devices map[string]uint32 // VXLAN devices and their VNIs; 0: a device with several
	ports   map[string]Place  // members, and how their untagged frames look on the interface below
}

// newVLANRig makes a rig whose mirror is opened before there is anything to mirror.
func newVLANRig(t *testing.T, devices map[string]uint32, setup ...string) *vlanRig {
	t.Helper()
	r := &vlanRig{newRig(t, 0), devices, make(map[string]Place)}
	t.Cleanup(func() { r.inspect(t) })
	r.run(t, setup...)
	for name, p := range vlanPorts {
		lower, _, _ := strings.Cut(name, ".")
		p.Port = r.ns.Link(t, lower).Attrs().Index
		r.ports[name] = p
	}
	return r
}

// vlanTables are a bridge's tables of VLANs, by interface.
type vlanTables struct {
	vlans   map[string]map[uint16]shownVLAN
	tunnels map[string]map[uint16]uint32
	vnis    map[string]map[uint32]bool
}

type shownVLAN struct {
	VLAN, VLANEnd   uint16
	Flags           []string
	TunID, TunIDEnd uint32
	VNI, VNIEnd     uint32
	State           string
}

func (v shownVLAN) pvid() bool     { return slices.Contains(v.Flags, "PVID") }
func (v shownVLAN) forwards() bool { return v.State == "" || v.State == "forwarding" }
func (v shownVLAN) untagged() bool { return slices.Contains(v.Flags, "Egress Untagged") }

func (r *vlanRig) tables(t testing.TB) vlanTables {
	t.Helper()
	x := vlanTables{make(map[string]map[uint16]shownVLAN), make(map[string]map[uint16]uint32), make(map[string]map[uint32]bool)}
	var list []struct {
		IfName               string
		VLANs, Tunnels, VNIs []shownVLAN
	}
	r.show(t, &list, "-d", "vlan", "show") // with states
	for _, i := range list {
		x.vlans[i.IfName] = make(map[uint16]shownVLAN)
		for _, v := range i.VLANs {
			for id := v.VLAN; id <= max(v.VLAN, v.VLANEnd); id++ {
				x.vlans[i.IfName][id] = v
			}
		}
	}
	list = nil
	r.show(t, &list, "vlan", "tunnelshow")
	for _, i := range list {
		x.tunnels[i.IfName] = make(map[uint16]uint32)
		for _, v := range i.Tunnels {
			for id := v.VLAN; id <= max(v.VLAN, v.VLANEnd); id++ {
				x.tunnels[i.IfName][id] = v.TunID + uint32(id-v.VLAN)
			}
		}
	}
	list = nil
	r.show(t, &list, "vni", "show")
	for _, i := range list {
		x.vnis[i.IfName] = make(map[uint32]bool)
		for _, v := range i.VNIs {
			for id := v.VNI; id <= max(v.VNI, v.VNIEnd); id++ {
				x.vnis[i.IfName][id] = true
			}
		}
	}
	return x
}

// oracle reads the kernel's tables by iproute2 and says, the plain way, where addresses
// are.
func (r *vlanRig) oracle(t testing.TB) map[key]Place {
	t.Helper()
	x := r.tables(t)
	type network struct {
		device string
		vni    uint32
	}
	networks := make(map[uint16]network) // by VLAN
	for name, vni := range r.devices {
		for id, v := range x.vlans[name] {
			if !v.forwards() {
				continue
			}
			if vni != 0 && v.pvid() && v.untagged() {
				networks[id] = network{name, vni}
			}
			if mapped := x.tunnels[name][id]; vni == 0 && x.vnis[name][mapped] {
				networks[id] = network{name, mapped}
			}
		}
	}
	var list []shown
	r.show(t, &list, "fdb", "show")
	want := make(map[key]Place)
	for _, e := range list {
		n := networks[e.VLAN]
		if e.Master != "br0" || e.State == "permanent" || n.vni == 0 {
			continue
		}
		k := key{n.vni, parseMAC(t, e.MAC)}
		p, port := r.ports[e.Name]
		v, member := x.vlans[e.Name][e.VLAN]
		switch {
		case port && member && !v.forwards():
		case port && member && v.pvid() && v.untagged():
			want[k] = p
		case port && member && !v.untagged() && p.Tag == 0:
			p.Tag = e.VLAN
			want[k] = p
		case e.Name == n.device:
			for _, s := range list {
				if s.Name == e.Name && s.MAC == e.MAC && s.Master == "" && s.Dst != "" && s.NHID == 0 &&
					(s.SrcVNI == n.vni || s.SrcVNI == 0 && r.devices[s.Name] != 0) && (s.VNI == 0 || s.VNI == n.vni) {
					want[k] = Place{VTEP: netip.MustParseAddr(s.Dst)}
				}
			}
		}
	}
	return want
}

// expect waits until the mirror has what the kernel has.
func (r *vlanRig) expect(t testing.TB, what string) map[key]Place {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		want := r.oracle(t)
		_, got := r.sink.now()
		if maps.Equal(got, want) {
			return got
		}
		if time.Now().After(end) {
			t.Fatalf("%s: the mirror has\n%v\nand the kernel\n%v\nwith %+v", what, got, want, r.tables(t))
		}
	}
}

// inspect compares what a mirror has that followed events with what the kernel lists now.
func (r *vlanRig) inspect(t testing.TB) {
	t.Helper()
	m, got := r.sink.now()
	r.ns.Do(t, func() {
		now, usable, err := Inspect(nil)
		if err != nil || usable != len(got) || !reflect.DeepEqual(now.Domains, m.Domains) || !reflect.DeepEqual(now.Ports, m.Ports) || !slices.Equal(now.Left, m.Left) {
			t.Errorf("a list gives %d addresses, %+v, %+v, %v, %v, and the mirror has %d, %+v, %+v, %v", usable, now.Domains, now.Ports, now.Left, err, len(got), m.Domains, m.Ports, m.Left)
		}
	})
}

// has says where an address has to be, which no oracle can then be wrong about.
func (r *vlanRig) has(t testing.TB, what string, vni uint32, mac string, want Place) {
	t.Helper()
	if got := r.expect(t, what)[key{vni, parseMAC(t, mac)}]; got != want {
		t.Errorf("%s: %s in VNI %d is at %+v, want %+v", what, mac, vni, got, want)
	}
}

func (r *vlanRig) at(member string, tag uint16) Place {
	p := r.ports[member]
	return Place{Port: p.Port, Tag: p.Tag + tag}
}

func behind(vtep string) Place { return Place{VTEP: netip.MustParseAddr(vtep)} }

// remote are the two entries of an address behind a VTEP, as zebra makes them.
func (r *vlanRig) remote(mac, vtep string, vlan int) []string {
	vni := 10000 + vlan
	device, src := fmt.Sprintf("vx%d", vlan), ""
	if _, ok := r.devices["vxd"]; ok {
		device, src = "vxd", fmt.Sprintf(" src_vni %d", vni)
	}
	return []string{
		fmt.Sprintf("bridge fdb replace %s dev %s dst %s%s self extern_learn", mac, device, vtep, src),
		fmt.Sprintf("bridge fdb replace %s dev %s master extern_learn vlan %d", mac, device, vlan),
	}
}

const (
	one1, two2, far3 = "02:00:00:00:00:01", "02:00:00:00:00:02", "02:00:00:00:00:03"
)

// TestUMLVLANAwareBridge follows a VLAN-aware bridge, with a VXLAN device for each VNI and
// with one for all of them.
func TestUMLVLANAwareBridge(t *testing.T) {
	for _, c := range []struct {
		name    string
		devices map[string]uint32
		setup   []string
	}{
		{"a device for each VNI", map[string]uint32{"vx10": 10010, "vx20": 10020}, devicePerVNI},
		{"a single device", map[string]uint32{"vxd": 0}, singleDevice},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newVLANRig(t, c.devices, slices.Concat(vlanBridge, c.setup)...)
			followVLANs(t, r)
		})
	}
}

func followVLANs(t *testing.T, r *vlanRig) {
	r.run(t, "bridge fdb add "+one1+" dev acc master dynamic vlan 10")
	r.has(t, "on the access port", 10010, one1, r.at("acc", 0))
	r.run(t, "bridge fdb add "+one1+" dev trunk master dynamic vlan 20", "bridge fdb add "+two2+" dev sub.30 master static vlan 20")
	r.has(t, "the same address in another VLAN", 10020, one1, r.at("trunk", 20))
	r.has(t, "on the subinterface", 10020, two2, r.at("sub.30", 0))
	r.run(t, slices.Concat(r.remote(far3, "10.0.0.2", 10), r.remote(far3, "10.0.0.3", 20))...)
	r.has(t, "behind a VTEP", 10010, far3, behind("10.0.0.2"))
	r.has(t, "behind another in another VNI", 10020, far3, behind("10.0.0.3"))
	m, _ := r.sink.now()
	for _, vni := range []overlay.VNI{10010, 10020} {
		i := slices.IndexFunc(m.Domains, func(d Domain) bool { return d.VNI == vni })
		gateway := overlay.MAC{2, 0, 0x5e, 0, 1, byte(0x10 * (vni - 10000) / 10)}
		if i < 0 || m.Domains[i].VLAN != uint16(vni-10000) || m.Domains[i].BridgeName != "br0" || !slices.Contains(m.Domains[i].Gateways, gateway) ||
			slices.Contains(m.Domains[i].Gateways, overlay.MAC{2, 0, 0x5e, 0, 1, byte(0x30 - int(gateway[5]))}) {
			t.Errorf("VNI %d is not what it has to be in %+v: its gateway is %v", vni, m.Domains, gateway)
		}
	}
	if want := []netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.3")}; !slices.Equal(m.Peers, want) {
		t.Errorf("the peers are %v, want %v", m.Peers, want)
	}
	r.run(t, r.remote(one1, "10.0.0.2", 10)...)
	r.has(t, "gone to a VTEP", 10010, one1, behind("10.0.0.2"))
	r.has(t, "and still here in the other VLAN", 10020, one1, r.at("trunk", 20))
	r.run(t, r.remote(one1, "10.0.0.4", 10)...)
	r.has(t, "gone to another VTEP", 10010, one1, behind("10.0.0.4"))
	r.run(t, "bridge fdb replace "+one1+" dev trunk master dynamic vlan 10")
	r.has(t, "come back, to another port", 10010, one1, r.at("trunk", 10))
	r.run(t, "bridge fdb del "+one1+" dev trunk master vlan 10")
	r.has(t, "deleted in a VLAN", 10010, one1, Place{})
	r.has(t, "and not in the other", 10020, one1, r.at("trunk", 20))

	r.learn(t)
	r.block(t)
	r.toggle(t)

	r.run(t, "bridge vlan add dev trunk vid 20 untagged")
	r.left(t, "trunk", Tags)
	r.run(t, "bridge vlan add dev trunk vid 20 pvid untagged", "bridge fdb replace "+one1+" dev trunk master dynamic vlan 20")
	r.left(t, "trunk", "")
	r.has(t, "VLAN 20 without tag", 10020, one1, r.at("trunk", 0))
	r.run(t, "bridge vlan add dev trunk vid 20", "bridge fdb replace "+one1+" dev trunk master dynamic vlan 20")
	r.has(t, "and with it", 10020, one1, r.at("trunk", 20))
	r.run(t, "bridge vlan del dev trunk vid 20")
	r.has(t, "a trunk without the VLAN", 10020, one1, Place{})
	r.run(t, "bridge vlan add dev trunk vid 20", "bridge fdb replace "+one1+" dev trunk master dynamic vlan 20")
	r.has(t, "a trunk with it", 10020, one1, r.at("trunk", 20))
}

// block has spanning tree block single VLANs of ports that forward, and shows that the
// kernel takes that seriously.
func (r *vlanRig) block(t *testing.T) {
	t.Helper()
	r.run(t, "bridge fdb replace "+one1+" dev trunk master dynamic vlan 20", "bridge fdb replace "+two2+" dev trunk master dynamic vlan 10")
	r.has(t, "VLAN 10 forwards", 10010, two2, r.at("trunk", 10))
	r.run(t, "bridge vlan set dev trunk vid 10 state blocking")
	r.left(t, "trunk", STP)
	r.has(t, "VLAN 10 is blocked", 10010, two2, Place{})
	r.has(t, "VLAN 20 is not", 10020, one1, r.at("trunk", 20))
	silent := overlay.MAC{2, 0, 0, 0, 1, 0x77}
	r.send(t, "htrunk", 10, silent, overlay.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	time.Sleep(100 * time.Millisecond)
	var list []shown
	r.show(t, &list, "fdb", "show")
	if slices.ContainsFunc(list, func(e shown) bool { return e.MAC == silent.String() }) {
		t.Error("the kernel learns in a VLAN that is blocked")
	}
	r.run(t, "bridge vlan set dev trunk vid 10 state forwarding")
	r.left(t, "trunk", "")
	r.has(t, "VLAN 10 forwards again", 10010, two2, r.at("trunk", 10))
}

// learn has hosts send frames, and holds what the mirror then says against the way that the
// kernel's own frames to these hosts go.
func (r *vlanRig) learn(t *testing.T) {
	t.Helper()
	hosts := []struct {
		from string // end of the host
		tag  uint16
		vlan uint16
		want Place
	}{
		{"hacc", 0, 10, r.at("acc", 0)}, {"htrunk", 10, 10, r.at("trunk", 10)}, {"htrunk", 20, 20, r.at("trunk", 20)}, {"hsub", 30, 20, r.at("sub.30", 0)},
	}
	mac := func(i int) overlay.MAC { return overlay.MAC{2, 0, 0, 0, 1, byte(i)} }
	for i, h := range hosts {
		r.send(t, h.from, h.tag, mac(i), overlay.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
		r.has(t, fmt.Sprintf("a frame from %s with tag %d", h.from, h.tag), 10000+uint32(h.vlan), fmt.Sprint(mac(i)), h.want)
	}
	for i, h := range hosts {
		other := i ^ 1 // in the same VLAN
		if got := r.cross(t, hosts[other].from, hosts[other].tag, mac(other), h.from, mac(i)); got != h.want.Tag {
			t.Errorf("the kernel's frame to the host behind %s has tag %d, and the mirror says %d", h.from, got, h.want.Tag)
		}
	}
}

// A VNI that is removed takes nothing of the others along.
func TestUMLRemovedVNILeavesOthersAlone(t *testing.T) {
	for _, c := range []struct {
		name, remove, restore string
		devices               map[string]uint32
		setup                 []string
	}{
		{"a device for each VNI", "ip link del vx20", "", map[string]uint32{"vx10": 10010, "vx20": 10020}, devicePerVNI},
		{"out of a single device's filter", "bridge vni delete vni 10020 dev vxd", "bridge vni add vni 10020 dev vxd", map[string]uint32{"vxd": 0}, singleDevice},
		{"out of a single device's map", "bridge vlan del dev vxd vid 20 tunnel_info id 10020", "bridge vlan add dev vxd vid 20 tunnel_info id 10020", map[string]uint32{"vxd": 0}, singleDevice},
		{"out of a single device's VLANs", "bridge vlan del dev vxd vid 20", "bridge vlan add dev vxd vid 20;bridge vlan add dev vxd vid 20 tunnel_info id 10020", map[string]uint32{"vxd": 0}, singleDevice},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newVLANRig(t, c.devices, slices.Concat(vlanBridge, c.setup)...)
			setup := slices.Concat([]string{"bridge fdb replace " + one1 + " dev acc master dynamic vlan 10", "bridge fdb replace " + one1 + " dev trunk master dynamic vlan 20"},
				r.remote(far3, "10.0.0.2", 10), r.remote(far3, "10.0.0.3", 20))
			r.run(t, setup...)
			r.has(t, "at the start", 10020, far3, behind("10.0.0.3"))
			before := r.expect(t, "at the start")
			r.run(t, c.remove)
			r.has(t, "without the VNI", 10020, far3, Place{})
			r.has(t, "without the VNI", 10020, one1, Place{})
			after := r.expect(t, "without the VNI")
			for k, p := range before {
				if k.vni == 10010 && after[k] != p {
					t.Errorf("%v was at %+v and is at %+v", k, p, after[k])
				}
			}
			r.sink.mu.Lock()
			for k, n := range r.sink.deleted {
				if k.vni == 10010 {
					t.Errorf("%v was deleted %d times", k, n)
				}
			}
			r.sink.mu.Unlock()
			if c.restore == "" {
				return
			}
			r.run(t, strings.Split(c.restore, ";")...)
			r.run(t, setup...) // some of which is still there
			r.has(t, "with it again", 10020, far3, behind("10.0.0.3"))
		})
	}
}

// toggle has the bridge filter no VLANs, and those of 802.1ad, while it runs. The kernel
// then takes every frame for one of the same network, or looks for other tags.
func (r *vlanRig) toggle(t *testing.T) {
	t.Helper()
	r.run(t, "bridge fdb replace "+one1+" dev acc master dynamic vlan 10")
	r.has(t, "a bridge that filters VLANs", 10010, one1, r.at("acc", 0))
	for _, c := range []struct {
		begin, over string
		left        map[string]Reason
	}{
		{"vlan_filtering 0", "vlan_filtering 1", map[string]Reason{"vx10": Twice, "vx20": Twice, "vxd": FlowBased}},
		{"vlan_protocol 802.1ad", "vlan_protocol 802.1Q", map[string]Reason{"br0": QinQ}},
	} {
		r.run(t, "ip link set br0 type bridge "+c.begin)
		for name, why := range c.left {
			if _, there := r.devices[name]; there || name == "br0" {
				r.left(t, name, why)
			}
		}
		for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
			m, got := r.sink.now()
			if len(got) == 0 && len(m.Domains) == 0 {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%s: there are still %v and %v", c.begin, got, m.Domains)
			}
		}
		r.run(t, "ip link set br0 type bridge "+c.over, "bridge fdb replace "+one1+" dev acc master dynamic vlan 10")
		r.has(t, c.over, 10010, one1, r.at("acc", 0))
	}
}

// Whatever happens to VLANs, to their map to VNIs and to entries, the mirror ends where the
// kernel does.
func TestUMLRandomChanges(t *testing.T) {
	const changes = 250
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	r := newVLANRig(t, map[string]uint32{"vxd": 0}, slices.Concat(vlanBridge, singleDevice)...)
	pick := func(of ...string) string { return of[rng.IntN(len(of))] }
	var log []string
	most := 0
	for i := range changes {
		vlan := 10 * (1 + rng.IntN(2))
		mac := fmt.Sprintf("02:00:00:00:02:%02x", rng.IntN(6))
		port := pick("acc", "trunk", "sub.30")
		var c []string
		switch rng.IntN(13) {
		case 0, 1, 2:
			c = r.remote(mac, pick("10.0.0.2", "10.0.0.3"), vlan)
		case 3, 4, 5:
			c = []string{fmt.Sprintf("bridge fdb replace %s dev %s master %s vlan %d", mac, port, pick("dynamic", "static"), vlan)}
		case 6:
			c = []string{fmt.Sprintf("bridge fdb del %s dev %s master vlan %d", mac, pick("vxd", port), vlan)}
		case 7:
			c = []string{fmt.Sprintf("bridge fdb del %s dev vxd src_vni %d self", mac, 10000+vlan)}
		case 8:
			c = []string{fmt.Sprintf("bridge vlan %s dev %s vid %d%s", pick("add", "add", "del"), port, vlan, pick("", " pvid untagged", " untagged"))}
		case 9:
			c = []string{fmt.Sprintf("bridge vlan %s dev vxd vid %d tunnel_info id %d", pick("add", "add", "del"), vlan, 10000+vlan)}
		case 10:
			c = []string{fmt.Sprintf("bridge vni %s vni %d dev vxd", pick("add", "add", "delete"), 10000+vlan)}
		case 12:
			c = []string{fmt.Sprintf("bridge vlan set dev %s vid %d state %s", pick(port, port, "vxd"), vlan, pick("forwarding", "forwarding", "blocking", "learning"))}
		case 11:
			if c = []string{fmt.Sprintf("bridge vlan del dev vxd vid %d", vlan)}; rng.IntN(3) > 0 {
				c = []string{fmt.Sprintf("bridge vlan add dev vxd vid %d", vlan), fmt.Sprintf("bridge vlan add dev vxd vid %d tunnel_info id %d", vlan, 10000+vlan)}
			}
		}
		r.try(t, c...) // many cannot be: there is nothing to delete, or no VLAN
		log = append(log, c...)
		if i%5 == 4 {
			got := r.expect(t, fmt.Sprintf("seed %d, after\n%s", seed, strings.Join(log, "\n")))
			most = max(most, len(got))
		}
	}
	if most < 4 {
		t.Errorf("there were %d addresses at most: this shows nothing", most)
	}
}

// A bond in a bridge is left to the kernel, which is said, and so are its VLANs. The ports
// beside it are not.
func TestUMLBondIsLeftToTheKernel(t *testing.T) {
	for _, mode := range []string{"active-backup", "802.3ad"} {
		t.Run(mode, func(t *testing.T) {
			r := newVLANRig(t, map[string]uint32{"vx10": 10010, "vx20": 10020}, slices.Concat(vlanBridge, devicePerVNI, []string{
				"ip link add bond0 type bond mode " + mode, "ip link add m0 type veth peer name hm0", "ip link add m1 type veth peer name hm1",
				"ip link set m0 master bond0", "ip link set m1 master bond0", "ip link set hm0 up", "ip link set hm1 up", "ip link set bond0 up",
				"ip link add link bond0 name bond0.7 up type vlan id 7",
				"ip link set bond0 master br0", "bridge vlan add dev bond0 vid 10 pvid untagged",
				"ip link set bond0.7 master br0", "bridge vlan add dev bond0.7 vid 20 pvid untagged",
				"bridge fdb add " + one1 + " dev bond0 master dynamic vlan 10", "bridge fdb add " + two2 + " dev bond0.7 master dynamic vlan 20",
				"bridge fdb add " + far3 + " dev acc master dynamic vlan 10",
			})...)
			r.has(t, "beside the bond", 10010, far3, r.at("acc", 0))
			r.has(t, "behind the bond", 10010, one1, Place{})
			r.has(t, "behind the bond's VLAN", 10020, two2, Place{})
			r.left(t, "bond0", Kind)
			r.left(t, "bond0.7", Kind)
			m, _ := r.sink.now()
			for _, l := range m.Left {
				if strings.HasPrefix(l.Name, "bond0") && !strings.Contains(l.String(), "bond0 is a bond: AF_XDP needs the queues of its members") {
					t.Errorf("what is said is %q", l)
				}
			}
			if n := len(m.Ports); n != 3 {
				t.Errorf("there are %d ports, want 3: %+v", n, m.Ports)
			}
			r.run(t, "bridge fdb replace "+one1+" dev acc master dynamic vlan 10")
			r.has(t, "moved from behind the bond", 10010, one1, r.at("acc", 0))
			r.run(t, "bridge fdb replace "+one1+" dev bond0 master dynamic vlan 10")
			r.has(t, "and back", 10010, one1, Place{})
		})
	}
}
