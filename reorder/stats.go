package reorder

import "github.com/loomfabric/loom/internal/stat"

// Stats counts what a destination did. Packets are those of sources that speak
// ConWeave, if nothing else is said.
type Stats struct {
	_ struct{} `stat:"reorder"`

	Packets  uint64 `stat:"arrived_frames" help:"Tenants' frames that arrived with ConWeave's fields." unit:"frames"`
	Bytes    uint64 `stat:"arrived_bytes" help:"Bytes of tenants' frames that arrived with ConWeave's fields, outer headers not included." unit:"bytes"`
	Unmarked uint64 `stat:"unmarked_frames" help:"Tenants' frames that arrived with the fabric's fields, but without ConWeave's." unit:"frames"`
	Epochs   uint64 `stat:"epochs" help:"Epochs that began, or that were seen anew after their flow was forgotten."`

	Requests uint64 `stat:"requests" help:"RTT_REQUESTs that arrived."`
	Tails    uint64 `stat:"tails" help:"TAILs that arrived."`
	Rerouted uint64 `stat:"rerouted_frames" help:"REROUTED frames that arrived." unit:"frames"`

	Held      uint64 `stat:"held_frames" help:"Frames that had to wait for their flow's TAIL." unit:"frames"`
	HeldBytes uint64 `stat:"held_bytes" help:"Bytes of frames that had to wait for their flow's TAIL." unit:"bytes"`
	Queues    uint64 `stat:"queues_taken" help:"Times that a queue was taken for a flow."`

	// Queues that were drained.
	TailFlushes uint64 `stat:"flushes{cause=tail}" help:"Queues that were drained, by what caused it." about:"The TAIL came: what is meant to happen."`
	Expiries    uint64 `stat:"flushes{cause=expiry}" about:"T_resume passed first."`
	Overtaken   uint64 `stat:"flushes{cause=overtaken}" about:"A frame of a newer epoch came: the source gave the old one up."`
	Exhausted   uint64 `stat:"flushes{cause=exhausted}" about:"There was no room for one more frame."`
	Flushed     uint64 `stat:"flushes{cause=shutdown}" about:"The daemon ended."`

	// What passed without being put into order.
	Premature    uint64 `stat:"unordered_frames{cause=premature}" help:"Frames that were sent on without being put in order, by cause." unit:"frames" about:"They came over the old path after a flush by expiry; TAILs are among them."`
	Late         uint64 `stat:"unordered_frames{cause=late}" unit:"frames" about:"They belong to an older epoch than frames that have been sent on."`
	AfterTail    uint64 `stat:"unordered_frames{cause=after_tail}" unit:"frames" about:"They came over the old path behind their TAIL, or are copies."`
	PassedUnheld uint64 `stat:"unordered_frames{cause=no_queue}" unit:"frames" about:"They were rerouted, and their flow found no queue or its queue was exhausted."`
	NoFlow       uint64 `stat:"unordered_frames{cause=no_flow}" unit:"frames" about:"The flow table had no place."`
	NoQueue      uint64 `stat:"no_queue" help:"Flows whose first REROUTED frame found no queue, or no room in it."`

	Defaults uint64 `stat:"default_resumes" help:"T_resume that were set by resume_default, as nothing had come over the old path."`
	Capped   uint64 `stat:"capped_resumes" help:"T_resume that max_hold cut short."`

	// Messages.
	Replies            uint64 `stat:"replies" help:"RTT_REPLYs made, sent or not."`
	Clears             uint64 `stat:"clears" help:"CLEARs made, sent or not."`
	Notifies           uint64 `stat:"notifies" help:"NOTIFYs made, sent or not."`
	NotifiesSuppressed uint64 `stat:"notifies_spared" help:"NOTIFYs suppressed, as the path's last one was sent just before."`
	BadLeaf            uint64 `stat:"control_unsent{reason=bad_leaf}" help:"Control packets that could not be sent." about:"The leaf has no place in the tables, so it gets no NOTIFY."`
	Refusals           uint64 `stat:"refusals" help:"Control packets that asked their leaf not to reroute (admission)."`

	// State now, and the most that there ever was.
	InUse            int    `stat:"queues,gauge" help:"Queues that hold frames."`
	InUsePeak        int    `stat:"queues_peak,max" metric:"-" help:"Most queues that ever held frames at a time."`
	Waiting          int    `stat:"waiting_frames,gauge" help:"Frames that are held." unit:"frames"`
	WaitingPeak      int    `stat:"waiting_peak_frames,max" metric:"-" help:"Most frames that were ever held at a time." unit:"frames"`
	WaitingBytes     uint64 `stat:"waiting_bytes,gauge" help:"Bytes of the frames that are held." unit:"bytes"`
	WaitingBytesPeak uint64 `stat:"waiting_peak_bytes,max" metric:"-" help:"Most bytes that were ever held at a time." unit:"bytes"`

	// The peaks say neither when nor how often, and are for answers and for results.
	QueuesDepth  stat.Sizes `stat:"queues_depth" help:"Queues that held frames in a worker, each time that one was taken."`
	WaitingDepth stat.Sizes `stat:"waiting_depth_frames" unit:"frames" help:"Frames that a worker held, at each one that has to wait."`
	BytesDepth   stat.Sizes `stat:"waiting_depth_bytes" unit:"bytes" help:"Bytes that a worker held, at each frame that has to wait."`

	Hold Histogram `stat:"hold_time" metric:"hold" help:"How long queues were held, from their first frame on."`
	// TailEarly and TailLate are the error of T_resume without θ_resume_extra against
	// the TAIL's arrival (Figure 21): TailEarly where the TAIL came before it,
	// TailLate where it came after it, so that a flush at T_resume would have been too
	// early. Only estimates that rest on a packet from the OLD path count.
	TailEarly Histogram `stat:"resume_error{tail=early}" help:"Time between T_resume, without what resume_extra adds, and the arrival of the TAIL, where it rests on a frame of the old path (ConWeave Figure 21)." about:"The TAIL came before T_resume."`
	TailLate  Histogram `stat:"resume_error{tail=late}" about:"The TAIL came after T_resume: without resume_extra a flush would have been too early."`
}

// PortUse is what waits for an egress port.
type PortUse struct {
	_ struct{} `stat:"reorder_port"`

	Queues      int    `stat:"queues,gauge" help:"Queues that hold frames for the port, all workers together."`
	QueuesPeak  int    `stat:"queues_peak,max" metric:"-" help:"Most queues that ever held frames for the port at a time, in one worker."`
	Packets     int    `stat:"waiting_frames,gauge" help:"Frames that are held for the port, all workers together." unit:"frames"`
	PacketsPeak int    `stat:"waiting_peak_frames,max" metric:"-" help:"Most frames that were ever held for the port at a time, in one worker." unit:"frames"`
	Bytes       uint64 `stat:"waiting_bytes,gauge" help:"Bytes of the frames that are held for the port, all workers together." unit:"bytes"`
	BytesPeak   uint64 `stat:"waiting_peak_bytes,max" metric:"-" help:"Most bytes that were ever held for the port at a time, in one worker." unit:"bytes"`

	BytesDepth stat.Sizes `stat:"waiting_depth_bytes" unit:"bytes" help:"Bytes that a worker held for the port, at each frame that has to wait."`
}
