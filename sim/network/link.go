package network

import "github.com/loomfabric/loom/sim/engine"

// SetUp takes a port's link down or brings it back, both directions of it. What
// waits at its ends and what is on it is dropped, as [LinkDown] and [LinkCut],
// and so is what is sent on it while it is down; hosts' sources wait. Nodes
// that are [LinkWatcher]s are called at both ends.
func (p *Port) SetUp(now engine.Time, up bool) {
	if p.down == !up {
		return
	}
	ends := [2]*Port{p, p.Peer}
	for _, e := range ends {
		e.down = !up
		e.epoch++ // what was scheduled for the link happens no more
		e.wake = engine.Never
		e.free = now
		e.Hold(now, now)
		e.pause(now, false)
	}
	for _, e := range ends {
		if up {
			if e.account.off {
				e.signal(now, eventPause) // the peer has forgotten
			}
		} else {
			e.clear(now)
		}
	}
	for _, e := range ends {
		if w, ok := e.Node.(LinkWatcher); ok {
			w.LinkChanged(now, e, up)
		}
	}
	for _, e := range ends {
		e.Kick(now)
	}
}

// clear drops all that a port has.
func (p *Port) clear(now engine.Time) {
	for c := range p.queues {
		for k := p.queues[c].pop(); k != nil; k = p.queues[c].pop() {
			if k.charge != nil {
				p.Buffer.release(now, k)
			}
			p.drop(k, LinkDown)
		}
	}
	p.waits = 0
	if p.watch != nil {
		p.watch.change(now, 0)
	}
	for k := p.Peer.land(); k != nil; k = p.Peer.land() {
		p.drop(k, LinkCut)
	}
	for side := range p.boxes {
		for _, c := range p.boxes[side] {
			if c.k != nil {
				p.drop(c.k, LinkCut)
			}
		}
		p.boxes[side] = p.boxes[side][:0]
	}
}
