package balance

import (
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// A leaf that has said goodbye or fallen silent is sent plain packets, and its flows go on
// when it is back: the same one, as nothing was wrong but some HELLOs, or one that has
// restarted and knows none of the flows. Nothing is lost or comes twice on the way, nothing
// is held that does not come free, and each flow is in order again from its first packet
// with marks on.
func TestFlowsGoOnWhenAPeerIsBack(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		forReceivers(t, func(t *testing.T, s *Scheme, section Params, seed uint64) {
			w := newWay(t, s, seed, section)
			w.view.Capable = overlay.NewCapability(2)
			longest := time.Duration(w.receiver.Grace()) / 2
			const flows, packets = 5, 700 // more than reorder.Young
			seq := 0
			send := func(n int) {
				for range n {
					seq++
					for flow := range flows {
						if w.view.Capable.Standing(1, w.now) == overlay.Proved {
							w.view.Capable.Confirm(1, w.now)
						}
						w.send(flow, seq, longest)
						w.pass(w.now.Add(time.Duration(w.rng.Int64N(int64(longest) / 50))))
					}
				}
			}
			rest := func() { w.pass(w.now.Add(3 * longest)) }
			w.view.Capable.Confirm(1, w.now)
			send(packets)
			w.view.Capable.Revoke(1, overlay.Silent) // packets are under way, and some are held
			send(100)
			rest()
			if restarted {
				for q, ok := w.receiver.Flush(w.now); ok; q, ok = w.receiver.Flush(w.now) {
					w.drain(q)
				}
				fresh := newWay(t, s, seed+100, section)
				w.receiver, w.holds = fresh.receiver, fresh.holds
			}
			w.disorder = 0
			w.view.Capable.Confirm(1, w.now)
			send(packets)
			rest()
			w.pass(w.now.Add(2 * time.Second))
			if want := flows * seq; w.arrived != want || w.disorder != 0 || w.holds.Total() != 0 || w.receiver.Deadline() != reorder.Never {
				t.Errorf("restarted: %v: %d of %d came out, %d behind a later one; %d are held", restarted, w.arrived, want, w.disorder, w.holds.Total())
			}
		})
	}
}

// A peer that is plain for less time than its packets are under way: some change places
// with plain ones, since these have no numbers, and that is all.
func TestShortRevocations(t *testing.T) {
	forReceivers(t, func(t *testing.T, s *Scheme, section Params, seed uint64) {
		w := newWay(t, s, seed, section)
		w.view.Capable = overlay.NewCapability(2)
		longest := time.Duration(w.receiver.Grace()) / 2
		const flows, packets, every = 5, 1500, 150
		for seq := 1; seq <= packets; seq++ {
			if w.view.Capable.Confirm(1, w.now); seq%every == 0 {
				w.view.Capable.Revoke(1, overlay.Silent)
			}
			for flow := range flows {
				w.send(flow, seq, longest)
				w.pass(w.now.Add(time.Duration(w.rng.Int64N(int64(longest) / 50))))
			}
		}
		w.pass(w.now.Add(2 * time.Second))
		// As many as are sent by a flow in the longest delay, at each end of each time.
		near := 2 * flows * packets / every * int(mono.Time(longest)/(mono.Time(longest)/100)/flows)
		if want := flows * packets; w.arrived != want || w.disorder > near || w.holds.Total() != 0 {
			t.Errorf("%d of %d came out, %d behind a later one, at most %d may be; %d are held", w.arrived, want, w.disorder, near, w.holds.Total())
		}
	})
}
