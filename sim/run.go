package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/loomfabric/loom/config/fabric"
	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/internal/measure"
	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
	"github.com/loomfabric/loom/sim/parallel"
	"github.com/loomfabric/loom/sim/topo"
	"github.com/loomfabric/loom/sim/traffic"
)

// run is a simulation under way.
type run struct {
	spec      *Spec
	engine    *engine.Engine // of the whole network, or of what its parts share
	group     *parallel.Group
	seats     []seat // by part of the network; nil: it has none
	net       *network.Network
	topo      *topo.Topology
	transport transport
	conns     map[int]conn            // persistent ones, by Flow.Conn
	endless   map[network.FlowID]conn // of flows without an end
	datagrams datagrams
	headers   []headers               // by FlowID; none if the scheme does not want to know
	classes   []uint8                 // by flow: indexes spec.Classes, or is their number
	incasts   map[int]*traffic.Incast // by workload
	feed      *traffic.Feed
	ids       ids
	flows     map[network.FlowID]*traffic.Flow // under way
	pools     map[pairOf][]int                 // idle connections of workloads with a pool
	pooled    int                              // connections that pools have opened
	collect   *collector
	id        engine.ID
	uneven    bool // links differ, or come and go: so do paths

	// Of a fabric.yaml; nil: there is none.
	file    *fabric.File
	adopted bool     // the workloads are the file's
	vni     []uint32 // by host

	from, until, end engine.Time // measurement; and when the run is over at the latest
}

// pairOf is whose connections a pool keeps.
type pairOf struct {
	tag      int
	src, dst network.HostID
}

// ids numbers flows and connections in the network.
type ids struct{ n network.FlowID }

func (i *ids) next() network.FlowID {
	i.n++
	return i.n - 1
}

// Run simulates s, which it leaves as it is. An error says what is wrong with s;
// a run that cannot go on, or is interrupted, returns what it knows, and why it
// ended. Runs of one Spec may go side by side.
func Run(ctx context.Context, s *Spec) (*measure.Result, error) { return RunThreads(ctx, s, 1) }

// RunThreads is Run with so many threads, at most, which do not change the result.
func RunThreads(ctx context.Context, s *Spec, threads int) (*measure.Result, error) {
	started := time.Now()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	r, err := assemble(s)
	if err != nil {
		return nil, err
	}
	r.group.SetThreads(threads)
	why := r.loop(ctx)
	result, err := r.result(why)
	if err != nil {
		return nil, err
	}
	var after runtime.MemStats
	runtime.ReadMemStats(&after)
	wall := time.Since(started).Seconds()
	result.Machine = measure.Machine{WallS: wall, HopsPerS: float64(result.PacketHops) / wall, AllocBytes: after.TotalAlloc - before.TotalAlloc, Threads: max(threads, 1), MemoryBytes: after.Sys}
	return result, nil
}

// Flows returns the flows that a run of s would start, for a trace. Workloads
// whose flows wait for others to end have only their first ones in it.
func Flows(s *Spec) (traffic.Source, error) {
	r, err := assemble(s)
	if err != nil {
		return nil, err
	}
	return r.feed.Merge, nil
}

// assemble builds everything that a run needs.
func assemble(s *Spec) (*run, error) {
	s = s.clone()
	if err := s.Complete("").Or(); err != nil {
		return nil, err
	}
	r := &run{spec: s, engine: engine.New(), pools: map[pairOf][]int{}, flows: map[network.FlowID]*traffic.Flow{}, incasts: map[int]*traffic.Incast{}}
	r.id = r.engine.Register(r)
	r.group = parallel.NewGroup(r.engine)
	r.net = network.New(r.engine)
	r.net.Rand = rand.New(rand.NewPCG(s.Seed, 0x65636e)) // for ECN marks
	if err := r.build(); err != nil {
		return nil, err
	}
	r.from = engine.Of(s.Warmup)
	r.until = r.from + engine.Of(s.Duration)
	r.end = r.until + engine.Of(s.Drain)
	r.conns, r.endless, r.datagrams = map[int]conn{}, map[network.FlowID]conn{}, datagrams{}
	if s.Transport.Type == "rdma" {
		r.transport = newRDMA(r)
	} else {
		r.transport = newTCP(r)
	}
	sources, err := r.sources(r.capacities())
	if err != nil {
		return nil, err
	}
	if r.collect, err = newCollector(r); err != nil {
		return nil, err
	}
	if r.split(); r.seats == nil {
		r.feed = traffic.NewFeed(r.engine, r, sources...)
	} else {
		r.feed = traffic.NewPlan(r, sources...)
	}
	return r, nil
}

