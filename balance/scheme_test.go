package balance

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/internal/units"
)

// promises is what a scheme's users may rely on; the conformance test holds
// each scheme to its own.
type promises struct {
	name string
	// perFlow: a flow's packets take one path as long as the paths stay,
	// whatever the pauses.
	perFlow bool
	// byHash: a new flow's path does not depend on the worker.
	byHash bool
	// perFlowlet: they do as long as none of its pauses exceeds gap.
	perFlowlet bool
	gap        time.Duration
	// uniform: over idle links many flows are spread evenly.
	uniform bool
	// weighted: over idle links many flows are spread by the weights of the paths.
	weighted bool
	// followsLocal, followsRemote, followsQueue: new flows avoid an uplink with
	// a worse local metric, remote metric or queue.
	followsLocal, followsRemote, followsQueue bool
	// unforetold: the scheme cannot say which path a packet will take.
	unforetold bool
	// looks is how often links are looked at in a vector.
	looks looks
}

// looks counts them in vectors of new flows, of flows under way, of both, of flows
// that have paused, and of flows without a path.
type looks struct{ fresh, followed, mixed, late, nowhere int }

// byFlowlet is once, when the first decision of a vector is due.
var byFlowlet = looks{fresh: 1, mixed: 1, late: 1}

var conformance = []promises{
	{name: "static", perFlow: true},
	{name: "ecmp", perFlow: true, uniform: true, weighted: true},
	{name: "spray", uniform: true, weighted: true, unforetold: true},
	{name: "local", perFlowlet: true, gap: 500 * time.Microsecond, uniform: true, followsLocal: true, looks: byFlowlet},
	{name: "letflow", perFlowlet: true, gap: 500 * time.Microsecond, uniform: true, weighted: true},
	{name: "drill", uniform: true, followsQueue: true, unforetold: true, looks: looks{1, 1, 1, 1, 1}},
	{name: "conga", perFlowlet: true, gap: 500 * time.Microsecond, uniform: true, followsLocal: true, followsRemote: true, looks: byFlowlet},
	{name: "conga-flow", perFlowlet: true, gap: 13 * time.Millisecond, uniform: true, followsLocal: true, followsRemote: true, looks: byFlowlet},
	{name: "conweave", uniform: true},
	{name: "presto", uniform: true, weighted: true},
	{name: "plb", byHash: true, uniform: true, weighted: true, looks: looks{late: 1}},
	{name: "flowcut", perFlowlet: true, gap: 13 * time.Millisecond, uniform: true, followsLocal: true, followsRemote: true, looks: byFlowlet},
	{name: "tcp-path", perFlow: true, uniform: true, weighted: true},
	{name: "tfe", perFlow: true, uniform: true, weighted: true},
	{name: "hula", perFlowlet: true, byHash: true, gap: 500 * time.Microsecond, uniform: true, weighted: true},
	{name: "static-dst", perFlow: true},
	{name: "caar", perFlowlet: true, byHash: true, gap: time.Second, uniform: true, followsQueue: true, looks: looks{1, 1, 1, 1, 1}},
	{name: "caar-flow", perFlowlet: true, byHash: true, gap: time.Second, uniform: true, followsQueue: true, looks: looks{1, 1, 1, 1, 1}},
	{name: "reed", uniform: true, followsRemote: true, followsQueue: true, looks: looks{1, 1, 1, 1, 0}},
	{name: "conweave-informed", uniform: true, followsRemote: true, followsQueue: true, looks: looks{1, 1, 1, 1, 0}},
}

func TestEverySchemeIsHeldToSomething(t *testing.T) {
	var names []string
	for _, p := range conformance {
		names = append(names, p.name)
	}
	slices.Sort(names)
	if all := slices.Sorted(slices.Values(Names())); !slices.Equal(names, all) {
		t.Errorf("schemes %v, conformance table has %v", all, names)
	}
}

// promisesOf returns the row of a scheme.
func promisesOf(t *testing.T, name string) *promises {
	t.Helper()
	for i := range conformance {
		if conformance[i].name == name {
			return &conformance[i]
		}
	}
	t.Fatalf("scheme %s has no row in the conformance table", name)
	return nil
}

