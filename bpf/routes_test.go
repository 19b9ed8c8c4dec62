package bpf

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/loomfabric/loom/internal/testenv"
)

// naiveRoutes looks up the longest prefix in the plainest way.
func naiveRoutes(want map[netip.Prefix]bool, dst netip.Addr) (ours bool) {
	longest := -1
	for p, is := range want {
		if p.Contains(dst) && p.Bits() > longest {
			longest, ours = p.Bits(), is
		}
	}
	return ours
}

// TestRoutesFollow: two programs that share a table take what the routes of the moment
// say, whatever they said before. Between Leave and Take they take nothing that is not
// taken before and after.
func TestRoutesFollow(t *testing.T) {
	testenv.NeedRoot(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	cfg := config(Spine)
	var err error
	cfg.Remotes = nil
	if cfg.Routes, err = NewRoutes(); err != nil {
		t.Fatal(err)
	}
	defer cfg.Routes.Close()
	a, b := newRunner(t, cfg), newRunner(t, cfg)
	inner := eth(0x0800, ip4(6, 0, 0, tcp(1000, 80)))
	random := func() netip.Addr {
		return netip.AddrFrom4([4]byte{10, byte(rng.IntN(2)), byte(rng.IntN(2)), byte(rng.IntN(4))})
	}
	takes := func(r *runner, dst netip.Addr) bool {
		verdict, _, _, _ := r.verdict(outer(dst, 0, [3]byte{}, nil, inner))
		return verdict == "redirect"
	}
	before := map[netip.Prefix]bool{}
	for range 100 {
		now := make(map[netip.Prefix]bool)
		for range rng.IntN(8) {
			now[netip.PrefixFrom(random(), []int{0, 8, 16, 24, 30, 31, 32}[rng.IntN(7)]).Masked()] = rng.IntN(3) > 0
		}
		if err := cfg.Routes.Leave(now); err != nil {
			t.Fatal(err)
		}
		for range 4 {
			dst := random()
			if takes(a, dst) && !naiveRoutes(before, dst) && !naiveRoutes(now, dst) {
				t.Fatalf("between %v and %v, %v is taken", before, now, dst)
			}
		}
		if err := cfg.Routes.Take(now); err != nil {
			t.Fatal(err)
		}
		for range 4 {
			dst := random()
			want := naiveRoutes(now, dst)
			if takes(a, dst) != want || takes(b, dst) != want {
				t.Fatalf("of %v: %v is taken %v and %v, want %v", now, dst, takes(a, dst), takes(b, dst), want)
			}
		}
		before = now
	}
}
