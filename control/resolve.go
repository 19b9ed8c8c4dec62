package control

import (
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/loomfabric/loom/dataplane"
)

const (
	// The pause between two requests for the same neighbour. The kernel itself
	// sends three ARP requests, a second apart, for one of ours.
	resolveFirst = 250 * time.Millisecond
	resolveLast  = 2 * time.Second
	// resolveUrgent is the pause when frames are waiting.
	resolveUrgent = 100 * time.Millisecond
	// confirm is how often a stale neighbour is confirmed. AF_XDP does not
	// pass through the kernel's neighbour code, which would otherwise take an
	// entry in use for unused and in the end discard it.
	confirm = 5 * time.Second
	// complainAfter is when a neighbour that does not answer is logged: after
	// the kernel's own attempts.
	complainAfter = 4 * time.Second
)

// target is a neighbour that the tables need.
type target struct {
	ifindex int
	addr    netip.Addr
}

// try is the state of a target that is not resolved, or not confirmed.
type try struct {
	stale      bool // resolved, wants confirmation
	next, last time.Time
	pause      time.Duration
	since      time.Time
	complained bool
	seen       bool // in the current update
	waits      bool // until it is known that the kernel may ask
	lost       bool // what was asked went nowhere
}

// wait notes whether the address from which the kernel asks is tentative, or may be.
func (tr *try) wait(perhaps, tentative bool) {
	tr.waits, tr.lost = perhaps || tentative, tr.lost || tentative
	if tr.lost && !tr.waits {
		tr.lost, tr.next, tr.pause = false, time.Time{}, 0
	}
}

// resolver asks the kernel for the MACs of next hops: at once for those that
// the tables newly need, with growing pauses while there is no answer, and now
// and then for those that have gone stale.
//
// The kernel asks an IPv6 neighbour from its link-local address. While it checks that
// address for duplicates, for one or two seconds after a link has come up, a request is
// lost in silence, and the kernel does not ask again for a second. The resolver keeps such
// a request until the address may be used.
type resolver struct {
	kernel     Kernel
	log        *slog.Logger
	tries      map[target]*try
	requests   uint64
	unresolved int
}

// update finds out which next hops need a request. moving says that addresses have changed
// and are not listed yet.
func (r *resolver) update(s *State, t *dataplane.Tables, moving bool) {
	if t == nil {
		return
	}
	neighbours := make(map[target]Neighbour, len(s.Neighbours))
	for _, n := range s.Neighbours {
		neighbours[target{n.Ifindex, n.Addr}] = n
	}
	for _, tr := range r.tries {
		tr.seen = false
	}
	r.unresolved = 0
	for _, h := range t.Hops {
		if !h.Gateway.IsValid() || !t.Ports[h.Port].Up {
			continue
		}
		k := target{t.Ports[h.Port].Ifindex, h.Gateway}
		if !h.Resolved {
			r.unresolved++
		} else if !neighbours[k].Stale {
			continue
		}
		tr := r.tries[k]
		if tr == nil || tr.stale != h.Resolved {
			tr = &try{stale: h.Resolved}
			r.tries[k] = tr
		}
		tr.seen = true
		tr.wait(k.addr.Is6() && moving, k.addr.Is6() && slices.Contains(s.Tentative, k.ifindex))
	}
	for k, tr := range r.tries {
		if !tr.seen {
			if tr.complained && neighbours[k].Usable {
				r.log.Info("next hop answers again", "address", k.addr, "ifindex", k.ifindex)
			}
			delete(r.tries, k)
		}
	}
}

// hurry brings the next request for a hop forward, because frames wait for it.
func (r *resolver) hurry(t *dataplane.Tables, id dataplane.HopID, now time.Time) {
	if t == nil || int(id) >= len(t.Hops) {
		return
	}
	h := t.Hops[id]
	tr := r.tries[target{t.Ports[h.Port].Ifindex, h.Gateway}]
	if tr == nil || tr.stale {
		return
	}
	if soon := tr.last.Add(resolveUrgent); soon.Before(tr.next) {
		tr.next = soon
	}
}

// step makes the requests that are due, and returns when the next one is.
func (r *resolver) step(now time.Time) (next time.Time) {
	next = now.Add(time.Minute)
	for k, tr := range r.tries {
		if tr.waits {
			continue
		}
		if tr.since.IsZero() {
			tr.since = now
		}
		if !tr.next.After(now) {
			r.request(k, tr, now)
		}
		next = earlier(next, tr.next)
	}
	return next
}

func (r *resolver) request(k target, tr *try, now time.Time) {
	r.requests++
	err := r.kernel.Resolve(k.ifindex, k.addr)
	if err != nil {
		// Most likely the interface has just gone; the link's event tells.
		r.log.Debug("cannot ask for a neighbour", "address", k.addr, "err", err)
	}
	tr.last = now
	if tr.stale {
		tr.next = now.Add(confirm)
		return
	}
	tr.pause = min(max(2*tr.pause, resolveFirst), resolveLast)
	tr.next = now.Add(tr.pause)
	if !tr.complained && now.Sub(tr.since) >= complainAfter {
		tr.complained = true
		asks := "ARP"
		if k.addr.Is6() {
			asks = "neighbour solicitations"
		}
		r.log.Warn("next hop does not answer "+asks+"; check cabling and addresses", "address", k.addr, "ifindex", k.ifindex,
			"since", tr.since.Format(time.RFC3339))
	}
}
