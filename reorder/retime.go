package reorder

import (
	"fmt"
	"time"
)

// Retime changes θ_resume_extra, θ_resume_default and the longest hold. Queues
// that are held keep the T_resume that they have, unless that is further away than
// the new longest hold: those are due at once. It reports times that make no
// sense, and then changes nothing.
func (c *ConWeave[T]) Retime(extra, def, maxHold time.Duration) error {
	p := c.params
	p.ResumeExtra, p.ResumeDefault, p.MaxHold = extra, def, maxHold
	if err := p.Validate(); err != nil {
		return fmt.Errorf("ConWeave's destination side: %w", err)
	}
	c.params = p
	return nil
}
