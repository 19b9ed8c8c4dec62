package congestion

import (
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
)

// Exchange is one worker's part in the conversation of leaves (CONGA §3.3): it
// fills the fabric's fields of packets that leave, and reads those of packets
// that arrive. The tables behind it are the node's; cursor and counters are the
// worker's own. Not safe for concurrent use.
type Exchange struct {
	to      *ToLeaf
	from    *FromLeaf
	capable *overlay.Capability
	cursor  *FeedbackCursor
	tags    uint8 // own uplinks: feedback for any other tag is nonsense
	stats   ExchangeStats
}

// ExchangeStats counts packets, and where it says so metrics.
type ExchangeStats struct {
	_ struct{} `stat:"exchange"`

	Plain            uint64 `stat:"plain" unit:"frames" help:"Frames sent as plain VXLAN because their peer has not proved that it reads the fabric's fields."`
	Stamped          uint64 `stat:"stamped" unit:"frames" help:"Frames sent with the fabric's fields."`
	Arrived          uint64 `stat:"arrived" unit:"frames" help:"Frames received with the fabric's fields."`
	CongestedArrived uint64 `stat:"congested_arrived" unit:"frames" help:"Frames received whose CE says that they met congestion."`
	FeedbackSent     uint64 `stat:"feedback_sent" help:"Frames sent that take feedback to their peer."`
	FeedbackStale    uint64 `stat:"feedback_stale" help:"Metrics not fed back any more: when their turn came they had not been confirmed for the ageing time. Each is counted once until it is measured again."`
	FeedbackReceived uint64 `stat:"feedback_received" help:"Feedback received and believed."`
	FeedbackBadTag   uint64 `stat:"feedback_bad_tag" help:"Feedback ignored because this leaf has no such uplink."`
	FeedbackBadValue uint64 `stat:"feedback_bad_value" help:"Feedback or CE ignored because it is above what Q bits allow."`
}

// NewExchange returns a worker's exchange over the node's tables, which are of
// one size. tags is the number of the leaf's uplinks.
func NewExchange(to *ToLeaf, from *FromLeaf, capable *overlay.Capability, tags int) *Exchange {
	return &Exchange{to: to, from: from, capable: capable, cursor: NewFeedbackCursor(from.Leaves()), tags: uint8(min(tags, MaxTags))}
}

// Depart fills f for a packet to a leaf that leaves by an uplink, the source
// leaf's step 1 and the feedback of step 4. It reports false if the leaf is to
// be sent plain VXLAN; f is then of no use. path pins the rest of the way.
func (x *Exchange) Depart(leaf uint16, uplink uint8, path overlay.PathID, now mono.Time, f *overlay.Fabric) bool {
	if !x.capable.Capable(leaf, now) {
		x.stats.Plain++
		return false
	}
	x.stats.Stamped++
	*f = overlay.Fabric{Capable: true, LBTag: uplink, Path: path}
	if tag, metric, ok := x.from.Next(x.cursor, leaf, now); ok {
		x.stats.FeedbackSent++
		f.FBValid, f.FBTag, f.FBMetric = true, tag, metric
	}
	return true
}

// Arrive reads the fields of a packet from a leaf: its CE into the from-leaf
// table (step 3), its feedback into the to-leaf table (step 5). A header
// without the fabric's fields says nothing.
func (x *Exchange) Arrive(leaf uint16, now mono.Time, f *overlay.Fabric) {
	if !f.Capable {
		return
	}
	x.stats.Arrived++
	x.capable.Confirm(leaf, now)
	if f.Opcode == overlay.OpHello {
		return // it says that the peer is there; its way was not a data packet's
	}
	if f.CE > 0 {
		x.stats.CongestedArrived++
	}
	if !x.from.Record(leaf, f.LBTag, f.CE, now) {
		x.stats.FeedbackBadValue++
	}
	switch {
	case !f.FBValid:
	case f.FBTag >= x.tags:
		x.stats.FeedbackBadTag++
	case !x.to.Update(leaf, f.FBTag, f.FBMetric, now):
		x.stats.FeedbackBadValue++
	default:
		x.stats.FeedbackReceived++
	}
}

// Stats returns what happened so far.
func (x *Exchange) Stats() ExchangeStats {
	s := x.stats
	s.FeedbackStale = x.cursor.Retired()
	return s
}
