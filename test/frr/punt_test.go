package frr

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/loomfabric/loom/internal/testenv"
)

const gatewayMAC = "00:00:5e:00:01:01"

// kinds are the frames that are the kernel's own, and where its bridge hands them on:
// what IEEE 802.1D keeps to one link at the port, the rest at the bridge.
var kinds = []struct {
	name, dst string
	typ       uint16
	header    []byte
	bridge    bool
}{
	{"LLDP", "01:80:c2:00:00:0e", 0x88cc, nil, false},
	{"LACP", "01:80:c2:00:00:02", 0x8809, []byte{1}, false},
	{"BPDU", "01:80:c2:00:00:00", 0x0026, []byte{0x42, 0x42, 3}, false},
	{"802.1X", "01:80:c2:00:00:03", 0x888e, []byte{1, 1}, false},
	{"PVST+", "01:00:0c:cc:cc:cd", 0x0032, []byte{0xaa, 0xaa, 3, 0, 0, 0x0c, 1, 0x0b}, true},
	{"CDP", "01:00:0c:cc:cc:cc", 0x0032, []byte{0xaa, 0xaa, 3, 0, 0, 0x0c, 0x20, 0}, true},
	{"DHCP", "ff:ff:ff:ff:ff:ff", 0x0800, ipv4(17, "0.0.0.0", "255.255.255.255", 0, 68, 0, 67, 0, 8, 0, 0), true},
	{"ARP", "ff:ff:ff:ff:ff:ff", 0x0806, []byte{0, 1, 8, 0, 6, 4, 0, 1, 2, 0x99, 0, 0, 0, 1, 10, 100, 9, 9, 0, 0, 0, 0, 0, 0, 10, 100, 255, 254}, true},
	{"VRRP", "01:00:5e:00:00:12", 0x0800, ipv4(112, "10.100.9.9", "224.0.0.18"), true},
	{"IGMP", "01:00:5e:00:00:16", 0x0800, ipv4(2, "10.100.9.9", "224.0.0.22"), true},
	{"for the gateway", gatewayMAC, 0x0800, ipv4(253, "10.100.9.9", "10.100.255.254"), true},
}

// ipv4 is an IPv4 header, without its length and checksum, and a payload.
func ipv4(protocol byte, src, dst string, payload ...byte) []byte {
	s, d := netip.MustParseAddr(src).As4(), netip.MustParseAddr(dst).As4()
	return slices.Concat([]byte{0x45, 0, 0, 0, 0, 0, 0, 0, 1, protocol, 0, 0}, s[:], d[:], payload)
}

// suppress switches ARP suppression of VNI 100 on all leaves.
func (b *bed) suppress(state string) {
	b.t.Helper()
	for _, n := range b.topo.Leaves {
		b.bridge(n.Name, "link", "set", "dev", "vx-100", "neigh_suppress", state)
	}
}

// punts: what a host sends to the leaf itself, to protocols of its link or to groups
// reaches the leaf's kernel, ten of ten of each kind.
func (b *bed) punts() {
	const src, each = "02:99:00:00:00:01", 10
	w := openWire(b.t, b.ns["h0"], "eth0")
	port, bridge := openWire(b.t, b.ns["L0"], b.host("h0").Port), openWire(b.t, b.ns["L0"], "br-100")
	for _, state := range []string{"off", "on"} {
		b.suppress(state)
		for _, k := range kinds {
			at := port
			if k.bridge {
				at = bridge
			}
			mark := "punt " + state + " " + k.name + " "
			for i := range each {
				w.send(frame(k.dst, src, k.typ, k.header, mark+fmt.Sprint(i)))
				time.Sleep(time.Millisecond)
			}
			eventually(b.t, 5*time.Second, func() string {
				if n, again := at.count(mark); n != each || again > 0 {
					return fmt.Sprintf("suppression %s: %d of %d %s frames reached the kernel, %d twice", state, n, each, k.name, again)
				}
				return ""
			})
		}
	}
}

