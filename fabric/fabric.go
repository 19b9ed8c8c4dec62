// Package fabric is the model of fabric.yaml: a leaf–spine network, the work
// to put on it and the faults to meet. It is pure data, validation, expansion
// into nodes and links, and the routes that follow from link state; it touches
// no network and no clock, so that the lab and a simulator can share it.
package fabric

// File is a fabric.yaml.
type File struct {
	// Name tells labs on one machine apart: a lower-case letter, then lower-case
	// letters, digits or underscores, 15 characters at most.
	Name string `yaml:"name"`
	// Dataplane carries the overlay: "loom" (leafd and spined; the default) or
	// "kernel" (Linux's own bridge, vxlan and IP forwarding: a baseline).
	Dataplane string `yaml:"dataplane"`
	// Fallback is what carries a leaf's overlay when its daemon is gone: "none"
	// (the default: nothing does) or "kernel" (a bridge and a vxlan device for each
	// VNI beside the daemon, as under dataplane kernel but unshaped).
	Fallback string `yaml:"fallback"`
	// Balancing is the scheme of what no class matches.
	Balancing  `yaml:",inline"`
	Classes    []Class    `yaml:"classes"`
	Congestion Congestion `yaml:"congestion"`
	ConWeave   ConWeave   `yaml:"conweave"`
	// TCP is the hosts' congestion control: a name the kernel knows; default
	// "cubic", because a run's results should not depend on the machine's.
	TCP    string `yaml:"tcp"`
	Leaves int    `yaml:"leaves"`
	Spines int    `yaml:"spines"`
	Links  Links  `yaml:"links"`
	Hosts  Hosts  `yaml:"hosts"`
	VNIs   []VNI  `yaml:"vnis"`
	// Overrides change single links or single directions of them.
	Overrides []Override `yaml:"overrides"`
	Workloads []Workload `yaml:"workloads"`
	Faults    []Fault    `yaml:"faults"`
}

// LinkParams is one direction of a link: what stands at the sending port.
type LinkParams struct {
	Rate   Rate     `yaml:"rate"`   // shaper; 0: none
	Delay  Duration `yaml:"delay"`  // added latency
	Buffer Bytes    `yaml:"buffer"` // data queue limit; default 256KB
	ECN    *ECN     `yaml:"ecn"`    // marking thresholds; absent: no marking
}

// ECN is DCQCN's marking: none below Kmin bytes queued, all from Kmax, between
// them with a probability that rises to Pmax.
type ECN struct {
	Kmin Bytes   `yaml:"kmin"`
	Kmax Bytes   `yaml:"kmax"`
	Pmax float64 `yaml:"pmax"`
}

// Links describes the links between every leaf and every spine.
type Links struct {
	Parallel   int `yaml:"parallel"` // links of one leaf–spine pair; default 1
	LinkParams `yaml:",inline"`
}

// Hosts describes the hosts: so many per leaf (h0, h1, ... leaf by leaf), or
// by name, or both (the named ones come last).
type Hosts struct {
	PerLeaf int `yaml:"per-leaf"`
	// Link is the access link. Its parameters hold for the leaf's port towards
	// the host; the host itself sends unshaped.
	Link LinkParams  `yaml:"link"`
	List []NamedHost `yaml:"list"`
}

// NamedHost puts one host behind a leaf.
type NamedHost struct {
	Name string `yaml:"name"`
	Leaf string `yaml:"leaf"` // "L0"
}

// VNI is one virtual network.
type VNI struct {
	VNI uint32 `yaml:"vni"`
	// Hosts selects members: host names, leaf names (all its hosts) or "all".
	// A host belongs to exactly one VNI. Default: "all".
	Hosts []string `yaml:"hosts"`
	// VLAN is the tag the hosts' frames carry on the access link; 0: none.
	VLAN uint16 `yaml:"vlan"`
	// Subnet holds the hosts' IPv4 addresses; default 10.<100 + position>.0.0/16.
	// Two VNIs may use the same one: they are isolated.
	Subnet string `yaml:"subnet"`
}

