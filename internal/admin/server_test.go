package admin

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/internal/events"
	"github.com/loomfabric/loom/internal/httpd"
	"github.com/loomfabric/loom/leaf"
	"github.com/loomfabric/loom/overlay"
)

// fakeNode answers, and keeps what it was asked.
type fakeNode struct {
	limit int
	flow  *dataplane.Flow

	outer   *dataplane.OuterFlow
	arrival *dataplane.InnerFlow

	err   error
	stats *dataplane.Stats // nil: some
}

func (n *fakeNode) Stats() dataplane.Stats {
	if n.stats != nil {
		return *n.stats
	}
	port := func(rx, tx uint64, metric uint8) dataplane.PortStats {
		p := dataplane.PortStats{Received: dataplane.Traffic{Frames: rx, Bytes: 100 * rx}, Sent: dataplane.Traffic{Frames: tx, Bytes: 100 * tx}, Metric: metric, Utilisation: float64(metric) / 8}
		p.Drops[drop.NoRoute], p.FillEmpty = rx-tx, tx
		return p
	}
	worker := func(rx, tx uint64) dataplane.WorkerStats {
		return dataplane.WorkerStats{
			Ports: []dataplane.PortStats{port(rx, tx, 2), port(0, 0, 5)}, FDBStats: dataplane.FDBStats{FDBEntries: 3},
			PeerSent: []dataplane.Traffic{{Frames: tx, Bytes: 150 * tx}}, PeerReceived: []dataplane.Traffic{{Frames: 1, Bytes: 150}},
			Exchange: congestion.ExchangeStats{Stamped: tx, FeedbackSent: 1, FeedbackStale: 4},
			Schemes:  []leaf.SchemeStats{{Scheme: "conga", Stats: balance.Stats{Decisions: 4, Flowlets: congestion.FlowletStats{Started: 4, Moved: 1}}}},
		}
	}
	return dataplane.Stats{
		Workers: []dataplane.WorkerStats{worker(10, 8), worker(20, 20)},
		Ports:   []dataplane.PortInfo{{Open: true, XDPMode: "native", CopyMode: "copy"}, {Error: "no such interface"}},
	}
}

func (n *fakeNode) PortInfos() []dataplane.PortInfo { return n.Stats().Ports }

func (n *fakeNode) Congestion() []dataplane.PeerState {
	return []dataplane.PeerState{{VTEP: netip.MustParseAddr("10.0.0.2"), Capable: true}}
}

func (n *fakeNode) Fast() dataplane.FastState {
	return dataplane.FastState{On: true, Ports: []dataplane.FastPortInfo{{Port: "dn0", Out: "it has a shaper", Frames: 7, Slow: map[string]uint64{"order": 2}}}}
}

func (n *fakeNode) Paths() []dataplane.PeerPaths {
	return []dataplane.PeerPaths{{VTEP: netip.MustParseAddr("10.0.0.2"), Paths: []dataplane.LivePath{
		{Uplink: 1, Port: "up1", State: "silent", Avoided: true, RoundTrip: 80 * time.Microsecond, Loss: 0.5, GivenUp: 2},
	}}}
}

func (n *fakeNode) Flowlets(limit int) []dataplane.FlowletTable {
	n.limit = limit
	return nil
}

func (n *fakeNode) ConWeave(limit int) *dataplane.ConWeaveState {
	n.limit = limit
	return &dataplane.ConWeaveState{Sources: []dataplane.ConWeaveSource{{Scheme: "conweave", Reply: time.Millisecond}}}
}

func (n *fakeNode) Spray(limit int) dataplane.SprayState {
	n.limit = limit
	vtep := netip.MustParseAddr("10.0.0.2")
	return dataplane.SprayState{
		Active: 9, Sources: []dataplane.SprayFlow{{Worker: 1, Class: 2, Scheme: "reed", Hash: 0xab, VTEP: vtep, Uplink: 1, Port: "up1", Number: 77, Idle: 5000}},
		Held: []dataplane.SprayFlow{{Scheme: "reed", Hash: 0xcd, VTEP: vtep, Number: 8, Held: 3, Idle: 2000}},
	}
}

func (n *fakeNode) FDB(limit int) dataplane.FDBTable {
	n.limit = limit
	return dataplane.FDBTable{Total: 7, Entries: []dataplane.FDBEntry{}}
}

func (n *fakeNode) Explain(f *dataplane.Flow) (*dataplane.Explanation, error) {
	n.flow = f
	return &dataplane.Explanation{VNI: uint32(f.VNI)}, n.err
}

