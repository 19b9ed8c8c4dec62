package overlay

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/mono"
)

// crowd is a small table that many share, and what it has learned by a walk over all of it.
type crowd struct {
	f     *FDB
	known map[modelKey]Dest
	limit [2]map[uint16]int // of VNIs and ports; 0: none
}

const crowdVNIs, crowdPorts, crowdSize = 5, 4, 64

func newCrowd(r *rand.Rand) *crowd {
	c := &crowd{f: NewFDB(crowdSize, time.Hour, crowdVNIs, crowdPorts), known: map[modelKey]Dest{}}
	c.limit = [2]map[uint16]int{{}, {}}
	for v := range uint16(crowdVNIs) {
		c.limit[0][v] = r.IntN(3) * r.IntN(crowdSize)
		c.f.SetLimit(v, c.limit[0][v])
	}
	for p := range uint16(crowdPorts) {
		c.limit[1][p] = r.IntN(3) * r.IntN(crowdSize/2)
		c.f.SetPortLimit(p, c.limit[1][p])
	}
	return c
}

func (c *crowd) walk() map[modelKey]Dest {
	all := map[modelKey]Dest{}
	for e := range c.f.Some(0, 0, c.f.Buckets()) {
		if !e.Static {
			all[modelKey{e.VNI, e.MAC}] = e.Dest
		}
	}
	return all
}

func (c *crowd) count(match func(modelKey, Dest) bool) (n int) {
	for k, d := range c.known {
		if match(k, d) {
			n++
		}
	}
	return n
}

func (c *crowd) ofVNI(vni uint16) int {
	return c.count(func(k modelKey, _ Dest) bool { return k.vni == vni })
}

func (c *crowd) behind(d Dest) int {
	return c.count(func(_ modelKey, x Dest) bool { return samePort(x, d) })
}

func samePort(a, b Dest) bool { return !a.Remote() && !b.Remote() && a.Port() == b.Port() }

// part is each VNI's part of the table.
func (c *crowd) part(own uint16) int {
	in := map[uint16]bool{own: true}
	for k := range c.known {
		in[k.vni] = true
	}
	return crowdSize / len(in)
}

// mayGo reports whether lost may give way to a frame of k from d, as the table was
// before: it is of a VNI or a port that is above its share, or of the frame's own.
func (c *crowd) mayGo(lost, k modelKey, d Dest) bool {
	ownPort := samePort(c.known[lost], d) && c.limit[1][d.Port()] > 0 && c.behind(d) >= c.limit[1][d.Port()]
	return lost.vni == k.vni || ownPort || c.ofVNI(lost.vni) > c.part(k.vni)
}

// TestFDBShares: nobody's learning takes an address from a VNI or a port that is
// within its share; and limits hold.
func TestFDBShares(t *testing.T) {
	r := seeded(t)
	refused, evicted := 0, uint64(0)
	for range 15 {
		c := newCrowd(r)
		greedy := uint16(r.IntN(crowdVNIs))
		for range r.IntN(60) { // and thereby buckets are full
			c.f.SetStatic(uint16(r.IntN(crowdVNIs)), MACFromUint64(0x0a<<40|uint64(r.IntN(1000))), DestRemote(1))
		}
		for step := range 1500 {
			k := modelKey{uint16(r.IntN(crowdVNIs)), MACFromUint64(0x02<<40 | uint64(r.IntN(40)))}
			d := DestLocal(uint16(r.IntN(crowdPorts)), k.vni)
			if r.IntN(3) > 0 { // from ever new addresses
				k, d = modelKey{greedy, MACFromUint64(0x06<<40 | uint64(step))}, DestLocal(0, greedy)
			} else if r.IntN(4) == 0 {
				d = DestRemote(uint16(r.IntN(2)))
			}
			got := c.f.Learn(k.vni, k.mac, d, mono.Time(step)<<fdbTickShift)
			now := c.walk()
			for lost := range c.known {
				if _, stays := now[lost]; !stays && !c.mayGo(lost, k, d) {
					t.Fatalf("step %d: %v behind %x gave way to %v behind %x: %d of its VNI, whose part is %d",
						step, lost, c.known[lost], k, d, c.ofVNI(lost.vni), c.part(k.vni))
				}
			}
			if got == LearnedFull {
				refused++
			} else if now[k] != d {
				t.Fatalf("step %d: %v is behind %x after outcome %d, not %x", step, k, now[k], got, d)
			}
			c.known = now
			if n := c.limit[0][k.vni]; n > 0 && c.ofVNI(k.vni) > n {
				t.Fatalf("step %d: VNI %d has %d addresses, its limit is %d", step, k.vni, c.ofVNI(k.vni), n)
			}
			if n := c.limit[1][d.Port()]; !d.Remote() && n > 0 && c.behind(d) > n {
				t.Fatalf("step %d: port %d has %d addresses, its limit is %d", step, d.Port(), c.behind(d), n)
			}
		}
		evicted += c.f.Evicted()
	}
	t.Logf("%d evicted, %d refused", evicted, refused)
	if evicted == 0 || refused == 0 {
		t.Error("nobody gave way, or everybody")
	}
}

