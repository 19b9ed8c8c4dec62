package netns

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/overlay"
)

// ipFrame is a UDP datagram in an Ethernet frame, with a text to know it by.
func ipFrame(t *testing.T, dst, src overlay.MAC, from, to netip.Addr, port uint16, text string) []byte {
	t.Helper()
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: from.AsSlice(), DstIP: to.AsSlice()}
	udp := &layers.UDP{SrcPort: 40000, DstPort: layers.UDPPort(port)}
	if err := udp.SetNetworkLayerForChecksum(ip); err != nil {
		t.Fatal(err)
	}
	b := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		&layers.Ethernet{DstMAC: net.HardwareAddr(dst[:]), SrcMAC: net.HardwareAddr(src[:]), EthernetType: layers.EthernetTypeIPv4},
		ip, udp, gopacket.Payload(text))
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// takeOff removes the XDP program from an interface, as `ip link set dev IF xdp off` does.
func (f *fab) takeOff(node, port string) {
	f.t.Helper()
	f.ns[node].Do(f.t, func() {
		for _, flags := range []int{unix.XDP_FLAGS_DRV_MODE, unix.XDP_FLAGS_SKB_MODE} {
			link, err := netlink.LinkByName(port)
			if err == nil && link.Attrs().Xdp.Attached {
				err = netlink.LinkSetXdpFdWithFlags(link, -1, flags)
			}
			if err != nil && flags == unix.XDP_FLAGS_SKB_MODE {
				f.t.Fatal(err)
			}
		}
	})
}

// portMAC returns the address of an interface.
func (f *fab) portMAC(node, port string) overlay.MAC {
	f.t.Helper()
	return overlay.MAC(f.ns[node].Link(f.t, port).Attrs().HardwareAddr)
}

// write sets a value below /proc/sys in a node.
func (f *fab) write(node, path, value string) {
	f.t.Helper()
	f.ns[node].Do(f.t, func() {
		if err := os.WriteFile("/proc/sys/"+path, []byte(value), 0o644); err != nil {
			f.t.Fatal(err)
		}
	})
}

// listenUDP receives datagrams in a node and returns what came so far.
func (f *fab) listenUDP(node string, port int) func() [][]byte {
	f.t.Helper()
	var c *net.UDPConn
	var err error
	f.ns[node].Do(f.t, func() { c, err = net.ListenUDP("udp4", &net.UDPAddr{Port: port}) })
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { c.Close() })
	return func() (got [][]byte) {
		buf := make([]byte, 2048)
		for {
			if err := c.SetReadDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
				f.t.Fatal(err)
			}
			n, _, err := c.ReadFromUDP(buf)
			if err != nil {
				return got
			}
			got = append(got, bytes.Clone(buf[:n]))
		}
	}
}

// TestHostsCannotReachTheLeaf: neither by addresses of the link while leafd runs, nor
// in any way when it was killed, although the leaf forwards IP: no datagram for its
// VTEP or for another one leaves the port's queue for the leaf's own stack.
func TestHostsCannotReachTheLeaf(t *testing.T) {
	f := up(t, "pair.yaml")
	d := f.daemons["L0"]
	own, other := f.topo.Leaves[0].VTEP, f.topo.Leaves[1].VTEP
	h0, port := overlay.MAC(f.host("h0").MAC), f.portMAC("L0", "acc-h0")
	f.write("L0", "net/ipv4/ip_forward", "1")
	f.write("L0", "net/ipv4/conf/all/rp_filter", "0")
	f.write("L0", "net/ipv4/conf/acc-h0/rp_filter", "0")
	got := f.listenUDP("L0", 3784) // as BFD would
	spine := openWire(t, f.ns["S0"], "dn-l0-0")
	w := openWire(t, f.ns["h0"], "eth0")
	attack := func(dst overlay.MAC, what string) {
		for i := range 20 {
			w.send(ipFrame(t, dst, h0, f.addr("h0"), own, 3784, fmt.Sprint(what, i)))
			w.send(ipFrame(t, dst, h0, f.addr("h0"), other, 4789, "routed "+what))
		}
	}
	routed := func() (n int) {
		for _, b := range spine.got() {
			if bytes.Contains(b, []byte("routed ")) {
				n++
			}
		}
		return n
	}
	for last := range byte(16) {
		attack(overlay.MAC{1, 0x80, 0xc2, 0, 0, last}, "by the link's address")
	}
	eventually(t, 5*time.Second, func() string {
		if n := d.drops("link_local"); n < 16*40 {
			return fmt.Sprintf("%d frames dropped as link_local", n)
		}
		return ""
	})
	if n := len(got()); n > 0 {
		t.Errorf("%d datagrams to addresses of the link reached a socket of the leaf", n)
	}

	_ = d.signal(unix.SIGKILL) // it ends by the signal, as it should
	f.detached("L0")
	attack(port, "without a daemon")
	w.send(frame(broadcast, h0, 0, "to all"))
	if n := len(got()); n > 0 {
		t.Errorf("%d datagrams reached a socket of a leaf whose daemon was killed", n)
	}
	if n := routed(); n > 0 {
		t.Errorf("%d datagrams were routed into the underlay", n)
	}
	d.start()
	d.ready()
	transfer(t, f.ns["h0"], f.ns["h3"], f.addr("h3"), 256<<10)

	// The attack is one: a leaf that takes the program off is reached.
	_ = d.signal(unix.SIGKILL)
	f.detached("L0")
	f.takeOff("L0", "acc-h0")
	attack(port, "without a program")
	if n := len(got()); n == 0 {
		t.Error("nothing reached the leaf without a program, so that the test proves nothing")
	}
	d.start()
	d.ready()
	transfer(t, f.ns["h0"], f.ns["h3"], f.addr("h3"), 256<<10)
}

