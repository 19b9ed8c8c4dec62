package dataplane

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// promiscuous asks the kernel for frames to all addresses on an interface: an access
// port carries frames to hosts elsewhere, which the MAC filter of a network card would
// keep. The kernel counts those who ask (packet(7), PACKET_MR_PROMISC), and the wish
// ends with the descriptor, so a killed process leaves nothing behind. The caller
// closes the descriptor. No frame is received by it.
func promiscuous(ifindex int) (fd int, err error) {
	fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open packet socket to receive frames to all addresses: %w (needs CAP_NET_RAW; under systemd AF_PACKET in RestrictAddressFamilies)", err)
	}
	m := unix.PacketMreq{Ifindex: int32(ifindex), Type: unix.PACKET_MR_PROMISC}
	if err := unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &m); err != nil {
		unix.Close(fd)
		return 0, fmt.Errorf("receive frames to all addresses: %w", err)
	}
	return fd, nil
}
