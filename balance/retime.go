package balance

import (
	"cmp"
	"fmt"
	"time"

	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/reorder"
)

// Retime changes θ_reply and θ_inactive, and makes them fit each other. What flows
// wait for at the moment stays due when it was; the time of replies under way is
// then taken wrongly by as much as θ_reply has changed.
func (c *conweave) Retime(_ mono.Time, t *reorder.Times) error {
	if t.Reply == 0 && t.Inactive == 0 {
		return nil
	}
	p := c.params
	p.Reply = cmp.Or(t.Reply, p.Reply)
	if t.Inactive != 0 {
		p.Inactive = max(t.Inactive, p.Reply)
	} else {
		p.Reply = min(p.Reply, p.Inactive)
	}
	if err := p.Validate(); err != nil {
		return fmt.Errorf("ConWeave's source side: %w", err)
	}
	c.params, c.reply, c.inactive = p, mono.Time(p.Reply), mono.Time(p.Inactive)
	c.conns.SetAge(c.inactive)
	return nil
}

// Retime changes the gap of schemes that move flows after one. A flowlet of
// conga-flow is a flow: its gap exceeds any round trip.
func (f *flowlets) Retime(now mono.Time, t *reorder.Times) error {
	if t.FlowletGap != 0 && !f.fixed {
		f.table.SetGap(now, time.Duration(t.FlowletGap))
	}
	return nil
}
