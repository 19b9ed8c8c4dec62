package measure

import (
	"fmt"
	"time"
)

// Result is what a run measured, simulated or in the lab: each fills in what it
// can. Its JSON form is stable: names carry units, and a number that the JSON form
// leaves out was not measured. The same model simulated again gives the same
// bytes, Machine apart.
//
// The tags words and names are what reports call a number. Those of a struct, list or
// map stand before its numbers' words ("-": nothing does); default: the JSON name. In
// the tag names %s is the name of an item of a list or map, and stands behind. unit is
// given where the JSON name does not end in it ("-": there is none).
type Result struct {
	Scheme string  `json:"scheme"`
	Load   float64 `json:"load"` // percent, of the first workload that has one
	Seed   uint64  `json:"seed"`

	// End says why the run ended: "done" (all flows finished), "time" (the time for
	// flows under way was over, too), "stuck" (nothing moved although something
	// waits: a PFC deadlock) or "interrupted".
	End     string  `json:"end"`
	LengthS float64 `json:"length_s"` // by the fabric's clock: virtual or real

	Flows      int `json:"flows"`                                 // that count: they began in the measured time
	Unfinished int `json:"unfinished" words:"flows not finished"` // how many of them had not finished when the run ended
	// FCT has classes "all", "small", "medium", "large", then the buckets. A flow
	// that is unfinished counts with the age that it has.
	FCT        []ClassFCT `json:"fct" words:"-" names:", %s flows"`
	GoodputBps float64    `json:"goodput_bps" words:"goodput"`

	Workloads []WorkloadResult `json:"workloads,omitempty" words:"-"`

	Imbalance []Distribution `json:"imbalance,omitempty" words:"imbalance of uplinks, "` // (max−min)/mean of uplinks, by leaf; first "all"
	Queues    []Distribution `json:"queues,omitempty" words:"queue, " unit:"B"`          // bytes over time, by port
	Uplinks   []LinkShare    `json:"uplinks,omitempty" words:"-"`                        // L0->S1.0 is leaf 0's first link to spine 1
	// Phases are Uplinks from one workload's start to the next one's, as in "L0->S1.0
	// from 5s"; none if all workloads start at once.
	Phases []LinkShare `json:"phases,omitempty" words:"-"`
	// Reactions are how leaves followed faults, by fault and leaf: "fail L1-S1.0: L0".
	Reactions []Reaction `json:"reactions,omitempty" words:"-"`

	// Progress is what happened in each interval of a run (the simulator).
	Progress []Interval `json:"progress,omitempty" words:"-"`

	Transport map[string]uint64 `json:"transport"` // counters of the transports: retransmits, timeouts, CNPs, out of order, ...
	Drops     map[string]uint64 `json:"drops"`     // packets, by reason
	PFC       map[string]uint64 `json:"pfc"`       // pauses, and their time in ns
	Scheduler map[string]uint64 `json:"balancing"` // counters of the scheme
	ConWeave  *ConWeaveResult   `json:"conweave,omitempty"`

	Conservation Conservation `json:"conservation"`
	Events       uint64       `json:"events"`
	PacketHops   uint64       `json:"packet_hops" words:"packet-hops"`
	Machine      Machine      `json:"machine" words:"-"`
}

// ClassFCT are completion times of flows of one range of sizes.
type ClassFCT struct {
	Class    string  `json:"class"`
	MinBytes uint64  `json:"min_bytes"`
	MaxBytes uint64  `json:"max_bytes"` // exclusive; 0: none
	Flows    int     `json:"flows"`
	MeanS    float64 `json:"mean_s" words:"mean FCT"`
	P50S     float64 `json:"p50_s" words:"p50 FCT"`
	P95S     float64 `json:"p95_s" words:"p95 FCT"`
	P99S     float64 `json:"p99_s" words:"p99 FCT"`
	P999S    float64 `json:"p999_s" words:"p99.9 FCT"`
	// Norm is the mean FCT over the mean of the same flows' FCT in an idle
	// network (CONGA §5.2.1); Slowdown is of each flow (ConWeave §4.1).
	Norm         float64 `json:"norm,omitempty" words:"mean FCT ÷ idle network's"`
	SlowdownMean float64 `json:"slowdown_mean,omitempty" words:"mean FCT slowdown"`
	SlowdownP50  float64 `json:"slowdown_p50,omitempty" words:"p50 FCT slowdown"`
	SlowdownP95  float64 `json:"slowdown_p95,omitempty" words:"p95 FCT slowdown"`
	SlowdownP99  float64 `json:"slowdown_p99,omitempty" words:"p99 FCT slowdown"`
	SlowdownP999 float64 `json:"slowdown_p999,omitempty" words:"p99.9 FCT slowdown"`
}

