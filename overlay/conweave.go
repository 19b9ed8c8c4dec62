package overlay

import "time"

// MaxInactive bounds ConWeave's θ_inactive, at sources and at destinations. A
// destination keeps what it knows of a flow for twice that long, and then still
// has to tell, by [Tstamp.Sub], which of two packets was sent first, although
// one of them may have been under way for 8 ms longer. (ConWeave §3.4 counts on
// 32 ms, too; its testbed uses 10 ms for θ_inactive, §4.2.)
const MaxInactive = 12 * time.Millisecond

// Refuses reports whether a control packet says that its sender is short of
// reordering queues, and asks not to be sent rerouted packets (admission
// control, ConWeave §5). The bit is that of Rerouted, which means nothing else
// in a control packet.
func (f *Fabric) Refuses() bool { return f.Opcode.Control() && f.Rerouted }
