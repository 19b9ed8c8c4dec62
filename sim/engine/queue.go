package engine

import "math/bits"

// queue holds the events that are to come, in a hierarchy of wheels: each level
// has a slot for every value of six bits of the time, and an event stands on
// the level of the highest bit in which its time differs from base. The next
// events are therefore in the first slot of the lowest level that has any. When
// it is reached, a slot with few events is sorted into near; one with more is
// dealt out to the levels below, so that an event is moved about as often as
// the logarithm, to base 64, of how many there are.
//
// Equal times need no numbers to stay in the order of scheduling. Slots are
// lists that are appended to; a slot is dealt out in its order when the levels
// below are empty, so what goes to them later was scheduled later; and near is
// sorted by insertion after equals.
//
// A hold (schedule one, take one) costs some 50 ns with 10 000 events
// pending, where a 4-ary heap of the same events costs 200.
type queue struct {
	near    []event // the next ones, in order, from first on
	first   int
	nearEnd Time // near has all events before it, and no others
	base    Time // at or before all events that are not in near, and the clock
	n       int

	used  [levels]uint64 // which slots have events
	slots [levels][slotsPerLevel]list
	slab  []event // of the events in slots; 0 is no event
	free  uint32  // list of entries that are not in use
}

const (
	slotBits      = 6
	slotsPerLevel = 1 << slotBits
	levels        = (63 + slotBits - 1) / slotBits
	// A slot with this many events or fewer is sorted rather than dealt out.
	few = 16
	// With more events than this in near, none is inserted among them.
	many = 64
)

// event is an entry of the queue. It has no pointers: the garbage collector
// does not look into the queue.
type event struct {
	at   Time
	arg  uint64
	id   ID
	next uint32 // in a list of the slab
}

// list is a list of events by their place in the slab. It has at least one if
// its slot is used, and no meaning otherwise.
type list struct{ head, tail uint32 }

func newQueue() queue {
	return queue{near: make([]event, 0, 2*many), slab: make([]event, 1, 1024)}
}

// push adds an event that is not before the clock.
func (q *queue) push(ev event) {
	q.n++
	if ev.at < q.nearEnd {
		if k := len(q.near); k-q.first <= many || ev.at >= q.near[k-1].at {
			q.insert(ev)
			return
		}
		q.spill()
	}
	q.add(ev)
}

// add puts an event into its slot.
func (q *queue) add(ev event) {
	i := q.free
	if i == 0 {
		i = uint32(len(q.slab))
		q.slab = append(q.slab, ev)
	} else {
		q.free = q.slab[i].next
		q.slab[i] = ev
	}
	q.link(i, ev.at)
}

// link appends the event at slab[i] to its slot.
func (q *queue) link(i uint32, at Time) {
	level := uint(0)
	if diff := uint64(at ^ q.base); diff != 0 {
		level = uint(bits.Len64(diff)-1) / slotBits
	}
	slot := uint(at>>(level*slotBits)) % slotsPerLevel
	l := &q.slots[level][slot]
	if q.used[level]&(1<<slot) == 0 {
		q.used[level] |= 1 << slot
		l.head = i
	} else {
		q.slab[l.tail].next = i
	}
	l.tail = i
}

// insert puts an event into near, behind the events of the same time.
func (q *queue) insert(ev event) {
	if len(q.near) == cap(q.near) && q.first > len(q.near)/2 {
		q.near = q.near[:copy(q.near, q.near[q.first:])]
		q.first = 0
	}
	q.near = append(q.near, ev)
	i := len(q.near) - 1
	for ; i > q.first && ev.at < q.near[i-1].at; i-- {
		q.near[i] = q.near[i-1]
	}
	q.near[i] = ev
}

// spill puts the events of near into slots: what was few has become many. They
// all lie in the slot that base is the start of, and the levels below that are
// empty.
func (q *queue) spill() {
	for _, ev := range q.near[q.first:] {
		q.add(ev)
	}
	q.near, q.first = q.near[:0], 0
	q.nearEnd = q.base
}

// peek returns the next event, nil if there is none at until or before. It
// does not look further ahead than until: the clock may stop there.
func (q *queue) peek(until Time) *event {
	if q.first == len(q.near) && !q.refill(until) {
		return nil
	}
	if ev := &q.near[q.first]; ev.at <= until {
		return ev
	}
	return nil
}

// earliest returns the time of the next event, Never if there is none. Unlike peek it
// changes nothing: the clock may still stop long before that event.
func (q *queue) earliest() Time {
	if q.first < len(q.near) {
		return q.near[q.first].at
	}
	for level := range q.used {
		if q.used[level] == 0 {
			continue
		}
		l := q.slots[level][bits.TrailingZeros64(q.used[level])]
		at := Never
		for i := l.head; ; i = q.slab[i].next {
			at = min(at, q.slab[i].at)
			if i == l.tail {
				return at
			}
		}
	}
	return Never
}

// drop takes the event away that peek returned.
func (q *queue) drop() {
	q.first++
	q.n--
}

// refill fills near, which is empty, from the next slot, and reports whether it
// could: the slot must not start after until.
func (q *queue) refill(until Time) bool {
	if q.n == 0 {
		return false
	}
	q.near, q.first = q.near[:0], 0
	for {
		level := uint(0)
		for q.used[level] == 0 {
			level++
		}
		slot := uint(bits.TrailingZeros64(q.used[level]))
		shift := level * slotBits
		start := q.base&^(1<<(shift+slotBits)-1) | Time(slot)<<shift
		if start > until {
			return false
		}
		q.base = start
		q.used[level] &^= 1 << slot
		l := q.slots[level][slot]
		if q.simple(l) {
			q.sort(l)
			if q.nearEnd = start + 1<<shift; q.nearEnd < start {
				q.nearEnd = Never // the last slot of all
			}
			return true
		}
		for i := l.head; ; {
			next := q.slab[i].next
			q.link(i, q.slab[i].at)
			if i == l.tail {
				break
			}
			i = next
		}
	}
}

// simple reports whether a list is better sorted than dealt out: it is short,
// or in order of time already, as all of level 0 and much of a network in step is.
func (q *queue) simple(l list) bool {
	last, sorted := Time(0), true
	for i, n := l.head, 1; ; i, n = q.slab[i].next, n+1 {
		at := q.slab[i].at
		sorted = sorted && at >= last
		last = at
		if !sorted && n > few {
			return false
		}
		if i == l.tail {
			return true
		}
	}
}

// sort moves a slot's events to near.
func (q *queue) sort(l list) {
	for i := l.head; ; i = q.slab[i].next {
		q.insert(q.slab[i])
		if i == l.tail {
			break
		}
	}
	q.slab[l.tail].next = q.free
	q.free = l.head
}
