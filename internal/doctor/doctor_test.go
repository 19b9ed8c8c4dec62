package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/admin"
	"github.com/loomfabric/loom/internal/ethtool"
)

var update = flag.Bool("update", false, "rewrite docs/doctor.md")

// fabric returns two leaves and two spines on four machines, of which nothing is wrong.
func fabric() (all []*Node) {
	for i, name := range []string{"L0", "L1", "S0", "S1"} {
		all = append(all, healthyNode(name, i))
	}
	return all
}

func healthyNode(name string, i int) *Node {
	leaf := name[0] == 'L'
	n := &Node{Name: name, Socket: "/run/loom/x.sock", Between: 500 * time.Millisecond}
	n.Status = admin.Status{Name: name, Role: either(leaf, "leafd", "spined"), Version: "v1", Ready: true}
	n.Parameters = admin.Parameters{
		PID: 7, File: "/etc/loom/x.yaml", Workers: 2, Cores: []int{2, 3}, Polling: "busy", VXLANPort: 4789, Memory: 1 << 20, FDBSize: 1000,
		Fabric: map[string]string{"congestion.tau": "160us", "vxlan_port": "4789"}, Leaf: map[string]string{},
	}
	n.Machine = &Machine{
		Boot: name, Unit: "leafd", Kernel: "6.8.0", BTF: true, Clock: Clock{Synchronised: true}, Links: map[string]*Link{},
		Process: Process{Capabilities: 1<<41 - 1, Memlock: 1 << 30},
		CPUs:    map[int]CPU{2: {"performance", 0, []int{2, 6}, true}, 3: {"performance", 0, []int{3, 7}, true}, 6: {"performance", 1, []int{2, 6}, true}},
		Sysctls: map[string]string{"net.ipv4.ip_forward": "1", "net.ipv4.conf.all.rp_filter": "0", "net.ipv4.fib_multipath_hash_policy": "1"},
		Files:   []File{{"/etc/loom/x.yaml", "config", 0o644}, {"/etc/loom/keys", "key", 0o640}, {"/run/loom/x.sock", "admin", 0o660}},
	}
	port := func(name, kind string, mac string) {
		p := admin.Port{Port: name, Kind: kind, Open: true, Up: true, MTU: 1600, MAC: mac, XDPMode: "native", CopyMode: "zero-copy", Rate: 25e9}
		if kind == "uplink" {
			p.MTUNeeded = 1550
		}
		n.Ports, n.Later = append(n.Ports, p), append(n.Later, p)
		n.Machine.Links[name] = &Link{
			Driver: "ice", AdminUp: true, Carrier: true, Promiscuity: 1, Node: 0, RX: 2, TX: 2,
			HashesPorts: map[ethtool.Flow]bool{ethtool.UDPv4: true}, Interrupts: map[int][]int{0: {2}, 1: {3}},
		}
		for i := range n.Rings {
			n.Rings[i].Ports = append(n.Rings[i].Ports, admin.Ring{Port: name, Sockets: admin.NewCounters("", &dataplane.SocketStats{}), Classifier: map[string]uint64{}})
		}
	}
	for i := range n.Stats {
		n.Stats[i] = admin.Stats{Drops: map[string]uint64{}, Workers: []admin.Worker{{Balances: true}, {Worker: 1, Balances: true}}}
	}
	mac := func(spine, leaf int) string { return fmt.Sprintf("02:00:00:00:%02d:%02d", spine, leaf) }
	vtep := func(leaf int) netip.Addr { return netip.AddrFrom4([4]byte{10, 255, 0, byte(leaf + 1)}) }
	if !leaf {
		for l := range 2 {
			p := fmt.Sprintf("dn%d", l)
			port(p, "spine", mac(i-2, l))
			n.Routes = append(n.Routes, admin.Route{Prefix: netip.PrefixFrom(vtep(l), 32), NextHops: []admin.NextHop{{Port: p}}})
		}
		return n
	}
	other := vtep(1 - i)
	n.Parameters.VTEP, n.Parameters.Peers = vtep(i), []netip.Addr{other}
	n.Parameters.VNIs = []admin.VNI{{VNI: 100, Flood: []netip.Addr{other}}}
	n.Parameters.Leaf = map[string]string{"scheme": "conga", "control_key_file": "given"}
	peer, paths := admin.Peer{VTEP: other, Capable: true, State: "capable"}, dataplane.PeerPaths{VTEP: other}
	for s := range 2 {
		p := fmt.Sprintf("up%d", s)
		port(p, "uplink", "02:01:00:00:00:00")
		peer.NextHops = append(peer.NextHops, admin.NextHop{Port: p, Resolved: true, Weight: 1, MAC: mac(s, i), Gateway: netip.AddrFrom4([4]byte{10, 0, byte(s), byte(i)})})
		paths.Paths = append(paths.Paths, dataplane.LivePath{Uplink: uint8(s), Port: p, State: "alive"})
		paths.Arrivals = append(paths.Arrivals, dataplane.Arrival{Tag: uint8(s), Selectors: 16, Ports: []string{p}})
	}
	port("acc", "access", "02:02:00:00:00:00")
	n.Peers, n.Paths = []admin.Peer{peer}, []dataplane.PeerPaths{paths}
	return n
}

