package traffic

import (
	"encoding/binary"

	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/sim/network"
)

// rocePort is RoCEv2's UDP destination port (InfiniBand Annex A17).
const rocePort = 4791

// Ports are drawn from these ranges: clients' from Linux's default ephemeral
// ports, servers' from the registered ones, RoCEv2's sources from the dynamic
// ones (RFC 6335 §6).
const (
	ephemeralFirst, ephemeralPorts   = 32768, 28232
	registeredFirst, registeredPorts = 1024, 31744
	dynamicFirst, dynamicPorts       = 49152, 16384
)

// Tuple is what switches tell a flow by.
type Tuple struct {
	Src, Dst         network.HostID
	SrcPort, DstPort uint16
	Proto            uint8  // overlay.ProtoTCP or overlay.ProtoUDP
	QP               uint32 // RoCEv2: the receiver's queue pair, 24 bits
	PeerQP           uint32 // RoCEv2: the sender's
}

// TCP returns the flow's headers over TCP. Both ports are random: real servers
// listen on many, and two flows of a pair that drew the same ports would be one
// flow to the switches.
func (f *Flow) TCP() Tuple { return f.tuple(overlay.ProtoTCP) }

// Subflow returns the headers of a subflow of MPTCP: those of TCP, from another port for
// each subflow.
func (f *Flow) Subflow(i int) Tuple {
	t := f.TCP()
	const stride = 7919 // a prime that does not divide the number of ports
	t.SrcPort = ephemeralFirst + uint16((f.Key%ephemeralPorts+stride*uint64(i))%ephemeralPorts)
	return t
}

// UDP returns the flow's headers over plain UDP.
func (f *Flow) UDP() Tuple {
	t := f.tuple(overlay.ProtoUDP)
	if t.DstPort == rocePort {
		t.DstPort++ // that one is taken
	}
	return t
}

func (f *Flow) tuple(proto uint8) Tuple {
	return Tuple{
		Src: f.Src, Dst: f.Dst, Proto: proto,
		SrcPort: ephemeralFirst + uint16(f.Key%ephemeralPorts),
		DstPort: registeredFirst + uint16(f.Key>>32%registeredPorts),
	}
}

// RoCE returns the flow's headers over RoCEv2: one destination port for all,
// told apart by queue pairs and source ports.
func (f *Flow) RoCE() Tuple {
	return Tuple{
		Src: f.Src, Dst: f.Dst, Proto: overlay.ProtoUDP,
		SrcPort: dynamicFirst + uint16(f.Key%dynamicPorts), DstPort: rocePort,
		QP: uint32(f.Key >> 16 & 0xffffff), PeerQP: uint32(f.Key >> 40),
	}
}

// Reverse returns the headers of the way back: of acknowledgements.
func (t Tuple) Reverse() Tuple {
	t.Src, t.Dst = t.Dst, t.Src
	t.QP, t.PeerQP = t.PeerQP, t.QP
	if t.Proto != overlay.ProtoUDP || t.DstPort != rocePort {
		t.SrcPort, t.DstPort = t.DstPort, t.SrcPort
	}
	return t
}

// hostNet is where hosts' addresses come from: 10.0.0.0/8.
const hostNet = 10 << 24

// FlowHash returns the hash that leaves and spines know packets with these
// headers by: the headers are built, and dissected by the data plane's own code.
func FlowHash(seed uint32, t Tuple) uint32 {
	const l4 = overlay.EthernetLen + overlay.IPv4Len
	const bth = 12                          // RoCEv2's base transport header
	var b [l4 + 2*overlay.UDPLen + bth]byte // room for TCP's 20 bytes as well
	binary.BigEndian.PutUint16(b[12:], overlay.EtherTypeIPv4)
	ip := b[overlay.EthernetLen:]
	ip[0] = 0x45
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	ip[8] = 64
	ip[9] = t.Proto
	binary.BigEndian.PutUint32(ip[12:], hostNet|uint32(t.Src)+1)
	binary.BigEndian.PutUint32(ip[16:], hostNet|uint32(t.Dst)+1)
	binary.BigEndian.PutUint16(b[l4:], t.SrcPort)
	binary.BigEndian.PutUint16(b[l4+2:], t.DstPort)
	if t.Proto == overlay.ProtoUDP {
		binary.BigEndian.PutUint16(b[l4+4:], uint16(len(b)-l4))
		binary.BigEndian.PutUint32(b[l4+overlay.UDPLen+4:], t.QP&0xffffff)
	}
	var m overlay.Meta
	overlay.Dissect(b[:], seed, &m)
	return m.Hash
}
