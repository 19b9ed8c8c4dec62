package dataplane

import (
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/liveness"
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

// More peers than a control queue has places: all are greeted, in the course of a round.
func TestGreetingsReachAllOfALargeFabric(t *testing.T) {
	tables := leafTables()
	for i := len(tables.Peers); i < MaxPeers; i++ {
		tables.Peers = append(tables.Peers, Peer{VTEP: netip.MustParseAddr(fmt.Sprintf("10.9.%d.%d", i>>8, i&0xff)), Hops: []HopID{0, 1}})
	}
	r := newRig(t, leafConfig(), tables)
	r.w.leaf.brain.SetHello(0)
	greeted := make(map[overlay.Addr]int)
	for end := r.now.Add(liveness.Interval(MaxPeers)); r.now < end; r.now = r.w.leaf.brain.Deadline() {
		out := r.settle()
		for _, b := range append(out[up0], out[up1]...) {
			var d overlay.Decapped
			overlay.Decap(b, overlay.DefaultPort, &d)
			greeted[d.Dst]++
		}
	}
	if len(greeted) != MaxPeers || len(r.drops()) != 0 {
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

// TestStuckPortLeavesTheWorkerItsTime: a host that keeps what it is sent costs the other
// ports no system call a round.
func TestStuckPortLeavesTheWorkerItsTime(t *testing.T) {
	r := newRig(t, leafConfig(), leafTables())
	r.send(acc1, udp4(bcast, hostB, 0, 1, 10))
	l := r.links[acc1]
	l.stuck, l.kicks = true, 0
	r.send(acc0, udp4(hostB, hostA, 0, 1, 10))
	rounds := 0
	for end := r.now.Add(time.Second); r.now < end; rounds++ {
		r.now = r.now.Add(10 * time.Microsecond) // others keep the worker busy
		r.w.round(r.now)
	}
	if l.kicks > 2000 || l.kicks < 1200 {
		t.Errorf("%d kicks in a second and %d rounds", l.kicks, rounds)
	}
	l.stuck = false
	r.now = r.now + stuckWait
	if out := r.settle(); len(out[acc1]) != 1 {
		t.Errorf("%d frames left when the port took them again", len(out[acc1]))
	}
}

// TestPortThatIsDownLetsTheWorkerSleep: what stands on the TX ring of a port that is
// down is not asked for again and again, and leaves when the port is up.
func TestPortThatIsDownLetsTheWorkerSleep(t *testing.T) {
	r := newRig(t, leafConfig(), leafTables())
	r.send(acc1, udp4(bcast, hostB, 0, 1, 10))
	l := r.links[acc1]
	l.down, l.kicks = true, 0
	r.send(acc0, udp4(hostB, hostA, 0, 1, 10))
	rounds := 0
	for end := r.now.Add(time.Second); r.now < end; rounds++ {
		deadline, backlog := r.w.sendDeadline(r.now)
		if backlog {
			r.now = r.now.Add(backlogWait)
		} else {
			r.now = max(r.now+1, min(deadline, r.now.Add(maxSleep)))
		}
		r.w.round(r.now)
	}
	if rounds > 100 || l.kicks > 100 || l.kicks < 10 {
		t.Errorf("%d rounds and %d kicks in a second", rounds, l.kicks)
	}
	l.down = false
	r.now = r.now + downWait
	if out := r.settle(); len(out[acc1]) != 1 {
		t.Errorf("%d frames left when the port was up", len(out[acc1]))
	}
}
