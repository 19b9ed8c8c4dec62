package dataplane

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/dataplane/xsk"
	"github.com/loomfabric/loom/leaf"
	"github.com/loomfabric/loom/overlay"
)

// Role is what a node does in the fabric.
type Role uint8

// The roles.
const (
	Leaf  Role = iota + 1 // VTEP: access ports on one side, uplinks on the other
	Spine                 // routes VXLAN between leaves by the outer header
)

// Polling is how a worker waits for frames (DESIGN: busy, adaptive, interrupt).
type Polling uint8

// The polling modes.
const (
	Adaptive  Polling = iota // spin while there is work and shortly after, then sleep
	Busy                     // never sleep: for dedicated cores
	Interrupt                // sleep in ppoll(2) whenever idle: for labs and shared machines
)

// Config is all that a node needs before its first frame. It is checked by
// the caller (package config); [Open] reports what the kernel refuses.
type Config struct {
	Role Role
	Name string     // for logs
	VTEP netip.Addr // leaf: own VTEP, whose family is that of all peers
	// Remotes are a spine's prefixes of the leaves' VTEPs: VXLAN to them is ours. nil: that
	// to whatever the tables have a next hop for is.
	Remotes []netip.Prefix

	VXLANPort uint16 // UDP, usually 4789
	// Ports are those that the node starts with, which may be none; see [Node.SetPorts]. A
	// port's index is its PortID.
	Ports []PortConfig
	// Room is how many ports the node has room for at a time. 0: for Ports.
	Room     int
	Workers  int // worker q serves queue q of every port
	Polling  Polling
	SpinFor  time.Duration // Adaptive: idle time before sleeping
	Cores    []int         // core of each worker; empty: not pinned
	RingSize int           // entries of each RX, TX, fill and completion ring; power of two
	Frames   int           // UMEM frames a worker; 0: enough for the rings and queues of Room ports
	XDPMode  XDPMode
	CopyMode CopyMode
	// Scheme is the load-balancing scheme, one of [balance.Names]. "" is ecmp on a leaf;
	// a spine without a scheme follows leaves' selectors, and hashes.
	Scheme  string
	Options balance.Options
	Classes []Class // leaf: traffic that is balanced otherwise; the first match decides
	// Congestion are CONGA's parameters; the zero value stands for
	// congestion.Datacenter(). All leaves and spines of a fabric use the same.
	Congestion congestion.Params
	// Sections are the schemes' sections, by name, for classes whose options have
	// none and for the receivers that every leaf has. Each worker has the tables and
	// queues that they name. What is left out has its datacenter values.
	Sections map[string]balance.Params
	// Auto says which times, of those above, are only to start with.
	Auto leaf.Auto
	// ReversePath says which packets of the fabric are believed to be from where they
	// say (RFC 3704).
	ReversePath ReversePath
	Keys        overlay.Keys // leaf: of control packets; nil: they are not sealed
	MaxMTU      int          // largest MTU of a port; decides the size of a UMEM frame
	Seed        uint64       // hash seed and the seed of the worker's generators

	FDBSize  int           // leaf: MAC addresses in all
	FDBAge   time.Duration // leaf: a learned address unseen for so long is forgotten
	HoldTime time.Duration // how long a frame waits for a neighbour's MAC
	// FastPath says whether XDP forwards what it can by itself: on a spine, and on a leaf
	// what comes out of tunnels.
	FastPath FastMode
	Drain    time.Duration // how long Run goes on sending what is queued after its context ended

	// KernelOverlay, on a leaf, leaves the overlay to the kernel's bridge and VXLAN devices
	// (decision 0025). The node takes addresses from [Node.ChangeAddresses] alone: it
	// neither learns nor floods, and its tables have no static addresses. VNIs, peers and
	// ports' VLANs come with [Tables] as ever. The XDP programs give the kernel every frame
	// whose addresses they do not know; access ports are not closed, whatever
	// [PortConfig.FailOpen] says.
	KernelOverlay bool

	// Look asks the machine about an interface, when a port is opened and every second.
	// An error of a look at an open port is left to the next one. Nil: nobody is asked.
	Look func(ifindex int) (Interface, error)
}

// Overhead returns what the uplinks' MTU must exceed the hosts' by, bytes.
func (c *Config) Overhead() int {
	overhead := overlay.MTUOverhead(c.VTEP)
	for _, r := range c.rules() {
		if s := balance.Find(r.Scheme); s != nil && s.Shim {
			return overhead + overlay.ShimLen
		}
	}
	return overhead
}