func (n *Node) drop(reason string) { n.Stats[1].Drops[reason]++ }

func (n *Node) ring(port string, change func(*dataplane.SocketStats)) {
	for i := range n.Rings[1].Ports {
		if r := &n.Rings[1].Ports[i]; r.Port == port {
			var s dataplane.SocketStats
			change(&s)
			r.Sockets = admin.NewCounters("", &s)
		}
	}
}

// send has the first port send a part of its rate between the looks, at which so many bytes
// wait.
func (n *Node) send(part float64, first, second uint64) {
	n.Ports[0].TxBytes, n.Ports[0].QueueBytes = 1000, first
	n.Later[0].TxBytes, n.Later[0].QueueBytes = 1000+uint64(part*n.Between.Seconds()*float64(n.Later[0].Rate)/8), second
}

// breakings break the fabric in a way that the probe of the name finds on the first node,
// unless on says otherwise. Many follow from others in life; the report has one.
var breakings = map[string]struct {
	on     int
	breaks func(n *Node)
}{
	"ready":     {0, func(n *Node) { n.Status.Reasons = []dataplane.Reason{{Name: "no_vtep"}} }},
	"config":    {0, func(n *Node) { n.Config.File, n.Config.Live = "/etc/loom/x.yaml", []string{"peers"} }},
	"accounts":  {0, func(n *Node) { n.Stats[1].Workers[1].Balances = false }},
	"rights":    {0, func(n *Node) { n.Machine.Process.Capabilities &^= 1 << 13 }},
	"memlock":   {0, func(n *Node) { n.Machine.Process = Process{Capabilities: 1<<41 - 1 - 1<<14, Memlock: 65536} }},
	"cpu_quota": {0, func(n *Node) { n.Machine.Process.CPUQuota = "50000 100000" }},
	"files":     {0, func(n *Node) { n.Machine.Files[1].Mode = 0o644 }},
	"kernel":    {0, func(n *Node) { n.Machine.Kernel = "5.10.0-30-amd64" }},
	"btf":       {0, func(n *Node) { n.Machine.BTF = false }},
	"clock":     {0, func(n *Node) { n.Machine.Clock.Synchronised = false }},
	"governor":  {0, func(n *Node) { n.Machine.CPUs[2] = CPU{"powersave", 0, nil, true} }},
	"unpinned":  {0, func(n *Node) { n.Parameters.Cores = nil }},
	"isolation": {0, func(n *Node) { n.Machine.CPUs[2] = CPU{"performance", 0, nil, false} }},
	"shared_cpu": {1, func(n *Node) {
		n.Machine.Boot, n.Parameters.Cores, n.Machine.CPUs[4] = "L0", []int{3, 4}, CPU{"performance", 0, nil, true}
		for _, l := range n.Machine.Links {
			l.Interrupts = nil
		}
	}},
	"siblings": {0, func(n *Node) {
		n.Parameters.Cores, n.Machine.CPUs[6] = []int{2, 6}, CPU{"performance", 0, []int{2, 6}, true}
		for _, l := range n.Machine.Links {
			l.Interrupts = nil
		}
	}},
	"numa":          {0, func(n *Node) { n.Machine.Links["up0"].Node = 1 }},
	"interrupts":    {0, func(n *Node) { n.Machine.Links["up0"].Interrupts[0] = []int{3} }},
	"link_down":     {0, func(n *Node) { n.Ports[0].Up, n.Machine.Links["up0"].AdminUp = false, false; n.unroute("up0") }},
	"carrier":       {0, func(n *Node) { n.Ports[0].Up, n.Machine.Links["up0"].Carrier = false, false; n.unroute("up0") }},
	"port_closed":   {0, func(n *Node) { n.Ports[2].Open, n.Ports[2].Error = false, "busy" }},
	"queues":        {0, func(n *Node) { n.Machine.Links["up0"].RX = 8; n.Ports[0].Open = false; n.unroute("up0") }},
	"rss":           {0, func(n *Node) { n.Machine.Links["up0"].HashesPorts[ethtool.UDPv4] = false }},
	"mtu":           {0, func(n *Node) { n.Ports[0].MTU = 1500 }},
	"mtu_fabric":    {2, func(n *Node) { n.Ports[0].MTU = 1500 }},
	"speed":         {0, func(n *Node) { n.Ports[0].Rate = 0 }},
	"unequal_ends":  {0, func(n *Node) { n.Ports[0].Rate = 10e9 }},
	"unequal_speed": {0, func(n *Node) { n.Ports[0].Rate = 10e9; n.Peers[0].NextHops[0].MAC = "of a switch in between" }},
	"tau":           {2, func(n *Node) { n.port("dn0").MTU = 200000 }},
	"generic_xdp":   {0, func(n *Node) { n.Ports[0].XDPMode = "generic" }},
	"copy_mode":     {0, func(n *Node) { n.Ports[0].CopyMode = "copy" }},
	"lro":           {0, func(n *Node) { n.Machine.Links["acc"].LRO = true }},
	"promiscuity":   {0, func(n *Node) { n.Machine.Links["acc"].Promiscuity = 0 }},
	"vxlan_device":  {0, func(n *Node) { n.Machine.VXLANs = []VXLAN{{"vx100", 4789, 100, true}} }},
	"forwarding":    {2, func(n *Node) { n.Machine.Sysctls["net.ipv4.ip_forward"] = "0" }},
	"rp_filter":     {0, func(n *Node) { n.Machine.Sysctls["net.ipv4.conf.all.rp_filter"] = "1" }},
	"hash_policy":   {2, func(n *Node) { n.Machine.Sysctls["net.ipv4.fib_multipath_hash_policy"] = "0" }},
	"firewall": {0, func(n *Node) {
		n.Machine.Firewall = []Chain{{"inet site from-outside", "inet", "input"}, {"ip6 filter INPUT", "ip6", "input"}, {"inet site through", "inet", "forward"}}
	}},
	"bridge_netfilter": {0, func(n *Node) {
		n.Parameters.FailOpen = []string{"acc"}
		n.Machine.Sysctls["net.bridge.bridge-nf-call-iptables"] = "1"
	}},
	"no_route":           {0, func(n *Node) { n.Peers[0].NextHops = nil; n.Paths[0].Paths = nil }},
	"fewer_routes":       {0, func(n *Node) { n.unroute("up1") }},
	"spine_no_route":     {2, func(n *Node) { n.Routes = n.Routes[:1] }},
	"spine_fewer_routes": {2, func(n *Node) { n.Ports = append(n.Ports, n.Ports[0]); n.Ports[2].Port = "dn0b" }},
	"neighbour":          {0, func(n *Node) { n.Peers[0].NextHops[0].Resolved = false }},
	"path":               {0, func(n *Node) { n.Paths[0].Paths[0].State = "lossy" }},
	"path_mtu":           {0, func(n *Node) { n.Paths[0].Paths[0].State = "narrow" }},
	"plain_peer":         {0, func(n *Node) { n.Peers[0].State = "silent" }},
	"polarisation":       {0, func(n *Node) { n.Paths[0].Arrivals[1].Ports = []string{"up0"} }},
	"rx_lost":            {0, func(n *Node) { n.ring("up0", func(s *dataplane.SocketStats) { s.FillEmpty = 3 }) }},
	"tx_lost":            {0, func(n *Node) { n.ring("up0", func(s *dataplane.SocketStats) { s.KickErrors = 3 }) }},
	"unserved_queue":     {0, func(n *Node) { n.Rings[1].Ports[0].Classifier = map[string]uint64{"drop_no_socket": 5} }},
	"card":               {0, func(n *Node) { n.Machine.Links["up0"].Lost[1] = 9 }},
	"storm":              {0, func(n *Node) { n.drop("storm_limit") }},
	"unknown_source":     {2, func(n *Node) { n.drop("reverse_path") }},
	"seal":               {0, func(n *Node) { n.drop("bad_seal") }},
	"networks":           {0, func(n *Node) { n.drop("vlan_unknown") }},
	"buffers":            {0, func(n *Node) { n.drop("no_frame") }},
	"saturated":          {2, func(n *Node) { n.send(0.95, 9000, 12000) }},
	"congested":          {0, func(n *Node) { n.drop("queue_full") }},
	"drops":              {0, func(n *Node) { n.drop("too_big") }},
	"fdb":                {0, func(n *Node) { n.Stats[1].Workers[0].FDBEntries = 950 }},
	"version":            {3, func(n *Node) { n.Status.Version = "v0" }},
	"parameters":         {3, func(n *Node) { n.Parameters.Fabric["congestion.tau"] = "2ms" }},
	"scheme":             {1, func(n *Node) { n.Parameters.Leaf["scheme"] = "ecmp" }},
	"membership":         {0, func(n *Node) { n.Parameters.VNIs[0].Flood = nil }},
	"duplicate_vtep":     {1, func(n *Node) { n.Parameters.VTEP = netip.MustParseAddr("10.255.0.1") }},
}

