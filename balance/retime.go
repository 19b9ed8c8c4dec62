package balance

import (
	"fmt"
	"time"

	"github.com/loomfabric/loom/internal/mono"
)

// Retimer is ConWeave's source side as somebody sees it who measures round trips:
// what follows from them can change between two vectors, and no connection is
// lost.
type Retimer interface {
	ConWeavePolicy
	// Retime changes θ_reply and θ_inactive. It reports times that make no sense,
	// and then changes nothing.
	Retime(reply, inactive time.Duration) error
}

// Retime changes θ_reply and θ_inactive. What flows wait for at the moment stays
// due when it was; the time of replies under way is then taken wrongly by as much
// as θ_reply has changed.
func (c *conweave) Retime(reply, inactive time.Duration) error {
	p := c.params
	p.Reply, p.Inactive = reply, inactive
	if err := p.Validate(); err != nil {
		return fmt.Errorf("scheme %s: %w", c.name, err)
	}
	c.params, c.reply, c.inactive = p, mono.Time(reply), mono.Time(inactive)
	return nil
}
