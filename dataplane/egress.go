package dataplane

import (
	"math/rand/v2"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/dataplane/xsk"
	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/internal/gcra"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/internal/stat"
	"github.com/loomfabric/loom/leaf"
	"github.com/loomfabric/loom/overlay"
)

const (
	dataQueueFrames    = 4096 // a data queue is limited in bytes first; this bounds its memory
	queueShare         = 256  // of these, each queue may have so many however few are free
	controlQueueFrames = 256
	delayLineFrames    = 8192
	idle               = mono.Time(1<<63 - 1) // no deadline

	// Control packets go before data for a controlShare-th of a shaped port. A burst of
	// them may be as long as controlBurst, bytes: two answers to each frame of a vector.
	controlShare = 10
	controlBurst = 2 * leaf.Burst * 128
)

// egress is what stands between a forwarding decision and one queue of a
// port's TX ring: a control queue that has priority for its share of a shaped port, a
// byte-limited data queue with ECN marking, a shaper, and a fixed delay. Owned by one
// worker.
type egress struct {
	control fifo
	data    fifo
	shaper  gcra.Bucket
	share   gcra.Bucket // of the control packets that go before data
	marker  leaf.Marker
	marked  Traffic    // ECN CE set here
	limit   uint64     // of the data queue, bytes
	depth   stat.Sizes // of the data queue, bytes
	area    []byte     // the UMEM
	dre     congestion.DRE
	meter   *congestion.Meter // of the link, all workers together
	worker  int               // whose part of it dre is
	ce      uint8             // the link's metric during next
	stamps  uint64            // frames whose CE was raised
	rate    uint64            // link speed for the meter, bits per second; 0: unknown
	time    uint32            // that a byte takes at this speed, see balance.ByteTime
	ruled   bool              // rate is configured: the kernel's word does not count

	until mono.Time // no data leave before that: a scheme holds the port
	delay mono.Time // fixed extra latency, ns
	line  fifo      // frames in the delay line, in due order
	due   []mono.Time
}

func newEgress(c *EgressConfig, area []byte, meter *congestion.Meter, worker int, p *congestion.Params, rng *rand.Rand) egress {
	e := egress{
		area:    area,
		meter:   meter,
		worker:  worker,
		dre:     p.DRE(),
		control: newFIFO(controlQueueFrames),
		data:    newFIFO(dataQueueFrames),
		shaper:  newShaper(c.Rate, c.Burst),
		share:   newShare(c.Rate),
		marker:  leaf.Marker{Kmin: uint64(c.Kmin), Kmax: uint64(c.Kmax), Pmax: c.Pmax, RNG: rng},
		limit:   uint64(c.QueueBytes),
		delay:   mono.Time(c.Delay),
	}
	rate, _ := c.Speed(0)
	e.setRate(rate)
	e.ruled = e.rate != 0
	if e.delay > 0 {
		e.line = newFIFO(delayLineFrames)
		e.due = make([]mono.Time, delayLineFrames)
	}
	return e
}

// change puts other settings in force. No frame is lost by it: what waits beyond a lower
// limit is sent.
func (e *egress) change(c *EgressConfig) {
	e.shaper, e.share, e.limit = newShaper(c.Rate, c.Burst), newShare(c.Rate), uint64(c.QueueBytes)
	e.marker.Kmin, e.marker.Kmax, e.marker.Pmax = uint64(c.Kmin), uint64(c.Kmax), c.Pmax
	rate, _ := c.Speed(0)
	if e.ruled = rate != 0; e.ruled {
		e.setRate(rate)
	}
	e.delay = mono.Time(c.Delay)
	if e.delay > 0 && e.due == nil {
		e.line, e.due = newFIFO(delayLineFrames), make([]mono.Time, delayLineFrames)
	}
	if e.line.len() > 0 {
		e.delay = max(e.delay, 1) // the line is emptied as one without a delay
	}
}

// setRate sets the link's speed, bits per second; 0: it is not known.
func (e *egress) setRate(rate uint64) { e.rate, e.time = rate, balance.ByteTime(rate) }

// load returns the link's metric, and how many bytes of data wait for it here.
func (e *egress) load(now mono.Time) (metric uint8, queue uint32) {
	return e.meter.Metric(now, e.rate), uint32(e.data.bytes)
}

// held returns the number of frames that wait here.
func (e *egress) held() int { return e.control.len() + e.data.len() + e.line.len() }

// enqueue takes ownership of f, unless it returns a reason to drop it.
func (e *egress) enqueue(f *frame) drop.Reason {
	if f.kind&kindControl != 0 {
		if e.control.full() {
			return drop.ControlFull
		}
		e.control.push(f)
		return drop.None
	}
	if e.data.bytes+uint64(f.len) > e.limit || e.data.full() {
		return drop.QueueFull
	}
	if f.kind&kindFlood != 0 && e.data.bytes > e.limit/2 {
		return drop.FloodYields
	}
	e.data.push(f)
	return drop.None
}

