package netns

import (
	"encoding/binary"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/config"
	"github.com/loomfabric/loom/config/fabric"
	"github.com/loomfabric/loom/config/vocab"
)

// These are the figures that the project promises of an idle machine, and logs here; one
// that is busy with other tests is given ten times as much.
const (
	farewellTakes = 100 * time.Millisecond // from SIGTERM until the peer sends plain VXLAN
	killTakes     = 300 * time.Millisecond // two rounds of HELLOs and a half, and the process's end
	reservedTakes = 150 * time.Millisecond // from kill -9, if the kernel reads what has no shim
	busy          = 10
)

// reservedBits is what a kernel's VXLAN device drops besides RFC 7348's own if it is to
// understand the fabric's header: flags and Scheme, Opcode, Epoch, R, T and S. What is left
// is DATA without a shim. docs/wire-format.md names it.
const reservedBits = 0xf70003fc00000000

// withReservedBits makes a leaf's vxlan device of a VNI anew, so that it takes the
// fabric's header for a plain one. iproute2 can from 6.14 on, and Linux as well.
func (f *fab) withReservedBits(leaf int, vni uint32) {
	f.t.Helper()
	const iflaVXLANReservedBits = 33
	name, vtep := fmt.Sprintf("vx-%d", vni), f.topo.Leaves[leaf].VTEP
	f.ns[f.topo.Leaves[leaf].Name].Do(f.t, func() {
		old, err := netlink.LinkByName(name)
		if err != nil {
			f.t.Fatal(err)
		}
		floods, err := netlink.NeighList(old.Attrs().Index, unix.AF_BRIDGE)
		if err == nil {
			err = netlink.LinkDel(old)
		}
		if err != nil {
			f.t.Fatal(err)
		}
		req := nl.NewNetlinkRequest(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK)
		req.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
		req.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)))
		req.AddData(nl.NewRtAttr(unix.IFLA_MTU, nl.Uint32Attr(uint32(old.Attrs().MTU))))
		req.AddData(nl.NewRtAttr(unix.IFLA_MASTER, nl.Uint32Attr(uint32(old.Attrs().MasterIndex))))
		info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
		info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated("vxlan"))
		data := info.AddRtAttr(nl.IFLA_INFO_DATA, nil)
		data.AddRtAttr(nl.IFLA_VXLAN_ID, nl.Uint32Attr(vni))
		data.AddRtAttr(nl.IFLA_VXLAN_LOCAL, vtep.AsSlice())
		data.AddRtAttr(nl.IFLA_VXLAN_LEARNING, nl.Uint8Attr(1))
		data.AddRtAttr(nl.IFLA_VXLAN_PORT, binary.BigEndian.AppendUint16(nil, fabric.VXLANPort))
		data.AddRtAttr(iflaVXLANReservedBits, binary.BigEndian.AppendUint64(nil, reservedBits))
		req.AddData(info)
		if _, err := req.Execute(unix.NETLINK_ROUTE, 0); err != nil {
			f.t.Fatalf("add %s with reserved_bits %#x: %v", name, uint64(reservedBits), err)
		}
		link, err := netlink.LinkByName(name)
		if err != nil {
			f.t.Fatal(err)
		}
		for _, n := range floods {
			if n.HardwareAddr.String() != make(net.HardwareAddr, 6).String() {
				continue
			}
			n.LinkIndex, n.Flags = link.Attrs().Index, netlink.NTF_SELF
			if err := netlink.NeighAppend(&n); err != nil {
				f.t.Fatalf("flood list of %s: %v", name, err)
			}
		}
		if err := netlink.LinkSetUp(link); err != nil {
			f.t.Fatal(err)
		}
	})
}

