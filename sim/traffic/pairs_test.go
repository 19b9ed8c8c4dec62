package traffic

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/loomfabric/loom/config/fabric"
	"github.com/loomfabric/loom/internal/workload"
	"github.com/loomfabric/loom/sim/network"
)

// must returns v, which could be made.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// racksOf returns the racks of hosts that fill racks of so many in turn.
func racksOf(racks, each int) []int {
	rack := make([]int, racks*each)
	for h := range rack {
		rack[h] = h / each
	}
	return rack
}

// hosts returns the hosts from first to last.
func hosts(first, last network.HostID) (h []network.HostID) {
	for ; first <= last; first++ {
		h = append(h, first)
	}
	return h
}

// anyPair returns all pairs of different hosts.
func anyPair(n int) *Selection {
	s := crossing(make([]int, n))
	s.Any = true
	return s
}

// crossing returns all pairs of hosts in different racks.
func crossing(rack []int) *Selection {
	all := hosts(0, network.HostID(len(rack)-1))
	return &Selection{From: all, To: all, Rack: rack}
}

// limited is a source that ends after so many flows.
type limited struct {
	Source
	left int
}

func (l *limited) Next() (Flow, bool) {
	if l.left--; l.left < 0 {
		return Flow{}, false
	}
	return l.Source.Next()
}

// collect returns the flows of a source.
func collect(s Source) (flows []Flow) {
	for f, ok := s.Next(); ok; f, ok = s.Next() {
		flows = append(flows, f)
	}
	return flows
}

// TestSelection: pairs are drawn as a naive model of the rules says, and with its
// probabilities.
func TestSelection(t *testing.T) {
	r := workload.NewRand(1, 1)
	for range 40 {
		n := 4 + r.IntN(12)
		s := &Selection{Any: r.IntN(2) == 0}
		for h := range n {
			s.Rack = append(s.Rack, h*3/n)
			s.VNI = append(s.VNI, uint32(h%2))
			if r.IntN(3) > 0 {
				s.From = append(s.From, network.HostID(h))
			}
			if r.IntN(3) > 0 {
				s.To = append(s.To, network.HostID(h))
			}
		}
		if r.IntN(2) == 0 {
			s.VNI = nil
		}
		want, ok := model(s)
		if err := s.Validate(); (err == nil) != ok {
			t.Fatalf("%+v: %v", s, err)
		}
		if !ok {
			continue
		}
		sum := 0.
		s.each(func(p Pair, share float64) {
			sum += share
			if math.Abs(want[p]-share) > 1e-12 {
				t.Errorf("%+v: pair %v has share %g, want %g", s, p, share, want[p])
			}
		})
		if math.Abs(sum-1) > 1e-9 {
			t.Errorf("%+v: shares add up to %g", s, sum)
		}
		const draws = 20_000
		count := map[Pair]int{}
		for range draws {
			count[s.pick(r)]++
		}
		for p, drawn := range count {
			share := want[p]
			if math.Abs(float64(drawn)-draws*share) > 5*math.Sqrt(draws*share)+1 {
				t.Errorf("%+v: pair %v was drawn %d times of %d, its share is %g", s, p, drawn, draws, share)
			}
		}
	}
}

// model computes the probabilities of pairs; ok is false if a sender has no
// partner.
func model(s *Selection) (shares map[Pair]float64, ok bool) {
	shares = map[Pair]float64{}
	for _, a := range s.From {
		var partners []network.HostID
		for _, b := range s.To {
			if a != b && (s.Any || s.Rack[a] != s.Rack[b]) && (s.VNI == nil || s.VNI[a] == s.VNI[b]) {
				partners = append(partners, b)
			}
		}
		if len(partners) == 0 {
			return nil, false
		}
		for _, b := range partners {
			shares[Pair{Src: a, Dst: b}] += 1 / float64(len(s.From)*len(partners))
		}
	}
	return shares, len(s.From) > 0 && len(s.To) > 0
}

// TestPermutation: each host sends to one, receives from one, and never from
// itself; seeds differ.
func TestPermutation(t *testing.T) {
	seen := make(map[string]bool)
	for seed := range uint64(50) {
		l := must(Permutation(5, Stream{Seed: seed}))
		var to []byte
		in := make([]bool, 5)
		for i, p := range l {
			if int(p.Src) != i || p.Dst == p.Src || in[p.Dst] {
				t.Fatalf("seed %d: %v", seed, l)
			}
			in[p.Dst] = true
			to = append(to, byte(p.Dst))
		}
		seen[string(to)] = true
	}
	if len(seen) < 25 { // of 44 derangements
		t.Errorf("50 seeds gave only %d permutations", len(seen))
	}
}

func TestPatternsRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		make func() error
		want string
	}{
		{"stride of all", func() error { _, err := Stride(8, 16); return err }, "send to themselves"},
		{"stride of one host", func() error { _, err := Stride(1, 1); return err }, "send to themselves"},
		{"permutation of one", func() error { _, err := Permutation(1, Stream{}); return err }, "needs 2"},
		{"shuffle of one", func() error { _, err := Shuffle(hosts(1, 1), Stream{}); return err }, "1 hosts"},
		{"no pairs", func() error { _, err := NewBulk(Stream{}, nil, 1, 0, Flow{}); return err }, "list of pairs is empty"},
	} {
		if err := c.make(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
}

// TestStride holds the pairs against the definition.
func TestStride(t *testing.T) {
	l := must(Stride(4, 1))
	if want := ([]Pair{{0, 1}, {1, 2}, {2, 3}, {3, 0}}); !slices.Equal(l, want) {
		t.Errorf("stride 1 of 4: %v", l)
	}
}

// TestPairs: bulk and udp pair hosts as the lab pairs them.
func TestPairs(t *testing.T) {
	r := workload.NewRand(2, 1)
	for range 100 {
		topo := &fabric.Topology{}
		s := &Selection{}
		var from, to []int
		for h := range 3 + r.IntN(10) {
			vni := uint32(r.IntN(3))
			topo.Hosts = append(topo.Hosts, fabric.Host{Index: h, VNI: vni})
			s.VNI, s.Rack = append(s.VNI, vni), append(s.Rack, 0)
			if r.IntN(2) > 0 {
				from, s.From = append(from, h), append(s.From, network.HostID(h))
			}
			if r.IntN(2) > 0 {
				to, s.To = append(to, h), append(s.To, network.HostID(h))
			}
		}
		var want []Pair
		for _, p := range topo.Pairs(from, to) {
			want = append(want, Pair{Src: network.HostID(p[0]), Dst: network.HostID(p[1])})
		}
		if got := s.Pairs(); !slices.Equal(got, want) {
			t.Fatalf("from %v to %v, VNIs %v: %v, the lab has %v", from, to, s.VNI, got, want)
		}
	}
}
