package control

import (
	"encoding/binary"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/overlay"
)

// message builds a netlink message's body: a fixed header, then attributes.
type message []byte

func (m message) attr(kind uint16, value ...byte) message {
	m = binary.NativeEndian.AppendUint16(m, uint16(unix.SizeofRtAttr+len(value)))
	m = append(binary.NativeEndian.AppendUint16(m, kind), value...)
	for len(m)%4 != 0 {
		m = append(m, 0)
	}
	return m
}

func (m message) num(kind uint16, value uint32) message {
	return m.attr(kind, binary.NativeEndian.AppendUint32(nil, value)...)
}

func (m message) ip(kind uint16, a string) message { return m.attr(kind, addr(a).AsSlice()...) }

// routeMessage is of a route to 10.255.0.2/32 in the main table.
func routeMessage(kind byte, flags uint32) message {
	m := message{unix.AF_INET, 32, 0, 0, unix.RT_TABLE_MAIN, unix.RTPROT_BGP, 0, kind}
	return message(binary.NativeEndian.AppendUint32(m, flags)).ip(unix.RTA_DST, "10.255.0.2")
}

// route6Message is of a route to 2001:db8::2, or a prefix of it, in the main table.
func route6Message(bits, kind byte, flags uint32) message {
	m := message{unix.AF_INET6, bits, 0, 0, unix.RT_TABLE_MAIN, unix.RTPROT_BGP, 0, kind}
	return message(binary.NativeEndian.AppendUint32(m, flags)).ip(unix.RTA_DST, "2001:db8::2")
}

// hopMessage is a struct rtnexthop with attributes.
func hopMessage(flags, hops byte, ifindex uint32, attrs message) message {
	m := binary.NativeEndian.AppendUint16(nil, uint16(rtHopLen+len(attrs)))
	m = binary.NativeEndian.AppendUint32(append(m, flags, hops), ifindex)
	return append(m, attrs...)
}

// objectMessage is a struct nhmsg with an ID.
func objectMessage(id, flags uint32) message {
	m := message{unix.AF_INET, 0, 0, 0}
	return message(binary.NativeEndian.AppendUint32(m, flags)).num(nhaID, id)
}

// memberMessage is a struct nexthop_grp.
func memberMessage(id uint32, weight uint16) message {
	m := binary.NativeEndian.AppendUint32(nil, id)
	return append(m, byte(weight-1), byte((weight-1)>>8), 0, 0)
}

