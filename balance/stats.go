package balance

// Add adds what another policy, or the same one of another worker, counted.
func (s *Stats) Add(o *Stats) {
	s.Decisions += o.Decisions
	s.Flowlets.Started += o.Flowlets.Started
	s.Flowlets.Moved += o.Flowlets.Moved
	s.Flowlets.Kept += o.Flowlets.Kept
	s.Flowlets.Expired += o.Flowlets.Expired
	s.ConWeave.Add(&o.ConWeave)
}

// Add adds what another source side counted.
func (s *ConWeaveStats) Add(o *ConWeaveStats) {
	s.Epochs += o.Epochs
	s.Requests += o.Requests
	s.CutOffs += o.CutOffs
	s.Reroutes += o.Reroutes
	s.Aborts += o.Aborts
	s.Refused += o.Refused
	s.Inactive += o.Inactive
	s.Unclear += o.Unclear
	s.Moves += o.Moves
	s.Replies += o.Replies
	s.LateReplies += o.LateReplies
	s.Clears += o.Clears
	s.Notifies += o.Notifies
	s.Overflow += o.Overflow
	s.Incapable += o.Incapable
	s.StaleReplies += o.StaleReplies
	s.StaleClears += o.StaleClears
	s.UnknownFlow += o.UnknownFlow
	s.UnknownLeaf += o.UnknownLeaf
	s.UnknownPath += o.UnknownPath
	s.UnknownOpcode += o.UnknownOpcode
	s.ReplyTime.Merge(&o.ReplyTime)
}
