package reorder

import (
	"fmt"
	"time"

	"github.com/loomfabric/loom/internal/units"
	"github.com/loomfabric/loom/overlay"
)

// Params are the tunables of ConWeave's destination side. [Datacenter] and
// [Lab] return complete sets to start from; the zero value is not valid.
type Params struct {
	// ResumeExtra is θ_resume_extra: what T_resume allows for, besides the
	// delay that the OLD path was last seen to have (ConWeave Appendix A).
	ResumeExtra time.Duration `yaml:"resume_extra"`
	// ResumeDefault is θ_resume_default: how long a TAIL is waited for when
	// nothing came over the OLD path yet (Appendix A).
	ResumeDefault time.Duration `yaml:"resume_default"`
	// Inactive is the sources' θ_inactive. A flow of which nothing has come for
	// twice that long is forgotten: its next packet starts a new epoch.
	Inactive time.Duration `yaml:"-"`
	// MaxHold bounds what timestamps can make of T_resume: no queue is held for
	// longer, counted from its first packet.
	MaxHold time.Duration `yaml:"max_hold"`
	// NotifyInterval is the least time between two NOTIFYs for one path of one
	// leaf. It should be below the source's θ_path_busy, so that a path that
	// stays congested stays marked.
	NotifyInterval time.Duration `yaml:"notify_interval"`
	// Admission is how much of a port's, or of all, queues, packets or bytes may
	// be in use, in percent, before sources are asked not to reroute (§5); 0:
	// they never are.
	Admission int `yaml:"admission"`

	// Flows is the size of the flow table: a power of two, 4 at least.
	Flows int `yaml:"flows"`
	// Leaves bounds the sources' numbers: packets of other leaves get no NOTIFY.
	Leaves int `yaml:"-"`
	// Ports is the number of egress ports.
	Ports int `yaml:"-"`
	// Queues is the number of flows of which packets may be held, at most
	// [MaxQueues]. What does not fit is sent on as it comes.
	Queues int `yaml:"queues"`
	// PortQueues is the same for one egress port.
	PortQueues int `yaml:"port_queues"`
	// Packets is the number of packets that may be held.
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

// Validate reports the first parameter that makes no sense.
func (p *Params) Validate() error {
	switch {
	case p.Inactive <= 0 || p.Inactive > overlay.MaxInactive:
		return fmt.Errorf("inactive time is %v: use a time above 0 and up to %v, which 16-bit timestamps can tell", p.Inactive, overlay.MaxInactive)
	case p.MaxHold <= 0 || p.MaxHold > time.Second:
		return fmt.Errorf("longest hold is %v: use a time above 0 and up to a second", p.MaxHold)
	case p.ResumeExtra < 0 || p.ResumeExtra > p.MaxHold:
		return fmt.Errorf("resume extra is %v: use 0 to the longest hold, %v", p.ResumeExtra, p.MaxHold)
	case p.ResumeDefault <= 0 || p.ResumeDefault > p.MaxHold:
		return fmt.Errorf("resume default is %v: use a time above 0 and up to the longest hold, %v", p.ResumeDefault, p.MaxHold)
	case p.NotifyInterval < 0 || p.NotifyInterval > time.Second:
		return fmt.Errorf("notify interval is %v: use 0 to a second", p.NotifyInterval)
	case p.Admission < 0 || p.Admission > 100:
		return fmt.Errorf("admission at %d percent: use 0 to 100", p.Admission)
	case p.Flows < ways || p.Flows > 1<<24 || p.Flows&(p.Flows-1) != 0:
		return fmt.Errorf("flow table of %d entries: use a power of two from %d to %d", p.Flows, ways, 1<<24)
	case p.Leaves < 0 || p.Leaves > 1<<16:
		return fmt.Errorf("%d leaves: use 0 to %d", p.Leaves, 1<<16)
	case p.Ports < 0 || p.Ports > 1<<16:
		return fmt.Errorf("%d ports: use 0 to %d", p.Ports, 1<<16)
	case p.PortQueues < 0 || p.Queues < 0 || p.Queues > MaxQueues:
		return fmt.Errorf("%d queues a port, %d in all: use 0 to %d", p.PortQueues, p.Queues, MaxQueues)
	case p.PortPackets < 0 || p.Packets < 0 || p.Packets > 1<<24:
		return fmt.Errorf("%d packets a port, %d in all: use 0 to %d", p.PortPackets, p.Packets, 1<<24)
	}
	return nil
}
