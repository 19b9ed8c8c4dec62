package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/drop"
)

// TestSnapshotAgreesWithTheOtherAnswers: whatever a snapshot has is what the node says
// elsewhere, under the same name.
func TestSnapshotAgreesWithTheOtherAnswers(t *testing.T) {
	s := fakeServer(&fakeNode{}, true, fakeTables())
	before := time.Now().UnixNano()
	_, body := ask(t, s, "GET", "/v1/snapshot")
	var whole map[string]json.RawMessage
	if err := json.Unmarshal([]byte(body), &whole); err != nil {
		t.Fatal(err)
	}
	for path, names := range map[string][]string{
		"status": {"name", "role", "version", "ready", "reasons"}, "ports": {"ports"}, "stats": {"workers", "drops", "schemes", "receivers"},
	} {
		_, body := ask(t, s, "GET", "/v1/"+path)
		var part map[string]json.RawMessage
		if err := json.Unmarshal([]byte(body), &part); err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if string(whole[name]) != string(part[name]) || len(part[name]) == 0 {
				t.Errorf("%s of the snapshot is %s, of /v1/%s %s", name, whole[name], path, part[name])
			}
		}
	}
	for name, path := range map[string]string{"peers": "peers", "paths": "paths", "conga": "conga"} {
		if _, body := ask(t, s, "GET", "/v1/"+path); body != `{"peers":`+string(whole[name])+`}` {
			t.Errorf("%s of the snapshot is %s, of /v1/%s %s", name, whole[name], path, body)
		}
	}
	var snap Snapshot
	if err := json.Unmarshal([]byte(body), &snap); err != nil {
		t.Fatal(err)
	}
	if snap.Format != SnapshotFormat || snap.Time < before || snap.Time > time.Now().UnixNano() || snap.VTEP != netip.MustParseAddr("10.0.0.9") {
		t.Errorf("format %d, time %d, VTEP %v", snap.Format, snap.Time, snap.VTEP)
	}
	if want := (dataplane.NextHop{Port: "up0", Gateway: netip.MustParseAddr("192.168.0.1"), MAC: "00:00:00:00:00:00", Resolved: true}); len(snap.NextHops) != 1 || snap.NextHops[0] != want {
		t.Errorf("next hops %+v, want %+v", snap.NextHops, want)
	}
}

// TestSnapshotOfOthers: a spine answers, and so does a node without tables. Lists are
// never null.
func TestSnapshotOfOthers(t *testing.T) {
	for name, s := range map[string]http.Handler{
		"spine": fakeServer(&fakeNode{}, false, fakeTables()), "no tables": fakeServer(&fakeNode{stats: &dataplane.Stats{}}, true, nil),
	} {
		code, body := ask(t, s, "GET", "/v1/snapshot")
		var parts map[string]json.RawMessage
		if err := json.Unmarshal([]byte(body), &parts); err != nil || code != http.StatusOK || len(parts) < 15 {
			t.Errorf("%s: %d %v %s", name, code, err, body)
		}
		for part, value := range parts {
			if string(value) == "null" {
				t.Errorf("%s: %s is null", name, part)
			}
		}
		if name == "spine" && (!strings.Contains(body, `"peers":[],"paths":[],"conga":[]`) || !strings.Contains(body, `"port":"up0"`)) {
			t.Errorf("%s: %s", name, body)
		}
	}
}

// largeNode is a leaf of a fabric of 32 leaves and 4 spines.
type largeNode struct{ fakeNode }

func largeVTEP(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 255, 0, byte(i)}) }

func (n *largeNode) Congestion() (all []dataplane.PeerState) {
	for i := range 31 {
		p := dataplane.PeerState{VTEP: largeVTEP(i), Capable: true, State: "capable"}
		for u := range uint8(4) {
			p.Paths = append(p.Paths, dataplane.PathState{Uplink: u, Port: fmt.Sprintf("up%d", u), Usable: true, Local: u, Remote: 3, RemoteKnown: true, RemoteAge: time.Millisecond})
			p.FromLeaf = append(p.FromLeaf, dataplane.TagMetric{Tag: u, Metric: 2, Age: time.Millisecond})
		}
		all = append(all, p)
	}
	return all
}

func (n *largeNode) Paths() (all []dataplane.PeerPaths) {
	for i := range 31 {
		p := dataplane.PeerPaths{VTEP: largeVTEP(i)}
		for u := range uint8(4) {
			p.Paths = append(p.Paths, dataplane.LivePath{Uplink: u, Port: fmt.Sprintf("up%d", u), State: "alive", RoundTrip: 80 * time.Microsecond})
		}
		all = append(all, p)
	}
	return all
}

// BenchmarkSnapshot makes and encodes the answer of a leaf among 32, with 52 ports and
// two workers.
func BenchmarkSnapshot(b *testing.B) {
	n := &largeNode{}
	var st dataplane.Stats
	var configs []dataplane.PortConfig
	tables := &dataplane.Tables{}
	for i := range 52 {
		configs = append(configs, dataplane.PortConfig{Name: fmt.Sprintf("port%d", i)})
		st.Ports = append(st.Ports, dataplane.PortInfo{Open: true})
		tables.Ports = append(tables.Ports, dataplane.PortState{Up: true})
	}
	for range 2 {
		w := dataplane.WorkerStats{Ports: make([]dataplane.PortStats, 52)}
		for i := range w.Ports {
			w.Ports[i].Drops[drop.NoRoute] = 7
		}
		st.Workers = append(st.Workers, w)
	}
	for u := range 4 {
		tables.Hops = append(tables.Hops, dataplane.Hop{Port: dataplane.PortID(u), Gateway: largeVTEP(u), Resolved: true})
	}
	for i := range 31 {
		tables.Peers = append(tables.Peers, dataplane.Peer{VTEP: largeVTEP(i), Hops: []dataplane.HopID{0, 1, 2, 3}})
	}
	n.stats = &st
	o := &Options{Name: "L0", Leaf: true, Node: n, Tables: func() *dataplane.Tables { return tables }, Ports: func() []dataplane.PortConfig { return configs }}
	b.ReportAllocs()
	size := 0
	for b.Loop() {
		text, err := json.Marshal(snapshot(o))
		if err != nil {
			b.Fatal(err)
		}
		size = len(text)
	}
	b.ReportMetric(float64(size), "bytes")
}