func (n *fakeNode) Hosts(limit int) dataplane.HostTable {
	n.limit = limit
	return dataplane.HostTable{Total: 7, Hosts: []dataplane.HostEntry{}}
}

func (n *fakeNode) ExplainRoute(f *dataplane.OuterFlow) (*dataplane.RouteExplanation, error) {
	n.outer = f
	return &dataplane.RouteExplanation{Reason: "because"}, n.err
}

func (n *fakeNode) ExplainArrival(a *dataplane.InnerFlow) (*dataplane.ArrivalExplanation, error) {
	n.arrival = a
	return &dataplane.ArrivalExplanation{Reason: "because"}, n.err
}

func fakeTables() *dataplane.Tables {
	return &dataplane.Tables{
		Ports: []dataplane.PortState{{Up: true, MTU: 1500, Speed: 10e9}, {NeedMTU: 1550}},
		Hops:  []dataplane.Hop{{Port: 1, Gateway: netip.MustParseAddr("192.168.0.1"), Resolved: true}},
		Peers: []dataplane.Peer{{VTEP: netip.MustParseAddr("10.0.0.2"), Hops: []dataplane.HopID{0}}, {}},
		VNIs:  []dataplane.VNI{{VNI: 100}},
	}
}

func fakeServer(n Node, leaf bool, tables *dataplane.Tables) http.Handler {
	return NewServer(Options{
		Name: "L0", Role: "leafd", Leaf: leaf, Version: "v1", Node: n, VTEP: netip.MustParseAddr("10.0.0.9"),
		Tables: func() *dataplane.Tables { return tables }, Parameters: func() Parameters { return Parameters{PID: 7} },
		Config: &fakeConfig{}, Level: new(slog.LevelVar), Events: events.NewRing(1),
		Ports: func() []dataplane.PortConfig {
			return []dataplane.PortConfig{
				{Name: "acc0", Kind: dataplane.Access},
				{Name: "up0", Kind: dataplane.Uplink, Egress: dataplane.EgressConfig{LinkRate: 1e9}},
				{}, // the place of one that is gone
			}
		},
	})
}

// ask returns status and body.
func ask(t *testing.T, s http.Handler, method, target string) (int, string) {
	t.Helper()
	r := httptest.NewRecorder()
	s.ServeHTTP(r, httptest.NewRequest(method, target, nil))
	if ct := r.Header().Get("Content-Type"); ct != "application/json" || !json.Valid(r.Body.Bytes()) {
		t.Errorf("%s: %s: %s", target, ct, r.Body)
	}
	return r.Code, strings.TrimSpace(r.Body.String())
}