// unroute takes the next hops of a port away.
func (n *Node) unroute(port string) {
	n.Peers[0].NextHops = slices.DeleteFunc(n.Peers[0].NextHops, func(h admin.NextHop) bool { return h.Port == port })
	n.Paths[0].Paths = slices.DeleteFunc(n.Paths[0].Paths, func(p dataplane.LivePath) bool { return p.Port == port })
}

func TestNothingIsWrongWithAHealthyFabric(t *testing.T) {
	if r := Diagnose(fabric()); len(r.Findings) > 0 || r.Behind > 0 || !r.Healthy() {
		t.Errorf("%+v", r)
	}
}

// Each probe finds what it is there for, and no other probe takes it for something else.
func TestEachProbeFindsItsOwn(t *testing.T) {
	if len(Probes) < 25 {
		t.Errorf("%d probes, want at least 25", len(Probes))
	}
	seen := map[string]bool{}
	for _, p := range Probes {
		if seen[p.Name] {
			t.Errorf("two probes are called %s", p.Name)
		}
		seen[p.Name] = true
		b, ok := breakings[p.Name]
		if !ok {
			t.Errorf("nothing tries probe %s", p.Name)
			continue
		}
		all := fabric()
		b.breaks(all[b.on])
		r := Diagnose(all)
		if len(r.Findings) != 1 || r.Findings[0].Probe != p.Name || r.Findings[0].Severity != p.Severity {
			t.Errorf("%s: %+v", p.Name, r.Findings)
			continue
		}
		if f := r.Findings[0]; f.Node != all[b.on].Name || f.Text == "" || f.Mend == "" || f.About == "" && p.Name != "ready" || strings.Contains(f.Text+f.Mend, "%!") {
			t.Errorf("%s: %+v", p.Name, f)
		}
		if r.Healthy() != (p.Severity == Note) {
			t.Errorf("%s, a %v: healthy %v", p.Name, p.Severity, r.Healthy())
		}
		for _, name := range p.Behind {
			if !slices.ContainsFunc(Probes, func(q Probe) bool { return q.Name == name }) {
				t.Errorf("%s is behind %s, which does not exist", p.Name, name)
			}
		}
	}
	for name := range breakings {
		if !seen[name] {
			t.Errorf("probe %s does not exist", name)
		}
	}
}

