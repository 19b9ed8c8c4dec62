package network

import (
	"math"
	"slices"
	"testing"

	"github.com/loomfabric/loom/sim/engine"
)

// TestIdlePath: with nobody else there, a packet takes the sum of its
// transmission and propagation times, to the picosecond.
func TestIdlePath(t *testing.T) {
	rates := []uint64{10e9, 25e9, 40e9, 100e9}
	for _, size := range []uint32{64, 1058, 1500, 9000} {
		l := newLab()
		a := l.hub(nil)
		src := l.attach(a, PortConfig{Rate: rates[0], Delay: 100 * engine.Nanosecond})
		want := TxTime(size, src.Port.Rate) + 100*engine.Nanosecond
		last := a
		for i, rate := range rates[1:] {
			next := l.hub(nil)
			delay := engine.Time(i+1)*engine.Microsecond + 1
			ab, _ := l.link(last, next, PortConfig{Rate: rate, Delay: delay})
			last.to(ab, 1)
			want += delay + engine.Time(uint64(size)*8*uint64(engine.Second)/rate)
			last = next
		}
		dst := l.attach(last, PortConfig{Rate: 100e9, Delay: 7})
		want += 7 + engine.Time(size)*80
		s, at := l.flow(src, dst, size, 1)
		at.record = true
		l.start(s)
		l.run(engine.Never)
		if len(at.times) != 1 || at.times[0] != want {
			t.Errorf("%d bytes over 5 links came at %v, want %v", size, at.times, want)
		}
		if l.Hops() != 5 {
			t.Errorf("%d hops, want 5", l.Hops())
		}
		// No event but the arrivals, and none for a transmitter that nobody waits
		// for but the source, which is asked once more.
		if n := l.Engine.Handled(); n != 6 {
			t.Errorf("%d events for 5 hops, want 6", n)
		}
		l.check(t)
	}
}

// TestRates: a byte's time is exact where it can be, and carried over where it
// cannot, so that a million packets are not a picosecond off.
func TestRates(t *testing.T) {
	for rate, perByte := range map[uint64]engine.Time{
		100e9: 80, 40e9: 200, 25e9: 320, 10e9: 800, 1e9: 8000, 400e9: 20, 3e9: 0, 70_000_001: 0, 12345678901: 0, 800e9: 10,
	} {
		p := New(engine.New()).NewPort("p", 0, &hub{}, PortConfig{Rate: rate}, nil)
		if got := p.serialise(1); perByte > 0 && got != perByte {
			t.Errorf("%d bit/s: %d ps a byte, want %d", rate, got, perByte)
		}
		p.rest = 0
		const n, size = 10000, 1499
		sum := engine.Time(0)
		for range n {
			d := p.serialise(size)
			if up := TxTime(size, p.Rate); d != up && d != up-1 {
				t.Fatalf("%d bit/s: %v for a packet, TxTime says %v", rate, d, up)
			}
			sum += d
		}
		exact := float64(n*size*8) / float64(rate) * 1e12
		if math.Abs(float64(sum)-exact) > 1+exact*1e-15 {
			t.Errorf("%d bit/s: %d packets took %d ps, want %.0f", rate, n, sum, exact)
		}
	}
}

func TestStrictPriority(t *testing.T) {
	n, a, b, at := pair(PortConfig{Rate: 10e9, Delay: engine.Microsecond})
	for f := range FlowID(10) {
		n.Bind(f, nil, at)
	}
	// The first to come finds the transmitter idle; of the others the order is
	// that of the classes, and within a class that of coming.
	for i, c := range []Class{DataClass, DataClass, DataClass, ControlClass, DataClass, ControlClass, DataClass} {
		p := n.Pool.Get()
		p.Flow, p.Dst, p.Size = FlowID(i), b.ID, 1000
		a.Send(0, p, c)
	}
	if q := a.Port.Queued(); q != 6000 || a.Port.QueuedIn(ControlClass) != 2000 {
		t.Errorf("%d bytes wait, %d of them control; want 6000, 2000", q, a.Port.QueuedIn(ControlClass))
	}
	n.Engine.Run(engine.Never)
	want := []FlowID{0, 3, 5, 1, 2, 4, 6}
	for i, f := range at.flows {
		if f != want[i] {
			t.Fatalf("order %v, want %v", at.flows, want)
		}
		if due := engine.Microsecond + engine.Time(i+1)*800*engine.Nanosecond; at.times[i] != due {
			t.Errorf("packet %d came at %v, want %v", i, at.times[i], due)
		}
	}
	s := a.Port.Stats()
	if s.Packets != [Classes]uint64{2, 5} || s.Bytes != [Classes]uint64{2000, 5000} || s.Peak != 6000 {
		t.Errorf("stats %+v", s)
	}
	checkLedger(t, n)
}