// Override changes one link. Fields left out keep the value of links.
type Override struct {
	// Link is a name such as L0-S1.0 (leaf 0, spine 1, parallel link 0).
	Link string `yaml:"link"`
	// Direction is "up" (leaf to spine), "down" (spine to leaf) or "both", the
	// default.
	Direction string    `yaml:"direction"`
	Rate      *Rate     `yaml:"rate"`
	Delay     *Duration `yaml:"delay"`
	Buffer    *Bytes    `yaml:"buffer"`
	ECN       *ECN      `yaml:"ecn"`
}

// The workload types.
const (
	BulkTCP = "tcp"     // long transfers, as fast as TCP goes
	Request = "request" // requests whose responses' sizes follow a CDF, Poisson arrivals
	Incast  = "incast"  // one client asks N servers at once
	UDP     = "udp"     // datagrams at a constant rate
	RoCE    = "roce"    // RDMA writes of sizes that follow a CDF, Poisson arrivals, paced, with Go-Back-N
)

// Workload is one load on the fabric. Which fields apply depends on Type; one
// that does not is refused.
type Workload struct {
	Name     string   `yaml:"name"` // default: the type and its position
	Type     string   `yaml:"type"`
	Start    Duration `yaml:"start"`    // after the run's start
	Duration Duration `yaml:"duration"` // for how long new work begins
	Seed     uint64   `yaml:"seed"`

	// From sends requests, bulk data or datagrams, To answers or receives; both
	// are selectors as in VNI.Hosts, default "all". tcp and udp pair From[i]
	// with To[i modulo len], leaving out a host itself and hosts of other
	// VNIs; request picks a server for each request at random, roce a receiver for
	// each message. For incast From names the clients.
	From []string `yaml:"from"`
	To   []string `yaml:"to"`

	// Flows is the number of connections of each pair (tcp); default 1.
	Flows int `yaml:"flows"`
	// Sizes is the CDF of response or message sizes (request, roce): the name of a
	// shipped one or a file ending in .csv, relative to the fabric file.
	Sizes string `yaml:"sizes"`
	// Load is the offered payload (request, roce) in percent of what the leaves of
	// those that send it can carry, To or From: for each leaf the lesser of its
	// uplinks' total and its senders' access links' total.
	Load float64 `yaml:"load"`
	// Small and Large are the bounds of the classes whose completion times are
	// reported apart (request, roce): flows of less than Small bytes, and of more
	// than Large; default 100KB and 10MB as in CONGA §5.2.1.
	Small Bytes `yaml:"small"`
	Large Bytes `yaml:"large"`
	// Persistent reuses idle connections (request); otherwise each flow opens
	// one of its own, and its completion time includes the handshake.
	Persistent bool `yaml:"persistent"`
	// FanIn is the number of servers of one incast query, Bytes the size of the
	// whole answer, Interval the time from one query to the next (0: a query
	// starts when the last one ended).
	FanIn    int      `yaml:"fan-in"`
	Bytes    Bytes    `yaml:"bytes"`
	Interval Duration `yaml:"interval"`
	// Rate is a pair's datagram rate (udp), bits of payload per second, or that of a
	// host's RDMA NIC (roce), bits of frames per second, which its queue pairs share
	// in turn; default for roce: hosts.link.rate. Size is the payload of one
	// datagram (udp), default 1400, or the data of one packet (roce): InfiniBand's
	// MTU of 256, 512 or 1024, the default.
	Rate Rate  `yaml:"rate"`
	Size Bytes `yaml:"size"`
	// QueuePairs is the number of queue pairs of each pair of hosts (roce), each a
	// flow of its own; default 4.
	QueuePairs int `yaml:"qps"`
}

// Fault takes one link down or up at a time after the run's start.
type Fault struct {
	At      Duration `yaml:"at"`
	Fail    string   `yaml:"fail"`    // link name
	Restore string   `yaml:"restore"` // link name
}