// clone copies what completing a Spec changes.
func (s *Spec) clone() *Spec {
	c := *s
	c.Workloads = append([]vocab.Workload(nil), s.Workloads...)
	c.Sections = s.Sections.Clone()
	c.Topology.Overrides = append(c.Topology.Overrides[:0:0], s.Topology.Overrides...)
	return &c
}

// StartFlow is the feed's to call.
func (r *run) StartFlow(now engine.Time, flow traffic.Flow) {
	f := &flow
	f.ID = r.ids.next()
	if r.spec.Workloads[f.Tag].Pool {
		f.Conn = r.take(f)
	}
	r.flows[f.ID] = f
	r.collect.begin(f)
	switch {
	case f.Rate > 0:
		r.datagrams.start(now, r, f)
		return
	case f.Bytes == traffic.Endless && f.Until < r.end:
		r.engine.At(f.Until, r.id, uint64(f.ID))
	}
	r.send(now, f)
}

// Handle is the engine's to call: the time of a flow without an end is up.
func (r *run) Handle(now engine.Time, arg uint64) {
	f := r.ended(network.FlowID(arg))
	r.collect.stop(f)
	r.endless[f.ID].Abort(now)
	delete(r.endless, f.ID)
}

// ended removes a flow from those that are under way.
func (r *run) ended(id network.FlowID) *traffic.Flow {
	f := r.flows[id]
	if f == nil {
		panic(fmt.Sprintf("sim: flow %d has ended twice, or never began", id))
	}
	delete(r.flows, id)
	return f
}

// take returns a connection that is idle, or a new one.
func (r *run) take(f *traffic.Flow) int {
	key := pairOf{f.Tag, f.Src, f.Dst}
	idle := r.pools[key]
	if n := len(idle); n > 0 {
		r.pools[key] = idle[:n-1]
		return idle[n-1]
	}
	r.pooled++
	return r.feed.Conns() + r.pooled - 1
}

// finish deals with a flow that is done.
func (r *run) finish(now engine.Time, id network.FlowID) {
	f := r.ended(id)
	r.collect.done(now, f)
	if r.spec.Workloads[f.Tag].Pool {
		key := pairOf{f.Tag, f.Src, f.Dst}
		r.pools[key] = append(r.pools[key], f.Conn)
		f.Conn = traffic.NoConn // as the feed knows it
	}
	r.feed.Done(now, *f)
}

// The reasons for a run's end.
const (
	endDone        = "done"
	endTime        = "time"
	endStuck       = "stuck"
	endInterrupted = "interrupted"
)

// How much may happen between two looks at the rest of the world: so many events
// take less than a second. What decides is the same wherever a run is made.
const (
	muchEvents = 1_000_000
	fewEvents  = muchEvents / 8
	minStep    = engine.Microsecond
	maxStep    = 2 * engine.Millisecond
	// stuckFor is how long ports must hold each other back, at stuckLooks looks at
	// least, to be taken for stuck.
	stuckFor   = engine.Millisecond
	stuckLooks = 20
)

// loop lets time pass until there is a reason to end.
func (r *run) loop(ctx context.Context) string {
	step := min(max(r.end/2000, minStep), maxStep)
	stuck, since := 0, engine.Time(0)
	r.collect.at(0)
	for now := engine.Time(0); ; {
		before := r.group.Handled()
		now = r.nextStop(now, step)
		r.group.Run(now)
		r.collect.at(now)
		switch {
		case ctx.Err() != nil:
			return endInterrupted
		case now >= r.until && r.collect.open == 0 && r.feed.Start() == engine.Never:
			return endDone
		case now >= r.end:
			return endTime
		}
		// Ports that hold each other back for long enough do so for ever.
		if len(r.net.Stuck()) == 0 {
			stuck, since = 0, now
		} else if stuck++; stuck > stuckLooks && now-since > stuckFor {
			return endStuck
		}
		switch n := r.group.Handled() - before; {
		case n > muchEvents:
			step = max(step/2, minStep)
		case n < fewEvents:
			step = min(2*step, max(r.end/2000, minStep), maxStep)
		}
	}
}

// nextStop is a step later, but no later than the next time at which something
// begins or ends.
func (r *run) nextStop(now, step engine.Time) engine.Time {
	next := now + step
	for _, t := range []engine.Time{r.from, r.until, r.end} {
		if now < t && t < next {
			next = t
		}
	}
	for i := range r.collect.phases {
		if t := r.collect.phases[i].from; now < t && t < next {
			next = t
		}
	}
	return next
}
