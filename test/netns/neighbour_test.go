package netns

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/loomfabric/loom/config"
	"github.com/loomfabric/loom/overlay"
)

// forgetNeighbours empties a node's table of neighbours on a port.
func (f *fab) forgetNeighbours(node, port string) {
	f.t.Helper()
	index := f.ns[node].Link(f.t, port).Attrs().Index
	f.ns[node].Do(f.t, func() {
		list, err := netlink.NeighList(index, netlink.FAMILY_V4)
		if err != nil {
			f.t.Fatal(err)
		}
		for i := range list {
			if err := netlink.NeighDel(&list[i]); err != nil {
				f.t.Fatalf("forget %v in %s: %v", list[i].IP, node, err)
			}
		}
	})
}

// answerARP has a port answer ARP requests or not.
func (f *fab) answerARP(node, port string, yes bool) {
	f.t.Helper()
	l := f.ns[node].Link(f.t, port)
	f.ns[node].Do(f.t, func() {
		set := netlink.LinkSetARPOff
		if yes {
			set = netlink.LinkSetARPOn
		}
		if err := set(l); err != nil {
			f.t.Fatalf("ARP of %s in %s to %v: %v", port, node, yes, err)
		}
	})
}

// hopMAC is the MAC that a node's tables have for the next hop by a port; ""
// while it is not resolved.
func (d *daemon) hopMAC(port string) string {
	d.t.Helper()
	s := d.stats()
	for _, h := range s.Tables.Hops {
		if s.Ports[h.Port].Name == port && h.Resolved {
			return h.MAC.String()
		}
	}
	return ""
}

// TestNeighbourForgotten: the kernel loses a neighbour that is in use, on a
// leaf and on a spine: it is asked to find it again, and frames wait for that.
func TestNeighbourForgotten(t *testing.T) {
	f := up(t, "trio.yaml")
	s := startStream(t, f.ns["h0"], f.ns["h2"], f.addr("h2"), 1<<20)
	s.flows(256<<10, 5*time.Second)
	for _, at := range [][2]string{{"L0", "up-s0-0"}, {"S0", "dn-l1-0"}} {
		for range 3 {
			f.forgetNeighbours(at[0], at[1])
			s.flows(256<<10, 10*time.Second)
		}
		if f.daemons[at[0]].hopMAC(at[1]) == "" {
			t.Errorf("%s: next hop by %s is not resolved", at[0], at[1])
		}
	}
}

// TestNeighbourChanges: a spine's port gets another MAC, as when a machine is
// replaced.
func TestNeighbourChanges(t *testing.T) {
	f := up(t, "trio.yaml")
	s := startStream(t, f.ns["h0"], f.ns["h2"], f.addr("h2"), 1<<20)
	s.flows(256<<10, 5*time.Second)
	k, mac := f.link("L0-S0.0"), overlay.MAC{2, 0, 0, 0, 0, 0x55}
	port := f.ns["S0"].Link(t, k.SpinePort)
	f.ns["S0"].Do(t, func() {
		if err := netlink.LinkSetHardwareAddr(port, net.HardwareAddr(mac[:])); err != nil {
			t.Fatal(err)
		}
	})
	f.forgetNeighbours("L0", k.LeafPort)
	eventually(t, 5*time.Second, func() string {
		if got := f.daemons["L0"].hopMAC(k.LeafPort); got != mac.String() {
			return fmt.Sprintf("L0's next hop has MAC %q, want %v", got, mac)
		}
		return ""
	})
	s.flows(512<<10, 10*time.Second)
	transfer(t, f.ns["h4"], f.ns["h1"], f.addr("h1"), 1<<20)
}

// TestNeighbourWaits: frames to a next hop without a MAC wait, and are sent as
// soon as it answers, each once.
func TestNeighbourWaits(t *testing.T) {
	f := up(t, "trio.yaml")
	f.reconfigure("L0", func(c *config.Leaf) { c.HoldTime = 20 * time.Second })
	k, d, w := f.link("L0-S0.0"), f.daemons["L0"], f.wires()
	src, dst := overlay.MAC(f.host("h0").MAC), overlay.MAC(f.host("h2").MAC)
	learn := frame(src, dst, 0, "I am here")
	w["h2"].send(learn)
	w["h0"].expect(learn, "h0")

	f.answerARP("S0", k.SpinePort, false)
	f.forgetNeighbours("L0", k.LeafPort)
	eventually(t, 3*time.Second, func() string {
		if d.hopMAC(k.LeafPort) != "" {
			return "L0 still has the next hop's MAC"
		}
		return ""
	})
	const frames = 20
	for i := range frames {
		w["h0"].send(frame(dst, src, 0, fmt.Sprint("waits ", i)))
	}
	eventually(t, 3*time.Second, func() string {
		if n := d.metric("loom_worker_held_frames"); n < frames {
			return fmt.Sprintf("L0 holds %d frames, want %d", n, frames)
		}
		return ""
	})
	d.balanced()
	if n := len(w["h2"].got()); n > 0 {
		t.Errorf("%d frames arrived although the next hop is not known", n)
	}
	f.answerARP("S0", k.SpinePort, true)
	for i := range frames {
		w["h2"].expect(frame(dst, src, 0, fmt.Sprint("waits ", i)), "h2")
	}
	time.Sleep(quiet)
	if n := len(w["h2"].got()); n != frames {
		t.Errorf("%d frames arrived, %d were sent", n, frames)
	}
}

// TestNeighbourFails: the only next hop answers no ARP any more. Frames wait a
// bounded time, are dropped under a name, and flow again when it answers.
func TestNeighbourFails(t *testing.T) {
	f := up(t, "trio.yaml")
	transfer(t, f.ns["h0"], f.ns["h2"], f.addr("h2"), 64<<10)
	k, d := f.link("L0-S0.0"), f.daemons["L0"]
	f.answerARP("S0", k.SpinePort, false)
	f.forgetNeighbours("L0", k.LeafPort)
	eventually(t, 3*time.Second, func() string {
		if d.hopMAC(k.LeafPort) != "" {
			return "L0 still has the next hop's MAC"
		}
		return ""
	})
	w := openWire(t, f.ns["h0"], "eth0")
	src, dst := overlay.MAC(f.host("h0").MAC), overlay.MAC(f.host("h2").MAC)
	const frames = 100
	for i := range frames {
		w.send(frame(dst, src, 0, fmt.Sprint("waits ", i)))
	}
	eventually(t, 2*time.Second, func() string {
		if n := d.drops("hold_full"); n == 0 {
			return "of 100 frames all were held for one next hop"
		}
		return ""
	})
	d.balanced() // while frames are held
	eventually(t, 15*time.Second, func() string {
		if n := d.drops("no_neighbour") + d.drops("hold_full"); n < frames {
			return fmt.Sprintf("%d of %d frames were dropped under no_neighbour or hold_full", n, frames)
		}
		return ""
	})
	if d.drops("no_neighbour") == 0 {
		t.Error("no frame was dropped under no_neighbour")
	}
	f.answerARP("S0", k.SpinePort, true)
	eventually(t, 20*time.Second, func() string {
		if d.hopMAC(k.LeafPort) == "" {
			return "L0 has not found the next hop again"
		}
		return ""
	})
	transfer(t, f.ns["h0"], f.ns["h2"], f.addr("h2"), 256<<10)
}
