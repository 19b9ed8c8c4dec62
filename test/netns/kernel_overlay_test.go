package netns

import (
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/testenv"
)

// in runs commands in a namespace.
func in(t *testing.T, ns *testenv.Namespace, commands ...string) {
	t.Helper()
	for _, c := range commands {
		if out, err := exec.Command("ip", append([]string{"netns", "exec", ns.Name}, strings.Fields(c)...)...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", c, err, out)
		}
	}
}

// kernelLeaf makes a leaf of the kernel's: a bridge with a VXLAN device and access ports,
// which knows a host behind the other leaf, as a routing daemon would have told it.
func kernelLeaf(t *testing.T, ns *testenv.Namespace, own, peer netip.Addr, far *testenv.Namespace, ports ...string) {
	t.Helper()
	mac := far.Link(t, "eth0").Attrs().HardwareAddr
	in(t, ns,
		"ip link add br0 type bridge mcast_snooping 0",
		fmt.Sprintf("ip link add vx100 mtu 1500 type vxlan id 100 local %v dstport 4789 nolearning", own),
		"ip link set vx100 master br0", "ip link set vx100 up", "ip link set br0 up")
	for _, p := range ports {
		in(t, ns, "ip link set "+p+" master br0")
	}
	in(t, ns,
		fmt.Sprintf("bridge fdb append 00:00:00:00:00:00 dev vx100 dst %v self permanent", peer),
		fmt.Sprintf("bridge fdb add %v dev vx100 dst %v self extern_learn", mac, peer),
		fmt.Sprintf("bridge fdb add %v dev vx100 master extern_learn", mac))
}

// known waits until a leaf forwards to so many addresses of the kernel's.
func known(t *testing.T, d *daemon, n uint64) {
	t.Helper()
	eventually(t, 5*time.Second, func() string {
		if got := d.metric("loom_bridge_addresses"); got < n {
			return fmt.Sprintf("%s knows %d addresses, want %d\n%s", d.name, got, n, d.tail())
		}
		return ""
	})
}

// TestWaitsForTheDevice: a leafd that starts before the kernel has an overlay, as at boot,
// says what it waits for, and begins when there is one. A reload does not end it, and
// SIGTERM does.
func TestWaitsForTheDevice(t *testing.T) {
	t.Parallel() // that is what it does
	s := newSite(t, 1)
	host1 := testenv.NewNamespace(t, "lnhost")
	s.access(s.far, host1, addr1)
	kernelLeaf(t, s.far, vtep1, vtep0, s.host0, "acc0")
	s.runSpine()
	leaf := s.daemon("leafd", "leaf0", s.leaf0, "overlay: kernel\nuplinks: [{interface: up0}]\n")
	waits := func() {
		t.Helper()
		from := 0
		if leaf.cmd != nil {
			from = len(leaf.whole())
		}
		leaf.start()
		eventually(t, 10*time.Second, func() string {
			if log := leaf.whole()[from:]; !strings.Contains(log, "waits for a VXLAN device") || !strings.Contains(log, "ip link add vxlan100") {
				return "it does not say what it waits for:\n" + log
			}
			return ""
		})
	}
	waits()
	if out, err := exec.Command("ip", "netns", "exec", s.leaf0.Name, filepath.Join(daemons, "leafd"), "check", "-c", leaf.config).CombinedOutput(); err == nil || !strings.Contains(string(out), "no bridge has a VXLAN device") {
		t.Errorf("leafd check: %v\n%s", err, out)
	}
	if err := leaf.signal(unix.SIGTERM); err != nil {
		t.Errorf("after SIGTERM: %v\n%s", err, leaf.tail())
	}
	waits()
	if err := unix.Kill(leaf.pid, unix.SIGHUP); err != nil {
		t.Error(err)
	}
	time.Sleep(2 * deviceLook)
	in(t, s.leaf0, "ip link add br0 type bridge mcast_snooping 0", "ip link set br0 up") // not enough
	time.Sleep(2 * deviceLook)
	if _, err := leaf.get("/readyz"); err == nil {
		t.Error("it has begun without a device")
	}
	in(t, s.leaf0, "ip link del br0")
	kernelLeaf(t, s.leaf0, vtep0, vtep1, host1, "acc0")
	leaf.ready()
	known(t, leaf, 1)
	transfer(t, s.host0, host1, addr1, 1<<20)
	if n := leaf.sent("up0"); n < 1<<20/1448 {
		t.Errorf("%d frames were sent by up0\n%s", n, leaf.tail())
	}
	leaf.stop()
}

// deviceLook is how often leafd looks for a VXLAN device.
const deviceLook = 250 * time.Millisecond

