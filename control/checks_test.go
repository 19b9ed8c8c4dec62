package control

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/config"
	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/testenv"
	"github.com/loomfabric/loom/reorder"
)

// held are sections with which so many packets may be held.
func held(packets int) map[string]balance.Params {
	all := make(map[string]balance.Params)
	for _, s := range balance.Sections() {
		p := s.New(balance.Datacenter)
		if h, ok := p.(balance.Holder); ok {
			p = h.Limit(0)
		}
		all[s.Name] = p
	}
	all["conweave"] = &balance.ConWeaveParams{Destination: reorder.Params{Packets: packets}}
	return all
}

func checkConfig() *dataplane.Config {
	return &dataplane.Config{
		Role: dataplane.Leaf, VTEP: addr("10.255.0.1"), Workers: 2, RingSize: 2048, MaxMTU: 1600, Sections: held(1000),
		Ports: []dataplane.PortConfig{
			{Name: "eth1", Kind: dataplane.Uplink},
			{Name: "eth3", Kind: dataplane.Access},
		},
	}
}

func checkOverlay() *config.Leaf {
	return &config.Leaf{
		Peers: []netip.Addr{addr("10.255.0.2")}, VNIs: []config.VNI{{VNI: 100}},
		Access: []config.Access{{Interface: "eth3", VLANs: map[uint16]uint32{10: 100}}},
	}
}

func goodFacts() *Facts {
	return &Facts{
		NetAdmin: true, NetRaw: true, BPF: true, IPCLock: true,
		Ports: map[string]PortFacts{
			"eth1": {MTU: 1550, RXQueues: 2, TXQueues: 2, Up: true, Speed: 10e9},
			"eth3": {MTU: 1500, RXQueues: 2, TXQueues: 2, Up: true},
		},
		State: State{
			Links:  []Link{link(10, "eth1"), link(12, "eth3")},
			Routes: []Route{{Dst: pfx("10.255.0.2/32"), Hops: []NextHop{hop(10, "10.1.0.0")}}},

			Addresses: []netip.Addr{addr("10.255.0.1")},
		},
	}
}