// keysOf returns a scheme's keys with changes; nil if it has none.
func keysOf(name string, change func(Params)) Params {
	s := Find(name)
	if s.Keys == nil {
		return nil
	}
	k := s.Keys()
	change(k)
	return k
}

// forSchemes runs f for each scheme and number of uplinks: none, one, some, all.
func forSchemes(t *testing.T, f func(t *testing.T, s *promises, n int)) {
	for i := range conformance {
		s := &conformance[i]
		for _, n := range []int{0, 1, 2, 5, 16} {
			t.Run(fmt.Sprintf("%s/%d", s.name, n), func(t *testing.T) { f(t, s, n) })
		}
	}
}

// flows returns one packet of each of n flows to leaf 0.
func flows(n int, rng *rand.Rand) []Packet {
	pkts := make([]Packet, n)
	for i := range pkts {
		pkts[i] = Packet{Hash: rng.Uint32(), Len: 1500}
	}
	return pkts
}

// A path is always one that there is, and without paths nothing happens; also
// while the clock jumps about.
func TestPathsExist(t *testing.T) {
	forSchemes(t, func(t *testing.T, s *promises, n int) {
		rng := rand.New(rand.NewPCG(1, uint64(n)))
		p := mustNew(t, s.name, 1)
		v := newView(firstPaths(n), firstPaths(0))
		v.Remote = congestion.NewToLeaf(2, params())
		now := mono.Time(0)
		for range 200 {
			pkts := flows(64, rng)
			for i := range pkts {
				pkts[i].Leaf = uint16(rng.IntN(2))
				v.Local[rng.IntN(MaxPaths)] = uint8(rng.IntN(8))
				v.Queue[rng.IntN(MaxPaths)] = rng.Uint32N(100_000)
				v.Remote.Update(0, uint8(rng.IntN(MaxPaths)), uint8(rng.IntN(8)), now)
			}
			p.Choose(now, v, pkts)
			for i := range pkts {
				if pkts[i].Leaf == 0 && n > 0 && int(pkts[i].Path) >= n {
					t.Fatalf("path %d of %d", pkts[i].Path, n)
				}
			}
			now += mono.Time(rng.Int64N(1_000_000))
			if rng.IntN(20) == 0 {
				now = mono.Time(rng.Uint64())
			}
		}
		st := p.Stats()
		if n == 0 && (st.Decisions != 0 || st.Flowlets != (congestion.FlowletStats{})) {
			t.Errorf("decisions without paths: %+v", st)
		}
		if n > 0 && st.Decisions == 0 {
			t.Error("no decision was counted")
		}
	})
}

// Uplinks may have any numbers, in any order, and two paths may share one.
func TestPathsAreNotUplinks(t *testing.T) {
	v := newView(MakePaths(9, 3, 15, 3))
	for _, s := range conformance {
		p := mustNew(t, s.name, 1)
		rng := rand.New(rand.NewPCG(1, 2))
		used := [4]int{}
		for i := range 100 {
			pkts := flows(64, rng)
			p.Choose(mono.Time(i), v, pkts)
			for _, pkt := range pkts {
				used[pkt.Path]++
			}
		}
		if s.uniform && (used[0] == 0 || used[1]+used[3] == 0 || used[2] == 0) {
			t.Errorf("%s: paths were used %v times", s.name, used)
		}
	}
}

func TestPacketsOfAFlowStayTogether(t *testing.T) {
	forSchemes(t, func(t *testing.T, s *promises, n int) {
		if n == 0 || !s.perFlow && !s.perFlowlet {
			return
		}
		rng := rand.New(rand.NewPCG(3, uint64(n)))
		p := mustNew(t, s.name, 1)
		v := newView(firstPaths(n))
		v.Remote = congestion.NewToLeaf(1, params())
		pkts := flows(64, rng)
		now := mono.Time(1)
		p.Choose(now, v, pkts)
		first := slices.Clone(pkts)
		for range 500 {
			pause := time.Hour
			if s.perFlowlet {
				pause = s.gap
			}
			now += mono.Time(rng.Int64N(int64(pause)))
			for u := range MaxPaths { // whatever happens to the links
				v.Local[u], v.Queue[u] = uint8(rng.IntN(8)), rng.Uint32N(1<<20)
				v.Remote.Update(0, uint8(u), uint8(rng.IntN(8)), now)
			}
			p.Choose(now, v, pkts)
			for i := range pkts {
				if pkts[i].Path != first[i].Path {
					t.Fatalf("flow %d moved from path %d to %d at %v", i, first[i].Path, pkts[i].Path, now.Sub(0))
				}
			}
		}
	})
}

