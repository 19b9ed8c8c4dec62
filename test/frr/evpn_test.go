package frr

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/testenv"
)

// evpn is a fabric of EVPN leaves. VNI 100 is behind all of them, VNI 200 behind the
// last two.
const evpn = `control: frr
frr: {evpn: true, gateway: true}
leaves: 3
spines: 2
hosts: {per_leaf: 2}
vnis:
  - {vni: 100, hosts: [h0, h1, h2, h4]}
  - {vni: 200, hosts: [h3, h5]}
`

// planes are who forwards for the leaves. The kernel alone is the control.
var planes = map[string]string{
	"kernel": "dataplane: kernel\n",
	"loom":   "overlay: kernel\nkernel_leaves: [L2]\n", // and a leaf without it
}

// late is ten times what is promised of BGP on an idle machine: a second.
const late = 10 * time.Second

// TestLeaf has a leaf do what one that runs EVPN has to.
func TestLeaf(t *testing.T) {
	t.Parallel()
	for name, plane := range planes {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // they wait for BGP most of the time
			b := up(t, evpn+plane)
			ageing := b.startAgeing()
			for _, s := range []struct {
				name string
				test func(*bed)
			}{
				{"addresses are known, and withdrawn", (*bed).addresses},
				{"a host moves and returns", (*bed).moves},
				{"a silent host is not stolen", (*bed).silent},
				{"what is the kernel's reaches it", (*bed).punts},
				{"groups and unknown addresses", (*bed).bum},
				{"ARP suppression", (*bed).suppression},
			} {
				t.Run(s.name, func(t *testing.T) { s.test(b.in(t)) })
			}
			t.Run("who sends does not age", func(t *testing.T) { ageing.check(t) })
			t.Run("bgpd and zebra restart", func(t *testing.T) { b.in(t).restarts() })
			t.Run("a leaf joins", func(t *testing.T) { b.in(t).joins() })
		})
	}
}

// An entry is one of a forwarding table, as iproute2 prints it.
type entry struct {
	MAC    string   `json:"mac"`
	Dev    string   `json:"ifname"`
	Dst    string   `json:"dst"`
	Master string   `json:"master"`
	Flags  []string `json:"flags"`
	State  string   `json:"state"`
}

// fdb lists the entries of a device, or of a bridge and its ports.
func (b *bed) fdb(node, kind, name string) (out []entry) {
	b.t.Helper()
	text := b.bridge(node, "-j", "fdb", "show", kind, name)
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		b.t.Fatalf("%s: %v", text, err)
	}
	return out
}

// remotes lists the addresses that a leaf's kernel knows behind other leaves: "MAC VTEP",
// those of which both of its entries agree.
func (b *bed) remotes(node string, vni int) (out []string) {
	b.t.Helper()
	list := b.fdb(node, "dev", fmt.Sprint("vx-", vni))
	for _, e := range list {
		if e.Dst != "" && e.MAC != "00:00:00:00:00:00" &&
			slices.ContainsFunc(list, func(m entry) bool { return m.MAC == e.MAC && m.Master != "" }) {
			out = append(out, e.MAC+" "+e.Dst)
		}
	}
	slices.Sort(out)
	return out
}

// flood lists the leaves to which a leaf's kernel sends a VNI's broadcasts.
func (b *bed) flood(node string, vni int) (out []string) {
	b.t.Helper()
	for _, e := range b.fdb(node, "dev", fmt.Sprint("vx-", vni)) {
		if e.MAC == "00:00:00:00:00:00" && e.Dst != "" {
			out = append(out, e.Dst)
		}
	}
	slices.Sort(out)
	return out
}

// knows waits until a leaf's kernel knows an address behind a VTEP, or, if the VTEP is
// not valid, behind none.
func (b *bed) knows(node string, vni int, mac string, vtep netip.Addr) time.Duration {
	b.t.Helper()
	return eventually(b.t, late, func() string {
		have := b.remotes(node, vni)
		if vtep.IsValid() && !slices.Contains(have, mac+" "+vtep.String()) ||
			!vtep.IsValid() && slices.ContainsFunc(have, func(s string) bool { return strings.HasPrefix(s, mac) }) {
			return fmt.Sprintf("%s knows %q, want %s behind %v", node, have, mac, vtep)
		}
		return ""
	})
}

// speak has an address be seen behind a host's port.
func (b *bed) speak(host, mac string) {
	b.t.Helper()
	openWire(b.t, b.ns[host], "eth0").send(frame("ff:ff:ff:ff:ff:ff", mac, testType, nil, "here"))
}

