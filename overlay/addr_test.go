package overlay

import (
	"net/netip"
	"testing"
)

// TestAddr: an Addr says what the address says, of both families, and differs where the
// addresses do.
func TestAddr(t *testing.T) {
	r := seeded(t)
	seen := make(map[Addr]netip.Addr)
	for i := range 10000 {
		a := randomVTEP(r, i%2 == 0)
		x := AddrOf(a)
		if x.Netip() != a {
			t.Fatalf("%v became %v", a, x.Netip())
		}
		if b, ok := seen[x]; ok && b != a {
			t.Fatalf("%v and %v are one Addr", a, b)
		}
		seen[x] = a
	}
	if AddrOf(netip.Addr{}) != (Addr{}) || (Addr{}).Netip().IsValid() || AddrOf(netip.IPv6Unspecified()) != (Addr{}) {
		t.Error("no address is an address")
	}
	if AddrOf(netip.MustParseAddr("::ffff:10.0.0.1")) != Addr4(10<<24|1) || AddrOf(netip.MustParseAddr("10.0.0.1")) != Addr4(10<<24|1) {
		t.Error("a mapped address is not the IPv4 address")
	}
}

// TestAddrHash: addresses that differ in a few bits, as a fabric's do, spread over a
// table's slots.
func TestAddrHash(t *testing.T) {
	low, high := make([]int, 256), make([]int, 256)
	base := AddrOf(vtepC)
	for i := range uint64(1 << 14) {
		low[Addr{base.High, base.Low + i}.Hash()>>24]++
		high[Addr{base.High + i<<16, base.Low}.Hash()>>24]++
	}
	// A product spreads a sequence more evenly than chance does.
	for i := range 256 {
		for _, n := range []int{low[i], high[i]} {
			if n > 2*1<<14/256 {
				t.Fatalf("%d of %d addresses in one of 256 slots", n, 1<<14)
			}
		}
	}
}

func TestHeaders(t *testing.T) {
	for _, c := range []struct {
		vtep             netip.Addr
		headers, differs int
	}{{vtepA, 50, 50}, {vtepC, 70, 70}, {netip.MustParseAddr("::ffff:10.0.0.1"), 50, 50}} {
		check(t, "headers", Headers(FamilyOf(c.vtep)), c.headers)
		check(t, "MTU", MTUOverhead(c.vtep), c.differs)
	}
}
