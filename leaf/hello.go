package leaf

import (
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/liveness"
	"github.com/loomfabric/loom/overlay"
)

// helloPeers is how many peers get their HELLOs in one tick: the control queue of an
// uplink holds so many padded ones.
const helloPeers = 8

// hello is when a leaf sends its peers HELLOs. The first worker does it for all.
type hello struct {
	at    mono.Time // when the next tick is due
	began mono.Time // the present round
	every time.Duration
	next  int // peer to go on with; 0: with a new round
	round uint32
	look  mono.Time // when peers are looked at next, whether they have fallen silent
	left  int       // rounds of farewells that there are yet to be
}

// SetHello has the next round of HELLOs begin at a time; reorder.Never: none will.
func (l *Leaf[T]) SetHello(at mono.Time) {
	l.hello.at, l.hello.next, l.hello.look = at, 0, at
}

// lookAround takes peers for plain ones that have fallen silent. behind is as in Tick:
// what they have said may be among what the driver has not read.
func (l *Leaf[T]) lookAround(now mono.Time, behind bool) {
	l.hello.look = now.Add(liveness.LookEvery)
	if behind {
		return
	}
	for peer := range l.paths {
		if l.watch.Look(uint16(peer)) && l.shared.Capable.Revoke(uint16(peer), overlay.Silent) {
			l.stats.Silent++
		}
	}
}

// sendHellos judges some of the peers' paths, and says HELLO to them, by all paths at
// once, capable or not. The peers of a round are spread over the interval.
func (l *Leaf[T]) sendHellos(now mono.Time) {
	h := &l.hello
	if h.next == 0 {
		n := 0
		for i := range l.paths {
			n += int(min(l.paths[i].N, 1))
		}
		h.round, h.began, h.every = l.judge.Begin(), now, liveness.Interval(n)
	}
	first, end := h.next, min(h.next+helloPeers, len(l.paths))
	h.next, h.at = end, h.began.Add(h.every)
	if end < len(l.paths) {
		h.at = h.began.Add(h.every * time.Duration(end) / time.Duration(len(l.paths)))
	} else {
		h.next = 0
	}
	for peer := first; peer < end; peer++ {
		l.sayHello(now, uint16(peer), &l.paths[peer], false)
	}
}

// sayHello says HELLO to one peer, by all of its paths, those included that traffic keeps
// off: how else could they prove themselves? A HELLO has the time of its departure, which
// comes back with one of the peer's next ones as the Arg of a HELLO with Tail, with the
// time added for which it stayed there: so leaves measure the round trip between them,
// over one path there and any path back. With leaving it is the leaf's last word.
func (l *Leaf[T]) sayHello(now mono.Time, peer uint16, paths *balance.Paths, leaving bool) {
	round, t := l.hello.round, l.shared.Paths
	report := l.judge.From(peer)
	used := uint16(0)
	for _, u := range paths.Uplink[:paths.N] {
		used |= 1 << u
	}
	l.judge.To(peer, used, now)
	dead := t.Dead(peer)
	h := overlay.Hello{
		Boot: l.shared.boot, Round: round, Present: used,
		Silent: report.Silent, Lossy: report.Lossy, Narrow: report.Narrow,
		Nonce: l.shared.nonce(peer, round), Echo: t.Nonce(peer),
		Leaving: leaving, Every: uint8(l.hello.every / time.Millisecond),
	}
	// Padded ones are in another round for each peer, so that they do not come together.
	if back := (round + uint32(peer)) % liveness.LargeEvery; back < round {
		h.LargeRound = round - back
	}
	for path := range int(paths.N) {
		uplink := paths.Uplink[path]
		h.Sent = l.traffic.Sent(peer, uplink)
		h.EchoTag = t.EchoTag(peer, int(round)+path)
		h.Loss = l.judge.Loss(peer, h.EchoTag)
		// A path that has to prove itself carries long frames as well.
		h.Large = !leaving && (round == h.LargeRound || dead>>uplink&1 != 0 && round%2 == 0)
		f := overlay.Fabric{
			Capable: true, Opcode: overlay.OpHello, LBTag: uplink, Path: overlay.MakePathID(uplink, uint8(round)),
			Shim: true, TxTstamp: overlay.TstampOf(now),
		}
		f.Arg, f.Tail = t.Echo(peer, h.EchoTag, now)
		l.out.Messages = append(l.out.Messages, Outgoing[T]{
			Message: overlay.Message{Leaf: peer, Link: overlay.AnyLink, Cause: overlay.NoCause, Hash: round + uint32(l.hello.left), Fabric: f},
			Path:    path, Hello: h,
		})
	}
}

// Hello takes a peer's HELLO: f is its header, h its body. Only one that echoes a nonce
// of this leaf's proves that the peer reads the fabric's fields, and only such a one is
// believed what it says of paths, or that the peer leaves: others can be anybody's.
// Behind a farewell nothing counts that the same process has said.
func (l *Leaf[T]) Hello(now mono.Time, peer uint16, f *overlay.Fabric, h *overlay.Hello) {
	if !f.Shim {
		return
	}
	t := l.shared.Paths
	if h.Echo == 0 || !l.shared.proves(peer, h.Echo) {
		if t.Nonce(peer) == 0 || !l.shared.Capable.Capable(peer, now) {
			t.Greet(peer, h.Nonce)
		}
		l.stats.Unproved++
		return
	}
	switch {
	case h.Leaving:
		if t.Depart(peer, h.Boot) && l.shared.Capable.Revoke(peer, overlay.Left) {
			l.stats.Farewells++
		}
		return
	case t.Departed(peer, h.Boot):
		l.stats.Stale++
		return
	}
	l.shared.Capable.Confirm(peer, now)
	t.Hear(peer, f.LBTag, h, f.TxTstamp, l.traffic.Came(peer, f.LBTag), now)
	if f.Tail {
		if d := overlay.TstampOf(now).Sub(f.Arg); d >= 0 {
			l.stats.RoundTrip.Add(d)
			t.RoundTrip(peer, h.EchoTag, d)
		}
	}
}
