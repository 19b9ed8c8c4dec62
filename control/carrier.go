package control

import (
	"time"

	"github.com/loomfabric/loom/internal/ethtool"
)

// carrierPoll is how often the ports' carriers are looked at. The kernel tells
// of a lost carrier with up to a second's delay (net/core/link_watch.c bounds
// its events to one a second), and an uplink has 50 ms.
const carrierPoll = 15 * time.Millisecond

// pollCarriers calls changed when the carrier of a port changed, until stop is
// closed.
func pollCarriers(e *ethtool.Socket, ports []string, stop <-chan struct{}, changed func()) {
	tick := time.NewTicker(carrierPoll)
	defer tick.Stop()
	was := make([]bool, len(ports))
	for i, p := range ports {
		was[i] = carrier(e, p)
	}
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		for i, p := range ports {
			if up := carrier(e, p); up != was[i] {
				was[i] = up
				changed()
			}
		}
	}
}

// carrier asks for a port's link. A port that does not exist has none.
func carrier(e *ethtool.Socket, name string) bool {
	up, err := e.Carrier(name)
	return err == nil && up
}
