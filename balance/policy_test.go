package balance

import (
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
)

func mustNew(t testing.TB, name string, seed uint64) Policy {
	t.Helper()
	p, err := New(name, Options{Seed: seed})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestNew(t *testing.T) {
	for _, name := range Names() {
		mustNew(t, name, 1)
	}
	_, err := New("conga2", Options{})
	if err == nil {
		t.Fatal("New of an unknown scheme succeeded")
	}
	for _, want := range append(Names(), `"conga2"`) {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not mention %s", err, want)
		}
	}
}

// TestGap holds Gap to what schemes do: a flowlet lives through a pause of that
// length, and ends in a longer one.
func TestGap(t *testing.T) {
	params := congestion.Lab()
	for _, name := range Names() {
		p := mustNew(t, name, 1)
		scheme := Find(name)
		if _, keeps := p.(FlowletPolicy); !keeps {
			continue
		}
		if scheme.Gap == nil {
			t.Errorf("scheme %s has a flowlet table and no gap", name)
			continue
		}
		gap, _ := scheme.Gap(&params)
		p, err := New(name, Options{Seed: 1, Congestion: params})
		if err != nil {
			t.Fatal(err)
		}
		v, now := newView(firstPaths(2)), mono.Time(time.Hour)
		started := func(pause time.Duration) uint64 {
			now = now.Add(pause)
			before := p.Stats().Decisions
			p.Choose(now, v, make([]Packet, 1))
			return p.Stats().Decisions - before
		}
		started(0)
		if n := started(gap); n != 0 {
			t.Errorf("scheme %s starts a flowlet after a pause of %v", name, gap)
		}
		if n := started(gap + 1); n != 1 {
			t.Errorf("scheme %s starts no flowlet after a pause above %v", name, gap)
		}
	}
}

// newView returns what a leaf with idle uplinks sees.
func newView(paths ...Paths) *View {
	return &View{Paths: paths, Local: new([MaxPaths]uint8), Queue: new([MaxPaths]uint32)}
}

// firstPaths returns n paths, over uplinks 0 to n-1.
func firstPaths(n int) Paths {
	var u [MaxPaths]uint8
	for i := range u {
		u[i] = uint8(i)
	}
	return MakePaths(u[:n]...)
}

// exactOf makes SYNs of packets, of connections that their hashes stand for. Schemes that
// go by ports find a reserved one.
func exactOf(pkts []Packet) []Exact {
	x := make([]Exact, len(pkts))
	for i := range pkts {
		x[i] = Exact{Key: exactKey(pkts[i].Hash), TCPFlags: overlay.TCPSyn}
	}
	return x
}

func exactKey(hash uint32) overlay.FlowKey {
	k := overlay.FlowKey{Version: 4, Proto: overlay.ProtoTCP, SrcPort: 62000, DstPort: 80}
	binary.BigEndian.PutUint32(k.Src[:], hash)
	return k
}

// allPaths has leaves with 0 to MaxPaths paths, at their own index.
func allPaths() *View {
	v := newView()
	for n := range MaxPaths + 1 {
		v.Paths = append(v.Paths, firstPaths(n))
	}
	return v
}

// TestUniform holds the share of every path of 100 000 random flows within 5 %
// of an equal one, for any number of paths; with 16 paths that is four
// standard deviations, and the generator's seed is fixed.
func TestUniform(t *testing.T) {
	const flows = 100_000
	paths := allPaths()
	rng := rand.New(rand.NewPCG(1, 2))
	for n := 1; n <= MaxPaths; n++ {
		p := mustNew(t, "ecmp", 42)
		pkts := make([]Packet, flows)
		for i := range pkts {
			pkts[i] = Packet{Hash: rng.Uint32(), Leaf: uint16(n), Len: 1500}
		}
		p.Choose(0, paths, pkts)
		var count [MaxPaths]int
		for i := range pkts {
			if int(pkts[i].Path) >= n {
				t.Fatalf("path %d of %d", pkts[i].Path, n)
			}
			count[pkts[i].Path]++
		}
		want := flows / n
		for i, c := range count[:n] {
			if c < want*95/100 || c > want*105/100 {
				t.Errorf("%d paths: path %d has %d flows of %d, want about %d", n, i, c, flows, want)
			}
		}
	}
}

// Flow hashes that differ in few bits (a weak hash, consecutive ports) must be
// spread as well.
func TestUniformOverSimilarHashes(t *testing.T) {
	paths := allPaths()
	for _, shift := range []uint{0, 8, 20} {
		var count [4]int
		pkts := make([]Packet, 4096)
		for i := range pkts {
			pkts[i] = Packet{Hash: uint32(i) << shift, Leaf: 4}
		}
		mustNew(t, "ecmp", 7).Choose(0, paths, pkts)
		for i := range pkts {
			count[pkts[i].Path]++
		}
		for i, c := range count {
			if c < 900 || c > 1150 {
				t.Errorf("hashes i<<%d: path %d has %d of 4096", shift, i, c)
			}
		}
	}
}