// The slow end of a link is named, whichever role its node has, and where its rate comes from.
// The sums of all links of a node follow from that, and are said only where both ends agree.
func TestRatesOfLinks(t *testing.T) {
	all := fabric()
	l1, s1 := all[1], all[3]
	s1.port("dn1").Rate, s1.port("dn1").RateFrom = 1e9, "shaper"
	r := Diagnose(all)
	const want = "dn1 has 1Gbit (shaper), and up1 of L1 at the other end of the link has 25Gbit ()"
	if len(r.Findings) != 1 || r.Findings[0].Node != "S1" || r.Findings[0].Text != want || r.Behind != 1 || !strings.HasPrefix(r.Findings[0].Mend, "shaper: {rate: …} of dn1 in /etc/loom/x.yaml; then") {
		t.Errorf("%+v", r)
	}
	l1.port("up1").Rate = 1e9
	var texts []string
	for _, f := range Diagnose(all).Findings {
		texts = append(texts, f.Node+" "+f.Text)
	}
	if want := []string{
		"L1 the next hops of 10.255.0.1 have links of different rates and the same weight: up1 1Gbit, up0 25Gbit",
		"S1 the links of spine S1 have different rates: dn1 1Gbit, dn0 25Gbit",
	}; !slices.Equal(texts, want) {
		t.Errorf("%q\nwant %q", texts, want)
	}
}

