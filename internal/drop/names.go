package drop

import "fmt"

// names are the label values of loom_drops_total.
var names = [NumReasons]string{
	None:            "none",
	Truncated:       "truncated",
	BadEtherType:    "bad_ethertype",
	BadIPVersion:    "bad_ip_version",
	BadIPLength:     "bad_ip_length",
	BadIPChecksum:   "bad_ip_checksum",
	BadIPAddress:    "bad_ip_address",
	IPFragment:      "ip_fragment",
	ExtensionHeader: "extension_header",
	NotVXLAN:        "not_vxlan",
	BadUDPLength:    "bad_udp_length",
	BadVXLANFlags:   "bad_vxlan_flags",
	ReservedBits:    "reserved_bits",
	BadOpcode:       "bad_opcode",
	BadMarks:        "bad_marks",
	BadHello:        "bad_hello",
	BadSeal:         "bad_seal",
	BadInner:        "bad_inner",
	InnerVLAN:       "inner_vlan",
	BadECN:          "bad_ecn",
	SourceMulticast: "source_multicast",
	DestinationZero: "destination_zero",
	VTEPUnknown:     "vtep_unknown",
	VTEPLooped:      "vtep_looped",
	ReversePath:     "reverse_path",
	NotOurMAC:       "not_our_mac",
	VTEPForeign:     "vtep_foreign",
	NotLocalVTEP:    "not_local_vtep",
	VNIUnknown:      "vni_unknown",
	VLANUnknown:     "vlan_unknown",
	SplitHorizon:    "split_horizon",
	LinkLocal:       "link_local",
	NotMember:       "not_member",
	SamePort:        "same_port",
	NoMember:        "no_member",
	NotMirrored:     "not_mirrored",
	StormLimit:      "storm_limit",
	TTLExpired:      "ttl_expired",
	NoRoute:         "no_route",
	NoNeighbour:     "no_neighbour",
	HoldFull:        "hold_full",
	HopGone:         "hop_gone",
	Control:         "control",
	Copy:            "copy",
	TooBig:          "too_big",
	QueueFull:       "queue_full",
	NoBuffer:        "no_buffer",
	FloodYields:     "flood_yields",
	ControlFull:     "control_full",
	NoFrame:         "no_frame",
	PortDown:        "port_down",
	PortReset:       "port_reset",
	Shutdown:        "shutdown",
	DriverRefused:   "driver_refused",
}

// String returns the reason's stable name, as in metrics.
func (r Reason) String() string {
	if r < NumReasons {
		return names[r]
	}
	return fmt.Sprintf("reason_%d", uint8(r))
}

// Counts has a number for each reason.
type Counts [NumReasons]uint64

// Index returns the name of a reason; "" for None.
func (Counts) Index(i int) (label, value string) {
	if r := Reason(i); r != None {
		value = r.String()
	}
	return "reason", value
}
