package balance

import (
	"fmt"
	"time"

	"github.com/loomfabric/loom/internal/flowtable"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// conweaveSection is what both sides of ConWeave are told.
var conweaveSection = &Section{
	Name: "conweave",
	Summary: "ConWeave are the parameters of schemes conweave and conweave-informed, and of what puts rerouted packets in order. " +
		"The second part counts on every leaf, whatever its own scheme: other leaves may reroute. " +
		"All leaves of a fabric should have the same, `inactive` above all.",
	New:      newConWeaveParams,
	Profiles: []Profile{Datacenter, Lab, Auto},

	Reloadable: []string{"reply", "reply_extra", "path_busy", "samples", "selectors", "connections"},
}

// ConWeaveParams are the tunables of ConWeave (Tables 1 and 3, Appendix A), of
// the source's side and of the destination's.
type ConWeaveParams struct {
	Source      ConWeaveSource `yaml:",inline"`
	Destination reorder.Params `yaml:",inline"`
	// Auto says which times follow from measured round trips.
	Auto AutoTimes `yaml:"-"`
}

// AutoTimes says which times follow from measured round trips.
type AutoTimes struct{ Reply, Inactive, ResumeExtra, ResumeDefault, MaxHold bool }

// SetAuto makes the times follow from round trips that the configuration has not
// given under profile auto. It is called when all that was given is in p. Until round
// trips are known they are the lab's, as far as these fit what is given: times that are
// too long balance less; those that are too short let packets be overtaken.
func (p *ConWeaveParams) SetAuto(given func(key string) bool) {
	p.Auto = AutoTimes{!given("reply"), !given("inactive"), !given("resume_extra"), !given("resume_default"), !given("max_hold")}
	s, d, lab, side := &p.Source, &p.Destination, LabConWeave(), reorder.Lab()
	if p.Auto.Inactive {
		s.Inactive = max(lab.Inactive, min(s.Reply, overlay.MaxInactive))
	}
	if p.Auto.Reply {
		s.Reply = min(lab.Reply, s.Inactive)
	}
	if p.Auto.MaxHold {
		d.MaxHold = max(side.MaxHold, d.ResumeExtra, d.ResumeDefault)
	}
	if p.Auto.ResumeExtra {
		d.ResumeExtra = min(side.ResumeExtra, d.MaxHold)
	}
	if p.Auto.ResumeDefault {
		d.ResumeDefault = min(side.ResumeDefault, d.MaxHold)
	}
}

func newConWeaveParams(profile Profile) Params {
	if profile == Datacenter {
		return &ConWeaveParams{Source: DatacenterConWeave(), Destination: reorder.Datacenter()}
	}
	return &ConWeaveParams{Source: LabConWeave(), Destination: reorder.Lab()}
}

// Pause returns θ_inactive; if it follows from round trips, as long as it can be.
func (p *ConWeaveParams) Pause() (pause, longest time.Duration, key string) {
	return p.destination().Inactive, overlay.MaxInactive, "inactive"
}

// Selectors returns the number of choices that the next tier has.
func (p *ConWeaveParams) Selectors() int { return p.Source.Selectors }

// WithSelectors returns p with another number of choices of the next tier.
func (p *ConWeaveParams) WithSelectors(n int) Params {
	c := *p
	c.Source.Selectors = n
	return &c
}

// Holds returns how many packets may be held.
func (p *ConWeaveParams) Holds() int { return p.Destination.Packets }

// Limit returns p with at most so many packets held.
func (p *ConWeaveParams) Limit(packets int) Params {
	c := *p
	c.Destination.Packets = min(c.Destination.Packets, packets)
	return &c
}

// Validate reports the first parameter that makes no sense.
func (p *ConWeaveParams) Validate() error {
	if err := p.Source.Validate(); err != nil {
		return err
	}
	return p.destination().Validate()
}

// destination returns the destination's parameters: θ_inactive is the source's, or as
// long as it can be if other leaves derive theirs.
func (p *ConWeaveParams) destination() *reorder.Params {
	d := p.Destination
	d.Inactive = p.Source.Inactive
	if p.Auto.Inactive {
		d.Inactive = overlay.MaxInactive
	}
	return &d
}

// ConWeaveSource are the parameters of ConWeave's source side (ConWeave Tables 1
// and 3). [DatacenterConWeave] and [LabConWeave] return complete sets to start
// from.
type ConWeaveSource struct {
	// Reply is how long a path may take to bring a request to the other leaf and its
	// reply back; longer, and the flow is rerouted (θ_reply, §3.2.1). At most inactive.
	Reply time.Duration `yaml:"reply"`
	// ReplyExtra makes θ_reply follow each leaf's distance: it is what a reply may take
	// longer than the shortest round trip to that leaf in the last one to two seconds,
	// which is known in whole microseconds. Then reply holds only until a round trip is
	// known, and has to be longer than the longest idle one. 0: θ_reply is reply.
	ReplyExtra time.Duration `yaml:"reply_extra"`
	// PathBusy is how long flows are kept off a path after a notice that it is
	// congested (θ_path_busy): about as long as a queue at the ECN threshold takes to
	// drain (§4.1).
	PathBusy time.Duration `yaml:"path_busy"`
	// Inactive is the pause after which nothing of a flow is under way any more: its
	// next packet starts a new epoch (θ_inactive, §3.2.3). At most 30ms, which 16-bit
	// timestamps can tell, and the same at all leaves.
	Inactive time.Duration `yaml:"inactive"`
	// Samples is the number of random paths that are looked at when a flow needs one, 1
	// to 16 (§3.2.2).
	Samples int `yaml:"samples"`
	// Selectors is the number of choices that the spines have, 1 to 16. With 1 a path is
	// an uplink, and each flow has one selector of 16 by its hash: all uplinks lead it
	// over the same of several parallel links behind the spine. With more, a path is an
	// uplink and a selector below that number.
	Selectors int `yaml:"selectors"`
	// Connections is the number of entries of each worker's table of flows that are
	// sent: a power of two from 4 to 16777216, of 32 bytes each. Flows that find no room
	// go by hash.
	Connections int `yaml:"connections"`
}

// DatacenterConWeave returns the paper's values for a leaf-spine fabric of
// 100 Gb/s (Table 3).
func DatacenterConWeave() ConWeaveSource {
	return ConWeaveSource{
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
func LabConWeave() ConWeaveSource {
	p := DatacenterConWeave()
	p.Reply = time.Millisecond
	p.PathBusy = time.Millisecond
	p.Inactive = 10 * time.Millisecond
	return p
}

// Validate reports the first parameter that makes no sense.
func (p *ConWeaveSource) Validate() error {
	switch {
	case p.Inactive <= 0 || p.Inactive > overlay.MaxInactive:
		return fieldError("inactive", fmt.Sprintf("use a time above 0 and up to %v, which 16-bit timestamps can tell", overlay.MaxInactive), "inactive is %v", p.Inactive)
	case p.Reply <= 0:
		return fieldError("reply", "use a time above 0", "reply is %v", p.Reply)
	case p.Reply > p.Inactive:
		return fieldError("reply", "lower reply, or raise inactive", "reply %v is above inactive %v", p.Reply, p.Inactive)
	case p.ReplyExtra < 0 || p.ReplyExtra > p.Inactive:
		return fieldError("reply_extra", "use 0 to inactive", "reply_extra is %v, and inactive %v", p.ReplyExtra, p.Inactive)
	case p.PathBusy < 0 || p.PathBusy > time.Second:
		return fieldError("path_busy", "use 0 to a second", "path_busy is %v", p.PathBusy)
	case p.Samples < 1 || p.Samples > maxSamples:
		return fieldError("samples", fmt.Sprintf("use 1 to %d", maxSamples), "%d path samples", p.Samples)
	case p.Selectors < 1 || p.Selectors > maxSelectors:
		return fieldError("selectors", fmt.Sprintf("use 1 to %d", maxSelectors), "%d selectors", p.Selectors)
	case p.Connections < flowtable.Ways || p.Connections > flowtable.MaxEntries || p.Connections&(p.Connections-1) != 0:
		return fieldError("connections", fmt.Sprintf("use a power of two from %d to %d", flowtable.Ways, flowtable.MaxEntries), "connection table of %d entries", p.Connections)
	}
	return nil
}

const (
	maxSamples   = 16
	maxSelectors = 16 // a PathID has 4 bits for them
)

// ConWeaveStats counts what ConWeave's source side did.
type ConWeaveStats struct {
	_ struct{} `stat:"conweave"`

	Epochs   uint64 `stat:"epochs" help:"Epochs that began."`
	Requests uint64 `stat:"requests" help:"RTT_REQUESTs sent, each a mark on a tenant's frame."`
	CutOffs  uint64 `stat:"cutoffs" help:"Epochs without an RTT_REPLY within the reply time (θ_reply)."`
	Reroutes uint64 `stat:"reroutes" help:"Flows moved to another path in an epoch: TAILs sent."`
	Aborts   uint64 `stat:"aborts" help:"Attempts at a reroute that found no path which is not busy; one epoch may have several."`
	Refused  uint64 `stat:"refused" help:"Attempts given up because the leaf asked not to be sent rerouted frames."`
	Inactive uint64 `stat:"inactive" help:"Epochs that a pause ended (θ_inactive)."`
	Unclear  uint64 `stat:"unclear" help:"Epochs that a pause ended while they still waited for a CLEAR."`
	Moves    uint64 `stat:"moves" help:"Flows whose path disappeared."`

	Replies     uint64 `stat:"replies" help:"RTT_REPLYs that came in time."`
	LateReplies uint64 `stat:"late_replies" help:"RTT_REPLYs that came after the cut-off."`
	Clears      uint64 `stat:"clears" help:"CLEARs that ended an epoch."`
	Notifies    uint64 `stat:"notifies" help:"NOTIFYs accepted; each worker accepts each."`

	// Packets that went without ConWeave, by hash as under ecmp.
	Overflow  uint64 `stat:"overflow_frames" help:"Frames sent by hash because the connection table had no room." unit:"frames"`
	Incapable uint64 `stat:"incapable_frames" help:"Frames sent by hash because the leaf does not speak ConWeave." unit:"frames"`

	// Messages that changed nothing.
	StaleReplies uint64 `stat:"ignored{reason=stale_reply}" help:"Control packets that changed nothing, because they are late, copies or forged." about:"An RTT_REPLY of another epoch, or one that no flow waits for."`
	StaleClears  uint64 `stat:"ignored{reason=stale_clear}" about:"A CLEAR of another epoch, or one that no flow waits for."`

	ReplyTime reorder.Histogram `stat:"reply_time" metric:"reply" help:"Time from an RTT_REQUEST to its RTT_REPLY, also a late one."`
}