// TestOrderAtEqualTimes: a packet that comes in the picosecond in which the
// transmitter becomes free, before the event that says so, goes behind those
// that wait, and ahead of those of lower classes.
func TestOrderAtEqualTimes(t *testing.T) {
	for _, c := range []struct {
		class Class
		want  []FlowID
	}{{DataClass, []FlowID{0, 1, 2, 3}}, {ControlClass, []FlowID{0, 3, 1, 2}}} {
		n, a, b, at := pair(PortConfig{Rate: 10e9})
		send := func(f FlowID, class Class) {
			n.Bind(f, nil, at)
			p := n.Pool.Get()
			p.Flow, p.Dst, p.Size = f, b.ID, 1000
			a.Send(n.Engine.Now(), p, class)
		}
		late := n.Engine.Register(call(func() { send(3, c.class) }))
		n.Engine.At(800*engine.Nanosecond, late, 0)
		for f := range FlowID(3) {
			send(f, DataClass)
		}
		n.Engine.Run(engine.Never)
		if !slices.Equal(at.flows, c.want) {
			t.Errorf("class %d: order %v, want %v", c.class, at.flows, c.want)
		}
		for i, when := range at.times {
			if due := engine.Time(i+1) * 800 * engine.Nanosecond; when != due {
				t.Errorf("class %d: packet %d came at %v, want %v", c.class, i, when, due)
			}
		}
	}
}

// call is a handler that calls a function.
type call func()

func (f call) Handle(engine.Time, uint64) { f() }

func TestQueueLimit(t *testing.T) {
	n, a, b, at := pair(PortConfig{Rate: 10e9, Limit: 3000})
	n.Bind(0, at, at)
	for _, c := range []Class{DataClass, DataClass, ControlClass, DataClass, DataClass, ControlClass, DataClass} {
		p := n.Pool.Get()
		p.Dst, p.Size = b.ID, 1000
		a.Send(0, p, c)
	}
	n.Engine.Run(engine.Never)
	// One is sent at once, three wait, and the limit is not of other classes.
	s := a.Port.Stats()
	if s.Dropped[QueueFull] != 1 || at.packets != 6 {
		t.Errorf("%v dropped, %d delivered; want 1 for a full queue and 6", s.Dropped, at.packets)
	}
	checkLedger(t, n)
}

// TestMD1: Poisson arrivals at a transmitter wait (ρ/2(1-ρ)) service times on
// average (Pollaczek-Khinchine), and the time-weighted mean of the queue is what
// Little's law makes of that.
func TestMD1(t *testing.T) {
	for _, rho := range []float64{0.3, 0.6, 0.8, 0.9} {
		const packets, batches, size = 400000, 20, 1250
		n := New(engine.New())
		s, h := &hub{net: n}, n.NewHost()
		p := s.port("s", PortConfig{Rate: 10e9, Delay: 5 * engine.Nanosecond})
		Connect(p, n.NewPort("h", 0, h, PortConfig{Rate: 10e9}, nil))
		service := TxTime(size, p.Rate)
		w := &waits{net: n, fixed: service + p.Delay, batch: packets / batches}
		n.Bind(0, nil, w)
		newPoisson(p, engine.Time(float64(service)/rho), size, packets, uint64(1000*rho))
		seen := p.Observe(0, size, 100)
		n.Engine.Run(engine.Never)
		end := n.Engine.Now()

		mean, dev := meanAndError(w.means)
		want := rho / (2 * (1 - rho)) * service.Seconds()
		if math.Abs(mean-want) > 4*dev || dev > want/10 {
			t.Errorf("ρ = %v: mean wait %.4g s ± %.2g, want %.4g", rho, mean, dev, want)
		}
		total := mean * packets
		if got := seen.Mean(end) * end.Seconds(); math.Abs(got-total*size) > 1e-6*got {
			t.Errorf("ρ = %v: the queue held %v byte seconds, the packets waited %v", rho, got, total*size)
		}
		checkLedger(t, n)
	}
}

// waits is an endpoint that adds up how long packets took beyond fixed.
type waits struct {
	net   *Network
	fixed engine.Time
	batch int
	n     int
	sum   engine.Time
	means []float64
}

func (w *waits) Receive(now engine.Time, p *Packet) {
	w.sum += now - p.Sent - w.fixed
	if w.n++; w.n%w.batch == 0 {
		w.means = append(w.means, w.sum.Seconds()/float64(w.batch))
		w.sum = 0
	}
	w.net.Pool.Put(p)
}

// meanAndError returns the mean of batches and its standard error.
func meanAndError(x []float64) (mean, dev float64) {
	for _, v := range x {
		mean += v / float64(len(x))
	}
	for _, v := range x {
		dev += (v - mean) * (v - mean)
	}
	return mean, math.Sqrt(dev / float64(len(x)*(len(x)-1)))
}

func TestOccupancy(t *testing.T) {
	n, a, b, at := pair(PortConfig{Rate: 8e9}) // a byte a nanosecond
	n.Bind(0, at, at)
	o := a.Port.Observe(0, 500, 6)
	for range 5 { // 4 wait; one leaves every 1000 ns
		p := n.Pool.Get()
		p.Dst, p.Size = b.ID, 1000
		a.Send(0, p, DataClass)
	}
	n.Engine.Run(engine.Never)
	end := 8 * engine.Microsecond
	if o.Total(end) != end || o.Peak() != 4000 || math.Abs(o.Mean(end)-10000./8) > 1e-9 {
		t.Errorf("observed for %v, peak %d, mean %v; want 8µs, 4000, 1250", o.Total(end), o.Peak(), o.Mean(end))
	}
	for _, c := range []struct {
		q    float64
		want uint64
	}{{0.1, 499}, {0.5, 499}, {0.51, 1499}, {0.62, 1499}, {0.75, 2499}, {0.76, math.MaxUint64}} {
		if got := o.Quantile(end, c.q); got != c.want {
			t.Errorf("quantile %v is %d, want %d", c.q, got, c.want)
		}
	}
}