// Many flows over idle links: every path within 10 % of its share (with 16
// paths more than four standard deviations; fixed seeds).
func TestManyFlowsAreSpread(t *testing.T) {
	const count = 64_000
	forSchemes(t, func(t *testing.T, s *promises, n int) {
		if n == 0 || !s.uniform {
			return
		}
		rng := rand.New(rand.NewPCG(5, uint64(n)))
		p, err := New(s.name, Options{Seed: 1, Keys: keysOf(s.name, func(keys Params) {
			if k, ok := keys.(*FlowletKeys); ok {
				k.Flowlets = 1 << 22
			}
		})})
		if err != nil {
			t.Fatal(err)
		}
		v := newView(firstPaths(n))
		var used [MaxPaths]int
		for range count / 64 {
			pkts := flows(64, rng)
			p.Choose(0, v, pkts)
			for _, pkt := range pkts {
				used[pkt.Path]++
			}
		}
		for path, got := range used[:n] {
			if want := count / n; got < want*90/100 || got > want*110/100 {
				t.Errorf("path %d of %d has %d flows of %d", path, n, got, count)
			}
		}
	})
}

// An uplink disappears while flowlets sit on it: every flow that was there is
// moved with its next packet; with perFlowlet, no other is.
func TestUplinkLossMovesFlows(t *testing.T) {
	for _, s := range conformance {
		for _, n := range []int{2, 5, 16} {
			t.Run(fmt.Sprintf("%s/%d", s.name, n), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(7, uint64(n)))
				p := mustNew(t, s.name, 1)
				v := newView(firstPaths(n))
				pkts := flows(2000, rng)
				for i := range pkts { // an entry of the flowlet table each
					pkts[i].Hash = pkts[i].Hash<<16 | uint32(i)
				}
				var before []uint8 // uplink by flow
				p.Choose(0, v, pkts)
				for _, pkt := range pkts {
					before = append(before, v.Paths[0].Uplink[pkt.Path])
				}
				lost := before[0]
				var rest []uint8
				for u := range uint8(n) {
					if u != lost {
						rest = append(rest, u)
					}
				}
				v.Paths[0] = MakePaths(rest...)
				p.Choose(1000, v, pkts)
				moved := 0
				for i, pkt := range pkts {
					if int(pkt.Path) >= len(rest) {
						t.Fatalf("path %d of %d", pkt.Path, len(rest))
					}
					switch now := rest[pkt.Path]; {
					case before[i] == lost:
						moved++
					case s.perFlowlet && now != before[i]:
						t.Errorf("flow %d moved from uplink %d to %d, which were not lost", i, before[i], now)
					}
				}
				if fp, ok := p.(FlowletPolicy); ok {
					st := fp.Stats().Flowlets
					if st.Moved != uint64(moved) || st.Expired != 0 {
						t.Errorf("%d flowlets sat on the lost uplink; counted %+v", moved, st)
					}
				}
				// The last one goes as well, and comes back.
				v.Paths[0] = MakePaths()
				p.Choose(2000, v, pkts)
				v.Paths[0] = MakePaths(lost)
				p.Choose(3000, v, pkts)
				for i, pkt := range pkts {
					if pkt.Path != 0 {
						t.Fatalf("flow %d has path %d of one", i, pkt.Path)
					}
				}
			})
		}
	}
}

