package loomctl

import (
	"bytes"
	"encoding/json"
	"flag"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/admin"
	"github.com/loomfabric/loom/internal/events"
	"github.com/loomfabric/loom/reorder"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var (
	vtep2, vtep3 = netip.MustParseAddr("10.255.0.2"), netip.MustParseAddr("10.255.0.3")
	paths        = []dataplane.PathState{
		{Uplink: 0, Port: "eth1", Usable: true, Local: 6, Utilisation: 0.8125, Remote: 3, RemoteKnown: true, RemoteAge: 1234567},
		{Uplink: 1, Port: "eth2", Usable: true, Avoided: true, Local: 1, Utilisation: 0.14},
	}
)

func number(n int) *int     { return &n }
func uplink(n uint8) *uint8 { return &n }

// answers are what the daemon says, by path and query.
var answers = map[string]any{
	"/v1/status": admin.Status{Name: "L0", Role: "leafd", Version: "v1.2", Reasons: []dataplane.Reason{
		{Name: "no_vtep", Detail: "the VTEP is no address of this machine: add it to lo"}, {Name: "port_closed", Port: "eth3", Detail: "interface eth3 is gone"}}},
	"/v1/config": admin.ConfigDiff{File: "/etc/loom/leafd.yaml", Live: []string{"peers", "uplinks[1].queue"}, Restart: []string{}, Findings: []string{"interface eth9 does not exist: the port opens when it appears\n  fix: make the interface"}},
	"/v1/ports": admin.Ports{Ports: []admin.Port{
		{Port: "eth1", Kind: "uplink", Open: true, Up: true, MTU: 1600, XDPMode: "native", CopyMode: "zero-copy", Rate: 25e9, RateFrom: "kernel", Utilisation: 0.8125, Metric: 6, QueueBytes: 45000, RxFrames: 12, TxFrames: 1234567, Dropped: 3},
		{Port: "eth2", Kind: "uplink", Open: true, MTU: 1500, MTUNeeded: 1550, XDPMode: "generic", CopyMode: "copy", Rate: 2.5e6, RateFrom: "link_rate"},
		{Port: "eth3", Kind: "access", Error: "interface eth3 is gone"},
	}},
	"/v1/fast": dataplane.FastState{On: true, Ports: []dataplane.FastPortInfo{
		{Port: "eth1", Frames: 1234567, Bytes: 987654321, Sent: 5000, Lost: 12, Slow: map[string]uint64{"order": 9, "no_route": 2}},
		{Port: "eth2", In: "its XDP program is in generic mode", Out: "it has a shaper", Sent: 987654321},
	}},
	"/v1/peers": admin.Peers{Peers: []admin.Peer{
		{VTEP: vtep2, Capable: true, State: "capable", SentFrames: 5, SentBytes: 7500, ReceivedFrames: 4, ReceivedBytes: 6000, NextHops: []admin.NextHop{
			{Port: "eth1", Gateway: netip.MustParseAddr("10.254.0.1"), Resolved: true}, {Port: "eth2", Gateway: netip.MustParseAddr("10.254.0.3"), Weight: 3}}},
		{VTEP: vtep3, State: "silent"},
	}},
	"/v1/paths": admin.Paths{Peers: []dataplane.PeerPaths{{VTEP: netip.MustParseAddr("10.0.0.2"), Paths: []dataplane.LivePath{
		{Uplink: 0, Port: "up0", State: "alive", Alive: true, RoundTrip: 81234 * time.Nanosecond},
		{Uplink: 1, Port: "up1", State: "lossy", Avoided: true, RoundTrip: time.Millisecond, Loss: 0.051, GivenUp: 3},
		{Uplink: 2, Port: "up2", State: "unknown"},
	}}}},
	"/v1/conga": admin.Conga{Peers: []dataplane.PeerState{
		{VTEP: vtep2, Capable: true, Paths: paths, FromLeaf: []dataplane.TagMetric{{Tag: 3, Metric: 7, Age: 42 * time.Second}}},
		{VTEP: vtep3, Paths: []dataplane.PathState{{Port: "eth1", Local: 6, Utilisation: 0.8125}}},
	}},
	"/v1/conweave?limit=5": conweaveAnswer,
	"/v1/conweave":         admin.ConWeave{ConWeaveState: &dataplane.ConWeaveState{Destination: conweaveAnswer.Destination}, DestinationCounters: admin.NewCounters("", &reorder.Stats{})},
	"/v1/flowlets": admin.Flowlets{Tables: []dataplane.FlowletTable{
		{Class: 0, Scheme: "letflow", Size: 64, Entries: []dataplane.FlowletEntry{}},
		{Worker: 1, Class: 1, Scheme: "conga", Size: 65536, Used: 2, Active: 1, Started: 9, Moved: 2, Kept: 5, Expired: 7, Entries: []dataplane.FlowletEntry{
			{Slot: 17, Uplink: 1, Port: "eth2", Active: true, Idle: 12345}, {Slot: 3, Port: "eth1", Idle: 90 * time.Minute}}},
	}},
	"/v1/flowlets?limit=3": admin.Flowlets{Tables: []dataplane.FlowletTable{}},
	"/v1/fdb": dataplane.FDBTable{Total: 9, Entries: []dataplane.FDBEntry{
		{VNI: 100, MAC: "02:00:00:00:00:01", VTEP: vtep2, Age: 2 * time.Second},
		{VNI: 100, MAC: "02:00:00:00:00:02", Port: "eth3", VLAN: 20, Age: 67 * time.Millisecond},
		{VNI: 200, MAC: "02:00:00:00:00:03", Port: "eth3", Static: true},
	}},
	"/v1/stats": statsAnswer(),
	"/v1/hosts": dataplane.HostTable{Total: 9, Hosts: []dataplane.HostEntry{
		{VNI: 100, IP: netip.MustParseAddr("10.100.0.1"), MAC: "02:10:00:00:00:00", Port: "eth3", Age: 42 * time.Second},
		{VNI: 100, IP: netip.MustParseAddr("fd00::7"), MAC: "02:10:00:00:00:02", VTEP: vtep2, Age: 3 * time.Hour},
	}},
	"/v1/routes": admin.Routes{Routes: []admin.Route{
		{Prefix: netip.PrefixFrom(vtep2, 32), NextHops: []admin.NextHop{
			{Port: "eth1", Gateway: netip.MustParseAddr("10.254.0.1"), MAC: "02:00:00:00:01:01", Resolved: true, Weight: 1}, {Port: "eth2", Gateway: netip.MustParseAddr("10.254.0.3"), Weight: 3}}},
		{Prefix: netip.PrefixFrom(vtep3, 32)},
	}},
	"/v1/flows": admin.Flows{Active: 7, Flows: []admin.ActiveFlow{
		{Class: number(0), Scheme: "letflow", Flow: "slot 17", Path: "1", Port: "eth2", State: "flowlet", Idle: 123456},
		{Worker: 1, Class: number(1), Scheme: "conweave", Flow: "f526b15e", VTEP: vtep2, Path: "0.5", Port: "eth1", State: "asked", Idle: 169 * time.Microsecond},
		{Worker: 0, Class: number(0), Scheme: "reed", Flow: "324134e7", VTEP: vtep2, Path: "1", Port: "eth2", State: "sprayed", Number: new(uint16(4711)), Idle: 200 * time.Microsecond},
		{Worker: 1, Scheme: "reed", Flow: "a410b5ab", VTEP: vtep3, State: "waits", Number: new(uint16(815)), Held: 3, Idle: 300 * time.Microsecond},
	}},
	"/v1/flows?limit=3": admin.Flows{},
	"/v1/log":           admin.LogLevel{Level: "info"},
	"/v1/events": admin.Events{Last: 9, Lost: 6, Events: []events.Event{
		{Number: 7, Time: time.Date(2026, 11, 23, 22, 41, 1, 123456789, time.UTC), Level: "WARN", Kind: "path", Object: "10.255.0.2 by eth1", Text: "path is silent", Attrs: map[string]string{"node": "L0", "peer": "10.255.0.2", "uplink": "eth1", "loss": "1", "avoided": "true"}},
		{Number: 8, Time: time.Date(2026, 11, 23, 22, 41, 2, 0, time.UTC), Level: "INFO", Kind: "port", Object: "eth3", Text: "port open", Attrs: map[string]string{"port": "eth3"}},
		{Number: 9, Time: time.Date(2026, 11, 23, 22, 42, 0, 0, time.UTC), Level: "ERROR", Kind: "config", Object: "/etc/loom/leafd.yaml", Text: "configuration not reloaded", Attrs: map[string]string{"err": "line 1\nline 2"}},
	}},
	"/v1/explain?dport=53&dst=10.0.0.2&dst_mac=02%3A00%3A00%3A00%3A00%3A01&proto=udp&sport=7&src=10.0.0.1&vni=100": dataplane.Explanation{
		VNI: 100, Hash: 0xdeadbeef, Hashed: "5-tuple", SourcePort: 50000, Class: 1, Scheme: "conga", Destination: "remote", Worker: 1,
		Flowlet: &dataplane.FlowletEntry{Slot: 17, Uplink: 0, Port: "eth1", Active: true, Idle: 12345},
		Peers: []dataplane.PeerChoice{{VTEP: vtep2, Capable: true, Uplink: uplink(0), Fresh: []int{1}, Reason: "its flowlet is under way there",
			Uplinks: []dataplane.UplinkChoice{{PathState: paths[0], Combined: number(6)}, {PathState: paths[1], Combined: number(1)}}}},
	},
	"/v1/explain?dst=10.0.0.4&src=10.0.0.1": dataplane.Explanation{
		VNI: 100, Hash: 0xcafe, Hashed: "IP addresses and protocol", SourcePort: 49153, Scheme: "conweave", Destination: "remote", Worker: 1,
		Connection: &conweaveAnswer.Sources[0].Connections[0],
		Peers: []dataplane.PeerChoice{{VTEP: vtep2, Capable: true, Uplink: uplink(1), Fresh: []int{}, Reason: "it was rerouted here",
			Uplinks: []dataplane.UplinkChoice{{PathState: paths[0]}, {PathState: paths[1]}}}},
	},
	"/v1/explain?dst=10.0.0.2&src=10.0.0.1": dataplane.Explanation{
		VNI: 100, Hash: 1, Hashed: "IP addresses and protocol", SourcePort: 49153, Scheme: "spray", Destination: "unnamed",
		Peers: []dataplane.PeerChoice{
			{VTEP: vtep2, Fresh: []int{0, 1}, Reason: "decided anew for each packet", Uplinks: []dataplane.UplinkChoice{{PathState: paths[0]}, {PathState: paths[1]}}},
			{VTEP: vtep3, Fresh: []int{}, Reason: "no uplink leads to the leaf"}},
	},
	"/v1/explain?dscp=ef&dst=10.0.0.2&dst_mac=02%3A00%3A00%3A00%3A00%3A02&proto=gre&src=10.0.0.1": dataplane.Explanation{
		VNI: 100, Hashed: "IP addresses and protocol", SourcePort: 49152, Scheme: "ecmp", Destination: "local", Port: "eth3", Drop: "port_down",
	},
}

// statsAnswer has a scheme with counters of its own, and one that loomctl does not know.
func statsAnswer() admin.Stats {
	balances := dataplane.Account{Received: 10, Made: 2, Sent: 9, Dropped: 1, Consumed: 1, Held: 1}
	decided := func(scheme string, n uint64) admin.Counters {
		return admin.NewCounters(scheme, &balance.Stats{Decisions: n, Flowlets: congestion.FlowletStats{Started: n, Moved: 2, Kept: 3, Expired: 4}})
	}
	a := admin.Stats{
		Name: "L0", Role: "leafd", Version: "v1.2",
		Workers: []admin.Worker{{Account: balances, Balances: true, FDBEntries: 3}, {Worker: 1, Account: dataplane.Account{Received: 1}}, {Worker: 2, Account: balances, Balances: true, Fast: true}},
		Drops:   map[string]uint64{"queue_full": 1, "no_route": 7},
		Schemes: []admin.Counters{decided("conga", 8), decided("conweave", 100), decided("of-tomorrow", 5)},
		Receivers: []admin.Counters{
			admin.NewCounters("conweave", &receiverStats), admin.NewCounters("presto", &balance.PrestoReceiverStats{}), {"scheme": []byte(`"of-tomorrow"`), "gaps": []byte("3")},
		},
		Exchange: admin.NewCounters("", &congestion.ExchangeStats{
			Plain: 1, Stamped: 2, FeedbackSent: 3, FeedbackStale: 9, Arrived: 4, CongestedArrived: 5, FeedbackReceived: 6, FeedbackBadTag: 7, FeedbackBadValue: 8,
		}),
		Leaf: admin.NewCounters("", &leafStats),
	}
	for i, own := range map[int]any{1: conweaveAnswer.SourceCounters[0], 2: map[string]any{"cells": 7, "scheme": "of-tomorrow"}} {
		b, err := json.Marshal(own)
		if err != nil {
			panic(err)
		}
		a.Schemes[i]["own"] = b
	}
	return a
}

// daemon serves the answers and returns its socket.
func daemon(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	h := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok := answers[r.URL.String()]
		if !ok {
			w.WriteHeader(http.StatusBadRequest)
			answer = admin.Failure{Error: "not expected: " + r.URL.String()}
		}
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	})}
	go func() { _ = h.Serve(l) }()
	t.Cleanup(func() { h.Close() })
	return path
}

