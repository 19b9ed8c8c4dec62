//go:build rdma

package rdma

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/config"
	"github.com/loomfabric/loom/config/fabric"
	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/internal/testenv"
	"github.com/loomfabric/loom/internal/units"
	"github.com/loomfabric/loom/internal/yamlfile"
	"github.com/loomfabric/loom/lab"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/test/machine"
)

// keepVar names the environment variable with the folder that the machines' captures and
// logs are left in; by default they go.
const keepVar = "LOOM_RDMA_KEEP"

// want says what may happen to RDMA under a scheme between paths of unequal delay.
type want struct {
	scheme string
	// ordered: no packet reaches a host out of order but for what follows from lost
	// ones, or from those that the leaves own up to (unordered), and all transfers succeed. Otherwise some must come out of
	// order, or the paths do not differ enough to prove anything; transfers may then
	// take longer than they are given.
	ordered bool
	// least are counters that must have grown by so much, by leaf: the first is the
	// senders', the second the receivers'.
	least [2]map[string]uint64
}

var wanted = []want{
	{scheme: "ecmp", ordered: true, least: [2]map[string]uint64{{`loom_scheme_decisions_total{scheme="ecmp"}`: 1000}}},
	{scheme: "spray", ordered: false, least: [2]map[string]uint64{{`loom_scheme_decisions_total{scheme="spray"}`: 100}}},
	{scheme: "conweave", ordered: true, least: [2]map[string]uint64{
		{`loom_conweave_reroutes_total{scheme="conweave"}`: 20},
		{`loom_reorder_flushes_total{cause="tail"}`: 5}, // queues that waited for what came the slow way
	}},
	{scheme: "reed", ordered: true, least: [2]map[string]uint64{
		{`loom_reed_moves_total{scheme="reed"}`: 200},
		{"loom_reed_receiver_held_frames_total": 100, "loom_reed_receiver_settled_total": 0, "loom_reed_receiver_expired_total": 0},
	}},
}

// unordered are the metrics of frames that a leaf did not put in order although it
// should have (ConWeave, reed), as when it waited for too long for those before them.
var unordered = []string{"loom_reorder_unordered_frames_total", "loom_reed_receiver_late_frames_total", "loom_reed_receiver_no_flow_frames_total"}

// drops is the metric of frames that a leaf or spine dropped.
const drops = "loom_drops_total"

// site is the fabric and the machines at its ends.
type site struct {
	t      *testing.T
	lab    *lab.Lab
	dir    string // the lab's state
	leaves []string
	vms    [2]*machine.VM
}

func TestRDMA(t *testing.T) {
	testenv.NeedRoot(t)
	if err := machine.Missing(needs()...); err != nil {
		t.Fatal(err)
	}
	s := newSite(t)
	for _, w := range wanted {
		t.Run(w.scheme, func(t *testing.T) { s.row(t, w) })
	}
	s.unaltered()
	for i, leaf := range s.leaves {
		labels := fmt.Sprintf(`{port="%s"}`, s.lab.Topo.Hosts[i].Port)
		t.Logf("%s parsed %d of the %d frames from its tap again for want of the XDP program's metadata", leaf,
			s.metric(leaf, "loom_port_metadata_missing_frames_total"+labels), s.metric(leaf, "loom_port_received_frames_total"+labels))
	}
}

// newSite builds the fabric, plugs machines into its access ports and boots them.
func newSite(t *testing.T) *site {
	t.Helper()
	f, err := fabric.Load("fabric.yaml")
	if err != nil {
		t.Fatal(err)
	}
	f.Name = fmt.Sprintf("r%d", os.Getpid())
	s := &site{t: t, lab: lab.New(f), dir: filepath.Join("/run/loom/lab", f.Name)}
	daemons, remove, err := testenv.Daemons(false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := remove(); err != nil {
			t.Error(err)
		}
	})
	s.lab.Binaries = daemons
	kernel, image := s.image()
	if err := s.lab.Up(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.lab.Down(); err != nil {
			t.Errorf("take the fabric down: %v", err)
		}
	})
	begun := time.Now()
	for i := range s.vms {
		s.plug(i, kernel, image)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	for i, v := range s.vms {
		if err := v.Ready(ctx); err != nil {
			t.Fatal(err)
		}
		s.equip(v, s.lab.Topo.Hosts[i].Addr)
	}
	t.Logf("two machines with kernel %s are ready after %v", kernel.Version, time.Since(begun).Round(100*time.Millisecond))
	for i, leaf := range s.leaves {
		port := s.lab.Topo.Hosts[i].Port
		s.eventually(10*time.Second, func() string {
			if s.metric(leaf, `loom_port_open{port="`+port+`"}`) != 1 {
				return leaf + " has not opened " + port
			}
			return ""
		})
		for line := range strings.Lines(s.scrape(leaf)) {
			if strings.HasPrefix(line, "loom_port_info{") && strings.Contains(line, `port="`+port+`"`) {
				t.Logf("%s: a tap as access port: %s", leaf, strings.TrimSpace(line))
			}
		}
	}
	return s
}

