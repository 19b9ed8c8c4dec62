package overlay

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/mono"
)

// modelFDB is the table as its documentation words it, over a map, without
// buckets that can be full.
type modelFDB struct {
	entries      map[modelKey]*modelEntry
	age, refresh int64 // ticks
	size         int
	limit        map[uint16]int
	ports        map[uint16]int   // limits
	since        map[uint16]int64 // of ports that were flushed: the oldest tick that counts
	last         map[uint16]int64 // of ports: the newest entry's tick
	aged, notes  int
	flushes      int
	moves        map[modelKey]*modelMoves
}

// modelMoves are an address's moves since a tick, or the time when it began to be held.
type modelMoves struct {
	began int64
	n     int
	held  bool
}

// mayMove counts moves, of which there may be five in a second.
func (m *modelFDB) mayMove(k modelKey, from, to Dest, tick int64) bool {
	c := m.moves[k]
	if c == nil || c.held && tick-c.began >= int64(5*time.Second>>fdbTickShift) || !c.held && tick-c.began > int64(time.Second>>fdbTickShift) {
		m.moves[k] = &modelMoves{tick, 1, false}
		return true
	}
	if c.held {
		return false
	}
	if c.n++; c.n <= 5 {
		return true
	}
	c.began, c.held = tick, true
	return from.Remote() && !to.Remote() // and is held there
}

type modelKey struct {
	vni uint16
	mac MAC
}

type modelEntry struct {
	dest   Dest
	seen   int64
	note   int // in which order they were noted
	static bool
	flush  int // the how manyth flush took it; 0: none
}

// choose counts the learned entries that match, and returns the one noted longest ago.
func (m *modelFDB) choose(match func(modelKey, *modelEntry) bool) (n int, oldest modelKey) {
	for k, e := range m.entries {
		if !e.static && match(k, e) {
			if n++; n == 1 || e.note < m.entries[oldest].note {
				oldest = k
			}
		}
	}
	return n, oldest
}

// evict makes room for one more among those that match, if there are as many as the limit.
func (m *modelFDB) evict(limit int, now mono.Time, match func(modelKey, *modelEntry) bool) {
	if n, oldest := m.choose(match); limit > 0 && n >= limit {
		if m.expired(m.entries[oldest], now) {
			m.aged++
		}
		delete(m.entries, oldest)
	}
}

func (m *modelFDB) evictBehind(d Dest, now mono.Time) {
	if !d.Remote() {
		m.evict(m.ports[d.Port()], now, func(_ modelKey, e *modelEntry) bool {
			return e.flush == 0 && samePort(e.dest, d)
		})
	}
}

// crowdOut makes room in a full table: the largest VNI gives way if it is above its
// part, and larger than own. Of VNIs that are as large the table may choose any; f shows
// which one it chose.
func (m *modelFDB) crowdOut(own uint16, now mono.Time, f *FDB) {
	in, most, all := map[uint16]int{own: 0}, 0, 0
	for k, e := range m.entries {
		if !e.static {
			in[k.vni]++
			most, all = max(most, in[k.vni]), all+1
		}
	}
	if all < m.size {
		return
	}
	gives := own
	if most > in[own] && most > m.size/len(in) {
		for v, n := range in {
			if n == most && f.Count(v) < m.count(v) {
				gives = v
			}
		}
	}
	m.evict(1, now, func(k modelKey, _ *modelEntry) bool { return k.vni == gives })
}

func (m *modelFDB) count(vni uint16) (n int) {
	for k := range m.entries {
		if k.vni == vni {
			n++
		}
	}
	return n
}

func (m *modelFDB) expired(e *modelEntry, now mono.Time) bool {
	return !e.static && (e.flush > 0 || int64(now)>>fdbTickShift-e.seen > m.age)
}

func (m *modelFDB) lookup(k modelKey, now mono.Time) Dest {
	if e := m.entries[k]; e != nil && !m.expired(e, now) {
		return e.dest
	}
	return DestNone
}

func (m *modelFDB) learn(k modelKey, d Dest, now mono.Time, f *FDB) Learned {
	tick := int64(now) >> fdbTickShift
	e := m.entries[k]
	if e != nil && m.expired(e, now) {
		delete(m.entries, k)
		m.aged++
		e = nil
	}
	switch {
	case e == nil:
		m.drain(fdbWays)
		m.evictBehind(d, now)
		m.evict(m.limit[k.vni], now, func(o modelKey, _ *modelEntry) bool { return o.vni == k.vni })
		m.crowdOut(k.vni, now, f)
		m.note(k, d, tick)
		return LearnedNew
	case e.static && e.dest != d:
		return LearnedStatic
	case e.static:
		return LearnedKnown
	case e.dest != d && !m.mayMove(k, e.dest, d, tick):
		return LearnedHeld
	case e.dest != d:
		if e.dest.Remote() || e.dest.Port() != d.Port() {
			m.evictBehind(d, now)
		}
		m.note(k, d, tick)
		return LearnedMoved
	case tick-e.seen > m.refresh:
		m.note(k, d, tick)
		return LearnedRefreshed
	}
	return LearnedKnown
}

