package flowtable

import (
	"sync/atomic"

	"github.com/loomfabric/loom/internal/mono"
)

// Words is a table of flows that all workers of a node share: 4-way set-associative,
// exact, of a fixed size, and aged lazily. It maps a tag of 64 bits to a value of 32. A
// set is one line of the cache. All of it is atomic words that nobody waits for: of two
// workers that change an entry at a time one fails, and is told so.
type Words struct {
	sets []wordSet
	mask uint64
	ages [2]int32 // ticks, by LongLived
}

type wordSet struct {
	tag  [Ways]atomic.Uint64
	word [Ways]atomic.Uint64
}

// LongLived is the bit of a value that says which of a table's two ages holds for its
// entry. The other bits are the user's.
const LongLived uint32 = 1 << 31

const (
	tagFree = 0 // no flow has the place
	tagBusy = 1 // a worker is about to put a flow there
)

// tickShift makes ticks of about a millisecond out of times.
const tickShift = 20

// tickSlack is how far ahead another worker's clock may be, ticks.
const tickSlack = 1000

// MaxAge is the longest age, and half of the time after which an entry that nobody has
// used looks used again.
const MaxAge = mono.Time(1) << (tickShift + 30)

// NewWords returns an empty table. The number of entries is a power of two from Ways to
// MaxEntries. Entries are good for as long after their last use as the ages say, of at
// most MaxAge each: long for those with LongLived, short for the others. Ages are kept to
// a millisecond.
func NewWords(entries int, short, long mono.Time) *Words {
	sets := entries / Ways
	return &Words{sets: make([]wordSet, sets), mask: uint64(sets - 1), ages: [2]int32{int32(short >> tickShift), int32(long >> tickShift)}}
}

// Word is an entry as it was found. The zero Word is that of a flow which has none.
type Word struct {
	Value uint32
	Last  Tick // when it was used last
	place uint32
	found bool
}

// Tick is a time in units of 2^20 ns, modulo 2^32.
type Tick uint32

// TickOf returns the tick of a time.
func TickOf(t mono.Time) Tick { return Tick(t >> tickShift) }

// After reports whether t is later than u. They are less than 26 days apart.
func (t Tick) After(u Tick) bool { return int32(t-u) > 0 }

// Found reports whether the flow has an entry, however old.
func (w Word) Found() bool { return w.found }

// Tag makes a tag out of a flow's hash: two hashes are none.
func Tag(hash uint64) uint64 { return max(hash, tagBusy+1) }

func join(last Tick, value uint32) uint64 { return uint64(last)<<32 | uint64(value) }

// Find returns a flow's entry, however old.
func (t *Words) Find(tag uint64) Word {
	i := tag & t.mask
	set := &t.sets[i]
	for w := range set.tag {
		if set.tag[w].Load() != tag {
			continue
		}
		word := set.word[w].Load()
		if set.tag[w].Load() != tag { // another flow has just got the place
			continue
		}
		return Word{Value: uint32(word), Last: Tick(word >> 32), place: uint32(i)*Ways + uint32(w), found: true}
	}
	return Word{}
}

// Live reports whether an entry is there and has been used within its age.
func (t *Words) Live(now mono.Time, w Word) bool {
	return w.found && t.live(TickOf(now), join(w.Last, w.Value))
}

func (t *Words) live(now Tick, word uint64) bool {
	d := int32(now - Tick(word>>32))
	return d >= -tickSlack && d <= t.ages[uint32(word)/LongLived]
}

// Set gives an entry that was found another value, and says that it is used now. It
// reports false if the entry is no longer as it was found.
func (t *Words) Set(now mono.Time, w Word, value uint32) bool {
	return t.sets[w.place/Ways].word[w.place%Ways].CompareAndSwap(join(w.Last, w.Value), join(TickOf(now), value))
}

// Use says that an entry that was found is used now. It writes at most once a tick.
func (t *Words) Use(now mono.Time, w Word) {
	if TickOf(now) != w.Last {
		t.Set(now, w, w.Value)
	}
}

// Insert makes an entry for a flow that has none. It takes a place that is free, or that
// of the flow which has not been used for longest of those that are past their age. It
// reports false if there is none, and if another worker was faster.
func (t *Words) Insert(now mono.Time, tag uint64, value uint32) bool {
	set, at := &t.sets[tag&t.mask], TickOf(now)
	best, old, idle := -1, uint64(0), int32(0)
	for w := range set.tag {
		have := set.tag[w].Load()
		if have == tagFree {
			best, old = w, tagFree
			break
		}
		word := set.word[w].Load()
		if d := int32(at - Tick(word>>32)); have != tagBusy && !t.live(at, word) && (best < 0 || d > idle) {
			best, old, idle = w, have, d
		}
	}
	if best < 0 || !set.tag[best].CompareAndSwap(old, tagBusy) {
		return false
	}
	set.word[best].Store(join(at, value))
	set.tag[best].Store(tag)
	return true
}

// Count returns how many entries are live. It looks at all of them, and may be called
// from any goroutine.
func (t *Words) Count(now mono.Time) (n int) {
	at := TickOf(now)
	for i := range t.sets {
		set := &t.sets[i]
		for w := range set.tag {
			if set.tag[w].Load() > tagBusy && t.live(at, set.word[w].Load()) {
				n++
			}
		}
	}
	return n
}
