package bridge

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/testenv"
	"github.com/loomfabric/loom/overlay"
)

// lockedRecorder is a recorder that a mirror writes to while a test reads.
type lockedRecorder struct {
	mu sync.Mutex
	recorder
	deleted map[key]int // how often the address was deleted
}

func (r *lockedRecorder) SetModel(m *Model) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.recorder.SetModel(m)
}

func (r *lockedRecorder) ChangeAddresses(c []Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range c {
		if x.To == (Place{}) {
			r.deleted[key{uint32(x.VNI), x.MAC}]++
		}
	}
	r.recorder.ChangeAddresses(c)
}

func (r *lockedRecorder) now() (*Model, map[key]Place) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.model, maps.Clone(r.has)
}

// rig is a namespace with bridges, and a mirror of it.
type rig struct {
	ns     *testenv.Namespace
	mirror *Mirror
	sink   *lockedRecorder
}

func newRig(t testing.TB, buffer int, setup ...string) *rig {
	t.Helper()
	testenv.NeedRoot(t)
	r := &rig{ns: testenv.NewNamespace(t, "bridge"), sink: &lockedRecorder{recorder: recorder{t: t, has: make(map[key]Place)}, deleted: make(map[key]int)}}
	r.run(t, setup...)
	r.ns.Do(t, func() {
		var err error
		if r.mirror, err = Open(Options{Sink: r.sink, Buffer: buffer}); err != nil {
			t.Fatal(err)
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	end := make(chan error, 1)
	go func() { end <- r.mirror.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-end; err != nil {
			t.Error(err)
		}
	})
	return r
}

// run runs commands in the namespace.
func (r *rig) run(t testing.TB, commands ...string) {
	t.Helper()
	for _, c := range commands {
		f := append([]string{"netns", "exec", r.ns.Name}, strings.Fields(c)...)
		if out, err := exec.Command("ip", f...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", c, err, out)
		}
	}
}

// shown is an entry as iproute2 shows it.
type shown struct {
	MAC    string   `json:"mac"`
	Name   string   `json:"ifname"`
	Flags  []string `json:"flags"`
	Master string   `json:"master"`
	State  string   `json:"state"`
	Dst    string   `json:"dst"`
	NHID   int      `json:"nhid"`
	SrcVNI uint32   `json:"src_vni"`
	VNI    uint32   `json:"vni"`
	VLAN   uint16   `json:"vlan"`
}

// oracle reads the kernel's tables by iproute2 and says, the plain way, where addresses
// are. ports has those that may be used.
func (r *rig) oracle(t testing.TB, devices map[string]uint32, ports map[string]bool) map[key]Place {
	t.Helper()
	out, err := exec.Command("ip", "netns", "exec", r.ns.Name, "bridge", "-j", "fdb", "show").Output()
	if err != nil {
		t.Fatal(err)
	}
	var list []shown
	if err := json.Unmarshal(out, &list); err != nil {
		t.Fatal(err)
	}
	index := make(map[string]int)
	bridges := make(map[string]string) // device by bridge
	for _, e := range list {
		if e.Master != "" && devices[e.Name] != 0 {
			bridges[e.Master] = e.Name
		}
		if index[e.Name] == 0 && ports[e.Name] {
			index[e.Name] = r.ns.Link(t, e.Name).Attrs().Index
		}
	}
	want := make(map[key]Place)
	for _, e := range list {
		if e.Master == "" || e.State == "permanent" {
			continue
		}
		k := key{devices[bridges[e.Master]], parseMAC(t, e.MAC)}
		if k.vni == 0 {
			continue
		}
		switch {
		case ports[e.Name]:
			want[k] = Place{Port: index[e.Name]}
		case devices[e.Name] != 0:
			for _, s := range list {
				if s.Name == e.Name && s.MAC == e.MAC && s.Master == "" && s.Dst != "" && s.NHID == 0 && (s.VNI == 0 || s.VNI == k.vni) {
					want[k] = Place{VTEP: netip.MustParseAddr(s.Dst)}
				}
			}
		}
	}
	return want
}

func parseMAC(t testing.TB, s string) (m overlay.MAC) {
	t.Helper()
	if _, err := fmt.Sscanf(s, "%x:%x:%x:%x:%x:%x", &m[0], &m[1], &m[2], &m[3], &m[4], &m[5]); err != nil {
		t.Fatalf("MAC %q: %v", s, err)
	}
	return m
}

// expect waits until the mirror has what the kernel has.
func (r *rig) expect(t testing.TB, what string, devices map[string]uint32, ports ...string) map[key]Place {
	t.Helper()
	usable := make(map[string]bool)
	for _, p := range ports {
		usable[p] = true
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		want := r.oracle(t, devices, usable)
		_, got := r.sink.now()
		if maps.Equal(got, want) {
			return got
		}
		if time.Now().After(end) {
			t.Fatalf("%s: the mirror has\n%v\nand the kernel\n%v", what, got, want)
		}
	}
}

// left waits until an interface is left to the kernel for a reason; "": for none.
func (r *rig) left(t testing.TB, name string, want Reason) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		m, _ := r.sink.now()
		var got []Left
		if m != nil {
			got = slices.DeleteFunc(slices.Clone(m.Left), func(l Left) bool { return l.Name != name })
			if len(got) == 0 && want == "" || len(got) == 1 && got[0].Reason == want {
				return
			}
		}
		if time.Now().After(end) {
			t.Fatalf("%s is left for %v, want %q", name, got, want)
		}
	}
}

