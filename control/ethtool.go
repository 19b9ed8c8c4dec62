package control

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ethtool makes one SIOCETHTOOL call: value is a struct of linux/ethtool.h,
// command first, and fd any socket of the interface's network namespace.
func ethtool[T any](fd int, name string, value *T) error {
	ifreq := struct { // struct ifreq with a pointer in its union
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: unsafe.Pointer(value)}
	copy(ifreq.name[:unix.IFNAMSIZ-1], name)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&ifreq)))
	runtime.KeepAlive(value)
	if errno != 0 {
		return errno
	}
	return nil
}

// ethtoolValue is struct ethtool_value.
type ethtoolValue struct{ cmd, data uint32 }

// ethFlagRXVLAN is ETH_FLAG_RXVLAN.
const ethFlagRXVLAN = 1 << 8

// stripsVLAN reports whether the interface takes VLAN tags off frames before
// XDP sees them. A driver that does not tell, does not.
func stripsVLAN(fd int, name string) bool {
	v := ethtoolValue{cmd: unix.ETHTOOL_GFLAGS}
	return ethtool(fd, name, &v) == nil && v.data&ethFlagRXVLAN != 0
}