func TestCheck(t *testing.T) {
	port := func(name string, change func(*PortFacts)) func(*Facts) {
		return func(f *Facts) {
			p := f.Ports[name]
			change(&p)
			f.Ports[name] = p
		}
	}
	for _, tc := range []struct {
		name    string
		change  func(*Facts)
		fatal   bool
		problem string // "" when nothing is wrong
		fix     string
	}{
		{"all is well", func(*Facts) {}, false, "", ""},
		{"no CAP_NET_ADMIN", func(f *Facts) { f.NetAdmin = false }, true, "CAP_NET_ADMIN is missing", "run as root"},
		{"no CAP_NET_RAW", func(f *Facts) { f.NetRaw = false }, true, "CAP_NET_RAW is missing", "AmbientCapabilities"},
		{"no CAP_BPF", func(f *Facts) { f.BPF = false }, true, "CAP_BPF is missing", "run as root"},
		{"little memory", func(f *Facts) { f.IPCLock, f.Memlock = false, 8<<20 }, true, "limit of locked memory is 8388608", "LimitMEMLOCK=infinity"},
		// Two workers, with 8192 buffers for rings, 512 and 4096 for queues and 1000 to hold.
		{"not quite enough memory", func(f *Facts) { f.IPCLock, f.Memlock = false, 2*2048*(8192+512+4096+1000)-1 }, true, "packet buffers need 56524800", "LimitMEMLOCK=infinity"},
		{"enough memory", func(f *Facts) { f.IPCLock, f.Memlock = false, 2*2048*(8192+512+4096+1000) }, false, "", ""},
		{"no interface", func(f *Facts) { delete(f.Ports, "eth3") }, true, "eth3 does not exist", "ip link"},
		{"MTU too small", port("eth1", func(p *PortFacts) { p.MTU = 1549 }), true, "uplink eth1 has MTU 1549, and needs 1550", "ip link set dev eth1 mtu 1550"},
		{"MTU too large", port("eth1", func(p *PortFacts) { p.MTU = 9000 }), true, "eth1 has MTU 9000", "ip link set dev eth1 mtu"},
		{"too few queues", port("eth1", func(p *PortFacts) { p.RXQueues = 1 }), true, "each worker needs one", "ethtool -L eth1 combined 2"},
		{"too many queues", port("eth3", func(p *PortFacts) { p.RXQueues = 8 }), true, "would not be forwarded", "workers: 8"},
		{"too few transmit queues", port("eth3", func(p *PortFacts) { p.TXQueues = 1 }), true, "1 transmit queues for 2", "ethtool -L eth3"},
		{"XDP in use", port("eth1", func(p *PortFacts) { p.XDP = 42 }), true, "already carries XDP program 42", "xdp off"},
		{"tags hidden", port("eth3", func(p *PortFacts) {
			p.TagsHidden, p.TagsFix = "eth3 strips VLAN tags (rxvlan)", "ethtool -K eth3 rxvlan off"
		}), false, "eth3 has VLANs, and eth3 strips VLAN tags", "ethtool -K eth3 rxvlan off"},
		{"tags hidden where none are used", port("eth1", func(p *PortFacts) { p.TagsHidden = "eth1 strips VLAN tags" }), false, "", ""},
		{"no VTEP", func(f *Facts) { f.State.Addresses = nil }, false, "VTEP 10.255.0.1 is not an address", "ip addr add 10.255.0.1/32 dev lo"},
		{"an uplink of unknown speed", port("eth1", func(p *PortFacts) { p.Speed = 0 }), false, "the speed of eth1 is unknown", "link_rate: 10Gbit"},
		{"a link that is down has no speed", port("eth1", func(p *PortFacts) { p.Speed, p.Up = 0, false }), false, "", ""},
		{"a bond", port("eth1", func(p *PortFacts) { p.Bond, p.Members = true, []string{"eth4", "eth5"} }), true, "eth1 is a bond",
			"list the members as ports, each taken out of the bond: ip link set dev eth4 nomaster; ip link set dev eth5 nomaster"},
		{"an empty bond", port("eth3", func(p *PortFacts) { p.Bond = true }), true, "eth3 is a bond", "`ip link show master eth3` names them"},
		{"an IPv4 address on an access port", port("eth3", func(p *PortFacts) { p.Addrs = []netip.Prefix{pfx("10.0.0.1/24")} }), false,
			"access port eth3 has the address 10.0.0.1/24", "ip addr del 10.0.0.1/24 dev eth3"},
		{"an address on an uplink", port("eth1", func(p *PortFacts) { p.Addrs, p.AcceptsRA = []netip.Prefix{pfx("10.1.0.1/31"), pfx("fe80::1/64")}, true }), false, "", ""},
		{"IPv6 on an access port", port("eth3", func(p *PortFacts) { p.Addrs = []netip.Prefix{pfx("fe80::1/64"), pfx("fd00::1/64")} }), false,
			"access port eth3 has IPv6 addresses", "sysctl -w net/ipv6/conf/eth3/disable_ipv6=1"},
		{"router advertisements", port("eth3", func(p *PortFacts) { p.Addrs, p.AcceptsRA = []netip.Prefix{pfx("fe80::1/64")}, true }), false,
			"access port eth3 accepts router advertisements", "sysctl -w net/ipv6/conf/eth3/disable_ipv6=1"},
		{"no route to a peer", func(f *Facts) { f.State.Routes = nil }, false, "no route leads to peer 10.255.0.2", "ip route get 10.255.0.2"},
		{"the uplink to a peer is down", func(f *Facts) { f.State.Links[0].Up = false }, false, "no route leads to peer 10.255.0.2", "ip link"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := goodFacts()
			tc.change(f)
			got := Check(checkConfig(), checkOverlay(), f)
			if tc.problem == "" {
				if len(got) != 0 {
					t.Errorf("findings %v", got)
				}
				return
			}
			if len(got) != 1 || got[0].Fatal != tc.fatal || got[0].Place == "" || !strings.Contains(got[0].Problem, tc.problem) || !strings.Contains(got[0].Fix, tc.fix) {
				t.Errorf("findings %+v, want fatal=%v %q, %q", got, tc.fatal, tc.problem, tc.fix)
			}
		})
	}
}

