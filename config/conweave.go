package config

// ConWeave are the parameters of schemes conweave and conweave-conga, and of what
// puts rerouted packets in order. The second part counts on every leaf, whatever
// its own scheme: other leaves may reroute. All leaves of a fabric should have the
// same, `inactive` above all.
type ConWeave struct {
	// Profile is the set of values that the other keys start from: datacenter
	// (the paper's, for links of 10Gbit and more in hardware), lab (for fabrics
	// in software, with links of some 100Mbit to 1Gbit), or auto: reply, inactive,
	// resume_extra, resume_default and max_hold, those that are left out, follow
	// from the round trips between leaves that this one measures and from the time
	// that the full queue of an uplink with a shaper takes, and are the lab's until
	// it has measured some; the other keys start from congestion's profile.
	// Default: congestion's.
	Profile ConWeaveProfile `yaml:"profile,omitempty"`

	// Reply is how long a path may take to bring a request to the other leaf and
	// its reply back; longer, and the flow is rerouted (θ_reply). At most
	// inactive. Default: 8us (lab: 1ms).
	Reply Duration `yaml:"reply,omitempty"`
	// PathBusy is how long flows are kept off a path of which another leaf says
	// that it is congested (θ_path_busy). Default: 8us (lab: 1ms).
	PathBusy Duration `yaml:"path_busy,omitempty"`
	// Inactive is the pause after which nothing of a flow is under way any more,
	// at most 30ms (θ_inactive). Default: 300us (lab: 10ms).
	Inactive Duration `yaml:"inactive,omitempty"`
	// Samples is the number of random paths that are looked at when a flow needs
	// one, 1 to 16. Default: 2.
	Samples int `yaml:"samples,omitempty"`
	// Selectors is the number of choices that the spines have, 1 to 16: with 1, a
	// path is an uplink. See [the wire format](wire-format.md#paths). Default: 1.
	Selectors int `yaml:"selectors,omitempty"`
	// Connections is the number of entries of each worker's table of flows that
	// are sent: a power of two from 4 to 16777216, of 32 bytes each. Flows for
	// which there is no room go by hash. Default: 65536.
	Connections int `yaml:"connections,omitempty"`

	// ResumeExtra is how much later than the old path's delay has it the last
	// packet of that path is waited for (θ_resume_extra). Default: 16us (lab: 1ms).
	ResumeExtra Duration `yaml:"resume_extra,omitempty"`
	// ResumeDefault is how long it is waited for when that delay is not known
	// (θ_resume_default). Default: 200us (lab: 5ms).
	ResumeDefault Duration `yaml:"resume_default,omitempty"`
	// MaxHold bounds how long a packet is held, whatever timestamps say.
	// Default: 2ms (lab: 20ms).
	MaxHold Duration `yaml:"max_hold,omitempty"`
	// NotifyInterval is the least time between two notices to a leaf that one of
	// its paths is congested; it should be below path_busy. Default: 4us (lab:
	// 500us).
	NotifyInterval Duration `yaml:"notify_interval,omitempty"`
	// Admission is the share of the queues, packets or bytes below in percent
	// from which other leaves are asked not to reroute. Default: 0 (never).
	Admission int `yaml:"admission,omitempty"`
	// Flows is the number of entries of each worker's table of flows that are
	// received: a power of two from 4 to 16777216, of 40 bytes each. Default: 65536.
	Flows int `yaml:"flows,omitempty"`
	// Queues is the number of flows of which packets may be held, at most 65535; of
	// each worker, as what follows. What does not fit is sent on as it comes.
	// Default: 1024.
	Queues int `yaml:"queues,omitempty"`
	// PortQueues is the same for one egress port. Default: 31.
	PortQueues int `yaml:"port_queues,omitempty"`
	// Packets is the number of packets that may be held; each takes a packet
	// buffer, of which there are so many more if frames is not given, and of which
	// they take a quarter at most if it is. Default: 8192.
	Packets int `yaml:"packets,omitempty"`
	// PortPackets is the same for one egress port. Default: 2048.
	PortPackets int `yaml:"port_packets,omitempty"`
	// Bytes is the sum of their lengths. Default: 8MiB.
	Bytes Size `yaml:"bytes,omitempty"`
	// PortBytes is the same for one egress port. Default: 2MiB.
	PortBytes Size `yaml:"port_bytes,omitempty"`
}

// ConWeaveProfile is a set of ConWeave's parameters; 0: that of CONGA's.
type ConWeaveProfile uint8

// AutoProfile is the profile whose times follow from round trips.
const AutoProfile ConWeaveProfile = 3

var conweaveProfiles = []string{"", "datacenter", "lab", "auto"} // by ConWeaveProfile

// UnmarshalText reads a profile's name.
func (p *ConWeaveProfile) UnmarshalText(b []byte) error {
	i, err := choose("profile", b, conweaveProfiles[1:])
	*p = ConWeaveProfile(i + 1)
	return err
}

// MarshalText writes the profile's name.
func (p ConWeaveProfile) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// String is the text that UnmarshalText reads; "" for none.
func (p ConWeaveProfile) String() string { return conweaveProfiles[p] }