// note learns an address. Ticks of a port are after its last flush, and never go back.
func (m *modelFDB) note(k modelKey, d Dest, tick int64) {
	delete(m.entries, k)
	m.notes++
	if m.flushing(); !d.Remote() {
		tick = max(tick, m.since[d.Port()])
		if n, _ := m.choose(func(_ modelKey, e *modelEntry) bool { return e.flush == 0 && samePort(e.dest, d) }); n > 0 {
			tick = max(tick, m.last[d.Port()])
		}
		m.last[d.Port()] = tick
	}
	m.entries[k] = &modelEntry{dest: d, seen: tick, note: m.notes}
}

// flushing forgets when ports were flushed, if no such entry is left.
func (m *modelFDB) flushing() {
	for _, e := range m.entries {
		if e.flush > 0 {
			return
		}
	}
	clear(m.since)
}

func (m *modelFDB) flush(port uint16, now mono.Time) {
	m.flushing()
	m.flushes++
	for _, e := range m.entries {
		if !e.static && !e.dest.Remote() && e.dest.Port() == port && e.flush == 0 {
			e.flush = m.flushes
			m.since[port] = max(int64(now)>>fdbTickShift, m.last[port]) + 1
		}
	}
}

// drain frees up to n of the entries that were flushed, in the order in which they were.
func (m *modelFDB) drain(n int) {
	for ; n > 0; n-- {
		var first modelKey
		found := (*modelEntry)(nil)
		for k, e := range m.entries {
			if e.flush > 0 && (found == nil || e.flush < found.flush || e.flush == found.flush && e.note < found.note) {
				first, found = k, e
			}
		}
		if found == nil {
			return
		}
		delete(m.entries, first)
		m.aged++
	}
}

func (m *modelFDB) drop(match func(modelKey, *modelEntry) bool) (n int) {
	for k, e := range m.entries {
		if match(k, e) {
			delete(m.entries, k)
			n++
		}
	}
	return n
}

func (m *modelFDB) sweep(now mono.Time) int {
	n := m.aged + m.drop(func(_ modelKey, e *modelEntry) bool { return m.expired(e, now) })
	m.aged = 0
	return n
}

func randomDest(r *rand.Rand) Dest {
	if r.IntN(2) == 0 {
		return DestRemote(uint16(r.IntN(3)))
	}
	return DestLocal(uint16(r.IntN(3)), uint16(r.IntN(2)*100))
}

// TestFDBModel does random things to the table and to the model. Time starts
// anywhere, so that ticks wrap. 150 addresses share 1024 slots, so that buckets
// do not overflow and the model need not know of them.
func TestFDBModel(t *testing.T) {
	r := seeded(t)
	const vnis = 3
	seen := map[Learned]int{}
	for range 20 {
		age := time.Duration(1 + r.Int64N(int64(10*time.Second)>>(12*r.IntN(2)))) // in the shorter one addresses move often
		f := NewFDB(512, age, vnis, 4)
		f.size = 40
		ticks := (int64(age) + 1<<fdbTickShift - 1) >> fdbTickShift
		m := &modelFDB{entries: map[modelKey]*modelEntry{}, age: ticks, refresh: ticks / 4, size: 40, limit: map[uint16]int{}, ports: map[uint16]int{}, since: map[uint16]int64{}, last: map[uint16]int64{}, moves: map[modelKey]*modelMoves{}}
		now := mono.Time(1<<32<<fdbTickShift - int64(30*time.Second)) // wraps soon
		if r.IntN(2) == 0 {
			now = mono.Time(r.Int64N(1 << 55))
		}
		for step := range 6000 {
			now = now.Add(time.Duration(r.Int64N(int64(age)/40 + 2)))
			k := modelKey{uint16(r.IntN(vnis)), MACFromUint64(0x02<<40 | uint64(r.IntN(50)))}
			var got, want any
			switch op := r.IntN(100); {
			case op < 55:
				d := randomDest(r)
				if e := m.entries[k]; e != nil && r.IntN(4) > 0 {
					d = e.dest
				}
				g := f.Learn(k.vni, k.mac, d, now)
				seen[g]++
				got, want = g, m.learn(k, d, now, f)
			case op < 85:
				got, want = f.Lookup(k.vni, k.mac, now), m.lookup(k, now)
			case op < 88:
				d := randomDest(r)
				m.entries[k] = &modelEntry{dest: d, static: true}
				got, want = f.SetStatic(k.vni, k.mac, d), true
			case op < 92:
				e := m.entries[k]
				want = e != nil && e.static
				if want == true {
					delete(m.entries, k)
				}
				got = f.DeleteStatic(k.vni, k.mac)
			case op < 93:
				n := r.IntN(40) - 5
				f.SetLimit(k.vni, n)
				m.limit[k.vni] = n
			case op < 94:
				port, n := uint16(r.IntN(3)), r.IntN(40)-5
				f.SetPortLimit(port, n)
				m.ports[port] = n
			case op < 96:
				got, want = f.Sweep(now, 1<<20), m.sweep(now)
			case op == 96:
				for range 1 + r.IntN(2) {
					f.FlushPort(1, now)
					m.flush(1, now)
				}
			default:
				got, want = f.Count(k.vni), m.count(k.vni)
			}
			if got != want {
				t.Fatalf("step %d, age %v: got %v, want %v", step, age, got, want)
			}
			if f.Len() != len(m.entries) {
				t.Fatalf("step %d: %d entries, want %d", step, f.Len(), len(m.entries))
			}
		}
		compareAll(t, f, m, now)
	}
	for l := LearnedKnown; l <= LearnedStatic; l++ {
		if seen[l] == 0 && l != LearnedFull { // which takes full buckets
			t.Errorf("random operations never came to outcome %d", l)
		}
	}
}