// addresses: an address that was seen behind one leaf is known to the others, and when
// its port goes down it is withdrawn.
func (b *bed) addresses() {
	const mac = "02:aa:00:00:00:10"
	b.speak("h0", mac)
	known := max(b.knows("L1", 100, mac, b.vtep(0)), b.knows("L2", 100, mac, b.vtep(0)))
	b.ip("L0", "link", "set", b.host("h0").Port, "down")
	withdrawn := max(b.knows("L1", 100, mac, netip.Addr{}), b.knows("L2", 100, mac, netip.Addr{}))
	b.ip("L0", "link", "set", b.host("h0").Port, "up")
	b.t.Logf("known after %v, withdrawn after %v", known.Round(time.Millisecond), withdrawn.Round(time.Millisecond))
	want := []string{b.vtep(1).String(), b.vtep(2).String()}
	if got := b.flood("L0", 100); !slices.Equal(got, want) {
		b.t.Errorf("L0 floods to %v, want %v", got, want)
	}
}

// sequence reads from FRR how often an address has moved: the number of its type-2 route
// (RFC 7432 §7.7), as the leaf sees it that has the address.
func (b *bed) sequence(node string, mac string) int {
	b.t.Helper()
	text := b.vtysh(node, "show evpn mac vni 100 mac "+mac+" json")
	var m map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		b.t.Fatalf("%s: %v", text, err)
	}
	if inner, ok := m[mac]; ok {
		text = string(inner)
	}
	var s struct {
		Local int `json:"localSequence"`
	}
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		b.t.Fatalf("%s: %v", text, err)
	}
	return s.Local
}

// moves: a host goes from one leaf to another and comes back. Those who talk with it,
// behind either leaf, do so again at once, and each move counts one.
func (b *bed) moves() {
	const mac = "02:aa:00:00:00:01"
	addr := netip.MustParseAddr("10.100.1.1")
	host := testenv.NewNamespace(b.t, "frrmove")
	b.ns["mover"] = host
	for i, leaf := range []string{"L0", "L1"} {
		port, own := fmt.Sprint("acc-m", i), fmt.Sprint("eth", i)
		testenv.VethPair(b.t, b.ns[leaf], port, host, own, testenv.VethOptions{})
		b.ip(leaf, "link", "set", port, "master", "br-100")
		b.ip("mover", "link", "set", own, "address", mac)
	}
	// The port that it has left stays up, so that it is the host's word that moves it; and
	// is deaf: what comes by it has a way back by the other.
	host.Sysctl(b.t, "net/ipv4/conf/all/rp_filter", "1")
	here := func(i int) {
		own, other := fmt.Sprint("eth", i), fmt.Sprint("eth", 1-i)
		b.ip("mover", "addr", "flush", "dev", other)
		b.ip("mover", "addr", "add", addr.String()+"/16", "dev", own)
		m, _ := net.ParseMAC(mac)
		ip := addr.As4()
		arp := slices.Concat([]byte{0, 1, 8, 0, 6, 4, 0, 1}, m, ip[:], make([]byte, 6), ip[:]) // it says that it is here
		openWire(b.t, host, own).send(frame("ff:ff:ff:ff:ff:ff", mac, 0x0806, arp, "here"))
	}
	here(0)
	b.knows("L1", 100, mac, b.vtep(0))
	first := b.sequence("L0", mac)
	var probes []*probe
	for _, from := range []string{"h1", "h2"} { // behind L0, behind L1
		probes = append(probes, startProbe(b.t, b.ns[from], host, addr, 4, 5*time.Millisecond))
	}
	for i, to := range []int{1, 0} {
		for _, p := range probes {
			p.works(late)
		}
		start := time.Now()
		here(to)
		b.knows(b.topo.Leaves[1-to].Name, 100, mac, b.vtep(to))
		for _, p := range probes {
			p.works(late)
		}
		for k, p := range probes {
			l := p.loss(start, time.Now().Add(-200*time.Millisecond)) // later ones may be under way
			b.t.Logf("move %d, from behind L%d: %v", i+1, k, l)
			if l.outage > 2*time.Second || l.duplicates > 0 {
				b.t.Errorf("move %d, from behind L%d: %v", i+1, k, l)
			}
		}
		if got := b.sequence(b.topo.Leaves[to].Name, mac); got != first+i+1 {
			b.t.Errorf("after move %d the sequence is %d, was %d at first", i+1, got, first)
		}
	}
	for _, p := range probes {
		p.end()
	}
}

// silent: an address that has moved, and says nothing any more, stays where it was seen
// last, while others go on talking.
func (b *bed) silent() {
	const mac = "02:aa:00:00:00:20"
	b.speak("h0", mac)
	b.knows("L1", 100, mac, b.vtep(0))
	b.speak("h2", mac)
	b.knows("L0", 100, mac, b.vtep(1))
	seq := b.sequence("L1", mac)
	p := startProbe(b.t, b.ns["h0"], b.ns["h2"], b.addr("h2"), 4, 5*time.Millisecond)
	for range 30 {
		time.Sleep(100 * time.Millisecond)
		if have := b.remotes("L0", 100); !slices.Contains(have, mac+" "+b.vtep(1).String()) {
			b.t.Fatalf("L0 knows %q, not %s behind %v any more", have, mac, b.vtep(1))
		}
	}
	p.end()
	if got := b.sequence("L1", mac); got != seq {
		b.t.Errorf("the sequence went from %d to %d", seq, got)
	}
}

