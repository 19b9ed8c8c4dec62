package reorder

// Add adds what another destination side, as that of another worker, counted and
// holds. Peaks are the greatest of the two: they need not have come at one time.
func (s *Stats) Add(o *Stats) {
	s.Packets += o.Packets
	s.Bytes += o.Bytes
	s.Unmarked += o.Unmarked
	s.Epochs += o.Epochs
	s.Requests += o.Requests
	s.Tails += o.Tails
	s.Rerouted += o.Rerouted
	s.Held += o.Held
	s.HeldBytes += o.HeldBytes
	s.Queues += o.Queues
	s.TailFlushes += o.TailFlushes
	s.Expiries += o.Expiries
	s.Overtaken += o.Overtaken
	s.Exhausted += o.Exhausted
	s.Flushed += o.Flushed
	s.Premature += o.Premature
	s.NoQueue += o.NoQueue
	s.NoFlow += o.NoFlow
	s.Late += o.Late
	s.AfterTail += o.AfterTail
	s.PassedUnheld += o.PassedUnheld
	s.Defaults += o.Defaults
	s.Capped += o.Capped
	s.Replies += o.Replies
	s.Clears += o.Clears
	s.Notifies += o.Notifies
	s.NotifiesSuppressed += o.NotifiesSuppressed
	s.BadLeaf += o.BadLeaf
	s.Refusals += o.Refusals
	s.InUse += o.InUse
	s.InUsePeak = max(s.InUsePeak, o.InUsePeak)
	s.Waiting += o.Waiting
	s.WaitingPeak = max(s.WaitingPeak, o.WaitingPeak)
	s.WaitingBytes += o.WaitingBytes
	s.WaitingBytesPeak = max(s.WaitingBytesPeak, o.WaitingBytesPeak)
	s.Hold.Merge(&o.Hold)
	s.TailEarly.Merge(&o.TailEarly)
	s.TailLate.Merge(&o.TailLate)
}

// Add adds what waits for the same port elsewhere, as with another worker.
func (u *PortUse) Add(o *PortUse) {
	u.Queues += o.Queues
	u.Packets += o.Packets
	u.Bytes += o.Bytes
	u.QueuesPeak = max(u.QueuesPeak, o.QueuesPeak)
	u.PacketsPeak = max(u.PacketsPeak, o.PacketsPeak)
	u.BytesPeak = max(u.BytesPeak, o.BytesPeak)
}
