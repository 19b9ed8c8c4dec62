package admin

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/loomfabric/loom/dataplane"
)

// Flows is the answer of /v1/flows: what is under way, and by which path, as far as a
// scheme remembers it.
type Flows struct {
	Flows  []ActiveFlow `json:"flows"`  // the newest packets first; limited
	Active int          `json:"active"` // how many there are
}

// ActiveFlow is a flowlet, or a flow that a scheme keeps account of.
type ActiveFlow struct {
	Worker int    `json:"worker"`
	Class  *int   `json:"class"` // null: the flow arrives here
	Scheme string `json:"scheme"`
	// Flow is the flow's hash or, of a flowlet, the slot that flows share whose hashes end in it.
	Flow  string     `json:"flow"`
	VTEP  netip.Addr `json:"vtep"` // where to, or where from; "": the scheme's table does not say
	Path  string     `json:"path"` // uplink, and selector where the scheme chooses it; "": it arrives
	Port  string     `json:"port"`
	State string     `json:"state"`
	// Number is that of the flow's next packet, or of the one that Held frames wait for;
	// null: the scheme does not number packets.
	Number *uint16       `json:"number"`
	Held   int           `json:"held_frames"`
	Idle   time.Duration `json:"idle_ns"` // since the last packet
}

// States of a flow whose packets are numbered (scheme reed).
const (
	FlowSprayed = "sprayed" // at its source
	FlowWaits   = "waits"   // at its destination: frames wait for one before them
)

func flows(n Node, limit int) Flows {
	a := Flows{Flows: []ActiveFlow{}}
	for _, t := range n.Flowlets(limit) {
		a.Active += t.Active
		for i := range t.Entries {
			if e := &t.Entries[i]; e.Active {
				a.Flows = append(a.Flows, ActiveFlow{
					Worker: t.Worker, Class: &t.Class, Scheme: t.Scheme, Flow: fmt.Sprintf("slot %d", e.Slot), Path: fmt.Sprint(e.Uplink), Port: e.Port, State: "flowlet", Idle: e.Idle,
				})
			}
		}
	}
	if s := n.ConWeave(limit); s != nil {
		for i := range s.Sources {
			a.addConnections(&s.Sources[i])
		}
	}
	a.addSprayed(n.Spray(limit))
	slices.SortStableFunc(a.Flows, func(x, y ActiveFlow) int { return cmp.Compare(x.Idle, y.Idle) })
	if limit >= 0 {
		a.Flows = a.Flows[:min(limit, len(a.Flows))]
	}
	return a
}

func (a *Flows) addConnections(s *dataplane.ConWeaveSource) {
	a.Active += s.Active
	for i := range s.Connections {
		if c := &s.Connections[i]; c.Idle < s.Inactive {
			a.Flows = append(a.Flows, ActiveFlow{
				Worker: s.Worker, Class: &s.Class, Scheme: s.Scheme, Flow: flowHash(c.Hash), VTEP: c.VTEP, Path: c.Path, Port: c.Port, State: c.State, Idle: c.Idle,
			})
		}
	}
}

// addSprayed adds what ordered spraying numbers, and what it holds until it is in order.
func (a *Flows) addSprayed(s dataplane.SprayState) {
	a.Active += s.Active
	for i := range s.Sources {
		f := &s.Sources[i]
		a.Flows = append(a.Flows, ActiveFlow{
			Worker: f.Worker, Class: &f.Class, Scheme: f.Scheme, Flow: flowHash(f.Hash), VTEP: f.VTEP, Path: fmt.Sprint(f.Uplink), Port: f.Port, State: FlowSprayed, Number: &f.Number, Idle: f.Idle,
		})
	}
	for i := range s.Held {
		f := &s.Held[i]
		a.Flows = append(a.Flows, ActiveFlow{
			Worker: f.Worker, Scheme: f.Scheme, Flow: flowHash(f.Hash), VTEP: f.VTEP, State: FlowWaits, Number: &f.Number, Held: f.Held, Idle: f.Idle,
		})
	}
}

func flowHash(hash uint32) string { return fmt.Sprintf("%08x", hash) }
