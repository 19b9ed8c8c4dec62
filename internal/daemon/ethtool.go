package daemon

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

const ethFlagRXVLAN = 1 << 8 // ETH_FLAG_RXVLAN

// rxVLANOffload reports whether the interface strips VLAN tags.
func rxVLANOffload(name string) (bool, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	value := struct{ cmd, data uint32 }{cmd: unix.ETHTOOL_GFLAGS}
	ifr := struct { // struct ifreq
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: unsafe.Pointer(&value)}
	copy(ifr.name[:unix.IFNAMSIZ-1], name)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&ifr))); errno != 0 {
		return false, errno
	}
	return value.data&ethFlagRXVLAN != 0, nil
}
