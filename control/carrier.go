package control

import (
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// carrierPoll is how often the ports' carriers are looked at. The kernel tells
// of a lost carrier with up to a second's delay (net/core/link_watch.c bounds
// its events to one a second), and an uplink has 50 ms.
const carrierPoll = 15 * time.Millisecond

// pollCarriers calls changed when the carrier of a port changed, until stop is
// closed. fd is any socket of the ports' network namespace.
func pollCarriers(fd int, ports []string, stop <-chan struct{}, changed func()) {
	tick := time.NewTicker(carrierPoll)
	defer tick.Stop()
	was := make([]bool, len(ports))
	for i, p := range ports {
		was[i] = carrier(fd, p)
	}
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		for i, p := range ports {
			if up := carrier(fd, p); up != was[i] {
				was[i] = up
				changed()
			}
		}
	}
}

// carrier asks for a port's link (ETHTOOL_GLINK). A port that does not exist
// has none.
func carrier(fd int, name string) bool {
	value := struct{ cmd, data uint32 }{cmd: unix.ETHTOOL_GLINK}
	ifreq := struct { // struct ifreq with a pointer in its union
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: unsafe.Pointer(&value)}
	copy(ifreq.name[:unix.IFNAMSIZ-1], name)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&ifreq)))
	runtime.KeepAlive(&value)
	return errno == 0 && value.data != 0
}
