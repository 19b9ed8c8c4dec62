package config

// Balancing is a scheme, and what some schemes are told besides.
type Balancing struct {
	// Scheme is how load is balanced over the uplinks: static (by weights),
	// ecmp (a flow's hash decides), spray (each packet on its own), local (the
	// least loaded uplink for each flowlet), letflow (a random one for each
	// flowlet), drill (the shortest of sampled queues for each packet), conga
	// (the least congested path for each flowlet), conga-flow (for each flow),
	// conweave (another path when a flow's own is late, and packets put in order
	// behind it) or conweave-conga (the same, onto the least congested path).
	// Default: ecmp; required in classes.
	Scheme string `yaml:"scheme,omitempty"`
	// Weights are the shares of the uplinks, in their order, under scheme
	// static. Default: the first usable uplink takes all.
	Weights []uint32 `yaml:"weights,omitempty"`
	// DRILL is what scheme drill looks at. Default: two samples, one remembered.
	DRILL DRILL `yaml:"drill,omitempty"`
	// Flowlets is the number of entries of each worker's flowlet table under
	// schemes local, letflow, conga and conga-flow: a power of two from 64 to
	// 16777216, of 8 bytes each. Flows that share an entry can only move
	// together. Default: 65536.
	Flowlets int `yaml:"flowlets,omitempty"`
}

// DRILL is what scheme drill compares for each packet: queues drawn at random,
// and those that were the shortest before.
type DRILL struct {
	// Samples is the number of uplinks drawn, 1 to 16. Default: 2.
	Samples int `yaml:"samples,omitempty"`
	// Memory is the number of uplinks remembered, 0 to 16. Default: 1.
	Memory int `yaml:"memory"`
}

// Class is a kind of tenants' traffic that is balanced by a scheme of its own.
type Class struct {
	// Name is for messages. Default: none.
	Name string `yaml:"name,omitempty"`
	// Match says which frames belong to the class. Required.
	Match     Match `yaml:"match"`
	Balancing `yaml:",inline"`
}

// Match is what a frame must have to belong to a class; what is left out may be
// anything, but not everything.
type Match struct {
	// VNI is the frame's virtual network, one of vnis. Default: any.
	VNI uint32 `yaml:"vni,omitempty"`
	// Protocol is the IP protocol: tcp, udp, icmp, icmpv6, sctp or a number from
	// 1 to 255. Default: any, IP or not.
	Protocol Protocol `yaml:"protocol,omitempty"`
	// Port is the source or the destination port of TCP, UDP or SCTP.
	// Default: any.
	Port uint16 `yaml:"port,omitempty"`
	// DSCP is the differentiated services codepoint of the frame's IP header: 0
	// to 63, or a name: be, ef, va, le, cs0 to cs7, af11 to af43.
	// Default: any, IP or not.
	DSCP DSCP `yaml:"dscp,omitempty"`
}

// Congestion are the parameters of CONGA. They must be the same on all leaves
// and spines of a fabric, whatever the scheme: each link is metered by the node
// that sends on it.
type Congestion struct {
	// Profile is the set of values that the other keys start from: datacenter
	// (the paper's, for links of 10Gbit and more) or lab (for fabrics in
	// software, with links of some 100Mbit to 1Gbit). Default: datacenter.
	Profile Profile `yaml:"profile,omitempty"`
	// Q is the number of bits of a congestion metric, 1 to 3.
	// Default: 3.
	Q uint8 `yaml:"q,omitempty"`
	// Tau is the time constant of the link meters; it should exceed the
	// leaf-to-leaf round-trip time. Default: 160us (lab: 2ms).
	Tau Duration `yaml:"tau,omitempty"`
	// Alpha is the decay factor of the link meters, between 0 and 1: they decay
	// every alpha·tau. Default: 0.1.
	Alpha float64 `yaml:"alpha,omitempty"`
	// FlowletGap is the pause after which a flow may move. It should exceed the
	// time that the full queue of an uplink with a shaper takes: a leaf warns of
	// one that does not. With auto it follows from the round trips that a leaf
	// measures, and that time. Default: 500us (lab: 6ms).
	FlowletGap Gap `yaml:"flowlet_gap,omitempty"`
	// FlowGap is the same for scheme conga-flow; it should exceed any path's
	// latency. Default: 13ms (lab: 150ms).
	FlowGap Duration `yaml:"flow_gap,omitempty"`
	// Ageing is how long a metric that another leaf reported stands without
	// confirmation before it begins to fall; from then on it loses one step each
	// time that this time has passed again, so that the worst one of q: 3 (7) is
	// 6 after one ageing time and 0 after seven: 70ms (lab: 875ms). The paper
	// asks for a gradual fall and leaves its length open. Before that, the other
	// leaf repeats what it measured last for up to one ageing time. Default: 10ms
	// (lab: 125ms).
	Ageing Duration `yaml:"ageing,omitempty"`
	// Detector is how pauses are found: timestamp (exactly) or agebit (as the
	// paper's hardware does: between one and two gaps). Default: timestamp.
	Detector Detector `yaml:"detector,omitempty"`
	// PathMetric is how the metrics of a path's links are joined: max (the
	// worst) or sum. Default: max.
	PathMetric PathMetric `yaml:"path_metric,omitempty"`
	// FewestBottlenecks prefers, among equally congested paths, those of which
	// fewer parts are so. Default: false.
	FewestBottlenecks bool `yaml:"fewest_bottlenecks,omitempty"`
}
