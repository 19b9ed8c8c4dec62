package dataplane

import (
	"net/netip"
	"time"

	"github.com/gaissmai/bart"

	"github.com/loomfabric/loom/overlay"
)

// Limits that table layouts depend on.
const (
	MaxPorts = 256  // ports of a node
	MaxPaths = 16   // next hops of one route, as LBTag has 4 bits
	MaxHops  = 1024 // next hops in all
	MaxPeers = 1024 // remote VTEPs
	MaxVNIs  = 4096 // VNIs of a node
)

// PortID is a port's number, which it has for as long as it is there; see [Node.Ports].
type PortID uint16

// HopID indexes [Tables.Hops]. The control plane keeps it stable: a (port,
// gateway) pair has one HopID for the life of the process.
type HopID uint16

// PeerID indexes [Tables.Peers], stable like HopID.
type PeerID uint16

// VNIIndex indexes [Tables.VNIs], stable like HopID.
type VNIIndex uint16

// Tables is everything the control plane tells the workers. It is immutable
// once it has been given to [Node.Publish]; workers take the newest one at the
// top of a burst.
type Tables struct {
	Ports []PortState // by PortID; those that are left out at the end are down
	Hops  []Hop       // by HopID
	Peers []Peer      // leaf, by PeerID
	VNIs  []VNI       // leaf, by VNIIndex
	// Bindings are a leaf's access ports in networks, each pair of port and VLAN once.
	Bindings []Binding
	Static   []StaticMAC // leaf
	NoVTEP   bool        // leaf: the VTEP is no address of this machine
	// Routes is the spine's longest-prefix match: destination to an index
	// into Groups.
	Routes *bart.Table[uint32] `json:"-"`
	Groups []Group
	Local  []netip.Addr // spine: this machine's addresses, in order
}

// PortState is what the kernel says of a port.
type PortState struct {
	Ifindex int  // 0: the interface does not exist now
	Up      bool // administratively up and with carrier
	MAC     overlay.MAC
	MTU     int
	NeedMTU int    // towards the fabric: what MTU has to be for the longest packets; 0: unknown
	Speed   uint64 // of the link, bits per second; 0: unknown
	// Transparent keeps VLAN tags of an access port inside the tunnel: every frame of the
	// port, tagged or not, belongs to its untagged network.
	Transparent bool
}

// Binding makes an access port a member of a network.
type Binding struct {
	Port PortID
	VLAN uint16 // tag that the network's frames carry on the port; 0: none
	VNI  VNIIndex
}

// Hop is one next hop: a port, and the neighbour behind it.
type Hop struct {
	Port     PortID
	Gateway  netip.Addr // neighbour's address (the destination itself when on link)
	MAC      overlay.MAC
	Resolved bool // MAC is known
}

// Group is the set of a route's next hops, in a stable order.
type Group struct {
	Hops    []HopID  // at most MaxPaths
	Weights []uint16 // of Hops, in their order, each above 0; nil: all are alike
	Gone    []Gone   // in the order of places
}

// Gone is the place of a next hop that went lately and may return. Flows on other next
// hops stay where they are, see [balance.Places].
type Gone struct {
	Place  uint8  // among Hops and all that are gone
	Weight uint16 // that it had
}

// Peer is a remote VTEP and the next hops that the kernel's routes give for it.
// Hops holds only those whose port is up; their order is stable, so that the
// loss of one moves as few flows as possible.
type Peer struct {
	VTEP    netip.Addr
	Hops    []HopID  // at most MaxPaths
	Weights []uint16 // of Hops, in their order, each above 0; nil: all are alike
	Gone    []Gone   // in the order of places
}

// VNI is one virtual network.
type VNI struct {
	VNI   overlay.VNI
	Flood []PeerID // head-end replication list
	// Peers are those with members of the network, whose packets are let in; nil: all.
	Peers []PeerID
	// Storm bounds broadcast, unknown-unicast and multicast frames that a worker
	// accepts from access ports, and four times as many from the fabric.
	Storm    StormLimit
	FDBLimit uint32 // learned addresses of this VNI; 0: only the node's limit
	// Refresh is how often the kernel is shown a frame of each source, with
	// [Config.KernelOverlay]: well below the ageing time of its bridge, and at most 18
	// minutes. 0: DefaultRefresh.
	Refresh time.Duration
}

// StaticMAC is an FDB entry that neither ages nor moves.
type StaticMAC struct {
	VNI  VNIIndex
	MAC  overlay.MAC
	Peer PeerID // remote, when Port is NoPort
	Port PortID
	VLAN uint16 // tag that frames carry on Port; 0: none
}

// NoPort marks a StaticMAC that lies behind a peer.
const NoPort = PortID(0xffff)