var twoNetworks = []string{
	"ip link add br100 type bridge", "ip link add br200 type bridge",
	"ip link add vx100 type vxlan id 100 local 10.0.0.1 dstport 4789 nolearning",
	"ip link add vx200 type vxlan id 200 local 10.0.0.1 dstport 4789 nolearning",
	"ip link add a0 type veth peer name ha0", "ip link add a1 type veth peer name ha1", "ip link add b0 type veth peer name hb0",
	"ip link set vx100 master br100", "ip link set a0 master br100", "ip link set a1 master br100",
	"ip link set vx200 master br200", "ip link set b0 master br200",
	"ip link set ha0 up", "ip link set ha1 up", "ip link set hb0 up",
	"ip link set a0 up", "ip link set a1 up", "ip link set b0 up", "ip link set vx100 up", "ip link set vx200 up",
	"ip link set br100 up", "ip link set br200 up",
	"bridge fdb append 00:00:00:00:00:00 dev vx100 dst 10.0.0.2 self",
	"bridge fdb add 02:00:00:00:00:01 dev vx100 dst 10.0.0.2 self extern_learn", "bridge fdb add 02:00:00:00:00:01 dev vx100 master extern_learn",
	"bridge fdb add 02:00:00:00:00:02 dev a0 master dynamic",
	"bridge fdb add 02:00:00:00:00:03 dev vx200 dst 10.0.0.3 self extern_learn", "bridge fdb add 02:00:00:00:00:03 dev vx200 master extern_learn",
	"bridge fdb add 02:00:00:00:00:04 dev b0 master static",
}

