package overlay

import "github.com/loomfabric/loom/internal/drop"

// Message is a packet of the fabric's own. It goes from one leaf to another, or to
// the node at the other end of a link. Schemes fill messages; drivers carry them.
type Message struct {
	// Leaf is the leaf that the message goes to, or came from.
	Leaf uint16
	// Link is the link whose other end the message goes to, or by which it came: an
	// uplink of a leaf, or a port of a spine's bundle. AnyLink means that it goes to
	// the leaf.
	Link uint8
	// Cause is the packet whose headers the message carries: its index in the
	// vector that the message answers, or NoCause.
	Cause int16
	// Hash is the hash of the flow that the message is about.
	Hash uint32
	// Fabric holds the message's own fields: Scheme, Opcode, Epoch, Rerouted, Tail,
	// Path and the shim. The leaf fills in LBTag and feedback as the message departs.
	Fabric Fabric
}

const (
	// AnyLink is the Link of a message for a leaf.
	AnyLink uint8 = 0xff
	// NoCause is the Cause of a message without a causing packet.
	NoCause int16 = -1
)

// LinkMessageLen is the length of a message for the node at the other end of a link,
// bytes. It is the shortest Ethernet frame, without FCS; its unused bytes are zero.
const LinkMessageLen = 60

// EncodeLink writes a message for the node at the other end of a link to b, which has
// LinkMessageLen zero bytes. The message is an Ethernet header with EtherTypeLocal and
// the fabric's header, with a shim if f has one, as behind UDP.
func EncodeLink(b []byte, src, dst MAC, f *Fabric) {
	eth := Ethernet(b)
	eth.SetDst(dst)
	eth.SetSrc(src)
	eth.SetEtherType(EtherTypeLocal)
	VXLAN(b[EthernetLen:]).Encode(0, f)
}

// DecodeLink sets all fields of f from such a message. The reason is drop.None if it
// accepts the message; otherwise it is drop.Truncated, drop.BadEtherType,
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
