package overlay

import "github.com/loomfabric/loom/internal/drop"

// Message is a packet of the fabric's own, from one leaf to another, or to the node
// at the other end of a link. Those who make messages fill it; drivers carry it.
type Message struct {
	// Leaf is the one that the message goes to, or came from.
	Leaf uint16
	// Link is the link whose other end the message goes to, or the one that it came by:
	// an uplink of a leaf, a port of a spine's bundle. AnyLink: it goes to the leaf.
	Link uint8
	// Cause is the packet whose headers the message carries: its index in the
	// vector that the message answers, or NoCause.
	Cause int16
	// Hash is that of the flow that the message is about.
	Hash uint32
	// Fabric has the message's own fields: Scheme, Opcode, Epoch, Rerouted, Tail,
	// Path and the shim. LBTag and feedback are filled in where it leaves.
	Fabric Fabric
}

const (
	// AnyLink is the Link of a message for a leaf.
	AnyLink uint8 = 0xff
	// NoCause is the Cause of a message that no packet has caused.
	NoCause int16 = -1
)

// LinkMessageLen is the length of a message for the node at the other end of a link:
// the shortest Ethernet frame, without FCS. The rest of it is zero.
const LinkMessageLen = 60

// EncodeLink writes a message for the node at the other end of a link into b, which has
// LinkMessageLen zero bytes: an Ethernet header with EtherTypeLocal, and the fabric's
// header with its shim, if f has one, as they are behind UDP.
func EncodeLink(b []byte, src, dst MAC, f *Fabric) {
	eth := Ethernet(b)
	eth.SetDst(dst)
	eth.SetSrc(src)
	eth.SetEtherType(EtherTypeLocal)
	VXLAN(b[EthernetLen:]).Encode(0, f)
}

// DecodeLink reads such a message into f, all fields of which it sets. The reason is
// drop.None, or says why it is not one: drop.Truncated, drop.BadEtherType,
// drop.BadVXLANFlags, drop.ReservedBits, drop.VNIUnknown or drop.BadOpcode.
func DecodeLink(b []byte, f *Fabric) drop.Reason {
	if len(b) < EthernetLen {
		return drop.Truncated
	}
	if Ethernet(b).EtherType() != EtherTypeLocal {
		return drop.BadEtherType
	}
	vni, _, r := VXLAN(b[EthernetLen:]).Decode(f)
	switch {
	case r != drop.None:
		return r
	case vni != 0:
		return drop.VNIUnknown
	case !f.Capable || !f.Opcode.Control() || f.Opcode == OpHello:
		return drop.BadOpcode
	}
	return drop.None
}
