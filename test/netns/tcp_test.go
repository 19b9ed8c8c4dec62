package netns

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/testenv"
)

// TestTCP: frames of the hosts' full MTU cross the fabric and a leaf, both
// ways, over every uplink.
func TestTCP(t *testing.T) {
	f := up(t, "pair.yaml")
	for _, pair := range [][2]string{{"h0", "h3"}, {"h3", "h0"}, {"h0", "h1"}, {"h4", "h3"}, {"h2", "h5"}} {
		from, to := pair[0], pair[1]
		// 1500 = 20 IPv4 + 8 ICMP + 1472.
		if out, ok := testenv.Ping(t, f.ns[from], f.addr(to), 1472, 3); !ok {
			t.Errorf("full-size frames from %s to %s:\n%s", from, to, out)
		}
		transfer(t, f.ns[from], f.ns[to], f.addr(to), 4<<20)
	}
	// Some flows more than there are uplinks: ECMP uses all of them.
	for range 8 {
		transfer(t, f.ns["h0"], f.ns["h3"], f.addr("h3"), 64<<10)
	}
	for _, k := range f.topo.Links {
		leaf, spine := f.topo.Leaves[k.Leaf].Name, f.topo.Spines[k.Spine].Name
		if n := f.daemons[leaf].sent(k.LeafPort); n < 20 {
			t.Errorf("%s sent %d frames by %s", leaf, n, k.LeafPort)
		}
		if n := f.daemons[spine].sent(k.SpinePort); n < 20 {
			t.Errorf("%s sent %d frames by %s", spine, n, k.SpinePort)
		}
	}
	for name, d := range f.daemons {
		if n := d.metric("loom_port_metadata_missing_frames_total"); n != 0 {
			t.Errorf("%s: %d frames came without the classifier's metadata", name, n)
		}
	}
	// What goes from port to port of one leaf does not leave it.
	before := f.daemons["L0"].metric("loom_vni_encapsulated_frames_total")
	transfer(t, f.ns["h0"], f.ns["h1"], f.addr("h1"), 1<<20)
	if n := f.daemons["L0"].metric("loom_vni_encapsulated_frames_total") - before; n > 20 {
		t.Errorf("%d frames between two hosts of L0 went into tunnels", n)
	}
}

// TestIPv6: hosts find each other by neighbour discovery, whose multicast is
// flooded, and speak TCP over IPv6.
func TestIPv6(t *testing.T) {
	f := up(t, "pair.yaml")
	for _, pair := range [][2]string{{"h0", "h3"}, {"h4", "h1"}, {"h0", "h1"}} {
		from, to := f.host(pair[0]), f.host(pair[1])
		// 1500 = 40 IPv6 + 8 ICMPv6 + 1452.
		if out, ok := testenv.Ping(t, f.ns[from.Name], to.Addr6.Addr(), 1452, 2); !ok {
			t.Errorf("full-size frames from %s to %s:\n%s", from.Name, to.Name, out)
		}
		transfer(t, f.ns[from.Name], f.ns[to.Name], to.Addr6.Addr(), 2<<20)
	}
	if n := f.daemons["L0"].metric("loom_vni_flooded_frames_total", `vni="10"`); n == 0 {
		t.Error("neighbour discovery worked without flooding")
	}
	// Flows of one pair of hosts differ in their ports only, also in IPv6.
	for range 8 {
		transfer(t, f.ns["h0"], f.ns["h3"], f.host("h3").Addr6.Addr(), 64<<10)
	}
	for _, port := range []string{"up-s0-0", "up-s1-0"} {
		if n := f.daemons["L0"].sent(port); n < 20 {
			t.Errorf("L0 sent %d frames by %s", n, port)
		}
	}
}

// TestUnderlayPasses: what is not VXLAN for a VTEP stays with the kernel, on
// leaves and on spines.
func TestUnderlayPasses(t *testing.T) {
	f := up(t, "pair.yaml")
	k := f.link("L0-S1.0")
	leaf, spine := f.ns["L0"], f.ns["S1"]
	for _, c := range []struct {
		what string
		to   netip.Addr
		on   string
		from []netip.Addr
	}{
		{"the spine's end of a link", k.SpineAddr, "L0", nil},
		{"the leaf's end of a link", k.LeafAddr, "S1", nil},
		{"a VTEP", f.topo.Leaves[0].VTEP, "S1", nil},
		// Only VTEPs are routed, so that only from one there is an answer.
		{"a VTEP through a spine", f.topo.Leaves[1].VTEP, "L0", []netip.Addr{f.topo.Leaves[0].VTEP}},
	} {
		if out, ok := testenv.Ping(t, f.ns[c.on], c.to, 1472, 2, c.from...); !ok {
			t.Errorf("ping %s:\n%s", c.what, out)
		}
	}
	// BGP's port, both ways.
	for _, c := range []struct {
		from, to string
		at       netip.Addr
	}{{"L0", "S1", k.SpineAddr}, {"S1", "L0", k.LeafAddr}} {
		l := listen(t, f.ns[c.to], netip.AddrPortFrom(c.at, 179))
		go func() {
			if conn, err := l.Accept(); err == nil {
				fmt.Fprint(conn, "OPEN")
				conn.Close()
			}
		}()
		conn, err := dial(t, f.ns[c.from], l.Addr().String(), 5*time.Second)
		if err != nil {
			t.Errorf("TCP to port 179 of %s: %v", c.to, err)
		} else {
			buf := make([]byte, 8)
			if n, err := conn.Read(buf); string(buf[:n]) != "OPEN" {
				t.Errorf("TCP to port 179 of %s: read %q, %v", c.to, buf[:n], err)
			}
			conn.Close()
		}
		l.Close()
	}
	transfer(t, leaf, spine, k.SpineAddr, 1<<20)
	for _, d := range []string{"L0", "S1"} {
		if n := f.daemons[d].metric("loom_classifier_frames_total", `verdict="pass_not_ours"`); n < 100 {
			t.Errorf("%s's classifier left %d frames to the kernel", d, n)
		}
	}
}
