package balance

import (
	"math/bits"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/internal/mono"
)

// TestExplainForetellsChoose holds every scheme to what it says of itself: in a
// random history, the next choice is the path that Explain named, or one of the
// uplinks; and a twin that is never asked makes the same choices.
func TestExplainForetellsChoose(t *testing.T) {
	params := congestion.Datacenter()
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			rng := rand.New(rand.NewPCG(seed, 0))
			o := Options{Seed: seed, Keys: keysOf(name, func(keys Params) {
				switch k := keys.(type) {
				case *FlowletKeys:
					k.Flowlets = 64
				case *StaticKeys:
					k.Weights = []uint32{3, 1, 2}
				}
			})}
			switch section := Find(name).Section; section {
			case prestoSection: // so that flowcells fill, and the table does
				p := section.New(Datacenter).(*PrestoParams)
				p.Cell, p.Flows = 3000, 64
				o.Section = p
			case plbSection: // so that flows move
				p := section.New(Datacenter).(*PLBParams)
				p.Threshold, p.IdleRounds, p.ForcedRounds, p.Flows = 0.2, 1, 2, 64
				o.Section = p
			}
			asked, err := New(name, o)
			if err != nil {
				t.Fatal(err)
			}
			twin, err := New(name, o)
			if err != nil {
				t.Fatal(err)
			}
			var local [MaxPaths]uint8
			var queue [MaxPaths]uint32
			remote := congestion.NewToLeaf(3, &params)
			v := &View{Local: &local, Queue: &queue, Remote: remote}
			v.Paths = []Paths{MakePaths(0, 1, 2), MakePaths(2, 1), MakePaths(1)}
			now, certain := mono.Time(time.Second), 0
			for range 5000 {
				now = now.Add(time.Duration(rng.IntN(int(params.FlowletGap))))
				u := rng.IntN(3)
				local[u], queue[u] = uint8(rng.IntN(3)), rng.Uint32N(9000)
				remote.Update(uint16(rng.IntN(3)), uint8(rng.IntN(3)), uint8(rng.IntN(3)), now)
				p := Packet{Hash: rng.Uint32N(64), Leaf: uint16(rng.IntN(3)), Len: 1000}
				x := Explain(asked, now, v, &p)
				a, b := []Packet{p}, []Packet{p}
				asked.Choose(now, v, a)
				twin.Choose(now, v, b)
				if a[0].Path != b[0].Path {
					t.Fatalf("packet %+v: path %d after being asked, %d otherwise", p, a[0].Path, b[0].Path)
				}
				took := v.Paths[p.Leaf].Uplink[a[0].Path]
				if x.Path >= 0 {
					certain++
					if x.Path != int(a[0].Path) {
						t.Fatalf("packet %+v took path %d, explained was %+v", p, a[0].Path, x)
					}
				} else if x.Fresh&(1<<took) == 0 {
					t.Fatalf("packet %+v took uplink %d, explained was %+v", p, took, x)
				}
				if x.Reason == "" {
					t.Fatal("no reason")
				}
			}
			if promisesOf(t, name).unforetold != (certain == 0) {
				t.Errorf("%d of 5000 choices were foretold", certain)
			}
		})
	}
}

func TestExplainWithoutPaths(t *testing.T) {
	for _, name := range Names() {
		p, err := New(name, Options{})
		if err != nil {
			t.Fatal(err)
		}
		v := &View{Paths: []Paths{MakePaths()}, Local: new([MaxPaths]uint8), Queue: new([MaxPaths]uint32)}
		if x := Explain(p, 0, v, &Packet{}); x.Path != -1 || x.Fresh != 0 || x.Reason == "" {
			t.Errorf("%s: %+v", name, x)
		}
	}
}

// CONGA says which uplinks are equally good, and by what they were compared.
func TestExplainCongaComparesLikePick(t *testing.T) {
	params := congestion.Datacenter()
	for _, metric := range []congestion.PathMetric{congestion.MaxMetric, congestion.SumMetric} {
		params.Decision.Metric = metric
		p, err := New("conga", Options{Congestion: params})
		if err != nil {
			t.Fatal(err)
		}
		remote := congestion.NewToLeaf(1, &params)
		remote.Update(0, 0, 3, 0)
		remote.Update(0, 1, 1, 0)
		local := [MaxPaths]uint8{2, 3, 3, 5}
		v := &View{Paths: []Paths{MakePaths(0, 1, 2, 3)}, Local: &local, Queue: new([MaxPaths]uint32), Remote: remote}
		x := Explain(p, 0, v, &Packet{Hash: 1})
		want, best := []int{3, 3, 3, 5}, 3
		if metric == congestion.SumMetric {
			want, best = []int{5, 4, 3, 5}, 1
		}
		for u, c := range want {
			if x.Combined[u] != c {
				t.Errorf("%v: uplink %d has combined metric %d, want %d", metric, u, x.Combined[u], c)
			}
		}
		if bits.OnesCount16(x.Fresh) != best || x.Combined[4] != -1 {
			t.Errorf("%v: %+v, want %d equally good", metric, x, best)
		}
	}
}

// A flow whose flowlet has ended keeps its uplink if none is better (§3.5), and
// is told so; a better one is certain, too.
func TestExplainCongaKeepsWhatIsAsGood(t *testing.T) {
	params := congestion.Datacenter()
	p, err := New("conga", Options{Congestion: params})
	if err != nil {
		t.Fatal(err)
	}
	var local [MaxPaths]uint8
	v := &View{Paths: []Paths{MakePaths(0, 1, 2, 3)}, Local: &local, Queue: new([MaxPaths]uint32)}
	pkt := []Packet{{Hash: 1}}
	p.Choose(0, v, pkt)
	took := pkt[0].Path
	later := mono.Time(10 * params.FlowletGap)
	if x := Explain(p, later, v, &pkt[0]); x.Path != int(took) || x.Fresh != 1<<took {
		t.Errorf("was on path %d, all are alike: %+v", took, x)
	}
	local = [MaxPaths]uint8{3, 3, 3, 3}
	better := (took + 1) % 4
	local[better] = 2
	if x := Explain(p, later, v, &pkt[0]); x.Path != int(better) || x.Fresh != 1<<better {
		t.Errorf("path %d is better: %+v", better, x)
	}
}
