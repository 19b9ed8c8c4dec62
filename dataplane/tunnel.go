package dataplane

import (
	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
)

// fabricFrame is a frame that waits for its uplink to be chosen.
type fabricFrame struct {
	frame
	peer PeerID
	vni  VNIIndex
}

// encap asks the scheme of a class for the uplinks of the frames that wait in
// it, and sends them into their tunnels.
func (l *leafWorker) encap(c *class, now mono.Time) {
	n := c.n
	c.n = 0
	if l.taps != nil {
		l.choosing(c, n, now)
	}
	l.brain.Choose(now, c.Class, c.choice[:n], c.exact)
	if l.taps != nil {
		l.chosen(c, n)
	}
	if l.rec != nil {
		l.rec.vector(l, c, n, now)
	}
	paths, waits, copies := l.view.paths, c.Scheme.Waits && !l.hurry, c.Scheme.Copies
	for i := range c.frames[:n] {
		f, p := &c.frames[i], &c.choice[i]
		if paths[f.peer].N == 0 {
			l.discard(&f.frame, drop.NoRoute)
			continue
		}
		if waits && p.Until > now && l.wait(c, f, p) {
			continue
		}
		if copies && p.Copies|p.Selectors != 0 {
			l.sendCopies(c, f, p, now)
		}
		if r := l.send(c, f, p, int(p.Path), now); r != drop.None {
			l.discard(&f.frame, r)
		}
	}
}

// wait keeps a frame until its scheme wants to be asked again.
func (l *leafWorker) wait(c *class, f *fabricFrame, p *balance.Packet) bool {
	number := f.off >> l.shift
	l.parked[number] = parked{frame: f.frame, vni: f.vni, peer: f.peer}
	return l.brain.Wait(c.Class, p, number)
}

// sendCopies sends copies of f as the scheme says, besides the one that f itself is.
func (l *leafWorker) sendCopies(c *class, f *fabricFrame, p *balance.Packet, now mono.Time) {
	p.EachCopy(l.view.paths[f.peer].N, func(path uint8) {
		x, ok := l.clone(&f.frame)
		if !ok {
			return
		}
		one := fabricFrame{x, f.peer, f.vni}
		if r := l.send(c, &one, p, int(path), now); r != drop.None {
			l.discard(&one.frame, r)
		}
	})
}

// send puts a tenant's frame into the tunnel of a path to its peer, with the
// fabric's fields if the peer understands them, or says why it is to be dropped. now
// is the time that the path was chosen at.
func (l *leafWorker) send(c *class, f *fabricFrame, p *balance.Packet, path int, now mono.Time) drop.Reason {
	v := l.view
	t := &v.tunnels[int(f.peer)*MaxPaths+path]
	headers := uint16(t.header.Headers())
	overhead := headers + c.Overhead(p)
	if f.len+overhead > t.maxFrame {
		return drop.TooBig
	}
	inner := f.len
	fields := &l.fields
	if l.brain.Depart(now, c.Class, p, t.uplink, fields) {
		f.kind |= kindCapable
	} else {
		// The scheme may have found the peer capable an instant ago.
		fields, overhead = nil, headers
	}
	f.off -= uint32(overhead)
	f.len += overhead
	b := l.bytes(&f.frame)
	tos := overlay.EncapTOS(overlay.FrameTOS(b[overhead:], f.l3, f.flags))
	t.header.Encap(b, int(inner), v.tables.VNIs[f.vni].VNI, f.hash, tos, fields)
	f.l3, f.flags = overlay.EthernetLen, t.header.Family()
	l.stats.VNIs[f.vni].Encapsulated.Add(uint32(inner))
	l.stats.PeerSent[f.peer].Add(uint32(f.len))
	if !t.resolved {
		return l.hold(&f.frame, t.hop, now)
	}
	l.hopSent[t.hop].Add(uint32(f.len))
	r := l.enqueue(&f.frame, t.port)
	if r == drop.None && fields != nil {
		l.brain.Sent(uint16(f.peer), t.uplink)
	}
	return r
}
