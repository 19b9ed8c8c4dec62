package control

import (
	"time"

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
	v := ethtoolValue{cmd: unix.ETHTOOL_GLINK}
	return ethtool(fd, name, &v) == nil && v.data != 0
}