// Tags that XDP does not see are fatal where a tagged frame would be one of another
// network.
func TestCheckOfHiddenTags(t *testing.T) {
	vlans := map[uint16]uint32{10: 100}
	for _, tc := range []struct {
		port    config.Access
		fatal   bool
		problem string // "" when nothing is wrong
	}{
		{config.Access{VNI: 200, VLANs: vlans}, true, "eth3 has VNI 200 for untagged frames besides those of its VLANs, and eth3 strips tags: VLANs' frames would look untagged, and end in VNI 200"},
		{config.Access{VLANs: vlans}, false, "eth3 has VLANs, and eth3 strips tags"},
		{config.Access{VNI: 200, Transparent: true}, false, "eth3 is transparent, and eth3 strips tags"},
		{config.Access{VNI: 200}, false, ""},
	} {
		c, f := checkConfig(), goodFacts()
		o := checkOverlay()
		tc.port.Interface = "eth3"
		o.Access[0] = tc.port
		p := f.Ports["eth3"]
		p.TagsHidden, p.TagsFix = "eth3 strips tags", "turn it off"
		f.Ports["eth3"] = p
		got := Check(c, o, f)
		if tc.problem == "" && len(got) != 0 ||
			tc.problem != "" && (len(got) != 1 || got[0].Fatal != tc.fatal || !strings.Contains(got[0].Problem, tc.problem) || got[0].Fix != "turn it off") {
			t.Errorf("%+v: findings %v, want fatal=%v %q", tc.port, got, tc.fatal, tc.problem)
		}
	}
}

// A veth's tags are read in native mode; in generic mode they may be hidden.
func TestGatherTags(t *testing.T) {
	testenv.NeedRoot(t)
	a, b := testenv.NewNamespace(t, "ctl-facts"), testenv.NewNamespace(t, "ctl-facts")
	testenv.VethPair(t, a, "eth3", b, "eth0", testenv.VethOptions{})
	testenv.VethPair(t, a, "eth1", b, "eth1", testenv.VethOptions{})
	a.Do(t, func() {
		for mode, hidden := range map[dataplane.XDPMode]bool{dataplane.XDPAuto: false, dataplane.XDPNative: false, dataplane.XDPGeneric: true} {
			c := checkConfig()
			c.XDPMode = mode
			f, err := Gather(c)
			if err != nil {
				t.Fatal(err)
			}
			if p := f.Ports["eth3"]; (p.TagsHidden != "") != hidden || (p.TagsFix != "") != hidden {
				t.Errorf("mode %d: eth3 %+v", mode, p)
			}
			if p := f.Ports["eth1"]; p.TagsHidden != "" {
				t.Errorf("mode %d: uplink eth1 %+v", mode, p)
			}
		}
	})
}

func TestGather(t *testing.T) {
	testenv.NeedRoot(t)
	a, b := testenv.NewNamespace(t, "ctl-facts"), testenv.NewNamespace(t, "ctl-facts")
	testenv.VethPair(t, a, "eth1", b, "eth1", testenv.VethOptions{Queues: 3, MTU: 1777})
	run(t, a, "ip addr add 10.255.0.1/32 dev lo")
	a.Do(t, func() {
		f, err := Gather(checkConfig())
		if err != nil {
			t.Fatal(err)
		}
		if p := f.Ports["eth1"]; p.MTU != 1777 || !p.Up || p.Speed != 10e9 || p.RXQueues != 3 || p.TXQueues != 3 || p.XDP != 0 {
			t.Errorf("eth1: %+v", p)
		}
		if _, ok := f.Ports["eth3"]; ok {
			t.Error("eth3 exists")
		}
		if !f.NetAdmin || !f.NetRaw || !f.BPF || len(f.State.Addresses) != 3 { // that, and two of lo's own
			t.Errorf("facts %+v", f)
		}
		names, err := Interfaces()
		if err != nil || len(names) != 2 {
			t.Errorf("interfaces %v, %v", names, err)
		}
	})
}

