// Package sim runs fabrics in virtual time: it assembles hosts, switches and
// traffic from a [Spec], lets the engine run, and returns what was measured as a
// [Result]. The algorithms are those of the data plane; package node drives them.
package sim

import (
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/config/fabric"
	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/internal/units"
)

// profile is what an experiment's sections start from if they name no profile: the
// papers' values. Those that a fabric.yaml leaves open start from the lab's.
const profile = balance.Datacenter

// Spec is one run. It is the model behind an experiment file: its fields are the
// file's keys. The same Spec gives the same Result, byte for byte, but for what
// the machine adds (Result.Machine).
type Spec struct {
	// Topology is the fabric: its switches, links and hosts. Required.
	Topology Topology `yaml:"topology"`
	// Scheme is how load is balanced over the uplinks. Default: ecmp.
	Scheme string `yaml:"scheme,omitempty"`
	// Keys are what the scheme is told beside its name.
	Keys vocab.Keys `yaml:",inline"`
	// TableRefresh has flowlets begin at leaves by tables of the scheme's decisions, which are
	// made so often, 1µs to 1s, as where packets are forwarded without the scheme's code. It
	// is for schemes of whose flowlets a table can decide: letflow, local, conga, conga-flow.
	// Default: the scheme decides itself.
	TableRefresh time.Duration `yaml:"table_refresh,omitempty"`
	// Classes give workloads a scheme of their own. Default: none.
	Classes []Class `yaml:"classes,omitempty"`
	// Congestion are the parameters of CONGA.
	Congestion vocab.Congestion `yaml:"congestion,omitempty"`
	// Sections are what schemes share, and what puts rerouted packets in order.
	Sections vocab.Sections `yaml:",inline"`
	// Transport is the hosts' transport protocol.
	Transport Transport `yaml:"transport,omitempty"`
	// Workloads are the work of a run. Required.
	Workloads []vocab.Workload `yaml:"workloads"`
	// Faults take links down and up, at times after the start. Default: none.
	Faults []vocab.Fault `yaml:"faults,omitempty"`
	// Warmup is the time at the beginning whose flows are not measured. Default: 0.
	Warmup time.Duration `yaml:"warmup,omitempty"`
	// Duration is for how long flows start after the warm-up. Required.
	Duration time.Duration `yaml:"duration"`
	// Drain is how much longer the run goes on for flows that are still under way then.
	// It ends earlier when all are done. Default: five times duration.
	Drain time.Duration `yaml:"drain,omitempty"`
	// Seed decides all that is random. Default: 1.
	Seed uint64 `yaml:"seed,omitempty"`
	// Measure is what is looked at besides flows.
	Measure Measure `yaml:"measure,omitempty"`
}

// Class is a traffic class.
type Class struct {
	// Workload is the name of the workload that belongs to it. Required.
	Workload string `yaml:"workload"`
	// Scheme is how it is balanced, with the defaults of what it is told beside its name.
	// It is one of leaves alone. Required.
	Scheme string `yaml:"scheme"`
}

// Topology is a fabric: its switches, links and hosts.
type Topology struct {
	// Kind is leaf-spine, fat-tree, three-layer, altoona, vl2, tree or file. Default: leaf-spine.
	Kind string `yaml:"kind,omitempty"`
	// File is a fabric.yaml, for kind file, relative to the experiment file. What
	// it says holds as far as the experiment is silent: scheme, congestion, the schemes'
	// sections, tcp, workloads, for how long. It has links, hosts, queues and marking to
	// itself.
	File string `yaml:"file,omitempty"`
	// Load, for kind file, replaces that of its poisson workloads, percent.
	Load float64 `yaml:"load,omitempty"`

	// Leaves is the number of leaves; not for fat-tree.
	Leaves int `yaml:"leaves,omitempty"`
	// Spines is the number of spines. In three-layer, altoona, vl2 and tree they are the tier
	// in the middle. Not for fat-tree.
	Spines int `yaml:"spines,omitempty"`
	// Cores is the number of core switches of three-layer, altoona, vl2 and tree.
	Cores int `yaml:"cores,omitempty"`
	// K is the size of a fat-tree.
	K int `yaml:"k,omitempty"`
	// Links are the links between switches. Their rate is required, and their delay is
	// 1us by default.
	Links vocab.Links `yaml:"links,omitempty"`
	// Hosts are the hosts and their links, in both directions. The rate is required, and
	// the delay is that of links by default.
	Hosts fabric.Hosts `yaml:"hosts,omitempty"`

	// Buffer is the memory of a switch, which its ports share by dynamic thresholds.
	// Give this or the queues of links.
	Buffer units.Size `yaml:"buffer,omitempty"`
	// Alpha is how much of the free memory one port may take; not with pfc. Default: 1.
	Alpha float64 `yaml:"alpha,omitempty"`
	// PFC lets switches pause senders instead of dropping. It needs a buffer.
	// Default: false.
	PFC bool `yaml:"pfc,omitempty"`
	// PFCAlpha is how much of the free memory may be taken by what came in by one port
	// before that port's peer is told to pause. Default: 0.125.
	PFCAlpha float64 `yaml:"pfc_alpha,omitempty"`
	// Overhead is what the overlay adds to a packet between leaves, bytes; 0 compares
	// with papers that do not count it. Default: 50.
	Overhead *int `yaml:"overhead,omitempty"`
	// Flood lets spines send what explores to all leaves, as switches do that do not know
	// where a host is (TCP-Path §III-B). Leaves drop what is not for their hosts.
	// Default: false.
	Flood bool `yaml:"flood,omitempty"`
	// Down is how many links between switches are down from the start, drawn at random
	// by the run's seed, of parallel ones one at most. A draw that would part two leaves leaves that link up. Default:
	// 0.
	Down int `yaml:"down,omitempty"`
	// Plain are leaves that are plain VTEPs: they balance by hash (ecmp), whatever the
	// scheme is, and neither write nor read the fabric's header. Default: none.
	Plain []string `yaml:"plain,omitempty"`
	// Overrides change single links or single directions of them. Default: none.
	Overrides []vocab.Override `yaml:"overrides,omitempty"`
}