// Two leaves without a spine are each the other's end of one link.
func TestRatesOfAPair(t *testing.T) {
	a, b := healthyNode("L0", 0), healthyNode("L1", 1)
	for i, n := range []*Node{a, b} {
		n.Ports[0].MAC = fmt.Sprintf("02::%d", i)
		n.Peers[0].NextHops[0].MAC = fmt.Sprintf("02::%d", 1-i)
	}
	b.Ports[0].Rate, b.Ports[0].RateFrom = 1e9, "kernel"
	r := Diagnose([]*Node{a, b})
	if len(r.Findings) != 1 || r.Findings[0].Node != "L1" || r.Findings[0].Probe != "unequal_ends" || !strings.HasPrefix(r.Findings[0].Mend, "ethtool up0") {
		t.Errorf("%+v", r)
	}
}

// A link is full if it sends at its rate and something waits: neither alone says so.
func TestFullLinks(t *testing.T) {
	for _, tt := range []struct {
		part          float64
		first, second uint64
		text          string
	}{
		{0.97, 60000, 64000, "dn0 is full: it sent 97% of its 25Gbit while doctor looked, and up to 64KB waited for it"},
		{0.97, 60000, 0, "dn0 is full: it sent 97% of its 25Gbit while doctor looked, and up to 60KB waited for it"},
		{0.97, 0, 0, ""}, {0.8, 60000, 60000, ""},
	} {
		all := fabric()
		all[2].send(tt.part, tt.first, tt.second)
		got := ""
		for _, f := range Diagnose(all).Findings {
			got += f.Text
		}
		if got != tt.text {
			t.Errorf("%+v: %q", tt, got)
		}
	}
	all := fabric()
	all[2].send(1, 9000, 9000)
	all[2].Later[0].TxBytes = 10 // another process has begun to count
	all[3].send(1, 9000, 9000)
	all[3].Later[0].Rate = 0
	if r := Diagnose(all); len(r.Findings) > 0 {
		t.Errorf("%+v", r.Findings)
	}
}

