package lab

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/workload"
	"github.com/loomfabric/loom/internal/workload/roce"
)

// The controller and the agents speak JSON lines over the agent's standard
// input and output: one request, one reply. All processes share the machine's
// CLOCK_MONOTONIC, so that one instant means the same to all.

// request asks an agent for one operation. Op selects the field that counts.
type request struct {
	Op    string     `json:"op"`
	Ping  *pingSpec  `json:"ping,omitempty"`
	Fetch *fetchSpec `json:"fetch,omitempty"`
	Start *startSpec `json:"start,omitempty"`
}

// The operations.
const (
	opPing     = "ping"     // echo requests to some addresses
	opFetch    = "fetch"    // single flows, one after the other
	opStart    = "start"    // begin tasks; replies at once
	opProgress = "progress" // bytes received so far, and whether tasks go on
	opReport   = "report"   // stop, and report everything
)

type pingSpec struct {
	Targets  []string      `json:"targets"`
	Attempts int           `json:"attempts"`
	Timeout  time.Duration `json:"timeout"` // of one attempt
}

// fetchSpec is a number of flows of one size, one after the other.
type fetchSpec struct {
	Server string `json:"server"`
	Bytes  uint64 `json:"bytes"`
	Count  int    `json:"count"`
	// Persistent fetches over one connection that has already carried a flow.
	Persistent bool `json:"persistent,omitempty"`
}

// startSpec describes tasks relative to an instant of CLOCK_MONOTONIC.
type startSpec struct {
	Epoch     int64         `json:"epoch"` // ns
	Length    time.Duration `json:"length"`
	Workloads int           `json:"workloads"`
	Tasks     []task        `json:"tasks"`
}

// task is one host's part of one workload, on the side that begins flows.
type task struct {
	Workload   int              `json:"workload"` // index in the file
	Type       string           `json:"type"`
	Start      time.Duration    `json:"start"`
	Duration   time.Duration    `json:"duration"`
	Seed       uint64           `json:"seed"`
	Stream     uint64           `json:"stream"` // of the generator: the host
	Peers      []string         `json:"peers"`
	Flows      int              `json:"flows,omitempty"`
	FlowRate   float64          `json:"flow_rate,omitempty"` // flows per second
	Sizes      []workload.Point `json:"sizes,omitempty"`
	Persistent bool             `json:"persistent,omitempty"`
	FanIn      int              `json:"fan_in,omitempty"`
	Bytes      uint64           `json:"bytes,omitempty"`
	Interval   time.Duration    `json:"interval,omitempty"`
	Rate       uint64           `json:"rate,omitempty"`
	Size       int              `json:"size,omitempty"`
	QueuePairs int              `json:"qps,omitempty"`
}

// reply answers a request; Err is empty if it went well.
type reply struct {
	Err string `json:"err,omitempty"`
	// RTTs by target; below 0: no answer.
	RTTs []time.Duration `json:"rtts,omitempty"`
	// FCTs of fetched flows.
	FCTs     []time.Duration `json:"fcts,omitempty"`
	Received uint64          `json:"received,omitempty"` // bytes of payload
	Busy     bool            `json:"busy,omitempty"`     // tasks are not over yet
	Report   *agentReport    `json:"report,omitempty"`
}

// agentReport holds the counts of one host.
type agentReport struct {
	Flows []flowRecord `json:"flows"`
	// Received is payload by workload and bucket of bucketLen since the epoch,
	// counted when the application reads it.
	Received [][]uint64 `json:"received"`
	// Datagrams by workload.
	DatagramsSent, DatagramsReceived []uint64
	// Failed connections by workload: they broke or were refused. Refused flows
	// were not begun because too many were in progress.
	Failed, Refused []uint64
	// Endless flows by workload that were begun.
	Endless []uint64
	// RoCE by workload; none if this host had no part in one of that type.
	RoCE []roceCounts `json:",omitempty"`
}

// roceCounts holds the counts of one host's queue pairs, as senders and as receivers.
type roceCounts struct {
	Sent     roce.SenderStats
	Received roce.ReceiverStats
}

// flowRecord is one flow. Its completion time runs from the moment when the
// receiver asked for it (opening the connection, if it has its own) to the moment
// when it has read the last byte, both by the receiver's clock. For an incast
// query that is the last byte of the last answer. A message of a roce workload
// begins when its sender posts it.
type flowRecord struct {
	Workload int           `json:"w"`
	Bytes    uint64        `json:"b"`
	Start    time.Duration `json:"s"` // since the epoch
	FCT      time.Duration `json:"t"`
	// Open flows have no FCT: they were under way when the run ended, their
	// connection broke, or they were refused.
	Open bool `json:"o,omitempty"`
}

// bucketLen is the grain of timelines.
const bucketLen = 100 * time.Millisecond

// monotonic reads the clock that all processes share, in nanoseconds.
func monotonic() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // the clock exists on every Linux
	}
	return ts.Nano()
}
