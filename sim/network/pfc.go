package network

import "github.com/loomfabric/loom/sim/engine"

// signal sends a pause or resume frame to the peer. It goes before everything
// else and takes no time from the link but its own.
func (p *Port) signal(now engine.Time, what uint64) {
	if p.down {
		return
	}
	if what == eventPause {
		p.stats.PausesSent++
	} else {
		p.stats.ResumesSent++
	}
	at := now + TxTime(pauseFrame, p.Rate) + p.Delay
	if p.far {
		p.cross(crossing{at: at, what: what})
	} else {
		p.Peer.schedule(at, what)
	}
}

// pause is what a pause or resume frame does to the port that it reaches.
func (p *Port) pause(now engine.Time, on bool) {
	if p.paused == on {
		return
	}
	p.paused = on
	if on {
		p.stats.Pauses++
		p.pausedAt = now
	} else {
		p.stats.Paused += now - p.pausedAt
	}
	p.stop(now)
}

// Hold has the port send no data before a time. A time that has passed lets it go. It is
// the port's own node that decides so, or that of a host's leaf: there is no PFC in it.
func (p *Port) Hold(now, until engine.Time) {
	if until > now && now >= p.heldTill {
		p.stats.Holds++
	}
	p.heldTill = until
	if until > now {
		p.schedule(until, eventHeld)
	}
	p.stop(now)
}

// stop brings the transmitter in line with who holds data back.
func (p *Port) stop(now engine.Time) {
	was := p.stopped
	p.stopped = p.paused || now < p.heldTill
	if was && !p.stopped {
		p.Kick(now)
	}
}

// Stuck returns the ports that will stay paused for ever: each has packets
// waiting for which a switch has no room before others leave it, and these all
// wait at ports that are stuck as well (a cyclic buffer dependency). nil: there
// are none now. It looks at every packet that waits, and is for when a run does
// not get on.
func (n *Network) Stuck() []*Port {
	stuck := make(map[*Port]bool)
	for _, p := range n.Ports {
		// With the account no longer off, a resume frame is on its way.
		if p.paused && p.Peer.account.off {
			stuck[p] = true
		}
	}
	for again := len(stuck) > 0; again; {
		again = false
		for _, p := range n.Ports {
			if stuck[p] && p.Peer.drains(stuck) {
				delete(stuck, p)
				again = true
			}
		}
	}
	var ports []*Port
	for _, p := range n.Ports {
		if stuck[p] {
			ports = append(ports, p)
		}
	}
	return ports
}

// drains reports whether something of what came in by p is on its way out: a
// packet that waits at a port that is not stuck, or that the node keeps.
func (p *Port) drains(stuck map[*Port]bool) bool {
	blocked := uint64(0)
	for _, out := range p.Buffer.ports {
		for i := range out.queues[DataClass].n {
			k := *out.queues[DataClass].at(i)
			if k.charge != &p.account {
				continue
			}
			if !stuck[out] {
				return true
			}
			blocked += uint64(k.Size)
		}
	}
	return blocked < p.account.bytes+p.account.excess
}
