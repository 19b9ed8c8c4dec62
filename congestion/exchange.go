package congestion

import (
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
)

// Exchange is one worker's part in CONGA's feedback between leaves (§3.3). It fills
// the fabric's fields of packets that depart, and reads the fields of packets that
// arrive. The tables belong to the node, cursor and counters to the worker. It is
// not safe for concurrent use.
type Exchange struct {
	to      *ToLeaf
	from    *FromLeaf
	capable *overlay.Capability
	cursor  *FeedbackCursor
	tags    uint16 // own uplinks, a bit each; feedback for other tags is refused
	stats   ExchangeStats
}

// ExchangeStats counts packets and feedback.
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

// NewExchange returns a worker's exchange over the node's tables, which have the
// same size. tags is the number of the leaf's uplinks.
func NewExchange(to *ToLeaf, from *FromLeaf, capable *overlay.Capability, tags int) *Exchange {
	return &Exchange{to: to, from: from, capable: capable, cursor: NewFeedbackCursor(len(from.rows)), tags: uint16(1<<min(tags, MaxTags) - 1)}
}

// SetTags says which tags the leaf's own uplinks have, as bits.
func (x *Exchange) SetTags(tags uint16) { x.tags = tags }

// Depart fills f for a packet to a leaf by an uplink: the source leaf's step 1 and
// the feedback of step 4. path is the packet's path. Depart returns false if the
// leaf needs plain VXLAN, and leaves f alone.
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

// Arrive reads the fields of a packet from a leaf. Its CE goes into the from-leaf
// table (step 3), its feedback into the to-leaf table (step 5). Arrive ignores a
// header without the fabric's fields.
func (x *Exchange) Arrive(leaf uint16, now mono.Time, f *overlay.Fabric) {
	if !f.Capable {
		return
	}
	x.stats.Arrived++
	if f.Opcode == overlay.OpHello {
		return // it goes ahead of data and did not meet what data packets meet
	}
	if f.CE > 0 {
		x.stats.CongestedArrived++
	}
	if !x.from.Record(leaf, f.LBTag, f.CE, now) {
		x.stats.FeedbackBadValue++
	}
	switch {
	case !f.FBValid:
	case x.tags>>f.FBTag&1 == 0:
		x.stats.FeedbackBadTag++
	case !x.to.Update(leaf, f.FBTag, f.FBMetric, now):
		x.stats.FeedbackBadValue++
	default:
		x.stats.FeedbackReceived++
	}
}

// Stats returns the counters.
func (x *Exchange) Stats() ExchangeStats {
	s := x.stats
	s.FeedbackStale = x.cursor.retired
	return s
}
