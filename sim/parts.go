package sim

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
	"github.com/loomfabric/loom/sim/rdma"
	"github.com/loomfabric/loom/sim/traffic"
)

// seat is what a run has in a part of the network.
type seat struct {
	engine *engine.Engine
	id     engine.ID
	begins []beginner // by the argument of an event
	free   []uint64   // of these, those that are not in use
	ended  []ended    // since Settle
}

// ended is a flow that is done.
type ended struct {
	at engine.Time
	id network.FlowID
}

// beginner is something that begins to send when its time has come.
type beginner interface{ Begin(now engine.Time) }

// splits reports whether the run's network has parts. With a closed loop or an incast it has
// none: the next flow begins in the very moment in which one ends, and its sender hears of
// that at once, wherever it is. The ends of a connection of MPTCP share what they know of its subflows.
func (r *run) splits() bool {
	if r.spec.Transport.Type == "mptcp" {
		return false
	}
	return !slices.ContainsFunc(r.spec.Workloads, func(w vocab.Workload) bool {
		switch w.Type {
		case vocab.Incast, vocab.Random:
			return true
		case vocab.Poisson, vocab.Trace:
			return false
		}
		return w.Sizes != "" // see source
	})
}

// split readies the run for a network with parts, if that is what it has.
func (r *run) split() {
	if !r.net.Split() {
		return
	}
	parts := r.net.Parts()
	engines := make([]*engine.Engine, len(parts))
	r.seats = make([]seat, len(parts))
	for i, p := range parts {
		engines[i] = p.Engine
		r.seats[i] = seat{engine: p.Engine}
		r.seats[i].id = p.Engine.Register(&r.seats[i])
		p.Rand = rand.New(rand.NewPCG(r.spec.Seed, 0x65636e|uint64(i+1)<<32))
	}
	r.group.Split(engines, r.topo.Lookahead(), r.net, r)
}

// Next returns when the next flow starts (parallel.Planner).
func (r *run) Next() engine.Time { return r.feed.Start() }

// Plan readies the flows that start before end (parallel.Planner).
func (r *run) Plan(end engine.Time) { r.feed.Until(end) }

// Settle deals with the flows that have ended, in the order of their ends (parallel.Planner).
func (r *run) Settle() {
	r.transport.settle()
	var all []ended
	for i := range r.seats {
		all = append(all, r.seats[i].ended...)
		r.seats[i].ended = r.seats[i].ended[:0]
	}
	slices.SortStableFunc(all, func(a, b ended) int { return cmp.Compare(a.at, b.at) })
	for _, e := range all {
		r.finish(e.at, e.id)
	}
}

// begin has a flow's sender begin: now, or in a network with parts when the source's
// part is there.
func (r *run) begin(now engine.Time, f *traffic.Flow, b beginner) {
	if r.seats == nil {
		b.Begin(now)
		return
	}
	s := &r.seats[r.topo.Hosts[f.Src].Net().Index]
	arg := uint64(len(s.begins))
	if n := len(s.free); n > 0 {
		arg = s.free[n-1]
		s.free = s.free[:n-1]
	} else {
		s.begins = append(s.begins, nil)
	}
	s.begins[arg] = b
	s.engine.At(now, s.id, arg)
}

// Handle is the engine's to call: it is time for a sender to begin.
func (s *seat) Handle(now engine.Time, arg uint64) {
	b := s.begins[arg]
	s.begins[arg] = nil
	s.free = append(s.free, arg)
	b.Begin(now)
}

// FlowDone is TCP's to call: a receiver has all of a flow.
func (r *run) FlowDone(now engine.Time, id network.FlowID) {
	if r.seats == nil {
		r.finish(now, id)
		return
	}
	s := &r.seats[r.topo.Hosts[r.flows[id].Dst].Net().Index]
	s.ended = append(s.ended, ended{now, id})
}

// Completed is RDMA's to call: a sender knows that all of a flow has arrived.
func (r *run) Completed(now engine.Time, _ *rdma.QP, m rdma.Message) {
	if r.seats == nil {
		r.finish(now, m.ID)
		return
	}
	s := &r.seats[r.topo.Hosts[r.flows[m.ID].Src].Net().Index]
	s.ended = append(s.ended, ended{now, m.ID})
}
