package dataplane

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/loomfabric/loom/dataplane/xsk"
	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
)

const (
	burstSize = 64 // frames taken from a port at once
	// A TX ring is kicked when nothing more comes in, and while more does, after
	// this many frames or this long.
	kickBurst = 256
	kickDelay = mono.Time(20 * time.Microsecond)
)

// Frames are first of all to be received into, and for control packets. If the pool is
// large, copies leave copyReserve frames in it, data queues beyond their share as many,
// and fill rings controlReserve.
const (
	copyReserve    = 512
	controlReserve = 64
)

// worker forwards the frames of one queue of every port, on one OS thread: the
// rings, the frames' memory, and what is a leaf's or a spine's besides. Everything in
// it is owned by that thread; others reach it through call.
type worker struct {
	id   int
	cfg  *Config
	seed uint32 // of the flow hash

	area      []byte // the UMEM
	pool      *xsk.Pool
	frameMask uint64      // frame size - 1
	long      *longFrames // nil: each packet is one descriptor
	reserve   int         // frames that are neither for copies nor for long queues
	spare     int         // those of them that are not to be received into
	ports     []port      // by PortID; they stay where they are in memory
	open      []*port     // those with a link
	gone      GoneStats   // of ports whose PortID another one has
	view      *view
	views     *atomic.Pointer[view] // the newest one
	mail      mailbox
	shared    *shared
	now       mono.Time // of the current round

	callers sync.Mutex // serialises call
	life    sync.Mutex // guards running
	running bool
	handed  atomic.Bool   // another process has the frames
	began   mono.Time     // of the first round with tables; 0: there was none
	started chan struct{} // closed by then

	leaf  *leafWorker  // nil on a spine
	spine *spineWorker // nil on a leaf

	holds *holds
	ask   chan<- HopID // next hops to resolve

	// Scratch of one burst.
	descs [kickBurst]xsk.Desc
	addrs [burstSize]uint64
	meta  overlay.Meta
	note  message // that has come: schemes are shown it by its address
	touch byte    // keeps input's loads alive

	made, consumed, bursts, sleeps uint64
	filled                         uint64        // bursts with a frame or more
	worked                         bool          // the last round had one, and this one follows at once
	busy                           time.Duration // in such rounds
	hopSent                        []Traffic
	base                           *WorkerStats // what predecessors have counted; nil: there were none

	marks  *marks    // nil: there is no fast path
	taps   *taps     // nil: nobody captures frames
	rec    *recorder // nil: nobody records
	passed passed    // for what arrives when routes have just changed
}

// newWorker makes a worker without links. area and pool are its own UMEM.
func newWorker(id int, cfg *Config, area []byte, pool *xsk.Pool, frameSize int, s *shared) (*worker, error) {
	w := &worker{
		id: id, cfg: cfg, seed: uint32(cfg.Seed), area: area, pool: pool, frameMask: uint64(frameSize - 1),
		reserve: min(copyReserve, pool.Frames()/16), spare: min(controlReserve, pool.Frames()/128),
		started: make(chan struct{}), views: new(atomic.Pointer[view]), holds: newHolds(mono.Time(cfg.HoldTime)), shared: s,
	}
	w.long = newLongFrames(pool.Frames(), frameSize, xsk.UmemConfig{FrameSize: frameSize}.Chunk())
	w.mail.init()
	w.ports = make([]port, 0, cfg.Room)
	for i := range cfg.Ports {
		w.seat(PortID(i), &cfg.Ports[i], w.newEgress(PortID(i), &cfg.Ports[i].Egress))
	}
	var err error
	if cfg.Role == Leaf {
		w.leaf, err = newLeafWorker(w, frameSize)
	} else {
		w.spine, err = newSpineWorker(w)
	}
	return w, err
}

// newEgress returns what a port's egress starts as. Any goroutine may call it: it takes
// a while.
func (w *worker) newEgress(id PortID, c *EgressConfig) egress {
	rng := rand.New(rand.NewPCG(w.cfg.Seed, uint64(w.id)<<32|uint64(id)))
	return newEgress(c, w.area, w.shared.meters[id], w.id, &w.shared.params, rng)
}