// ageingTime returns that of the bridges of VNI 200, and for how long hosts talk meanwhile.
func ageingTime() (ageing, talk time.Duration) {
	if *all {
		return 20 * time.Second, time.Minute
	}
	return 6 * time.Second, 16 * time.Second
}

// An ageingHost is a host's unicast traffic over a while in which a leaf must not withdraw it.
type ageingHost struct {
	start   time.Time
	probe   *probe
	deletes chan netlink.NeighUpdate
	// leafd returns how many frames from h3 leafd has sent on, and how many it has shown to
	// the kernel; nil: there is no leafd.
	leafd func() (sent, shown uint64)
	// sent and shown are what leafd returned at the start.
	sent, shown uint64
}

// startAgeing has h3 and h5 talk, unicast only.
func (b *bed) startAgeing() *ageingHost {
	b.t.Helper()
	ageing, _ := ageingTime()
	for _, leaf := range []string{"L1", "L2"} {
		b.ip(leaf, "link", "set", "br-200", "type", "bridge", "ageing_time", fmt.Sprint(int(ageing/(10*time.Millisecond))))
	}
	a := &ageingHost{deletes: make(chan netlink.NeighUpdate, 4096)}
	ns, err := netns.GetFromName(b.ns["L2"].Name)
	if err != nil {
		b.t.Fatal(err)
	}
	defer ns.Close()
	p := startProbe(b.t, b.ns["h3"], b.ns["h5"], b.addr("h5"), 4, 20*time.Millisecond)
	b.knows("L2", 200, b.mac("h3"), b.vtep(1))
	updates, done := make(chan netlink.NeighUpdate, 4096), make(chan struct{})
	if err := netlink.NeighSubscribeWithOptions(updates, done, netlink.NeighSubscribeOptions{Namespace: &ns}); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { close(done) })
	want := b.mac("h3")
	go func() {
		for u := range updates {
			if u.Type == unix.RTM_DELNEIGH && u.HardwareAddr.String() == want {
				a.deletes <- u
			}
		}
	}()
	p.works(late)
	if b.lab.File.Overlay == "kernel" {
		port := b.host("h3").Port
		count := func(verdict string) uint64 {
			return b.metric("L1", "loom_classifier_frames_total", `port="`+port+`"`, `verdict="`+verdict+`"`)
		}
		a.leafd = func() (sent, shown uint64) { return count("redirect"), count("pass_refresh") }
		a.sent, a.shown = a.leafd()
	}
	a.start, a.probe = time.Now(), p
	return a
}

// check waits until the time is over, more than twice the bridges' own.
func (a *ageingHost) check(t *testing.T) {
	_, talk := ageingTime()
	time.Sleep(time.Until(a.start.Add(talk)))
	a.probe.t = t
	a.probe.end()
	l := a.probe.loss(a.start, time.Now())
	t.Logf("%v of unicast: lost %v", time.Since(a.start).Round(time.Second), l)
	if l.lost*1000 > l.sent || l.duplicates > 0 {
		t.Errorf("lost %v", l)
	}
	if a.leafd != nil {
		sent, shown := a.leafd()
		sent, shown = sent-a.sent, shown-a.shown
		t.Logf("of %d frames, and some of other tests, leafd sent %d, and showed the kernel %d", l.sent, sent, shown)
		if ageing, talk := ageingTime(); sent < uint64(l.sent)*9/10 || shown < uint64(talk/ageing) || shown > uint64(l.sent)/100 {
			t.Errorf("leafd sent %d of %d frames and showed the kernel %d: these have to be one an ageing time at least, and few", sent, l.sent, shown)
		}
	}
	if n := len(a.deletes); n > 0 {
		t.Errorf("the address was withdrawn %d times: %+v", n, <-a.deletes)
	}
}

// fdbOfLeafd lists the addresses that a leaf's leafd forwards to: "VNI MAC place".
func (b *bed) fdbOfLeafd(node string) (out []string) {
	b.t.Helper()
	body, err := b.get(node, ".admin.sock", "/v1/fdb?limit=100000")
	if err != nil {
		b.t.Fatal(err)
	}
	var t dataplane.FDBTable
	if err := json.Unmarshal(body, &t); err != nil {
		b.t.Fatalf("%s: %v", body, err)
	}
	for _, e := range t.Entries {
		place := e.Port
		if e.VTEP.IsValid() {
			place = e.VTEP.String()
		}
		out = append(out, fmt.Sprint(e.VNI, " ", e.MAC, " ", place))
	}
	slices.Sort(out)
	return out
}