func compareAll(t *testing.T, f *FDB, m *modelFDB, now mono.Time) {
	t.Helper()
	n := 0
	for e := range f.Some(now, 0, f.Buckets()) {
		n++
		k := modelKey{e.VNI, e.MAC}
		want := m.entries[k]
		if want == nil || m.expired(want, now) || want.dest != e.Dest || want.static != e.Static {
			t.Errorf("Some yields %+v, want %+v", e, want)
		} else if age := time.Duration(max(int64(now)>>fdbTickShift-want.seen, 0)) << fdbTickShift; !e.Static && e.Age != age {
			t.Errorf("Some yields age %v, want %v", e.Age, age)
		}
	}
	for k := range m.entries {
		if m.lookup(k, now) != DestNone {
			n--
		}
	}
	check(t, "entries Some yields too many", n, 0)
	for range f.Some(now, 0, f.Buckets()) {
		break // the iterator may be left
	}
}

// TestFDBFill: a table takes the number of addresses that it was made for, and
// hardly one less: sequential and random addresses, in one VNI and in many.
func TestFDBFill(t *testing.T) {
	r := seeded(t)
	const size = 1 << 16
	for _, c := range []struct {
		name string
		key  func(i int) (uint16, MAC)
	}{
		{"sequential", func(i int) (uint16, MAC) { return 0, MACFromUint64(0x02<<40 | uint64(i)) }},
		{"sequential in the high bytes", func(i int) (uint16, MAC) { return 0, MACFromUint64(0x02<<40 | uint64(i)<<16) }},
		{"every 2nd", func(i int) (uint16, MAC) { return 0, MACFromUint64(0x02<<40 | uint64(i)*2) }},
		{"every 7th", func(i int) (uint16, MAC) { return 0, MACFromUint64(0x02<<40 | uint64(i)*7) }},
		{"every 256th", func(i int) (uint16, MAC) { return 0, MACFromUint64(0x02<<40 | uint64(i)*256) }},
		{"sequential, address in VNI", func(i int) (uint16, MAC) { return uint16(i >> 8), MACFromUint64(0x0242<<32 | uint64(i)) }},
		{"random", func(int) (uint16, MAC) { return 0, MACFromUint64(r.Uint64() &^ (1 << 40)) }},
		{"the same few in many VNIs", func(i int) (uint16, MAC) { return uint16(i & 4095), MACFromUint64(0x02<<40 | uint64(i>>12)) }},
	} {
		f := NewFDB(size, time.Minute, 4096, 4)
		for i := range size {
			vni, mac := c.key(i)
			if got := f.Learn(vni, mac, DestRemote(1), 0); got != LearnedNew {
				t.Fatalf("%s: address %d has outcome %d", c.name, i, got)
			}
		}
		if n := f.Evicted(); n > 10 || f.Len() != size-int(n) { // one or two by chance
			t.Errorf("%s: %d of %d addresses found no room, %d are known", c.name, n, size, f.Len())
		}
		for f.Len() < size { // if buckets were full before
			f.Learn(0, MACFromUint64(r.Uint64()&^(1<<40)), DestRemote(1), 0)
		}
		check(t, "one more", f.Learn(0, MACFromUint64(r.Uint64()&^(1<<40)), DestRemote(1), 0), LearnedNew)
		check(t, "entries", f.Len(), size)
	}
}