// TestFarewell: a leafd beside which the kernel has the same overlay stops, starts, and is
// killed. When it stops it says so, and its peer sends plain VXLAN at once; when it is
// killed the peer finds out by the HELLOs that it misses, unless the kernel reads the
// fabric's header meanwhile. Nothing is duplicated, and a start loses nothing. Under a
// scheme with a shim the kernel cannot read what comes, and nothing else is different.
func TestFarewell(t *testing.T) {
	f := up(t, "fallback.yaml")
	l0, l1 := f.daemons["L0"], f.daemons["L1"]
	state := func(want string) time.Duration {
		t.Helper()
		from := time.Now()
		eventually(t, failOpen, func() string {
			if s := l1.loomctl("peers"); !strings.Contains(s, want) {
				return fmt.Sprintf("L1 does not say that L0 is %s:\n%s", want, s)
			}
			return ""
		})
		return time.Since(from)
	}
	state("capable")
	there := startProbe(t, f.ns["h0"], f.ns["h2"], f.addr("h2"), 8, 2*time.Millisecond)
	back := startProbe(t, f.ns["h2"], f.ns["h0"], f.addr("h0"), 8, 2*time.Millisecond)
	time.Sleep(300 * time.Millisecond)

	// event does something to L0 while datagrams are under way, and logs what they lose.
	event := func(name string, within time.Duration, do func()) {
		t.Helper()
		from := time.Now()
		do()
		var longest time.Duration
		for dir, p := range map[string]*probe{"h0 to h2": there, "h2 to h0": back} {
			eventually(t, failOpen, func() string {
				gap, _ := p.outage(from)
				longest = max(longest, gap)
				if last := p.sent.Load() - 1; time.Since(from) < 400*time.Millisecond || time.Since(from) < gap+300*time.Millisecond || !p.arrivesSince(last) {
					return dir + ": no datagrams arrive"
				}
				return ""
			})
			sent, lost := p.lost(from, time.Now().Add(-50*time.Millisecond))
			gap, _ := p.outage(from)
			t.Logf("%s: from %s %d of %d datagrams lost, the last one after %v", name, dir, lost, sent, gap.Round(time.Millisecond))
		}
		if longest > busy*within {
			t.Errorf("%s: datagrams are lost for %v; an idle machine takes less than %v", name, longest, within)
		}
	}
	start := func() {
		// A machine of many times its load loses some when a start takes more than a second.
		event("start", failOpen/busy, func() { l0.start(); l0.ready(); state("capable") })
	}
	term := func() {
		before, log := l1.metric("loom_leaf_farewells_total"), len(l1.whole())
		event("SIGTERM", farewellTakes, func() {
			gone := make(chan error)
			go func() { gone <- l0.signal(unix.SIGTERM) }()
			took := state("left")
			t.Logf("SIGTERM: L1 sends plain VXLAN %v after the signal", took.Round(time.Millisecond))
			if took > busy*farewellTakes {
				t.Errorf("L1 sends L0 the fabric's header for %v after SIGTERM", took)
			}
			if err := <-gone; err != nil {
				t.Errorf("after SIGTERM: %v\n%s", err, l0.tail())
			}
		})
		if n := l1.metric("loom_leaf_farewells_total") - before; n != 1 {
			t.Errorf("L1 counts %d farewells", n)
		}
		f.says("L1", log, "peer said goodbye")
	}
	kill := func(name string, within time.Duration) {
		before, log := l1.metric("loom_leaf_peers_silent_total"), len(l1.whole())
		event(name, within, func() {
			_ = l0.signal(unix.SIGKILL) // it ends by the signal, as it should
			t.Logf("%s: L1 sends plain VXLAN %v after the process's end", name, state("silent").Round(time.Millisecond))
		})
		if n := l1.metric("loom_leaf_peers_silent_total") - before; n != 1 {
			t.Errorf("L1 counts that %d peers fell silent", n)
		}
		f.says("L1", log, "nothing comes from peer")
	}
	term()
	start()
	kill("kill -9", killTakes)
	start()
	f.withReservedBits(0, 10)
	kill("kill -9, reserved_bits", reservedTakes)
	start()
	f.edit("L1", func(c *config.Leaf) { c.Balancing = vocab.Balancing{Scheme: "reed"} })
	l1.reload("configuration reloaded", "scheme=reed")
	kill("kill -9, reserved_bits, with a shim", killTakes)
	start()
	term()
	there.end()
	back.end()
	if n := there.copies.Load() + back.copies.Load(); n != 0 {
		t.Errorf("%d datagrams came twice", n)
	}
}
