package bridge

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/overlay"
)

// stateOf returns the state of a machine with these links.
func stateOf(links ...Link) *State {
	s := NewState()
	for _, l := range links {
		s.Links[l.Index] = &l
	}
	return s
}

// with returns a link that was changed.
func with(l Link, change func(*Link)) Link {
	if l.Member != nil {
		m := *l.Member
		l.Member = &m
	}
	if l.VXLAN != nil {
		x := *l.VXLAN
		l.VXLAN = &x
	}
	if l.Bridge != nil {
		b := *l.Bridge
		l.Bridge = &b
	}
	l.VLANs = slices.Clone(l.VLANs)
	change(&l)
	return l
}

// words says what a model has in a line or two.
func words(m *Model) string {
	var b strings.Builder
	for _, d := range m.Domains {
		fmt.Fprintf(&b, "%d=%s", d.VNI, d.BridgeName)
		if d.VLAN != 0 {
			fmt.Fprintf(&b, ".%d", d.VLAN)
		}
		fmt.Fprintf(&b, "/%s ", d.DeviceName)
	}
	for _, p := range m.Ports {
		fmt.Fprintf(&b, "%s", p.Name)
		for _, v := range p.VLANs {
			fmt.Fprintf(&b, " %d:%d", v.Tag, v.VNI)
		}
		b.WriteString(" ")
	}
	for _, l := range m.Left {
		fmt.Fprintf(&b, "-%s:%s ", l.Name, l.Reason)
	}
	return strings.TrimSpace(b.String())
}

func vlanLink(index int, name string, lower int, id uint16, bridge int) Link {
	l := member(index, name, "vlan", bridge)
	l.Lower, l.VLAN, l.Protocol = lower, id, ethVLAN
	if bridge == 0 {
		l.Member = nil
	}
	return l
}

func external(l Link, tunnels ...TunnelRange) Link {
	return with(l, func(l *Link) { l.VXLAN.External, l.Member.Tunnel, l.Tunnels = true, true, tunnels })
}

