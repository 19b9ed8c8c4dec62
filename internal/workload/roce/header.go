package roce

import (
	"encoding/binary"
	"fmt"
)

// Port is RoCEv2's UDP destination port, of requests and of acknowledgements.
const Port = 4791

// TOS is the IP header's byte that packets are to be sent with: DSCP 26, as is
// usual for RoCE, and ECT(0), since congestion is to be marked and not dropped.
const TOS = 26<<2 | 0b10

// Opcode is a BTH's first byte: of the reliable connection's operations, those
// that RDMA WRITE needs.
type Opcode uint8

// The opcodes.
const (
	WriteFirst  Opcode = 0x06
	WriteMiddle Opcode = 0x07
	WriteLast   Opcode = 0x08
	WriteOnly   Opcode = 0x0a
	Acknowledge Opcode = 0x11
)

// first reports whether a packet begins a message, and therefore has a RETH.
func (o Opcode) first() bool { return o == WriteFirst || o == WriteOnly }

// last reports whether a packet ends a message.
func (o Opcode) last() bool { return o == WriteLast || o == WriteOnly }

// PSN is a packet sequence number: 24 bits, wrapping.
type PSN uint32

const psnMask = 1<<24 - 1

// Sub is the distance from q to p, at most 2^23 in either direction.
func (p PSN) Sub(q PSN) int32 { return int32(uint32(p-q)<<8) >> 8 }

// Lengths of headers, bytes.
//
//	BTH    opcode(8) SE(1) M(1) pad(2) version(4) P_Key(16) FECN(1) BECN(1) 0(6) DestQP(24) AckReq(1) 0(7) PSN(24)
//	RETH   virtual address(64) R_Key(32) length(32)
//	AETH   syndrome(8) MSN(24)
const (
	bthLen  = 12
	rethLen = 16
	aethLen = 4
	icrcLen = 4
	// metaLen is what a request carries at the start of its data:
	//
	//	sequence(64) posted(64) size(64) workload(32)
	metaLen = 28
)

// Overhead is how many bytes of a data packet are not data: Ethernet, IPv4, UDP,
// BTH and ICRC; a message's first packet has a RETH more.
const Overhead = 14 + 20 + 8 + bthLen + icrcLen

const (
	defaultPKey = 0xffff
	ackReq      = 0x80
	// Syndromes of an AETH: an ACK with credits without a bound, and a NAK for a
	// packet sequence number that was not expected.
	synACK = 0x1f
	synNAK = 0x60
)

// Packet is one packet.
type Packet struct {
	Opcode Opcode
	QP     uint32 // 24 bits, of the receiver's queue pair
	AckReq bool
	PSN    PSN
	Nak    bool // of an acknowledgement: PSN is the one expected, and another came

	// Of requests. Sequence numbers the transmissions of a queue pair, repetitions
	// too, so that what overtook what can be told from what was lost.
	Sequence uint64
	Posted   int64  // when the message was posted, ns
	Size     uint64 // of the message, bytes
	Workload uint32
	Data     uint32 // bytes of data in this packet
}

// Append writes the packet as UDP payload behind b. Data is zeros behind what
// measurements need, and must have room for it ([MinData]); so is the ICRC: only a
// NIC would look at it, and its IP header is the kernel's to write.
func (p *Packet) Append(b []byte) []byte {
	flags := byte(0)
	if p.AckReq {
		flags = ackReq
	}
	b = append(b, byte(p.Opcode), 0)
	b = binary.BigEndian.AppendUint16(b, defaultPKey)
	b = binary.BigEndian.AppendUint32(b, p.QP&psnMask)
	b = binary.BigEndian.AppendUint32(b, uint32(flags)<<24|uint32(p.PSN)&psnMask)
	if p.Opcode == Acknowledge {
		syndrome := uint32(synACK)
		if p.Nak {
			syndrome = synNAK
		}
		b = binary.BigEndian.AppendUint32(b, syndrome<<24)
		return append(b, 0, 0, 0, 0)
	}
	if p.Opcode.first() {
		b = binary.BigEndian.AppendUint64(b, 0)
		b = binary.BigEndian.AppendUint32(b, 0)
		b = binary.BigEndian.AppendUint32(b, uint32(p.Size))
	}
	b = binary.BigEndian.AppendUint64(b, p.Sequence)
	b = binary.BigEndian.AppendUint64(b, uint64(p.Posted))
	b = binary.BigEndian.AppendUint64(b, p.Size)
	b = binary.BigEndian.AppendUint32(b, p.Workload)
	return append(b, zeros[:int(p.Data)-metaLen+icrcLen]...)
}

var zeros [MaxData]byte

// Sizes of a request's data. A shorter message is filled up to MinData.
const (
	MinData = metaLen
	MaxData = 4096 // the largest MTU that InfiniBand has
)

// Parse reads UDP payload. It reports what is not a packet of this package's.
func (p *Packet) Parse(b []byte) error {
	if len(b) < bthLen+aethLen+icrcLen {
		return fmt.Errorf("%d bytes are too short for BTH, AETH and ICRC", len(b))
	}
	word := binary.BigEndian.Uint32(b[8:])
	*p = Packet{
		Opcode: Opcode(b[0]), QP: binary.BigEndian.Uint32(b[4:]) & psnMask,
		AckReq: word>>24&ackReq != 0, PSN: PSN(word & psnMask),
	}
	at := bthLen
	switch p.Opcode {
	case Acknowledge:
		p.Nak = b[at]&^0x1f == synNAK
		return nil
	case WriteFirst, WriteOnly:
		at += rethLen
	case WriteMiddle, WriteLast:
	default:
		return fmt.Errorf("opcode 0x%02x is not one of RDMA WRITE's", b[0])
	}
	if len(b) < at+metaLen+icrcLen || len(b) > at+MaxData+icrcLen {
		return fmt.Errorf("%d bytes for a request with data of %d to %d", len(b), metaLen, MaxData)
	}
	p.Data = uint32(len(b) - at - icrcLen)
	p.Sequence = binary.BigEndian.Uint64(b[at:])
	p.Posted = int64(binary.BigEndian.Uint64(b[at+8:]))
	p.Size = binary.BigEndian.Uint64(b[at+16:])
	p.Workload = binary.BigEndian.Uint32(b[at+24:])
	return nil
}
