package tcp

import (
	"testing"

	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

// TestAbort ends connections at any moment, from without and from what is told
// of a message; the next flow on the same connection is not touched by what the
// last one left, and nothing stays.
func TestAbort(t *testing.T) {
	for seed := range uint64(300) {
		rnd := seeded(seed)
		r := newRig(t, Defaults(), link{10 * gbit, 5 * us, 0}, link{10 * gbit, 5 * us, 50_000}, link{10 * gbit, 5 * us, 50_000})
		r.box.filter = func(engine.Time, *network.Packet) verdict { return verdict{drop: rnd.IntN(100) == 0} }
		c := r.stack.Open(r.flow(0, 0, 1, 0))
		c.Send(0, 0, Endless)
		at := engine.Time(rnd.Int64N(int64(2 * ms)))
		r.run(at)
		c.Abort(at)
		if r.stack.live() != 0 {
			t.Fatalf("seed %d: %d connections are there after the only one was aborted", seed, r.stack.live())
		}
		const next = 200 * segment
		r.stack.Start(at, r.flow(1, 2, 1, next)) // the same Conn, another host
		d := r.stack.Open(r.flow(2, 1, 2, 0))
		r.onDone = func(now engine.Time, id network.FlowID) {
			r.done = append(r.done, id)
			if id == 100 {
				d.Abort(now)
				r.stack.Start(now, r.flow(3, 0, 2, 5000))
			}
		}
		d.Send(at, 100, 10_000)
		d.Send(at, 101, 1_000_000)
		r.finish()
		if n := r.stack.Counters(); len(r.done) != 3 || n.Goodput < next+15_000 {
			t.Fatalf("seed %d: %v are done, %+v", seed, r.done, n)
		}
	}
}
