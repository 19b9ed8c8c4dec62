package reorder

import (
	"time"

	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
)

// delays are what the delays of a leaf's packets were of late: least and most, against
// some origin, since the two leaves' clocks have nothing in common.
type delays struct {
	known       bool
	since       mono.Time // begin of the present window
	origin      overlay.Tstamp
	least, most [2]int16 // µs beyond origin, of the present window and of the one before
}

// delayWindow is how long a delay counts at least.
const delayWindow = 25 * time.Millisecond

// note takes one packet's delay.
func (d *delays) note(now mono.Time, sent overlay.Tstamp) {
	took := overlay.TstampOf(now) - sent
	if !d.known || now.Apart(d.since, mono.Time(2*delayWindow)) {
		*d = delays{known: true, since: now, origin: took}
	} else if now.Apart(d.since, mono.Time(delayWindow)) {
		d.since = now
		d.least[1], d.most[1] = d.least[0], d.most[0]
		x := int16(took - d.origin)
		d.least[0], d.most[0] = x, x
	}
	x := int16(took - d.origin)
	d.least[0], d.most[0] = min(d.least[0], x), max(d.most[0], x)
}

// spread returns by how much delays differ.
func (d *delays) spread() time.Duration {
	return time.Duration(int(max(d.most[0], d.most[1]))-int(min(d.least[0], d.least[1]))) * time.Microsecond
}

// pass notes that a path has delivered a packet, and whether that may end a wait.
func (r *Resequencer) pass(now mono.Time, p *Arrival) {
	s, f := &r.from[p.Leaf], &p.Fabric
	if p.Express {
		return
	}
	s.delays.note(now, f.TxTstamp)
	x := &s.paths[int(f.Path.Uplink())*r.params.Selectors+int(f.Path.Selector())%r.params.Selectors]
	if x.came != 0 && !now.Apart(x.came, freshFor) {
		if back := x.sent.Sub(f.TxTstamp); back > 0 {
			// The path does not keep the order of all that takes it: it may be served by
			// several cores. Twice what was seen is allowed for.
			if 2*back > s.guard {
				s.guard = min(2*back, r.params.MaxHold)
			}
			x.came = now
			return
		}
	}
	x.came, x.sent = now, f.TxTstamp
	if s.held.oldest != noSpot && !s.isReady && r.settled(now, p.Leaf, &r.spots[s.held.oldest]) {
		s.isReady = true
		r.ready = append(r.ready, p.Leaf)
	}
}

// maxUplinks is the number of uplinks that a PathID can name.
const maxUplinks = 16

// settled reports whether all that left its leaf before a packet that waits has come or is
// lost: each path has delivered something that left later.
func (r *Resequencer) settled(now mono.Time, leaf uint16, waits *spot) bool {
	present := r.peers.Present(leaf)
	if present == 0 || now.Apart(waits.came, freshFor) {
		return false
	}
	s := &r.from[leaf]
	for u := range maxUplinks {
		if present>>u&1 == 0 {
			continue
		}
		for i := range r.params.Selectors {
			x := &s.paths[u*r.params.Selectors+i]
			if x.came == 0 || now.Apart(x.came, freshFor) || x.sent.Sub(waits.sent) <= s.guard {
				return false
			}
		}
	}
	return true
}

// limit returns how long packets of a leaf wait at most.
func (r *Resequencer) limit(d *delays) time.Duration {
	return min(max(2*d.spread(), r.params.Hold), r.params.MaxHold)
}

// Expire returns a queue whose packet has waited for long enough, or which what is missing
// before it will not come any more.
func (r *Resequencer) Expire(now mono.Time) (queue int, ok bool) {
	for len(r.pending) == 0 && len(r.ready) > 0 {
		leaf := r.ready[len(r.ready)-1]
		s := &r.from[leaf]
		oldest := s.held.oldest
		if oldest == noSpot || !r.settled(now, leaf, &r.spots[oldest]) {
			s.isReady = false
			r.ready = r.ready[:len(r.ready)-1]
			continue
		}
		r.stats.Settled++
		r.release(oldest)
	}
	if len(r.pending) == 0 && r.all.oldest != noSpot {
		s := &r.spots[r.all.oldest]
		if waited := now.Sub(s.came); waited >= r.limit(&r.from[s.leaf].delays) || waited < 0 {
			r.stats.Expired++
			r.release(r.all.oldest)
		}
	}
	return r.next()
}

// release gives up what is missing before a packet that waits.
func (r *Resequencer) release(i int32) {
	r.drained = r.drained[:0]
	s := &r.spots[i]
	r.giveUp(r.flows.At(s.flow), s.number)
	r.pending = append(r.pending, r.drained...)
}

// next returns the next queue that is pending.
func (r *Resequencer) next() (queue int, ok bool) {
	if len(r.pending) == 0 {
		return 0, false
	}
	q := r.pending[0]
	if r.pending = r.pending[1:]; len(r.pending) == 0 {
		r.pending = r.returns
	}
	return int(q), true
}

// Flush is Expire for any queue, whatever its time.
func (r *Resequencer) Flush(mono.Time) (queue int, ok bool) {
	if len(r.pending) == 0 && r.all.oldest != noSpot {
		r.release(r.all.oldest)
	}
	return r.next()
}

// Deadline returns when Expire is to be called next.
func (r *Resequencer) Deadline() mono.Time {
	switch {
	case r.all.oldest == noSpot && len(r.pending) == 0:
		return Never
	case len(r.ready) > 0 || len(r.pending) > 0:
		return 0
	}
	s := &r.spots[r.all.oldest]
	return s.came.Add(r.limit(&r.from[s.leaf].delays))
}

// Grace returns how long after Deadline a driver that may have packets unread reads them
// first: what it has not read yet may be what is missing.
func (r *Resequencer) Grace() mono.Time { return mono.Time(r.params.Hold) }
