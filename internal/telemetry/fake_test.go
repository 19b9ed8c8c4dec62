package telemetry

import (
	"log/slog"
	"net/netip"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/control"
	"github.com/loomfabric/loom/control/bridge"
	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/internal/httpd"
	"github.com/loomfabric/loom/internal/stat"
	"github.com/loomfabric/loom/leaf"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// fake is a node whose counters and tables a test sets.
type fake struct {
	mu      sync.Mutex
	stats   dataplane.Stats
	tables  *dataplane.Tables
	control control.Stats
	bridge  bridge.Stats
	peers   []dataplane.PeerState
	paths   []dataplane.PeerPaths
	reload  Reload
	auto    *dataplane.AutoState
	ports   []dataplane.PortConfig
}

func (f *fake) options() Options {
	return Options{
		Name: "L0", Role: "leafd", Version: "v1.2.3", VTEP: addr("192.0.2.1"), Overlay: "file", Log: slog.New(slog.DiscardHandler),
		Stats: func() dataplane.Stats {
			f.mu.Lock()
			defer f.mu.Unlock()
			return cloneStats(f.stats)
		},
		AdminGate: httpd.NewGate("the admin API", 1, time.Second, slog.New(slog.DiscardHandler)),
		PortInfos: func() []dataplane.PortInfo {
			f.mu.Lock()
			defer f.mu.Unlock()
			return cloneStats(f.stats).Ports
		},
		Tables: func() *dataplane.Tables {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.tables
		},
		Control: func() control.Stats {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.control
		},
		Bridge: func() bridge.Stats {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.bridge
		},
		Congestion: func() []dataplane.PeerState {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.peers
		},
		Paths: func() []dataplane.PeerPaths {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.paths
		},
		Auto: func() *dataplane.AutoState {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.auto
		},
		Findings: func() []control.Finding {
			return []control.Finding{{Place: "host0", Problem: "a"}, {Place: "host0", Problem: "b"}, {Place: "up0", Fatal: true}}
		},
		Reload: func() Reload {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.reload
		},
		Ports: func() []dataplane.PortConfig { return f.ports },
	}
}

// cloneStats copies what the fake changes while it is read.
func cloneStats(s dataplane.Stats) dataplane.Stats {
	workers := make([]dataplane.WorkerStats, len(s.Workers))
	for i, w := range s.Workers {
		w.Ports = append([]dataplane.PortStats(nil), w.Ports...)
		workers[i] = w
	}
	s.Workers = workers
	s.Ports = append([]dataplane.PortInfo(nil), s.Ports...)
	return s
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// newFake is a leaf with two ports, two workers, two VNIs, two peers and two
// next hops, all of whose numbers differ, and whose frames add up.
func newFake() *fake {
	f := &fake{tables: &dataplane.Tables{
		Ports: []dataplane.PortState{
			{Ifindex: 7, Up: true, MAC: overlay.MAC{2, 0, 0, 0, 0, 7}, MTU: 1500},
			{Ifindex: 8, Up: false, MAC: overlay.MAC{2, 0, 0, 0, 0, 8}, MTU: 1600, NeedMTU: 1554, Speed: 25e9},
		},
		Hops: []dataplane.Hop{
			{Port: 1, Gateway: addr("10.0.0.1"), MAC: overlay.MAC{2, 0, 0, 0, 1, 1}, Resolved: true},
			{Port: 1, Gateway: addr("10.0.0.3")},
		},
		Peers: []dataplane.Peer{{VTEP: addr("192.0.2.2"), Hops: []dataplane.HopID{0, 1}}, {VTEP: addr("192.0.2.3")}},
		VNIs:  []dataplane.VNI{{VNI: 100}, {VNI: 200}},
	}}
	f.ports = []dataplane.PortConfig{{Name: "host0", Kind: dataplane.Access, Optional: true}, {Name: "up0", Kind: dataplane.Uplink}}
	next := uint64(1e6) // above all else that is shown
	f.stats.Workers = make([]dataplane.WorkerStats, 2)
	for i := range f.stats.Workers {
		w := &f.stats.Workers[i]
		w.Ports = make([]dataplane.PortStats, 2)
		w.VNIs = make([]dataplane.VNIStats, 2)
		w.PeerSent, w.PeerReceived = make([]dataplane.Traffic, 2), make([]dataplane.Traffic, 2)
		w.HopSent = make([]dataplane.Traffic, 2)
		w.Waiting = make([]reorder.PortUse, 3)
		w.Shadows = []leaf.ShadowStats{{Scheme: "conga", Shadow: "letflow", ShadowCounts: leaf.ShadowCounts{
			Frames: 9, Agreed: 4, Sent: leaf.Uplinks{0: 100}, Would: leaf.Uplinks{1: 100}, Started: 3, Moved: 1,
		}}}
		w.Schemes = []leaf.SchemeStats{
			{Scheme: "conga"}, {Scheme: "ecmp"},
			{Scheme: "conweave", Stats: balance.Stats{Own: &balance.ConWeaveStats{}}},
		}
		w.Receivers = []leaf.ReceiverStats{{Scheme: "conweave", Stats: &reorder.Stats{}}}
		for _, s := range balance.Schemes() {
			own, receiver := leaf.Counts(s)
			if _, ok := own.(*balance.ConWeaveStats); own != nil && !ok {
				w.Schemes = append(w.Schemes, leaf.SchemeStats{Scheme: s.Name, Stats: balance.Stats{Own: own}})
			}
			if receiver != nil && s.Name != "conweave" {
				w.Receivers = append(w.Receivers, leaf.ReceiverStats{Scheme: s.Name, Stats: receiver})
			}
		}
		number(reflect.ValueOf(w).Elem(), &next)
		// What only access ports have, what no message is, and what is no drop.
		w.Waiting[1] = reorder.PortUse{}
		for op := range overlay.OpRTTReply {
			w.Leaf.Received[op], w.Leaf.Known[op], w.Leaf.Sent[op] = 0, 0, leaf.Amount{}
		}
		for p := range w.Ports {
			w.Ports[p].Drops[drop.None] = 0
		}
		w.Made, w.Held = 1<<40-w.Gone.Received.Frames, -w.Gone.Sent.Frames-w.Gone.Dropped
		for p := range w.Ports {
			w.Made -= w.Ports[p].Received.Frames
			w.Held -= w.Ports[p].Sent.Frames
			for _, n := range w.Ports[p].Drops {
				w.Held -= n
			}
		}
		w.Held += 1<<40 - w.Consumed // received + made = 2^40 = sent + dropped + consumed + held
	}
	since := time.Unix(1700000000, 500e6).UTC()
	f.stats.Ports = []dataplane.PortInfo{
		{Name: "host0", Kind: dataplane.Access, Open: true, XDPMode: "generic", CopyMode: "copy", Since: since,
			Classifier: map[string]uint64{"redirect": 17, "pass_link_local": 18}},
		{Name: "up0", Kind: dataplane.Uplink, Open: true, XDPMode: "native", CopyMode: "zero-copy", Since: since,
			Classifier: map[string]uint64{"redirect": 19, "no_meta": 20}},
	}
	number(reflect.ValueOf(&f.control).Elem(), &next)
	number(reflect.ValueOf(&f.bridge).Elem(), &next)
	f.reload = Reload{Successful: true, LastSuccess: since.Add(time.Minute)}
	f.auto = &dataplane.AutoState{AutoState: leaf.AutoState{Changes: 31, Times: reorder.Times{
		Reply: time.Millisecond, Inactive: 9 * time.Millisecond, ResumeExtra: 2 * time.Millisecond, ResumeDefault: 3 * time.Millisecond,
		MaxHold: 5 * time.Millisecond}}}
	f.peers = []dataplane.PeerState{
		{VTEP: addr("192.0.2.2"), Capable: true, Paths: []dataplane.PathState{
			{Uplink: 0, Remote: 7, RemoteKnown: true, RemoteAge: time.Second}, {Uplink: 1}, {Uplink: 3, Remote: 2, RemoteKnown: true, RemoteAge: 4 * time.Second},
		}, FromLeaf: []dataplane.TagMetric{{Tag: 15, Metric: 5, Age: time.Millisecond}}},
		{VTEP: addr("192.0.2.3")},
	}
	f.paths = []dataplane.PeerPaths{{VTEP: addr("192.0.2.2"), Paths: []dataplane.LivePath{
		{Uplink: 0, Port: "up0", State: "silent", Avoided: true, RoundTrip: time.Millisecond, Loss: 0.25, GivenUp: 77},
		{Uplink: 1, Port: "up1", State: "unknown"},
	}}}
	return f
}

// number gives every number inside v a value of its own, from next on. A field
// of a type that it does not know fails the tests, lest it be overlooked.
func number(v reflect.Value, next *uint64) {
	if h, ok := v.Addr().Interface().(*reorder.Histogram); ok {
		n := *next
		*h = reorder.Histogram{N: n, Sum: time.Duration(n+1) * time.Second, Max: time.Duration(n+2) * time.Second}
		h.Counts[20], h.Counts[reorder.Buckets-1] = n-1, 1
		*next += 3
		return
	}
	if d, ok := v.Addr().Interface().(*stat.Sizes); ok {
		*d = stat.Sizes{Sum: *next + 1}
		d.Counts[2], d.Counts[stat.SizeBuckets-1] = *next-1, 1
		*next += 2
		return
	}
	switch v.Kind() {
	case reflect.Uint64:
		v.SetUint(*next)
	case reflect.Uint8:
		v.SetUint(100 + *next%100) // above the fake's other small numbers
	case reflect.String:
		return // a name
	case reflect.Int:
		v.SetInt(int64(*next))
	case reflect.Int64:
		if v.Type() != reflect.TypeFor[time.Duration]() {
			return // when it was
		}
		v.SetInt(int64(*next) * int64(time.Second))
	case reflect.Float64:
		v.SetFloat(float64(*next))
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				number(v.Field(i), next)
			}
		}
		return
	case reflect.Interface, reflect.Pointer:
		if !v.IsNil() {
			number(reflect.Indirect(v.Elem()), next)
		}
		return
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			number(v.Index(i), next)
		}
		return
	default:
		panic("telemetry test: a counter of kind " + v.Kind().String() + ": teach number about it")
	}
	*next++
}