// TestAccessPortsArePromiscuous: they take frames to hosts elsewhere, whatever the MAC
// filter of a network card; uplinks do not. A killed leafd leaves nothing behind.
func TestAccessPortsArePromiscuous(t *testing.T) {
	f := up(t, "pair.yaml")
	want := func(acc, uplink int) {
		t.Helper()
		eventually(t, 5*time.Second, func() string {
			a, u := f.ns["L0"].Link(t, "acc-h0").Attrs().Promisc, f.ns["L0"].Link(t, "up-s0-0").Attrs().Promisc
			if a != acc || u != uplink {
				return fmt.Sprintf("promiscuity of acc-h0 is %d, of up-s0-0 %d; want %d and %d", a, u, acc, uplink)
			}
			return ""
		})
	}
	want(1, 0)
	d := f.daemons["L0"]
	_ = d.signal(unix.SIGKILL)
	want(0, 0)
	d.start()
	d.ready()
	want(1, 0)
	d.stop()
	want(0, 0)
	d.start()
	d.ready()
}

// TestFailedLinkIsNoForgery: links fail and return under load. What was under way then is
// not taken for forged, neither by spines nor by leaves; nor, by spines, what comes by a
// link that has returned before the routes have.
func TestFailedLinkIsNoForgery(t *testing.T) {
	f := up(t, "pair.yaml")
	for _, pair := range [][2]string{{"h0", "h3"}, {"h3", "h0"}} {
		startStream(t, f.ns[pair[0]], f.ns[pair[1]], f.addr(pair[1]), 256<<10)
		startProbe(t, f.ns[pair[0]], f.ns[pair[1]], f.addr(pair[1]), 64, 200*time.Microsecond)
	}
	forged := make(map[string]uint64)
	none := func(when string, names ...string) {
		t.Helper()
		time.Sleep(300 * time.Millisecond)
		for name, d := range f.daemons {
			n := d.drops("reverse_path")
			if n != forged[name] && slices.Contains(names, name) {
				t.Errorf("%s: %s dropped %d packets as reverse_path", when, name, n-forged[name])
			}
			forged[name] = n
		}
	}
	none("before", "S0", "S1", "L0", "L1")
	for range 3 {
		for _, link := range []string{"L0-S0.0", "L1-S1.0"} {
			if err := f.lab.Fail(link); err != nil {
				t.Fatal(err)
			}
			none(link+" has failed", "S0", "S1", "L0", "L1")
			if err := f.lab.Restore(link); err != nil {
				t.Fatal(err)
			}
			none(link+" has returned", "S0", "S1")
		}
	}
}

// TestUnfinishedChecksums: hosts with their kernel's own offloads talk TCP and UDP
// through the fabric, and on one leaf, over IPv4 and IPv6, with and without VLANs.
func TestUnfinishedChecksums(t *testing.T) {
	f := up(t, "tenants.yaml")
	pairs := 0
	for _, a := range f.topo.Hosts {
		for _, b := range f.topo.Hosts {
			if a.Index < b.Index && a.VNI == b.VNI {
				transfer(t, f.ns[a.Name], f.ns[b.Name], b.Addr.Addr(), 512<<10)
				pairs++
				if b.Addr6.IsValid() {
					transfer(t, f.ns[a.Name], f.ns[b.Name], b.Addr6.Addr(), 512<<10)
				}
			}
		}
	}
	if pairs < 3 {
		t.Fatalf("%d pairs of hosts", pairs)
	}
	for i, l := range f.topo.Leaves {
		if n := f.daemons[l.Name].metric("loom_port_checksums_finished_frames_total"); n < 100 {
			t.Errorf("leaf %d finished %d checksums", i, n)
		}
	}
}
