package overlay

import (
	"encoding/binary"

	"github.com/loomfabric/loom/internal/drop"
)

// VNI is a VXLAN network identifier; 24 bits.
type VNI uint32

// Hash returns 32 bits, of which the upper ones are the best.
func (v VNI) Hash() uint32 { return uint32(v) * 0x9E3779B1 }

// MaxVNI is the largest VNI.
const MaxVNI VNI = 1<<24 - 1

// Lengths of the headers that encapsulation adds, bytes.
const (
	VXLANLen = 8
	ShimLen  = 4

	// Overhead is the length of the headers in front of a tenant's frame without
	// the shim, between VTEPs of IPv4: outer Ethernet, IPv4, UDP and VXLAN.
	Overhead = EthernetLen + IPv4Len + UDPLen + VXLANLen
	// Overhead6 is Overhead between VTEPs of IPv6.
	Overhead6 = EthernetLen + IPv6Len + UDPLen + VXLANLen
	// MaxOverhead is Overhead with the shim.
	MaxOverhead = Overhead + ShimLen
	// MaxOverhead6 is Overhead6 with the shim.
	MaxOverhead6 = Overhead6 + ShimLen
)

// VXLAN is a view of a VXLAN header (RFC 7348 §5) whose reserved bits carry the
// fabric's fields:
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|Scheme |1 0 0 0| LBTag | CE  | FBTag |FBMet| Opc |Ep.|R|T|S|F|C|
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                      VNI                      |    PathID     |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|           TX_TSTAMP           |              Arg              |  only if S
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//
// R, T, S, F and C are Rerouted, Tail, Shim, FBValid and Capable. The getters
// panic on a view that is not [VXLAN.Valid].
type VXLAN []byte

// Positions in the header's first 8 bytes taken as one big-endian number.
const (
	vxFlagsShift    = 56
	vxSchemeShift   = 60
	vxLBTagShift    = 52
	vxCEShift       = 49
	vxFBTagShift    = 45
	vxFBMetricShift = 42
	vxOpcodeShift   = 39
	vxEpochShift    = 37
	vxReroutedShift = 36
	vxTailShift     = 35
	vxShimShift     = 34
	vxFBValidShift  = 33
	vxCapableShift  = 32
	vxVNIShift      = 8

	vxFlagVNI  = 0x08                      // the I flag; the only one RFC 7348 knows
	vxFlags    = 0x0f                      // the flags but for those that number the scheme
	vxGBP      = 0x88                      // the first byte of VXLAN-GBP: no scheme has number 8
	vxReserved = 0xffffff<<32 | 0xff       // what RFC 7348 reserves besides flags
	vxVNIMask  = uint64(MaxVNI)            // after the shift
	vxPlain    = vxFlagVNI << vxFlagsShift // a plain header but for its VNI
)

// Valid reports whether the view holds the fixed 8 bytes.
func (v VXLAN) Valid() bool { return len(v) >= VXLANLen }

// VNI returns the network identifier.
func (v VXLAN) VNI() VNI { return VNI(binary.BigEndian.Uint32(v[4:]) >> 8) }

// Capable reports whether the header uses the fabric's fields. Otherwise Path and
// Opcode mean nothing. VXLAN-GBP's policy ID can look like Capable.
func (v VXLAN) Capable() bool { return v[0]&vxFlags == vxFlagVNI && v[3]&1 != 0 && v[0] != vxGBP }

// Path returns the path that the source leaf chose.
func (v VXLAN) Path() PathID { return PathID(v[7]) }

// Opcode returns the packet's purpose.
func (v VXLAN) Opcode() Opcode { return Opcode(binary.BigEndian.Uint32(v) >> (vxOpcodeShift - 32) & 7) }

