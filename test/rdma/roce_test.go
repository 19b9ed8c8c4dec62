package rdma

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/gopacket/gopacket/pcapgo"

	"github.com/loomfabric/loom/overlay"
)

// rocePort is RoCEv2's UDP port.
const rocePort = 4791

// RoCE reads the RoCEv2 frames over IPv4 that a station sent, from a capture, in
// order. It leaves out a last frame that was not written to its end.
func RoCE(file string, from overlay.MAC) (frames [][]byte, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, err := pcapgo.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("%s is not a capture: %w", file, err)
	}
	for {
		frame, info, err := r.ReadPacketData()
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			return frames, nil
		case err != nil:
			return nil, fmt.Errorf("capture %s: %w", file, err)
		case info.CaptureLength != info.Length:
			return nil, fmt.Errorf("capture %s: %d of %d bytes of a frame", file, info.CaptureLength, info.Length)
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
