package overlay

import "time"

// MaxInactive bounds ConWeave's θ_inactive, at sources and at destinations. Two
// packets of an epoch may be that far apart, and [Tstamp.Sub] orders timestamps
// that are less than 32 ms apart. ConWeave §3.4 counts on 32 ms, too; its testbed
// uses 10 ms for θ_inactive (§4.2).
const MaxInactive = 30 * time.Millisecond

// Refuses reports whether the sender of a control packet is short of reordering
// queues and asks for no rerouted packets (admission control, ConWeave §5).
// Control packets use the bit of Rerouted for it.
func (f *Fabric) Refuses() bool { return f.Opcode.Control() && f.Rerouted }