// numbers collects every number inside v that is not 0 under the path of its field.
func numbers(v reflect.Value, path string, into map[string]float64) {
	if v.IsZero() {
		return
	}
	if h, ok := v.Interface().(reorder.Histogram); ok {
		into[path+".N"], into[path+".Sum"] = float64(h.N), h.Sum.Seconds()
		return
	}
	if d, ok := v.Interface().(stat.Sizes); ok {
		into[path+".N"], into[path+".Sum"] = float64(d.N()), float64(d.Sum)
		return
	}
	switch v.Kind() {
	case reflect.Uint64, reflect.Uint8:
		into[path] = float64(v.Uint())
	case reflect.Int:
		into[path] = float64(v.Int())
	case reflect.Int64:
		into[path] = time.Duration(v.Int()).Seconds()
	case reflect.Float64:
		into[path] = v.Float()
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.Tag.Get("metric") != "-" {
				numbers(v.Field(i), path+"."+f.Name, into)
			}
		}
	case reflect.Interface:
		numbers(reflect.Indirect(v.Elem()), path, into)
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			numbers(v.Index(i), path, into)
			if v.Type().Elem() == reflect.TypeFor[uint64]() { // drops, lists: every place counts
				into[path+"/"+drop.Reason(i).String()] = float64(v.Index(i).Uint())
			}
		}
	}
}

func TestFakeAddsUp(t *testing.T) {
	for i, w := range newFake().stats.Workers {
		if a := w.Account(); !a.Balances() || a.Dropped == 0 {
			t.Errorf("the fake's worker %d does not add up: %v", i, a)
		}
	}
}