func TestFDBRefuses(t *testing.T) {
	f := NewFDB(8, time.Minute, 2, 4)
	mac := MAC{2}
	for _, c := range []struct {
		name string
		vni  uint16
		mac  MAC
		d    Dest
	}{
		{"group", 0, MAC{3}, DestRemote(1)},
		{"broadcast", 0, MACFromUint64(1<<48 - 1), DestRemote(1)},
		{"zero", 0, MAC{}, DestRemote(1)},
		{"no destination", 0, mac, DestNone},
		{"no such VNI", 2, mac, DestRemote(1)},
	} {
		check(t, c.name, f.Learn(c.vni, c.mac, c.d, 0), LearnedRefused)
		check(t, c.name+", static", f.SetStatic(c.vni, c.mac, c.d), false)
		check(t, c.name+", delete", f.DeleteStatic(c.vni, c.mac), false)
		check(t, c.name+", lookup", f.Lookup(c.vni, c.mac, 0), DestNone)
	}
	f.SetLimit(2, 1)
	check(t, "count of no VNI", f.Count(2), 0)
	check(t, "entries", f.Len(), 0)
}

// TestFDBAgeing: never before three quarters of the ageing time have passed
// since the last frame, always within a few ticks of the whole; a clock that
// goes back ages nothing.
func TestFDBAgeing(t *testing.T) {
	const age = 10 * time.Second
	const tick = 1 << fdbTickShift
	mac, d := MAC{2}, DestLocal(1, 0)
	for _, start := range []mono.Time{0, -5, 1<<31<<fdbTickShift - 7, 1<<32<<fdbTickShift - 7, mono.Time(time.Hour)} {
		f := NewFDB(8, age, 1, 4)
		check(t, "first frame", f.Learn(0, mac, d, start), LearnedNew)
		last := start
		for range 50 { // frames keep it alive
			last = last.Add(age / 5)
			f.Learn(0, mac, d, last)
		}
		check(t, "before", f.Lookup(0, mac, last.Add(age*3/4-tick)), d)
		check(t, "clock back", f.Lookup(0, mac, last.Add(-time.Hour)), d)
		check(t, "sweep with the clock back", f.Sweep(last.Add(-time.Hour), 1000), 0)
		late := last.Add(age + 2*tick)
		check(t, "after", f.Lookup(0, mac, late), DestNone)
		check(t, "entries before the sweep", f.Len(), 1)
		check(t, "sweep", f.Sweep(late, 1000), 1)
		check(t, "entries after the sweep", f.Len(), 0)
	}
	f := NewFDB(8, 0, 1, 4)
	f.Learn(0, mac, d, 0)
	check(t, "a table that does not age", f.Lookup(0, mac, mono.Time(365*24*time.Hour)), d)
}

// TestFDBSweepInTurn: small steps reach every bucket.
func TestFDBSweepInTurn(t *testing.T) {
	f := NewFDB(64, time.Second, 1, 4)
	for i := range 40 {
		f.Learn(0, MACFromUint64(0x02<<40|uint64(i)), DestRemote(1), 0)
	}
	aged := 0
	for range 2 * 64 / fdbWays {
		aged += f.Sweep(mono.Time(time.Minute), 1)
	}
	check(t, "aged", aged, 40)
	check(t, "entries", f.Len(), 0)
}

// TestFDBStaticEvicts: configuration finds room where learning finds none, and
// gives up only when every entry that could be used is static.
func TestFDBStaticEvicts(t *testing.T) {
	f := NewFDB(8, time.Minute, 1, 4)
	mac := func(i int) MAC { return MACFromUint64(0x02<<40 | uint64(i)) }
	for i := range 8 {
		f.Learn(0, mac(i), DestRemote(1), mono.Time(i)*mono.Time(time.Second))
	}
	set := 0
	for i := 100; f.SetStatic(0, mac(i), DestRemote(2)); i++ {
		set++
		check(t, "static", f.Lookup(0, mac(i), 0), DestRemote(2))
	}
	if set < 9 || set > 16 {
		t.Errorf("%d static addresses in 16 slots", set)
	}
	for i := range set {
		check(t, "static stays", f.Lookup(0, mac(100+i), mono.Time(time.Hour)), DestRemote(2))
	}
}

func TestDest(t *testing.T) {
	for _, peer := range []uint16{0, 1, 1023, 65535} {
		d := DestRemote(peer)
		check(t, "remote", d.Remote(), true)
		check(t, "peer", d.Peer(), peer)
	}
	for _, port := range []uint16{0, 1, 255, 65535} {
		for _, vlan := range []uint16{0, 1, 4095} {
			d := DestLocal(port, vlan)
			check(t, "remote", d.Remote(), false)
			check(t, "none", d == DestNone, false)
			check(t, "port", d.Port(), port)
			check(t, "VLAN", d.VLAN(), vlan)
		}
	}
}
