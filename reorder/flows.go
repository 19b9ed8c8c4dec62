package reorder

import (
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
)

// ways is the associativity of the flow table (ConWeave §3.4.2).
const ways = 4

// flow is what the destination knows of a flow: 32 bytes without pointers.
type flow struct {
	hash  uint32
	leaf  uint16
	epoch overlay.Epoch
	flags uint8
	last  mono.Time // arrival of the epoch's last packet; longAgo: the entry is free
	rx    mono.Time // arrival of the epoch's last packet of the OLD path, t^RX of Appendix A
	tx    overlay.Tstamp
	tail  overlay.Tstamp // TAIL_TX_TSTAMP: tells one reroute from another
	sent  overlay.Tstamp // the latest TX_TSTAMP of the epoch
	queue uint16         // plus one; 0: nothing is held
}

// Flags of a flow, about the present epoch.
const (
	flowOld       = 1 << iota // rx and tx are meant
	flowTailKnown             // tail is meant
	flowTailSeen              // the TAIL has arrived
	flowFlushed               // T_resume expired before the TAIL arrived
	flowGaveUp                // there was no room: packets pass as they come
	flowOvertook              // what an older epoch held was sent on before its TAIL came

	// A packet was sent on that must not be followed by one of an older epoch. If
	// there is none, all that came of the present one is held.
	flowPassed = flowOld | flowTailSeen | flowFlushed | flowGaveUp
)

// expired reports whether last lies further from now than limit. A last from
// the far future is as good as one from the far past: the clock has jumped.
func expired(now, last, limit mono.Time) bool { return uint64(now-last+limit) > 2*uint64(limit) }

// flows is the flow table.
type flows struct {
	sets    [][ways]flow
	mask    uint32
	ageing  mono.Time // 2·θ_inactive
	touched uint32    // so that touch is not compiled away
}

func newFlows(entries int, ageing mono.Time) flows {
	t := flows{sets: make([][ways]flow, entries/ways), mask: uint32(entries/ways - 1), ageing: ageing}
	for i := range t.sets {
		for w := range t.sets[i] {
			t.sets[i][w].last = longAgo
		}
	}
	return t
}

// touch reads both cache lines of the set that a flow belongs to.
func (t *flows) touch(hash uint32) {
	set := &t.sets[hash&t.mask]
	t.touched += set[0].hash + set[2].hash
}

// at returns the entry of an index that get returned.
func (t *flows) at(i int32) *flow { return &t.sets[i/ways][i%ways] }

// get returns the flow's entry and its index. fresh says that nothing is known
// of it. Without an entry that is free or aged it returns nil.
func (t *flows) get(now mono.Time, leaf uint16, hash uint32) (e *flow, index int32, fresh bool) {
	i := hash & t.mask
	set := &t.sets[i]
	for w := range set {
		e := &set[w]
		if e.hash == hash && e.leaf == leaf {
			fresh := e.queue == 0 && expired(now, e.last, t.ageing)
			return e, int32(i)*ways + int32(w), fresh
		}
	}
	best := -1
	for w := range set {
		e := &set[w]
		if e.queue == 0 && expired(now, e.last, t.ageing) && (best < 0 || e.last < set[best].last) {
			best = w
		}
	}
	if best < 0 {
		return nil, 0, false
	}
	set[best] = flow{hash: hash, leaf: leaf}
	return &set[best], int32(i)*ways + int32(best), true
}

// renew starts an epoch with its first packet. Nothing must be held.
func (e *flow) renew(f *overlay.Fabric) {
	e.epoch, e.flags, e.sent = f.Epoch, 0, f.TxTstamp
}

// order is a packet's place in a flow's sequence of epochs.
type order uint8

const (
	same order = iota
	newer
	older
)

// place tells whether a packet belongs to the flow's epoch, to a newer or to an
// older one. Two bits cannot tell that alone: after a source has restarted or
// has forgotten the flow, any epoch may follow any other, the same one too. What
// was sent later is newer (footnote 6 of ConWeave §3.4); the epoch decides where
// timestamps do not.
//
// ahead is how many µs later it was sent than what was sent last of the epoch.
func (e *flow) place(f *overlay.Fabric, ahead int64) order {
	if f.Epoch != e.epoch {
		if ahead > 0 || ahead == 0 && e.epoch.Before(f.Epoch) {
			return newer
		}
		return older
	}
	switch {
	case e.flags&flowTailKnown == 0:
	case f.Tail || f.Rerouted:
		// A reroute has one TAIL: another one makes it another reroute.
		if f.Arg != e.tail {
			if ahead >= 0 {
				return newer
			}
			return older
		}
	case ahead > 0:
		return newer // the OLD path ended with the TAIL, and this was sent after REROUTED
	}
	return same
}

// ahead returns how many µs later a packet was sent than what was sent last of the
// epoch. Their timestamps tell that modulo 65 ms; it should be as much as lies
// between their arrivals, and of what timestamps allow the nearest to that is taken.
// If even that differs by so much that a packet must have been under way for long,
// as when a leaf did not get to run, the epoch tells: only packets of the present one
// and of the one before can be, those of the present one because they wait for longer
// on the OLD path.
func (e *flow) ahead(now mono.Time, f *overlay.Fabric) int64 {
	const wrap, near = 1 << 16, 1 << 14
	apart := now.Sub(e.last).Microseconds()
	slower := int64(overlay.Tstamp(apart) - (f.TxTstamp - e.sent)) // this one by so much, or the other one by the rest
	below, above := apart-slower, apart-slower+wrap
	after := slower > wrap/2
	if slower > near && slower < wrap-near {
		switch {
		case e.epoch.Before(f.Epoch):
			after = below <= 0
		case f.Epoch.Before(e.epoch), f.Epoch == e.epoch:
			after = false
		}
	}
	if after {
		return above
	}
	return below
}
