package dataplane

import (
	"fmt"

	"github.com/loomfabric/loom/dataplane/xsk"
	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/internal/snapshot"
)

const (
	frameLen = 16 // of a frame's handle in a snapshot, bytes
	// ownerBits is the width of a frame's owner. Above it stands how many parts of a packet
	// that lies there are to be completed.
	ownerBits = 12
)

func saveFrame(w *snapshot.Writer, f *frame) {
	w.U32(f.off)
	w.U16(f.len)
	w.U16(uint16(f.in))
	w.U32(f.hash)
	w.U16(f.flags)
	w.U8(f.l3)
	w.U8(f.kind)
}

func loadFrame(r *snapshot.Reader) frame {
	return frame{off: r.U32(), len: r.U16(), in: PortID(r.U16()), hash: r.U32(), flags: r.U16(), l3: r.U8(), kind: r.U8()}
}

// saveFrames writes who owns each frame of the worker, the handles of its own ones, and
// where the kernel's counters stand. The worker does not run, and its brain holds nothing.
func (w *worker) saveFrames(s *snapshot.Writer) {
	s.Begin(sectionFrames, versionFrames)
	defer s.End()
	s.U32(uint32(w.frameMask + 1))
	owners := w.pool.Owners()
	s.Grow(2*len(owners) + 4096)
	s.U32(uint32(len(owners)))
	for i, o := range owners {
		s.U16(uint16(o) | w.long.unfinished(i)<<ownerBits)
	}
	s.U32(uint32(len(w.ports)))
	for i := range w.ports {
		w.ports[i].save(s)
	}
	s.U32(uint32(w.holds.len()))
	for _, hop := range w.holds.active {
		w.holds.queues.Each(int(hop), func(f *heldFrame) {
			s.U16(uint16(hop))
			saveFrame(s, &f.frame)
			s.U64(uint64(f.until))
		})
	}
}

// save writes a port's queues, and what the kernel and the socket have counted so far.
func (p *port) save(s *snapshot.Writer) {
	var k xsk.Stats
	if p.link != nil {
		k, _ = p.link.Stats() // an interface that is gone has none
	}
	for _, n := range socketCounters(&k) {
		s.U64(*n)
	}
	e := &p.egress
	for _, q := range []*fifo{&e.control, &e.data, &e.line} {
		s.U32(uint32(q.len()))
		for i := q.head; i != q.tail; i++ {
			saveFrame(s, &q.buf[i&uint32(len(q.buf)-1)])
			if q == &e.line {
				s.U64(uint64(e.due[i&uint32(len(e.due)-1)]))
			}
		}
	}
}

// socketCounters lists the counters of a socket in the order in which a snapshot has
// them.
func socketCounters(k *xsk.Stats) []*uint64 {
	return []*uint64{&k.RXDropped, &k.RXInvalid, &k.TXInvalid, &k.RXRingFull, &k.FillEmpty, &k.TXEmpty, &k.Kicks, &k.KickAgain, &k.KickErrors}
}

// carriedFrames is what a snapshot says of a worker's frames, in the reader's numbers.
type carriedFrames struct {
	frameSize int
	owners    []xsk.Owner
	left      []uint8       // parts to be completed
	ports     []carriedPort // by the writer's numbers
	holds     []carriedHold
}

type carriedPort struct {
	counters xsk.Stats
	queues   [3][]frame // control, data, delay line
	due      []mono.Time
}

type carriedHold struct {
	hop   int // the reader's; -1: none
	frame frame
	until mono.Time
}