// New flows go where a scheme says that it looks, and only there.
func TestSchemesLookWhereTheySay(t *testing.T) {
	worse := map[string]func(*View){
		"local":  func(v *View) { v.Local[1] = 5 },
		"remote": func(v *View) { v.Remote.Update(0, 1, 5, 0) },
		"queue":  func(v *View) { v.Queue[1] = 1 << 20 },
	}
	for _, s := range conformance {
		if !s.uniform {
			continue
		}
		for what, makeWorse := range worse {
			avoids := map[string]bool{"local": s.followsLocal, "remote": s.followsRemote, "queue": s.followsQueue}[what]
			v := newView(firstPaths(2), firstPaths(2))
			v.Remote = congestion.NewToLeaf(2, params())
			makeWorse(v)
			pkts := flows(2000, rand.New(rand.NewPCG(1, 1)))
			p := mustNew(t, s.name, 1)
			for i := 0; i < len(pkts); i += 10 { // a longer vector would be a queue itself
				p.Choose(0, v, pkts[i:i+10])
			}
			on := 0
			for _, pkt := range pkts {
				on += int(pkt.Path)
			}
			switch {
			case s.followsQueue && avoids:
				// Two samples are one and the same in half of all draws, and the
				// memory helps with those: only a small part goes wrong.
				if on > len(pkts)/10 {
					t.Errorf("%s: %d of %d flows on the uplink with the longer queue", s.name, on, len(pkts))
				}
			case avoids:
				if on != 0 {
					t.Errorf("%s: %d of %d flows on the uplink with the worse %s metric", s.name, on, len(pkts), what)
				}
			default:
				if on < 900 || on > 1100 {
					t.Errorf("%s looks at %s: %d of %d flows on uplink 1", s.name, what, on, len(pkts))
				}
			}
		}
	}
}

// The same calls give the same paths, and another worker or seed others where
// chance decides.
func TestReproducible(t *testing.T) {
	run := func(name string, o Options) (paths []uint8) {
		p, err := New(name, o)
		if err != nil {
			t.Fatal(err)
		}
		v := newView(firstPaths(8))
		rng := rand.New(rand.NewPCG(1, 1))
		pkts := flows(500, rng)
		for i := range 5 {
			p.Choose(mono.Time(i)*1e9, v, pkts)
			for _, pkt := range pkts {
				paths = append(paths, pkt.Path)
			}
		}
		return paths
	}
	for _, s := range conformance {
		a := run(s.name, Options{Seed: 1})
		if !slices.Equal(a, run(s.name, Options{Seed: 1})) {
			t.Errorf("%s: two runs differ", s.name)
		}
		if s.uniform == slices.Equal(a, run(s.name, Options{Seed: 2})) {
			t.Errorf("%s: the seed makes no difference, or should not", s.name)
		}
		byHash := s.perFlow || s.byHash
		if byHash != slices.Equal(a, run(s.name, Options{Seed: 1, Worker: 1})) {
			t.Errorf("%s: a flow's path by hash must not depend on the worker, a random one must", s.name)
		}
	}
}