// TestKernelOverlay: two leaves of the kernel's, with bridges and forwarding entries. leafd
// beside them, told nothing but its uplink, forwards what they know, and they do the rest.
func TestKernelOverlay(t *testing.T) {
	s := newSite(t, 1)
	host1, host2 := testenv.NewNamespace(t, "lnhost"), testenv.NewNamespace(t, "lnhost")
	s.access(s.far, host1, addr1)
	testenv.VethPair(t, s.leaf0, "acc1", host2, "eth0", testenv.VethOptions{})
	addr2 := netip.MustParseAddr("172.16.0.3")
	addAddr(t, host2, "eth0", addr2.String()+"/24")
	kernelLeaf(t, s.leaf0, vtep0, vtep1, host1, "acc0", "acc1")
	kernelLeaf(t, s.far, vtep1, vtep0, s.host0, "acc0")
	in(t, s.leaf0, "tc qdisc add dev acc1 clsact")
	spine := s.runSpine()
	if out, ok := testenv.Ping(t, s.host0, addr1, 1472, 2); !ok {
		t.Fatalf("the kernels alone:\n%s", out)
	}

	leaf := s.run("leafd", "leaf0", s.leaf0, "overlay: kernel\nuplinks: [{interface: up0}]\n")
	far := s.run("leafd", "leaf1", s.far, "overlay: kernel\nuplinks: auto\n") // and not even that
	known(t, leaf, 2)
	known(t, far, 2)

	// What both know goes by Loom; what one floods goes by the kernel.
	in(t, s.host0, "ip neigh flush dev eth0")
	if out, ok := testenv.Ping(t, s.host0, addr1, 1472, 3); !ok {
		t.Errorf("full-size frames, after an ARP request to all:\n%s", out)
	}
	transfer(t, s.host0, host1, addr1, 4<<20)
	transfer(t, host1, s.host0, addr0, 4<<20)
	const least = 8 << 20 / 1448
	for _, d := range []*daemon{leaf, far} {
		for _, port := range []string{"up0", "acc0"} {
			if n := d.sent(port); n < least {
				t.Errorf("%s sent %d frames by %s, want %d\n%s", d.name, n, port, least, d.tail())
			}
		}
	}
	if n := spine.sent("dn1"); n < least {
		t.Errorf("spine sent %d frames, want %d", n, least)
	}

	// A port that tc decides about is left to the kernel, until it does not any more.
	mac2 := host2.Link(t, "eth0").Attrs().HardwareAddr
	in(t, s.far, fmt.Sprintf("bridge fdb add %v dev vx100 dst %v self extern_learn", mac2, vtep0), fmt.Sprintf("bridge fdb add %v dev vx100 master extern_learn", mac2))
	transfer(t, host2, host1, addr1, 1<<20)
	if n, left := leaf.sent("acc1"), leaf.metric("loom_bridge_left"); n != 0 || left != 1 {
		t.Errorf("%d frames were sent by acc1, which is the kernel's; %d findings say so", n, left)
	}
	in(t, s.leaf0, "tc qdisc del dev acc1 clsact")
	eventually(t, 10*time.Second, func() string {
		transfer(t, host2, host1, addr1, 1<<20)
		if n := leaf.sent("acc1"); n < 1<<20/1448/2 { // acknowledgements
			return fmt.Sprintf("%d frames were sent by acc1\n%s", n, leaf.tail())
		}
		return ""
	})

	handOverAddresses(t, leaf, s.host0, host1, addr1)

	// leafd goes, and the kernels carry on.
	leaf.stop()
	eventually(t, 5*time.Second, func() string { // the other leafd has to see that it is gone
		if out, ok := testenv.Ping(t, s.host0, addr1, 1472, 1); !ok {
			return "without leafd on one leaf:\n" + out
		}
		return ""
	})
	out, err := exec.Command("ip", "netns", "exec", s.leaf0.Name, filepath.Join(daemons, "leafd"), "check", "-c", leaf.config).CombinedOutput()
	if err != nil {
		t.Errorf("leafd check: %v\n%s", err, out)
	}
	for _, want := range []string{"VTEP 10.2.0.1, UDP port 4789, 1 peers", "VNI 100: bridge br0, vx100", "port acc0: untagged in VNI 100"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("leafd check does not say %q:\n%s", want, out)
		}
	}
}

// handOverAddresses: a successor knows the kernel's addresses when it takes over. What the
// XDP programs of before give it, it forwards.
func handOverAddresses(t *testing.T, leaf *daemon, from, to *testenv.Namespace, addr netip.Addr) {
	t.Helper()
	numbered := startSeries(t, "while leafd hands over", from, to, addr, 8000, 6000)
	before := leaf.metric("loom_drops_total")
	for range 2 {
		leaf.takeOver(filepath.Join(daemons, "leafd"))
	}
	<-numbered.done
	if n := leaf.metric("loom_drops_total") - before; n > 0 {
		t.Errorf("%d frames were dropped while leafd handed over: %v", n, leaf.stats().Drops)
	}
}
