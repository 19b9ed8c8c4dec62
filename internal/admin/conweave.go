package admin

import (
	"net/url"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// ConWeave is the answer of /v1/conweave: parameters and state of both sides, and
// what they counted since the start, all workers together.
type ConWeave struct {
	*dataplane.ConWeaveState
	SourceCounters      []ConWeaveSource    `json:"source_counters"` // by scheme
	DestinationCounters ConWeaveDestination `json:"destination_counters"`
}

// ConWeaveSource is what a scheme with a source side counted. The reasons are
// those of loom_conweave_ignored_total.
type ConWeaveSource struct {
	Scheme          string            `json:"scheme"`
	Epochs          uint64            `json:"epochs"`
	Requests        uint64            `json:"requests"`
	Replies         uint64            `json:"replies"` // in time
	LateReplies     uint64            `json:"late_replies"`
	CutOffs         uint64            `json:"cutoffs"`
	Reroutes        uint64            `json:"reroutes"`
	Aborts          uint64            `json:"aborts"`
	Refused         uint64            `json:"refused"`
	Clears          uint64            `json:"clears"`
	Notifies        uint64            `json:"notifies"` // each counted by each worker
	Inactive        uint64            `json:"inactive"`
	Unclear         uint64            `json:"unclear"` // of the inactive
	Moves           uint64            `json:"moves"`
	OverflowFrames  uint64            `json:"overflow_frames"`
	IncapableFrames uint64            `json:"incapable_frames"`
	Ignored         map[string]uint64 `json:"ignored"` // control packets, by reason; none that is 0
	ReplyTime       Times             `json:"reply_time"`
}

// ConWeaveDestination is what the destination side counted. Causes and reasons
// are those of loom_reorder_*.
type ConWeaveDestination struct {
	ArrivedFrames    uint64            `json:"arrived_frames"`
	ArrivedBytes     uint64            `json:"arrived_bytes"`
	UnmarkedFrames   uint64            `json:"unmarked_frames"`
	Epochs           uint64            `json:"epochs"`
	Requests         uint64            `json:"requests"`
	Tails            uint64            `json:"tails"`
	ReroutedFrames   uint64            `json:"rerouted_frames"`
	HeldFrames       uint64            `json:"held_frames"`
	HeldBytes        uint64            `json:"held_bytes"`
	QueuesTaken      uint64            `json:"queues_taken"`
	NoQueue          uint64            `json:"no_queue"` // flows
	DefaultResumes   uint64            `json:"default_resumes"`
	CappedResumes    uint64            `json:"capped_resumes"`
	Flushes          map[string]uint64 `json:"flushes"`          // by cause; none that is 0
	UnorderedFrames  map[string]uint64 `json:"unordered_frames"` // likewise
	Control          []ConWeaveControl `json:"control"`
	ControlUnsent    map[string]uint64 `json:"control_unsent"` // by reason; none that is 0
	NotifiesSpared   uint64            `json:"notifies_spared"`
	Refusals         uint64            `json:"refusals"`
	HoldTime         Times             `json:"hold_time"`
	ResumeErrorEarly Times             `json:"resume_error_early"` // the TAIL came before T_resume
	ResumeErrorLate  Times             `json:"resume_error_late"`  // it came after
}

// ConWeaveControl is what control packets of one opcode took; compare Bytes with
// ArrivedBytes (ConWeave Table 4).
type ConWeaveControl struct {
	Opcode string `json:"opcode"`
	Frames uint64 `json:"frames"` // sent or not
	Bytes  uint64 `json:"bytes"`  // sent
}

// Times says how durations are spread. Percentiles are too high by a quarter at
// most.
type Times struct {
	Count uint64        `json:"count"`
	Mean  time.Duration `json:"mean_ns"`
	P50   time.Duration `json:"p50_ns"`
	P90   time.Duration `json:"p90_ns"`
	P99   time.Duration `json:"p99_ns"`
	P999  time.Duration `json:"p999_ns"`
	Max   time.Duration `json:"max_ns"`
}

func times(h *reorder.Histogram) Times {
	t := Times{h.N, 0, h.Quantile(0.5), h.Quantile(0.9), h.Quantile(0.99), h.Quantile(0.999), h.Max}
	if h.N > 0 {
		t.Mean = time.Duration(uint64(h.Sum) / h.N)
	}
	return t
}

func answerConWeave(s *Server, q url.Values) (any, error) {
	n, err := limit(q, 0)
	if err != nil {
		return nil, err
	}
	st := s.Node.Stats()
	return conweave(&st, s.Node.ConWeave(n)), nil
}

func conweave(st *dataplane.Stats, state *dataplane.ConWeaveState) ConWeave {
	a := ConWeave{ConWeaveState: state, SourceCounters: []ConWeaveSource{}}
	var names []string
	sums := make(map[string]*balance.ConWeaveStats)
	var d reorder.Stats
	var unsent dataplane.OrderStats
	for i := range st.Workers {
		w := &st.Workers[i]
		for j := range w.Schemes {
			c := &w.Schemes[j]
			if !balance.Signals(c.Scheme) {
				continue
			}
			if sums[c.Scheme] == nil {
				names, sums[c.Scheme] = append(names, c.Scheme), new(balance.ConWeaveStats)
			}
			sums[c.Scheme].Add(&c.ConWeave)
		}
		d.Add(&w.Reorder)
		unsent.Incapable += w.Order.Incapable
		unsent.NoPath += w.Order.NoPath
		unsent.NoFrame += w.Order.NoFrame
	}
	for _, name := range names {
		a.SourceCounters = append(a.SourceCounters, sourceCounters(name, sums[name]))
	}
	a.DestinationCounters = destinationCounters(&d, &unsent)
	return a
}

func sourceCounters(scheme string, s *balance.ConWeaveStats) ConWeaveSource {
	return ConWeaveSource{
		Scheme: scheme, Epochs: s.Epochs, Requests: s.Requests, Replies: s.Replies, LateReplies: s.LateReplies,
		CutOffs: s.CutOffs, Reroutes: s.Reroutes, Aborts: s.Aborts, Refused: s.Refused,
		Clears: s.Clears, Notifies: s.Notifies, Inactive: s.Inactive, Unclear: s.Unclear, Moves: s.Moves,
		OverflowFrames: s.Overflow, IncapableFrames: s.Incapable,
		Ignored: some(map[string]uint64{
			"stale_reply": s.StaleReplies, "stale_clear": s.StaleClears, "unknown_flow": s.UnknownFlow,
			"unknown_leaf": s.UnknownLeaf, "unknown_path": s.UnknownPath, "unknown_opcode": s.UnknownOpcode,
		}),
		ReplyTime: times(&s.ReplyTime),
	}
}

func destinationCounters(s *reorder.Stats, unsent *dataplane.OrderStats) ConWeaveDestination {
	control := func(op overlay.Opcode, n uint64) ConWeaveControl {
		return ConWeaveControl{op.String(), n, s.ControlBytes[op]}
	}
	return ConWeaveDestination{
		ArrivedFrames: s.Packets, ArrivedBytes: s.Bytes, UnmarkedFrames: s.Unmarked,
		Epochs: s.Epochs, Requests: s.Requests, Tails: s.Tails, ReroutedFrames: s.Rerouted,
		HeldFrames: s.Held, HeldBytes: s.HeldBytes, QueuesTaken: s.Queues, NoQueue: s.NoQueue,
		DefaultResumes: s.Defaults, CappedResumes: s.Capped,
		Flushes: some(map[string]uint64{
			"tail": s.TailFlushes, "expiry": s.Expiries, "overtaken": s.Overtaken, "exhausted": s.Exhausted, "shutdown": s.Flushed,
		}),
		UnorderedFrames: some(map[string]uint64{
			"premature": s.Premature, "late": s.Late, "after_tail": s.AfterTail, "no_queue": s.PassedInLieu, "no_flow": s.NoFlow,
		}),
		Control: []ConWeaveControl{
			control(overlay.OpRTTReply, s.Replies), control(overlay.OpClear, s.Clears), control(overlay.OpNotify, s.Notifies),
		},
		ControlUnsent: some(map[string]uint64{
			"bad_leaf": s.BadLeaf, "incapable": unsent.Incapable, "no_path": unsent.NoPath, "no_frame": unsent.NoFrame,
		}),
		NotifiesSpared: s.NotifiesSpared, Refusals: s.Refusals,
		HoldTime: times(&s.Hold), ResumeErrorEarly: times(&s.Early), ResumeErrorLate: times(&s.Hasty),
	}
}

// some leaves out what did not occur.
func some(m map[string]uint64) map[string]uint64 {
	for k, n := range m {
		if n == 0 {
			delete(m, k)
		}
	}
	return m
}
