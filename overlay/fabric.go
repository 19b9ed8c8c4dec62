package overlay

import (
	"fmt"
	"time"

	"github.com/loomfabric/loom/internal/mono"
)

// Fabric holds the fields with which leaves tell each other about load: CONGA's
// (§3.3: LBTag, CE, FB_LBTag, FB_Metric) and ConWeave's (§3.2, §3.3). They
// travel in the bits that RFC 7348 reserves; see [VXLAN]. The zero value is a
// plain VXLAN header.
type Fabric struct {
	Capable  bool  // the fields are in use; without it nothing below is sent
	LBTag    uint8 // 4 bits: source leaf's uplink
	CE       uint8 // 3 bits: worst congestion metric met so far
	FBValid  bool  // FBTag and FBMetric are meant
	FBTag    uint8 // 4 bits: the tag that is fed back
	FBMetric uint8 // 3 bits: its metric
	Opcode   Opcode
	Epoch    Epoch
	Rerouted bool // ConWeave: sent on the new path after a reroute
	Tail     bool // ConWeave: last packet on the old path
	Shim     bool // TxTstamp and Arg follow the VXLAN header
	Path     PathID
	// Scheme is the one that Opcode, Epoch, Rerouted, Tail and the shim belong to;
	// 0: none, as in packets without marks and in HELLOs.
	Scheme SchemeID

	TxTstamp Tstamp // when this packet left the source leaf; needs Shim
	// Arg is the scheme's own half of the shim: ConWeave's TAIL_TX_TSTAMP, or the
	// number of a packet or of a flowcell in its flow; needs Shim.
	Arg Tstamp
}

// SchemeID numbers the schemes that use the header's marks and its shim: 4 bits,
// 0 for none. Package balance gives the numbers. 8 is nobody's: VXLAN-GBP headers
// (draft-smith-vxlan-group-policy) would have it.
type SchemeID uint8

// NumSchemes is how many SchemeIDs there are, 0 included.
const NumSchemes = 16

// Valid reports whether a scheme can have the number.
func (s SchemeID) Valid() bool { return s > 0 && s < NumSchemes && s != vxGBP>>4 }

// RaiseCE sets CE to ce where that is more, as every hop does with its link's
// metric (CONGA §3.3, step 2): what [VXLAN.RaiseCE] does to a header on the wire.
// It reports whether CE changed; a header without the fields keeps its CE.
func (f *Fabric) RaiseCE(ce uint8) bool {
	if !f.Capable || ce <= f.CE {
		return false
	}
	f.CE = ce
	return true
}

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
	OpExplore                  // control: a scheme's own
	OpExtension                // control: a scheme's own

	// NumOpcodes is the number of opcodes.
	NumOpcodes = iota
)

// Control reports whether the packet is the fabric's own and never reaches a
// host.
func (o Opcode) Control() bool { return o >= OpRTTReply }

// String returns the name the papers use.
func (o Opcode) String() string {
	names := [...]string{"DATA", "RTT_REQUEST", "RTT_REPLY", "CLEAR", "NOTIFY", "HELLO", "EXPLORE", "EXTENSION"}
	if int(o) < len(names) {
		return names[o]
	}
	return fmt.Sprintf("opcode %d", uint8(o))
}

// Epoch numbers the rounds of ConWeave's rerouting (§3.2): 2 bits, wrapping.
type Epoch uint8

const epochMask = 3

// Next returns the epoch after e.
func (e Epoch) Next() Epoch { return (e + 1) & epochMask }

// Before reports whether e comes just before u. Two epochs that lie two apart
// cannot be ordered in two bits: neither is before the other (RFC 1982 §3.2).
func (e Epoch) Before(u Epoch) bool { return (u-e)&epochMask == 1 }

// Tstamp is a point in time in microseconds, modulo 2^16: it wraps every
// 65.536 ms, and orders points less than half of that apart.
type Tstamp uint16

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

// PathID names a path by the choices made along it: the source leaf's uplink
// (high 4 bits) and the selector with which the next tier chooses its own next
// hop (low 4 bits).
type PathID uint8

// MakePathID packs uplink and selector, of which the low 4 bits count.
func MakePathID(uplink, selector uint8) PathID { return PathID(uplink<<4 | selector&0xf) }

// Uplink returns the source leaf's uplink index, 0..15.
func (p PathID) Uplink() uint8 { return uint8(p >> 4) }

// Selector returns the next tier's choice, 0..15.
func (p PathID) Selector() uint8 { return uint8(p & 0xf) }

// String returns uplink and selector with a dot between.
func (p PathID) String() string { return fmt.Sprintf("%d.%d", p.Uplink(), p.Selector()) }
