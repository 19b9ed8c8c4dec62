// Package ethtool reads and sets what netlink has no attribute for, by the ioctl
// that ethtool(8) began with (SIOCETHTOOL, linux/ethtool.h). Small kernels are
// built without ethtool's own netlink family; the ioctl is always there.
//
// github.com/safchain/ethtool v0.7.0 makes the same calls, and works in network
// namespaces, but does not serve here. It hands structs on the stack to the
// kernel by a uintptr that passes through a function, so they may move on the
// way. It prints a warning to standard output for each speed on kernels with
// more than 96 link modes, and does not report a feature that a driver refused.
package ethtool

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Socket makes the calls for the interfaces of one network namespace. Several
// goroutines may use it at once.
type Socket struct{ fd int }

// Open opens a socket in the network namespace of the calling thread. Later any
// thread may use it.
func Open() (*Socket, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open a socket for ethtool: %w", err)
	}
	return &Socket{fd}, nil
}

// Close closes the socket.
func (s *Socket) Close() error { return unix.Close(s.fd) }

// call makes one SIOCETHTOOL: value is a struct of linux/ethtool.h, command
// first.
func call[T any](s *Socket, name string, value *T) error {
	if name == "" || len(name) >= unix.IFNAMSIZ { // cut short, it would be another interface's
		return unix.ENODEV
	}
	ifreq := struct { // struct ifreq with a pointer in its union
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: unsafe.Pointer(value)}
	copy(ifreq.name[:], name)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(s.fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&ifreq)))
	runtime.KeepAlive(value)
	if errno != 0 {
		return errno
	}
	return nil
}

// word makes a call with a struct ethtool_value and returns what came back.
func (s *Socket) word(name string, cmd, data uint32) (uint32, error) {
	v := struct{ cmd, data uint32 }{cmd, data}
	err := call(s, name, &v)
	return v.data, err
}

// Carrier reports whether an interface is up and has a link (ETHTOOL_GLINK).
func (s *Socket) Carrier(name string) (bool, error) {
	v, err := s.word(name, unix.ETHTOOL_GLINK, 0)
	if err != nil {
		return false, fmt.Errorf("carrier of %s: %w", name, err)
	}
	return v != 0, nil
}

// Channels returns how many receive and transmit queues of an interface are in
// use (ETHTOOL_GCHANNELS); a combined one counts as both. Drivers with one
// queue often do not tell: EOPNOTSUPP.
func (s *Socket) Channels(name string) (rx, tx int, err error) {
	var v struct { // struct ethtool_channels
		cmd                                 uint32
		maxRX, maxTX, maxOther, maxCombined uint32
		rx, tx, other, combined             uint32
	}
	v.cmd = unix.ETHTOOL_GCHANNELS
	if err := call(s, name, &v); err != nil {
		return 0, 0, fmt.Errorf("channels of %s: %w", name, err)
	}
	return int(v.rx + v.combined), int(v.tx + v.combined), nil
}

// Queues returns how many receive and transmit queues of an interface are in use. A
// driver that cannot tell uses all that the interface has, which netlink knows and the
// caller gives.
func (s *Socket) Queues(name string, allRX, allTX int) (rx, tx int) {
	if rx, tx, err := s.Channels(name); err == nil && rx > 0 {
		return rx, tx
	}
	return max(allRX, 1), max(allTX, 1)
}

// linkSettings is struct ethtool_link_settings with room for the link modes:
// three bitmaps of at most 127 words each.
type linkSettings struct {
	cmd, speed uint32
	_          [7]uint8 // duplex, port, PHY address, autonegotiation, MDIO, crossover
	words      int8     // of a bitmap
	_          [4]uint8 // transceiver, roles, rate matching
	_          [7]uint32
	_          [3 * 127]uint32
}

// speedUnknown is SPEED_UNKNOWN.
const speedUnknown = 1<<32 - 1