// seat gives a port its place. One that comes back to the place that it had goes on
// counting.
func (w *worker) seat(id PortID, c *PortConfig, e egress) {
	if int(id) >= len(w.ports) {
		w.ports = w.ports[:id+1] // there is room for all
	}
	p := &w.ports[id]
	old := *p
	*p = port{id: id, name: c.Name, kind: c.Kind, owner: xsk.OwnerPort(uint16(id)), egress: e}
	if old.name == c.Name && old.kind == c.Kind {
		p.stats, p.past, p.egress.marked, p.egress.stamps, p.egress.depth = old.stats, old.past, old.egress.marked, old.egress.stamps, old.egress.depth
		return
	}
	if old.name != "" {
		w.gone.add(&old.stats)
	}
}

// round does one turn of the loop: news first, then a burst from every port,
// then what is due on the way out. It returns how many frames came in.
func (w *worker) round(now mono.Time) int {
	if w.worked {
		w.busy += now.Sub(w.now)
		w.worked = false
	}
	w.now = now
	if w.marks != nil {
		w.marks.begin()
	}
	if v := w.views.Load(); v != w.view {
		w.adopt(v, now)
	}
	w.mail.read()
	if w.view == nil || w.handed.Load() {
		return 0
	}
	if w.began == 0 {
		w.began = max(w.now, 1)
		close(w.started)
	}
	if w.leaf != nil {
		w.leaf.begin(now)
	} else {
		w.spine.begin()
	}
	got, behind := w.receive(now)
	if w.leaf != nil {
		w.leaf.end(now, behind)
	} else {
		w.spine.end(now)
	}
	w.holds.expire(w, now)
	w.output(now, got == 0)
	if w.marks != nil {
		w.marks.end(w)
	}
	w.bursts++
	w.worked = got > 0
	return got
}

// receive takes in a burst from every port. behind says that there may be more in the
// uplinks' rings.
func (w *worker) receive(now mono.Time) (got int, behind bool) {
	for _, p := range w.open {
		n := p.link.Receive(w.descs[:burstSize])
		if w.marks != nil {
			w.marks.received(w, p.id, w.descs[:n])
		}
		if n == 0 {
			continue
		}
		if w.long != nil {
			n = w.join(p, n)
		}
		got += n
		w.filled++
		behind = behind || n == burstSize && p.kind == Uplink
		w.input(p, w.descs[:n], now)
		w.refill(p)
	}
	return got, behind
}

// input counts a burst and hands it to the code for the kind of port.
func (w *worker) input(p *port, descs []xsk.Desc, now mono.Time) {
	if w.taps != nil {
		w.taps.in(w, p, descs, now)
	}
	area, bytes, touch := w.area, uint64(0), byte(0)
	for i := range descs {
		d := &descs[i]
		bytes += uint64(d.Len)
		// The kernel wrote the frame on another core. Loading a byte of its
		// metadata and of its headers here lets the misses of a whole burst
		// overlap; later, each would wait for the one before.
		touch += area[d.Addr-1] + area[d.Addr]
	}
	w.touch = touch
	w.pool.TakeAll(p.owner, descs)
	p.stats.Received.Frames += uint64(len(descs))
	p.stats.Received.Bytes += bytes
	switch p.kind {
	case Access:
		w.leaf.accessInput(p, descs, now)
	case Uplink:
		w.leaf.uplinkInput(p, descs, now)
	case SpinePort:
		w.spine.input(p, descs, now)
	}
}

// output sends what is due on every port. A kick is a system call, and worth
// waiting for while more comes in.
func (w *worker) output(now mono.Time, quiet bool) {
	for _, p := range w.open {
		if p.dirty {
			w.transmit(p, now)
		}
		if now >= p.rest && (p.unkicked >= kickBurst || p.unkicked > 0 && (quiet || now-p.since >= kickDelay)) {
			w.kick(p)
		} else if quiet && p.link.TXPending() > 0 {
			w.complete(p)
		}
		// A port whose fill ring ran dry receives nothing, and so gets no frames
		// in return: it must not wait for the others to fall silent.
		if quiet || p.starved {
			w.refill(p)
		}
		p.link.WakeRX()
	}
}

// enqueue gives f to the egress of port id, or says why it is to be dropped.
func (w *worker) enqueue(f *frame, id PortID) drop.Reason {
	p := &w.ports[id]
	if p.link == nil {
		return drop.PortDown
	}
	p.dirty = true
	if p.egress.data.len() >= queueShare && f.kind&kindControl == 0 && w.pool.Free() <= w.reserve {
		return drop.NoBuffer
	}
	return p.egress.enqueue(f)
}