func TestAnswers(t *testing.T) {
	s := fakeServer(&fakeNode{}, true, fakeTables())
	get := func(path string, into any) {
		t.Helper()
		code, body := ask(t, s, "GET", path)
		if code != http.StatusOK {
			t.Fatalf("%s: %d %s", path, code, body)
		}
		d := json.NewDecoder(strings.NewReader(body))
		d.DisallowUnknownFields()
		if err := d.Decode(into); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	var status Status
	get("/v1/status", &status)
	if want := (Status{"L0", "leafd", "v1", false, []dataplane.Reason{{Name: "port_closed", Port: "up0", Detail: "no such interface"}}}); !reflect.DeepEqual(status, want) {
		t.Errorf("status %+v, want %+v", status, want)
	}
	var p Ports
	get("/v1/ports", &p)
	want := []Port{
		{Port: "acc0", Kind: "access", Open: true, Up: true, MAC: "00:00:00:00:00:00", MTU: 1500, XDPMode: "native", CopyMode: "copy",
			Rate: 10e9, RateFrom: "kernel", Utilisation: 0.25, Metric: 2, RxFrames: 30, RxBytes: 3000, TxFrames: 28, TxBytes: 2800, Dropped: 2},
		{Port: "up0", Kind: "uplink", MAC: "00:00:00:00:00:00", Error: "no such interface", MTUNeeded: 1550, Rate: 1e9, RateFrom: "link_rate", Utilisation: 0.625, Metric: 5},
	}
	if !reflect.DeepEqual(p.Ports, want) {
		t.Errorf("ports %+v", p.Ports)
	}
	var peers Peers
	get("/v1/peers", &peers)
	if !reflect.DeepEqual(peers.Peers, []Peer{{
		VTEP: netip.MustParseAddr("10.0.0.2"), Capable: true,
		NextHops:   []NextHop{{"up0", netip.MustParseAddr("192.168.0.1"), "00:00:00:00:00:00", true, 1}},
		SentFrames: 28, SentBytes: 4200, ReceivedFrames: 2, ReceivedBytes: 300,
	}}) {
		t.Errorf("peers %+v", peers)
	}
	var st Stats
	get("/v1/stats", &st)
	account := dataplane.Account{Received: 10, Sent: 8, Dropped: 2}
	if len(st.Workers) != 2 || st.Workers[0] != (Worker{Account: account, Balances: true, FDBEntries: 3}) || st.Drops[drop.NoRoute.String()] != 2 ||
		len(st.Drops) != 1 || st.Name != "L0" || st.Role != "leafd" || st.Version != "v1" {
		t.Errorf("stats %+v", st)
	}
	for what, x := range map[string]struct{ got, want any }{
		"schemes": {st.Schemes, `[{"decisions":8,"flowlets_expired":0,"flowlets_kept":0,"flowlets_moved":2,"flowlets_started":8,"scheme":"conga"}]`},
		"exchange": {st.Exchange, `{"arrived":0,"congested_arrived":0,"feedback_bad_tag":0,"feedback_bad_value":0,"feedback_received":0,` +
			`"feedback_sent":2,"feedback_stale":8,"plain":0,"stamped":28}`},
		"receivers": {st.Receivers, `[]`},
	} {
		if got, err := json.Marshal(x.got); err != nil || string(got) != x.want {
			t.Errorf("%s: %s, %v, want %s", what, got, err, x.want)
		}
	}
	var r Rings
	get("/v1/rings", &r)
	if len(r.Ports) != 2 || r.Ports[0].Port != "acc0" || r.Ports[0].Sockets.Number("fill_ring_empty") != 28 || r.Ports[1].Sockets.Number("fill_ring_empty") != 0 || r.Ports[1].Classifier == nil {
		t.Errorf("rings %+v", r)
	}
	var params Parameters
	get("/v1/parameters", &params)
	if !reflect.DeepEqual(params, Parameters{
		PID: 7, Peers: []netip.Addr{netip.MustParseAddr("10.0.0.2")}, VNIs: []VNI{{100, []netip.Addr{}}}, Cores: []int{}, FailOpen: []string{},
	}) {
		t.Errorf("parameters %+v", params)
	}
	var c Conga
	get("/v1/conga", &c)
	if len(c.Peers) != 1 || !c.Peers[0].Capable {
		t.Errorf("conga %+v", c)
	}
	if _, body := ask(t, s, "GET", "/v1/flowlets"); body != `{"tables":[]}` {
		t.Errorf("no flowlets: %s", body)
	}
}

// Each endpoint answers that is said to need no parameters, and a leaf has more of them.
func TestEndpoints(t *testing.T) {
	known := make(map[bool]int)
	for _, leaf := range []bool{true, false} {
		s := fakeServer(&fakeNode{}, leaf, fakeTables())
		for _, what := range Endpoints(leaf) {
			known[leaf]++
			if code, body := ask(t, s, "GET", "/v1/"+what); code != http.StatusOK {
				t.Errorf("leaf %v, %s: %d %s", leaf, what, code, body)
			}
		}
	}
	if len(endpoints)-known[true] != len(needTables) || known[false] == 0 || known[false] >= known[true] {
		t.Errorf("a leaf has %d endpoints, a spine %d, of %d", known[true], known[false], len(endpoints))
	}
}

func TestLimits(t *testing.T) {
	for query, want := range map[string]int{"": defaultFDB, "?limit=0": 0, "?limit=17": 17, "?limit=-1": -1, "?limit=many": -1, "?limit=99999999999": -1} {
		n := &fakeNode{}
		code, body := ask(t, fakeServer(n, true, fakeTables()), "GET", "/v1/fdb"+query)
		if want < 0 && (code != http.StatusBadRequest || !strings.Contains(body, "limit")) || want >= 0 && (code != http.StatusOK || n.limit != want) {
			t.Errorf("%q: %d %s, limit %d", query, code, body, n.limit)
		}
	}
}

func TestMistakesHaveAStatusAndAReason(t *testing.T) {
	flow := "?src=10.0.0.1&dst=10.0.0.2"
	for _, tt := range []struct {
		name, method, target string
		leaf                 bool
		tables               *dataplane.Tables
		err                  error
		status               int
		says                 string
	}{
		{"no such path", "GET", "/v1/secrets", true, fakeTables(), nil, 404, "/v1/ports"},
		{"no such version", "GET", "/ports", true, fakeTables(), nil, 404, "/v1/ports"},
		{"writing", "POST", "/v1/ports", true, fakeTables(), nil, 405, "only reads"},
		{"a spine's FDB", "GET", "/v1/fdb", false, fakeTables(), nil, 404, "ask a leaf"},
		{"unknown parameter", "GET", "/v1/fdb?limits=3", true, fakeTables(), nil, 400, `has limit`},
		{"parameter of none", "GET", "/v1/ports?limit=3", true, fakeTables(), nil, 400, `has none`},
		{"twice", "GET", "/v1/fdb?limit=3&limit=4", true, fakeTables(), nil, 400, "2 times"},
		{"broken escape", "GET", "/v1/fdb?limit=%zz", true, fakeTables(), nil, 400, "%zz"},
		{"not ready", "GET", "/v1/explain" + flow, true, nil, nil, 503, "no tables"},
		{"refused by the node", "GET", "/v1/explain" + flow, true, fakeTables(), errors.New("the node says no"), 400, "the node says no"},
		{"no flow", "GET", "/v1/explain", true, fakeTables(), nil, 400, "src is needed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, body := ask(t, fakeServer(&fakeNode{err: tt.err}, tt.leaf, tt.tables), tt.method, tt.target)
			var f Failure
			if err := json.Unmarshal([]byte(body), &f); err != nil || code != tt.status || !strings.Contains(f.Error, tt.says) {
				t.Errorf("%d %s, want %d and %q", code, body, tt.status, tt.says)
			}
		})
	}
}

