package leaf

import (
	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// Deadline returns when Tick is to be called next. Whatever is called before may
// change it.
func (l *Leaf[T]) Deadline() mono.Time {
	t := min(l.gate.deadline(), l.traffic.Deadline())
	if l.cfg.Worker == 0 {
		t = min(t, l.hello.at, l.hello.look)
	}
	for _, rx := range l.active {
		if rx.holds.Total() > 0 {
			t = min(t, rx.r.Deadline())
		}
	}
	if l.timed {
		for _, c := range l.classes {
			if c.timed != nil {
				t = min(t, c.timed.Deadline())
			}
			if c.Switch != nil {
				t = min(t, c.Switch.Deadline())
			}
		}
	}
	return t
}

// Tick does what is due. behind says that the driver has packets which it has not
// read. Time in which it was not scheduled is not the network's: what waits in its
// rings counts first, for a while only, as under load there always is some.
func (l *Leaf[T]) Tick(now mono.Time, behind bool) *Output[T] {
	o := l.reset()
	for _, rx := range l.active {
		if rx.holds.Total() == 0 || behind && now-rx.r.Grace() < rx.r.Deadline() {
			continue
		}
		l.expire(now, rx)
	}
	l.gate.due(now, o)
	l.traffic.Share(now, len(l.paths))
	if l.timed {
		l.tickPolicies(now)
	}
	if l.cfg.Worker == 0 {
		l.tickHellos(now, behind)
	}
	return o
}

// tickHellos says what is due of HELLOs, and finds out whose are missing.
func (l *Leaf[T]) tickHellos(now mono.Time, behind bool) {
	switch {
	case now < l.hello.at:
	case l.hello.left > 0:
		l.sendFarewells(now)
	default:
		l.sendHellos(now)
	}
	if now >= l.hello.look {
		l.lookAround(now, behind)
	}
}

func (l *Leaf[T]) tickPolicies(now mono.Time) {
	for _, c := range l.classes {
		if c.Switch != nil && now >= c.Switch.Deadline() {
			l.tickSwitch(now, c)
		}
		if c.timed == nil || now < c.timed.Deadline() {
			continue
		}
		l.said = c.timed.Tick(now, &l.view, l.said[:0])
		for _, m := range l.said {
			m.Cause = overlay.NoCause
			m.Fabric.Scheme = c.Scheme.Wire
			var none T
			l.say(now, m, none, m.Fabric.Path.Uplink())
		}
	}
}

// RoundTrips adds to h all round trips that this worker has measured so far.
func (l *Leaf[T]) RoundTrips(h *reorder.Histogram) {
	h.Merge(&l.stats.RoundTrip)
	h.Merge(&l.trips)
	for _, c := range l.classes {
		if t, ok := c.Policy.(balance.RoundTripper); ok {
			t.RoundTrips(h)
		}
	}
}