func TestSameFlowSamePath(t *testing.T) {
	paths := allPaths()
	p, again := mustNew(t, "ecmp", 3), mustNew(t, "ecmp", 3)
	rng := rand.New(rand.NewPCG(5, 6))
	for range 1000 {
		hash, leaf := rng.Uint32(), uint16(1+rng.IntN(MaxPaths))
		a := []Packet{{Hash: hash, Leaf: leaf, Len: 64}}
		b := []Packet{{Hash: rng.Uint32(), Leaf: 2}, {Hash: hash, Leaf: leaf, Len: 1500, Path: 9}}
		p.Choose(1, paths, a)
		p.Choose(1e9, paths, b)
		if a[0].Path != b[1].Path {
			t.Fatalf("flow %#x went to path %d, then to %d", hash, a[0].Path, b[1].Path)
		}
		c := []Packet{{Hash: hash, Leaf: leaf}}
		again.Choose(0, paths, c)
		if a[0].Path != c[0].Path {
			t.Fatalf("flow %#x: same seed, other path", hash)
		}
	}
}

// Two tiers with different seeds must decide independently: of the flows that
// the first sends to its path 0, the second uses all of its paths.
func TestSeedsDoNotPolarise(t *testing.T) {
	paths := allPaths()
	first, second := mustNew(t, "ecmp", 1), mustNew(t, "ecmp", 2)
	pkts := make([]Packet, 20_000)
	for i := range pkts {
		pkts[i] = Packet{Hash: uint32(i) * 2654435761, Leaf: 4}
	}
	first.Choose(0, paths, pkts)
	var same []Packet
	for _, p := range pkts {
		if p.Path == 0 {
			same = append(same, p)
		}
	}
	second.Choose(0, paths, same)
	var count [4]int
	for _, p := range same {
		count[p.Path]++
	}
	for i, c := range count {
		if c < len(same)/5 || c > len(same)*3/10 {
			t.Errorf("second tier's path %d has %d of %d flows", i, c, len(same))
		}
	}
}

func TestNoPaths(t *testing.T) {
	pkts := []Packet{{Hash: 1, Leaf: 0}, {Hash: 2, Leaf: 1}}
	paths := newView(firstPaths(0), firstPaths(1))
	mustNew(t, "ecmp", 1).Choose(0, paths, pkts)
	if pkts[1].Path != 0 {
		t.Errorf("path %d of one", pkts[1].Path)
	}
}

func TestChooseDoesNotAllocate(t *testing.T) {
	v := allPaths()
	v.Remote = congestion.NewToLeaf(len(v.Paths), params())
	pkts := make([]Packet, 64)
	for i := range pkts {
		pkts[i] = Packet{Hash: uint32(i) * 2654435761, Leaf: uint16(i % len(v.Paths)), Len: 1500}
	}
	for _, name := range Names() {
		p := mustNew(t, name, 1)
		now := mono.Time(0)
		for _, step := range []mono.Time{100, mono.Time(time.Second)} { // flowlets under way, and new ones
			if n := testing.AllocsPerRun(100, func() {
				now += step
				p.Choose(now, v, pkts)
			}); n != 0 {
				t.Errorf("%s: %v allocations a burst, want none", name, n)
			}
		}
	}
}

// benchView is what a leaf with four uplinks and sixty-four peers sees.
func benchView() *View {
	v := newView()
	v.Remote = congestion.NewToLeaf(64, params())
	for leaf := range uint16(64) {
		v.Paths = append(v.Paths, firstPaths(4))
		for u := range uint8(4) {
			v.Remote.Update(leaf, u, uint8(leaf+uint16(u))&7, 0)
		}
	}
	return v
}

// BenchmarkChoose is the cost of a burst of packets of flows under way (a
// thousand of them), and, where the scheme knows flowlets, of one in which each
// packet starts a new one.
func BenchmarkChoose(b *testing.B) {
	v := benchView()
	rng := rand.New(rand.NewPCG(1, 2))
	bursts := make([][]Packet, 16)
	for i := range bursts {
		bursts[i] = make([]Packet, 64)
		for j := range bursts[i] {
			bursts[i][j] = Packet{Hash: rng.Uint32(), Leaf: uint16(rng.IntN(64)), Len: 1500}
		}
	}
	bench := func(name, what string, step mono.Time) {
		p := mustNew(b, name, 1)
		b.Run(name+"/"+what, func(b *testing.B) {
			now := mono.Time(0)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				now += step
				p.Choose(now, v, bursts[i%len(bursts)])
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/64, "ns/pkt")
		})
	}
	for _, name := range Names() {
		bench(name, "steady", 100)
		if _, ok := mustNew(b, name, 1).(FlowletPolicy); ok {
			bench(name, "new", mono.Time(time.Second))
		}
	}
}
