package control

import "time"

// idRetention is how long an ID stays with a key that is gone. Workers index
// their counters and held frames by ID, so that a reused one would mix two
// things up: it is far longer than any frame is held, and longer than a route
// or an interface usually flaps.
const idRetention = 10 * time.Minute

// ids gives keys small numbers that stay theirs: the same key gets the same
// number again, unless it was gone for idRetention and the numbers ran out.
type ids[K comparable] struct {
	limit int
	byKey map[K]int
	slots []slot[K]
	full  int // how often there was no number
}

type slot[K comparable] struct {
	key  K
	used bool      // in the last build
	gone time.Time // since when not used
}

func newIDs[K comparable](limit int) ids[K] {
	return ids[K]{limit: limit, byKey: make(map[K]int)}
}

// begin starts a build: whatever get does not ask for until end is gone.
func (t *ids[K]) begin() {
	for i := range t.slots {
		t.slots[i].used = false
	}
}

// end closes a build.
func (t *ids[K]) end(now time.Time) {
	for i := range t.slots {
		switch s := &t.slots[i]; {
		case s.used:
			s.gone = time.Time{}
		case s.gone.IsZero():
			s.gone = now
		}
	}
}

// get returns the key's number; false when all are taken.
func (t *ids[K]) get(key K, now time.Time) (int, bool) {
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
	oldest := -1
	for i := range t.slots {
		s := &t.slots[i]
		if s.used || s.gone.IsZero() || now.Sub(s.gone) < idRetention {
			continue
		}
		if oldest < 0 || s.gone.Before(t.slots[oldest].gone) {
			oldest = i
		}
	}
	if oldest < 0 {
		t.full++
		return 0, false
	}
	delete(t.byKey, t.slots[oldest].key)
	t.slots[oldest] = slot[K]{key: key, used: true}
	t.byKey[key] = oldest
	return oldest, true
}

// live reports whether the number is in use in the current build.
func (t *ids[K]) live(i int) bool { return t.slots[i].used }