// image gets the kernel and makes what the guests boot.
func (s *site) image() (*machine.Kernel, string) {
	s.t.Helper()
	suite, err := machine.OpenSuite("bookworm")
	if err != nil {
		s.t.Fatal(err)
	}
	kernel, err := suite.Kernel(append(machine.Modules, modules...)...)
	if err != nil {
		s.t.Fatal(err)
	}
	image := filepath.Join(s.t.TempDir(), "image")
	if err := machine.WriteImage(image, machine.Guest(s.t), kernel, addPrograms); err != nil {
		s.t.Fatal(err)
	}
	return kernel, image
}

// plug puts a tap in the place of a host's access port and starts the machine
// behind it.
//
// Offloads are off, in the device and on the tap: frames leave the guest whole,
// with their checksums in them, and can be compared with what arrives.
func (s *site) plug(i int, kernel *machine.Kernel, image string) {
	s.t.Helper()
	host := s.lab.Topo.Hosts[i]
	leaf := s.lab.Topo.Leaves[host.Leaf].Name
	s.leaves = append(s.leaves, leaf)
	ns := testenv.OpenNamespace(s.t, "loom-"+s.lab.File.Name+"-"+leaf)
	ns.DeleteLink(s.t, host.Port)
	tap := machine.NewTap(s.t, ns, host.Port, machine.TapOptions{})
	dir := s.t.TempDir()
	if keep := os.Getenv(keepVar); keep != "" {
		if err := os.MkdirAll(keep, 0o755); err != nil {
			s.t.Fatalf("$%s: %v", keepVar, err)
		}
		dir = keep
	}
	v, err := machine.Start(machine.Machine{
		Name: host.Name, Dir: dir, Kernel: kernel, Image: image,
		NICs: []machine.NIC{{MAC: overlay.MAC(host.MAC).String(), MTU: fabric.HostMTU, Tap: tap, Properties: machine.NoOffloads}},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.vms[i] = v
	s.t.Cleanup(v.Stop)
}

// equip gives a machine its address and an RDMA device (Soft-RoCE).
func (s *site) equip(v *machine.VM, addr netip.Prefix) {
	s.t.Helper()
	// Of the GIDs that an address makes, that of IPv4 is then always number 1.
	if err := v.Put("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1"); err != nil {
		s.t.Fatal(err)
	}
	for _, line := range []string{
		"ip link set lo up", "ip address add " + addr.String() + " dev eth0", "ip link set eth0 up", "rdma link add rxe0 type rxe netdev eth0",
	} {
		argv := strings.Fields(line)
		argv[0] = "/usr/bin/" + argv[0]
		if out, err := v.Go(10*time.Second, argv...)(); err != nil {
			s.t.Fatalf("%v: %s", err, out)
		}
	}
}

// row runs all transfers under one scheme.
func (s *site) row(t *testing.T, w want) {
	for i := range s.leaves {
		s.scheme(t, i, w.scheme)
	}
	counters := func() (c [2]map[string]uint64) {
		for i := range s.vms {
			c[i] = s.hardware(t, i)
		}
		return c
	}
	before, loom, excused, dropped := counters(), s.counters(w), s.all(s.leaves, unordered...), s.all(s.nodes(), drops)
	for _, p := range phases(s.lab.Topo.Hosts[1].Addr.Addr(), w.ordered) {
		start := time.Now()
		out, err := s.transfer(p)
		took := time.Since(start).Round(100 * time.Millisecond)
		if err != nil && w.ordered {
			t.Errorf("%s: %v\n%s", p.name, err, out)
		}
		t.Logf("%s: %v, %s", p.name, took, outcome(err))
	}
	after := counters()
	var outOfSeq, lost uint64
	for i, v := range s.vms {
		sent, received := after[i][sentPkts]-before[i][sentPkts], after[1-i][rcvdPkts]-before[1-i][rcvdPkts]
		lost += max(sent, received) - received
		var grown []string
		for name, n := range after[i] {
			if d := n - before[i][name]; d > 0 {
				grown = append(grown, fmt.Sprintf("%s +%d", name, d))
			}
		}
		t.Logf("%s: %s", v.Name, strings.Join(sorted(grown), ", "))
		outOfSeq += after[i][outOfSeqRequest] - before[i][outOfSeqRequest]
	}
	// A frame that comes too early, or never, is one gap, and what it makes the sender
	// repeat may be another.
	frames := s.grown(t, excused, s.leaves, unordered...)
	if w.ordered && outOfSeq > 2*(frames+lost) {
		t.Errorf("%d requests came out of order, leaves own up to %d frames, and %d packets were not received", outOfSeq, frames, lost)
	}
	t.Logf("%d requests came out of order; leaves own up to %d frames; %d packets were not received", outOfSeq, frames, lost)
	s.grown(t, dropped, s.nodes(), drops)
	if !w.ordered && outOfSeq == 0 {
		t.Error("no request came out of order: the paths do not differ enough to prove anything")
	}
	for i, grown := range s.counters(w) {
		for name, n := range grown {
			n -= loom[i][name]
			t.Logf("%s: %s +%d", s.leaves[i], name, n)
			if n < w.least[i][name] {
				t.Errorf("%s: %s has grown by %d, want %d", s.leaves[i], name, n, w.least[i][name])
			}
		}
	}
}

func outcome(err error) string {
	if err != nil {
		return err.Error()
	}
	return "done"
}

// counters reads the leaves' counters that a row looks at.
func (s *site) counters(w want) (c [2]map[string]uint64) {
	s.t.Helper()
	for i := range c {
		c[i] = map[string]uint64{}
		for name := range w.least[i] {
			c[i][name] = s.metric(s.leaves[i], name)
		}
	}
	return c
}

// phase is one transfer, from the first machine to the second.
type phase struct {
	name           string
	server, client []string
	limit          time.Duration
}

// phases are the transfers. Where packets overtake each other Go-Back-N takes
// very long, and perftest never gives up: then a few seconds of two of them will
// do.
func phases(server netip.Addr, ordered bool) []phase {
	addr := server.String()
	limit := 40 * time.Second
	if !ordered {
		limit = 8 * time.Second
	}
	both := func(name string, argv ...string) phase {
		argv[0] = "/usr/bin/" + argv[0]
		return phase{name, argv, append(append([]string{}, argv...), addr), limit}
	}
	write := func(qps string) phase {
		return both("ib_write_bw, queue pairs: "+qps, "ib_write_bw", "-d", "rxe0", "-x", "1", "-F", "-u", "17", "-t", "16", "-s", "65536", "-n", "40", "-q", qps)
	}
	all := []phase{
		both("ibv_rc_pingpong", "ibv_rc_pingpong", "-d", "rxe0", "-g", "1", "-s", "4096", "-n", "100"),
		write("1"),
		write("4"),
		{"rping", []string{"/usr/bin/rping", "-s", "-a", addr, "-C", "20"}, []string{"/usr/bin/rping", "-c", "-a", addr, "-C", "20"}, limit},
	}
	if !ordered {
		return all[:2]
	}
	return all
}

// transfer runs a phase's client against its server. None of the programs says
// when its server listens: a client that fails at once tries again.
func (s *site) transfer(p phase) (string, error) {
	server := s.vms[1].Go(p.limit, p.server...)
	const atOnce, tries = 3 * time.Second, 8
	var out string
	var err error
	for range tries {
		time.Sleep(time.Second)
		start := time.Now()
		if out, err = s.vms[0].Go(p.limit, p.client...)(); err == nil || time.Since(start) > atOnce {
			break
		}
	}
	out2, err2 := server() // it must not be in the next one's way
	return out + out2, errors.Join(err, err2)
}

// nodes are the names of all leaves and spines.
func (s *site) nodes() (names []string) {
	for _, n := range s.lab.Topo.Spines {
		names = append(names, n.Name)
	}
	return append(names, s.leaves...)
}

// all are the series of metrics, by node, name and labels.
func (s *site) all(nodes []string, metrics ...string) map[string]uint64 {
	s.t.Helper()
	all := map[string]uint64{}
	for _, node := range nodes {
		for _, metric := range metrics {
			for labels, n := range s.series(node, metric) {
				all[node+": "+metric+labels] = n
			}
		}
	}
	return all
}

// grown logs by how much the series of metrics have grown, and adds it up.
func (s *site) grown(t *testing.T, before map[string]uint64, nodes []string, metrics ...string) (sum uint64) {
	t.Helper()
	for series, n := range s.all(nodes, metrics...) {
		if n -= before[series]; n > 0 {
			sum += n
			t.Logf("%s +%d", series, n)
		}
	}
	return sum
}

// outOfSeqRequest is the counter of rxe's responder: requests whose packet
// sequence number is not the one expected next.
const outOfSeqRequest = "out_of_seq_request"

// sentPkts and rcvdPkts are rxe's counters of packets.
const sentPkts, rcvdPkts = "sent_pkts", "rcvd_pkts"

// hardware reads a machine's counters of its RDMA port.
func (s *site) hardware(t *testing.T, i int) map[string]uint64 {
	t.Helper()
	files, err := s.vms[i].Files("/sys/class/infiniband/rxe0/ports/1/hw_counters/*")
	if err != nil {
		t.Fatal(err)
	}
	c := map[string]uint64{}
	for name, text := range files {
		if n, err := strconv.ParseUint(text, 10, 64); err == nil && name != "lifespan" {
			c[name] = n
		}
	}
	if _, ok := c[outOfSeqRequest]; !ok {
		t.Fatalf("machine %s has no counter %s: %v", s.vms[i].Name, outOfSeqRequest, files)
	}
	return c
}

// scheme gives RoCE on a leaf a scheme of its own, while the leaf runs.
func (s *site) scheme(t *testing.T, i int, scheme string) {
	t.Helper()
	leaf := s.leaves[i]
	file := filepath.Join(s.dir, leaf+".yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.ParseLeaf(file, text, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.Classes = []vocab.Class{{
		Name: "roce", Match: vocab.Match{Protocol: unix.IPPROTO_UDP, Port: units.Ports{First: rocePort, Last: rocePort}}, Balancing: vocab.Balancing{Scheme: scheme},
	}}
	if text, err = yamlfile.Marshal(c); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	const loaded = "loom_config_last_reload_success_timestamp_seconds"
	before := s.text(leaf, loaded)
	record, err := os.ReadFile(filepath.Join(s.dir, leaf+".pid"))
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Sscanf(string(record), `{"pid":%d}`, &pid); err != nil {
		t.Fatalf("%s.pid: %v in %q", leaf, err, record)
	}
	if err := unix.Kill(pid, unix.SIGHUP); err != nil {
		t.Fatal(err)
	}
	s.eventually(10*time.Second, func() string {
		if s.text(leaf, loaded) == before || s.metric(leaf, "loom_config_last_reload_successful") != 1 {
			return leaf + " has not taken over " + file
		}
		return ""
	})
}

// unaltered proves on the captures of both machines that what arrives is what was
// sent, to the last byte: RoCE's own checksum (ICRC) included.
func (s *site) unaltered() {
	s.t.Helper()
	for from := range s.vms {
		to := 1 - from
		mac := overlay.MAC(s.lab.Topo.Hosts[from].MAC)
		sent, err := RoCE(s.vms[from].Capture(0), mac)
		if err != nil {
			s.t.Fatal(err)
		}
		arrived, err := RoCE(s.vms[to].Capture(0), mac)
		if err != nil {
			s.t.Fatal(err)
		}
		n := Altered(sent, arrived)
		s.t.Logf("of %d RoCE frames that %s sent %d arrived, %d of them altered", len(sent), s.vms[from].Name, len(arrived), n)
		if n > 0 || len(arrived) < 500 {
			s.t.Errorf("from %s: %d of %d frames arrived otherwise than they were sent", s.vms[from].Name, n, len(arrived))
		}
	}
}