func run(args ...string) (string, error) {
	var out bytes.Buffer
	c := Command(&out)
	c.SetErr(&out)
	c.SetArgs(args)
	err := c.Execute()
	return out.String(), err
}

func TestGolden(t *testing.T) {
	socket := daemon(t)
	for name, args := range map[string]string{
		"status": "status", "config-diff": "config diff", "ports": "ports", "fast": "fast", "peers": "peers", "paths": "paths", "conga": "conga", "flowlets": "flowlets", "flowlets-none": "flowlets --limit 3",
		"conweave": "conweave --limit 5", "conweave-none": "conweave", "explain-conweave": "explain 10.0.0.1 10.0.0.4",
		"fdb": "fdb", "events": "events", "log": "log level", "hosts": "hosts", "routes": "routes", "flows": "flows", "flows-none": "flows --limit 3", "stats": "stats", "schemes": "schemes", "fdb-json": "-o json fdb",
		"explain":       "explain 10.0.0.1 10.0.0.2 udp 7 53 --vni 100 --dst-mac 02:00:00:00:00:01",
		"explain-any":   "explain 10.0.0.1 10.0.0.2",
		"explain-local": "explain 10.0.0.1 10.0.0.2 gre --dscp ef --dst-mac 02:00:00:00:00:02",
	} {
		t.Run(name, func(t *testing.T) {
			got, err := run(append([]string{"--socket", socket}, strings.Fields(args)...)...)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, name, got)
		})
	}
}

