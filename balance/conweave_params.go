package balance

import (
	"fmt"
	"time"

	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// ConWeaveParams are the tunables of ConWeave's source side (ConWeave Tables 1
// and 3). [DatacenterConWeave] and [LabConWeave] return complete sets to start
// from.
type ConWeaveParams struct {
	// Reply is θ_reply: a path that has not brought a request to the leaf and
	// its reply back for so long is congested (§3.2.1).
	Reply time.Duration
	// PathBusy is θ_path_busy: how long a path is avoided after a NOTIFY; about
	// as long as a queue at the ECN threshold takes to drain (§4.1).
	PathBusy time.Duration
	// Inactive is θ_inactive: after a pause of that length nothing of a flow is
	// under way any more, and its next packet starts a new epoch (§3.2.3). At
	// most [overlay.MaxInactive], and the same at all leaves.
	Inactive time.Duration
	// Samples is how many random paths are looked at when a new one is needed,
	// 1 to 16 (§3.2.2).
	Samples int
	// Selectors is how many choices the next tier has, 1 to 16. With 1 a path is
	// an uplink, and each flow has one selector of 16 by its hash: all uplinks
	// lead it over the same of several parallel links behind the spine. With more,
	// a path is an uplink and a selector below that number.
	Selectors int
	// Connections is the size of the connection table: a power of two, 4 at
	// least.
	Connections int
}

// DatacenterConWeave returns the paper's values for a leaf-spine fabric of
// 100 Gb/s (Table 3).
func DatacenterConWeave() ConWeaveParams {
	return ConWeaveParams{
		Reply:       8 * time.Microsecond,
		PathBusy:    8 * time.Microsecond,
		Inactive:    300 * time.Microsecond,
		Samples:     2,
		Selectors:   1,
		Connections: 64 << 10,
	}
}

// LabConWeave returns parameters for fabrics in software on shared cores, with
// links of some 100 Mb/s to 1 Gb/s: a round trip takes a millisecond when a
// worker waits for a core, and 100 kB take as long on such a link (§4.1).
// θ_inactive is the paper's for its testbed (§4.2).
func LabConWeave() ConWeaveParams {
	p := DatacenterConWeave()
	p.Reply = time.Millisecond
	p.PathBusy = time.Millisecond
	p.Inactive = 10 * time.Millisecond
	return p
}

// Validate reports the first parameter that makes no sense.
func (p *ConWeaveParams) Validate() error {
	switch {
	case p.Inactive <= 0 || p.Inactive > overlay.MaxInactive:
		return fmt.Errorf("inactive time is %v: use a time above 0 and up to %v, which 16-bit timestamps can tell", p.Inactive, overlay.MaxInactive)
	case p.Reply <= 0 || p.Reply > p.Inactive:
		return fmt.Errorf("reply cut-off is %v: use a time above 0 and up to the inactive time, %v", p.Reply, p.Inactive)
	case p.PathBusy < 0 || p.PathBusy > time.Second:
		return fmt.Errorf("path busy time is %v: use 0 to a second", p.PathBusy)
	case p.Samples < 1 || p.Samples > maxSamples:
		return fmt.Errorf("%d path samples: use 1 to %d", p.Samples, maxSamples)
	case p.Selectors < 1 || p.Selectors > maxSelectors:
		return fmt.Errorf("%d selectors: use 1 to %d", p.Selectors, maxSelectors)
	case p.Connections < connWays || p.Connections > 1<<24 || p.Connections&(p.Connections-1) != 0:
		return fmt.Errorf("connection table of %d entries: use a power of two from %d to %d", p.Connections, connWays, 1<<24)
	}
	return nil
}

const (
	maxSamples   = 16
	maxSelectors = 16 // a PathID has 4 bits for them
)

// ConWeaveStats counts what ConWeave's source side did.
type ConWeaveStats struct {
	Epochs   uint64 // that began
	Requests uint64 // RTT_REQUESTs sent
	CutOffs  uint64 // epochs without a reply within θ_reply
	Reroutes uint64 // TAILs sent
	Aborts   uint64 // attempts at a reroute that found no path: tried again after θ_reply
	Refused  uint64 // attempts given up because the leaf is short of queues (not among Aborts)
	Inactive uint64 // epochs that a pause of θ_inactive ended,
	Unclear  uint64 // of those, some that still waited for a CLEAR
	Moves    uint64 // flows whose path disappeared

	Replies     uint64 // RTT_REPLYs that came in time
	LateReplies uint64 // that came after θ_reply
	Clears      uint64 // CLEARs
	Notifies    uint64 // NOTIFYs

	// Packets that went without ConWeave, by hash as under ecmp.
	Overflow  uint64 // the connection table had no room
	Incapable uint64 // the leaf does not speak it

	// Control packets that were ignored.
	StaleReplies  uint64 // RTT_REPLYs of another epoch, or that nobody waits for
	StaleClears   uint64 // CLEARs, likewise
	UnknownFlow   uint64 // for a flow that is not in the table
	UnknownLeaf   uint64 // from a leaf that there is not
	UnknownPath   uint64 // NOTIFYs of a path that no flow could have taken
	UnknownOpcode uint64 // that are none of the three

	// ReplyTime is how long replies took, also late ones.
	ReplyTime reorder.Histogram
}
