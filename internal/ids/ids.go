// Package ids gives things small numbers that stay theirs, so that others may index by
// them. A number rests before it goes to another thing: whoever still knows the old thing
// by it must have forgotten it by then.
package ids

import (
	"maps"
	"slices"
	"time"
)

// Table gives keys numbers below a limit. The same key gets the same number again, unless
// it was gone for the table's rest and all numbers were taken. A Table is not safe for
// concurrent use.
type Table[K comparable] struct {
	limit int
	rest  time.Duration
	byKey map[K]int
	slots []slot[K]
	full  int
}

type slot[K comparable] struct {
	key  K
	used bool      // in the last round
	gone time.Time // since when not used
}

// New returns a table of numbers below limit, each of which rests so long after its key
// has gone.
func New[K comparable](limit int, rest time.Duration) Table[K] {
	return Table[K]{limit: limit, rest: rest, byKey: make(map[K]int)}
}

// Clone returns a copy of the table, to try something out with.
func (t *Table[K]) Clone() Table[K] {
	c := *t
	c.byKey, c.slots = maps.Clone(t.byKey), slices.Clone(t.slots)
	return c
}

// Begin starts a round: keys that Get does not ask for until End are gone.
func (t *Table[K]) Begin() {
	for i := range t.slots {
		t.slots[i].used = false
	}
}

// End closes a round. now is only compared with the times of other calls.
func (t *Table[K]) End(now time.Time) {
	for i := range t.slots {
		switch s := &t.slots[i]; {
		case s.used:
			s.gone = time.Time{}
		case s.gone.IsZero():
			s.gone = now
		}
	}
}

// Get returns the key's number; false when all are taken.
func (t *Table[K]) Get(key K, now time.Time) (int, bool) {
	if i, ok := t.byKey[key]; ok {
		t.slots[i].used = true
		return i, true
	}
	if len(t.slots) < t.limit {
		i := len(t.slots)
		t.slots = append(t.slots, slot[K]{key: key, used: true})
		t.byKey[key] = i
		return i, true
	}
	i := t.oldest()
	if i < 0 || now.Sub(t.slots[i].gone) < t.rest {
		t.full++
		return 0, false
	}
	delete(t.byKey, t.slots[i].key)
	t.slots[i] = slot[K]{key: key, used: true}
	t.byKey[key] = i
	return i, true
}

// oldest returns the number that has rested longest; -1: none rests.
func (t *Table[K]) oldest() int {
	oldest := -1
	for i := range t.slots {
		s := &t.slots[i]
		if s.used || s.gone.IsZero() {
			continue
		}
		if oldest < 0 || s.gone.Before(t.slots[oldest].gone) {
			oldest = i
		}
	}
	return oldest
}

// Wait returns how long it takes until a number is free for another key, as far as the
// table can tell; false: until one of the keys goes.
func (t *Table[K]) Wait(now time.Time) (time.Duration, bool) {
	if len(t.slots) < t.limit {
		return 0, true
	}
	i := t.oldest()
	if i < 0 {
		return 0, false
	}
	return max(0, t.rest-now.Sub(t.slots[i].gone)), true
}

// Len returns how many numbers were ever given.
func (t *Table[K]) Len() int { return len(t.slots) }

// Key returns the key that a number was given to last.
func (t *Table[K]) Key(i int) K { return t.slots[i].key }

// Live reports whether the number is in use in the present round.
func (t *Table[K]) Live(i int) bool { return t.slots[i].used }

// Full returns how often there was no number for a key.
func (t *Table[K]) Full() int { return t.full }
