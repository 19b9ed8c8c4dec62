package netns

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/testenv"
	"github.com/loomfabric/loom/overlay"
)

// TestAbsentAccess: leafd starts without the interface of a host, as that of a virtual
// machine that has yet to start, and opens the port when it appears. With `required`
// it does not start.
func TestAbsentAccess(t *testing.T) {
	t.Parallel() // it waits for a daemon's start
	f := up(t, "pair.yaml")
	h1, d := f.host("h1"), f.daemons["L0"]
	d.stop()
	f.ns["L0"].DeleteLink(t, h1.Port)

	text, err := os.ReadFile(d.config)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "leafd.yaml")
	required := strings.Replace(string(text), "interface: "+h1.Port, "interface: "+h1.Port+"\n  required: true", 1)
	if err := os.WriteFile(file, []byte(required), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"check", "run"} {
		if out, code := f.command("L0", "leafd", verb, "-c", file); code == 0 || !strings.Contains(out, "interface "+h1.Port+" does not exist") {
			t.Errorf("%s with required: true: exit code %d\n%s", verb, code, out)
		}
	}
	if out, code := f.command("L0", "leafd", "check", "-c", d.config); code != 0 || !strings.Contains(out, "warning: interface "+h1.Port+" does not exist") {
		t.Errorf("check: exit code %d\n%s", code, out)
	}

	d.start()
	d.ready()
	if n := d.metric("loom_port_exists", "port", h1.Port); n != 0 {
		t.Errorf("loom_port_exists of %s is %d", h1.Port, n)
	}
	transfer(t, f.ns["h3"], f.ns["h0"], f.addr("h0"), 256<<10) // others do not mind
	v := veth{f.ns["L0"], f.ns["h1"], h1.Port, "eth0", 1500}
	v.restore(t)
	setIdentity(t, f.ns["h1"], h1.MAC, h1.Addr.String())
	d.open(h1.Port, true)
	if n := d.metric("loom_port_exists", "port", h1.Port); n != 1 {
		t.Errorf("loom_port_exists of %s is %d", h1.Port, n)
	}
	transfer(t, f.ns["h3"], f.ns["h1"], h1.Addr.Addr(), 1<<20)
}

// TestHostKeepsWhatItIsSent: a host queues what comes by its end of a veth pair. As long
// as it does, the kernel keeps the queue of the leaf's end for the socket that sent it. A leafd
// that starts again carries the others' traffic, and opens that port when it can.
func TestHostKeepsWhatItIsSent(t *testing.T) {
	t.Parallel() // it waits for a queue that does not move
	f := up(t, "pair.yaml")
	h0, d := f.host("h0"), f.daemons["L0"]
	testenv.VethPair(t, f.ns["h0"], "q0", f.ns["h0"], "q1", testenv.VethOptions{})
	f.ns["h0"].Do(t, func() {
		bridge := &netlink.Bridge{LinkAttrs: netlink.NewLinkAttrs()}
		bridge.Name = "br0"
		if err := netlink.LinkAdd(bridge); err != nil {
			t.Fatalf("add br0: %v", err)
		}
		q0, err := netlink.LinkByName("q0")
		if err != nil {
			t.Fatal(err)
		}
		tbf := &netlink.Tbf{
			QdiscAttrs: netlink.QdiscAttrs{LinkIndex: q0.Attrs().Index, Parent: netlink.HANDLE_ROOT, Handle: netlink.MakeHandle(1, 0)},
			Rate:       100, Limit: 1 << 20, Buffer: netlink.Xmittime(100, 2000),
		}
		if err := netlink.QdiscReplace(tbf); err != nil {
			t.Fatalf("queue of q0: %v", err)
		}
		for _, name := range []string{"q0", "eth0", "br0"} {
			l, err := netlink.LinkByName(name)
			if err == nil && name != "br0" {
				err = netlink.LinkSetMaster(l, bridge)
			}
			if err == nil {
				err = netlink.LinkSetUp(l)
			}
			if err != nil {
				t.Fatalf("set %s up: %v", name, err)
			}
		}
	})
	behind := overlay.MAC{2, 0xaa, 0, 0, 0, 1}
	w := openWire(t, f.ns["h1"], "eth0")
	openWire(t, f.ns["h0"], "q1").send(frame(broadcast, behind, 0, "here"))
	w.expect(frame(broadcast, behind, 0, "here"), "h1")
	for range 60 { // more than the 2000 bytes that its queue lets through at once
		w.send(frame(behind, overlay.MAC(f.host("h1").MAC), 0, "kept "+strings.Repeat("x", 100)))
	}
	time.Sleep(quiet)

	if err := d.signal(unix.SIGKILL); err != nil {
		t.Log(err)
	}
	d.start()
	eventually(t, 10*time.Second, func() string {
		if len(lines(d.whole(), `cannot open port; trying again" node=L0 error="port `+h0.Port)) == 0 {
			return "L0 does not say that it cannot open " + h0.Port + "\n" + d.tail()
		}
		return ""
	})
	transfer(t, f.ns["h1"], f.ns["h3"], f.addr("h3"), 256<<10)
	d.open(h0.Port, false)
	if started := lines(d.whole(), "msg=ready"); len(started) != 2 {
		t.Errorf("L0 was ready %d times, want 2: its start waits for the port of h0\n%s", len(started), d.tail())
	}

	f.ns["h0"].DeleteLink(t, "q0")
	d.open(h0.Port, true)
	d.ready()
}
