package dataplane

import (
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/loomfabric/loom/overlay"
)

// A port whose fill ring ran dry while there were no frames gets some when there
// are, however busy another port is: nothing comes in that would refill it.
func TestStarvedPortIsRefilledWhileOthersAreBusy(t *testing.T) {
	r := newRig(t, leafConfig(), leafTables())
	l := r.links[acc1]
	idle := l.filled // as if they had been received, and all frames were elsewhere
	l.filled = nil
	var taken []uint64
	for a, ok := r.w.pool.Get(); ok; a, ok = r.w.pool.Get() {
		taken = append(taken, a)
	}
	r.w.refill(&r.w.ports[acc1])
	if len(l.filled) != 0 {
		t.Fatal("there are frames left")
	}
	r.w.pool.PutFrom(r.w.ports[acc1].owner, idle)
	for _, a := range taken {
		r.w.pool.Put(a)
	}
	for range 3 {
		r.links[acc0].put(udp4(hostB, hostA, 0, 1, 10))
		if r.w.round(r.now) == 0 {
			t.Fatal("acc0 is not busy")
		}
	}
	if len(l.filled) != l.size {
		t.Errorf("%d frames to receive into, want %d", len(l.filled), l.size)
	}
}

// More peers than a control queue has places: all are greeted.
func TestGreetingsReachAllOfALargeFabric(t *testing.T) {
	tables := leafTables()
	for i := len(tables.Peers); i < MaxPeers; i++ {
		tables.Peers = append(tables.Peers, Peer{VTEP: netip.MustParseAddr(fmt.Sprintf("10.9.%d.%d", i>>8, i&0xff)), Hops: []HopID{0, 1}})
	}
	r := newRig(t, leafConfig(), tables)
	r.w.leaf.brain.SetHello(0)
	greeted := make(map[uint32]int)
	for range MaxPeers {
		r.w.round(r.now)
		if d, _ := r.w.nextDeadline(r.now); d > r.now {
			break
		}
	}
	out := r.settle()
	for _, b := range append(out[up0], out[up1]...) {
		var d overlay.Decapped
		overlay.Decap(b, overlay.DefaultPort, &d)
		greeted[d.Dst]++
	}
	if len(greeted) != MaxPeers {
		t.Errorf("%d peers of %d greeted; drops: %v", len(greeted), MaxPeers, r.drops())
	}
}

func TestOpenRefusesMemoryThatOffsetsCannotReach(t *testing.T) {
	cfg := spineConfig()
	cfg.Workers, cfg.RingSize, cfg.Frames = 1, 512, maxArea/2048+1
	n, err := Open(cfg, slog.New(slog.DiscardHandler))
	if err == nil {
		_ = n.Close()
		t.Fatal("a UMEM of more than 4 GiB was accepted")
	}
	if !strings.Contains(err.Error(), "ring_size") {
		t.Errorf("no remedy in %v", err)
	}
}
