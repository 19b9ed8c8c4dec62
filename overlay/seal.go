package overlay

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/dchest/siphash"

	"github.com/loomfabric/loom/internal/drop"
)

// SealLen is how much a seal makes a control packet longer, bytes.
const SealLen = 8

// vxCEByte is where in a VXLAN header CE is, and vxCEMask its bits there: every hop may
// raise it.
const (
	vxCEByte = 1
	vxCEMask = 0x0e
)

// Key is a key that the leaves of a fabric share: 128 bits.
type Key [2]uint64

// Keys seal the control packets that leaves send each other: the first one makes seals,
// each of them is accepted. A seal is the last 8 bytes of the UDP datagram: SipHash-2-4 of
// the outer frame from the source address to it, without CE. It says that the packet
// comes from one who has the key. It does not hide anything, and does not say that the
// packet is new.
type Keys []Key

// ParseKeys reads keys: one to a line, 32 hexadecimal digits. Empty lines and lines that
// begin with # do not count.
func ParseKeys(text string) (Keys, error) {
	var keys Keys
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		b, err := hex.DecodeString(line)
		if err != nil || len(b) != 16 {
			return nil, fmt.Errorf("line %d is no key of 32 hexadecimal digits: make one with `openssl rand -hex 16`", i+1)
		}
		keys = append(keys, Key{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])})
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("there is no key in it: make one with `openssl rand -hex 16`")
	}
	return keys, nil
}

// seal returns the seal of an outer frame that ends where it would begin. The frame is a
// valid one, as [Decap] says.
func (k *Key) seal(frame []byte) uint64 {
	from, udp := EthernetLen+ip4Src, 0
	if Ethernet(frame).EtherType() == EtherTypeIPv6 {
		from, udp = EthernetLen+ip6Src, outUDP6
	} else {
		udp = EthernetLen + IPv4(frame[EthernetLen:]).HeaderLen()
	}
	ce := &frame[udp+UDPLen+vxCEByte]
	was := *ce
	*ce &^= vxCEMask
	sum := siphash.Hash(k[0], k[1], frame[from:])
	*ce = was
	return sum
}

// Seal writes the seal to the last SealLen bytes of an outer frame, which is complete but
// for them.
func (k Keys) Seal(frame []byte) {
	n := len(frame) - SealLen
	binary.LittleEndian.PutUint64(frame[n:], k[0].seal(frame[:n]))
}

// Unseal checks the seal of an outer frame that Decap accepted, and takes it out of what
// is inside. It returns drop.None, or drop.BadSeal and leaves d alone.
func (k Keys) Unseal(frame []byte, d *Decapped) drop.Reason {
	n := d.End - SealLen
	if n-d.Inner < EthernetLen {
		return drop.BadSeal
	}
	seal := binary.LittleEndian.Uint64(frame[n:])
	for i := range k {
		if k[i].seal(frame[:n]) == seal {
			d.End = n
			return drop.None
		}
	}
	return drop.BadSeal
}
