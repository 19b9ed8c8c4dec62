package netns

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/config"
	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/internal/testenv"
	"github.com/loomfabric/loom/overlay"
)

// liveFrames is how many numbered datagrams flow at least while a leaf's file changes.
var liveFrames = flag.Int("live-frames", 10_000, "datagrams that TestLiveChanges numbers at least")

// replace changes the text of a daemon's configuration and leaves the daemon alone.
func (d *daemon) replace(old, changed string) {
	d.t.Helper()
	text, err := os.ReadFile(d.config)
	if err != nil {
		d.t.Fatal(err)
	}
	if strings.Count(string(text), old) != 1 {
		d.t.Fatalf("%q stands %d times in\n%s", old, strings.Count(string(text), old), text)
	}
	if err := os.WriteFile(d.config, []byte(strings.Replace(string(text), old, changed, 1)), 0o644); err != nil {
		d.t.Fatal(err)
	}
}

// hostMAC is the address of a host's interface.
func (f *fab) hostMAC(host string) overlay.MAC {
	f.t.Helper()
	return overlay.MAC(f.ns[host].Link(f.t, "eth0").Attrs().HardwareAddr)
}

// overrun is how many frames the kernel dropped before a daemon could read them: on a busy
// machine a daemon, or the kernel's own thread, may not run for longer than its rings can
// bear, whatever a daemon's file says.
func (f *fab) overrun() (frames uint64) {
	frames = uint64(f.vethDrops())
	for _, d := range f.daemons {
		frames += d.metric("loom_xsk_rx_ring_full_total") + d.metric("loom_xsk_fill_ring_empty_total")
	}
	return frames
}

// TestLiveChanges: nearly everything in leafd.yaml and spined.yaml changes while numbered
// datagrams flow in both directions, and none of them is lost. An uplink that routes lead
// by on no side goes and returns like anything else.
func TestLiveChanges(t *testing.T) {
	f := up(t, "pair.yaml")
	d, spine := f.daemons["L0"], f.daemons["S0"]
	if out, ok := testenv.Ping(t, f.ns["h0"], f.addr("h4"), 56, 2); !ok { // addresses are learned
		t.Fatal(out)
	}
	start := time.Now()
	there := startBursts(t, f.ns["h0"], f.ns["h4"], f.addr("h4"), 32, time.Millisecond, 8)
	back := startBursts(t, f.ns["h4"], f.ns["h0"], f.addr("h0"), 32, time.Millisecond, 8)
	reload := func(change func(*config.Leaf)) {
		t.Helper()
		f.edit("L0", change)
		d.reload("configuration reloaded", "level=INFO")
	}
	stranger := netip.MustParseAddr("10.99.0.1")
	reload(func(c *config.Leaf) { // a peer, which gets copies of what is flooded
		c.Peers = append(c.Peers, stranger)
		c.VNIs[0].Flood = append(c.VNIs[0].Flood, stranger)
	})
	reload(func(c *config.Leaf) { // a network, and the peer goes
		c.Peers, c.VNIs[0].Flood = c.Peers[:1], c.VNIs[0].Flood[:1]
		c.VNIs = append(c.VNIs, config.VNI{VNI: 30, Flood: c.Peers})
	})
	var h2 config.Access
	reload(func(c *config.Leaf) { // both networks go, one with its port
		h2 = *access(c, f.host("h2"))
		for i := range c.Access {
			if c.Access[i].Interface == h2.Interface {
				c.Access = append(c.Access[:i], c.Access[i+1:]...)
				break
			}
		}
		c.VNIs = c.VNIs[:1]
	})
	if n := d.metric("loom_port_open", `port="`+h2.Interface+`"`); n != 0 || len(lines(d.whole(), "port removed")) != 1 {
		t.Errorf("%s is open: %d\n%s", h2.Interface, n, d.tail())
	}
	reload(func(c *config.Leaf) { // and come again; limits, static addresses, the log's level
		c.VNIs = append(c.VNIs, config.VNI{VNI: 20, Flood: c.Peers})
		c.Access = append(c.Access, h2)
		c.VNIs[0].FDBLimit, c.VNIs[0].Storm = 500, config.Storm{Rate: 5000}
		c.VNIs[0].Static = []config.Static{{MAC: config.MAC(f.hostMAC("h4")), VTEP: c.Peers[0]}}
		access(c, f.host("h0")).FDBLimit = 300
		access(c, f.host("h0")).Queue = 256 << 10
		c.Scheme, c.Log.Level = "spray", "debug"
	})
	d.open(h2.Interface, true)
	if out, ok := testenv.Ping(t, f.ns["h2"], f.addr("h5"), 56, 2); !ok {
		t.Errorf("a network and a port that came again:\n%s", out)
	}
	spine.replace("\nvteps:\n", "\nvteps:\n- 10.99.0.0/24\n")
	spine.reload("configuration reloaded", "level=INFO")

	// The uplink to S1 goes, after routing has taken it out of use on both sides.
	k := f.link("L0-S1.0")
	f.routesWithout("L1", "up-s1-0")
	f.routesWithout("L0", k.LeafPort)
	time.Sleep(100 * time.Millisecond)
	var uplinks []config.Uplink
	reload(func(c *config.Leaf) {
		uplinks = append(uplinks, c.Uplinks...)
		c.Uplinks = c.Uplinks[:0]
		for _, u := range uplinks {
			if u.Interface != k.LeafPort {
				c.Uplinks = append(c.Uplinks, u)
			}
		}
	})
	// One that is not there yet opens when it appears, and the old one comes again.
	reload(func(c *config.Leaf) {
		c.Uplinks = append([]config.Uplink{{Interface: "up9"}}, uplinks...)
	})
	d.open(k.LeafPort, true)
	if len(lines(d.whole(), "interface up9 does not exist: the port opens when it appears")) == 0 {
		t.Errorf("no warning of an interface that is not there:\n%s", d.tail())
	}
	testenv.VethPair(t, f.ns["L0"], "up9", f.ns["S1"], "dn9", testenv.VethOptions{MTU: 1600})
	d.open("up9", true)
	for there.sent.Load() < int64(*liveFrames)/2 || back.sent.Load() < int64(*liveFrames)/2 {
		time.Sleep(10 * time.Millisecond)
	}
	// Routes return to one node after the other, and leaves believe what comes by no route
	// of theirs for a moment only: what is lost now is not the file's fault.
	end := time.Now()
	time.Sleep(100 * time.Millisecond)
	if err := f.lab.Restore("L0-S1.0"); err != nil {
		t.Fatal(err)
	}
	uses(t, d, k.LeafPort, 50)
	there.end()
	back.end()
	for name, p := range map[string]*probe{"there": there, "back": back} {
		sent, lost := p.lost(start, end)
		t.Logf("%s: %d datagrams, %d lost, %d overrun", name, sent, lost, f.overrun())
		if lost > 0 && uint64(lost) > f.overrun() {
			t.Errorf("%s: %d of %d datagrams were lost, %d because rings were full", name, lost, sent, f.overrun())
			for name, d := range f.daemons {
				t.Logf("%s dropped %v", name, d.stats().Drops)
			}
		}
	}
	for _, x := range f.daemons {
		x.balanced()
	}
}

