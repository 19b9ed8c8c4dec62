package overlay

import (
	"fmt"

	"github.com/loomfabric/loom/internal/snapshot"
)

// Save writes when a peer proved itself last, or why it does not count, for another process, which has the same
// clock.
func (c *Capability) Save(w *snapshot.Writer, peer uint16) {
	w.U64(uint64(c.proved[peer].Load()))
	w.U8(uint8(c.why[peer].Load()))
}

// Load reads what Save wrote.
func (c *Capability) Load(r *snapshot.Reader, peer uint16) {
	proved, why := int64(r.U64()), r.U8()
	if int(why) >= len(standings) {
		r.Fail(fmt.Errorf("a peer has standing %d, and there are %d", why, len(standings)))
		return
	}
	c.proved[peer].Store(proved)
	c.why[peer].Store(uint32(why))
	c.changes.Add(1)
}
