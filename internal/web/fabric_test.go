package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/admin"
)

// fabric is one that exists in a test's memory only: leaves, spines and links between
// each pair, with traffic that comes and goes.
type fakeFabric struct {
	leaves, spines, parallel int

	mu    sync.Mutex
	now   float64         // seconds of its life
	down  map[string]bool // ports, as "L0 up1"
	dead  map[string]bool // paths, as "L0 up1 L1"
	mute  map[string]bool // nodes that do not answer
	slow  chan struct{}   // what a slow node waits for
	lazy  string          // the slow node
	drops uint64
	asked int
	loads map[string]float64 // of ports; others follow a wave
	sent  map[string]float64 // bytes by port
}

func newFake(leaves, spines, parallel int) *fakeFabric {
	return &fakeFabric{
		leaves: leaves, spines: spines, parallel: parallel, down: make(map[string]bool), dead: make(map[string]bool), mute: make(map[string]bool),
		loads: make(map[string]float64), sent: make(map[string]float64),
	}
}

const fakeRate = 100e6

func vtep(leaf int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 255, byte(leaf >> 8), byte(leaf + 1)})
}

// number is the number in a node's name.
func number(node string) int {
	n, err := strconv.Atoi(node[1:])
	if err != nil {
		panic(err)
	}
	return n
}

// mac is the address of a node's port.
func mac(node string, port int) string {
	kind := byte(0)
	if node[0] == 'S' {
		kind = 1
	}
	n := number(node)
	return fmt.Sprintf("02:00:%02x:%02x:%02x:%02x", kind, n>>8, n&255, port)
}

func (f *fakeFabric) names() (all []string) {
	for i := range f.leaves {
		all = append(all, fmt.Sprintf("L%d", i))
	}
	for i := range f.spines {
		all = append(all, fmt.Sprintf("S%d", i))
	}
	return all
}

// nodes returns the fabric as loomweb asks it.
func (f *fakeFabric) nodes() (all []Node) {
	for _, name := range f.names() {
		all = append(all, Node{name, &fakeNode{f, name}})
	}
	return all
}

// pass lets time go by.
func (f *fakeFabric) pass(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now += d.Seconds()
	for _, name := range f.names() {
		for p := range f.ports(name) {
			key := fmt.Sprintf("%s %s", name, f.port(name, p))
			f.sent[key] += f.load(key) * fakeRate / 8 * d.Seconds()
		}
	}
}

func (f *fakeFabric) ports(node string) int {
	if node[0] == 'L' {
		return f.spines*f.parallel + 1
	}
	return f.leaves * f.parallel
}

func (f *fakeFabric) port(node string, i int) string {
	if node[0] == 'L' {
		if i == f.spines*f.parallel {
			return "acc0"
		}
		return fmt.Sprintf("up%d", i)
	}
	return fmt.Sprintf("dn%d", i)
}

func (f *fakeFabric) load(key string) float64 {
	if f.down[key] {
		return 0
	}
	if x, ok := f.loads[key]; ok {
		return x
	}
	seed := 0.0
	for _, c := range key {
		seed = seed*1.7 + float64(c)
	}
	return 0.5 + 0.5*math.Sin(seed+f.now/5)
}

// far returns the other end of a port.
func (f *fakeFabric) far(node string, i int) (string, int) {
	n := number(node)
	if node[0] == 'L' {
		return fmt.Sprintf("S%d", i/f.parallel), n*f.parallel + i%f.parallel
	}
	return fmt.Sprintf("L%d", i/f.parallel), n*f.parallel + i%f.parallel
}

func (f *fakeFabric) snapshot(name string) *admin.Snapshot {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	s := &admin.Snapshot{
		Format: admin.SnapshotFormat, Time: int64(1e18 + f.now*1e9), Status: admin.Status{Name: name, Role: "spined", Version: "v0", Ready: true},
		Drops: map[string]uint64{"queue_full": f.drops},
	}
	leaf := name[0] == 'L'
	for i := range f.ports(name) {
		port := f.port(name, i)
		key := name + " " + port
		p := admin.Port{Port: port, Kind: "spine", Open: true, Up: !f.down[key], MAC: mac(name, i), Rate: fakeRate, TxBytes: uint64(f.sent[key])}
		if leaf {
			p.Kind = "uplink"
		}
		if port == "acc0" {
			p.Kind, p.RxBytes = "access", p.TxBytes
		} else if !f.down[key] {
			node, q := f.far(name, i)
			p.RxBytes = uint64(f.sent[node+" "+f.port(node, q)])
			s.NextHops = append(s.NextHops, dataplane.NextHop{Port: port, MAC: mac(node, q), Resolved: true})
		}
		s.Ports = append(s.Ports, p)
	}
	if leaf {
		f.leaf(name, s)
	}
	return s
}

