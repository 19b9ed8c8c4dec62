package dataplane

import (
	"time"

	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

const (
	holdFrames  = 1024 // frames that wait for neighbours in all
	holdPerHop  = 32   // and for one of them
	askInterval = mono.Time(100 * time.Millisecond)
	expireEvery = mono.Time(5 * time.Millisecond)
)

// holds keeps frames whose next hop has no MAC yet: complete but for the
// Ethernet addresses. A few a hop, for a short time; owned by one worker.
type holds struct {
	queues  *reorder.Holds[heldFrame]
	timeout mono.Time
	asked   [MaxHops]mono.Time // when the control plane was last asked; 0: never
	active  []HopID            // hops with frames
	check   mono.Time          // next look for frames that have waited too long
}

type heldFrame struct {
	frame
	until mono.Time
}

func newHolds(timeout mono.Time) *holds {
	return &holds{
		queues:  reorder.NewHolds[heldFrame](MaxHops, holdFrames, holdPerHop),
		timeout: timeout,
		active:  make([]HopID, 0, MaxHops),
	}
}

func (h *holds) len() int { return h.queues.Total() }

// hold keeps f until hop is resolved and asks the control plane to see to it, or
// says why f is to be dropped.
func (w *worker) hold(f *frame, hop HopID, now mono.Time) (r drop.Reason) {
	if !w.holds.put(hop, &heldFrame{*f, now + w.holds.timeout}) {
		r = drop.HoldFull
	}
	w.resolve(hop, now)
	return r
}

// put appends f to the frames that wait for a next hop. It reports false if there is no
// room.
func (h *holds) put(hop HopID, f *heldFrame) bool {
	if !h.queues.Push(int(hop), *f) {
		return false
	}
	if h.queues.Len(int(hop)) == 1 {
		h.active = append(h.active, hop)
	}
	return true
}

// resolve asks the control plane to find the MAC address of a next hop.
func (w *worker) resolve(hop HopID, now mono.Time) {
	h := w.holds
	if h.asked[hop] != 0 && now-h.asked[hop] < askInterval {
		return
	}
	select {
	case w.ask <- hop:
		h.asked[hop] = max(now, 1)
	default: // the control plane has enough to do; the next frame asks again
	}
}

// release sends the frames whose next hop has been resolved, and drops those
// whose next hop is gone.
func (h *holds) release(w *worker, now mono.Time) {
	h.visit(w, func(hop HopID, f *heldFrame) (drop.Reason, bool) {
		if int(hop) >= len(w.view.hops) || !w.view.ports[w.view.hops[hop].port].up {
			return drop.HopGone, true
		}
		to := &w.view.hops[hop]
		if !to.resolved {
			return drop.None, false
		}
		b := overlay.Ethernet(w.bytes(&f.frame))
		b.SetDst(to.dst)
		b.SetSrc(to.src)
		w.hopSent[hop].Add(uint32(f.len))
		return w.enqueue(&f.frame, to.port), true
	})
}

// expire drops frames that have waited too long.
func (h *holds) expire(w *worker, now mono.Time) {
	if len(h.active) == 0 || now < h.check {
		return
	}
	h.check = now + expireEvery
	h.visit(w, func(_ HopID, f *heldFrame) (drop.Reason, bool) { return drop.NoNeighbour, now >= f.until })
}

// visit offers the oldest frame of every hop to done until done refuses one. Those
// that it gives a reason for are dropped.
func (h *holds) visit(w *worker, done func(HopID, *heldFrame) (drop.Reason, bool)) {
	kept := h.active[:0]
	for _, hop := range h.active {
		for {
			f, ok := h.queues.Peek(int(hop))
			if !ok {
				break
			}
			r, ok := done(hop, &f)
			if !ok {
				break
			}
			if r != drop.None {
				w.discard(&f.frame, r)
			}
			h.queues.Pop(int(hop))
		}
		if h.queues.Len(int(hop)) > 0 {
			kept = append(kept, hop)
		}
	}
	h.active = kept
}

// deadline returns when expire wants to run, or idle.
func (h *holds) deadline() mono.Time {
	if len(h.active) == 0 {
		return idle
	}
	return h.check
}
