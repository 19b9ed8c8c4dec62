// Package sim runs fabrics in virtual time: it assembles hosts, switches and
// traffic from a [Spec], lets the engine run, and returns what was measured as a
// [Result]. The algorithms are those of the data plane; package node drives them.
package sim

import (
	"github.com/loomfabric/loom/fabric"
)

// Spec is one run. It is the model behind an experiment file: its fields are the
// file's keys. The same Spec gives the same Result, byte for byte, but for what
// the machine adds (Result.Machine).
type Spec struct {
	Topology   Topology          `yaml:"topology"`
	Scheme     string            `yaml:"scheme"`     // of package balance, with its defaults
	Congestion fabric.Congestion `yaml:"congestion"` // CONGA's parameters; profile "datacenter" by default here
	ConWeave   ConWeave          `yaml:"conweave"`
	Transport  Transport         `yaml:"transport"`
	Workloads  []Workload        `yaml:"workloads"`
	// Faults fail and restore links at times after the start.
	Faults []fabric.Fault `yaml:"faults"`
	// Duration is for how long flows start, after a warm-up whose flows are not
	// measured. Drain is how much longer the run goes on for those that are still
	// under way then; 0: five times Duration. It ends earlier when all are done.
	Warmup   fabric.Duration `yaml:"warmup"`
	Duration fabric.Duration `yaml:"duration"`
	Drain    fabric.Duration `yaml:"drain"`
	Seed     uint64          `yaml:"seed"`
	Measure  Measure         `yaml:"measure"`
}

// Topology is what stands where.
type Topology struct {
	// Kind is "leaf-spine" (the default), "fat-tree", "three-layer", "vl2" or
	// "file".
	Kind string `yaml:"kind"`
	// File is a fabric.yaml, for kind file, relative to the experiment file. What
	// it says holds as far as the experiment is silent: scheme, congestion, tcp,
	// workloads, for how long. It has links, hosts, buffers and marking to itself.
	File string `yaml:"file"`
	// Load, for kind file, replaces that of its request workloads, percent.
	Load float64 `yaml:"load"`

	Leaves       int `yaml:"leaves"` // leaf-spine, three-layer, vl2
	Spines       int `yaml:"spines"` // leaf-spine; three-layer and vl2: the tier in the middle
	Cores        int `yaml:"cores"`  // three-layer
	K            int `yaml:"k"`      // fat-tree
	HostsPerLeaf int `yaml:"hosts-per-leaf"`
	Parallel     int `yaml:"parallel"` // links of one leaf–spine pair; default 1

	HostRate  fabric.Rate     `yaml:"host-rate"`
	Rate      fabric.Rate     `yaml:"rate"`       // of the fabric's links
	HostDelay fabric.Duration `yaml:"host-delay"` // propagation of access links; default: delay's
	Delay     fabric.Duration `yaml:"delay"`      // propagation of the fabric's links; default 1us

	// Buffer is a switch's memory, shared by its ports by dynamic thresholds
	// with Alpha (default 1). PortBuffer is each port's own limit instead.
	Buffer     fabric.Bytes `yaml:"buffer"`
	Alpha      float64      `yaml:"alpha"`
	PortBuffer fabric.Bytes `yaml:"port-buffer"`
	ECN        *fabric.ECN  `yaml:"ecn"`
	PFC        bool         `yaml:"pfc"`

	// Overhead is what the overlay adds to a packet between leaves, bytes;
	// default 50. A pointer: 0 compares with papers that do not count it.
	Overhead *int `yaml:"overhead"`

	Overrides []fabric.Override `yaml:"overrides"`
}

// Transport is what hosts speak.
type Transport struct {
	// Type is "tcp" (the default) or "rdma". Workloads of type udp need none.
	Type string `yaml:"type"`

	// TCP.
	CongestionControl string          `yaml:"cc"` // newreno, cubic (default), dctcp; rdma: dcqcn (default), none
	MTU               int             `yaml:"mtu"`
	MinRTO            fabric.Duration `yaml:"min-rto"`
	Window            fabric.Bytes    `yaml:"window"` // receive window; default 2 MB
	Burst             fabric.Bytes    `yaml:"burst"`  // segmentation offload; default 64 KB

	// RDMA.
	Recovery string       `yaml:"recovery"` // "gbn" (default; wants pfc) or "irn"
	Payload  fabric.Bytes `yaml:"payload"`  // of a packet; default 1000
}

