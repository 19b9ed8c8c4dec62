package dataplane

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/reorder"
)

// SprayState is what ordered spraying (scheme reed) has under way at a leaf.
type SprayState struct {
	Active  int         // how many flows there are, of both kinds
	Sources []SprayFlow // that this leaf numbers; those sent last first; limited
	Held    []SprayFlow // of which frames wait here for one before them; limited
}

// SprayFlow is a flow whose packets have numbers.
type SprayFlow struct {
	Worker int
	Class  int // of a source, in order of precedence
	Scheme string
	Hash   uint32
	VTEP   netip.Addr // where to, or where from
	Uplink uint8      // of a source: of its last packet
	Port   string     // the uplink's
	Number uint16     // of its next packet, or of the one that is waited for
	Held   int        // frames that wait
	Idle   time.Duration
}

// Spray returns what ordered spraying has under way, with up to limit flows (below 0: all)
// for each worker and class.
func (n *Node) Spray(limit int) (s SprayState) {
	if limit < 0 {
		limit = math.MaxInt
	}
	scheme := balance.Find("reed")
	for _, w := range n.leaves() {
		var classes []*class
		var side *reorder.Resequencer
		w.call(func() {
			classes = w.classes
			side, _ = w.brain.Receiver(scheme.Wire).(*reorder.Resequencer)
		})
		for i, c := range classes {
			if p, ok := c.Policy.(balance.SprayPolicy); ok {
				w.spraySource(&s, p, c.Scheme.Name, i, limit)
			}
		}
		if side != nil {
			w.sprayHeld(&s, side, scheme.Name, limit)
		}
	}
	return s
}

// spraySource lists the flows of a class that stays this worker's even when a reload has
// put another one in its place.
func (l *leafWorker) spraySource(s *SprayState, policy balance.SprayPolicy, scheme string, class, limit int) {
	var list []SprayFlow
	look := func(part []SprayFlow, from, to int) []SprayFlow {
		for f := range policy.SprayedFlows(l.now, from, to) {
			part = append(part, SprayFlow{
				Worker: l.id, Class: class, Scheme: scheme, Hash: f.Hash, VTEP: l.peerVTEP(f.Leaf), Uplink: f.Uplink,
				Port: l.uplinkPort(f.Uplink), Number: f.Number, Idle: f.Idle,
			})
		}
		return part
	}
	inParts(l.worker, policy.FlowSets(), lookConnectionSets, 4*lookConnectionSets, look, func(part []SprayFlow) bool {
		s.Active += len(part)
		list = usedLast(append(list, part...), limit)
		return true
	})
	s.Sources = append(s.Sources, list...)
}

// sprayHeld lists the flows that hold something.
func (l *leafWorker) sprayHeld(s *SprayState, side *reorder.Resequencer, scheme string, limit int) {
	var list []SprayFlow
	look := func(part []SprayFlow, from, to int) []SprayFlow {
		for f := range side.HeldFlows(l.now, from, to) {
			part = append(part, SprayFlow{Worker: l.id, Scheme: scheme, Hash: f.Hash, VTEP: l.peerVTEP(f.Leaf), Number: f.Due, Held: f.Held, Idle: f.Idle})
		}
		return part
	}
	inParts(l.worker, side.FlowSets(), lookConnectionSets, 4*lookConnectionSets, look, func(part []SprayFlow) bool {
		s.Active += len(part)
		list = usedLast(append(list, part...), limit)
		return true
	})
	s.Held = append(s.Held, list...)
}

// usedLast returns those up to limit that were used last, in order.
func usedLast(list []SprayFlow, limit int) []SprayFlow {
	slices.SortFunc(list, func(a, b SprayFlow) int { return cmp.Or(cmp.Compare(a.Idle, b.Idle), cmp.Compare(a.Hash, b.Hash)) })
	return list[:min(limit, len(list))]
}

// peerVTEP returns the address of a leaf by its number; none before the first tables.
func (l *leafWorker) peerVTEP(leaf uint16) netip.Addr {
	if l.view == nil {
		return netip.Addr{}
	}
	return l.view.tables.peerVTEP(PeerID(leaf))
}

func (l *leafWorker) uplinkPort(uplink uint8) string {
	if l.view == nil {
		return ""
	}
	return l.view.layout.uplinkName(uplink)
}