// What ordered spraying has under way is listed beside what other schemes have.
func TestSprayedFlows(t *testing.T) {
	code, body := ask(t, fakeServer(&fakeNode{}, true, fakeTables()), "GET", "/v1/flows?limit=3")
	want := `{"flows":[{"worker":0,"class":null,"scheme":"reed","flow":"000000cd","vtep":"10.0.0.2","path":"","port":"","state":"waits","number":8,"held_frames":3,"idle_ns":2000},` +
		`{"worker":1,"class":2,"scheme":"reed","flow":"000000ab","vtep":"10.0.0.2","path":"1","port":"up1","state":"sprayed","number":77,"held_frames":0,"idle_ns":5000}],"active":9}`
	if code != http.StatusOK || strings.TrimSpace(body) != want {
		t.Errorf("%d %s\nwant %s", code, body, want)
	}
}

func TestFlows(t *testing.T) {
	ip := func(s string) netip.Addr { return netip.MustParseAddr(s) }
	a, b := overlay.MAC{2, 0, 0, 0, 0, 1}, overlay.MAC{2, 0, 0, 0, 0, 2}
	good := map[string]dataplane.Flow{
		"src=10.0.0.1&dst=10.0.0.2":                                     {VNI: 100, Src: ip("10.0.0.1"), Dst: ip("10.0.0.2"), Proto: 1},
		"src=fd00::1&dst=fd00::2":                                       {VNI: 100, Src: ip("fd00::1"), Dst: ip("fd00::2"), Proto: 58},
		"src=10.0.0.1&dst=10.0.0.2&proto=TCP&sport=1&dport=2&vni=5":     {VNI: 5, Src: ip("10.0.0.1"), Dst: ip("10.0.0.2"), Proto: 6, SrcPort: 1, DstPort: 2},
		"src=10.0.0.1&dst=10.0.0.2&proto=47&dscp=ef":                    {VNI: 100, Src: ip("10.0.0.1"), Dst: ip("10.0.0.2"), Proto: 47, DSCP: 46},
		"src=10.0.0.1&dst=10.0.0.2&proto=17&dst_mac=02-00-00-00-00-02":  {VNI: 100, Src: ip("10.0.0.1"), Dst: ip("10.0.0.2"), Proto: 17, DstMAC: b},
		"src=02:00:00:00:00:01&dst=02:00:00:00:00:02":                   {VNI: 100, SrcMAC: a, DstMAC: b},
		"src=::ffff:10.0.0.1&dst=10.0.0.2&proto=udp&sport=65535&dport=": {VNI: 100, Src: ip("10.0.0.1"), Dst: ip("10.0.0.2"), Proto: 17, SrcPort: 65535},
	}
	for query, want := range good {
		n := &fakeNode{}
		code, body := ask(t, fakeServer(n, true, fakeTables()), "GET", "/v1/explain?"+query)
		if code != http.StatusOK || *n.flow != want {
			t.Errorf("%s: %d %s; asked for %+v, want %+v", query, code, body, n.flow, want)
		}
	}
	bad := map[string]string{
		"src=10.0.0.1":                                                          "dst is needed",
		"src=10.0.0.1&dst=host":                                                 `dst \"host\"`,
		"src=fe80::1%25eth0&dst=fd00::":                                         "zone",
		"src=10.0.0.1&dst=10.0.0.2&proto=tcp&sport=65536":                       "sport",
		"src=10.0.0.1&dst=10.0.0.2&proto=0":                                     "proto",
		"src=10.0.0.1&dst=10.0.0.2&dport=80":                                    "give proto",
		"src=10.0.0.1&dst=10.0.0.2&dscp=64":                                     "dscp",
		"src=10.0.0.1&dst=10.0.0.2&vni=16777216":                                "vni",
		"src=02:00:00:00:00:01&dst=02:00:00:00:00:02&dst_mac=02:00:00:00:00:02": "already",
		"src=10.0.0.1&dst=10.0.0.2&dst_mac=02:00:00:00:00:02:00:00":             "dst_mac",
	}
	for query, says := range bad {
		n := &fakeNode{}
		code, body := ask(t, fakeServer(n, true, fakeTables()), "GET", "/v1/explain?"+query)
		if code != http.StatusBadRequest || !strings.Contains(body, says) || n.flow != nil {
			t.Errorf("%s: %d %s, want %q", query, code, body, says)
		}
	}
	two := fakeTables()
	two.VNIs = append(two.VNIs, dataplane.VNI{VNI: 200})
	if code, body := ask(t, fakeServer(&fakeNode{}, true, two), "GET", "/v1/explain?src=10.0.0.1&dst=10.0.0.2"); code != 400 || !strings.Contains(body, "100, 200") {
		t.Errorf("two VNIs: %d %s", code, body)
	}
}