// WorkloadResult is what one workload got.
type WorkloadResult struct {
	Name       string `json:"name"`
	Flows      int    `json:"flows"`
	Unfinished int    `json:"unfinished" words:"flows not finished"`
	// GoodputBps is over the part of the window in which the workload begins
	// flows: of what ended in the window, and of flows without an end what came.
	GoodputBps float64 `json:"goodput_bps" words:"goodput"`
	// Incast: the effective throughput of whole answers, percent of the client's
	// access link (CONGA §5.3).
	EffectivePercent float64 `json:"effective_percent,omitempty" words:"effective throughput"`
	// EndedS is when the last flow that ended did, from the start of the run: a job's
	// completion time, if the flows are a job's (CONGA §5.4).
	EndedS float64 `json:"ended_s,omitempty" words:"end of the last flow"`
	// FCT is of this workload's flows; none if the run has no other workload.
	FCT []ClassFCT `json:"fct,omitempty" words:"-" names:", %s flows"`
	// Reordering is what the receivers of a roce workload in the lab saw.
	Reordering    *Reordering `json:"reordering,omitempty" words:"-"`
	ReceivedBytes uint64      `json:"received_bytes,omitempty"` // payload (the lab)
	// Datagrams of a udp workload in the lab.
	DatagramsSent     uint64 `json:"datagrams_sent,omitempty"`
	DatagramsReceived uint64 `json:"datagrams_received,omitempty"`
	// Failed and Refused are the flows among the unfinished ones whose connection
	// broke, and that were not begun since too many were under way (the lab).
	Failed  int `json:"failed,omitempty"`
	Refused int `json:"refused,omitempty"`
}

// Reordering is what the queue pairs of a workload saw, in packets.
type Reordering struct {
	Packets uint64 `json:"packets"` // requests that arrived
	// Reordered packets arrived after one that was sent later; losses and
	// repetitions do not count. The distance is how much later.
	Reordered    uint64  `json:"reordered"`
	Percent      float64 `json:"percent" words:"reordered"` // of Packets
	MeanDistance float64 `json:"mean_distance" words:"distance of reordered packets, mean"`
	MaxDistance  uint64  `json:"max_distance" words:"distance of reordered packets, greatest"`
	// OutOfSequence packets were dropped by the receiver, as by a NIC, since an
	// earlier one was missing: reordered, lost, or merely behind such a one.
	OutOfSequence        uint64  `json:"out_of_sequence"`
	OutOfSequencePercent float64 `json:"out_of_sequence_percent" words:"out of sequence"` // of Packets
	Duplicates           uint64  `json:"duplicates"`
	Sent                 uint64  `json:"sent"` // repetitions included
	Retransmitted        uint64  `json:"retransmitted"`
	RetransmittedPercent float64 `json:"retransmitted_percent" words:"retransmitted"` // of Sent
	Rewinds              uint64  `json:"rewinds"`                                     // times that a sender went back for a NAK
	Timeouts             uint64  `json:"timeouts"`                                    // times that a sender went back for want of an answer
}

// Reaction is how a leaf's split over the spines followed a fault: the share of
// its uplinks' traffic that it sent to the spine of the link that failed or came
// back.
type Reaction struct {
	Name          string  `json:"name"`                                // of the fault and the leaf
	BeforePercent float64 `json:"before_percent" words:"share before"` // in the second before the fault
	AfterPercent  float64 `json:"after_percent" words:"share after"`   // in the second half of the time to the next fault
	// FollowedS is the time from the fault until the share first stayed near its
	// later value; nil: it never did.
	FollowedS *float64 `json:"followed_s,omitempty" words:"followed after"`
}

