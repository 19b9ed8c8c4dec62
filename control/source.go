package control

import (
	"context"
	"net/netip"

	"github.com/loomfabric/loom/dataplane"
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
	VNI      overlay.VNI
	Flood    []netip.Addr // among Peers
	Members  []netip.Addr // peers that may send into it, among Peers; nil: all
	Storm    dataplane.StormLimit
	FDBLimit uint32
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

// Source knows the overlay. The configuration file is one ([Static]); a
// control protocol's tables in the kernel will be another.
type Source interface {
	// Run calls update with the whole overlay, first at once and then
	// whenever it has changed, until ctx ends. The mirror keeps what it is
	// given; a Source must not change it afterwards.
	Run(ctx context.Context, update func(Overlay)) error
}

// Static is the [Source] of an overlay that never changes.
type Static Overlay

// Run gives the overlay once.
func (s Static) Run(ctx context.Context, update func(Overlay)) error {
	update(Overlay(s))
	<-ctx.Done()
	return nil
}
