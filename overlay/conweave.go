package overlay

import "time"

// MaxInactive bounds ConWeave's θ_inactive, at sources and at destinations. Up to
// that long after a packet another one of its epoch may be sent, and timestamps
// tell less than 32 ms apart which of two was first ([Tstamp.Sub]; ConWeave §3.4
// counts on 32 ms, too, and uses 10 ms for θ_inactive in its testbed, §4.2).
const MaxInactive = 30 * time.Millisecond

// Refuses reports whether a control packet says that its sender is short of
// reordering queues, and asks not to be sent rerouted packets (admission
// control, ConWeave §5). The bit is that of Rerouted, which means nothing else
// in a control packet.
func (f *Fabric) Refuses() bool { return f.Opcode.Control() && f.Rerouted }