// Distribution is of a value over time or samples.
type Distribution struct {
	Name string  `json:"name"`
	N    uint64  `json:"n" unit:"-"`
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P95  float64 `json:"p95"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max" words:"greatest"`
	CDF  []Point `json:"cdf,omitempty"` // at most 100 points
}

// Interval is what happened in a part of a run.
type Interval struct {
	Until      string  `json:"until"` // its end, after the start: "1.5s"
	GoodputBps float64 `json:"goodput_bps" words:"goodput"`
	// ReorderedPerS are data packets a second that one sent later had overtaken.
	ReorderedPerS float64 `json:"reordered_per_s" words:"reordered packets a second" unit:"-"`
	// LostPercent are the packets that switches dropped, of those that were made.
	LostPercent float64 `json:"lost_percent" words:"lost"`
}

// Point is one of a curve.
type Point struct {
	X float64 `json:"x"`
	Y float64 `json:"y"`
}

// LinkShare is what one uplink of a leaf carried.
type LinkShare struct {
	Link    string  `json:"link"`
	Bytes   uint64  `json:"bytes"`
	Percent float64 `json:"percent" words:"share"` // of the leaf's
}

// FromPhase is what the names of [Result.Phases] end in.
func FromPhase(start time.Duration) string { return fmt.Sprintf(" from %v", start) }

// Share fills in the percentages of one leaf's uplinks.
func Share(uplinks []LinkShare) {
	sum := uint64(0)
	for _, u := range uplinks {
		sum += u.Bytes
	}
	for i := range uplinks {
		if u := &uplinks[i]; sum > 0 {
			u.Percent = 100 * float64(u.Bytes) / float64(sum)
		}
	}
}

// ConWeaveResult is what the scheme did.
type ConWeaveResult struct {
	Counters   map[string]uint64 `json:"counters"`
	Queues     Distribution      `json:"queues"`         // in use, by host port, sampled
	Bytes      Distribution      `json:"bytes" unit:"B"` // held, by leaf, sampled
	HoldTimeNs Distribution      `json:"hold_time_ns" unit:"ns"`
	// T_resume without θ_resume_extra against the TAIL's arrival (Figure 21): how
	// much earlier the TAIL came, and, where it came later, how much.
	ResumeEarlyNs Distribution      `json:"resume_early_ns" unit:"ns"`
	ResumeLateNs  Distribution      `json:"resume_late_ns" unit:"ns"`
	ReplyTimeNs   Distribution      `json:"reply_time_ns" unit:"ns"`
	ControlBytes  map[string]uint64 `json:"control_bytes" unit:"B"` // by opcode
	DataBytes     uint64            `json:"data_bytes"`
	// Control is what messages cost beside the data (ConWeave Table 4).
	Control []ControlShare `json:"control,omitempty" words:"-"`
}

// ControlShare is what messages of one kind cost.
type ControlShare struct {
	Opcode  string  `json:"opcode"`
	Percent float64 `json:"percent" words:"control bytes beside data"` // of the data's bytes
}

// Conservation holds a run's packets: Made = Delivered + Dropped + InFlight.
type Conservation struct {
	Made      uint64 `json:"made"`
	Delivered uint64 `json:"delivered"`
	Dropped   uint64 `json:"dropped"`
	InFlight  uint64 `json:"in_flight"`
	// LostPercent is the share of Dropped in Made.
	LostPercent float64 `json:"lost_percent" words:"lost"`
}

// Machine is what the run took where it ran.
type Machine struct {
	WallS      float64 `json:"wall_s" words:"time it took"`
	HopsPerS   float64 `json:"hops_per_s,omitempty" words:"speed"` // the simulator
	AllocBytes uint64  `json:"alloc_bytes,omitempty"`              // the simulator
	// Threads is how many a simulated run could use.
	Threads int `json:"threads,omitempty"`
	// MemoryBytes is what the simulator had of the machine's memory when the run was over,
	// for all runs that it made side by side.
	MemoryBytes uint64 `json:"memory_bytes,omitempty" words:"memory"`
	// CPUIdlePercent is the share of the machine's cores that nothing used under the load
	// (the lab): a run that leaves next to nothing measured the machine.
	CPUIdlePercent *float64 `json:"cpu_idle_percent,omitempty" words:"CPU idle"`
}