var routeMessages = []struct {
	name string
	msg  message
	want rawRoute
	not  bool
}{
	{"one hop", routeMessage(unix.RTN_UNICAST, 0).num(unix.RTA_OIF, 7).ip(unix.RTA_GATEWAY, "10.1.0.1").num(unix.RTA_PRIORITY, 20),
		rawRoute{table: 254, Route: Route{Dst: pfx("10.255.0.2/32"), Metric: 20, Hops: []NextHop{hop(7, "10.1.0.1")}}}, false},
	{"on the link, and down", routeMessage(unix.RTN_UNICAST, unix.RTNH_F_LINKDOWN).num(unix.RTA_OIF, 7),
		rawRoute{table: 254, Route: Route{Dst: pfx("10.255.0.2/32"), Hops: []NextHop{{Ifindex: 7, Dead: true}}}}, false},
	{"BGP unnumbered", routeMessage(unix.RTN_UNICAST, 0).num(unix.RTA_OIF, 7).attr(rtaVia, append([]byte{unix.AF_INET6, 0}, addr("fe80::1").AsSlice()...)...),
		rawRoute{table: 254, Route: Route{Dst: pfx("10.255.0.2/32"), Hops: []NextHop{hop(7, "fe80::1")}}}, false},
	{"several", routeMessage(unix.RTN_UNICAST, 0).attr(unix.RTA_MULTIPATH, append(hopMessage(0, 4, 7, message{}.ip(unix.RTA_GATEWAY, "10.1.0.1")),
		hopMessage(unix.RTNH_F_DEAD, 0, 8, message{}.attr(rtaVia, append([]byte{unix.AF_INET6, 0}, addr("fe80::1").AsSlice()...)...).attr(rtaEncapType, 1, 0))...)...),
		rawRoute{table: 254, Route: Route{Dst: pfx("10.255.0.2/32"), Hops: []NextHop{
			{Ifindex: 7, Gateway: addr("10.1.0.1"), Weight: 5}, {Ifindex: 8, Gateway: addr("fe80::1"), Weight: 1, Dead: true, Encap: 1},
		}}}, false},
	{"an object's ID alone", routeMessage(unix.RTN_UNICAST, 0).num(rtaNexthopID, 87),
		rawRoute{table: 254, nexthop: 87, Route: Route{Dst: pfx("10.255.0.2/32")}}, false},
	{"an encapsulation", routeMessage(unix.RTN_UNICAST, 0).num(unix.RTA_OIF, 7).ip(unix.RTA_GATEWAY, "10.1.0.1").attr(rtaEncapType, 2, 0).attr(0x8000|22, 1, 2, 3),
		rawRoute{table: 254, Route: Route{Dst: pfx("10.255.0.2/32"), Hops: []NextHop{{Ifindex: 7, Gateway: addr("10.1.0.1"), Encap: 2}}}}, false},
	{"throw", routeMessage(unix.RTN_THROW, 0), rawRoute{table: 254, Route: Route{Dst: pfx("10.255.0.2/32"), Reject: true}}, false},
	{"a VRF's", routeMessage(unix.RTN_BLACKHOLE, 0).num(unix.RTA_TABLE, 1001), rawRoute{table: 1001, Route: Route{Dst: pfx("10.255.0.2/32"), Reject: true}}, false},
	{"for one TOS", func() message { m := routeMessage(unix.RTN_THROW, 0); m[3] = 8; return m }(),
		rawRoute{table: 254, fewer: true, Route: Route{Dst: pfx("10.255.0.2/32"), Reject: true}}, false},
	{"local", routeMessage(unix.RTN_LOCAL, 0), rawRoute{}, true},
	{"of IPv6", route6Message(128, unix.RTN_UNICAST, 0).num(unix.RTA_OIF, 7).ip(unix.RTA_GATEWAY, "fe80::1").num(unix.RTA_PRIORITY, 1024),
		rawRoute{table: 254, Route: Route{Dst: pfx("2001:db8::2/128"), Metric: 1024, Hops: []NextHop{hop(7, "fe80::1")}}}, false},
	{"several of IPv6", route6Message(64, unix.RTN_UNICAST, 0).attr(unix.RTA_MULTIPATH, append(hopMessage(0, 0, 7, message{}.ip(unix.RTA_GATEWAY, "fe80::1")),
		hopMessage(unix.RTNH_F_LINKDOWN, 1, 8, message{}.ip(unix.RTA_GATEWAY, "2001:db8:1::1"))...)...),
		rawRoute{table: 254, Route: Route{Dst: pfx("2001:db8::/64"), Hops: []NextHop{
			{Ifindex: 7, Gateway: addr("fe80::1"), Weight: 1}, {Ifindex: 8, Gateway: addr("2001:db8:1::1"), Weight: 2, Dead: true},
		}}}, false},
	{"a default route of IPv6", message{unix.AF_INET6, 0, 0, 0, unix.RT_TABLE_MAIN, 0, 0, unix.RTN_UNREACHABLE, 0, 0, 0, 0},
		rawRoute{table: 254, Route: Route{Dst: pfx("::/0"), Reject: true}}, false},
	{"a copy of IPv6 that a lookup made", route6Message(128, unix.RTN_UNICAST, unix.RTM_F_CLONED).num(unix.RTA_OIF, 7),
		rawRoute{table: 254, fewer: true, Route: Route{Dst: pfx("2001:db8::2/128"), Hops: []NextHop{{Ifindex: 7}}}}, false},
	{"anycast of IPv6", route6Message(128, unix.RTN_ANYCAST, 0), rawRoute{}, true},
	{"of MPLS", message{unix.AF_MPLS, 20, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0}, rawRoute{}, true},
	{"a prefix of IPv6 that is too long", message{unix.AF_INET6, 129, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0}, rawRoute{}, true},
	{"a prefix that is too long", message{unix.AF_INET, 33, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0}, rawRoute{}, true},
	{"cut off", message{unix.AF_INET, 32, 0}, rawRoute{}, true},
}

func sameRoute(a, b Route) bool {
	return a.Dst == b.Dst && a.Metric == b.Metric && a.Reject == b.Reject && slices.Equal(a.Hops, b.Hops)
}

