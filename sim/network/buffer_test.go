package network

import (
	"math"
	"strings"
	"testing"

	"github.com/loomfabric/loom/sim/engine"
)

// TestDynamicThreshold: with n ports overloaded, however much, each has
// αB/(1+nα) in the end, and αB/(1+nα)/α is left free (Choudhury and Hahne §III).
func TestDynamicThreshold(t *testing.T) {
	const total, size = 1 << 20, 1000
	for _, c := range []struct {
		alpha float64
		n     int
	}{{1, 1}, {1, 2}, {1, 5}, {0.5, 3}, {2, 4}, {8, 2}, {1, 3}} {
		l := newLab()
		b := NewBuffer(BufferConfig{Total: total, Alpha: c.alpha})
		s := l.hub(b)
		for i := range c.n {
			h := l.attach(s, PortConfig{Rate: 10e9})
			l.Bind(0, nil, &sink{net: l.Network})
			// 1.5 to 6 times what the port can send.
			a := newPoisson(s.ports[i], TxTime(size, h.Port.Rate)*2/engine.Time(3+3*(i%4)), size, 1<<40, uint64(i))
			a.dst = h.ID
		}
		if err := l.Validate(); err != nil {
			t.Fatal(err)
		}
		l.run(10 * engine.Millisecond)
		want := c.alpha * total / (1 + float64(c.n)*c.alpha)
		for i, p := range s.ports {
			if q := float64(p.Queued()); math.Abs(q-want) > 4*size*(1+c.alpha) {
				t.Errorf("α = %v, %d ports: port %d has %v bytes, want %.0f", c.alpha, c.n, i, q, want)
			}
			if p.Stats().Dropped[BufferFull] == 0 {
				t.Errorf("α = %v, %d ports: port %d dropped nothing", c.alpha, c.n, i)
			}
		}
		if b.Used() > total {
			t.Errorf("used %d of %d", b.Used(), total)
		}
		l.check(t)
	}
}

// TestControlIsNotCharged: data is held to its threshold, control to nothing.
func TestControlIsNotCharged(t *testing.T) {
	l := newLab()
	s := l.hub(NewBuffer(BufferConfig{Total: 10000, Alpha: 0.25}))
	h := l.attach(s, PortConfig{Rate: 1e9})
	send := func(c Class, n int) {
		for range n {
			p := l.Pool.Get()
			p.Dst, p.Size = h.ID, 1000
			s.ports[0].Send(l.Engine.Now(), p, c)
		}
	}
	send(DataClass, 6) // one leaves, a quarter of what is free may wait
	send(ControlClass, 5)
	st := s.ports[0].Stats()
	if q := s.ports[0].QueuedIn(DataClass); q != 2000 {
		t.Errorf("%d bytes of data wait, want 2000", q)
	}
	if st.Dropped[BufferFull] != 3 {
		t.Errorf("%d packets dropped, want 3", st.Dropped[BufferFull])
	}
	if q := s.ports[0].QueuedIn(ControlClass); q != 5000 || s.buffer.Used() != 2000 {
		t.Errorf("%d bytes of control wait, %d in the buffer; want 5000, 2000", q, s.buffer.Used())
	}
	l.check(t)
	l.run(engine.Never)
	l.check(t)
}

func TestValidate(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(l *lab)
		want string
	}{
		{"fine", func(l *lab) { l.attach(l.hub(NewBuffer(BufferConfig{Total: 1 << 20})), PortConfig{Rate: 1e9}) }, ""},
		{"host without port", func(l *lab) { l.NewHost() }, "host 0 has no port"},
		{"port without link", func(l *lab) { l.hub(nil).port("x1", PortConfig{Rate: 1e9}) }, "x1 has no peer"},
		{"buffer", func(l *lab) {
			l.attach(l.hub(NewBuffer(BufferConfig{Total: 0})), PortConfig{Rate: 1e9})
		}, "too small"},
		{"headroom", func(l *lab) {
			l.attach(l.hub(NewBuffer(BufferConfig{Total: 20000, PFC: &PFC{}})), PortConfig{Rate: 100e9, Delay: engine.Microsecond})
		}, "too small"},
		{"alpha", func(l *lab) {
			l.attach(l.hub(NewBuffer(BufferConfig{Total: 20000, Alpha: -1})), PortConfig{Rate: 1e9})
		}, "alpha"},
		{"ECN", func(l *lab) { l.attach(l.hub(nil), PortConfig{Rate: 1e9, ECN: ECN{Kmin: 5, Kmax: 4}}) }, "Kmax"},
		{"Pmax", func(l *lab) { l.attach(l.hub(nil), PortConfig{Rate: 1e9, ECN: ECN{Kmax: 4, Pmax: math.NaN()}}) }, "Pmax"},
	} {
		l := newLab()
		c.make(l)
		err := l.Validate()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}