// discard drops f for a reason and frees its memory.
func (w *worker) discard(f *frame, r drop.Reason) {
	w.ports[f.in].stats.Drops[r]++
	if w.taps != nil {
		w.taps.dropped(w, f, r, true)
	}
	if w.rec != nil {
		w.rec.dropped(w, f, r)
	}
	w.pool.Put(uint64(f.off) &^ w.frameMask)
}

// clone copies f, bytes and all, for one more destination. It fails when the
// pool is empty; the copy that was not made is then counted as dropped.
func (w *worker) clone(f *frame) (frame, bool) {
	w.made++
	a, ok := uint64(0), false
	if w.pool.Free() > w.reserve {
		a, ok = w.pool.Get()
	}
	if !ok {
		w.ports[f.in].stats.Drops[drop.NoFrame]++
		if w.taps != nil {
			w.taps.dropped(w, f, drop.NoFrame, false)
		}
		return frame{}, false
	}
	c := *f
	c.off = uint32(a | uint64(f.off)&w.frameMask)
	copy(w.bytes(&c), w.bytes(f))
	if w.taps != nil {
		w.taps.cloned(f, &c)
	}
	return c, true
}

// bytes returns the frame's bytes.
func (w *worker) bytes(f *frame) []byte {
	off := uint64(f.off) // sums of it do not wrap, which saves a comparison
	return w.area[off : off+uint64(f.len)]
}

// held returns the number of frames inside.
func (w *worker) held() uint64 {
	n := w.holds.len()
	if w.leaf != nil {
		n += w.leaf.brain.Held()
	}
	for i := range w.ports {
		n += w.ports[i].egress.held()
	}
	return uint64(n)
}

// nextDeadline returns when the worker has something to do that no descriptor
// will tell it of. backlog is as of sendDeadline.
func (w *worker) nextDeadline(now mono.Time) (t mono.Time, backlog bool) {
	t, backlog = w.sendDeadline(now)
	switch {
	case w.view == nil:
	case w.leaf != nil:
		t = min(t, w.leaf.brain.Deadline())
	case w.spine.brain != nil:
		t = min(t, w.spine.brain.Deadline())
	}
	return t, backlog
}

// sendDeadline is nextDeadline for what is on its way out already. backlog is true
// when the worker waits for room in a TX ring, or to have sent frames back that a port
// needs to receive into.
func (w *worker) sendDeadline(now mono.Time) (t mono.Time, backlog bool) {
	t = w.holds.deadline()
	starved, pending := false, false
	for _, p := range w.open {
		d := p.egress.deadline(now)
		starved = starved || p.starved
		pending = pending || p.link.TXPending() > 0
		switch {
		case p.rest > now && (p.unkicked > 0 || d <= now):
			t = min(t, p.rest)
		case p.unkicked > 0 || d <= now:
			backlog = true
		default:
			t = min(t, d)
		}
	}
	return t, backlog || starved && pending
}

// adopt makes v the worker's view.
func (w *worker) adopt(v *view, now mono.Time) {
	old := w.view
	if w.leaf != nil {
		w.leaf.leave(v, now)
	}
	w.passed.replace(old, v, now)
	w.view = v
	w.hopSent = grow(w.hopSent, len(v.hops))
	for i := range v.ports { // each has its place already
		w.ports[i].believed = overlay.Addr{}
		w.ports[i].mac = overlay.MakeFDBKey(0, v.ports[i].mac)
		if e := &w.ports[i].egress; !e.ruled {
			e.setRate(v.tables.Ports[i].Speed)
		}
	}
	if w.leaf != nil {
		w.leaf.adopt(old, v)
	} else {
		w.spine.adopt(v)
	}
	w.holds.release(w, now)
}

// grow extends s with zero values to at least n elements.
func grow[T any](s []T, n int) []T {
	if len(s) < n {
		s = append(s, make([]T, n-len(s))...)
	}
	return s
}

// snapshot copies the worker's counters.
func (w *worker) snapshot() WorkerStats {
	s := WorkerStats{
		Made: w.made, Consumed: w.consumed, Held: w.held(), Bursts: w.bursts, Filled: w.filled, Sleeps: w.sleeps, Busy: w.busy, At: w.now,
		HopSent: slices.Clone(w.hopSent), Ports: make([]PortStats, len(w.ports)), Gone: w.gone,
	}
	for i := range w.ports {
		s.Ports[i] = w.ports[i].snapshot(w.now)
	}
	switch {
	case w.leaf != nil:
		w.leaf.snapshot(&s)
	case w.spine.brain != nil:
		w.spine.snapshot(&s)
	}
	if w.base != nil {
		s.addBase(w.base)
	}
	return s
}