// golden compares what is printed with a file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s prints\n%s\nwant\n%s", name, got, want)
	}
	for i, line := range strings.Split(got, "\n") {
		if strings.TrimRight(line, " ") != line {
			t.Errorf("line %d ends in spaces", i+1)
		}
	}
}

func TestJSONIsWhatTheDaemonSaid(t *testing.T) {
	got, err := run("--socket", daemon(t), "-o", "json", "conga")
	if err != nil {
		t.Fatal(err)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, []byte(got)); err != nil {
		t.Fatal(err)
	}
	if want, _ := json.Marshal(answers["/v1/conga"]); compact.String() != string(want) {
		t.Errorf("%s, want %s", compact.String(), want)
	}
}

func TestMistakes(t *testing.T) {
	socket := daemon(t)
	for _, tt := range []struct{ args, says string }{
		{"ports -o xml --socket " + socket, "use table, json or yaml"},
		{"ports --watch=1ms --socket " + socket, "use 100ms or more"},
		{"ports --node L0 --socket " + socket, "leave out --node"},
		{"ports --lab none-of-this-name", `no lab "none-of-this-name"`},
		{"explain 10.0.0.1 --socket " + socket, "SRC DST"},
		{"explain 10.0.0.1 10.0.0.2 tcp 1 --socket " + socket, "SPORT DPORT"},
		{"explain 10.0.0.1 10.0.0.9 --socket " + socket, "not expected: /v1/explain?dst=10.0.0.9&src=10.0.0.1"},
		{"ports --socket " + socket + ".gone", "is the daemon running"},
		{"port --socket " + socket, `unknown command "port"`},
	} {
		if out, err := run(strings.Fields(tt.args)...); err == nil || !strings.Contains(err.Error(), tt.says) || out != "" {
			t.Errorf("loomctl %s: printed %q, error %v, want %q", tt.args, out, err, tt.says)
		}
	}
}