// readFrames reads what saveFrames wrote. Frames that came in by a port that is no more
// are charged to port 0.
func readFrames(body []byte, t *translation) (*carriedFrames, error) {
	r := snapshot.NewReader(body)
	c := &carriedFrames{frameSize: int(r.U32())}
	if c.frameSize <= 0 || c.frameSize&(c.frameSize-1) != 0 {
		return nil, fmt.Errorf("frames of %d bytes", c.frameSize)
	}
	c.owners = make([]xsk.Owner, r.Count(2))
	c.left = make([]uint8, len(c.owners))
	for i := range c.owners {
		o := r.U16()
		c.owners[i], c.left[i] = xsk.Owner(o&(1<<ownerBits-1)), uint8(o>>ownerBits)
	}
	load := func() frame {
		f := loadFrame(r)
		f.in = PortID(max(at(t.ports, int(f.in)), 0))
		in := uint64(f.off) & uint64(c.frameSize-1)
		if in+uint64(f.len) > uint64(c.frameSize) || uint64(f.off) >= uint64(len(c.owners))*uint64(c.frameSize) || uint16(f.l3) > f.len {
			r.Fail(fmt.Errorf("a frame of %d bytes at %#x does not fit the area", f.len, f.off))
		}
		return f
	}
	for range r.Count(len(socketCounters(&xsk.Stats{})) * 8) {
		var p carriedPort
		for _, n := range socketCounters(&p.counters) {
			*n = r.U64()
		}
		for q := range p.queues {
			for range r.Count(frameLen) {
				p.queues[q] = append(p.queues[q], load())
				if q == 2 {
					p.due = append(p.due, mono.Time(r.U64()))
				}
			}
		}
		c.ports = append(c.ports, p)
	}
	for range r.Count(2 + frameLen + 8) {
		c.holds = append(c.holds, carriedHold{at(t.hops, int(r.U16())), load(), mono.Time(r.U64())})
	}
	return c, r.Done()
}

// kept returns addresses of all frames that have handles.
func (c *carriedFrames) kept() (addrs []uint64) {
	for i := range c.ports {
		for _, q := range c.ports[i].queues {
			for k := range q {
				addrs = append(addrs, uint64(q[k].off))
			}
		}
	}
	for i := range c.holds {
		addrs = append(addrs, uint64(c.holds[i].frame.off))
	}
	return addrs
}

// inheritFrames makes the frames of another process the worker's. owner names the writer's
// ports in the pool's ledger: also those that this node does not have, until their sockets
// are closed. Frames that cannot stay where they were are dropped under a name. It returns
// how many frames of the worker's nobody had a handle of.
func (w *worker) inheritFrames(c *carriedFrames, t *translation, owner []uint16, now mono.Time) (orphans int, err error) {
	if c.frameSize != int(w.frameMask+1) || len(c.owners) != w.pool.Frames() {
		return 0, fmt.Errorf("%d frames of %d bytes, and this worker has %d of %d", len(c.owners), c.frameSize, w.pool.Frames(), w.frameMask+1)
	}
	pool, orphans, err := xsk.RestorePool(c.owners, c.frameSize, owner, c.kept())
	if err != nil {
		return 0, err
	}
	w.pool = pool
	if w.long != nil {
		copy(w.long.left, c.left)
	}
	for old := range c.ports {
		from := &c.ports[old]
		id := at(t.ports, old)
		if id < 0 {
			for _, q := range from.queues {
				for i := range q {
					w.discard(&q[i], drop.PortReset)
				}
			}
			continue
		}
		w.ports[id].inherit(w, from)
	}
	for i := range c.holds {
		h := &c.holds[i]
		switch {
		case h.hop < 0:
			w.discard(&h.frame, drop.HopGone)
		case !w.holds.put(HopID(h.hop), &heldFrame{h.frame, h.until}):
			w.discard(&h.frame, drop.HoldFull)
		}
	}
	return orphans, nil
}

// inherit takes over a port's queues. A queue that is shorter here, and a delay line that
// there is not, let frames go on early.
func (p *port) inherit(w *worker, from *carriedPort) {
	// What was counted before is in the predecessor's counters, which come later.
	for i, n := range socketCounters(&p.past) {
		*n = -*socketCounters(&from.counters)[i]
	}
	e := &p.egress
	for q, to := range []*fifo{&e.control, &e.data, &e.line} {
		for i := range from.queues[q] {
			f := &from.queues[q][i]
			if to == &e.line && e.delay == 0 {
				to = &e.data
			}
			if to.full() {
				w.discard(f, drop.QueueFull)
				continue
			}
			if to == &e.line {
				e.due[to.tail&uint32(len(e.due)-1)] = from.due[i]
			}
			to.push(f)
		}
	}
	p.dirty = e.held() > 0
}

// take makes l, which another process has used so far, the port's link. Its frames are in
// the ledger already.
func (p *port) take(l link, now mono.Time) {
	p.link, p.since, p.starved = l, now, true
	p.unkicked = l.TXQueued()
}
