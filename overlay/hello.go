package overlay

import (
	"encoding/binary"

	"github.com/loomfabric/loom/internal/drop"
)

// Hello is what a HELLO says besides the fabric's header. A leaf sends one by each of
// its paths to a peer at a time: a round. The peer, the HELLO's receiver, finds out from
// them which paths deliver, and says so in its own HELLOs. Tags are uplinks, 0 to 15, of
// the leaf that a field speaks of; sets of them have a bit each.
type Hello struct {
	// Boot is the sender's own since it started. With another one all that was known of
	// its rounds and counts is void.
	Boot uint32
	// Round is the number of the HELLO's round, from 1. LargeRound is the last one, this
	// one included, whose HELLOs were padded to the longest frame of the fabric; 0: none.
	Round, LargeRound uint32
	// Sent is how many tenants' packets with the fabric's fields the sender has sent to
	// the receiver by the HELLO's path, modulo 2^32.
	Sent uint32
	// Present are the sender's tags that there are HELLOs by in this round.
	Present uint16
	// Silent, Lossy and Narrow are tags of the receiver, of paths that do not deliver to
	// the sender: nothing, not all, and no long packets.
	Silent, Lossy, Narrow uint16
	// EchoTag is the tag of the receiver that the shim's Arg and Loss are about. Loss is
	// the share of the packets by that path that was lost of late, of 65535.
	EchoTag uint8
	Loss    uint16
	// Large says that this HELLO is padded.
	Large bool
	// Leaving says that the sender is about to stop: the receiver is to send it plain
	// VXLAN from now on. Only what echoes the receiver's nonce may say so.
	Leaving bool
	// Every is the time between two of the sender's rounds, in ms; 0: the sender does not
	// say. A receiver counts missed rounds by it, as in RFC 5880 §6.8.4.
	Every uint8
	// Nonce is the sender's for this receiver, and Echo the receiver's own, as it came
	// last; 0: none has.
	Nonce, Echo uint64
}

// HelloLen is the length of a HELLO's body, bytes. It stands behind the inner Ethernet
// header; what follows is padding.
const HelloLen = 48

// helloVersion is the first byte of a HELLO's body.
const helloVersion = 1

// Bits of the second byte.
const (
	helloLarge   = 1
	helloLeaving = 2
)

// Encode writes the body to b, which holds HelloLen bytes.
func (h *Hello) Encode(b []byte) {
	b = b[:HelloLen]
	clear(b)
	b[0] = helloVersion
	b[1] = uint8(bit(h.Large)*helloLarge | bit(h.Leaving)*helloLeaving)
	b[2], b[3] = h.EchoTag&0xf, h.Every
	be := binary.BigEndian
	be.PutUint16(b[4:], h.Present)
	be.PutUint16(b[6:], h.Silent)
	be.PutUint16(b[8:], h.Lossy)
	be.PutUint16(b[10:], h.Narrow)
	be.PutUint16(b[12:], h.Loss)
	be.PutUint32(b[16:], h.Boot)
	be.PutUint32(b[20:], h.Round)
	be.PutUint32(b[24:], h.LargeRound)
	be.PutUint32(b[28:], h.Sent)
	be.PutUint64(b[32:], h.Nonce)
	be.PutUint64(b[40:], h.Echo)
}

// Decode sets all fields of h from an inner frame. The reason is drop.None if it accepts
// the body; it is drop.BadHello if the frame is too short, of another EtherType or
// another version, or names a round 0.
func (h *Hello) Decode(inner []byte) drop.Reason {
	*h = Hello{}
	if len(inner) < EthernetLen+HelloLen || Ethernet(inner).EtherType() != EtherTypeLocal {
		return drop.BadHello
	}
	b := inner[EthernetLen:]
	be := binary.BigEndian
	if b[0] != helloVersion || be.Uint32(b[20:]) == 0 {
		return drop.BadHello
	}
	h.Large, h.Leaving = b[1]&helloLarge != 0, b[1]&helloLeaving != 0
	h.EchoTag, h.Every = b[2]&0xf, b[3]
	h.Present, h.Silent = be.Uint16(b[4:]), be.Uint16(b[6:])
	h.Lossy, h.Narrow, h.Loss = be.Uint16(b[8:]), be.Uint16(b[10:]), be.Uint16(b[12:])
	h.Boot, h.Round = be.Uint32(b[16:]), be.Uint32(b[20:])
	h.LargeRound, h.Sent = be.Uint32(b[24:]), be.Uint32(b[28:])
	h.Nonce, h.Echo = be.Uint64(b[32:]), be.Uint64(b[40:])
	return drop.None
}
