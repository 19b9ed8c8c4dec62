package sim

// Result is what a run measured. Its JSON form is stable: names carry units,
// and the same Spec gives the same bytes, Machine apart.
type Result struct {
	Scheme string  `json:"scheme"`
	Load   float64 `json:"load"` // percent, of the first workload that has one
	Seed   uint64  `json:"seed"`

	// End says why the run ended: "done" (all flows finished), "time" (Duration
	// and Drain were over), "stuck" (nothing moved although something waits: a
	// PFC deadlock) or "interrupted".
	End        string  `json:"end"`
	SimulatedS float64 `json:"simulated_s"`

	Flows      int `json:"flows"`      // measured ones
	Unfinished int `json:"unfinished"` // of those, when the run ended
	// FCT has classes "all", "small", "medium", "large", then the buckets. A flow
	// that is unfinished counts with the age that it has.
	FCT        []ClassFCT `json:"fct"`
	GoodputBps float64    `json:"goodput_bps"`

	Workloads []WorkloadResult `json:"workloads,omitempty"`

	Imbalance []Distribution `json:"imbalance,omitempty"` // (max−min)/mean of uplinks, by leaf; first "all"
	Queues    []Distribution `json:"queues,omitempty"`    // bytes over time, by port
	Uplinks   []LinkShare    `json:"uplinks,omitempty"`

	Transport map[string]uint64 `json:"transport"` // counters of the transports: retransmits, timeouts, CNPs, out of order, ...
	Drops     map[string]uint64 `json:"drops"`     // packets, by reason
	PFC       map[string]uint64 `json:"pfc"`       // pauses, and their time in ns
	Scheduler map[string]uint64 `json:"balancing"` // counters of the scheme
	ConWeave  *ConWeaveResult   `json:"conweave,omitempty"`

	Conservation Conservation `json:"conservation"`
	Events       uint64       `json:"events"`
	PacketHops   uint64       `json:"packet_hops"`
	Machine      Machine      `json:"machine"`
}

// ClassFCT are completion times of flows of one range of sizes.
type ClassFCT struct {
	Class    string  `json:"class"`
	MinBytes uint64  `json:"min_bytes"`
	MaxBytes uint64  `json:"max_bytes"` // exclusive; 0: none
	Flows    int     `json:"flows"`
	MeanS    float64 `json:"mean_s"`
	P50S     float64 `json:"p50_s"`
	P95S     float64 `json:"p95_s"`
	P99S     float64 `json:"p99_s"`
	P999S    float64 `json:"p999_s"`
	// Norm is the mean FCT over the mean of the same flows' FCT in an idle
	// network (CONGA §5.2.1); Slowdown is of each flow (ConWeave §4.1).
	Norm         float64 `json:"norm"`
	SlowdownMean float64 `json:"slowdown_mean"`
	SlowdownP50  float64 `json:"slowdown_p50"`
	SlowdownP95  float64 `json:"slowdown_p95"`
	SlowdownP99  float64 `json:"slowdown_p99"`
	SlowdownP999 float64 `json:"slowdown_p999"`
}

// WorkloadResult is what one workload got.
type WorkloadResult struct {
	Name       string `json:"name"`
	Flows      int    `json:"flows"`
	Unfinished int    `json:"unfinished"`
	// GoodputBps is over the part of the window in which the workload begins
	// flows: of what ended in the window, and of flows without an end what came.
	GoodputBps float64 `json:"goodput_bps"`
	// Incast: the effective throughput of whole answers, percent of the client's
	// access link (CONGA §5.3).
	EffectivePercent float64 `json:"effective_percent,omitempty"`
}

// Distribution is of a value over time or samples.
type Distribution struct {
	Name string  `json:"name"`
	N    uint64  `json:"n"`
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P95  float64 `json:"p95"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
	CDF  []Point `json:"cdf,omitempty"` // at most 100 points
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
	Percent float64 `json:"percent"` // of the leaf's
}

// ConWeaveResult is what the scheme did.
type ConWeaveResult struct {
	Counters   map[string]uint64 `json:"counters"`
	Queues     Distribution      `json:"queues"` // in use, by host port, sampled
	Bytes      Distribution      `json:"bytes"`  // held, by leaf, sampled
	HoldTimeNs Distribution      `json:"hold_time_ns"`
	// T_resume without θ_resume_extra against the TAIL's arrival (Figure 21): how
	// much earlier the TAIL came, and, where it came later, how much.
	ResumeEarlyNs Distribution      `json:"resume_early_ns"`
	ResumeLateNs  Distribution      `json:"resume_late_ns"`
	ReplyTimeNs   Distribution      `json:"reply_time_ns"`
	ControlBytes  map[string]uint64 `json:"control_bytes"` // by opcode
	DataBytes     uint64            `json:"data_bytes"`
}

// Conservation holds a run's packets: Made = Delivered + Dropped + InFlight.
type Conservation struct {
	Made      uint64 `json:"made"`
	Delivered uint64 `json:"delivered"`
	Dropped   uint64 `json:"dropped"`
	InFlight  uint64 `json:"in_flight"`
}

// Machine is what the run took where it ran.
type Machine struct {
	WallS      float64 `json:"wall_s"`
	HopsPerS   float64 `json:"hops_per_s"`
	AllocBytes uint64  `json:"alloc_bytes"`
}
