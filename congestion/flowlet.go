package congestion

import (
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/loomfabric/loom/internal/mono"
)

// DefaultFlowlets is the size of CONGA's flowlet table (§3.4).
const DefaultFlowlets = 64 << 10

// NoUplink stands for the uplink of a flow that never had one.
const NoUplink uint8 = 0xff

// Detector is the way to find the gaps between flowlets.
type Detector uint8

// The detectors.
const (
	// Timestamp ends a flowlet when more than T_fl has passed since its last packet.
	Timestamp Detector = iota
	// AgeBit is the paper's detector: a timer that runs every T_fl ends a flowlet
	// when it finds the age bit set twice in a row. The gap is T_fl to 2·T_fl
	// (§3.4).
	AgeBit
)

// String returns the detector's name in the configuration.
func (d Detector) String() string {
	switch d {
	case Timestamp:
		return "timestamp"
	case AgeBit:
		return "agebit"
	}
	return fmt.Sprintf("detector %d", uint8(d))
}

// UnmarshalText reads a detector's name.
func (d *Detector) UnmarshalText(b []byte) error {
	for *d = Timestamp; *d <= AgeBit; *d++ {
		if d.String() == string(b) {
			return nil
		}
	}
	return fmt.Errorf("flowlet detector %q does not exist; use timestamp or agebit", b)
}

// MarshalText writes the detector's name.
func (d Detector) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// FlowletStats counts flowlets. Started is the sum of Moved, Kept and the flowlets
// of flows that the table had not seen.
type FlowletStats struct {
	Started uint64 `stat:"started" help:"Flowlets that were given an uplink."`
	Moved   uint64 `stat:"moved" help:"Flowlets started on another uplink than the flow's last one."`
	Kept    uint64 `stat:"kept" help:"Flowlets started on the uplink of the flow's last one."`
	Expired uint64 `stat:"expired" help:"Flowlets started after a pause that ended the flow's last one."`
}

// Flowlets is the Flowlet Table of CONGA §3.4, direct-mapped by flow hash. It takes
// two flows that share an entry for one flow, which only costs some opportunities
// to balance (Remark 1).
//
// An entry is one word without pointers, of a layout that a BPF map can hold:
//
//	63        8 7       6    4 3       0
//	 stamp(56)   valid   0      uplink(4)
//
// stamp is the time of the last packet: in nanoseconds (wrapping after two
// years) for the [Timestamp] detector, in periods T_fl for [AgeBit]. The paper's
// timer sets the age bit at its first run after a packet and ends the flowlet at
// the second. At that time the stamp is two periods old, so that no timer has to
// visit the table. A stamp from the future counts as the present: a clock that
// steps back ends no flowlet.
//
// A Flowlets is owned by one worker; it is not safe for concurrent use.
type Flowlets struct {
	entries []uint64
	mask    uint32
	limit   int64 // largest age of an active flowlet's stamp

	// For AgeBit: T_fl, and the period of the last lookup.
	gap    uint64
	start  uint64 // since the clock's lowest value
	period uint64

	stats FlowletStats
}

const (
	flowletStampShift = 8
	flowletValid      = 1 << 7
	flowletUplink     = MaxTags - 1
)

// NewFlowlets returns an empty table with the given number of entries, rounded up
// to a power of two. gap is T_fl and must be positive.
func NewFlowlets(entries int, gap time.Duration, d Detector) *Flowlets {
	return NewFlowletsIn(make([]uint64, 1<<bits.Len32(uint32(max(entries, 1)-1))), gap, d)
}

// NewFlowletsIn returns a table in memory that is all zero, a power of two of words. The XDP
// programs of the fast path, which keep flowlets there beside the table's owner, write whole
// words of the same layout (bpf/fast_access.h). A word that both write at the same time is the
// last writer's: then a flow has begun two flowlets at once.
func NewFlowletsIn(memory []uint64, gap time.Duration, d Detector) *Flowlets {
	f := &Flowlets{entries: memory, mask: uint32(len(memory) - 1), limit: int64(gap)}
	if d == AgeBit {
		f.limit, f.gap = 1, uint64(gap)
	}
	return f
}

// Withdraw moves the table out of the memory that it was made in, which may go then.
func (f *Flowlets) Withdraw() { f.entries = slices.Clone(f.entries) }

// Terms returns by what the table ends a flowlet whose packets come at now: its stamp is older
// than limit. Stamps count periods of so many ns, or nanoseconds if period is 0.
func (f *Flowlets) Terms() (limit int64, period uint64) { return f.limit, f.gap }