// What makes no sense is refused, with the key that it stands under.
func TestOptionsAreChecked(t *testing.T) {
	bad := congestion.Datacenter()
	bad.Tau = -1
	for _, tt := range []struct {
		scheme, key string
		o           Options
	}{
		{"conga", "tau", Options{Congestion: bad}},
		{"conga", "flowlets", Options{Keys: &FlowletKeys{}}},
		{"local", "flowlets", Options{Keys: &FlowletKeys{32}}},
		{"letflow", "flowlets", Options{Keys: &FlowletKeys{100}}},
		{"conga-flow", "flowlets", Options{Keys: &FlowletKeys{1 << 25}}},
		{"drill", "drill.samples", Options{Keys: &DRILLKeys{DRILL{17, 1}}}},
		{"drill", "drill.samples", Options{Keys: &DRILLKeys{DRILL{0, 1}}}},
		{"drill", "drill.memory", Options{Keys: &DRILLKeys{DRILL{2, 17}}}},
		{"drill", "drill.memory", Options{Keys: &DRILLKeys{DRILL{2, -1}}}},
		{"flowcut", "flowcuts", Options{Keys: &FlowcutKeys{2}}},
		{"flowcut", "flowcuts", Options{Keys: &FlowcutKeys{100}}},
		{"flowcut", "flowcuts", Options{Keys: &FlowcutKeys{1 << 25}}},
		{"tcp-path", "fallback", Options{Keys: &TCPPathKeys{"stp"}}},
		{"tcp-path", "lock", Options{Section: &TCPPathParams{Lock: 1}}},
		{"tcp-path", "age", Options{Section: &TCPPathParams{Lock: time.Second, Age: 1}}},
		{"tcp-path", "flows", Options{Section: &TCPPathParams{time.Second, time.Second, 100, 0, TCPPathDirected{1}}}},
		{"tcp-path", "selectors", Options{Section: &TCPPathParams{time.Second, time.Second, 64, 0, TCPPathDirected{17}}}},
		{"tfe", "elephant_ports", Options{Keys: &TFEKeys{TCPPathKeys: TCPPathKeys{"ecmp"}}}},
		{"tfe", "fallback", Options{Keys: &TFEKeys{ElephantPorts: units.Ports{First: 1, Last: 1}}}},
		{"hula", "probe", Options{Section: &HULAParams{Probe: 100, Misses: 5}}},
		{"hula", "misses", Options{Section: &HULAParams{Probe: time.Millisecond, Misses: 256}}},
		{"hula", "spacing", Options{Section: &HULAParams{Probe: time.Millisecond, Misses: 5, Spacing: time.Second}}},
		{"static", "weights", Options{Keys: &StaticKeys{make([]uint32, 17)}}},
		{"static", "weights", Options{Keys: &StaticKeys{[]uint32{0, 0}}}},
		{"static", "weights", Options{Keys: &StaticKeys{[]uint32{1 << 31, 1 << 31}}}},
	} {
		p, err := New(tt.scheme, tt.o)
		var field *FieldError
		if err == nil || !strings.Contains(err.Error(), "scheme "+tt.scheme) || errors.As(err, &field) != (tt.key != "") || tt.key != "" && field.Key != tt.key {
			t.Errorf("%s, %q: made %v of %+v: %v", tt.scheme, tt.key, p, tt.o, err)
		}
	}
}

// CONGA without a table of remote metrics is CONGA with an empty one, also
// right after the table was taken away.
func TestRemoteMayBeMissing(t *testing.T) {
	p := mustNew(t, "conga", 1)
	v := newView(firstPaths(2))
	v.Remote = congestion.NewToLeaf(1, params())
	v.Remote.Update(0, 0, 7, 0)
	pkts := []Packet{{Hash: 1}}
	if p.Choose(0, v, pkts); pkts[0].Path != 1 {
		t.Fatalf("path %d, want 1", pkts[0].Path)
	}
	v.Remote = nil
	v.Local[1] = 1
	pkts[0].Hash = 2
	if p.Choose(0, v, pkts); pkts[0].Path != 0 {
		t.Errorf("path %d, want 0: the remote metric of uplink 0 is gone", pkts[0].Path)
	}
}

func TestStaticWeights(t *testing.T) {
	for _, tt := range []struct {
		name    string
		weights []uint32
		uplinks []uint8
		want    []int // flows of 12 000 a path
	}{
		{"no weights: the first path", nil, []uint8{4, 1, 2}, []int{12000, 0, 0}},
		{"by uplink", []uint32{1: 1, 2: 2, 3: 9}, []uint8{3, 2, 1}, []int{9000, 2000, 1000}},
		{"an uplink is gone", []uint32{1: 1, 2: 2, 3: 9}, []uint8{2, 1}, []int{8000, 4000}},
		{"those with weight are gone", []uint32{3: 9}, []uint8{2, 1}, []int{12000, 0}},
		{"largest weights", []uint32{1<<32/3 - 1, 1<<32/3 - 1, 1<<32/3 - 1}, []uint8{0, 1, 2}, []int{4000, 4000, 4000}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, err := New("static", Options{Seed: 1, Keys: &StaticKeys{tt.weights}})
			if err != nil {
				t.Fatal(err)
			}
			pkts := flows(12_000, rand.New(rand.NewPCG(1, 1)))
			p.Choose(0, newView(MakePaths(tt.uplinks...)), pkts)
			got := make([]int, len(tt.uplinks))
			for _, pkt := range pkts {
				got[pkt.Path]++
			}
			for i := range got {
				if diff := got[i] - tt.want[i]; diff < -250 || diff > 250 || tt.want[i] == 0 && got[i] != 0 {
					t.Errorf("flows %v, want %v", got, tt.want)
				}
			}
		})
	}
}

