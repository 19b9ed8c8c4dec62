package flowtable

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/loomfabric/loom/internal/mono"
)

// value has the size that the users' values have.
type value struct {
	id    uint64 // not a word wider than 2 in a user's; the table must not mind
	small uint16
}

type flowKey struct {
	hash uint32
	leaf uint16
}

// naive is a table without sets' order: a map, and a limit of flows a set.
type naive struct {
	flows map[flowKey]*naiveFlow
	mask  uint32
	age   mono.Time
}

type naiveFlow struct {
	last   mono.Time
	id     uint64
	pinned bool
}

// aged reports it in another way than the table does: by the shorter way round the
// clock. Times that lie half of it apart have no sign.
func (n *naive) aged(now mono.Time, f *naiveFlow) bool {
	apart := uint64(now - f.last)
	return !f.pinned && min(apart, -apart) > uint64(n.age)
}

// room reports whether a new flow of a hash has a place, and which flow has to go for
// it, nil if a place is free.
func (n *naive) room(now mono.Time, hash uint32) (ok bool, victim *flowKey) {
	others := 0
	for k, f := range n.flows {
		if k.hash&n.mask != hash&n.mask {
			continue
		}
		others++
		if n.aged(now, f) && (victim == nil || f.last < n.flows[*victim].last) {
			victim = &k
		}
	}
	if others < Ways {
		return true, nil
	}
	return victim != nil, victim
}

// Operations at random, on a clock that now and then jumps, against a map: a flow is
// found if and only if it is known, with its own value; what is replaced has paused for
// longest; what is pinned stays.
func TestTableAgainstMap(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for _, entries := range []int{Ways, 4 * Ways, 16 * Ways} {
		t.Run(fmt.Sprint(entries), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, uint64(entries)))
			m := &model{
				t: t, rng: rng, now: mono.Time(rng.Int64N(1000)), table: New[value](entries, 100),
				naive: naive{flows: map[flowKey]*naiveFlow{}, mask: uint32(entries/Ways - 1), age: 100},
			}
			for range 30_000 {
				m.step(entries)
			}
			if m.replaced == 0 || m.full == 0 || m.kept == 0 || m.jumps == 0 {
				t.Errorf("%d flows replaced, %d times full, %d of them for pins, %d jumps: not all of it happened", m.replaced, m.full, m.kept, m.jumps)
			}
		})
	}
}

type model struct {
	t     *testing.T
	rng   *rand.Rand
	now   mono.Time
	table Table[value]
	naive naive
	next  uint64

	replaced, full, kept, jumps int
}

// tick moves the clock: mostly by a little, seldom by anything, back too, or round.
func (m *model) tick() {
	switch m.rng.IntN(2000) {
	case 0:
		m.now += mono.Time(m.rng.Int64N(1000)) - 500
		m.jumps++
	case 1:
		m.now = math.MaxInt64 - mono.Time(m.rng.Int64N(200)) // it wraps soon
		m.jumps++
	case 2:
		m.now = mono.Time(m.rng.Int64N(1000))
		m.jumps++
	default:
		m.now += mono.Time(m.rng.Int64N(8))
	}
}

func (m *model) step(entries int) {
	m.tick()
	k := flowKey{m.rng.Uint32N(uint32(2 * entries)), uint16(m.rng.IntN(2)) * (MaxLeaves - 1)}
	f := m.naive.flows[k]
	e := m.table.Find(k.hash, k.leaf)
	if (e != nil) != (f != nil) {
		m.t.Fatalf("flow %+v: found %v, want %v", k, e != nil, f != nil)
	}
	if first := m.table.First(k.hash); first.Is(k.hash, k.leaf) && first != e {
		m.t.Fatalf("flow %+v stands first, and is found elsewhere", k)
	}
	if e == nil {
		m.insert(k)
		return
	}
	if e.V.id != f.id || e.Last != f.last || e.Hash() != k.hash || e.Leaf() != k.leaf || e.Pinned() != f.pinned {
		m.t.Fatalf("flow %+v: %+v, want %+v", k, e, f)
	}
	if m.table.At(m.table.Index(e)) != e {
		m.t.Fatalf("flow %+v does not stand at its index %d", k, m.table.Index(e))
	}
	if got, want := m.table.Aged(m.now, e), m.naive.aged(m.now, f); got != want {
		m.t.Fatalf("flow %+v with last %d at %d: aged %v, want %v", k, e.Last, m.now, got, want)
	}
	switch m.rng.IntN(12) {
	case 0:
		e.Remove()
		delete(m.naive.flows, k)
	case 1:
		e.Pin()
		f.pinned = true
	case 2, 3, 4:
		e.Unpin()
		f.pinned = false
	default:
		e.Last, f.last = m.now, m.now
	}
}

func (m *model) insert(k flowKey) {
	room, victim := m.naive.room(m.now, k.hash)
	if got := m.table.Room(m.now, k.hash); got != room {
		m.t.Fatalf("flow %+v: room %v, want %v", k, got, room)
	}
	e := m.table.Insert(m.now, k.hash, k.leaf)
	if (e != nil) != room {
		m.t.Fatalf("flow %+v: inserted %v, want %v", k, e != nil, room)
	}
	if e == nil {
		m.full++
		for o, f := range m.naive.flows {
			if o.hash&m.naive.mask == k.hash&m.naive.mask && f.pinned {
				m.kept++
				break
			}
		}
		return
	}
	if e.V != (value{}) || e.Time != 0 || e.Pinned() || e.Last != m.now {
		m.t.Fatalf("flow %+v begins with %+v", k, e)
	}
	if victim != nil {
		m.replaced++
		// Of several that paused for equally long any may go.
		for o, f := range m.naive.flows {
			if o.hash&m.naive.mask == k.hash&m.naive.mask && f.last == m.naive.flows[*victim].last && m.table.Find(o.hash, o.leaf) == nil {
				victim = &o
			}
		}
		delete(m.naive.flows, *victim)
	}
	m.next++
	e.V, e.Time = value{id: m.next, small: k.leaf}, -e.Last
	m.naive.flows[k] = &naiveFlow{last: m.now, id: m.next}
}

