package bridge

import (
	"fmt"
)

// Reason is why something is left to the kernel. It is the value of a metric's label.
type Reason string

// The reasons.
const (
	Down        Reason = "down"         // it is not up
	STP         Reason = "stp"          // spanning tree does not let it forward
	MST         Reason = "mst"          // each VLAN has a spanning tree of its own
	Isolated    Reason = "isolated"     // it may not send to other isolated ports
	Locked      Reason = "locked"       // sources have to be authorised
	NotLearning Reason = "not_learning" // the kernel learns no sources there
	TC          Reason = "tc"           // tc's filters or queues decide about its frames
	Netdev      Reason = "nft_netdev"   // nftables' netdev chains do
	BridgeTable Reason = "nft_bridge"   // nftables' bridge chains do
	BrNetfilter Reason = "br_netfilter" // iptables' rules do
	XDP         Reason = "xdp"          // another XDP program does
	QinQ        Reason = "qinq"         // frames have two tags
	Tags        Reason = "tags"         // a VLAN's frames come with a tag and leave without, or the other way round
	Kind        Reason = "kind"         // the interface is of a kind that has no rings
	FlowBased   Reason = "flow_based"   // the VNI comes from tc or routes
	NoVTEP      Reason = "no_vtep"      // it has no local address
	OtherVTEP   Reason = "other_vtep"   // its local address or UDP port is not the leaf's
	LinkLocal   Reason = "link_local"   // its local address is one of a link
	Extension   Reason = "extension"    // its header has an extension
	// ZeroChecksum: over IPv6 it takes no UDP checksum of zero (udp6zerocsumrx).
	ZeroChecksum Reason = "zero_checksum"
	NoVLAN       Reason = "no_vlan" // it has a VNI, and no VLAN to map it to
	Twice        Reason = "twice"   // two claim the same VLAN or VNI
)

// Left is something that is left to the kernel.
type Left struct {
	Name   string // interface
	Index  int    // of the interface
	Port   bool   // it is a port towards hosts, not a bridge or a VXLAN device
	Reason Reason
	Detail string // the whole of it for people: "spanning tree: blocking"
	Fix    string // what to do about it, if anything is wrong; may be ""
}

// String names the interface and says why.
func (l Left) String() string { return fmt.Sprintf("%s is left to the kernel: %s", l.Name, l.Detail) }

// stpStates are the names of BR_STATE_*.
var stpStates = []string{"disabled", "listening", "learning", "forwarding", "blocking"}

func stpState(s uint8) string {
	if int(s) < len(stpStates) {
		return stpStates[s]
	}
	return fmt.Sprint(s)
}
