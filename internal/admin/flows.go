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
	Class  int    `json:"class"`
	Scheme string `json:"scheme"`
	// Flow is the flow's hash or, of a flowlet, the slot that flows share whose hashes end in it.
	Flow  string        `json:"flow"`
	VTEP  netip.Addr    `json:"vtep"` // where to; "": the scheme's table does not say
	Path  string        `json:"path"` // uplink, and selector where the scheme chooses it
	Port  string        `json:"port"`
	State string        `json:"state"`
	Idle  time.Duration `json:"idle_ns"` // since the last packet
}

func flows(n Node, limit int) Flows {
	a := Flows{Flows: []ActiveFlow{}}
	for _, t := range n.Flowlets(limit) {
		a.Active += t.Active
		for i := range t.Entries {
			if e := &t.Entries[i]; e.Active {
				a.Flows = append(a.Flows, ActiveFlow{t.Worker, t.Class, t.Scheme, fmt.Sprintf("slot %d", e.Slot), netip.Addr{}, fmt.Sprint(e.Uplink), e.Port, "flowlet", e.Idle})
			}
		}
	}
	if s := n.ConWeave(limit); s != nil {
		for i := range s.Sources {
			a.addConnections(&s.Sources[i])
		}
	}
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
			a.Flows = append(a.Flows, ActiveFlow{s.Worker, s.Class, s.Scheme, fmt.Sprintf("%08x", c.Hash), c.VTEP, c.Path, c.Port, c.State, c.Idle})
		}
	}
}
