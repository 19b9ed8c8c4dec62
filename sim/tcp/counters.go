package tcp

// Counters count what one connection did, or several together.
type Counters struct {
	// Sent.
	Segments    uint64 // with data, retransmissions included
	Bytes       uint64 // of payload in them
	Retransmits uint64 // segments
	Acks        uint64
	SYNs        uint64 // those that were sent again included

	// Decided.
	Recoveries uint64 // fast recoveries
	Timeouts   uint64
	ECNCuts    uint64 // windows that were cut for marks

	// Arrived.
	Goodput     uint64 // bytes, each once, in order
	Duplicates  uint64 // segments that were there already: needless retransmissions
	Reordered   uint64 // segments that one sent later had overtaken
	Reordered3  uint64 // reordered by three places or more: a loss to TCP
	MaxDistance uint64 // most places between
}

// Add adds other to c.
func (c *Counters) Add(other *Counters) {
	c.Segments += other.Segments
	c.Bytes += other.Bytes
	c.Retransmits += other.Retransmits
	c.Acks += other.Acks
	c.SYNs += other.SYNs
	c.Recoveries += other.Recoveries
	c.Timeouts += other.Timeouts
	c.ECNCuts += other.ECNCuts
	c.Goodput += other.Goodput
	c.Duplicates += other.Duplicates
	c.Reordered += other.Reordered
	c.Reordered3 += other.Reordered3
	c.MaxDistance = max(c.MaxDistance, other.MaxDistance)
}

// Map returns the counters under the names that results list them by.
func (c *Counters) Map() map[string]uint64 {
	return map[string]uint64{
		"segments":               c.Segments,
		"bytes":                  c.Bytes,
		"retransmits":            c.Retransmits,
		"acks":                   c.Acks,
		"syns":                   c.SYNs,
		"fast_recoveries":        c.Recoveries,
		"timeouts":               c.Timeouts,
		"ecn_cuts":               c.ECNCuts,
		"goodput_bytes":          c.Goodput,
		"duplicate_segments":     c.Duplicates,
		"reordered_segments":     c.Reordered,
		"reordered_by_3":         c.Reordered3,
		"max_reordered_distance": c.MaxDistance,
	}
}
