package netns

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/config"
	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/internal/testenv"
	"github.com/loomfabric/loom/overlay"
)

// dropRoute takes a spine's route to a leaf away, and returns what brings it back: the
// links stay up, and leaves are told nothing.
func (f *fab) dropRoute(spine string, leaf int) (restore func()) {
	f.t.Helper()
	dst := &net.IPNet{IP: f.topo.Leaves[leaf].VTEP.AsSlice(), Mask: net.CIDRMask(32, 32)}
	var routes []netlink.Route
	f.ns[spine].Do(f.t, func() {
		var err error
		if routes, err = netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Dst: dst}, netlink.RT_FILTER_DST); err != nil || len(routes) == 0 {
			f.t.Fatalf("routes to %v in %s: %v, %v", dst, spine, routes, err)
		}
		for i := range routes {
			if err := netlink.RouteDel(&routes[i]); err != nil {
				f.t.Fatal(err)
			}
		}
	})
	return func() {
		f.ns[spine].Do(f.t, func() {
			for i := range routes {
				if err := netlink.RouteReplace(&routes[i]); err != nil {
					f.t.Fatal(err)
				}
			}
		})
	}
}

// path returns a metric of L0's path to L1 by an uplink.
func (f *fab) path(metric string, tag int) uint64 {
	f.t.Helper()
	return f.daemons["L0"].metric("loom_path_"+metric, fmt.Sprintf(`peer="%v"`, f.topo.Leaves[1].VTEP), fmt.Sprintf(`tag="%d"`, tag))
}

// pathBecomes waits until L0's path to L1 by an uplink is alive, or not.
func (f *fab) pathBecomes(tag int, alive bool, within time.Duration) {
	f.t.Helper()
	want := uint64(0)
	if alive {
		want = 1
	}
	eventually(f.t, within, func() string {
		if a, v := f.path("alive", tag), f.path("avoided", tag); a != want || v != 1-want {
			return fmt.Sprintf("path %d: alive %d, avoided %d; want %d and %d", tag, a, v, want, 1-want)
		}
		return ""
	})
}

// says waits until a daemon's log has a text, behind what it had before.
func (f *fab) says(node string, before int, text string) {
	f.t.Helper()
	eventually(f.t, 2*time.Second, func() string {
		if news := f.daemons[node].whole()[before:]; !strings.Contains(news, text) {
			return fmt.Sprintf("the log of %s does not say %q:\n%s", node, text, news)
		}
		return ""
	})
}

// allAlive waits until all paths between both leaves deliver: while ports open one after
// the other, some do not.
func (f *fab) allAlive() {
	f.t.Helper()
	eventually(f.t, 10*time.Second, func() string {
		a, b := f.daemons["L0"].metric("loom_path_alive"), f.daemons["L1"].metric("loom_path_alive")
		if a != 2 || b != 2 {
			return fmt.Sprintf("%d and %d of two paths each way are alive", a, b)
		}
		return ""
	})
}

// kinds returns one scheme of each kind, as far as it matters to a leaf what becomes of a
// choice: whether flows stay where they are, move at pauses or have no path of their own,
// whether leaves send messages about them, and whether packets wait or are sent in copies.
func kinds() (names []string) {
	type kind struct{ fixed, pauses, talks, waits, copies bool }
	seen := make(map[kind]bool)
	for _, s := range balance.Schemes() {
		k := kind{s.Fixed, s.Gap != nil, s.Wire != 0, s.Waits, s.Copies}
		if !seen[k] {
			names = append(names, s.Name)
		}
		seen[k] = true
	}
	return names
}

// TestDeadPath: a spine loses its route to a leaf and drops what is for it, while all
// links are up. The path is given up under a scheme of each kind (under every scheme in
// leaf's TestQuarantine and in the simulator's TestSilentSpine), from then on at least 99 of 100
// datagrams arrive, and when the route is back the path is in use again. On an idle machine
// the first takes less than a second and the last less than two. The log says both.
// (The spine does not believe the leaf's own packets either, as no route leads back, so
// that the other direction is dead, too: TestGrayPath has one that is not.)
func TestDeadPath(t *testing.T) {
	t.Run("workers", func(t *testing.T) { up(t, "pair.yaml").givesUpDeadPaths(kinds()) })
	t.Run("fast path", func(t *testing.T) {
		f := upWith(t, "pair.yaml", fastPath)
		f.givesUpDeadPaths([]string{"conga", "ecmp"})
		if n := f.wrapped(f.daemons["L0"], "h0"); n < 1000 {
			t.Errorf("XDP has put %d frames into tunnels: the test shows little", n)
		}
	})
}