// Encode writes a header with the low 24 bits of vni, and returns its length:
// VXLANLen, or VXLANLen+ShimLen if f has a shim. If f is nil or not Capable, the
// header is plain RFC 7348. Fields are cut to their width. The view must hold the
// header.
func (v VXLAN) Encode(vni VNI, f *Fabric) int {
	if f == nil || !f.Capable {
		binary.BigEndian.PutUint64(v, vxPlain|uint64(vni&MaxVNI)<<vxVNIShift)
		return VXLANLen
	}
	binary.BigEndian.PutUint64(v, f.word(vni))
	if !f.Shim {
		return VXLANLen
	}
	binary.BigEndian.PutUint32(v[VXLANLen:], uint32(f.TxTstamp)<<16|uint32(f.Arg))
	return VXLANLen + ShimLen
}

// word returns the first 8 bytes of a Capable header.
func (f *Fabric) word(vni VNI) uint64 {
	return vxPlain | 1<<vxCapableShift |
		uint64(f.Scheme&(NumSchemes-1))<<vxSchemeShift |
		uint64(f.LBTag&0xf)<<vxLBTagShift |
		uint64(f.CE&7)<<vxCEShift |
		uint64(f.FBTag&0xf)<<vxFBTagShift |
		uint64(f.FBMetric&7)<<vxFBMetricShift |
		uint64(f.Opcode&7)<<vxOpcodeShift |
		uint64(f.Epoch&epochMask)<<vxEpochShift |
		bit(f.Rerouted)<<vxReroutedShift |
		bit(f.Tail)<<vxTailShift |
		bit(f.Shim)<<vxShimShift |
		bit(f.FBValid)<<vxFBValidShift |
		uint64(vni&MaxVNI)<<vxVNIShift |
		uint64(f.Path)
}

func bit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// Decode sets all fields of f from a header, and returns the VNI and the header's
// length. The reason is drop.None if it accepts the header; otherwise it is
// drop.Truncated, drop.BadVXLANFlags or drop.ReservedBits, and f is zero. Decode
// accepts every opcode: a spine forwards opcodes that it does not know.
func (v VXLAN) Decode(f *Fabric) (VNI, int, drop.Reason) {
	*f = Fabric{}
	if len(v) < VXLANLen {
		return 0, 0, drop.Truncated
	}
	w := binary.BigEndian.Uint64(v)
	vni := VNI(w >> vxVNIShift & vxVNIMask)
	switch {
	case w>>vxFlagsShift&vxFlags != vxFlagVNI, w>>vxFlagsShift == vxGBP:
		return 0, 0, drop.BadVXLANFlags
	case w>>vxCapableShift&1 != 0:
	case w>>vxSchemeShift != 0:
		return 0, 0, drop.BadVXLANFlags
	case w&vxReserved == 0:
		return vni, VXLANLen, drop.None
	default:
		return 0, 0, drop.ReservedBits
	}
	n := VXLANLen
	if w>>vxShimShift&1 != 0 {
		n += ShimLen
		if len(v) < n {
			return 0, 0, drop.Truncated
		}
		s := binary.BigEndian.Uint32(v[VXLANLen:])
		f.TxTstamp, f.Arg, f.Shim = Tstamp(s>>16), Tstamp(s), true
	}
	f.Capable = true
	f.Scheme = SchemeID(w >> vxSchemeShift)
	f.LBTag = uint8(w>>vxLBTagShift) & 0xf
	f.CE = uint8(w>>vxCEShift) & 7
	f.FBTag = uint8(w>>vxFBTagShift) & 0xf
	f.FBMetric = uint8(w>>vxFBMetricShift) & 7
	f.Opcode = Opcode(w>>vxOpcodeShift) & 7
	f.Epoch = Epoch(w>>vxEpochShift) & epochMask
	f.Rerouted = w>>vxReroutedShift&1 != 0
	f.Tail = w>>vxTailShift&1 != 0
	f.FBValid = w>>vxFBValidShift&1 != 0
	f.Path = PathID(w)
	return vni, n, drop.None
}

// RaiseCE sets the CE field of a Capable header to ce, a congestion metric of at
// most 7, if ce is larger. Every hop does so with its link's metric (CONGA §3.3,
// step 2). It reports whether CE changed. The outer UDP checksum is zero and needs
// no update.
func (v VXLAN) RaiseCE(ce uint8) bool {
	if v[1]>>1&7 >= ce {
		return false
	}
	v[1] = v[1]&^0x0e | ce<<1
	return true
}
