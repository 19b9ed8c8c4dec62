package bpf

import (
	"errors"
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
	if cfg.Routes, err = NewRoutes(); err != nil {
		t.Fatal(err)
	}
	defer cfg.Routes.Close()
	a, b := newRunner(t, cfg), newRunner(t, cfg)
	inner := eth(0x0800, ip4(6, 0, 0, tcp(1000, 80)))
	random := func() netip.Addr {
		b := [3]byte{byte(rng.IntN(2)), byte(rng.IntN(2)), byte(rng.IntN(4))}
		if rng.IntN(2) == 0 {
			return netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 0, b[0], 0, 0, 0, 0, 0, 0, b[1], 0, 0, b[2]})
		}
		return netip.AddrFrom4([4]byte{10, b[0], b[1], b[2]})
	}
	takes := func(r *runner, dst netip.Addr) bool {
		frame := outer6(dst, [3]byte{}, nil, inner)
		if dst.Is4() {
			frame = outer(dst, 0, [3]byte{}, nil, inner)
		}
		verdict, _, _, _ := r.verdict(frame)
		return verdict == "redirect"
	}
	before := map[netip.Prefix]bool{}
	for range 100 {
		now := make(map[netip.Prefix]bool)
		for range rng.IntN(8) {
			a, bits := random(), []int{0, 8, 16, 24, 30, 31, 32}[rng.IntN(7)]
			if a.Is6() {
				bits = []int{0, 32, 48, 64, 104, 127, 128}[rng.IntN(7)]
			}
			now[netip.PrefixFrom(a, bits).Masked()] = rng.IntN(3) > 0
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

// The prefixes of leaves' VTEPs change while packets come. What is no prefix is refused.
func TestRoutesChange(t *testing.T) {
	testenv.NeedRoot(t)
	cfg := config(Spine)
	var err error
	if cfg.Routes, err = NewRoutes(); err == nil {
		err = cfg.Routes.Take(prefixes("10.0.0.0/24", "10.0.8.8/32"))
	}
	if err != nil {
		t.Fatal(err)
	}
	defer cfg.Routes.Close()
	r := newRunner(t, cfg)
	inner := eth(0x0800, ip4(6, 0, 0, tcp(1000, 80)))
	verdicts := func(want ...string) {
		t.Helper()
		for i, a := range []string{"10.0.0.200", "10.0.8.8", "10.7.0.1"} {
			r.expect(outer(netip.MustParseAddr(a), 0, [3]byte{}, nil, inner), want[i])
		}
	}
	verdicts("redirect", "redirect", "pass_not_ours")
	for _, step := range []struct{ ours, want []string }{
		{[]string{"10.0.0.0/24", "10.7.0.0/16"}, []string{"redirect", "pass_not_ours", "redirect"}},
		{[]string{"10.0.0.0/16"}, []string{"redirect", "redirect", "pass_not_ours"}},
		{[]string{"10.0.0.0/16"}, []string{"redirect", "redirect", "pass_not_ours"}},
	} {
		if err := errors.Join(cfg.Routes.Take(prefixes(step.ours...)), cfg.Routes.Leave(prefixes(step.ours...))); err != nil {
			t.Fatal(err)
		}
		verdicts(step.want...)
	}
	if err := cfg.Routes.Take(map[netip.Prefix]bool{{}: true}); err == nil {
		t.Error("no prefix is taken")
	}
}