// TestUplinkRemovedInUse: an uplink goes from leafd.yaml that frames flow by. The leaf's own
// go by the other one from then on, and none is lost. What the other leaf sends by it is
// lost until it sees that the path does not deliver, as when a link's far end goes silent.
func TestUplinkRemovedInUse(t *testing.T) {
	f := up(t, "pair.yaml")
	d := f.daemons["L0"]
	if out, ok := testenv.Ping(t, f.ns["h0"], f.addr("h4"), 56, 2); !ok {
		t.Fatal(out)
	}
	there := startBursts(t, f.ns["h0"], f.ns["h4"], f.addr("h4"), 32, time.Millisecond, 4)
	back := startBursts(t, f.ns["h4"], f.ns["h0"], f.addr("h0"), 32, time.Millisecond, 4)
	uses(t, d, "up-s1-0", 50)
	start := time.Now()
	f.edit("L0", func(c *config.Leaf) {
		c.Balancing = vocab.Balancing{Scheme: "conga"}
		c.Uplinks = c.Uplinks[:1]
	})
	d.reload("configuration reloaded")
	gone := time.Now()
	// On an idle machine the other leaf sees within 1.5 s that the path does not deliver.
	eventually(t, 10*time.Second, func() string {
		if n := f.daemons["L1"].metric("loom_path_avoided"); n != 1 {
			return fmt.Sprintf("L1 keeps off %d paths", n)
		}
		return ""
	})
	avoided := time.Now()
	time.Sleep(time.Second)
	there.end()
	back.end()
	full := int(f.overrun()) // on a loaded machine rings are
	if sent, lost := there.lost(start, time.Now()); lost > full || sent < 500 {
		t.Errorf("of %d datagrams from behind the leaf whose uplink went %d are lost, and rings were full for %d\nL0 dropped %v, L1 %v",
			sent, lost, full, d.stats().Drops, f.daemons["L1"].stats().Drops)
	}
	sent, lost := back.lost(avoided.Add(100*time.Millisecond), time.Now())
	if lost > full || sent < 200 {
		t.Errorf("of %d datagrams to the leaf whose uplink went %d are lost once the other leaf knows, and rings were full for %d", sent, lost, full)
	}
	sent, lost = back.lost(start, time.Now())
	t.Logf("%d of %d to the leaf are lost; the other leaf knew after %v", lost, sent, avoided.Sub(gone).Round(time.Millisecond))

	// It is in the file again, and another one besides that is not there when the leaf starts:
	// the leaf serves its hosts without.
	d.stop()
	f.edit("L0", func(c *config.Leaf) {
		c.Uplinks = append(c.Uplinks, config.Uplink{Interface: "up-s1-0"}, config.Uplink{Interface: "up9"})
	})
	d.start()
	d.says("interface up9 does not exist: the port opens when it appears")
	d.open("up-s1-0", true)
	transfer(t, f.ns["h3"], f.ns["h0"], f.addr("h0"), 256<<10)
	if _, err := d.get("/readyz"); err == nil || !strings.Contains(err.Error(), "up9") {
		t.Errorf("/readyz of a leaf without an uplink: %v", err)
	}
	testenv.VethPair(t, f.ns["L0"], "up9", f.ns["S1"], "dn9", testenv.VethOptions{MTU: 1600})
	d.open("up9", true)
	d.ready()
}