// Speed returns the speed of an interface's link in bits per second
// (ETHTOOL_GLINKSETTINGS); 0 when the driver does not know, as while the link
// is down.
func (s *Socket) Speed(name string) (uint64, error) {
	// The first call only asks how large the bitmaps are; the answer is
	// negative.
	v := linkSettings{cmd: unix.ETHTOOL_GLINKSETTINGS}
	if err := call(s, name, &v); err != nil {
		return 0, fmt.Errorf("speed of %s: %w", name, err)
	}
	if v.words < 0 {
		v = linkSettings{cmd: unix.ETHTOOL_GLINKSETTINGS, words: -v.words}
		if err := call(s, name, &v); err != nil {
			return 0, fmt.Errorf("speed of %s: %w", name, err)
		}
	}
	if v.speed == speedUnknown {
		return 0, nil
	}
	return uint64(v.speed) * 1_000_000, nil
}

// Feature is an offload that can be on or off.
type Feature uint8

// The features, by what ethtool -K calls them.
const (
	TXChecksum Feature = iota // tx: the driver finishes checksums of TCP and UDP
	TSO                       // tso: the driver cuts TCP segments
	GSO                       // gso: the stack cuts them as late as it can
	TXVLAN                    // txvlan: the driver puts VLAN tags into frames
	RXVLAN                    // rxvlan: the driver takes VLAN tags out of frames
	LRO                       // lro: the driver makes one frame of several segments
	GRO                       // gro: the stack puts segments together that come in
)

// features says how each is read and written: by commands of its own, or as a
// bit of the flags (ETH_FLAG_TXVLAN, ETH_FLAG_RXVLAN, ETH_FLAG_LRO).
var features = [...]struct {
	name     string
	get, set uint32
	flag     uint32
}{
	TXChecksum: {"tx", unix.ETHTOOL_GTXCSUM, unix.ETHTOOL_STXCSUM, 0},
	TSO:        {"tso", unix.ETHTOOL_GTSO, unix.ETHTOOL_STSO, 0},
	GSO:        {"gso", unix.ETHTOOL_GGSO, unix.ETHTOOL_SGSO, 0},
	TXVLAN:     {"txvlan", unix.ETHTOOL_GFLAGS, unix.ETHTOOL_SFLAGS, 1 << 7},
	RXVLAN:     {"rxvlan", unix.ETHTOOL_GFLAGS, unix.ETHTOOL_SFLAGS, 1 << 8},
	LRO:        {"lro", unix.ETHTOOL_GFLAGS, unix.ETHTOOL_SFLAGS, 1 << 15},
	GRO:        {"gro", unix.ETHTOOL_GGRO, unix.ETHTOOL_SGRO, 0},
}

// String is the name that ethtool -K has for the feature.
func (f Feature) String() string { return features[f].name }

// Get reports whether a feature of an interface is on.
func (s *Socket) Get(name string, f Feature) (bool, error) {
	x := &features[f]
	v, err := s.word(name, x.get, 0)
	if err != nil {
		return false, fmt.Errorf("%v of %s: %w", f, name, err)
	}
	if x.flag != 0 {
		v &= x.flag
	}
	return v != 0, nil
}

// Set turns a feature of an interface on or off, as ethtool -K does. It needs
// CAP_NET_ADMIN. A flag that is already as wanted is not written: drivers
// refuse flags that they do not have.
func (s *Socket) Set(name string, f Feature, on bool) error {
	x := &features[f]
	var want uint32
	if on {
		want = max(x.flag, 1)
	}
	if x.flag != 0 {
		flags, err := s.word(name, x.get, 0)
		if err != nil {
			return fmt.Errorf("%v of %s: %w", f, name, err)
		}
		if flags&x.flag == want {
			return nil
		}
		want |= flags &^ x.flag
	}
	if _, err := s.word(name, x.set, want); err != nil {
		state := "off"
		if on {
			state = "on"
		}
		return fmt.Errorf("turn %v of %s %s (ethtool -K %s %v %s): %w", f, name, state, name, f, state, err)
	}
	return nil
}