// OldKeys are the names that keys had before.
func (Topology) OldKeys() map[string]string {
	return map[string]string{
		"hosts-per-leaf": "hosts.per_leaf", "host-rate": "hosts.link.rate", "host-delay": "hosts.link.delay",
		"rate": "links.rate", "delay": "links.delay", "parallel": "links.parallel",
		"port-buffer": "queue in links and in hosts.link", "ecn": "ecn in links and in hosts.link",
	}
}

// Transport is the hosts' transport protocol.
type Transport struct {
	// Type is tcp, mptcp or rdma. Workloads of type udp need none. Default: tcp.
	Type string `yaml:"type,omitempty"`
	// CongestionControl is newreno, cubic or dctcp for tcp, dcqcn or none for rdma. For
	// mptcp it is lia, which couples the subflows (RFC 6356), or newreno or cubic, which
	// leave each subflow for itself. Default: cubic (tcp), lia
	// (mptcp), dcqcn (rdma).
	CongestionControl string `yaml:"cc,omitempty"`

	// Subflows is how many subflows a connection of mptcp has, up to 64. Default: 8.
	Subflows int `yaml:"subflows,omitempty"`
	// MTU is the largest IP packet of tcp and mptcp, bytes. Default: 1500.
	MTU int `yaml:"mtu,omitempty"`
	// MinRTO is tcp's least retransmission timeout. Default: 200ms.
	MinRTO time.Duration `yaml:"min_rto,omitempty"`
	// Window is tcp's receive window. Default: 2MiB.
	Window units.Size `yaml:"window,omitempty"`
	// Burst is what tcp's segmentation offload sends at once. Default: 64KiB.
	Burst units.Size `yaml:"burst,omitempty"`

	// Recovery is how rdma mends losses: gbn (Go-Back-N; it wants pfc) or irn.
	// Default: gbn.
	Recovery string `yaml:"recovery,omitempty"`
	// Payload is the data of an rdma packet. Default: 1000.
	Payload units.Size `yaml:"payload,omitempty"`
}

// Measure is what is looked at besides flows.
type Measure struct {
	// Small is the size below which flows are small (CONGA §5.2.1). Default: 100KB.
	Small units.Size `yaml:"small,omitempty"`
	// Large is the size above which flows are large. Default: 10MB.
	Large units.Size `yaml:"large,omitempty"`
	// Buckets are upper bounds of further size classes, for FCT by size.
	Buckets []units.Size `yaml:"buckets,omitempty"`
	// Queues names ports whose queue length is observed over time: "S1->L1.0",
	// "L0->h3"; "spines" and "leaves" mean all of their ports towards the fabric.
	// "beside-down" means, as one distribution, the spines' ports to leaves beside which
	// a parallel link is down from the start.
	Queues []string `yaml:"queues,omitempty"`
	// Imbalance is the interval at which the throughput of leaves' uplinks is
	// compared; 0: not.
	Imbalance time.Duration `yaml:"imbalance,omitempty"`
	// Reorder samples the queues and bytes of ConWeave's receivers at this interval; 0:
	// not.
	Reorder time.Duration `yaml:"reorder,omitempty"`
	// Tables is the interval at which the flows in leaves' tables are counted, for
	// schemes that keep exact ones; 0: not.
	Tables time.Duration `yaml:"tables,omitempty"`
	// Progress is the interval at which goodput, reordering and losses are noted, from the
	// run's start on; 0: not.
	Progress time.Duration `yaml:"progress,omitempty"`
}