// What a reload would do is told by the exit code, too.
func TestConfigDiffExits(t *testing.T) {
	socket := daemon(t)
	defer func(d any) { answers["/v1/config"] = d }(answers["/v1/config"])
	for _, tt := range []struct {
		d    admin.ConfigDiff
		code int
		says string
	}{
		{admin.ConfigDiff{File: "f"}, 0, "f says what is in force\n"},
		{admin.ConfigDiff{File: "f", Live: []string{"peers"}}, 0, "peers  a reload"},
		{admin.ConfigDiff{File: "f", Live: []string{"peers"}, Restart: []string{"workers"}}, 2, "workers  a restart"},
		{admin.ConfigDiff{File: "f", Error: "not YAML"}, 1, "f would be refused: not YAML\n"},
	} {
		answers["/v1/config"] = tt.d
		out, err := run("--socket", socket, "config", "diff")
		if ExitCode(err) != tt.code || !strings.Contains(out, tt.says) {
			t.Errorf("%+v: exit code %d, want %d: %s", tt.d, ExitCode(err), tt.code, out)
		}
		if _, err := run("--socket", socket, "-o", "json", "config", "diff"); ExitCode(err) != tt.code {
			t.Errorf("%+v in JSON: exit code %d, want %d", tt.d, ExitCode(err), tt.code)
		}
	}
}

func TestFindSocket(t *testing.T) {
	defer func(s []string) { Sockets = s }(Sockets)
	dir := t.TempDir()
	Sockets = []string{filepath.Join(dir, "leafd"), filepath.Join(dir, "spined")}
	if got := findSocket(); got != Sockets[0] {
		t.Errorf("without any: %s", got)
	}
	if err := os.WriteFile(Sockets[1], nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := findSocket(); got != Sockets[1] {
		t.Errorf("with a spine's: %s", got)
	}
}

func TestAges(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 7: "7ns", 1234: "1.23µs", 12345: "12.3µs", 325380: "325µs", 999999: "1ms", 1234567890: "1.23s",
		90 * time.Second: "1m30s", 4063 * time.Millisecond: "4.06s",
	} {
		if got := age(d); got != want {
			t.Errorf("%d: %s, want %s", d, got, want)
		}
	}
}