// All yields what is in use and not aged, each once, whatever the parts.
func TestAll(t *testing.T) {
	table := New[value](8*Ways, 100)
	want := map[flowKey]bool{}
	for hash := range uint32(24) {
		at := mono.Time(hash) // those up to 9 are aged by 110
		e := table.Insert(at, hash, 7)
		switch {
		case hash == 3:
			e.Pin()
			want[flowKey{hash, 7}] = true
		case hash == 20:
			e.Remove()
		case hash > 9:
			want[flowKey{hash, 7}] = true
		}
	}
	for _, step := range []int{1, 3, 8, 100} {
		got := map[flowKey]bool{}
		for from := -step; from < table.Sets(); from += step {
			for e := range table.All(110, from, from+step) {
				k := flowKey{e.Hash(), e.Leaf()}
				if set := table.SetOf(k.hash); got[k] || set < from || set >= from+step {
					t.Errorf("flow %+v of set %d comes again, or with sets %d to %d", k, set, from, from+step)
				}
				got[k] = true
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("in steps of %d: %v, want %v", step, got, want)
		}
	}
	for range table.All(110, 0, table.Sets()) {
		break // the iterator must stop
	}
}

// A leaf's number that has no place in an entry finds no room, and cannot pin another's.
func TestInsertRefusesLeaves(t *testing.T) {
	table := New[value](Ways, 100)
	for _, leaf := range []uint16{MaxLeaves, math.MaxUint16} {
		if e := table.Insert(0, 1, leaf); e != nil {
			t.Errorf("leaf %d: %+v", leaf, e)
		}
	}
	if e := table.Insert(0, 1, MaxLeaves-1); e == nil || e.Pinned() || e.Leaf() != MaxLeaves-1 {
		t.Errorf("leaf %d: %+v", MaxLeaves-1, e)
	}
}

// SetAge counts for flows that are there, too.
func TestSetAge(t *testing.T) {
	table := New[value](Ways, 100)
	e := table.Insert(0, 1, 1)
	if table.Aged(100, e) || !table.Aged(101, e) {
		t.Error("an age of 100 is another one")
	}
	if table.SetAge(200); table.Aged(200, e) || !table.Aged(201, e) {
		t.Error("the age did not change")
	}
}

// A vector is cold if more than a quarter of its packets are of unknown flows. Touch
// changes nothing that can be seen.
func TestCold(t *testing.T) {
	table := New[value](Ways, 100)
	for _, tt := range []struct {
		packets, unknown int
		want             bool
	}{{64, 16, false}, {64, 17, true}, {1, 1, true}, {0, 0, false}} {
		if table.Seen(tt.packets, tt.unknown); table.Cold() != tt.want {
			t.Errorf("%d of %d unknown: cold is %v", tt.unknown, tt.packets, table.Cold())
		}
	}
	e := table.Insert(5, 1, 1)
	before := *e
	if table.Touch(1); *e != before {
		t.Errorf("%+v became %+v", before, *e)
	}
}

// Two entries of 10 bytes take a line of the cache: 32 bytes each.
func TestEntrySize(t *testing.T) {
	if n := unsafe.Sizeof(Entry[[5]uint16]{}); n != 32 {
		t.Errorf("an entry takes %d bytes", n)
	}
}

func TestNothingIsAllocated(t *testing.T) {
	table := New[value](16*Ways, 100)
	now, hash := mono.Time(0), uint32(0)
	if n := testing.AllocsPerRun(1000, func() {
		now, hash = now+1, hash+7
		table.Touch(hash)
		e := table.Find(hash, 1)
		if e == nil {
			e = table.Insert(now, hash, 1)
		}
		if e != nil {
			e.Last = now
			e.Pin()
			table.At(table.Index(e)).Unpin()
		}
		table.Seen(1, 1)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkFind is the cost of a packet of a flow that is known: of a thousand flows
// that fit the cache, and of 64 K flows with and without Touch before each vector.
func BenchmarkFind(b *testing.B) {
	for _, bb := range []struct {
		name  string
		flows int
		touch bool
	}{{"flows=1024", 1 << 10, false}, {"flows=65536", 1 << 16, false}, {"flows=65536/touch", 1 << 16, true}} {
		b.Run(bb.name, func(b *testing.B) { benchFind(b, bb.flows, bb.touch) })
	}
}

func benchFind(b *testing.B, flows int, touch bool) {
	const vector = 64
	table := New[[5]uint16](256<<10, 1<<40)
	rng := rand.New(rand.NewPCG(1, 2))
	hashes := make([]uint32, 0, flows)
	for len(hashes) < flows {
		h := rng.Uint32()
		if table.Insert(0, h, 1) != nil {
			hashes = append(hashes, h)
		}
	}
	b.ReportAllocs()
	now, sum, at := mono.Time(0), 0, 0
	for b.Loop() {
		pkts := hashes[at : at+vector]
		at = (at + vector) & (flows - 1)
		now++
		if touch {
			for _, h := range pkts {
				table.Touch(h)
			}
		}
		for _, h := range pkts {
			e := table.First(h)
			if !e.Is(h, 1) {
				e = table.Find(h, 1)
			}
			if !table.Aged(now, e) {
				e.Last = now
				sum += int(e.V[0])
			}
		}
	}
	if sum != 0 {
		b.Fatal(sum)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/vector, "ns/pkt")
}
