package overlay

// ECN is the two-bit field of RFC 3168 §5.
type ECN uint8

// The codepoints.
const (
	NotECT ECN = 0 // the transport does not do ECN
	ECT1   ECN = 1
	ECT0   ECN = 2
	CE     ECN = 3 // congestion experienced
)

const ecnMask = 3

// DSCPControl is the TOS octet of the fabric's control packets: DSCP CS6
// (RFC 4594 §3.1, network control), not ECN-capable.
const DSCPControl = 48 << 2

// EncapTOS returns the outer TOS octet for a frame with the TOS octet innerTOS.
// It copies ECN (RFC 6040 §4.1, normal mode) and sets DSCP to zero, as the
// kernel's vxlan devices do: tenants do not choose how the underlay treats them
// (RFC 2983 §3.1, pipe model), and must not use the fabric's own CS6.
func EncapTOS(innerTOS uint8) uint8 { return innerTOS & ecnMask }

// combined is RFC 6040 §4.2, figure 4, indexed by inner and outer codepoint.
//
//	         outer:  Not-ECT   ECT(1)   ECT(0)   CE
//	inner: Not-ECT   Not-ECT   Not-ECT  Not-ECT  drop
//	       ECT(1)    ECT(1)    ECT(1)   ECT(1)   CE
//	       ECT(0)    ECT(0)    ECT(1)   ECT(0)   CE
//	       CE        CE        CE       CE       CE
var combined = [4][4]ECN{
	NotECT: {NotECT, NotECT, NotECT, NotECT},
	ECT1:   {ECT1, ECT1, ECT1, CE},
	ECT0:   {ECT0, ECT1, ECT0, CE},
	CE:     {CE, CE, CE, CE},
}

// CombineECN returns the codepoint of a packet after decapsulation (RFC 6040
// §4.2). ok is false when the packet must be dropped: the fabric marked
// congestion, and the packet's transport does not do ECN.
func CombineECN(inner, outer ECN) (result ECN, ok bool) {
	inner, outer = inner&ecnMask, outer&ecnMask
	return combined[inner][outer], inner != NotECT || outer != CE
}

// DecapECN combines the ECN field of a decapsulated frame with the outer header's
// TOS octet, and updates the IPv4 checksum. ok is false if the frame must be
// dropped, see [CombineECN]. marked says that a link of the fabric has set CE: the
// outer header has it, and did not get it from the inner one, where a host can write
// what it likes. l3 and flags are the frame's, from [Meta]. A frame without IP counts as
// not ECN-capable.
func DecapECN(frame []byte, l3 uint8, flags uint16, outerTOS uint8) (marked, ok bool) {
	outer := ECN(outerTOS & ecnMask)
	if outer == NotECT {
		return false, true // every inner codepoint stays as it is
	}
	tos := FrameTOS(frame, l3, flags)
	inner := ECN(tos & ecnMask)
	result, ok := CombineECN(inner, outer)
	if result != inner {
		setTOS(frame, l3, flags, tos&^ecnMask|uint8(result))
	}
	return outer == CE && inner != CE, ok
}

// FrameTOS returns the TOS octet or traffic class of the IP header at l3. It
// returns 0 without an IP header. l3 and flags are from [Meta].
func FrameTOS(frame []byte, l3 uint8, flags uint16) uint8 {
	switch {
	case flags&FlagIPv4 != 0 && len(frame) >= int(l3)+IPv4Len:
		return IPv4(frame[l3:]).TOS()
	case flags&FlagIPv6 != 0 && len(frame) >= int(l3)+IPv6Len:
		return IPv6(frame[l3:]).TrafficClass()
	}
	return 0
}

// SetCE marks congestion experienced in the IP header at l3 and updates the IPv4
// checksum. It reports whether the frame carries the mark. It does not mark a
// frame that is not IP or not ECN-capable; RFC 3168 §5 has the latter dropped
// instead. l3 and flags are from [Meta].
func SetCE(frame []byte, l3 uint8, flags uint16) bool {
	tos := FrameTOS(frame, l3, flags)
	switch ECN(tos & ecnMask) {
	case NotECT:
		return false
	case CE:
		return true
	}
	setTOS(frame, l3, flags, tos|uint8(CE))
	return true
}

// setTOS replaces the octet that FrameTOS returned for the same l3 and flags.
func setTOS(frame []byte, l3 uint8, flags uint16, tos uint8) {
	if flags&FlagIPv4 != 0 {
		IPv4(frame[l3:]).SetTOS(tos)
		return
	}
	IPv6(frame[l3:]).SetTrafficClass(tos)
}