// The workload types.
const (
	Poisson     = "poisson"     // flows of sizes from a CDF, Poisson arrivals to a load
	Bulk        = "bulk"        // long flows between pairs
	Incast      = "incast"      // clients ask servers at once
	Stride      = "stride"      // host i sends to host i+stride
	Permutation = "permutation" // each host to another one, at random
	AllToAll    = "all-to-all"  // each host to every other one
	UDP         = "udp"         // constant rate between pairs
	Trace       = "trace"       // flows from a file
)

// Workload is one load.
type Workload struct {
	Name string `yaml:"name"`
	Type string `yaml:"type"`
	// From and To select hosts as in fabric.yaml: hosts ("h3"), leaves ("L0") or
	// "all" (the default).
	From []string `yaml:"from"`
	To   []string `yaml:"to"`
	// Pairs restricts random pairs: "any" (two different hosts), "racks" (behind
	// different leaves; the default).
	Pairs string `yaml:"pairs"`

	Start    fabric.Duration `yaml:"start"`
	Duration fabric.Duration `yaml:"duration"` // default: the run's

	Sizes string  `yaml:"sizes"` // a shipped CDF or a .csv file
	Scale float64 `yaml:"scale"` // of all sizes; default 1
	// Load is in percent of Of: "fabric" (default: what the sending leaves' uplinks carry)
	// or "hosts" (what the senders' access links carry). Payload is counted.
	Load        float64 `yaml:"load"`
	Of          string  `yaml:"of"`
	Connections int     `yaml:"connections"` // persistent ones of each pair; 0: a new one a flow
	// Pool lets a flow take an idle connection of its pair, and open another one
	// only where there is none, as a client with a pool does. TCP only.
	Pool bool `yaml:"pool"`

	Flows  int             `yaml:"flows"`  // bulk: connections of each pair; default 1
	Bytes  fabric.Bytes    `yaml:"bytes"`  // bulk, stride, permutation, all-to-all: of a flow, 0: endless; incast: of a whole answer
	FanIn  int             `yaml:"fan-in"` // incast: servers
	Stride int             `yaml:"stride"`
	Rate   fabric.Rate     `yaml:"rate"`   // udp: of a pair, payload
	Size   fabric.Bytes    `yaml:"size"`   // udp: payload of a datagram
	Repeat int             `yaml:"repeat"` // incast: queries, one after the other
	Gap    fabric.Duration `yaml:"gap"`    // incast: between queries
	File   string          `yaml:"file"`   // trace
}

// ConWeave is what that scheme is told; what is left out is Table 3's.
type ConWeave struct {
	Reply         fabric.Duration `yaml:"reply"`          // θ_reply
	PathBusy      fabric.Duration `yaml:"path-busy"`      // θ_path_busy
	Inactive      fabric.Duration `yaml:"inactive"`       // θ_inactive
	ResumeExtra   fabric.Duration `yaml:"resume-extra"`   // θ_resume_extra
	ResumeDefault fabric.Duration `yaml:"resume-default"` // θ_resume_default
	Queues        int             `yaml:"queues"`         // reordering queues of a host port
	Admission     bool            `yaml:"admission"`      // §5: destinations short of queues refuse reroutes
}

// Measure is what is looked at besides flows.
type Measure struct {
	// Small and Large are the bounds of the size classes; default 100KB and
	// 10MB (CONGA §5.2.1).
	Small fabric.Bytes `yaml:"small"`
	Large fabric.Bytes `yaml:"large"`
	// Buckets are upper bounds of further size classes, for FCT by size.
	Buckets []fabric.Bytes `yaml:"buckets"`
	// Queues names ports whose queue length is observed over time: "S1->L1.0",
	// "L0->h3"; "spines" and "leaves" mean all of their ports towards the fabric.
	Queues []string `yaml:"queues"`
	// Imbalance is the interval at which the throughput of leaves' uplinks is
	// compared; 0: not.
	Imbalance fabric.Duration `yaml:"imbalance"`
	// Reorder samples ConWeave's queues and bytes at this interval; 0: not.
	Reorder fabric.Duration `yaml:"reorder"`
}