// TestFDBNewHostsOfAFullVNI: a host that sends from many addresses pushes out those of
// its own VNI, the oldest ones first, and a new host of the VNI still gets in.
func TestFDBNewHostsOfAFullVNI(t *testing.T) {
	f := NewFDB(1<<16, time.Minute, 2, 2)
	f.SetLimit(0, 100)
	for i := range 100 {
		f.Learn(1, MACFromUint64(0x02<<40|uint64(i)), DestLocal(1, 0), 0)
	}
	for i := range 10000 {
		check(t, "flood", f.Learn(0, MACFromUint64(0x06<<40|uint64(i)), DestLocal(0, 0), 0), LearnedNew)
	}
	check(t, "new host", f.Learn(0, MAC{2, 1}, DestLocal(1, 0), 0), LearnedNew)
	check(t, "where it is", f.Lookup(0, MAC{2, 1}, 0), DestLocal(1, 0))
	check(t, "addresses of the VNI", f.Count(0), 100)
	check(t, "addresses of the other one", f.Count(1), 100)
	check(t, "oldest", f.Lookup(0, MACFromUint64(0x06<<40|9900), 0), DestNone)
	check(t, "next", f.Lookup(0, MACFromUint64(0x06<<40|9901), 0), DestLocal(0, 0))
	f.SetPortLimit(0, 10)
	for i := range 1000 {
		f.Learn(0, MACFromUint64(0x0a<<40|uint64(i)), DestLocal(0, 0), 0)
	}
	check(t, "host at the other port", f.Lookup(0, MAC{2, 1}, 0), DestLocal(1, 0))
}

func TestForgetTakesTheOldestOfOneVNI(t *testing.T) {
	f := NewFDB(64, time.Minute, 2, 1)
	for i := range byte(10) {
		f.LearnKey(MakeFDBKey(uint16(i&1), MAC{2, 0, 0, 0, 0, i}), DestRemote(3), mono.Time(i)<<fdbTickShift)
	}
	f.SetStatic(0, MAC{2, 0, 0, 0, 1, 0}, DestRemote(3))
	if n := f.Forget(0, 3); n != 3 || f.Learned(0) != 2 || f.Learned(1) != 5 {
		t.Errorf("forgot %d, %d and %d are left", n, f.Learned(0), f.Learned(1))
	}
	for i := range byte(10) {
		known := f.Lookup(uint16(i&1), MAC{2, 0, 0, 0, 0, i}, 0) != DestNone
		if want := i&1 == 1 || i >= 6; known != want {
			t.Errorf("address %d is known: %v", i, known)
		}
	}
	if n := f.Forget(0, 9); n != 2 || f.Count(0) != 1 || f.Forget(7, 1) != 0 || f.Learned(7) != 0 {
		t.Errorf("forgot %d, %d entries are left, want the static one", n, f.Count(0))
	}
}
