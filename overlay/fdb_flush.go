package overlay

import (
	"math"

	"github.com/loomfabric/loom/internal/mono"
)

// fdbPort is what was learned behind one local port. When it is flushed, no entry is
// touched: an entry counts if it was noted since. The others are the table's flushed
// ones, which are freed a few at a time.
type fdbPort struct {
	fdbShare
	flushing bool   // some that were flushed, here or elsewhere, have yet to be freed
	since    uint32 // tick of the oldest entry that counts, while flushing
	last     uint32 // tick of the newest entry, if there is one
}

// FlushPort forgets the addresses that were learned on a local port, on any VLAN. Its
// cost does not depend on how many there are: [FDB.Sweep] frees them.
func (f *FDB) FlushPort(port uint16, now mono.Time) {
	if int(port) >= len(f.ports) {
		return
	}
	p := &f.ports[port]
	if p.learned == 0 {
		return
	}
	p.flushing, p.since = true, later(fdbTick(now), p.last)+1
	f.setDoubt(math.MinInt32)
	f.flushed.take(f.links, &p.fdbShare)
}

// take moves all entries of another share's port list to the end of this one.
func (s *fdbShare) take(links []fdbLinks, from *fdbShare) {
	if s.newest != 0 {
		links[s.newest][listPort].next = from.oldest
		links[from.oldest][listPort].prev = s.newest
	} else {
		s.oldest = from.oldest
	}
	s.newest = from.newest
	s.learned += from.learned
	from.learned, from.oldest, from.newest = 0, 0, 0
}

// wasFlushed reports whether a learned entry stems from before its port's flush.
func (f *FDB) wasFlushed(b *fdbBucket, w int) bool {
	d := b.dest[w]
	if d.Remote() {
		return false
	}
	p := &f.ports[d.Port()]
	return p.flushing && int32(b.seen[w]-p.since) < 0
}

// later returns the later of two ticks.
func later(a, b uint32) uint32 {
	if int32(a-b) > 0 {
		return a
	}
	return b
}

// stamp returns the tick of an entry that is noted at d. It is a later one if the port
// was flushed within the tick. A port's ticks never go back, so that a flush takes all.
func (f *FDB) stamp(d Dest, tick uint32) uint32 {
	if d.Remote() {
		return tick
	}
	p := &f.ports[d.Port()]
	if p.flushing {
		tick = later(tick, p.since)
	}
	if p.learned > 0 {
		tick = later(tick, p.last)
	}
	p.last = tick
	return tick
}

// drain frees at most n of the entries that were flushed.
func (f *FDB) drain(n int, tick uint32) {
	for ; n > 0 && f.flushed.oldest != 0; n-- {
		f.evict(f.flushed.oldest, tick)
	}
}

// endFlush forgets when ports were flushed, once all such entries are gone. Ticks wrap,
// and could not be compared for ever.
func (f *FDB) endFlush() {
	if f.flushed.learned > 0 {
		return
	}
	f.setDoubt(f.age)
	for i := range f.ports {
		f.ports[i].flushing = false
	}
}

// Learned returns how many addresses the VNI has learned.
func (f *FDB) Learned(vni uint16) int {
	if int(vni) >= len(f.vnis) {
		return 0
	}
	return int(f.vnis[vni].learned)
}

// Forget frees at most n of the addresses that the VNI has learned, those first that were
// noted longest ago. It returns how many.
func (f *FDB) Forget(vni uint16, n int) (freed int) {
	if int(vni) >= len(f.vnis) {
		return 0
	}
	for s := &f.vnis[vni]; freed < n && s.oldest != 0; freed++ {
		b, w := f.at(s.oldest)
		f.aged++
		f.remove(b, w)
	}
	return freed
}
