package overlay

import (
	"iter"
	"math/bits"
	"time"
)

// An address that moves more than maxMoves times within moveWindow stays where it is
// for [FDBHold].
const (
	maxMoves   = 5
	moveWindow = uint32(time.Second >> fdbTickShift)
	holdTicks  = uint32(FDBHold >> fdbTickShift)

	// FDBHold is how long an address that moved too often stays where it is.
	FDBHold = 5 * time.Second
)

const (
	moveSets  = 1024 // of fdbWays records
	moveNotes = 8    // held addresses that are remembered
)

// fdbMoves counts how often addresses have moved of late. Where more of them move than
// there is room for, those that moved most are kept.
type fdbMoves struct {
	sets [moveSets][fdbWays]moveCount
	held uint64 // how often an address began to be held
	last [moveNotes]FDBMove
}

// moveCount is what is known of one address.
type moveCount struct {
	key   uint64
	began uint32 // tick of its first move within the window, or of the one after which it is held
	moves uint32 // since then; above maxMoves: it is held
}

// over reports whether the record says nothing any more.
func (c *moveCount) over(tick uint32) bool {
	if c.moves > maxMoves {
		return tick-c.began >= holdTicks
	}
	return tick-c.began > moveWindow
}

// FDBMove is a move that was ignored, since the address had moved too often.
type FDBMove struct {
	VNI  uint16 // index
	MAC  MAC
	At   Dest // where it stays
	Seen Dest // where else its frames come from
}

// Loop reports whether a host behind a local port hears itself from the fabric.
func (m FDBMove) Loop() bool { return !m.At.Remote() && m.Seen.Remote() }

// count notes that the address wants to move. It returns its record, or nil if there is
// no room for one, and whether it was held before.
func (m *fdbMoves) count(key uint64, tick uint32) (c *moveCount, held bool) {
	set := &m.sets[bits.RotateLeft64(fdbHash(key), 16)%moveSets]
	for i := range set {
		switch x := &set[i]; {
		case x.key == key && !x.over(tick):
			if x.moves > maxMoves {
				return x, true
			}
			x.moves++
			return x, false
		case x.key == key || x.over(tick):
			if c == nil || !c.over(tick) || x.key == key {
				c = x
			}
		case c == nil && x.moves <= maxMoves, c != nil && x.moves < c.moves && !c.over(tick):
			c = x
		}
	}
	if c != nil {
		*c = moveCount{key, tick, 1}
	}
	return c, false
}

// mayMove reports whether an address may move from one place to another. The first time
// that it may not is remembered. An address that is seen here and behind a peer is held
// here: more likely than not a loop brings its frames back.
func (f *FDB) mayMove(key uint64, from, to Dest, tick uint32) bool {
	c, held := f.moves.count(key, tick)
	switch {
	case held:
		return false
	case c == nil || c.moves <= maxMoves:
		return true
	}
	c.began = tick
	home := from.Remote() && !to.Remote()
	if home {
		from, to = to, from
	}
	f.moves.last[f.moves.held%moveNotes] = FDBMove{uint16(key >> 48), MACFromUint64(key), from, to}
	f.moves.held++
	return home
}

// Held returns how often an address began to be held.
func (f *FDB) Held() uint64 { return f.moves.held }

// HeldSince yields the addresses that began to be held since Held returned n: the last
// eight at most, the oldest one first.
func (f *FDB) HeldSince(n uint64) iter.Seq[FDBMove] {
	return func(yield func(FDBMove) bool) {
		for i := max(n, f.moves.held-min(f.moves.held, moveNotes)); i < f.moves.held; i++ {
			if !yield(f.moves.last[i%moveNotes]) {
				return
			}
		}
	}
}
