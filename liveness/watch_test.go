package liveness

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
)

// watching is a peer as a watch sees it: HELLOs by two paths, and tenants' packets.
type watching struct {
	*Watch
	table   *Table
	traffic *Traffic
	now     mono.Time
	boot    uint32
	round   uint32
	every   time.Duration
}

func newWatching(every time.Duration) *watching {
	table := NewTable(3, 1)
	traffic := NewTraffic(table, 0)
	return &watching{Watch: NewWatch(table, traffic), table: table, traffic: traffic, boot: 7, every: every}
}

func (w *watching) hello(tags ...uint8) {
	w.round++
	for _, tag := range tags {
		h := overlay.Hello{Boot: w.boot, Round: w.round, Present: 3, Nonce: 5, Every: uint8(w.every / time.Millisecond)}
		w.table.Hear(1, tag, &h, 0, 0, w.now)
	}
}

// run looks at the peer for a time; each is called before a look. It returns after how
// long the peer was silent; 0: it was not.
func (w *watching) run(d time.Duration, each func(since time.Duration)) (silent time.Duration) {
	for since := time.Duration(0); since < d; since += LookEvery {
		if each != nil {
			each(since)
		}
		w.now = w.now.Add(LookEvery)
		if w.Look(1) && silent == 0 {
			silent = since + LookEvery
		}
	}
	return silent
}

// A peer is silent when two of its rounds are missing, and half of the next one: of its own
// rounds, which are longer where it has many peers.
func TestSilentPeers(t *testing.T) {
	for _, tt := range []struct{ every, least, most time.Duration }{
		{100 * time.Millisecond, 200, 300},
		{125 * time.Millisecond, 250, 375},
		{250 * time.Millisecond, 500, 675},
		{0, 500, 675}, // of a peer that does not say: as of the longest
	} {
		for jitter := range 4 { // where in a round the peer ends
			w := newWatching(tt.every)
			each := max(tt.every, 100*time.Millisecond)
			if d := w.run(5*time.Second, func(since time.Duration) {
				if since%each == time.Duration(jitter)*LookEvery {
					w.hello(uint8(since / each % 2)) // one path brings enough
				}
			}); d != 0 {
				t.Errorf("every %v: silent after %v although HELLOs come", tt.every, d)
			}
			w.hello(0)
			w.Look(1)
			if d := w.run(5*time.Second, nil); d < tt.least*time.Millisecond || d > tt.most*time.Millisecond {
				t.Errorf("every %v: silent %v after its last HELLO, want %d to %d ms", tt.every, d, tt.least, tt.most)
			}
			if d := w.run(time.Second, nil); d != 0 {
				t.Errorf("every %v: silent twice", tt.every)
			}
			w.hello(1)
			if d := w.run(2*time.Second, nil); d == 0 {
				t.Errorf("every %v: it came back, and could not be silent again", tt.every)
			}
		}
	}
}

// A peer that restarts and is killed again in the round in which it was killed before is
// silent each time.
func TestSilentInTheSameRound(t *testing.T) {
	w := newWatching(100 * time.Millisecond)
	for range 3 {
		w.boot, w.round = w.boot+1, 0
		w.hello(0, 1)
		if d := w.run(time.Second, nil); d == 0 {
			t.Errorf("boot %d: it is not silent", w.boot)
		}
	}
}

// Who has proved nothing, or has said goodbye, is not watched; HELLOs of before the goodbye
// are known, and a goodbye of another process is not its own.
func TestDepart(t *testing.T) {
	w := newWatching(100 * time.Millisecond)
	if d := w.run(2*time.Second, nil); d != 0 {
		t.Errorf("a peer that nothing is known of is silent after %v", d)
	}
	w.hello(0, 1)
	if w.table.Departed(1, 7) || w.table.Depart(1, 8) {
		t.Error("another process's goodbye counts")
	}
	if !w.table.Depart(1, 7) || !w.table.Departed(1, 7) || w.table.Departed(1, 8) || w.table.Departed(1, 0) {
		t.Error("a goodbye does not count")
	}
	if d := w.run(2*time.Second, nil); d != 0 {
		t.Errorf("a peer that has said goodbye is silent after %v", d)
	}
	if w.table.Nonce(1) != 0 || w.table.Present(1) != 0 {
		t.Error("what it said before counts")
	}
	if w.table.Forget(1); w.table.Departed(1, 7) {
		t.Error("the goodbye counts for the next peer in its place")
	}
}

// Tenants' packets hold off silence while they come, and no longer.
func TestTrafficIsLife(t *testing.T) {
	w := newWatching(100 * time.Millisecond)
	w.hello(0, 1)
	w.run(LookEvery, nil)
	if d := w.run(5*time.Second, func(since time.Duration) {
		if since%(100*time.Millisecond) == 0 {
			w.traffic.Arrive(1, 1)
		}
	}); d != 0 {
		t.Errorf("silent after %v although packets come", d)
	}
	if d := w.run(5*time.Second, nil); d == 0 || d > 300*time.Millisecond {
		t.Errorf("silent %v after the last packet", d)
	}
}

// Half of all HELLOs are lost, on each of two paths, while packets come; or one in ten, and
// none come. No peer is silent for more rounds than two that were lost in a row explain.
func TestLossIsNotSilence(t *testing.T) {
	for _, tt := range []struct {
		name    string
		lose    float64
		packets bool
		most    int // in 10,000 rounds
	}{
		{"half of them, and packets come", 0.5, true, 0},
		{"one in ten, nothing else comes", 0.1, false, 4}, // (0.1²)² = 1 of 10,000
	} {
		rng := rand.New(rand.NewPCG(1, 2))
		w, silent := newWatching(100*time.Millisecond), 0
		for range 10000 {
			w.round++
			for tag := range uint8(2) {
				if rng.Float64() >= tt.lose {
					w.round--
					w.hello(tag)
				}
			}
			if w.run(100*time.Millisecond, func(since time.Duration) {
				if tt.packets && since == 50*time.Millisecond {
					w.traffic.Arrive(1, 0)
				}
			}) != 0 {
				silent++
			}
		}
		t.Logf("%s: silent %d times in 10,000 rounds", tt.name, silent)
		if silent > tt.most {
			t.Errorf("%s: silent %d times, want at most %d", tt.name, silent, tt.most)
		}
	}
}

// A look costs no memory.
func TestLookDoesNotAllocate(t *testing.T) {
	w := newWatching(100 * time.Millisecond)
	w.hello(0, 1)
	if n := testing.AllocsPerRun(100, func() { w.Look(1) }); n != 0 {
		t.Errorf("%v allocations a look", n)
	}
}
