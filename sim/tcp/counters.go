package tcp

// Counters count what one connection did, or several together.
type Counters struct {
	// Sent.
	Segments    uint64 // with data, retransmissions included
	Bytes       uint64 // of payload in them
	Retransmits uint64 // segments
	Acks        uint64
	SYNs        uint64 `stat:"syns"` // those that were sent again included

	// Decided.
	Recoveries uint64 `stat:"fast_recoveries"`
	Timeouts   uint64
	ECNCuts    uint64 // windows that were cut for marks
	Reinjected uint64 `stat:"reinjected_bytes"` // sent on another subflow too, after a timeout (MPTCP)

	// Arrived.
	Goodput     uint64 `stat:"goodput_bytes"`              // each once, in order
	Duplicates  uint64 `stat:"duplicate_segments"`         // that were there already: needless retransmissions
	Reordered   uint64 `stat:"reordered_segments"`         // that one sent later had overtaken
	Reordered3  uint64 `stat:"reordered_by_3"`             // by three places or more: a loss to TCP
	MaxDistance uint64 `stat:"max_reordered_distance,max"` // most places between
}

// Add adds other to c, as stat.Add does, which is not for the end of every flow.
func (c *Counters) Add(other *Counters) {
	c.Segments += other.Segments
	c.Bytes += other.Bytes
	c.Retransmits += other.Retransmits
	c.Acks += other.Acks
	c.SYNs += other.SYNs
	c.Recoveries += other.Recoveries
	c.Timeouts += other.Timeouts
	c.ECNCuts += other.ECNCuts
	c.Reinjected += other.Reinjected
	c.Goodput += other.Goodput
	c.Duplicates += other.Duplicates
	c.Reordered += other.Reordered
	c.Reordered3 += other.Reordered3
	c.MaxDistance = max(c.MaxDistance, other.MaxDistance)
}
