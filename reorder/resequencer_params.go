package reorder

import (
	"fmt"
	"time"

	"github.com/loomfabric/loom/internal/field"
	"github.com/loomfabric/loom/internal/flowtable"
	"github.com/loomfabric/loom/internal/stat"
	"github.com/loomfabric/loom/overlay"
)

// ResequencerParams are the tunables of ordered spraying's receiving side.
type ResequencerParams struct {
	// Hold is how long a packet at least waits for one before it that does not come, if
	// nothing proves that it is lost. Where the delays of paths differ by more than half
	// of it the wait is twice that difference.
	Hold time.Duration `yaml:"hold"`
	// MaxHold is the longest wait. Paths whose delays differ by more put packets out of
	// order.
	MaxHold time.Duration `yaml:"max_hold"`
	// Guard is what is allowed for where packets of one path may overtake each other,
	// as where a path is served by several cores. What is seen of that raises it.
	Guard time.Duration `yaml:"guard"`
	// Window is how far a packet may be ahead of the one that its flow waits for,
	// packets: 2 to 16384. One that is further ahead ends the wait.
	Window int `yaml:"window"`
	// Packets is the number of packets that may wait, by each worker, at most 65535. Each
	// takes a packet buffer. What does not fit ends its flow's wait.
	Packets int `yaml:"packets"`
	// Inactive, Flows and Selectors are the source's.
	Inactive  time.Duration `yaml:"-"`
	Flows     int           `yaml:"-"`
	Selectors int           `yaml:"-"`
	// Wire is the number of the scheme that sends such packets.
	Wire overlay.SchemeID `yaml:"-"`
}

// Validate reports the first parameter that makes no sense. The error is a
// [field.Error].
func (p *ResequencerParams) Validate() error {
	switch {
	case p.Hold < 8*time.Microsecond || p.Hold > p.MaxHold:
		return field.Errorf("hold", "use 8us to max_hold", "hold is %v and max_hold is %v", p.Hold, p.MaxHold)
	case p.MaxHold > time.Second:
		return field.Errorf("max_hold", "use at most a second", "max_hold is %v", p.MaxHold)
	case p.MaxHold > p.Inactive/2:
		return field.Errorf("max_hold", "use at most half of inactive", "max_hold is %v and inactive is %v", p.MaxHold, p.Inactive)
	case p.Guard < 0 || p.Guard > p.MaxHold:
		return field.Errorf("guard", "use 0 to max_hold", "guard is %v and max_hold is %v", p.Guard, p.MaxHold)
	case p.Window < 2 || p.Window > 1<<14:
		return field.Errorf("window", fmt.Sprintf("use 2 to %d", 1<<14), "a window of %d packets", p.Window)
	case p.Packets < 1 || p.Packets > MaxQueues:
		return field.Errorf("packets", fmt.Sprintf("use 1 to %d", MaxQueues), "%d packets", p.Packets)
	case p.Flows < flowtable.Ways || p.Flows > flowtable.MaxEntries || p.Flows&(p.Flows-1) != 0:
		return field.Errorf("flows", fmt.Sprintf("use a power of two from %d to %d", flowtable.Ways, flowtable.MaxEntries), "flow tables of %d entries", p.Flows)
	case p.Selectors < 1 || p.Selectors > 16:
		return field.Errorf("selectors", "use 1 to 16", "%d selectors", p.Selectors)
	}
	return nil
}

// ResequencerStats counts what a resequencer did.
type ResequencerStats struct {
	Packets   uint64 `stat:"arrived_frames" unit:"frames" help:"Frames that arrived with a number."`
	Sequences uint64 `help:"Flows whose numbers began, or began anew."`
	Held      uint64 `stat:"held_frames" unit:"frames" help:"Frames that had to wait for one before them."`
	Settled   uint64 `help:"Waits that ended because every path had delivered something that left later: what was missing is lost."`
	Expired   uint64 `help:"Waits that ended because they took too long."`
	Exhausted uint64 `help:"Waits that ended because there was no room for one more frame, or it was too far ahead."`
	Late      uint64 `stat:"late_frames" unit:"frames" help:"Frames that came when their flow did not wait for them any more, or are copies: these leave out of order."`
	Copies    uint64 `stat:"copied_frames" unit:"frames" help:"Frames dropped because another one with their number waits."`
	NoFlow    uint64 `stat:"no_flow_frames" unit:"frames" help:"Frames sent on as they came because the table of flows had no room."`
	Refusals  uint64 `help:"Messages that asked a leaf not to spray, because memory was short."`

	Waiting          int     `stat:"waiting_frames,gauge" unit:"frames" help:"Frames that wait."`
	WaitingPeak      int     `stat:"waiting_peak_frames,max" metric:"-" unit:"frames" help:"Most frames that ever waited at a time."`
	WaitingBytes     uint64  `stat:"waiting_bytes,gauge" unit:"bytes" help:"Bytes of the frames that wait."`
	WaitingBytesPeak uint64  `stat:"waiting_peak_bytes,max" metric:"-" unit:"bytes" help:"Most bytes that ever waited at a time."`
	HoldLimit        float64 `stat:"hold_limit_seconds,max" help:"How long frames wait at most, by what the delays of paths differ by."`
	Guard            float64 `stat:"guard_seconds,max" help:"What is allowed for packets of one path that overtake each other."`

	// The peaks say neither when nor how often, and are for answers and for results.
	WaitingDepth stat.Sizes `stat:"waiting_depth_frames" unit:"frames" help:"Frames that waited in a worker, at each one that has to."`
	BytesDepth   stat.Sizes `stat:"waiting_depth_bytes" unit:"bytes" help:"Bytes that waited in a worker, at each frame that has to."`
}
