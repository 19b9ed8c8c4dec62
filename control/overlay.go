package control

import (
	"net/netip"

	"github.com/loomfabric/loom/overlay"
)

// Overlay is what a leaf knows of the virtual networks: who the other leaves
// are, what is flooded where, and which addresses do not move.
type Overlay struct {
	Peers  []netip.Addr // remote VTEPs
	VNIs   []VNI
	Static []StaticMAC
}

// VNI is one virtual network; see dataplane.VNI for the limits' units.
type VNI struct {
	VNI                   overlay.VNI
	Flood                 []netip.Addr // among Peers
	StormRate, StormBurst uint32
	FDBLimit              uint32
}

// StaticMAC is an address behind a peer, or behind the access port Interface
// when VTEP is not valid.
type StaticMAC struct {
	VNI       overlay.VNI
	MAC       overlay.MAC
	VTEP      netip.Addr
	Interface string
	VLAN      uint16
}