// sections returns the sections of all schemes. What waits in receivers must not take
// the frames that are to be received into. If the number of frames is given, all
// receivers together hold a quarter of them at most.
func (c *Config) sections() map[string]balance.Params {
	all := make(map[string]balance.Params)
	for _, s := range balance.Sections() {
		p := c.Sections[s.Name]
		if p == nil {
			p = s.New(balance.Datacenter)
		}
		all[s.Name] = p
	}
	total, most := holdable(all), c.Frames/4
	if c.Frames == 0 || total <= most {
		return all
	}
	for name, p := range all {
		if h, ok := p.(balance.Holder); ok {
			all[name] = h.Limit(max(h.Holds()*most/total, 1))
		}
	}
	return all
}

// holdable returns how many packets the receivers of all sections may hold.
func holdable(sections map[string]balance.Params) (n int) {
	for _, p := range sections {
		if h, ok := p.(balance.Holder); ok {
			n += h.Holds()
		}
	}
	return n
}

// UMEMFrames returns how many UMEM frames a worker has. If the configuration does
// not say: for the rings of all ports that there is room for full and their queues' shares,
// as many as one queue may hold for all of them, and all that may wait to be put in order
// besides.
func (c *Config) UMEMFrames() int {
	if c.Frames != 0 {
		return c.Frames
	}
	frames := max(c.Room, len(c.Ports))*(2*c.RingSize+queueShare) + dataQueueFrames
	if c.Role == Leaf {
		frames += holdable(c.sections())
	}
	return frames
}

// FrameSize returns the size of a UMEM frame, bytes: the smallest that holds the ports'
// packets.
func (c *Config) FrameSize() int {
	switch {
	case c.MaxMTU > PageMTU:
		return xsk.LongFrame
	case c.MaxMTU > MaxMTU(2048):
		return 4096
	}
	return 2048
}

// long reports whether the kernel spreads the longest packets over several descriptors.
func (c *Config) long() bool { return xsk.UmemConfig{FrameSize: c.FrameSize()}.Spread() }

// WrongQueues says what is wrong with the queues of an interface, receive and transmit,
// and what to do about it; "": nothing.
func (c *Config) WrongQueues(name string, rx, tx int) (problem, fix string) {
	switch w := c.Workers; {
	case rx != w:
		problem = fmt.Sprintf("interface %s has %d receive queues for %d workers: ", name, rx, w)
		if rx > w {
			problem += "what arrives on the others would not be forwarded"
		} else {
			problem += "each worker needs one"
		}
		return problem, fmt.Sprintf("ethtool -L %s combined %d (or rx %d tx %d), or workers: %d", name, w, w, w, rx)
	case tx < w:
		return fmt.Sprintf("interface %s has %d transmit queues for %d workers", name, tx, w),
			fmt.Sprintf("ethtool -L %s combined %d (or tx %d)", name, w, w)
	}
	return "", ""
}

// MaxMTU returns the largest MTU whose packets, with an Ethernet header and a
// VLAN tag, fit a UMEM frame of frameSize bytes behind the headroom that XDP
// keeps.
func MaxMTU(frameSize int) int {
	return frameSize - xsk.Headroom - overlay.EthernetLen - overlay.VLANLen
}

// The largest MTU of a port whose packets fit in a page, and the largest that a port can
// have at all, which needs Linux 6.6 and frames of four times the size (decision 0040).
var (
	PageMTU    = MaxMTU(4096)
	LargestMTU = MaxMTU(xsk.LongFrame)
)

// check completes c and reports what makes no sense.
func (c *Config) check() error {
	if c.Congestion == (congestion.Params{}) {
		c.Congestion = congestion.Datacenter()
	}
	if err := c.Congestion.Validate(); err != nil {
		return fmt.Errorf("congestion: %w", err)
	}
	if c.Congestion.Q > congestion.WireQ {
		return fmt.Errorf("congestion: Q is %d: at most %d bits fit the fabric's header", c.Congestion.Q, congestion.WireQ)
	}
	ring := c.RingSize
	switch {
	case c.Role != Leaf && c.Role != Spine:
		return fmt.Errorf("role %d is neither Leaf nor Spine", c.Role)
	case c.Room > MaxPorts:
		return fmt.Errorf("room for %d ports: at most %d are possible", c.Room, MaxPorts)
	case c.Workers < 1:
		return fmt.Errorf("%d workers: at least 1 is needed", c.Workers)
	case ring < kickBurst || ring&(ring-1) != 0:
		return fmt.Errorf("ring size %d: use a power of two, at least %d", ring, kickBurst)
	case c.MaxMTU > LargestMTU:
		return fmt.Errorf("a port has MTU %d: at most %d fits a UMEM frame", c.MaxMTU, LargestMTU)
	case c.Role != Leaf && c.KernelOverlay:
		return errors.New("a spine has no overlay: only a leaf's can be the kernel's")
	case c.Role == Leaf && (!c.VTEP.IsValid() || c.VTEP.Is4In6()):
		return fmt.Errorf("VTEP %v is neither an IPv4 nor an IPv6 address", c.VTEP)
	case c.Role == Leaf && c.FDBSize < 1:
		return fmt.Errorf("FDB size %d: at least 1 is needed", c.FDBSize)
	}
	c.Room = cmp.Or(c.Room, len(c.Ports))
	return checkPorts(c.Role, c.Ports)
}