// SetGap changes T_fl, which must be positive, at now. Flowlets that are active by
// the new gap go on. With [AgeBit] SetGap visits the whole table, and each entry
// keeps its age in periods.
func (f *Flowlets) SetGap(now mono.Time, gap time.Duration) {
	if f.gap == 0 {
		f.limit = int64(gap)
		return
	}
	before := f.agePeriod(now)
	f.gap = uint64(gap)
	f.period = (uint64(now) ^ 1<<63) / f.gap
	f.start = f.period * f.gap
	shift := (f.period - before) << flowletStampShift
	for i, e := range f.entries {
		if e&flowletValid != 0 {
			f.entries[i] = e + shift
		}
	}
}

// stamp returns now in the detector's unit, shifted to its place.
func (f *Flowlets) stamp(now mono.Time) uint64 {
	if f.gap == 0 {
		return uint64(now) << flowletStampShift
	}
	return f.agePeriod(now) << flowletStampShift
}

// agePeriod returns the number of the period that contains now. It divides only
// when the period differs from the last call's, since packets come in bursts.
func (f *Flowlets) agePeriod(now mono.Time) uint64 {
	since := uint64(now) ^ 1<<63
	if since-f.start >= f.gap {
		f.period = since / f.gap
		f.start = f.period * f.gap
	}
	return f.period
}

// ended reports whether the flowlet of an entry has ended at the time stamp.
func (f *Flowlets) ended(entry, stamp uint64) bool {
	return int64(stamp-entry&^(1<<flowletStampShift-1))>>flowletStampShift > f.limit
}

// Lookup returns the uplink of a flow's last flowlet, or [NoUplink] if there was
// none, and whether that flowlet is still active. Lookup changes nothing.
func (f *Flowlets) Lookup(hash uint32, now mono.Time) (uplink uint8, active bool) {
	fl, _ := f.Find(hash, now)
	return fl.Uplink, fl.Active
}

// Stamp is a time in the table's own unit.
type Stamp uint64

// Stamp returns now for [Flowlets.Packet]; the packets of a burst share it.
func (f *Flowlets) Stamp(now mono.Time) Stamp { return Stamp(f.stamp(now)) }

// Packet is [Flowlets.Lookup], and notes the packet if the flowlet is active. It is
// small enough to be inlined.
func (f *Flowlets) Packet(hash uint32, at Stamp) (uplink uint8, active bool) {
	e := &f.entries[hash&f.mask]
	if *e&flowletValid == 0 {
		return NoUplink, false
	}
	uplink = uint8(*e & flowletUplink)
	if f.ended(*e, uint64(at)) {
		return uplink, false
	}
	*e = uint64(at) | flowletValid | uint64(uplink)
	return uplink, true
}

// Set starts a flowlet on an uplink with a packet at now.
func (f *Flowlets) Set(hash uint32, uplink uint8, now mono.Time) {
	e := &f.entries[hash&f.mask]
	stamp := f.stamp(now)
	f.stats.Started++
	if *e&flowletValid != 0 {
		if uint8(*e&flowletUplink) == uplink {
			f.stats.Kept++
		} else {
			f.stats.Moved++
		}
		if f.ended(*e, stamp) {
			f.stats.Expired++
		}
	}
	*e = stamp | flowletValid | uint64(uplink&flowletUplink)
}

// Stats returns the counters.
func (f *Flowlets) Stats() FlowletStats { return f.stats }

// Len returns the number of entries.
func (f *Flowlets) Len() int { return len(f.entries) }

// Flowlet is an entry of the table, for inspection.
type Flowlet struct {
	Slot   uint32 // flow hash modulo the size of the table
	Uplink uint8
	Active bool
	Idle   time.Duration // since the last packet; to T_fl with the AgeBit detector
}

// Find returns the entry of a flow; ok is false if it was never used.
func (f *Flowlets) Find(hash uint32, now mono.Time) (fl Flowlet, ok bool) {
	slot := hash & f.mask
	e := f.entries[slot]
	if e&flowletValid == 0 {
		return Flowlet{Slot: slot, Uplink: NoUplink}, false
	}
	stamp := f.stamp(now)
	idle := max(int64(stamp-e&^(1<<flowletStampShift-1))>>flowletStampShift, 0)
	if f.gap != 0 {
		idle *= int64(f.gap)
	}
	return Flowlet{slot, uint8(e & flowletUplink), !f.ended(e, stamp), time.Duration(idle)}, true
}