// ConWeave's shim makes packets 4 bytes longer, whichever class uses it.
func TestCheckCountsTheShim(t *testing.T) {
	for _, tc := range []struct {
		scheme  string
		classes []dataplane.Class
		mtu     int
		problem string
	}{
		{"conga", nil, 1550, ""},
		{"conweave", nil, 1554, ""},
		{"conweave", nil, 1553, "uplink eth1 has MTU 1553, and needs 1554 for the 1500 of access port eth3 and 54 bytes of VXLAN with the shim of conweave"},
		{"ecmp", []dataplane.Class{{Protocol: 17, Scheme: "conweave-informed"}}, 1550, "needs 1554"},
	} {
		c, f := checkConfig(), goodFacts()
		c.Scheme, c.Classes = tc.scheme, tc.classes
		p := f.Ports["eth1"]
		p.MTU = tc.mtu
		f.Ports["eth1"] = p
		got := Check(c, checkOverlay(), f)
		if tc.problem == "" {
			if len(got) != 0 {
				t.Errorf("%s, MTU %d: %v", tc.scheme, tc.mtu, got)
			}
			continue
		}
		if len(got) != 1 || !got[0].Fatal || !strings.Contains(got[0].Problem, tc.problem) || !strings.Contains(got[0].Fix, "mtu 1554") {
			t.Errorf("%s, MTU %d: %v, want %q", tc.scheme, tc.mtu, got, tc.problem)
		}
	}
}

// Who knows a link's speed otherwise need not ask the kernel.
func TestCheckTakesConfiguredSpeed(t *testing.T) {
	f := goodFacts()
	p := f.Ports["eth1"]
	p.Speed = 0
	f.Ports["eth1"] = p
	for _, e := range []dataplane.EgressConfig{{LinkRate: 1e9}, {Rate: 1e9}} {
		c := checkConfig()
		c.Ports[0].Egress = e
		if got := Check(c, checkOverlay(), f); len(got) != 0 {
			t.Errorf("%+v: findings %v", e, got)
		}
	}
}

// An access port may wait for its interface, unless the file says otherwise.
func TestCheckOfAbsentPort(t *testing.T) {
	c, f := checkConfig(), goodFacts()
	c.Ports[1].Optional = true
	delete(f.Ports, "eth3")
	got := Check(c, checkOverlay(), f)
	if len(got) != 1 || got[0].Fatal || got[0].Place != "eth3" || !strings.Contains(got[0].Problem, "opens when it appears") || !strings.Contains(got[0].Fix, "required: true") {
		t.Errorf("findings %+v", got)
	}
}

func TestBondOf(t *testing.T) {
	named := func(name string, index, master int) netlink.LinkAttrs {
		return netlink.LinkAttrs{Name: name, Index: index, MasterIndex: master}
	}
	links := []netlink.Link{
		netlink.NewLinkBond(named("bond0", 3, 0)), &netlink.Device{LinkAttrs: named("eth4", 4, 3)}, &netlink.Device{LinkAttrs: named("eth5", 5, 3)},
		&netlink.GenericLink{LinkAttrs: named("team0", 6, 0), LinkType: "team"}, &netlink.Bridge{LinkAttrs: named("br0", 7, 0)},
	}
	for i, want := range []struct {
		bond    bool
		members []string
	}{{true, []string{"eth4", "eth5"}}, {}, {}, {true, nil}, {}} {
		if bond, members := bondOf(links[i], links); bond != want.bond || !slices.Equal(members, want.members) {
			t.Errorf("%s: %v, %v", links[i].Attrs().Name, bond, members)
		}
	}
}

// What comes in by one port of a spine has to go out by another.
func TestCheckOfSpineMTU(t *testing.T) {
	c := &dataplane.Config{Role: dataplane.Spine, Workers: 2, RingSize: 256, Ports: []dataplane.PortConfig{
		{Name: "eth1", Kind: dataplane.SpinePort, Egress: dataplane.EgressConfig{LinkRate: 1e9}},
		{Name: "eth3", Kind: dataplane.SpinePort, Egress: dataplane.EgressConfig{LinkRate: 1e9}},
	}}
	got := Check(c, nil, goodFacts())
	if len(got) != 1 || got[0].Fatal || got[0].Place != "eth3" || !strings.Contains(got[0].Problem, "has MTU 1500, and packets of 1550 may come in by port eth1") ||
		got[0].Fix != "ip link set dev eth3 mtu 1550" {
		t.Errorf("findings %+v", got)
	}
}

