package network

import (
	"math"
	"testing"

	"github.com/loomfabric/loom/sim/engine"
)

// TestMarkingProbability: none up to Kmin, Pmax at Kmax, all above, a straight
// line in between (DCQCN §3.1, Figure 5); within four standard errors.
func TestMarkingProbability(t *testing.T) {
	for _, c := range []struct {
		ecn   ECN
		queue uint64
		want  float64
	}{
		{ECN{Kmin: 100e3, Kmax: 400e3, Pmax: 0.2}, 0, 0},
		{ECN{Kmin: 100e3, Kmax: 400e3, Pmax: 0.2}, 100e3, 0},
		{ECN{Kmin: 100e3, Kmax: 400e3, Pmax: 0.2}, 250e3, 0.1},
		{ECN{Kmin: 100e3, Kmax: 400e3, Pmax: 0.2}, 400e3, 0.2},
		{ECN{Kmin: 100e3, Kmax: 400e3, Pmax: 0.2}, 400e3 + 1, 1},
		{ECN{Kmin: 0, Kmax: 1000, Pmax: 1}, 750, 0.75},
		{ECN{Kmin: 5000, Kmax: 5000}, 5000, 0},
		{ECN{Kmin: 5000, Kmax: 5000}, 5001, 1},
		{ECN{}, 1e9, 0},
	} {
		p := New(engine.New()).NewPort("p", 0, &hub{}, PortConfig{Rate: 1e9, ECN: c.ecn}, nil)
		const n = 40000
		marked := 0
		for range n {
			k := Packet{ECT: true}
			p.mark(&k, c.queue)
			if k.CE {
				marked++
			}
			k = Packet{}
			if p.mark(&k, c.queue); k.CE {
				t.Fatalf("%+v: a packet that does not do ECN was marked", c.ecn)
			}
		}
		if dev := 4 * math.Sqrt(c.want*(1-c.want)/n); math.Abs(float64(marked)/n-c.want) > dev {
			t.Errorf("%+v at %d bytes: %v marked, want %v ± %.2g", c.ecn, c.queue, float64(marked)/n, c.want, dev)
		}
		if p.Stats().Marked != uint64(marked) {
			t.Errorf("%d counted as marked, want %d", p.Stats().Marked, marked)
		}
	}
}

// TestMarkingPoint: which packets of a burst are marked. On enqueue those that
// find more than K (DCTCP §3.1), on dequeue those that leave more than K behind
// (as the switches of the RDMA papers' simulations do).
func TestMarkingPoint(t *testing.T) {
	for _, c := range []struct {
		name string
		at   ECN
		want string
	}{
		// Packet 0 is sent at once. 1 finds nothing, 2 one packet, ...
		{"enqueue", ECN{Kmin: 3000, Kmax: 3000, Enqueue: true}, ".....xxx"},
		// Packet 1 leaves 6 behind, ..., 7 none.
		{"dequeue", ECN{Kmin: 3000, Kmax: 3000}, ".xxx...."},
	} {
		n, a, b, _ := pair(PortConfig{Rate: 10e9, ECN: c.at})
		at := &marks{net: n}
		n.Bind(0, nil, at)
		for range 8 {
			p := n.Pool.Get()
			p.Dst, p.Size, p.ECT = b.ID, 1000, true
			a.Send(0, p, DataClass)
		}
		n.Engine.Run(engine.Never)
		if string(at.seen) != c.want {
			t.Errorf("%s: marked %s, want %s", c.name, at.seen, c.want)
		}
	}
}

type marks struct {
	net  *Network
	seen []byte
}

func (m *marks) Receive(_ engine.Time, p *Packet) {
	if p.CE {
		m.seen = append(m.seen, 'x')
	} else {
		m.seen = append(m.seen, '.')
	}
	m.net.Pool.Put(p)
}