func (f *fab) givesUpDeadPaths(schemes []string) {
	t := f.t
	t.Helper()
	d := f.daemons["L0"]
	f.allAlive()
	for i, scheme := range schemes {
		if i > 0 {
			// A link that goes and comes is another path: one that had failed a moment ago
			// would have to prove itself for longer.
			f.ns["L0"].SetUp(t, "up-s1-0", false)
			time.Sleep(quiet)
			f.ns["L0"].SetUp(t, "up-s1-0", true)
		}
		f.edit("L0", func(c *config.Leaf) { c.Balancing = vocab.Balancing{Scheme: scheme} })
		d.reload("configuration reloaded", "scheme="+scheme)
		f.pathBecomes(1, true, 10*time.Second)
		p := startProbe(t, f.ns["h0"], f.ns["h3"], f.addr("h3"), 64, time.Millisecond)
		uses(t, d, "up-s0-0", 50)
		log := len(d.whole())
		restore := f.dropRoute("S1", 1)
		broken := time.Now()
		f.pathBecomes(1, false, 10*time.Second)
		avoided := time.Now()
		time.Sleep(time.Second)
		p.end()
		if sent, lost := p.lost(avoided, time.Now()); lost*100 > sent || sent < 100 {
			t.Errorf("%s: %d of %d datagrams were lost after the path was given up", scheme, lost, sent)
		}
		restore()
		healed := time.Now()
		f.pathBecomes(1, true, 20*time.Second)
		t.Logf("%s: given up after %v, in use again %v after it was healed", scheme,
			avoided.Sub(broken).Round(time.Millisecond), time.Since(healed).Round(time.Millisecond))
		f.says("L0", log, "path delivers nothing")
		f.says("L0", log, "path delivers again")
	}
}

// loseAt drops every nth packet of at least so many bytes that comes to an interface.
func (f *fab) loseAt(node, port string, nth, least int32) (stop func()) {
	f.t.Helper()
	const drop, pass = 1, 2
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "lossy", Type: ebpf.XDP, License: "Apache-2.0", Instructions: asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, 0, asm.Word), // xdp_md.data
		asm.LoadMem(asm.R3, asm.R1, 4, asm.Word), // xdp_md.data_end
		asm.Add.Imm(asm.R2, least),
		asm.JGT.Reg(asm.R2, asm.R3, "pass"),
		asm.FnGetPrandomU32.Call(),
		asm.Mod.Imm32(asm.R0, nth),
		asm.JNE.Imm(asm.R0, 0, "pass"),
		asm.Mov.Imm(asm.R0, drop),
		asm.Return(),
		asm.Mov.Imm(asm.R0, pass).WithSymbol("pass"),
		asm.Return(),
	}})
	if err != nil {
		f.t.Fatalf("load a program that loses packets: %v", err)
	}
	index := f.ns[node].Link(f.t, port).Attrs().Index
	var l link.Link
	f.ns[node].Do(f.t, func() {
		l, err = link.AttachXDP(link.XDPOptions{Program: prog, Interface: index, Flags: link.XDPGenericMode})
	})
	if err != nil {
		f.t.Fatalf("attach it to %s: %v", port, err)
	}
	stop = func() { l.Close(); prog.Close() }
	f.t.Cleanup(stop)
	return stop
}

// TestGrayPath: what is lost in one direction, behind a spine that is a plain router and
// says nothing of it: one packet in twenty, or long ones only.
func TestGrayPath(t *testing.T) {
	for _, tt := range []struct {
		name       string
		nth, least int32
		traffic    bool
		says       string
	}{
		{"one packet in twenty", 20, 0, true, "path loses packets"},
		{"long packets", 1, 1000, false, "path delivers short packets only"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel() // it waits for windows of a second, and sends little
			f := up(t, "pair.yaml")
			f.daemons["S1"].stop()
			f.write("S1", "net/ipv4/ip_forward", "1")
			f.allAlive()
			far := len(f.daemons["L1"].whole())
			stop := f.loseAt("S1", "dn-l0-0", tt.nth, tt.least)
			if tt.traffic {
				p := startProbe(t, f.ns["h0"], f.ns["h3"], f.addr("h3"), 64, time.Millisecond)
				t.Cleanup(p.end)
			}
			f.pathBecomes(1, false, 30*time.Second)
			f.says("L0", 0, tt.says)
			// The other spine is a process, which a busy machine may not let run.
			for _, line := range lines(f.daemons["L1"].whole()[far:], "path delivers short", "path delivers nothing", "path loses") {
				if strings.Contains(line, "uplink=up-s1-0") {
					t.Errorf("L1, whose packets arrive, says: %s", line)
				}
			}
			stop()
			f.pathBecomes(1, true, 10*time.Second)
		})
	}
}