// TestCheckOfFailOpen: what fails open fails into a bridge.
func TestCheckOfFailOpen(t *testing.T) {
	c, f := checkConfig(), goodFacts()
	c.Ports[1].FailOpen = true
	got := Check(c, checkOverlay(), f)
	if len(got) != 1 || !got[0].Fatal || !strings.Contains(got[0].Problem, "eth3 is `fail: open` and no port of a bridge") {
		t.Errorf("findings %+v", got)
	}
	p := f.Ports["eth3"]
	p.Bridged = true
	f.Ports["eth3"] = p
	if got := Check(c, checkOverlay(), f); len(got) != 0 {
		t.Errorf("in a bridge: findings %+v", got)
	}
}

// TestGatherTrust: addresses, router advertisements and bridges as the kernel has them.
func TestGatherTrust(t *testing.T) {
	testenv.NeedRoot(t)
	a, b := testenv.NewNamespace(t, "ctl-trust"), testenv.NewNamespace(t, "ctl-trust")
	testenv.VethPair(t, a, "eth1", b, "eth1", testenv.VethOptions{})
	testenv.VethPair(t, a, "eth3", b, "eth3", testenv.VethOptions{})
	gather := func() (x PortFacts) {
		t.Helper()
		a.Do(t, func() {
			f, err := Gather(checkConfig())
			if err != nil {
				t.Fatal(err)
			}
			x = f.Ports["eth3"]
		})
		return x
	}
	if x := gather(); len(x.Addrs) != 0 || x.AcceptsRA || x.Bridged {
		t.Errorf("a bare port: %+v", x)
	}
	run(t, a, "ip link add br0 type bridge")
	run(t, a, "ip link set dev eth3 master br0")
	run(t, a, "ip addr add 10.0.0.1/24 dev eth3")
	a.Sysctl(t, "net/ipv6/conf/eth3/disable_ipv6", "0")
	run(t, a, "ip addr add fd00::1/64 dev eth3 nodad")
	x := gather()
	if !slices.Contains(x.Addrs, pfx("10.0.0.1/24")) || !slices.Contains(x.Addrs, pfx("fd00::1/64")) || !x.AcceptsRA || !x.Bridged {
		t.Errorf("a port in a bridge: %+v", x)
	}
	a.Sysctl(t, "net/ipv6/conf/eth3/accept_ra", "0")
	run(t, a, "ip link set dev eth3 nomaster")
	if x := gather(); x.AcceptsRA || x.Bridged {
		t.Errorf("out of the bridge, without router advertisements: %+v", x)
	}
}

// Not every kernel has VLAN interfaces to try it with.
func TestBridged(t *testing.T) {
	named := func(name string, index, master, parent int) netlink.LinkAttrs {
		return netlink.LinkAttrs{Name: name, Index: index, MasterIndex: master, ParentIndex: parent}
	}
	links := []netlink.Link{
		&netlink.Bridge{LinkAttrs: named("br0", 1, 0, 0)}, &netlink.Vrf{LinkAttrs: named("vrf0", 2, 0, 0)}, &netlink.Vlan{LinkAttrs: named("eth3.20", 3, 1, 13)},
		&netlink.Vlan{LinkAttrs: named("eth4.20", 4, 2, 14)}, &netlink.Macvlan{LinkAttrs: named("mac0", 5, 1, 15)},
	}
	for _, tc := range []struct {
		link netlink.LinkAttrs
		want bool
	}{
		{named("a port", 10, 1, 0), true}, {named("in a VRF", 11, 2, 0), false}, {named("alone", 12, 0, 0), false},
		{named("with a VLAN in the bridge", 13, 0, 0), true}, {named("with a VLAN in a VRF", 14, 0, 0), false}, {named("with a macvlan in the bridge", 15, 0, 0), false},
	} {
		if got := bridged(&tc.link, links); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.link.Name, got, tc.want)
		}
	}
}