// bum: broadcast, multicast and unknown unicast reach every other host of the VNI, and
// known unicast reaches its own, each once: from leaf to leaf, whoever forwards there.
func (b *bed) bum() {
	const each = 100
	hosts := []string{"h0", "h1", "h2", "h4"}
	wires := map[string]*wire{}
	for _, h := range hosts {
		wires[h] = openWire(b.t, b.ns[h], "eth0")
		b.speak(h, b.mac(h))
	}
	for leaf := range b.topo.Leaves {
		for _, h := range hosts {
			if at := b.host(h).Leaf; at != leaf {
				b.knows(b.topo.Leaves[leaf].Name, 100, b.mac(h), b.vtep(at))
			}
		}
	}
	for _, state := range []string{"off", "on"} {
		b.suppress(state)
		for _, from := range []string{"h0", "h4"} {
			for _, k := range []struct{ name, dst string }{
				{"broadcast", "ff:ff:ff:ff:ff:ff"}, {"multicast", "01:00:5e:01:02:03"}, {"unknown", "02:99:00:00:00:ff"}, {"known", b.mac("h2")},
			} {
				mark := strings.Join([]string{"bum", state, from, k.name, ""}, " ")
				for i := range each {
					wires[from].send(frame(k.dst, b.mac(from), testType, nil, mark+fmt.Sprint(i)))
					time.Sleep(time.Millisecond)
				}
				want := map[string]int{}
				for _, h := range hosts {
					if h != from && (k.name != "known" || h == "h2") {
						want[h] = each
					}
				}
				eventually(b.t, 5*time.Second, func() string {
					for _, h := range hosts {
						if n, _ := wires[h].count(mark); n != want[h] {
							return fmt.Sprintf("%s got %d of %d frames: %s", h, n, want[h], mark)
						}
					}
					return ""
				})
			}
		}
	}
	time.Sleep(300 * time.Millisecond) // for what comes twice
	for _, h := range hosts {
		if _, again := wires[h].count("bum "); again > 0 {
			b.t.Errorf("%s got %d frames twice", h, again)
		}
	}
}

// suppression: with ARP suppression a leaf answers for a host that it knows the address
// of, and the host is not asked; without, it is.
func (b *bed) suppression() {
	gateway := netip.MustParseAddr("10.100.255.254")
	if out, ok := testenv.Ping(b.t, b.ns["h2"], gateway, 56, 2); !ok { // L1's kernel learns it
		b.t.Fatalf("h2 does not reach its gateway:\n%s", out)
	}
	eventually(b.t, late, func() string {
		if have := b.ip("L0", "neigh", "show", "dev", "br-100"); !strings.Contains(have, b.addr("h2").String()+" lladdr "+b.mac("h2")) {
			return "L0 has neighbours: " + have
		}
		return ""
	})
	w, far := openWire(b.t, b.ns["h0"], "eth0"), openWire(b.t, b.ns["h2"], "eth0")
	h0, h2 := b.host("h0"), b.addr("h2").As4()
	own := h0.Addr.Addr().As4()
	request := slices.Concat([]byte{0, 1, 8, 0, 6, 4, 0, 1}, h0.MAC[:], own[:], make([]byte, 6), h2[:])
	for _, tc := range []struct {
		state string
		want  int
	}{{"on", 0}, {"off", 5}} {
		b.suppress(tc.state)
		mark := "arp " + tc.state + " "
		for i := range 5 {
			w.send(frame("ff:ff:ff:ff:ff:ff", b.mac("h0"), 0x0806, request, mark+fmt.Sprint(i)))
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(200 * time.Millisecond)
		if n, _ := far.count(mark); n != tc.want {
			b.t.Errorf("suppression %s: %d of 5 requests reached h2, want %d", tc.state, n, tc.want)
		}
	}
	b.suppress("on")
}