// Client and server over a socket, and what a client says when there is none.
func TestClient(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	c := &Client{Socket: path}
	says := func(want string) {
		t.Helper()
		if b, err := c.Get(t.Context(), "fdb", nil); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("answer %s, error %v, want %q", b, err, want)
		}
	}
	says("is the daemon running")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		served <- httpd.Serve(ctx, l, fakeServer(&fakeNode{}, true, fakeTables()), "the admin API", slog.New(slog.DiscardHandler))
	}()
	b, err := c.Get(t.Context(), "fdb", url.Values{"limit": {"3"}})
	if err != nil || !strings.Contains(string(b), `"total":7`) {
		t.Errorf("answer %s, %v", b, err)
	}
	if _, err := c.Get(t.Context(), "fdb", url.Values{"limit": {"x"}}); err == nil || !strings.Contains(err.Error(), `limit "x"`) {
		t.Errorf("error %v", err)
	}
	cancel()
	select {
	case err := <-served:
		if err != nil {
			t.Errorf("served until %v", err)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("the server does not end")
	}
	// A daemon that was killed leaves its socket behind.
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	says("is gone")
	os.Remove(path)
	// Something else than the admin API.
	other, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	h := &http.Server{Handler: http.NotFoundHandler()}
	go func() { _ = h.Serve(other) }()
	defer h.Close()
	says("admin.listen")
}

// stuckNode is one of which a worker does not answer.
type stuckNode struct {
	fakeNode
	free chan struct{}
}

func (n *stuckNode) Stats() dataplane.Stats {
	<-n.free
	return n.fakeNode.Stats()
}

func (n *stuckNode) PortInfos() []dataplane.PortInfo { return n.fakeNode.PortInfos() }

// A worker that does not answer keeps nobody waiting; what asks none is answered.
func TestStuckWorker(t *testing.T) {
	n := &stuckNode{free: make(chan struct{})}
	defer close(n.free)
	s := NewServer(Options{
		Node: n, Leaf: true, Tables: fakeTables, Gate: httpd.NewGate("the admin API", 1, 20*time.Millisecond, slog.New(slog.DiscardHandler)),
		Ports: func() []dataplane.PortConfig { return []dataplane.PortConfig{{Name: "acc0", Kind: dataplane.Access}} },
	})
	for _, why := range []string{"a worker is stuck", "try again"} {
		code, body := ask(t, s, "GET", "/v1/snapshot")
		var f Failure
		if err := json.Unmarshal([]byte(body), &f); err != nil || code != http.StatusServiceUnavailable || !strings.Contains(f.Error, why) {
			t.Errorf("%d %s, want a failure with %q", code, body, why)
		}
	}
	if code, body := ask(t, s, "GET", "/v1/status"); code != http.StatusOK || !strings.Contains(body, `"ready":true`) {
		t.Errorf("status: %d %s", code, body)
	}
}
