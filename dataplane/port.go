package dataplane

import (
	"time"

	"github.com/loomfabric/loom/dataplane/xsk"
	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
)

// link is a port's way to the wire for one worker: an AF_XDP socket, or plain
// memory in tests and benchmarks. All calls are for bursts.
type link interface {
	Receive([]xsk.Desc) int
	Transmit([]xsk.Desc) int
	TXFree() int
	TXQueued() int
	TXPending() int
	Fill([]uint64) int
	FillFree() int
	Complete([]uint64) int
	Kick() xsk.KickResult
	WakeRX() xsk.KickResult
	FD() int
	Stats() (xsk.Stats, error)
}

// port is a worker's share of a port: one queue. Owned by the worker.
type port struct {
	id       PortID
	name     string // its interface
	kind     PortKind
	uplink   uint8          // of an uplink: its LBTag
	mac      overlay.FDBKey // its address, as a frame's destination is read
	believed overlay.Addr   // of a spine's: the last source that may come by it; zero: none
	owner    xsk.Owner      // its name in the frame pool's ledger
	link     link           // nil while the interface is gone
	egress   egress
	unkicked int       // frames on the TX ring that the kernel has not been asked to send, or did not take
	since    mono.Time // when unkicked stopped being 0
	rest     mono.Time // no kick before, as the interface was down at the last one, or is stuck
	took     mono.Time // when a kick last found that the kernel takes frames
	dirty    bool      // egress may have something to send
	starved  bool      // the pool ran out before the fill ring was full
	stats    PortStats
	past     xsk.Stats // counts of links that were closed
}

// refill gives the kernel frames to receive into.
func (w *worker) refill(p *port) {
	want := p.link.FillFree()
	p.starved = false
	for want > 0 {
		addrs := w.addrs[:min(want, len(w.addrs))]
		n := w.pool.GetFor(p.owner, addrs[:min(len(addrs), max(0, w.pool.Free()-w.spare))])
		p.starved = n < len(addrs)
		if n == 0 {
			return
		}
		took := p.link.Fill(addrs[:n])
		w.pool.PutFrom(p.owner, addrs[took:n])
		if took == 0 {
			return
		}
		want -= took
	}
}

// complete takes back the frames that the kernel has sent.
func (w *worker) complete(p *port) {
	for {
		n := p.link.Complete(w.addrs[:])
		sent := w.addrs[:n]
		if w.long != nil {
			sent = w.long.completed(sent)
		}
		w.pool.PutFrom(p.owner, sent)
		if n < len(w.addrs) {
			return
		}
	}
}

// transmit moves what p's egress admits into its TX ring.
func (w *worker) transmit(p *port, now mono.Time) {
	for {
		room := w.room(p)
		if room == 0 {
			w.complete(p)
			if room = w.room(p); room == 0 {
				p.stats.TXFull++
				p.unkicked = max(p.unkicked, 1)
				return
			}
		}
		n, bytes := p.egress.next(now, w.descs[:min(room, len(w.descs))])
		if n == 0 {
			p.dirty = p.egress.held() > 0
			return
		}
		descs := w.descs[:n]
		if w.taps != nil {
			w.taps.out(w, p, descs, now)
		}
		w.pool.GiveAll(p.owner, descs)
		if w.long != nil {
			descs = w.long.split(descs)
		}
		if took := p.link.Transmit(descs); took != len(descs) {
			panic("dataplane: TX ring took fewer frames than it had room for")
		}
		p.egress.sent(now, bytes)
		p.stats.Sent.Frames += uint64(n)
		p.stats.Sent.Bytes += bytes
		if p.unkicked == 0 {
			p.since = now
		}
		p.unkicked += len(descs)
	}
}

// room returns how many packets p's TX ring and the scratch of a burst have room for.
func (w *worker) room(p *port) int {
	if w.long == nil {
		return p.link.TXFree()
	}
	return min(p.link.TXFree(), len(w.long.parts)) / maxParts
}

