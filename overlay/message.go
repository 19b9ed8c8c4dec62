package overlay

// Message is a packet of the fabric's own, from one leaf to another, or to the node
// at the other end of a link. Those who make messages fill it; drivers carry it.
type Message struct {
	// Leaf is the one that the message goes to, or came from.
	Leaf uint16
	// Link is the uplink by whose next hop the message ends, or by which it came;
	// AnyLink: it goes to the leaf.
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
