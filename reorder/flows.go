package reorder

import (
	"github.com/loomfabric/loom/internal/flowtable"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
)

// flow is an entry of the flow table (ConWeave §3.4.2): 32 bytes without pointers.
// Last is the arrival of the epoch's last packet. Time is that of the epoch's last
// packet of the OLD path, t^RX of Appendix A. While queue says that something is held,
// the entry is pinned.
type flow flowtable.Entry[flowFields]

type flowFields struct {
	tx    overlay.Tstamp // of the packet of Time
	tail  overlay.Tstamp // TAIL_TX_TSTAMP: tells one reroute from another
	sent  overlay.Tstamp // the latest TX_TSTAMP of the epoch
	queue uint16         // plus one; 0: nothing is held
	epoch overlay.Epoch
	flags uint8
}

// Flags of a flow, about the present epoch.
const (
	flowOld       = 1 << iota // Time and tx are meant
	flowTailKnown             // tail is meant
	flowTailSeen              // the TAIL has arrived
	flowFlushed               // T_resume expired before the TAIL arrived
	flowGaveUp                // there was no room: packets pass as they come
	flowOvertook              // what an older epoch held was sent on before its TAIL came

	// A packet was sent on that must not be followed by one of an older epoch. If
	// there is none, all that came of the present one is held.
	flowPassed = flowOld | flowTailSeen | flowFlushed | flowGaveUp
)

// entry returns e as what the table knows.
func (e *flow) entry() *flowtable.Entry[flowFields] { return (*flowtable.Entry[flowFields])(e) }

// find returns the entry of a packet's flow; nil if there is no room for it. fresh says
// that nothing is known of the flow.
func (c *ConWeave) find(now mono.Time, p *Arrival) (e *flow, fresh bool) {
	if e := c.table.Find(p.Hash, p.Leaf); e != nil {
		return (*flow)(e), c.table.Aged(now, e)
	}
	e = (*flow)(c.table.Insert(now, p.Hash, p.Leaf))
	return e, e != nil
}

// renew starts an epoch with its first packet. Nothing must be held.
func (e *flow) renew(f *overlay.Fabric) {
	e.V.epoch, e.V.flags, e.V.sent = f.Epoch, 0, f.TxTstamp
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
	if f.Epoch != e.V.epoch {
		if ahead > 0 || ahead == 0 && e.V.epoch.Before(f.Epoch) {
			return newer
		}
		return older
	}
	switch {
	case e.V.flags&flowTailKnown == 0:
	case f.Tail || f.Rerouted:
		// A reroute has one TAIL: another one makes it another reroute.
		if f.Arg != e.V.tail {
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
	apart := now.Sub(e.Last).Microseconds()
	slower := int64(overlay.Tstamp(apart) - (f.TxTstamp - e.V.sent)) // this one by so much, or the other one by the rest
	below, above := apart-slower, apart-slower+wrap
	after := slower > wrap/2
	if slower > near && slower < wrap-near {
		switch {
		case e.V.epoch.Before(f.Epoch):
			after = below <= 0
		case f.Epoch.Before(e.V.epoch), f.Epoch == e.V.epoch:
			after = false
		}
	}
	if after {
		return above
	}
	return below
}