// downWait is how long a port that is down is left alone with what is on its TX ring:
// nothing leaves, and asking again and again would keep the worker awake.
const downWait = mono.Time(20 * time.Millisecond)

// A port is stuck when the kernel has taken nothing for stuckAfter: whoever is at the
// other end of a veth pair may keep what comes for as long as it likes. It is asked every
// stuckWait then, since each system call takes time from all other ports.
const (
	stuckAfter = mono.Time(5 * time.Millisecond)
	stuckWait  = mono.Time(time.Millisecond)
)

// kick lets the kernel send. Frames that it does not take now are asked for
// again at the next round, or after a rest if the interface is down or stuck.
func (w *worker) kick(p *port) {
	queued := p.link.TXQueued()
	r := p.link.Kick()
	p.unkicked = p.link.TXQueued()
	switch {
	case r == xsk.KickDown || r == xsk.KickGone:
		p.rest = w.now + downWait
	case r != xsk.KickAgain || p.unkicked < queued || w.now < p.took:
		p.took = w.now
	case w.now-max(p.took, p.since) >= stuckAfter:
		p.rest = w.now + stuckWait
	}
	w.complete(p)
}

// attach makes l the port's link.
func (w *worker) attach(p *port, l link) {
	p.link = l
	w.listOpen()
	w.refill(p)
	p.link.WakeRX()
}

// listOpen finds the ports that have a link.
func (w *worker) listOpen() {
	w.open = w.open[:0]
	for i := range w.ports {
		if w.ports[i].link != nil {
			w.open = append(w.open, &w.ports[i])
		}
	}
}

// detach takes the link away, drops what was queued for it, and returns the
// link for somebody else to close; then reclaim is due.
func (w *worker) detach(p *port) link {
	l := p.link
	if l == nil {
		return nil
	}
	p.stats.TXAbandoned += uint64(l.TXQueued())
	p.past = p.kernelStats()
	p.link, p.unkicked, p.dirty, p.starved = nil, 0, false, false
	w.listOpen()
	p.egress.flush(func(f *frame) { w.discard(f, drop.PortReset) })
	return l
}

// busy reports whether a port with a link has something that it has yet to send.
func (p *port) busy() bool {
	return p.link != nil && (p.egress.held() > 0 || p.unkicked > 0 || p.link.TXPending() > 0)
}

// reclaim takes back every frame that the closed link of p still held.
func (w *worker) reclaim(p *port) { w.pool.Reclaim(p.owner) }

// snapshot copies the port's counters.
func (p *port) snapshot(t mono.Time) PortStats {
	s := p.stats
	e := &p.egress
	s.Marked = e.marked
	s.QueueBytes, s.QueueDepth, s.QueueFrames = e.data.bytes, e.depth, uint64(e.held())
	s.Utilisation, s.Metric, s.CERaised = e.meter.Utilisation(t, e.rate), e.meter.Metric(t, e.rate), e.stamps
	k := p.kernelStats()
	s.RXDropped, s.RXRingFull, s.FillEmpty = k.RXDropped, k.RXRingFull, k.FillEmpty
	s.RXInvalid, s.TXInvalid, s.TXEmpty = k.RXInvalid, k.TXInvalid, k.TXEmpty
	s.Kicks, s.KickAgain, s.KickErrors = k.Kicks, k.KickAgain, k.KickErrors
	return s
}

// kernelStats returns the counts of the link, and of those before it.
func (p *port) kernelStats() xsk.Stats {
	sum := p.past
	if p.link == nil {
		return sum
	}
	k, _ := p.link.Stats() // the interface is gone: so are the kernel's counts since the last look
	sum.RXDropped += k.RXDropped
	sum.RXInvalid += k.RXInvalid
	sum.TXInvalid += k.TXInvalid
	sum.RXRingFull += k.RXRingFull
	sum.FillEmpty += k.FillEmpty
	sum.TXEmpty += k.TXEmpty
	sum.Kicks += k.Kicks
	sum.KickAgain += k.KickAgain
	sum.KickErrors += k.KickErrors
	return sum
}
