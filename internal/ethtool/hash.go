package ethtool

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Flow is a kind of packets that a driver spreads over its receive queues.
type Flow uint32

// The kinds that VXLAN comes in (UDP_V4_FLOW, UDP_V6_FLOW).
const (
	UDPv4 Flow = 2
	UDPv6 Flow = 6
)

// String is the name that ethtool -N has for the kind.
func (f Flow) String() string {
	switch f {
	case UDPv4:
		return "udp4"
	case UDPv6:
		return "udp6"
	}
	return fmt.Sprintf("flow %d", uint32(f))
}

// The parts of a packet that a queue can be chosen by (RXH_L4_B_0_1, RXH_L4_B_2_3).
const (
	hashSourcePort = 1 << 6
	hashDestPort   = 1 << 7
)

// rxnfc is struct ethtool_rxnfc, of which only the first three fields count here.
type rxnfc struct {
	cmd, flow uint32
	data      uint64
	_         [176]byte
}

// HashesPorts reports whether the receive queue of a kind of packets follows from their
// UDP ports, too (ETHTOOL_GRXFH). Drivers with one queue do not tell: EOPNOTSUPP.
func (s *Socket) HashesPorts(name string, f Flow) (bool, error) {
	v := rxnfc{cmd: unix.ETHTOOL_GRXFH, flow: uint32(f)}
	if err := call(s, name, &v); err != nil {
		return false, fmt.Errorf("receive hash of %s for %v: %w", name, f, err)
	}
	const ports = hashSourcePort | hashDestPort
	return v.data&ports == ports, nil
}

// Driver returns the name of an interface's driver (ETHTOOL_GDRVINFO).
func (s *Socket) Driver(name string) (string, error) {
	info, err := unix.IoctlGetEthtoolDrvinfo(s.fd, name)
	if err != nil {
		return "", fmt.Errorf("driver of %s: %w", name, err)
	}
	return unix.ByteSliceToString(info.Driver[:]), nil
}