func TestDerive(t *testing.T) {
	plain := []Link{bridgeLink(1, "br1", false), vxlanMember(2, "vx", 1, 100), member(3, "a", "veth", 1)}
	aware := []Link{
		bridgeLink(1, "br", true), vxlanMember(2, "vx20", 1, 200, VLANRange{20, 20, true, true}), vxlanMember(3, "vx21", 1, 201, VLANRange{21, 21, true, true}),
		member(4, "a", "veth", 1, VLANRange{20, 20, true, true}, VLANRange{First: 21, Last: 22}),
	}
	single := []Link{
		bridgeLink(1, "br", true), external(vxlanMember(2, "svd", 1, 0, VLANRange{First: 30, Last: 39}), TunnelRange{30, 32, 300}, TunnelRange{40, 40, 400}),
		member(4, "a", "veth", 1, VLANRange{30, 30, true, true}, VLANRange{First: 31, Last: 40}),
	}
	// change returns links of which one was changed.
	change := func(links []Link, i int, f func(*Link)) []Link {
		links = slices.Clone(links)
		links[i] = with(links[i], f)
		return links
	}
	for _, c := range []struct {
		name   string
		links  []Link
		adjust func(*State)
		want   string
	}{
		{"a device for each VNI", plain, nil, "100=br1/vx a 0:100"},
		{"a bridge with VLANs", aware, nil, "200=br.20/vx20 201=br.21/vx21 a 0:200 21:201"},
		{"a single device", single, nil, "300=br.30/svd 301=br.31/svd 302=br.32/svd a 0:300 31:301 32:302"},
		{"a single device with a list of VNIs", change(single, 1, func(l *Link) { l.VXLAN.VNIFilter = true }),
			func(s *State) { s.VNIs[2] = VNISet{{300, 301}} }, "300=br.30/svd 301=br.31/svd a 0:300 31:301"},
		{"no bridge", plain[1:], nil, ""},
		{"VLANs that the bridge does not look at", change(plain, 2, func(l *Link) { l.VLANs = []VLANRange{{First: 9, Last: 9}} }), nil, "100=br1/vx a 0:100"},
		{"a VLAN interface", append(plain[:2:2], member(3, "eth", "", 0), vlanLink(4, "eth.7", 3, 7, 1)), nil, "100=br1/vx eth 7:100"},
		{"a VLAN interface, and its interface", append(plain[:3:3], vlanLink(4, "a.7", 3, 7, 5), bridgeLink(5, "br5", false), vxlanMember(6, "vx7", 5, 107)), nil,
			"100=br1/vx 107=br5/vx7 a 0:100 7:107"},
		{"a tag that comes to two bridges", append(aware[:4:4], vlanLink(5, "a.21", 4, 21, 6), bridgeLink(6, "br6", false), vxlanMember(7, "vx7", 6, 107)), nil,
			"107=br6/vx7 200=br.20/vx20 201=br.21/vx21 a 0:200 -a:twice -a.21:twice"},
		{"a tag of 802.1ad", append(plain[:2:2], member(3, "eth", "", 0), with(vlanLink(4, "eth.7", 3, 7, 1), func(l *Link) { l.Protocol = unix.ETH_P_8021AD })), nil,
			"100=br1/vx -eth.7:qinq"},
		{"a VLAN of a VLAN", append(plain[:2:2], member(3, "eth", "", 0), vlanLink(4, "eth.7", 3, 7, 0), vlanLink(5, "eth.7.8", 4, 8, 1)), nil, "100=br1/vx -eth.7.8:kind"},
		{"tags on a VLAN interface", append(aware[:3:3], member(5, "eth", "", 0), with(vlanLink(6, "eth.7", 5, 7, 1), func(l *Link) { l.VLANs = aware[3].VLANs })), nil,
			"200=br.20/vx20 201=br.21/vx21 eth 7:200 -eth.7:qinq"},
		{"a bond", change(plain, 2, func(l *Link) { l.Kind = "bond" }), nil, "100=br1/vx -a:kind"},
		{"untagged one way", change(aware, 3, func(l *Link) { l.VLANs[0].PVID = false }), nil, "200=br.20/vx20 201=br.21/vx21 a 21:201 -a:tags"},
		{"tagged, and the PVID", change(aware, 3, func(l *Link) { l.VLANs = []VLANRange{{First: 20, Last: 20, PVID: true}} }), nil, "200=br.20/vx20 201=br.21/vx21 a 20:200"},
		{"a VXLAN device with a tagged VLAN", change(aware, 1, func(l *Link) { l.VLANs = []VLANRange{{First: 20, Last: 20}} }), nil, "201=br.21/vx21 a 21:201 -vx20:no_vlan"},
		{"a VLAN that is blocked on a port", change(aware, 3, func(l *Link) { l.Blocked = []VLANState{{First: 21, Last: 30, State: 4}} }), nil, "200=br.20/vx20 201=br.21/vx21 a 0:200 -a:stp"},
		{"a VLAN that is blocked on its VXLAN device", change(aware, 1, func(l *Link) { l.Blocked = []VLANState{{First: 20, Last: 20, State: 2}} }), nil, "201=br.21/vx21 a 21:201 -vx20:stp"},
		{"blocked VLANs that the port is not in", change(aware, 3, func(l *Link) { l.Blocked = []VLANState{{First: 22, Last: 30, State: 4}} }), nil, "200=br.20/vx20 201=br.21/vx21 a 0:200 21:201"},
		{"two devices in a VLAN", append(plain[:3:3], vxlanMember(9, "vx9", 1, 109)), nil, "-vx:twice -vx9:twice"},
		{"a VNI with two tags on a port", append(plain[:3:3], vlanLink(4, "a.7", 3, 7, 1)), nil, "100=br1/vx a 0:100 -a.7:twice"},
		{"a VNI in two bridges", append(plain[:3:3], bridgeLink(7, "br7", false), vxlanMember(9, "vx9", 7, 100)), nil, "-vx:twice -vx9:twice"},
		{"flow-based", change(plain, 1, func(l *Link) { l.VXLAN.External = true }), nil, "-vx:flow_based"},
		{"flow-based on a bridge with VLANs", change(single, 1, func(l *Link) { l.Member.Tunnel = false }), nil, "-svd:flow_based"},
		{"no local address", change(plain, 1, func(l *Link) { l.VXLAN.Local = netip.Addr{} }), nil, "-vx:no_vtep"},
		{"IPv6", change(plain, 1, func(l *Link) { l.VXLAN.Local, l.VXLAN.ZeroChecksum = netip.MustParseAddr("fd00::1"), true }), nil, "100=br1/vx a 0:100"},
		{"IPv6 with checksums", change(plain, 1, func(l *Link) { l.VXLAN.Local = netip.MustParseAddr("fd00::1") }), nil, "-vx:zero_checksum"},
		{"IPv6 of a link", change(plain, 1, func(l *Link) { l.VXLAN.Local, l.VXLAN.ZeroChecksum = netip.MustParseAddr("fe80::1"), true }), nil, "-vx:link_local"},
		{"a VTEP of the other family", change(aware, 2, func(l *Link) { l.VXLAN.Local, l.VXLAN.ZeroChecksum = netip.MustParseAddr("fd00::1"), true }), nil, "200=br.20/vx20 a 0:200 -vx21:other_vtep"},
		{"another VTEP", change(aware, 2, func(l *Link) { l.VXLAN.Local = netip.MustParseAddr("10.0.0.9") }), nil, "200=br.20/vx20 a 0:200 -vx21:other_vtep"},
		{"another UDP port", change(aware, 2, func(l *Link) { l.VXLAN.Port = 8472 }), nil, "200=br.20/vx20 a 0:200 -vx21:other_vtep"},
		{"an extension", change(plain, 1, func(l *Link) { l.VXLAN.Extension = "gbp" }), nil, "-vx:extension"},
		{"VLANs of 802.1ad", change(aware, 0, func(l *Link) { l.Bridge.Protocol = unix.ETH_P_8021AD }), nil, "-br:qinq"},
		{"a spanning tree for each VLAN", change(aware, 0, func(l *Link) { l.Bridge.MST = true }), nil, "-br:mst"},
		{"a bridge that is down", change(plain, 0, func(l *Link) { l.Up = false }), nil, "-br1:down"},
		{"a device that is down", change(plain, 1, func(l *Link) { l.Up = false }), nil, "-vx:down"},
		{"a port that is down", change(plain, 2, func(l *Link) { l.Up = false }), nil, "100=br1/vx -a:down"},
		{"a blocked port", change(plain, 2, func(l *Link) { l.Member.State = 4 }), nil, "100=br1/vx -a:stp"},
		{"a blocked device", change(plain, 1, func(l *Link) { l.Member.State = 4 }), nil, "-vx:stp"},
		{"an isolated port", change(plain, 2, func(l *Link) { l.Member.Isolated = true }), nil, "100=br1/vx -a:isolated"},
		{"a locked port", change(plain, 2, func(l *Link) { l.Member.Locked = true }), nil, "100=br1/vx -a:locked"},
		{"a port that does not learn", change(plain, 2, func(l *Link) { l.Member.Learning = false }), nil, "100=br1/vx -a:not_learning"},
		{"an XDP program", change(plain, 2, func(l *Link) { l.XDP = 9 }), nil, "100=br1/vx -a:xdp"},
		{"an XDP program of our own", change(plain, 2, func(l *Link) { l.XDP = 77 }), nil, "100=br1/vx a 0:100"},
		{"an XDP program below", append(plain[:2:2], with(member(3, "eth", "", 0), func(l *Link) { l.XDP = 9 }), vlanLink(4, "eth.7", 3, 7, 1)), nil, "100=br1/vx -eth:xdp"},
		{"tc", plain, func(s *State) { s.Filters.Qdiscs = map[int]string{3: "clsact"} }, "100=br1/vx -a:tc"},
		{"tc on the VXLAN device", plain, func(s *State) { s.Filters.Qdiscs = map[int]string{2: "clsact"} }, "-vx:tc"},
		{"nftables on the port", plain, func(s *State) { s.Filters.Netdev = map[string]bool{"a": true} }, "100=br1/vx -a:nft_netdev"},
		{"nftables of bridges", plain, func(s *State) { s.Filters.BridgeTables = true }, "-br1:nft_bridge"},
		{"iptables' rules, and no frames for them", plain, func(s *State) { s.Filters.IPChains = true }, "100=br1/vx a 0:100"},
		{"frames for iptables, and no rules", plain, func(s *State) { s.Filters.CallIPTables = true }, "100=br1/vx a 0:100"},
		{"br_netfilter", plain, func(s *State) { s.Filters.IPChains, s.Filters.CallIPTables = true, true }, "-br1:br_netfilter"},
		{"br_netfilter of one bridge", change(plain, 0, func(l *Link) { l.Bridge.Netfilter = true }), func(s *State) { s.Filters.IPChains = true }, "-br1:br_netfilter"},
	} {
		s := stateOf(c.links...)
		if c.adjust != nil {
			c.adjust(s)
		}
		if got := words(Derive(s, nil, func(prog uint32) bool { return prog == 77 })); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

// The VTEP is what most devices have, and stays while one has it: a leaf does not change
// its address because a network comes.
func TestVTEPStays(t *testing.T) {
	other := func(l Link) Link {
		return with(l, func(l *Link) { l.VXLAN.Local = netip.MustParseAddr("10.0.0.9") })
	}
	links := []Link{bridgeLink(1, "br1", false), vxlanMember(2, "vx", 1, 100)}
	ours := func(uint32) bool { return false }
	m := Derive(stateOf(links...), nil, ours)
	for i := range 2 {
		links = append(links, bridgeLink(10+i, fmt.Sprint("b", i), false), other(vxlanMember(20+i, fmt.Sprint("v", i), 10+i, uint32(200+i))))
	}
	if got := Derive(stateOf(links...), nil, ours).VTEP.String(); got != "10.0.0.9" {
		t.Errorf("most devices have 10.0.0.9, and the VTEP is %s", got)
	}
	if got := Derive(stateOf(links...), m, ours).VTEP.String(); got != "10.0.0.1" {
		t.Errorf("the VTEP was 10.0.0.1, which a device has, and is %s", got)
	}
	fixed := &Model{VTEP: netip.MustParseAddr("10.0.0.5"), UDPPort: 4789, fixed: true}
	for range 2 {
		fixed = Derive(stateOf(links...), fixed, ours)
		if fixed.VTEP.String() != "10.0.0.5" || len(fixed.Domains) != 0 || len(fixed.Left) != 3 || fixed.Left[0].Reason != OtherVTEP {
			t.Errorf("the leaf has 10.0.0.5, no device has it, and the model is %+v", fixed)
		}
	}
}

// Addresses of SVIs and of what is on them are the kernel's, in their VLAN.
func TestGateways(t *testing.T) {
	macvlan := with(member(8, "vrrp", "macvlan", 0), func(l *Link) { l.Member, l.Lower, l.MAC = nil, 7, overlay.MAC{0, 0, 0x5e, 0, 1, 1} })
	s := stateOf(bridgeLink(1, "br", true), vxlanMember(2, "vx20", 1, 200, VLANRange{20, 20, true, true}), vxlanMember(3, "vx21", 1, 201, VLANRange{21, 21, true, true}),
		vlanLink(7, "br.20", 1, 20, 0), macvlan)
	m := Derive(s, nil, func(uint32) bool { return false })
	bridge, svi := s.Links[1].MAC, s.Links[7].MAC
	for i, want := range [][]overlay.MAC{{macvlan.MAC, bridge, svi}, {bridge}} {
		if got := m.Domains[i].Gateways; !slices.Equal(got, want) {
			t.Errorf("VNI %d has the gateways %v, want %v", m.Domains[i].VNI, got, want)
		}
	}
	a := newAddresses(s.Links)
	a.setModel(m)
	for _, vlan := range []uint16{20, 21} {
		a.event(&Entry{MAC: macvlan.MAC, VLAN: vlan, Master: 1, Index: 2 + int(vlan-20), Cached: true}, false)
		a.event(&Entry{MAC: macvlan.MAC, Index: 2 + int(vlan-20), DST: netip.MustParseAddr("10.0.0.2"), Cached: true}, false)
	}
	got := a.changes(nil, batch, false)
	if len(got) != 1 || got[0].VNI != 201 {
		t.Errorf("of an address that is a gateway's in VLAN 20 alone there are %v", got)
	}
}

// An event that comes while a dump is under way is newer than what the dump says, even if
// the dump's word is taken later.
func TestEventsAreNewerThanADump(t *testing.T) {
	a := newAddresses(nil)
	a.setModel(Derive(stateOf(bridgeLink(1, "br1", false), vxlanMember(2, "vx", 1, 100), member(3, "a", "veth", 1), member(4, "b", "veth", 1)), nil, func(uint32) bool { return false }))
	host := func(last byte, index int) *Entry {
		return &Entry{MAC: overlay.MAC{2, 0, 0, 0, 0, last}, Master: 1, Index: index, Cached: true}
	}
	a.event(host(1, 3), false)
	a.begin()
	a.event(host(1, 4), false)
	a.event(host(2, 3), true) // which nobody knew
	a.event(host(3, 3), false)
	a.take(host(1, 3), false, true)
	a.take(host(2, 3), false, true)
	a.end(true)
	want := []Change{{100, overlay.MAC{2, 0, 0, 0, 0, 1}, Place{Port: 4}}, {100, overlay.MAC{2, 0, 0, 0, 0, 3}, Place{Port: 3}}}
	if got := a.changes(nil, batch, false); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	a.begin()
	a.take(host(3, 3), false, true)
	a.end(true)
	want = []Change{{VNI: 100, MAC: overlay.MAC{2, 0, 0, 0, 0, 1}}}
	if got := a.changes(nil, batch, false); !slices.Equal(got, want) {
		t.Errorf("after a dump without the first host: got %v, want %v", got, want)
	}
	if n := len(a.near[place{1, 0}]); n != 1 {
		t.Errorf("%d addresses are kept, want 1", n)
	}
}

// The words for what is left to the kernel name the interface.
func TestLeftString(t *testing.T) {
	m := Derive(stateOf(bridgeLink(1, "br1", false), vxlanMember(2, "vx", 1, 100), with(member(3, "swp1", "", 1), func(l *Link) { l.Member.State = 4 })), nil, func(uint32) bool { return false })
	if got, want := m.Left[0].String(), "swp1 is left to the kernel: spanning tree: blocking"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