// TestForgedHELLO: a packet a second used to make a leaf send a plain VTEP headers that it
// drops. Whoever does not see what the leaf sends to the VTEP cannot echo it.
func TestForgedHELLO(t *testing.T) {
	t.Parallel() // it waits for rounds of HELLOs
	f := up(t, "pair.yaml")
	l0, l1 := f.topo.Leaves[0].VTEP, f.topo.Leaves[1].VTEP
	f.daemons["L1"].stop() // as if it were a plain VTEP
	d := f.daemons["L0"]
	capable := func() uint64 { return d.metric("loom_peer_capable", fmt.Sprintf(`peer="%v"`, l1)) }
	eventually(t, 5*time.Second, func() string {
		if capable() != 0 {
			return "the peer that has stopped is still sent the fabric's header"
		}
		return ""
	})
	w := openWire(t, f.ns["S1"], "dn-l0-0")
	tunnel := overlay.MakeTunnel(l1, l0, f.portMAC("S1", "dn-l0-0"), f.portMAC("L0", "up-s1-0"), overlay.DefaultPort)
	before := d.metric("loom_leaf_hellos_unproved_total")
	for round := range uint32(200) {
		b := make([]byte, overlay.MaxOverhead+overlay.EthernetLen+overlay.HelloLen)
		inner := b[overlay.MaxOverhead:]
		overlay.Ethernet(inner).SetEtherType(overlay.EtherTypeLocal)
		h := overlay.Hello{Boot: 1, Round: round + 1, Present: 3, Silent: 1, Nonce: 7, Echo: uint64(round)}
		h.Encode(inner[overlay.EthernetLen:])
		tunnel.Encap(b, len(inner), 0, round, overlay.DSCPControl, &overlay.Fabric{Capable: true, Opcode: overlay.OpHello, Shim: true})
		w.send(b)
		time.Sleep(5 * time.Millisecond)
		// A peer stays capable for two and a half rounds, 250 ms, without another HELLO.
		if round%10 == 9 && capable() != 0 {
			t.Fatal("a forged HELLO makes the peer capable")
		}
	}
	if n := d.metric("loom_leaf_hellos_unproved_total") - before; n != 200 {
		t.Errorf("%d of 200 forged HELLOs came and were not believed; drops: %v", n, d.stats().Drops)
	}
	if n := f.path("avoided", 0); n != 0 {
		t.Error("a path is avoided because of a forged HELLO")
	}
	f.daemons["L1"].start()
	f.pathBecomes(1, true, 10*time.Second)
}

// TestSealedControl: leaves with one key understand each other, also while the key is
// changed for another one; with none in common each drops what the other says, and sends
// it plain VXLAN.
func TestSealedControl(t *testing.T) {
	t.Parallel() // it starts daemons anew and waits for rounds of HELLOs
	f := up(t, "pair.yaml")
	const old, young = "000102030405060708090a0b0c0d0e0f\n", "ffeeddccbbaa99887766554433221100\n"
	use := func(leaf, keys string) {
		f.reconfigure(leaf, func(c *config.Leaf) {
			c.ControlKeyFile = filepath.Join(f.dir, leaf+".key")
			if err := os.WriteFile(c.ControlKeyFile, []byte(keys), 0o600); err != nil {
				t.Fatal(err)
			}
		})
	}
	d := f.daemons["L0"]
	capable := func(want uint64) {
		t.Helper()
		eventually(t, 5*time.Second, func() string {
			if n := d.metric("loom_peer_capable"); n != want {
				return fmt.Sprintf("the peer is capable: %d, want %d", n, want)
			}
			return ""
		})
	}
	use("L0", old)
	eventually(t, 5*time.Second, func() string {
		if d.drops("bad_seal") == 0 {
			return "no packet without a seal is dropped"
		}
		return ""
	})
	capable(0)
	use("L1", old)
	capable(1)
	f.pathBecomes(1, true, 5*time.Second)
	use("L1", young+old)
	capable(0) // it seals with the young one, which the other does not have
	use("L0", young+old)
	capable(1)
	if out, ok := testenv.Ping(t, f.ns["h0"], f.addr("h3"), 1400, 5); !ok {
		t.Error(out)
	}
	if n := d.drops("bad_seal"); n != 0 {
		t.Errorf("%d packets with good seals were dropped", n)
	}
}
