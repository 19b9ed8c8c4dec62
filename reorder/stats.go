package reorder

// Stats counts what a destination did. Packets are those of sources that speak
// ConWeave, if nothing else is said.
type Stats struct {
	Packets  uint64 // arrived
	Bytes    uint64 // of them
	Unmarked uint64 // arrived without ConWeave's fields (not among Packets): passed
	Epochs   uint64 // that began; after a packet of each, or after a flow was forgotten

	Requests uint64 // RTT_REQUESTs
	Tails    uint64 // TAILs
	Rerouted uint64 // REROUTED packets

	Held        uint64 // packets that had to wait
	HeldBytes   uint64 // of them
	Queues      uint64 // times that a queue was taken
	TailFlushes uint64 // queues that were drained because the TAIL came,
	Expiries    uint64 // because T_resume had passed,
	Overtaken   uint64 // because a packet of a newer epoch came,
	Exhausted   uint64 // because there was no room for one more packet,
	Flushed     uint64 // because the driver asked

	// What passed without being put into order.
	Premature    uint64 // packets of the OLD path after an expiry, TAILs among them
	NoQueue      uint64 // flows whose first REROUTED packet found no queue or no room in it
	NoFlow       uint64 // packets of flows for which the table had no place
	Late         uint64 // packets of an older epoch than one of which packets have passed
	AfterTail    uint64 // packets of the OLD path behind their TAIL, or copies
	PassedUnheld uint64 // REROUTED packets of flows counted under NoQueue or Exhausted

	Defaults uint64 // T_resume from θ_resume_default, for want of a packet from the OLD path
	Capped   uint64 // T_resume that would have been beyond MaxHold

	// Control packets, by opcode.
	Replies, Clears, Notifies uint64
	NotifiesSuppressed        uint64 // not due yet
	BadLeaf                   uint64 // not sent, as the leaf has no place in the tables
	Refusals                  uint64 // of all of them, those that asked for no more rerouted packets
	// State now, and the most that there ever was.
	InUse            int    // queues that hold packets
	InUsePeak        int    `stat:",max"`
	Waiting          int    // packets held
	WaitingPeak      int    `stat:",max"`
	WaitingBytes     uint64 // of them
	WaitingBytesPeak uint64 `stat:",max"`

	// Hold is how long queues were held, from their first packet on.
	Hold Histogram
	// TailEarly and TailLate are the error of T_resume without θ_resume_extra against
	// the TAIL's arrival (Figure 21): TailEarly where the TAIL came before it,
	// TailLate where it came after it, so that a flush at T_resume would have been too
	// early. Only estimates that rest on a packet from the OLD path count.
	TailEarly, TailLate Histogram
}

// PortUse is what waits for an egress port.
type PortUse struct {
	Queues, Packets int
	Bytes           uint64
	QueuesPeak      int    `stat:",max"`
	PacketsPeak     int    `stat:",max"`
	BytesPeak       uint64 `stat:",max"`
}
