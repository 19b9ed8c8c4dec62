package roce

// ReceiverStats counts what a receiver saw. Reordering is found by the numbers of
// transmissions, so that losses and repetitions do not count: a packet is
// reordered if one that was sent later has arrived before it (RFC 4737 §3.3), and
// its distance is how much later that one was sent.
type ReceiverStats struct {
	Packets       uint64 // requests that arrived
	Reordered     uint64
	DistanceSum   uint64
	DistanceMax   uint64
	OutOfSequence uint64 // not the expected PSN but a later one: dropped, as a NIC does
	Duplicates    uint64 // an earlier PSN: acknowledged again
	Naks          uint64 // sent
}

// Add adds what another receiver saw.
func (s *ReceiverStats) Add(o ReceiverStats) {
	s.Packets += o.Packets
	s.Reordered += o.Reordered
	s.DistanceSum += o.DistanceSum
	s.DistanceMax = max(s.DistanceMax, o.DistanceMax)
	s.OutOfSequence += o.OutOfSequence
	s.Duplicates += o.Duplicates
	s.Naks += o.Naks
}

// Receiver is the responder's half of a queue pair. It takes packets in the order
// of their numbers only, and says once which one it misses. The zero value is
// ready to use. Not safe for concurrent use.
type Receiver struct {
	expected PSN
	nak      bool   // sent for the expected packet
	got      uint64 // data of the message under way
	highest  uint64 // transmission, plus one
	stats    ReceiverStats
}

// Arrival is what became of a request.
type Arrival struct {
	Data     uint64 // bytes of its message that were taken
	Complete bool   // the message is whole
	Answer   bool   // Reply is to be sent back
	Reply    Packet
}

// Arrive takes a request.
func (r *Receiver) Arrive(p *Packet) (a Arrival) {
	r.stats.Packets++
	if p.Sequence+1 < r.highest {
		distance := r.highest - 1 - p.Sequence
		r.stats.Reordered++
		r.stats.DistanceSum += distance
		r.stats.DistanceMax = max(r.stats.DistanceMax, distance)
	}
	r.highest = max(r.highest, p.Sequence+1)
	a.Reply = Packet{Opcode: Acknowledge, QP: p.QP}
	switch d := p.PSN.Sub(r.expected); {
	case d > 0:
		r.stats.OutOfSequence++
		if !r.nak {
			r.nak, a.Answer = true, true
			r.stats.Naks++
			a.Reply.Nak, a.Reply.PSN = true, r.expected
		}
		return a
	case d < 0:
		r.stats.Duplicates++
		a.Answer, a.Reply.PSN = true, (r.expected-1)&psnMask
		return a
	}
	r.expected = (r.expected + 1) & psnMask
	r.nak = false
	if p.Opcode.first() {
		r.got = 0
	}
	a.Data = uint64(p.Data)
	if p.Opcode.last() { // filled up, if it was short
		a.Data, a.Complete = p.Size-min(r.got, p.Size), true
	}
	r.got += a.Data
	a.Answer, a.Reply.PSN = p.AckReq, p.PSN
	return a
}

// Stats returns what happened so far.
func (r *Receiver) Stats() ReceiverStats { return r.stats }