// DRILL's memory is what keeps it on short queues that chance would miss: of
// sixteen queues one is empty, and once found it is used until it is as long as
// the others.
func TestDRILLRemembers(t *testing.T) {
	hits := func(memory int) (n int) {
		p, err := New("drill", Options{Seed: 1, Keys: &DRILLKeys{DRILL{2, memory}}})
		if err != nil {
			t.Fatal(err)
		}
		v := newView(firstPaths(16))
		for u := range v.Queue {
			v.Queue[u] = 1 << 20
		}
		v.Queue[6] = 0
		for range 500 { // queues as they are: one packet a vector
			pkts := []Packet{{Len: 100}}
			p.Choose(0, v, pkts)
			if pkts[0].Path == 6 {
				n++
			}
		}
		return n
	}
	if with, without := hits(1), hits(0); with < 400 || without > 150 {
		t.Errorf("the empty queue was used %d times of 500 with memory, %d without", with, without)
	}
}

// What DRILL remembers is what a sort of the candidates would put first.
func TestDRILLInsertKeepsTheBest(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		var queue [MaxPaths]uint32
		for u := range queue {
			queue[u] = rng.Uint32N(6)
		}
		keep, count := 1+rng.IntN(MaxPaths), 1+rng.IntN(MaxPaths)
		var best [MaxPaths]uint8
		n := 0
		var naive []uint8 // sorted; of equal ones, the first to come is first
		for _, u := range rng.Perm(MaxPaths)[:count] {
			n = insert(&best, n, keep, uint8(u), &queue)
			naive = append(naive, uint8(u))
		}
		slices.SortStableFunc(naive, func(a, b uint8) int { return int(queue[a]) - int(queue[b]) })
		if want := naive[:min(keep, count)]; !slices.Equal(best[:n], want) {
			t.Fatalf("best %d of %d: %v, want %v (queues %v)", keep, count, best[:n], want, queue)
		}
	}
}

// A burst must not go to one queue because that was the shortest before it.
func TestDRILLCountsItsOwnBurst(t *testing.T) {
	p := mustNew(t, "drill", 1)
	v := newView(firstPaths(4))
	v.Queue[1], v.Queue[2], v.Queue[3] = 6000, 6000, 6000
	pkts := flows(64, rand.New(rand.NewPCG(1, 1)))
	p.Choose(0, v, pkts)
	queue := *v.Queue
	for _, pkt := range pkts {
		queue[pkt.Path] += uint32(pkt.Len)
	}
	low, high := slices.Min(queue[:4]), slices.Max(queue[:4])
	if high-low > 6*1500 {
		t.Errorf("queues after the burst %v", queue[:4])
	}
}

func params() *congestion.Params {
	p := congestion.Datacenter()
	return &p
}

// Weights stand in the order of the configuration, and uplinks keep their numbers when
// others come and go.
func TestStaticWeightsForUplinks(t *testing.T) {
	k := &StaticKeys{[]uint32{5, 7, 9}}
	got := k.ForUplinks([]uint8{3, 0, 15}).(*StaticKeys).Weights
	for i, want := range map[int]uint32{3: 5, 0: 7, 15: 9, 1: 0} {
		if got[i] != want {
			t.Errorf("uplink %d has weight %d, want %d", i, got[i], want)
		}
	}
	if k.Weights[0] != 5 || len(k.Weights) != 3 {
		t.Errorf("the configuration was changed: %v", k.Weights)
	}
	if none := (&StaticKeys{}).ForUplinks([]uint8{3}).(*StaticKeys); len(none.Weights) != 0 {
		t.Errorf("no weights became %v", none.Weights)
	}
}
