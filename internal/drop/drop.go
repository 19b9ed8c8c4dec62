// Package drop names every way in which Loom discards a frame. A frame that
// does not leave the fabric is counted under exactly one Reason; code that
// discards without one is wrong. The package holds names only: counters belong
// to the worker that drops.
package drop

// Reason says why a frame was discarded. The zero Reason, None, means that the
// frame was not discarded.
type Reason uint8

// The reasons. Their names (see [Reason.String]) are label values of the metric
// loom_drops_total and therefore part of the operator's interface: add, never
// rename.
const (
	None Reason = iota

	// Malformed frames.
	Truncated       // shorter than its headers say
	BadEtherType    // outer EtherType is not IP
	BadIPVersion    // outer IP version is not that of the EtherType, or its header length is impossible
	BadIPLength     // outer total or payload length contradicts the frame
	BadIPChecksum   // outer IPv4 header checksum is wrong
	BadIPAddress    // outer IPv6 address is link-local, multicast, loopback, unspecified or IPv4-mapped
	IPFragment      // outer datagram is a fragment
	ExtensionHeader // outer IPv6 packet has an extension header
	NotVXLAN        // not UDP to the VXLAN port
	BadUDPLength    // UDP length contradicts the IP datagram
	BadVXLANFlags   // VNI flag missing, or a flag RFC 7348 reserves is set
	ReservedBits    // reserved VXLAN bits set without Capable
	BadOpcode       // fabric opcode that this node does not know
	BadMarks        // marks of a scheme that none of its sources makes
	BadHello        // HELLO without a body that this node can read
	BadSeal         // control packet without a seal of the fabric's keys
	BadInner        // inner frame is not a possible Ethernet frame
	InnerVLAN       // decapsulated frame carries a VLAN tag (RFC 7348 §6.1)
	BadECN          // congestion was marked on a packet that does not do ECN (RFC 6040 §4.2)
	SourceMulticast // Ethernet source address is a group address or zero
	DestinationZero // Ethernet destination address is zero

	// Frames that may not go to their destination.
	VTEPUnknown  // outer source is not a configured peer
	VTEPLooped   // outer source is this node's own VTEP
	ReversePath  // outer source is not reached by the port that the packet came in by
	NotOurMAC    // outer Ethernet destination is not the port's address
	VTEPForeign  // outer source is a peer that has no members of the VNI
	NotLocalVTEP // outer destination is not this node's VTEP
	VNIUnknown   // VNI is not configured here
	VLANUnknown  // no VNI is bound to this VLAN on the access port
	SplitHorizon // fabric to fabric
	LinkLocal    // to an address of the link, which is not forwarded
	NotMember    // the port where the destination lives is no member of the frame's VNI
	SamePort     // destination is behind the port the frame came from
	NoMember     // no other member of the VNI to flood to
	NotMirrored  // the kernel's overlay: the destination is not known here, and only the kernel floods
	StormLimit   // above the VNI's broadcast, unknown and multicast rate
	TTLExpired   // outer TTL reached zero
	NoRoute      // no next hop routes to the destination
	NoNeighbour  // next hop's MAC could not be resolved in time
	HoldFull     // too many frames wait for the next hop's MAC
	HopGone      // next hop disappeared while frames waited for it
	Control      // control opcode that ends here; hosts never get it
	Copy         // copy of a packet that came over another path

	// Frames for which there was no room.
	TooBig      // longer than the egress port's MTU, or than a packet buffer
	QueueFull   // egress data queue at its byte limit
	NoBuffer    // egress data queue has its share of UMEM frames, and few are free
	FloodYields // flooded, and the egress data queue is half full
	ControlFull // egress control queue full
	NoFrame     // no free UMEM frame for a copy
	PortDown    // egress port is down or gone
	PortReset   // was queued on a port that vanished
	Shutdown    // still queued when the drain time was over

	DriverRefused // the egress port's driver did not take it from the XDP program that forwarded it

	// NumReasons is the number of reasons, None included; it sizes arrays.
	NumReasons
)
