package rdma

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/loomfabric/loom/overlay"
)

// rocePort is RoCEv2's UDP port.
const rocePort = 4791

// The classic pcap format (draft-ietf-opsawg-pcap), as QEMU writes it in its
// machine's byte order: a header for the file, and one for each frame.
const (
	pcapMagic  = 0xa1b2c3d4
	pcapHeader = 24
	pcapRecord = 16
	pcapFrame  = 1 << 18 // no frame is longer
)

// RoCE reads the RoCEv2 frames over IPv4 that a station sent, from a capture, in
// order. A last frame that was not written to its end is left out.
func RoCE(file string, from overlay.MAC) (frames [][]byte, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, 1<<20)
	var head [pcapHeader]byte
	if _, err := io.ReadFull(r, head[:]); err != nil || binary.NativeEndian.Uint32(head[:]) != pcapMagic {
		return nil, fmt.Errorf("%s: is not a capture: % x, %v", file, head, err)
	}
	for {
		_, err := io.ReadFull(r, head[:pcapRecord])
		length, original := binary.NativeEndian.Uint32(head[8:]), binary.NativeEndian.Uint32(head[12:])
		if err == nil && (length != original || length > pcapFrame) {
			return nil, fmt.Errorf("capture %s: %d of %d bytes of a frame", file, length, original)
		}
		frame := make([]byte, length)
		if err == nil {
			_, err = io.ReadFull(r, frame)
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return frames, nil
		}
		if err != nil {
			return nil, fmt.Errorf("capture %s: %w", file, err)
		}
		if isRoCE(frame) && bytes.Equal(frame[6:12], from[:]) {
			frames = append(frames, frame)
		}
	}
}

// isRoCE knows what the guests send: no tags, no IP options, no fragments.
func isRoCE(b []byte) bool {
	const least = overlay.EthernetLen + overlay.IPv4Len + overlay.UDPLen
	if len(b) < least || overlay.Ethernet(b).EtherType() != overlay.EtherTypeIPv4 {
		return false
	}
	return overlay.IPv4(b[overlay.EthernetLen:]).Proto() == overlay.ProtoUDP &&
		overlay.UDP(b[overlay.EthernetLen+overlay.IPv4Len:]).DstPort() == rocePort
}

// Altered counts the frames that arrived and that nobody sent as they are: each
// frame sent may arrive once.
func Altered(sent, arrived [][]byte) (altered int) {
	left := make(map[string]int, len(sent))
	for _, f := range sent {
		left[string(f)]++
	}
	for _, f := range arrived {
		if left[string(f)] == 0 {
			altered++
			continue
		}
		left[string(f)]--
	}
	return altered
}
