package overlay

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/mono"
)

// A table against a map, with sources that keep within their bounds: nothing is lost but
// what aged.
func TestHostsAgainstMap(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	h, now := NewHosts(4096, 16, time.Hour), mono.Time(time.Second)
	type key struct {
		vni VNI
		a   Addr
	}
	type said struct {
		m  MAC
		at mono.Time
	}
	known := make(map[key]said)
	refused := 0
	for range 20000 {
		now = now.Add(time.Duration(rng.IntN(2)) * time.Second)
		k := key{VNI(rng.IntN(3)), Addr4(uint32(10<<24 | rng.IntN(200)))}
		m := MACFromUint64(0x020000000000 | uint64(rng.IntN(1<<20)))
		if h.Note(k.vni, k.a, m, uint16(rng.IntN(16)), now) {
			known[k] = said{m, now}
		} else {
			refused++
		}
		k = key{VNI(rng.IntN(3)), Addr4(uint32(10<<24 | rng.IntN(200)))}
		want, ok := known[k]
		ok = ok && now.Sub(want.at) <= time.Hour
		got, found := h.Find(k.vni, k.a, now)
		if found != ok || ok && (got.MAC != want.m || now.Sub(want.at)-got.Age > 50*time.Millisecond) {
			t.Fatalf("%v: found %+v %v, want %+v %v", k, got, found, want, ok)
		}
	}
	if refused > 20 { // a set of eight may be full of others
		t.Errorf("%d of 20000 were refused", refused)
	}
	count := 0
	for range h.Some(now, 0, h.Len()) {
		count++
	}
	sum := 0
	for _, n := range h.counts {
		sum += int(n)
	}
	if count > sum || sum > 600 {
		t.Errorf("%d listed, %d counted", count, sum)
	}
}

// One source that announces whatever it can has a quarter of the table, takes nothing from
// a source with less, and does not keep others out.
func TestHostsHostile(t *testing.T) {
	h, now := NewHosts(1024, 8, time.Hour), mono.Time(time.Second)
	addr := func(i int) Addr { return Addr4(uint32(10<<24 | i)) }
	for i := range 40 {
		if !h.Note(1, addr(i), MAC{2}, 1, now) {
			t.Fatalf("address %d of 40 has no place", i)
		}
	}
	for i := range 100000 {
		h.Note(1, addr(1000+i), MAC{2, 1}, uint16(2+i%4), now)
	}
	for source, n := range h.counts {
		if n > 256 {
			t.Errorf("source %d has %d entries", source, n)
		}
	}
	for i := range 80 { // half of them again, half new
		h.Note(1, addr(i), MAC{2, 2}, 1, now)
	}
	for i := range 80 {
		if got, ok := h.Find(1, addr(i), now); !ok || got.MAC != (MAC{2, 2}) || got.Source != 1 {
			t.Errorf("address %d: %+v, %v", i, got, ok)
		}
	}
	now = now.Add(2 * time.Hour)
	for range h.Len() / hostWays {
		h.Note(1, addr(1), MAC{2}, 1, now)
	}
	for source, n := range h.counts {
		if want := map[int]uint16{1: 1}[source]; n != want {
			t.Errorf("after the ageing time source %d has %d entries, want %d", source, n, want)
		}
	}
	if n := testing.AllocsPerRun(100, func() { h.Note(1, addr(2), MAC{2}, 1, now) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestAnnounced(t *testing.T) {
	arp := func(sender MAC, ip uint32) []byte {
		b := append(make([]byte, 12), 8, 6, 0, 1, 8, 0, 6, 4, 0, 1)
		b = append(append(b, sender[:]...), byte(ip>>24), byte(ip>>16), byte(ip>>8), byte(ip))
		return append(b, make([]byte, 10)...)
	}
	host, low := MAC{2, 0, 0, 0, 0, 1}, Addr{High: 0xfd00 << 48, Low: 7}
	nd := func(kind byte, hops byte, options ...byte) []byte {
		b := append(make([]byte, 6), host[:]...)
		b = append(b, 0x86, 0xdd, 0x60, 0, 0, 0, 0, byte(24+len(options)), 58, hops)
		b = append(b, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7) // source fd00::7
		b = append(b, make([]byte, 16)...)
		b = append(b, kind, 0, 0, 0, 0, 0, 0, 0, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8) // target fd00::8
		return append(b, options...)
	}
	other := MAC{2, 0, 0, 0, 0, 9}
	link := func(kind byte) []byte { return append([]byte{kind, 1}, other[:]...) }
	for name, tt := range map[string]struct {
		frame []byte
		addr  Addr
		mac   MAC
	}{
		"ARP":                    {arp(host, 0x0a000001), Addr4(0x0a000001), host},
		"ARP probe":              {arp(host, 0), Addr{}, MAC{}},
		"ARP of a group":         {arp(MAC{1}, 1), Addr{}, MAC{}},
		"ARP of nobody":          {arp(MAC{}, 1), Addr{}, MAC{}},
		"short ARP":              {arp(host, 1)[:41], Addr{}, MAC{}},
		"solicitation":           {nd(135, 255, link(1)...), low, other},
		"solicitation, no link":  {nd(135, 255), Addr{}, MAC{}},
		"advertisement":          {nd(136, 255, link(2)...), Addr{High: 0xfd00 << 48, Low: 8}, other},
		"advertisement, no link": {nd(136, 255), Addr{High: 0xfd00 << 48, Low: 8}, host},
		"behind an option":       {nd(135, 255, append([]byte{14, 1, 0, 0, 0, 0, 0, 0}, link(1)...)...), low, other},
		"option without length":  {nd(135, 255, append([]byte{14, 0, 0, 0, 0, 0, 0, 0}, link(1)...)...), Addr{}, MAC{}},
		"cut option":             {nd(135, 255, link(1)[:7]...), Addr{}, MAC{}},
		"from afar":              {nd(135, 64, link(1)...), Addr{}, MAC{}},
		"echo":                   {nd(128, 255, link(1)...), Addr{}, MAC{}},
		"nothing":                {nil, Addr{}, MAC{}},
	} {
		var meta Meta
		Dissect(tt.frame, 1, &meta)
		a, m, ok := Announced(tt.frame, meta.L3, meta.Flags)
		if ok != !tt.mac.IsZero() || ok && (a != tt.addr || m != tt.mac) {
			t.Errorf("%s: %v is %v, %v; want %v is %v", name, a.Netip(), m, ok, tt.addr.Netip(), tt.mac)
		}
	}
}

func FuzzAnnounced(f *testing.F) {
	f.Add(append(make([]byte, 12), 8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2))
	for _, g := range golden {
		f.Add(g.inner)
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		var meta Meta
		Dissect(frame, 1, &meta)
		if a, m, ok := Announced(frame, meta.L3, meta.Flags); ok && (a == (Addr{}) || m.IsZero() || m.IsGroup()) {
			t.Fatalf("%v is %v", a.Netip(), m)
		}
	})
}
