package overlay

import (
	"fmt"
	"time"

	"github.com/loomfabric/loom/internal/mono"
)

// Fabric holds the fields that leaves exchange about load: CONGA's (§3.3: LBTag,
// CE, FB_LBTag, FB_Metric) and the marks of a scheme, for example ConWeave's
// (§3.2, §3.3). They travel in the bits that RFC 7348 reserves; see [VXLAN]. The
// zero value is a plain VXLAN header.
type Fabric struct {
	Capable  bool  // the fields are in use; otherwise nothing below is sent
	LBTag    uint8 // 4 bits: source leaf's uplink
	CE       uint8 // 3 bits: worst congestion metric met so far
	FBValid  bool  // FBTag and FBMetric are valid
	FBTag    uint8 // 4 bits: the tag that is fed back
	FBMetric uint8 // 3 bits: its metric
	Opcode   Opcode
	Epoch    Epoch
	Rerouted bool // ConWeave: sent on the new path after a reroute
	Tail     bool // ConWeave: last packet on the old path
	Shim     bool // TxTstamp and Arg follow the VXLAN header
	Path     PathID
	// Scheme owns Opcode, Epoch, Rerouted, Tail and the shim. It is 0 in packets
	// without marks and in HELLOs.
	Scheme SchemeID

	TxTstamp Tstamp // when this packet left the source leaf; needs Shim
	// Arg is the scheme's own half of the shim: ConWeave's TAIL_TX_TSTAMP, or the
	// number of a packet or of a flowcell in its flow; needs Shim.
	Arg Tstamp
}

// SchemeID numbers the schemes that use the header's marks and its shim. It has 4
// bits; 0 stands for none. Package balance assigns the numbers. No scheme may have
// 8, because VXLAN-GBP headers (draft-smith-vxlan-group-policy) look like it.
type SchemeID uint8

// NumSchemes is the number of SchemeIDs, 0 included.
const NumSchemes = 16

// Valid reports whether a scheme may have the number.
func (s SchemeID) Valid() bool { return s > 0 && s < NumSchemes && s != vxGBP>>4 }

// RaiseCE sets CE to ce if ce is larger; every hop does so with its link's metric
// (CONGA §3.3, step 2). [VXLAN.RaiseCE] does it to a header on the wire. RaiseCE
// reports whether CE changed; it leaves a header without the fields alone.
func (f *Fabric) RaiseCE(ce uint8) bool {
	if !f.Capable || ce <= f.CE {
		return false
	}
	f.CE = ce
	return true
}

// Refuses reports whether the sender of a control packet is short of reordering
// queues and asks for no rerouted packets (admission control, ConWeave §5).
// Control packets use the bit of Rerouted for it.
func (f *Fabric) Refuses() bool { return f.Opcode.Control() && f.Rerouted }

// Opcode says what a packet is for; 3 bits.
type Opcode uint8

// The opcodes.
const (
	OpData       Opcode = iota // tenant's frame
	OpRTTRequest               // tenant's frame that asks for an RTT_REPLY; delivered like any other
	OpRTTReply                 // control: answers OpRTTRequest
	OpClear                    // control: the reordering epoch is over
	OpNotify                   // control: the path is congested
	OpHello                    // control: proves the sender capable
	OpExplore                  // control: defined by the scheme
	OpExtension                // control: defined by the scheme

	// NumOpcodes is the number of opcodes.
	NumOpcodes = iota
)

// Control reports whether the packet is the fabric's own. It never reaches a host.
func (o Opcode) Control() bool { return o >= OpRTTReply }

// String returns the name that the papers use.
func (o Opcode) String() string {
	names := [...]string{"DATA", "RTT_REQUEST", "RTT_REPLY", "CLEAR", "NOTIFY", "HELLO", "EXPLORE", "EXTENSION"}
	if int(o) < len(names) {
		return names[o]
	}
	return fmt.Sprintf("opcode %d", uint8(o))
}

// Epoch numbers the rounds of ConWeave's rerouting (§3.2). It has 2 bits and wraps.
type Epoch uint8

const epochMask = 3

// Next returns the epoch after e.
func (e Epoch) Next() Epoch { return (e + 1) & epochMask }

// Before reports whether e comes just before u. Two bits cannot order epochs that
// lie two apart: neither is before the other (RFC 1982 §3.2).
func (e Epoch) Before(u Epoch) bool { return (u-e)&epochMask == 1 }

// Tstamp is a point in time in microseconds, modulo 2^16. It wraps every
// 65.536 ms and orders points that are less than half of that apart.
type Tstamp uint16

// MaxInactive bounds ConWeave's θ_inactive, at sources and at destinations. Two
// packets of an epoch may be that far apart, and [Tstamp.Sub] orders timestamps
// that are less than 32 ms apart. ConWeave §3.4 counts on 32 ms, too; its testbed
// uses 10 ms for θ_inactive (§4.2).
const MaxInactive = 30 * time.Millisecond

// TstampOf returns the timestamp of t, rounded down.
func TstampOf(t mono.Time) Tstamp {
	us := t / 1000
	if t%1000 < 0 {
		us-- // division rounds towards zero; the clock must not stand still there
	}
	return Tstamp(us)
}

// Sub returns the time from u to t, between -32.768 ms and 32.767 ms.
func (t Tstamp) Sub(u Tstamp) time.Duration {
	return time.Duration(int16(t-u)) * time.Microsecond
}

// Add returns t moved by d, which is rounded towards zero to microseconds.
func (t Tstamp) Add(d time.Duration) Tstamp { return t + Tstamp(d/time.Microsecond) }

// PathID names a path by the choices made along it. The high 4 bits are the source
// leaf's uplink. The low 4 bits are the selector by which the next tier chooses its
// own next hop.
type PathID uint8

// MakePathID packs the low 4 bits of uplink and of selector.
func MakePathID(uplink, selector uint8) PathID { return PathID(uplink<<4 | selector&0xf) }

// Uplink returns the source leaf's uplink index, 0..15.
func (p PathID) Uplink() uint8 { return uint8(p >> 4) }

// Selector returns the next tier's choice, 0..15.
func (p PathID) Selector() uint8 { return uint8(p & 0xf) }

// String returns uplink and selector with a dot between.
func (p PathID) String() string { return fmt.Sprintf("%d.%d", p.Uplink(), p.Selector()) }