// The mirror follows a kernel, whose own tables say what is right.
func TestMirrorFollowsAKernel(t *testing.T) {
	r := newRig(t, 0, twoNetworks...)
	devices := map[string]uint32{"vx100": 100, "vx200": 200}
	got := r.expect(t, "at the start", devices, "a0", "a1", "b0")
	if len(got) < 4 { // and those that the hosts' ends have sent from
		t.Fatalf("the kernel has only %v", got)
	}
	m, _ := r.sink.now()
	if m.VTEP != netip.MustParseAddr("10.0.0.1") || m.UDPPort != 4789 || len(m.Domains) != 2 || len(m.Ports) != 3 ||
		!slices.Equal(m.Peers, []netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.3")}) {
		t.Errorf("the model is %+v", m)
	}
	if d := m.Domains[0]; d.VNI != 100 || d.BridgeName != "br100" || d.DeviceName != "vx100" || d.Ageing != 300*time.Second || d.MTU != 1450 && d.MTU != 1500 || len(d.Gateways) != 1 {
		t.Errorf("VNI 100 is %+v", d)
	}
	for _, step := range []struct{ what, commands string }{
		{"a host that comes here", "bridge fdb replace 02:00:00:00:00:01 dev a1 master dynamic"},
		{"a host that goes back", "bridge fdb replace 02:00:00:00:00:01 dev vx100 master extern_learn"},
		{"another VTEP", "bridge fdb replace 02:00:00:00:00:01 dev vx100 dst 10.0.0.9 self extern_learn"},
		{"an orphan", "bridge fdb del 02:00:00:00:00:01 dev vx100 master"},
		{"its other half again", "bridge fdb add 02:00:00:00:00:01 dev vx100 master extern_learn"},
		{"a half alone", "bridge fdb add 02:00:00:00:00:05 dev vx100 master extern_learn"},
		{"multihoming", "ip nexthop add id 5 via 10.0.0.7 fdb;ip nexthop add id 7 group 5 fdb;bridge fdb add 02:00:00:00:00:05 dev vx100 nhid 7 self"},
		{"another VNI at the far end", "bridge fdb add 02:00:00:00:00:06 dev vx100 dst 10.0.0.2 vni 999 self extern_learn;bridge fdb add 02:00:00:00:00:06 dev vx100 master extern_learn"},
		{"an address of the bridge's own", "bridge fdb add 02:00:00:00:00:07 dev a0 master permanent"},
		{"nothing left of one", "bridge fdb del 02:00:00:00:00:02 dev a0 master"},
	} {
		r.run(t, strings.Split(step.commands, ";")...)
		r.expect(t, step.what, devices, "a0", "a1", "b0")
	}
	if s := r.mirror.Stats(); s.Multihomed != 1 || s.Dumps == 0 || s.Networks != 2 || s.Lost != 0 {
		t.Errorf("the counters are %+v", s)
	}
}

// A port is left to the kernel for as long as the kernel does what nobody else can.
func TestPortsAreLeftToTheKernel(t *testing.T) {
	r := newRig(t, 0, twoNetworks...)
	devices := map[string]uint32{"vx100": 100, "vx200": 200}
	r.expect(t, "at the start", devices, "a0", "a1", "b0")
	for _, step := range []struct {
		why         Reason
		name        string
		begin, over string
	}{
		{TC, "a0", "tc qdisc add dev a0 clsact", "tc qdisc del dev a0 clsact"},
		{TC, "a0", "tc qdisc add dev a0 root tbf rate 1gbit burst 100k latency 10ms", "tc qdisc del dev a0 root"},
		{STP, "a0", "bridge link set dev a0 state 0", "bridge link set dev a0 state 3"},
		{Isolated, "a0", "bridge link set dev a0 isolated on", "bridge link set dev a0 isolated off"},
		{NotLearning, "a0", "bridge link set dev a0 learning off", "bridge link set dev a0 learning on"},
		{Locked, "a0", "bridge link set dev a0 locked on", "bridge link set dev a0 locked off"},
	} {
		r.run(t, step.begin)
		r.left(t, "a0", step.why)
		r.expect(t, string(step.why), devices, "a1", "b0")
		r.run(t, step.over)
		r.left(t, "a0", "")
		r.expect(t, "no "+string(step.why), devices, "a0", "a1", "b0")
	}
	r.run(t, "ip link set a1 nomaster")
	r.expect(t, "a port that leaves", devices, "a0", "b0")
	r.run(t, "ip link set a1 master br100")
	r.expect(t, "a port that joins", devices, "a0", "a1", "b0")
	r.run(t, "ip link set br200 down")
	r.left(t, "br200", Down)
	r.expect(t, "a bridge that is down", map[string]uint32{"vx100": 100}, "a0", "a1")
}

// What happens to one network is nothing to the other.
func TestRemovedNetworkLeavesOthersAlone(t *testing.T) {
	r := newRig(t, 0, twoNetworks...)
	devices := map[string]uint32{"vx100": 100, "vx200": 200}
	before := r.expect(t, "at the start", devices, "a0", "a1", "b0")
	r.run(t, "ip link del vx200")
	delete(devices, "vx200")
	after := r.expect(t, "without vx200", devices, "a0", "a1", "b0")
	if len(after) == 0 || len(after) == len(before) {
		t.Fatalf("before there were %v, and after %v", before, after)
	}
	r.sink.mu.Lock()
	defer r.sink.mu.Unlock()
	for k, n := range r.sink.deleted {
		if k.vni == 100 {
			t.Errorf("%v was deleted %d times", k, n)
		}
	}
}
