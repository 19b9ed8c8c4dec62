package rdma

import (
	"testing"

	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

// ConWeave §4.1, "Lossless RDMA": with PFC nothing is dropped, even of an
// incast that nothing controls and of many times the switch's memory: senders
// are paused, and all of it arrives at the receiver's line rate. Without PFC
// the same is dropped and sent again, and still arrives.
func TestIncast(t *testing.T) {
	const senders, bytes = 16, 1_000_000
	rates := make([]uint64, senders+1)
	for i := range rates {
		rates[i] = 100 * gig
	}
	dcqcn := Defaults()
	irn := Defaults()
	irn.Recovery = IRN
	for _, tc := range []struct {
		name     string
		c        Config
		pfc      *network.PFC
		lossless bool
		within   float64 // of the time that the receiver's link takes
	}{
		{"uncontrolled, PFC", quiet(GoBackN), &network.PFC{}, true, 1.01},
		{"DCQCN, PFC", dcqcn, &network.PFC{}, true, 2},
		{"DCQCN, IRN", irn, nil, false, 4},
		{"uncontrolled, no PFC", quiet(GoBackN), nil, false, 40},
	} {
		t.Run(tc.name, func(t *testing.T) {
			buffer := network.NewBuffer(network.BufferConfig{Total: 2_000_000, PFC: tc.pfc})
			l := newLabOf(t, tc.c, network.PortConfig{
				Buffer: buffer,
				ECN:    network.ECN{Kmin: 100_000, Kmax: 400_000, Pmax: 0.2},
			}, rates...)
			for i := range senders {
				l.open(i+1, 0).Post(0, bytes, 0)
			}
			paused := false
			for len(l.done) < senders && l.e.Pending() > 0 {
				l.e.Run(l.e.Now() + 5*usec)
				paused = paused || l.hosts[1].Port.Paused()
			}
			end := l.e.Now()
			l.run()
			n, g := l.s.Counters(), l.n.Ledger()
			t.Logf("%v, paused %v, %d dropped, %+v", end, paused, g.TotalDropped(), n)
			if n.Delivered != senders*bytes || n.Messages != senders {
				t.Errorf("%d of %d bytes arrived, %d of %d messages are complete", n.Delivered, senders*bytes, n.Messages, senders)
			}
			link := engine.Time(senders*bytes/1000*1058) * 80 // ps
			if took := float64(end) / float64(link); took < 1 || took > tc.within {
				t.Errorf("it took %v, %.3f times what the link takes; want at most %.2f times", end, took, tc.within)
			}
			if tc.lossless {
				if d := g.TotalDropped(); d != 0 || n.Retransmitted != 0 || n.Nacks != 0 || n.Timeouts != 0 {
					t.Errorf("%d packets were dropped, and %d sent again", d, n.Retransmitted)
				}
				if tc.c.Control == Uncontrolled && !paused {
					t.Error("no sender was paused")
				}
			} else if tc.c.Recovery == IRN && n.Retransmitted != g.TotalDropped() {
				t.Errorf("IRN sent %d packets again for %d that were dropped", n.Retransmitted, g.TotalDropped())
			} else if g.Dropped[network.BufferFull] == 0 || n.Retransmitted == 0 {
				t.Errorf("%d packets found the buffer full, and %d were sent again; want some", g.Dropped[network.BufferFull], n.Retransmitted)
			}
		})
	}
}
