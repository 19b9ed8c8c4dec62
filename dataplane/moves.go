package dataplane

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/loomfabric/loom/overlay"
)

// movesEvery bounds what the log says of addresses that move too often: each time, a
// worker names those that its FDB remembers.
const movesEvery = 5 * time.Second

// watchMoves logs which addresses are held where they are, until ctx ends.
func (n *Node) watchMoves(ctx context.Context) {
	if n.cfg.Role != Leaf {
		return
	}
	tick := time.NewTicker(movesEvery)
	defer tick.Stop()
	seen := make([]uint64, len(n.workers))
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			n.reportMoves(seen)
		}
	}
}

// reportMoves logs the addresses that began to be held since the last call. seen is how
// many were known of then, by worker. A worker that has nothing new sleeps on.
func (n *Node) reportMoves(seen []uint64) {
	for q, w := range n.leaves() {
		if w.held.Load() == seen[q] {
			continue
		}
		var moves []overlay.FDBMove
		var v *view
		before := seen[q]
		w.call(func() {
			moves, v = slices.Collect(w.fdb.HeldSince(before)), w.view
			seen[q] = w.fdb.Held()
		})
		for _, m := range moves {
			at, from := v.fdbEntry(overlay.FDBEntry{VNI: m.VNI, MAC: m.MAC, Dest: m.At}), v.fdbEntry(overlay.FDBEntry{VNI: m.VNI, Dest: m.Seen})
			text := "address moves too often and is held where it is: look for a loop, or for two hosts with one address"
			if m.Loop() {
				text = "a local host's own address comes back from the fabric and is held here: look for a loop, or for two hosts with one address"
			}
			n.log.Warn(text, "vni", at.VNI, "mac", at.MAC, "at", at.place(), "seen", from.place(), "for", overlay.FDBHold)
		}
		if more := seen[q] - before - uint64(len(moves)); more > 0 {
			n.log.Warn("more addresses move too often", "addresses", more)
		}
	}
}

// place names where an address lives.
func (e *FDBEntry) place() string {
	switch {
	case e.VTEP.IsValid():
		return "vtep " + e.VTEP.String()
	case e.VLAN != 0:
		return fmt.Sprintf("port %s, VLAN %d", e.Port, e.VLAN)
	}
	return "port " + e.Port
}
