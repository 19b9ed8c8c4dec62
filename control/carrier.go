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
func pollCarriers(e *ethtool.Socket, ports func() []string, stop <-chan struct{}, changed func()) {
	tick := time.NewTicker(carrierPoll)
	defer tick.Stop()
	was := make(map[string]bool)
	for {
		for _, p := range ports() {
			up, _ := e.Carrier(p) // a port that does not exist has none
			if up != was[p] {
				was[p] = up
				changed()
			}
		}
		select {
		case <-stop:
			return
		case <-tick.C:
		}
	}
}