// next takes frames that may be sent at now off the queues and writes their
// descriptors to out, as many as fit. It returns how many, and their bytes. CE
// of those that carry the fabric's fields is raised to the link's metric (CONGA
// §3.3, step 2).
func (e *egress) next(now mono.Time, out []xsk.Desc) (n int, bytes uint64) {
	if e.data.bytes > 0 {
		e.depth.Add(e.data.bytes)
	}
	e.ce = 0
	if e.rate != 0 { // a link of unknown speed has no metric
		e.ce = e.meter.Metric(now, e.rate)
	}
	if e.delay > 0 {
		return e.nextDelayed(now, out)
	}
	if !e.shaper.Limits() && e.control.len() == 0 {
		if now < e.until {
			return 0, 0
		}
		return e.nextData(out)
	}
	for n < len(out) {
		q := e.pick(now)
		if q == nil {
			break
		}
		f := q.front()
		e.leave(now, q, f)
		out[n] = f.desc()
		n++
		bytes += uint64(f.len)
		q.pop()
	}
	return n, bytes
}

// nextData is next for a port with nothing but data and no shaper.
func (e *egress) nextData(out []xsk.Desc) (n int, bytes uint64) {
	q := &e.data
	out = out[:min(len(out), q.len())]
	stamping, marking := e.ce != 0, e.marker.On()
	for i := range out {
		f := q.front()
		if stamping {
			e.stamp(f)
		}
		if marking {
			e.mark(f)
		}
		out[i] = f.desc()
		bytes += uint64(f.len)
		q.bytes -= uint64(f.len)
		q.head++
	}
	return len(out), bytes
}

// leave writes into f what the link has to tell, as f leaves the queue q, and charges
// it to the shaper.
func (e *egress) leave(now mono.Time, q *fifo, f *frame) {
	e.stamp(f)
	if q == &e.data {
		e.mark(f)
	} else if e.share.Ready(now) { // what left by its share; the rest had to wait for the shaper
		e.share.Charge(now, uint64(f.len))
	}
	e.shaper.Charge(now, uint64(f.len))
}

// nextDelayed moves what the shaper admits into the delay line, and takes what
// is due out of it: serialisation first, then propagation, like a wire.
func (e *egress) nextDelayed(now mono.Time, out []xsk.Desc) (n int, bytes uint64) {
	for !e.line.full() {
		q := e.pick(now)
		if q == nil {
			break
		}
		f := q.front()
		e.leave(now, q, f)
		e.due[e.line.tail&uint32(len(e.due)-1)] = now + e.delay
		e.line.push(f)
		q.pop()
	}
	for n < len(out) && e.line.len() > 0 && e.lineDue() <= now {
		f := e.line.front()
		out[n] = f.desc()
		n++
		bytes += uint64(f.len)
		e.line.pop()
	}
	return n, bytes
}

// stamp raises the CE field of f, if it has one.
func (e *egress) stamp(f *frame) {
	if e.ce != 0 && f.kind&kindCapable != 0 && overlay.VXLAN(e.area[f.off+vxlanAt(f.flags):f.off+uint32(f.len)]).RaiseCE(e.ce) {
		e.stamps++
	}
}

// mark sets CE in the IP header of f, which leaves the data queue, if that is above
// the marking thresholds and the sender is ECN-capable.
func (e *egress) mark(f *frame) {
	if e.marker.On() && f.l3 != 0 && e.marker.Hit(e.data.bytes-uint64(f.len)) &&
		overlay.SetCE(e.area[f.off:f.off+uint32(f.len)], f.l3, f.flags) {
		e.marked.Add(uint32(f.len))
	}
}

// sent meters what has gone to the TX ring.
func (e *egress) sent(now mono.Time, bytes uint64) {
	e.dre.Add(now, uint32(bytes))
	e.meter.Publish(e.worker, now, e.dre.X(now))
}

func (e *egress) lineDue() mono.Time { return e.due[e.line.head&uint32(len(e.due)-1)] }

// pick returns the queue whose front may leave at now, or nil. Control packets go ahead
// within their share, although the shaper has nothing left: its debt is bounded by
// theirs. Beyond it they get what data leave over, so that a flood of them takes no more
// than the share from data, and ends in a full control queue.
func (e *egress) pick(now mono.Time) *fifo {
	control := e.control.len() > 0
	switch {
	case control && e.share.Ready(now):
		return &e.control
	case !e.shaper.Ready(now):
		return nil
	case e.data.len() > 0 && now >= e.until:
		return &e.data
	case control:
		return &e.control
	}
	return nil
}

// deadline returns when next will have something to give that it does not
// have at now, or idle. A TX ring without room is not its business.
func (e *egress) deadline(now mono.Time) mono.Time {
	t := idle
	if e.data.len() > 0 {
		t = max(e.shaper.When(now), e.until)
	}
	if e.control.len() > 0 {
		t = min(t, e.shaper.When(now), e.share.When(now))
	}
	if e.delay > 0 && e.line.len() > 0 {
		t = min(t, e.lineDue())
	}
	return t
}

// flush hands every frame that waits here to gone, oldest first.
func (e *egress) flush(gone func(*frame)) {
	for _, q := range []*fifo{&e.line, &e.control, &e.data} {
		for q.len() > 0 {
			gone(q.front())
			q.pop()
		}
	}
}

// newShaper returns the bucket of a shaper: a rate in bits per second with a burst in
// bytes; rate 0: no limit.
func newShaper(rate uint64, burst uint32) gcra.Bucket {
	if rate == 0 {
		return gcra.Bucket{}
	}
	return gcra.New(8e12/rate, uint64(burst))
}

// newShare returns the control packets' part of a shaper.
func newShare(rate uint64) gcra.Bucket {
	if rate == 0 {
		return gcra.Bucket{}
	}
	return newShaper(max(1, rate/controlShare), controlBurst)
}