// XDPMode chooses how the classifier is attached.
type XDPMode uint8

// The XDP modes.
const (
	XDPAuto    XDPMode = iota // native, generic if the driver cannot
	XDPNative                 // native or fail
	XDPGeneric                // generic (skb) mode
)

// CopyMode chooses how frames cross between kernel and UMEM.
type CopyMode uint8

// The copy modes.
const (
	CopyAuto CopyMode = iota // zero-copy, copy if the driver cannot
	ZeroCopy                 // zero-copy or fail
	Copy                     // copy
)

// ReversePath is how strictly the outer source of a packet is held against the port
// that it came in by.
type ReversePath uint8

// The checks.
const (
	StrictPath   ReversePath = iota // a next hop of the routes to the source is behind the port
	FeasiblePath                    // there is a route to the source, whichever way
	AnyPath                         // none
)

// PortKind is what a port faces; it selects the XDP program.
type PortKind uint8

// The port kinds.
const (
	Access    PortKind = iota + 1 // leaf port towards hosts
	Uplink                        // leaf port towards spines
	SpinePort                     // any port of a spine
)

// String is the kind's name in metrics and in the admin API.
func (k PortKind) String() string {
	return [...]string{Access: "access", Uplink: "uplink", SpinePort: "spine"}[k]
}

// PortConfig describes one port. [Tables] say which networks an access port is in.
type PortConfig struct {
	Name   string // interface
	Kind   PortKind
	Egress EgressConfig
	// Optional lets [Open] do without the interface, or without its queues as long as the
	// kernel keeps them for a socket of before; the port opens when it can.
	Optional bool
	// FailOpen gives an access port's frames to the kernel while no worker serves them, for
	// ports of a bridge there. Otherwise they are dropped, also when the process is
	// gone: see bpf.Config.Closed.
	FailOpen bool
	FDBLimit uint32 // learned addresses behind the port; 0: only those of its VNIs
}

// Networks are those that the frames of an access port belong to.
type Networks struct {
	Untagged overlay.VNI // of frames without a tag; 0: none
	Tagged   bool        // there are networks of tagged frames
	// Transparent says that tags stay inside the tunnel, and that every frame of the port
	// belongs to Untagged.
	Transparent bool
}

// WithoutTags says what is wrong with an access port in these networks if its XDP program
// does not see all VLAN tags, for the given reason; "": nothing. It is fatal if a frame
// would end in another network than its tag's.
func (n *Networks) WithoutTags(port, why string) (problem string, fatal bool) {
	switch {
	case why == "":
		return "", false
	case n.Untagged != 0 && n.Tagged:
		return fmt.Sprintf("access port %s has VNI %d for untagged frames besides those of its VLANs, and %s: VLANs' frames would look untagged, and end in VNI %[2]d",
			port, n.Untagged, why), true
	case n.Tagged:
		return fmt.Sprintf("access port %s has VLANs, and %s: frames that look untagged then are dropped", port, why), false
	case n.Transparent:
		return fmt.Sprintf("access port %s is transparent, and %s: frames then arrive without their tags", port, why), false
	}
	return "", false
}

// EgressConfig describes what stands between a port's forwarding decision and
// its TX ring.
type EgressConfig struct {
	QueueBytes uint32        // data queue limit, bytes
	Rate       uint64        // shaper, bits per second of Ethernet frame bytes; 0: none
	Burst      uint32        // shaper bucket, bytes
	Delay      time.Duration // fixed extra latency, for labs; 0: none
	// ECN marking as DCQCN's switches do it: never below Kmin bytes queued,
	// always from Kmax, between them with a probability that rises to Pmax.
	// Kmax 0: never.
	Kmin, Kmax uint32
	Pmax       float64
	// LinkRate is the port's speed in bits per second for the link meter when
	// there is no shaper; 0: what the kernel says, see [PortState].
	LinkRate uint64
}

// Speed returns the speed that the link's meter goes by, bits per second, and who says
// so: the shaper, link_rate or the kernel, which says the given one. 0, "": it is
// unknown, and the meter shows nothing.
func (c *EgressConfig) Speed(kernel uint64) (bits uint64, source string) {
	switch {
	case c.Rate != 0:
		return c.Rate, "shaper"
	case c.LinkRate != 0:
		return c.LinkRate, "link_rate"
	case kernel != 0:
		return kernel, "kernel"
	}
	return 0, ""
}