func TestParseRoute(t *testing.T) {
	for _, c := range routeMessages {
		got, ok := parseRoute(c.msg)
		if ok == c.not {
			t.Errorf("%s: taken %v", c.name, ok)
		}
		if ok && (!sameRoute(got.Route, c.want.Route) || got.table != c.want.table || got.nexthop != c.want.nexthop || got.fewer != c.want.fewer) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

var objectMessages = []message{
	objectMessage(1, 0).num(nhaOIF, 7).ip(nhaGateway, "10.1.0.1"),
	objectMessage(2, unix.RTNH_F_LINKDOWN).num(nhaOIF, 8).ip(nhaGateway, "fe80::1"),
	objectMessage(3, 0).attr(nhaBlackhole),
	objectMessage(4, 0).ip(nhaGateway, "192.0.2.1").attr(nhaFDB),
	objectMessage(5, 0).num(nhaOIF, 9).ip(nhaGateway, "10.1.2.1").attr(nhaEncapType, 1, 0),
	objectMessage(10, 0).attr(nhaGroup, append(memberMessage(1, 5), memberMessage(2, 256)...)...),
	objectMessage(11, 0).attr(nhaGroup, memberMessage(3, 1)...),
	objectMessage(12, 0).attr(nhaGroup, append(append(memberMessage(1, 300), memberMessage(4, 1)...), memberMessage(10, 1)...)...),
	objectMessage(13, 0).attr(nhaGroup, append(memberMessage(1, 1), memberMessage(99, 1)...)...),
	objectMessage(14, 0).attr(nhaGroup, memberMessage(5, 1)...),
	objectMessage(15, 0).attr(nhaGroup),
}

func TestResolveNexthops(t *testing.T) {
	all := make(nexthops)
	for _, m := range objectMessages {
		if id, n, ok := parseNexthop(m); ok {
			all[id] = n
		}
	}
	one, two := NextHop{Ifindex: 7, Gateway: addr("10.1.0.1")}, NextHop{Ifindex: 8, Gateway: addr("fe80::1"), Dead: true}
	weighted := func(h NextHop, w uint16) NextHop { h.Weight = w; return h }
	for _, c := range []struct {
		name   string
		id     uint32
		reject bool
		hops   []NextHop
		gone   bool
	}{
		{"a hop", 1, false, []NextHop{one}, false},
		{"a hop whose link is down", 2, false, []NextHop{two}, false},
		{"nowhere", 3, true, nil, false},
		{"a VTEP", 4, false, nil, false},
		{"a group", 10, false, []NextHop{weighted(one, 5), weighted(two, 256)}, false},
		{"a group of nowhere", 11, true, nil, false},
		{"members that are no hops", 12, false, []NextHop{weighted(one, 300)}, false},
		{"a member that does not exist", 13, false, nil, true},
		{"an encapsulation", 14, false, []NextHop{{Ifindex: 9, Gateway: addr("10.1.2.1"), Encap: 1, Weight: 1}}, false},
		{"no member", 15, false, nil, false},
		{"none that exists", 98, false, nil, true},
	} {
		// What the kernel spells out in the route does not count.
		r := rawRoute{nexthop: c.id, Route: Route{Dst: pfx("10.255.0.2/32"), Hops: []NextHop{hop(1, "192.0.2.9")}}}
		if ok := all.resolve(&r); ok == c.gone {
			t.Errorf("%s: resolved %v", c.name, ok)
		}
		if want := (Route{Dst: r.Dst, Reject: c.reject, Hops: c.hops}); !c.gone && !sameRoute(r.Route, want) {
			t.Errorf("%s: %+v, want %+v", c.name, r.Route, want)
		}
	}
	plain := rawRoute{Route: Route{Hops: []NextHop{one}}}
	if !nexthops(nil).resolve(&plain) || len(plain.Hops) != 1 {
		t.Errorf("a route without an object became %+v", plain)
	}
}

var neighbourMessages = []message{
	neighbourMessage(unix.AF_INET, unix.NUD_REACHABLE, 0).ip(ndaDst, "10.1.0.1").attr(ndaLLAddr, 2, 0, 0, 0, 0, 9),
	neighbourMessage(unix.AF_INET6, unix.NUD_STALE, 0).ip(ndaDst, "fe80::1").attr(ndaLLAddr, 2, 0, 0, 0, 0, 9),
	neighbourMessage(unix.AF_INET, unix.NUD_FAILED, 0).ip(ndaDst, "10.1.0.1"),
	neighbourMessage(unix.AF_BRIDGE, unix.NUD_REACHABLE, 0).attr(ndaLLAddr, 2, 0, 0, 0, 0, 9),
	neighbourMessage(unix.AF_INET, unix.NUD_REACHABLE, unix.NTF_PROXY).ip(ndaDst, "10.1.0.1"),
	neighbourMessage(unix.AF_INET, unix.NUD_REACHABLE, 0),
}

func neighbourMessage(family byte, state uint16, flags byte) message {
	m := binary.NativeEndian.AppendUint32(message{family, 0, 0, 0}, 7)
	m = binary.NativeEndian.AppendUint16(m, state)
	return append(m, flags, 1)
}

func TestParseNeighbour(t *testing.T) {
	host := overlay.MAC{2, 0, 0, 0, 0, 9}
	want := []Neighbour{
		{Ifindex: 7, Addr: addr("10.1.0.1"), MAC: host, Usable: true},
		{Ifindex: 7, Addr: addr("fe80::1"), MAC: host, Usable: true, Stale: true},
		{Ifindex: 7, Addr: addr("10.1.0.1")},
	}
	for i, m := range neighbourMessages {
		got, ok := parseNeighbour(m)
		if ok != (i < len(want)) || ok && got != want[i] {
			t.Errorf("message %d: %+v, taken %v", i, got, ok)
		}
	}
}

// FuzzNetlink: whatever comes, parsers say something that can be used.
func FuzzNetlink(f *testing.F) {
	for _, c := range routeMessages {
		f.Add([]byte(c.msg))
	}
	for _, m := range slices.Concat(objectMessages, neighbourMessages) {
		f.Add([]byte(m))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, ok := parseRoute(b); ok {
			if !r.Dst.IsValid() || r.Dst != r.Dst.Masked() || r.Reject && len(r.Hops) > 0 {
				t.Errorf("route %+v", r)
			}
		}
		if id, n, ok := parseNexthop(b); ok {
			r := rawRoute{nexthop: id}
			nexthops{id: n}.resolve(&r)
			if r.Reject && len(r.Hops) > 0 {
				t.Errorf("object %+v makes %+v", n, r)
			}
		}
		if n, ok := parseNeighbour(b); ok && (!n.Addr.IsValid() || n.Usable && n.MAC.IsZero()) {
			t.Errorf("neighbour %+v", n)
		}
	})
}

// The tables of VRFs, which this package finds by what links say of each other.
func TestTableOf(t *testing.T) {
	links := []Link{
		{Index: 1, Name: "lo", Loopback: true},
		{Index: 2, Name: "underlay", Kind: "vrf", Table: 1001},
		{Index: 3, Name: "tenant", Kind: "vrf", Table: 1002},
		{Index: 4, Name: "up0", Master: 2},
		{Index: 5, Name: "bond0", Kind: "bond", Master: 2},
		{Index: 6, Name: "up1", Master: 5},
		{Index: 7, Name: "br0", Kind: "bridge"},
		{Index: 8, Name: "host", Master: 7},
		{Index: 9, Name: "a", Master: 10},
		{Index: 10, Name: "b", Master: 9},
	}
	for index, want := range map[int]uint32{1: 254, 2: 1001, 3: 1002, 4: 1001, 5: 1001, 6: 1001, 7: 254, 8: 254, 9: 254, 99: 254} {
		if got := tableOf(links, index); got != want {
			t.Errorf("interface %d: table %d, want %d", index, got, want)
		}
	}
	for _, c := range []struct {
		name  string
		vtep  int
		ports []string
		want  uint32
	}{
		{"the VTEP is on lo", 1, []string{"up0"}, 254},
		{"the VTEP is on the VRF's own device", 2, nil, 1001},
		{"the VTEP is on an uplink in a VRF", 4, []string{"host"}, 1001},
		{"nobody has the VTEP", 0, []string{"host", "up0"}, 1001},
		{"a spine whose ports are in no VRF", 0, []string{"host"}, 254},
	} {
		if got := underlayTable(links, c.vtep, c.ports); got != c.want {
			t.Errorf("%s: table %d, want %d", c.name, got, c.want)
		}
	}
}