// A node of another machine has no Machine: no probe may rely on it.
func TestAnotherMachine(t *testing.T) {
	all := fabric()
	for _, n := range all {
		n.Machine, n.Why = nil, "it is another machine"
	}
	all[0].Ports[0].MTU = 1500
	if r := Diagnose(all); len(r.Findings) != 1 || len(r.Blind) != 4 || r.Findings[0].Mend != "ip link set dev up0 mtu 1550" {
		t.Errorf("%+v", r)
	}
}

// Commands are for the namespace that the daemon is in.
func TestCommandsNameTheNamespace(t *testing.T) {
	all := fabric()
	all[0].Machine.Namespace = "loom-x-L0"
	all[0].Ports[0].MTU = 1500
	all[0].Machine.Sysctls["net.ipv4.conf.all.rp_filter"] = "1"
	var got []string
	for _, f := range Diagnose(all).Findings {
		got = append(got, f.Mend)
	}
	if want := []string{"ip -n loom-x-L0 link set dev up0 mtu 1550", "ip netns exec loom-x-L0 sysctl -w net.ipv4.conf.all.rp_filter=0"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// Of three nodes the one that differs is wrong, not the first.
func TestTheOddOneIsNamed(t *testing.T) {
	all := fabric()
	all[0].Parameters.Fabric["congestion.tau"] = "2ms"
	r := Diagnose(all)
	if len(r.Findings) != 1 || r.Findings[0].Node != "L0" || r.Findings[0].Text != "congestion.tau is 2ms on L0, and 160us on L1" {
		t.Errorf("%+v", r.Findings)
	}
}

// TestPage keeps the table of docs/doctor.md true.
func TestPage(t *testing.T) {
	const path, from, to = "../../docs/doctor.md", "<!-- probes -->\n", "<!-- end of probes -->\n"
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, _ := strings.Cut(string(page), from)
	_, after, ok := strings.Cut(rest, to)
	if !ok {
		t.Fatalf("%s has no place for the table", path)
	}
	want := before + from + Table() + to + after
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if string(page) != want {
		t.Errorf("%s is out of date: go test ./internal/doctor -run TestPage -update", path)
	}
}

type asker map[string]any

func (a asker) Get(_ context.Context, what string, _ url.Values) (json.RawMessage, error) {
	if a[what] == nil {
		return nil, errors.New("no answer")
	}
	return json.Marshal(a[what])
}

// busy is a node whose port sends all the time.
type busy struct {
	asker
	port  admin.Port
	begun time.Time
}

func (b *busy) Get(ctx context.Context, what string, q url.Values) (json.RawMessage, error) {
	if what == "ports" {
		b.port.TxBytes = uint64(time.Since(b.begun).Seconds() * float64(b.port.Rate) / 8)
		return json.Marshal(admin.Ports{Ports: []admin.Port{b.port}})
	}
	return b.asker.Get(ctx, what, q)
}

// A link that is full all the time is found in the time that doctor takes by itself, though
// nothing is dropped meanwhile.
func TestExamineFindsAFullLink(t *testing.T) {
	node := asker{
		"status": admin.Status{Name: "S1", Role: "spined", Ready: true}, "parameters": admin.Parameters{}, "config": admin.ConfigDiff{},
		"routes": admin.Routes{}, "stats": admin.Stats{}, "rings": admin.Rings{},
	}
	full := &busy{asker: node, port: admin.Port{Port: "dn0", Kind: "spine", Open: true, Up: true, Rate: 4e6, QueueBytes: 40000}, begun: time.Now()}
	r, err := Examine(t.Context(), []Target{{Name: "a", Asker: full}}, DefaultInterval)
	if err != nil || len(r.Findings) != 1 || r.Findings[0].Probe != "saturated" || r.Findings[0].About != "dn0" || !r.Healthy() {
		t.Errorf("%+v, %v", r, err)
	}
}

// Nodes that do not answer hide nobody.
func TestExamine(t *testing.T) {
	node := asker{
		"status": admin.Status{Name: "L0", Role: "leafd", Ready: true}, "parameters": admin.Parameters{}, "config": admin.ConfigDiff{File: "/etc/loom/x.yaml", Live: []string{"peers"}}, "ports": admin.Ports{},
		"peers": admin.Peers{}, "paths": admin.Paths{}, "stats": admin.Stats{}, "rings": admin.Rings{},
	}
	r, err := Examine(t.Context(), []Target{{Name: "a", Asker: node}, {Name: "b", Asker: asker{}}}, 0)
	if err != nil || len(r.Findings) != 1 || r.Findings[0].Node != "L0" || len(r.Failed) != 1 || r.Failed[0].Node != "b" || len(r.Blind) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	var text strings.Builder
	r.Print(&text)
	for _, part := range []string{"L0  warning  /etc/loom/x.yaml differs", "mend: kill -HUP", "b  did not answer: status: no answer", "looked at 1 node (L0)", "1 warning"} {
		if !strings.Contains(text.String(), part) {
			t.Errorf("the report lacks %q:\n%s", part, text.String())
		}
	}
	if _, err := Examine(t.Context(), []Target{{Name: "b", Asker: asker{}}}, 0); err == nil || !strings.Contains(err.Error(), "b: status") {
		t.Errorf("no node answers: %v", err)
	}
}

func TestBlocked(t *testing.T) {
	const chain = `{"nftables":[{"chain":{"family":"inet","table":"filter","name":"forward","hook":"forward","policy":%q}}%s]}`
	rule := func(expr string) string {
		return `,{"rule":{"family":"inet","table":"filter","chain":"forward","expr":[` + expr + `]}}`
	}
	port := func(right string) string {
		return `{"match":{"op":"==","left":{"payload":{"protocol":"udp","field":"dport"}},"right":` + right + `}},`
	}
	for _, tt := range []struct {
		name, policy, rules string
		want                bool
	}{
		{"accepts all", "accept", "", false},
		{"drops all", "drop", "", true},
		{"drops what is left", "drop", rule(port("4789") + `{"accept":null}`), false},
		{"of a set", "drop", rule(port(`{"set":[22,4789]}`) + `{"accept":null}`), false},
		{"of a range", "drop", rule(port(`{"range":[4000,5000]}`) + `{"accept":null}`), false},
		{"another port", "drop", rule(port("22") + `{"accept":null}`), true},
		{"drops it", "accept", rule(port("4789") + `{"drop":null}`), true},
		{"counts and accepts all", "drop", rule(`{"counter":{}},{"accept":null}`), false},
		{"from one interface only", "drop", rule(`{"match":{"op":"==","left":{"meta":{"key":"iifname"}},"right":"eth0"}},{"accept":null}`), true},
		{"the first rule decides", "accept", rule(port("4789")+`{"accept":null}`) + rule(`{"drop":null}`), false},
	} {
		got := blocked(fmt.Appendf(nil, chain, tt.policy, tt.rules), 4789)
		if (len(got) == 1) != tt.want || tt.want && got[0] != (Chain{"inet filter forward", "inet", "forward"}) {
			t.Errorf("%s: %+v", tt.name, got)
		}
	}
	arp := strings.ReplaceAll(fmt.Sprintf(chain, "drop", ""), "inet", "arp")
	if got := blocked([]byte(arp), 4789); got != nil {
		t.Errorf("a chain of ARP: %+v", got)
	}
	if got := blocked([]byte("no JSON"), 4789); got != nil {
		t.Errorf("no JSON: %+v", got)
	}
}

func TestCPUList(t *testing.T) {
	for text, want := range map[string][]int{"": nil, "0\n": {0}, "0-2,5": {0, 1, 2, 5}, "x,3-": nil} {
		if got := cpuList(text); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}