// fdbOfKernel lists what a leaf's kernel knows, in the same words.
func (b *bed) fdbOfKernel(node string) (out []string) {
	b.t.Helper()
	for _, vni := range b.topo.VNIsOf(int(node[1] - '0')) {
		for _, r := range b.remotes(node, int(vni)) {
			out = append(out, fmt.Sprint(vni, " ", r))
		}
		for _, e := range b.fdb(node, "br", fmt.Sprint("br-", vni)) {
			if e.Dst == "" && e.State != "permanent" && strings.HasPrefix(e.Dev, "acc-") {
				out = append(out, fmt.Sprint(vni, " ", e.MAC, " ", e.Dev))
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// mirrored waits until a leaf's leafd, if it has one that follows the kernel, knows what the
// kernel knows.
func (b *bed) mirrored(node string) {
	b.t.Helper()
	if b.lab.File.Overlay != "kernel" {
		return
	}
	took := eventually(b.t, late, func() string {
		if got, want := b.fdbOfLeafd(node), b.fdbOfKernel(node); !slices.Equal(got, want) {
			return fmt.Sprintf("%s: leafd knows %q, the kernel %q", node, got, want)
		}
		return ""
	})
	b.t.Logf("%s: leafd's addresses equal the kernel's %v later", node, took.Round(time.Millisecond))
}

// restarts: what a leaf's kernel knows of others it knows again after bgpd, and zebra,
// were killed and started.
func (b *bed) restarts() {
	for _, h := range []string{"h0", "h2", "h4"} {
		b.speak(h, b.mac(h))
	}
	b.knows("L0", 100, b.mac("h2"), b.vtep(1))
	b.knows("L0", 100, b.mac("h4"), b.vtep(2))
	flood := b.flood("L0", 100)
	for _, killed := range [][]string{{"bgpd"}, {"zebra", "bgpd"}} {
		for _, d := range killed {
			b.stopRouting("L0", d, unix.SIGKILL)
		}
		b.knows("L1", 100, b.mac("h0"), netip.Addr{})
		b.startRouting("L0", killed...)
		took := eventually(b.t, 30*time.Second, func() string {
			have := b.remotes("L0", 100)
			for _, want := range []string{b.mac("h2") + " " + b.vtep(1).String(), b.mac("h4") + " " + b.vtep(2).String()} {
				if !slices.Contains(have, want) {
					return fmt.Sprintf("L0 knows %q, not %s", have, want)
				}
			}
			if got := b.flood("L0", 100); !slices.Equal(got, flood) {
				return fmt.Sprintf("L0 floods to %v, want %v", got, flood)
			}
			// L1 has forgotten it by now, unless bgpd has said so again.
			if have := b.remotes("L1", 100); !slices.Contains(have, b.mac("h0")+" "+b.vtep(0).String()) {
				return fmt.Sprintf("L1 knows %q, not h0", have)
			}
			return ""
		})
		b.t.Logf("%v: as before after %v", killed, took.Round(time.Millisecond))
		b.mirrored("L0")
		b.mirrored("L1")
		b.reaches("h0", "h2")
		b.reaches("h0", "h4")
	}
}

// reaches waits until a host answers another's ping.
func (b *bed) reaches(from, to string) {
	b.t.Helper()
	eventually(b.t, late, func() string {
		out, ok := testenv.Ping(b.t, b.ns[from], b.addr(to), 56, 1)
		if !ok {
			return fmt.Sprintf("%s does not reach %s: %s", from, to, out)
		}
		return ""
	})
}

// joins: a leaf that nobody has heard of yet gets traffic as soon as BGP knows it, and
// nothing is edited elsewhere.
func (b *bed) joins() {
	for _, port := range []string{"up-s0-0", "up-s1-0"} {
		b.ip("L2", "link", "set", port, "down")
	}
	eventually(b.t, late, func() string {
		if got := b.flood("L0", 100); len(got) != 1 {
			return fmt.Sprintf("L0 floods to %v", got)
		}
		return ""
	})
	start := time.Now()
	for _, port := range []string{"up-s0-0", "up-s1-0"} {
		b.ip("L2", "link", "set", port, "up")
	}
	eventually(b.t, 2*late, func() string {
		if got := b.flood("L0", 100); len(got) != 2 {
			return fmt.Sprintf("L0 floods to %v", got)
		}
		return ""
	})
	listed := time.Since(start)
	b.reaches("h0", "h4")
	b.t.Logf("listed after %v, answers after %v", listed.Round(time.Millisecond), time.Since(start).Round(time.Millisecond))
}
