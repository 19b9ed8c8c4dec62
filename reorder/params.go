package reorder

import (
	"fmt"
	"time"

	"github.com/loomfabric/loom/internal/field"
	"github.com/loomfabric/loom/internal/flowtable"
	"github.com/loomfabric/loom/internal/units"
	"github.com/loomfabric/loom/overlay"
)

// Params are the tunables of ConWeave's destination side. [Datacenter] and
// [Lab] return complete sets to start from; the zero value is not valid.
type Params struct {
	// ResumeExtra is how much longer than the old path's delay its last packet is waited
	// for (θ_resume_extra, ConWeave Appendix A).
	ResumeExtra time.Duration `yaml:"resume_extra"`
	// ResumeDefault is how long that packet is waited for when the delay is not known
	// (θ_resume_default, Appendix A).
	ResumeDefault time.Duration `yaml:"resume_default"`
	// Inactive is the sources' θ_inactive. A flow of which nothing has come for
	// twice that long is forgotten: its next packet starts a new epoch.
	Inactive time.Duration `yaml:"-"`
	// MaxHold bounds how long a packet is held, whatever timestamps say. It counts from
	// a queue's first packet.
	MaxHold time.Duration `yaml:"max_hold"`
	// NotifyInterval is the least time between two notices to a leaf that one of its
	// paths is congested. It should be below path_busy, so that a path that stays
	// congested stays marked.
	NotifyInterval time.Duration `yaml:"notify_interval"`
	// Admission is the share of the queues, packets or bytes, of a port or of all, in
	// percent, from which other leaves are asked not to reroute (§5); 0: they never are.
	Admission int `yaml:"admission"`

	// Flows is the number of entries of each worker's table of flows that are received:
	// a power of two from 4 to 16777216, of 40 bytes each.
	Flows int `yaml:"flows"`
	// Leaves bounds the sources' numbers: packets of other leaves get no NOTIFY.
	Leaves int `yaml:"-"`
	// Ports is the number of egress ports.
	Ports int `yaml:"-"`
	// Queues is the number of flows that may have packets held, at most 65535, by each
	// worker. What does not fit is sent on as it comes.
	Queues int `yaml:"queues"`
	// PortQueues is the same for one egress port.
	PortQueues int `yaml:"port_queues"`
	// Packets is the number of packets that may be held, by each worker. Each takes a
	// packet buffer. If frames is not given there are as many more buffers; if it is,
	// held packets take a quarter of them at most.
	Packets int `yaml:"packets"`
	// PortPackets is the same for one egress port.
	PortPackets int `yaml:"port_packets"`
	// Bytes is the sum of their lengths.
	Bytes units.Size `yaml:"bytes"`
	// PortBytes is the same for one egress port.
	PortBytes units.Size `yaml:"port_bytes"`
}

// MaxQueues is the largest number of queues in all.
const MaxQueues = 1<<16 - 1

// Datacenter returns the paper's values for a leaf-spine fabric of 100 Gb/s
// under IRN RDMA (Appendix A: θ_resume_extra 16 µs, θ_resume_default 200 µs;
// Table 3: θ_inactive 300 µs). With PFC it uses 64 µs and 600 µs, as loss is
// rare and a pause long. 31 queues a port are the paper's for 100 Gb/s (§3.4.2).
func Datacenter() Params {
	return Params{
		ResumeExtra:    16 * time.Microsecond,
		ResumeDefault:  200 * time.Microsecond,
		Inactive:       300 * time.Microsecond,
		MaxHold:        2 * time.Millisecond,
		NotifyInterval: 4 * time.Microsecond,
		Flows:          64 << 10,
		Leaves:         1024,
		Ports:          64,
		PortQueues:     31,
		PortPackets:    2048,
		PortBytes:      2 << 20,
		Queues:         1024,
		Packets:        8192,
		Bytes:          8 << 20,
	}
}

// Lab returns parameters for fabrics in software on shared cores, where a worker
// that waits for a core makes a round trip one of milliseconds.
func Lab() Params {
	p := Datacenter()
	p.ResumeExtra = time.Millisecond
	p.ResumeDefault = 5 * time.Millisecond
	p.Inactive = 10 * time.Millisecond
	p.MaxHold = 20 * time.Millisecond
	p.NotifyInterval = 500 * time.Microsecond
	return p
}

// Validate reports the first parameter that makes no sense. The error is a
// [field.Error].
func (p *Params) Validate() error {
	switch {
	case p.Inactive <= 0 || p.Inactive > overlay.MaxInactive:
		return field.Errorf("inactive", fmt.Sprintf("use a time above 0 and up to %v, which 16-bit timestamps can tell", overlay.MaxInactive), "inactive is %v", p.Inactive)
	case p.MaxHold <= 0 || p.MaxHold > time.Second:
		return field.Errorf("max_hold", "use a time above 0 and up to a second", "max_hold is %v", p.MaxHold)
	case p.ResumeExtra < 0 || p.ResumeExtra > p.MaxHold:
		return field.Errorf("resume_extra", "lower resume_extra, or raise max_hold", "resume_extra %v is above max_hold %v", p.ResumeExtra, p.MaxHold)
	case p.ResumeDefault <= 0:
		return field.Errorf("resume_default", "use a time above 0", "resume_default is %v", p.ResumeDefault)
	case p.ResumeDefault > p.MaxHold:
		return field.Errorf("resume_default", "lower resume_default, or raise max_hold", "resume_default %v is above max_hold %v", p.ResumeDefault, p.MaxHold)
	case p.NotifyInterval < 0 || p.NotifyInterval > time.Second:
		return field.Errorf("notify_interval", "use 0 to a second", "notify_interval is %v", p.NotifyInterval)
	case p.Admission < 0 || p.Admission > 100:
		return field.Errorf("admission", "use 0 to 100", "admission at %d percent", p.Admission)
	case p.Flows < flowtable.Ways || p.Flows > flowtable.MaxEntries || p.Flows&(p.Flows-1) != 0:
		return field.Errorf("flows", fmt.Sprintf("use a power of two from %d to %d", flowtable.Ways, flowtable.MaxEntries), "flow table of %d entries", p.Flows)
	case p.Leaves < 0 || p.Leaves > flowtable.MaxLeaves:
		return fmt.Errorf("%d leaves: use 0 to %d", p.Leaves, flowtable.MaxLeaves)
	case p.Ports < 0 || p.Ports > 1<<16:
		return fmt.Errorf("%d ports: use 0 to %d", p.Ports, 1<<16)
	case p.Queues < 0 || p.Queues > MaxQueues:
		return field.Errorf("queues", fmt.Sprintf("use 0 to %d", MaxQueues), "%d queues", p.Queues)
	case p.PortQueues < 0:
		return field.Errorf("port_queues", "use 0 or more", "%d queues a port", p.PortQueues)
	case p.Packets < 0 || p.Packets > 1<<24:
		return field.Errorf("packets", fmt.Sprintf("use 0 to %d", 1<<24), "%d packets", p.Packets)
	case p.PortPackets < 0:
		return field.Errorf("port_packets", "use 0 or more", "%d packets a port", p.PortPackets)
	}
	return nil
}
