// Package flowtable holds the one table of flows that schemes keep: 4-way
// set-associative, of a fixed size, and aged lazily, as the tables of
// programmable switches are (ConWeave §3.4). It reads no clock and allocates
// nothing after [New].
package flowtable

import (
	"iter"

	"github.com/loomfabric/loom/internal/mono"
)

const (
	// Ways is the number of flows that fit into a set, and the size of the smallest
	// table.
	Ways = 4
	// MaxEntries is the size of the largest table.
	MaxEntries = 1 << 24
)

// Entry is what a table knows of a flow. A V of up to 10 bytes, without words wider
// than 2, makes it 32 bytes: half a line of the cache. A time in V would cost its
// padding, so the user's time is not there.
type Entry[V any] struct {
	Last mono.Time // the flow's last packet; the user sets it
	Time mono.Time // the user's own
	hash uint32
	leaf tag
	V    V
}

// tag is a leaf's number with the state of an entry.
type tag uint16

const (
	used   tag = 1 << 15 // the entry belongs to a flow
	pinned tag = 1 << 14 // it neither ages nor is replaced
)

// MaxLeaves bounds the numbers of leaves.
const MaxLeaves = 1 << 14

// Hash returns the flow's hash.
func (e *Entry[V]) Hash() uint32 { return e.hash }

// Leaf returns the leaf at the other end of the flow.
func (e *Entry[V]) Leaf() uint16 { return uint16(e.leaf &^ (used | pinned)) }

// Is reports whether the entry is that of a flow.
func (e *Entry[V]) Is(hash uint32, leaf uint16) bool {
	return e.hash == hash && e.leaf&^pinned == tag(leaf)|used
}

// Pin keeps the flow in its place until Unpin, because something refers to it.
func (e *Entry[V]) Pin() { e.leaf |= pinned }

// Unpin ends Pin.
func (e *Entry[V]) Unpin() { e.leaf &^= pinned }

// Pinned reports whether the flow is kept in its place.
func (e *Entry[V]) Pinned() bool { return e.leaf&pinned != 0 }

// Remove frees the entry.
func (e *Entry[V]) Remove() { e.leaf = 0 }

// Table maps flows, by hash and leaf, to values of type V. A set holds flows whose
// hashes have the same low bits. A flow that has paused for longer than the table's
// age keeps its entry until another flow needs the place.
//
// A pointer to an entry stays valid. After an Insert the entry may be another flow's.
//
// A Table is owned by one worker; not safe for concurrent use.
type Table[V any] struct {
	sets    [][Ways]Entry[V]
	mask    uint32
	age     mono.Time
	cold    bool
	touched uint32 // keeps the compiler from dropping the reads of Touch
}

// New returns an empty table. The number of entries is a power of two from Ways to
// MaxEntries.
func New[V any](entries int, age mono.Time) Table[V] {
	sets := entries / Ways
	return Table[V]{sets: make([][Ways]Entry[V], sets), mask: uint32(sets - 1), age: age}
}

// SetAge changes the pause after which another flow may get an entry.
func (t *Table[V]) SetAge(age mono.Time) { t.age = age }

// First returns the first entry of a flow's set. Mostly that is the flow's, which
// [Entry.Is] tells. Loops over packets that ask it first save the search of the set.
func (t *Table[V]) First(hash uint32) *Entry[V] { return &t.sets[hash&t.mask][0] }

// Find returns a flow's entry, however old; nil if it has none.
func (t *Table[V]) Find(hash uint32, leaf uint16) *Entry[V] {
	set := &t.sets[hash&t.mask]
	for w := range set {
		if e := &set[w]; e.Is(hash, leaf) {
			return e
		}
	}
	return nil
}

// Aged reports whether a flow has paused for longer than the table's age. A pinned
// one has not.
func (t *Table[V]) Aged(now mono.Time, e *Entry[V]) bool {
	return now.Apart(e.Last, t.age) && e.leaf&pinned == 0
}

// Insert makes an entry with a zero value for a flow that has none, which has its
// last packet now. It takes a place that is free, or else that of the flow that has
// paused for longest. It returns nil if no flow of the set is aged, and for leaves
// that there cannot be.
func (t *Table[V]) Insert(now mono.Time, hash uint32, leaf uint16) *Entry[V] {
	set := &t.sets[hash&t.mask]
	w := t.place(now, set)
	if w < 0 || leaf >= MaxLeaves {
		return nil
	}
	e := &set[w]
	*e = Entry[V]{Last: now, hash: hash, leaf: tag(leaf) | used}
	return e
}

// Room reports whether Insert would find a place.
func (t *Table[V]) Room(now mono.Time, hash uint32) bool {
	return t.place(now, &t.sets[hash&t.mask]) >= 0
}

// place returns the way that the next flow of a set gets; -1: none.
func (t *Table[V]) place(now mono.Time, set *[Ways]Entry[V]) int {
	best := -1
	for w := range set {
		e := &set[w]
		if e.leaf == 0 {
			return w
		}
		if t.Aged(now, e) && (best < 0 || e.Last < set[best].Last) {
			best = w
		}
	}
	return best
}

// Index returns the number of an entry that is used. By it others can refer to a flow
// that is pinned.
func (t *Table[V]) Index(e *Entry[V]) int32 {
	i := e.hash & t.mask
	set := &t.sets[i]
	w := 0
	for w < Ways-1 && e != &set[w] {
		w++
	}
	return int32(i)*Ways + int32(w)
}

// At returns the entry of a number.
func (t *Table[V]) At(i int32) *Entry[V] { return &t.sets[uint32(i)/Ways][uint32(i)%Ways] }

// Seen says how many packets of a vector were of flows that the table did not know,
// or that had paused. If there are many, there may be more flows than fit the cache.
func (t *Table[V]) Seen(packets, unknown int) { t.cold = 4*unknown > packets }

// Cold reports whether the sets of the next vector are probably not in the cache:
// then the user should Touch them all first.
func (t *Table[V]) Cold() bool { return t.cold }

// Touch reads a flow's set, which is two lines if entries have 32 bytes. Done for
// a whole vector, it makes memory bring the sets all at a time. Otherwise each packet
// waits for its own.
func (t *Table[V]) Touch(hash uint32) {
	set := &t.sets[hash&t.mask]
	t.touched += set[0].hash + set[Ways/2].hash
}

// Sets returns the number of sets.
func (t *Table[V]) Sets() int { return len(t.sets) }

// SetOf returns the number of the set that a flow belongs to.
func (t *Table[V]) SetOf(hash uint32) int { return int(hash & t.mask) }

// All yields the entries, from one set to before another, whose flows are not aged.
// Whoever must not look for long at a time asks for the table in parts.
func (t *Table[V]) All(now mono.Time, from, to int) iter.Seq[*Entry[V]] {
	return func(yield func(*Entry[V]) bool) {
		for i := max(from, 0); i < min(to, len(t.sets)); i++ {
			for w := range t.sets[i] {
				e := &t.sets[i][w]
				if e.leaf != 0 && !t.Aged(now, e) && !yield(e) {
					return
				}
			}
		}
	}
}