// leaf adds what only leaves know.
func (f *fakeFabric) leaf(name string, s *admin.Snapshot) {
	n := number(name)
	s.Role, s.VTEP = "leafd", vtep(n)
	for j := range f.leaves {
		if j == n {
			continue
		}
		paths, state := dataplane.PeerPaths{VTEP: vtep(j)}, dataplane.PeerState{VTEP: vtep(j), Capable: true, State: "capable"}
		for u := range f.spines * f.parallel {
			port := fmt.Sprintf("up%d", u)
			key := name + " " + port
			p := dataplane.LivePath{Uplink: uint8(u), Port: port, State: "alive", RoundTrip: time.Duration(80+400*f.load(key)) * time.Microsecond}
			if f.dead[key+fmt.Sprintf(" L%d", j)] {
				p.State, p.Loss = "silent", 1
			}
			if !f.down[key] {
				paths.Paths = append(paths.Paths, p)
			}
			state.Paths = append(state.Paths, dataplane.PathState{Uplink: uint8(u), Port: port, Usable: !f.down[key], Local: uint8(7 * f.load(key)), RemoteKnown: true})
		}
		s.Paths, s.Conga = append(s.Paths, paths), append(s.Conga, state)
		s.Peers = append(s.Peers, admin.Peer{VTEP: vtep(j), Capable: true, State: "capable"})
	}
	count := func(x float64) json.RawMessage { return fmt.Appendf(nil, "%.0f", x) }
	s.Schemes = []admin.Counters{{"scheme": json.RawMessage(`"conga"`), "flowlets_started": count(100 * f.now), "flowlets_moved": count(40 * f.now), "flowlets_kept": count(50 * f.now)}}
	s.Receivers = []admin.Counters{{
		"scheme": json.RawMessage(`"conweave"`), "queues": count(2), "waiting_frames": count(9), "held_frames": count(30 * f.now),
		"unordered_frames": json.RawMessage(fmt.Sprintf(`{"late":%.0f}`, 5*f.now)), "hold_time": json.RawMessage(fmt.Sprintf(`{"count":%.0f,"mean_ns":250000}`, 10*f.now)),
	}}
}

// fakeNode is one node as loomweb asks it.
type fakeNode struct {
	fabric *fakeFabric
	name   string
}

var errMute = errors.New("nobody listens at /run/none: start it again")

func (n *fakeNode) Get(ctx context.Context, what string, q url.Values) (json.RawMessage, error) {
	f := n.fabric
	f.mu.Lock()
	mute, wait := f.mute[n.name], f.slow
	if f.lazy != n.name {
		wait = nil
	}
	f.mu.Unlock()
	if wait != nil {
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if mute {
		return nil, errMute
	}
	switch what {
	case "snapshot":
		return json.Marshal(f.snapshot(n.name))
	case "fdb":
		return json.RawMessage(fmt.Sprintf(`{"total":2,"entries":[{"vni":100,"mac":"02:10:00:00:00:01","vtep":"","port":"acc0"},{"vni":100,"mac":"02:10:00:00:00:02","vtep":"%v","port":""}]}`, vtep(1))), nil
	case "explain":
		if q.Get("src") == "" {
			return nil, &admin.Error{Status: 400, Text: "src is needed"}
		}
		return json.RawMessage(fmt.Sprintf(`{"vni":100,"hash":4660,"hashed":"MAC addresses","scheme":"conga","destination":"remote","peers":[{"vtep":"%v","uplinks":[`+
			`{"uplink":0,"port":"up0","local_metric":3,"remote_metric":2,"remote_known":true,"combined_metric":3},`+
			`{"uplink":1,"port":"up1","local_metric":1,"remote_metric":0,"remote_known":false,"combined_metric":1}],"uplink":1,"fresh":[1],"reason":"up1 has the least metric"}]}`, vtep(1))), nil
	}
	return nil, fmt.Errorf("asked for %s", what)
}
