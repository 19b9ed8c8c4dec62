package leaf

import (
	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// hello is when a leaf sends its peers a HELLO, so that those that know the fabric's
// fields learn that it does. The first worker does it for all.
type hello struct {
	at     mono.Time // when the next round is due
	next   int       // peer to go on with
	rounds int
}

// SetHello has the next round of HELLOs begin at a time; reorder.Never: none will.
func (l *Leaf[T]) SetHello(at mono.Time) { l.hello.at = at }

// Deadline returns when Tick is to be called next. Whatever is called before may
// change it.
func (l *Leaf[T]) Deadline() mono.Time {
	t := l.gate.deadline()
	if l.cfg.Worker == 0 {
		t = min(t, l.hello.at)
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
	if l.timed {
		l.tickPolicies(now)
	}
	if l.cfg.Worker == 0 && now >= l.hello.at {
		l.sendHellos(now)
	}
	return o
}

func (l *Leaf[T]) tickPolicies(now mono.Time) {
	for _, c := range l.classes {
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

// sendHellos says HELLO to some of the peers, capable or not: a burst a tick, as the
// control queue of an uplink, on which all of them may leave, does not hold one for
// each peer of a large fabric. A HELLO has the time of its departure, which comes back
// with the peer's next one as the Arg of a HELLO with Tail, with the time added for
// which it stayed there: so leaves measure the round trip between them, over one
// path there and any path back.
func (l *Leaf[T]) sendHellos(now mono.Time) {
	h := &l.hello
	if h.next == 0 {
		h.rounds++
	}
	first, end := h.next, min(h.next+Burst, len(l.view.Paths))
	h.next = end
	if end == len(l.view.Paths) {
		h.next, h.at = 0, now+mono.Time(overlay.HelloInterval)
	}
	for peer := first; peer < end; peer++ {
		paths := &l.view.Paths[peer]
		if paths.N == 0 {
			continue
		}
		path := h.rounds % int(paths.N) // a path that loses frames must not silence a leaf
		uplink := paths.Uplink[path]
		f := overlay.Fabric{
			Capable: true, Opcode: overlay.OpHello, LBTag: uplink, Path: overlay.MakePathID(uplink, uint8(h.rounds)),
			Shim: true, TxTstamp: overlay.TstampOf(now),
		}
		f.Arg, f.Tail = l.shared.echo(uint16(peer), now)
		l.out.Messages = append(l.out.Messages, Outgoing[T]{
			Message: overlay.Message{Leaf: uint16(peer), Link: overlay.AnyLink, Cause: overlay.NoCause, Hash: uint32(h.rounds), Fabric: f},
			Path:    path,
		})
	}
}

// acceptHello keeps what a peer's HELLO is to get back, and takes note of how long
// one of this leaf's took.
func (l *Leaf[T]) acceptHello(now mono.Time, peer uint16, f *overlay.Fabric) {
	if !f.Shim {
		return
	}
	l.shared.noteHello(peer, f.TxTstamp, now)
	if f.Tail {
		if d := overlay.TstampOf(now).Sub(f.Arg); d >= 0 {
			l.stats.RoundTrip.Add(d)
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
