package overlay

import "github.com/loomfabric/loom/internal/snapshot"

// Save writes when a peer proved itself last for another process, which has the same
// clock.
func (c *Capability) Save(w *snapshot.Writer, peer uint16) { w.U64(uint64(c.proved[peer].Load())) }

// Load reads what Save wrote.
func (c *Capability) Load(r *snapshot.Reader, peer uint16) { c.proved[peer].Store(int64(r.U64())) }
