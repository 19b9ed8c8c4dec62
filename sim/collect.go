package sim

import (
	"fmt"
	"maps"
	"slices"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/internal/measure"
	"github.com/loomfabric/loom/internal/stat"
	"github.com/loomfabric/loom/leaf"
	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
	"github.com/loomfabric/loom/sim/traffic"
)

// collector gathers what a run measures while it goes on.
type collector struct {
	r         *run
	fct       *measure.FCT
	workloads []workloadCount
	open      int // flows under way that a run waits for
	measured  int // flows that started in the window
	queues    []observed
	leaves    []string // whose uplinks are compared
	imbalance []*measure.Imbalance
	reorder   *reordering // nil: nobody asked for it
	progress  *progress   // nil: nobody asked for it

	// When the window opens and closes; a run that ended before has no end yet.
	opened, closed engine.Time
	windows        int
	goodput        [2]uint64 // of all flows
	uplinks        [2][]uint64
	phases         []phase

	wrong    int // flows that beat the idle network
	firstErr error
}

// phase is the time from the start of a workload on, until the next one's.
type phase struct {
	from    engine.Time
	uplinks []uint64 // what the leaves' uplinks had sent at its beginning
}

// starts returns the phases of a run whose workloads start at different times.
func starts(r *run) (out []phase) {
	var times []engine.Time
	for i := range r.spec.Workloads {
		times = append(times, max(r.from, engine.Of(r.spec.Workloads[i].Start)))
	}
	slices.Sort(times)
	if times = slices.Compact(times); len(times) > 1 {
		for _, t := range times {
			out = append(out, phase{from: t})
		}
	}
	return out
}

// workloadCount is what one workload's flows came to.
type workloadCount struct {
	flows, done int
	endless     bool         // its flows have no end
	bytes       uint64       // that arrived in the window
	ended       engine.Time  // when the last flow did; 0: none has
	fct         *measure.FCT // nil: the run has no other workload
}

// observed are ports whose queues are watched, and shown as one.
type observed struct {
	name  string
	ports []*network.Port
	hists []*network.Occupancy // nil: the window has not opened
}

func sentBytes(p *network.Port) (sum uint64) {
	s := p.Stats()
	for _, b := range s.Bytes {
		sum += b
	}
	return sum
}

func newCollector(r *run) (*collector, error) {
	m := &r.spec.Measure
	classes := measure.SizeClasses(uint64(m.Small), uint64(m.Large))
	last := uint64(0)
	for _, b := range m.Buckets {
		classes = append(classes, measure.Class{Name: fmt.Sprintf("to-%d", uint64(b)), From: last, To: uint64(b) + 1})
		last = uint64(b) + 1
	}
	c := &collector{
		r: r, fct: measure.NewFCT(classes),
		workloads: make([]workloadCount, len(r.spec.Workloads)), phases: starts(r),
	}
	for i := range c.workloads {
		if len(c.workloads) > 1 {
			c.workloads[i].fct = measure.NewFCT(measure.SizeClasses(uint64(m.Small), uint64(m.Large)))
		}
	}
	if err := c.watchQueues(); err != nil {
		return nil, err
	}
	c.watchReordering()
	c.watchProgress()
	c.watchUplinks()
	return c, nil
}

// watchUplinks samples the throughput of leaves' uplinks in the window.
func (c *collector) watchUplinks() {
	var looks []func()
	for _, l := range c.r.topo.Leaves {
		ports := l.Uplinks()
		if len(ports) < 2 || c.r.spec.Measure.Imbalance == 0 {
			continue
		}
		rec, sent, up := measure.NewImbalance(len(ports), 100_000), make([]uint64, len(ports)), make([]bool, len(ports))
		c.leaves, c.imbalance = append(c.leaves, l.Name), append(c.imbalance, rec)
		looks = append(looks, func() {
			for i, p := range ports {
				sent[i], up[i] = sentBytes(p), p.Up()
			}
			rec.Sample(sent, up)
		})
	}
	c.r.every(c.r.spec.Measure.Imbalance, looks...)
}

// The resolution of queue lengths, bytes, and how many steps of it are told
// apart: up to 16 MB.
const (
	queueWidth = 2000
	queueSteps = 8000
)

// besideDown selects, and names, the ports beside links that are down from the start.
const besideDown = "beside-down"

// watchQueues finds the ports that are observed.
func (c *collector) watchQueues() error {
	add := func(p *network.Port) {
		c.queues = append(c.queues, observed{name: p.Name, ports: []*network.Port{p}})
	}
	for _, name := range c.r.spec.Measure.Queues {
		switch name {
		case "leaves":
			for _, l := range c.r.topo.Leaves {
				for _, p := range l.Uplinks() {
					add(p)
				}
			}
		case "spines":
			for _, l := range c.r.topo.Links {
				if _, host := l.A.Node.(*network.Host); !host {
					add(l.B)
				}
			}
		case besideDown:
			if ports := c.r.topo.BesideDown(); len(ports) > 0 {
				c.queues = append(c.queues, observed{name: besideDown, ports: ports})
			}
		default:
			p, err := c.r.topo.Port(name)
			if err != nil {
				return fmt.Errorf("measure.queues: %w", err)
			}
			add(p)
		}
	}
	return nil
}

// observe begins to watch queues. A port that is among several has one histogram.
func (c *collector) observe(now engine.Time) {
	hists := map[*network.Port]*network.Occupancy{}
	for i := range c.queues {
		q := &c.queues[i]
		for _, p := range q.ports {
			if hists[p] == nil {
				hists[p] = p.Observe(now, queueWidth, queueSteps)
			}
			q.hists = append(q.hists, hists[p])
		}
	}
}

// at is called between two steps of the run; the window's ends are among them.
func (c *collector) at(now engine.Time) {
	switch now {
	case c.r.from:
		c.opened = now
		c.window()
		c.observe(now)
	case c.r.until:
		c.closed = now
		c.window()
	}
	for i := range c.phases {
		if p := &c.phases[i]; p.from == now {
			p.uplinks = c.sent()
		}
	}
}

// sent returns what the leaves' uplinks have sent, leaf by leaf.
func (c *collector) sent() (out []uint64) {
	for _, l := range c.r.topo.Leaves {
		for _, p := range l.Uplinks() {
			out = append(out, sentBytes(p))
		}
	}
	return out
}

// window notes the counters at an end of the window.
func (c *collector) window() {
	r, end := c.r, c.windows
	c.windows++
	c.goodput[end] = r.transport.goodput() + r.datagrams.counters().Goodput
	c.uplinks[end] = c.sent()
	// Of flows without an end, what arrived between the two counts.
	for _, f := range r.flows {
		switch w := &c.workloads[f.Tag]; {
		case f.Bytes != traffic.Endless:
		case end == 0:
			w.bytes -= r.progress(f)
		default:
			w.bytes += r.progress(f)
		}
	}
}

// progress returns how much of a flow without an end has arrived, bytes.
func (r *run) progress(f *traffic.Flow) uint64 {
	if f.Rate > 0 {
		return r.datagrams[f.ID].Counters().Goodput
	}
	return r.endless[f.ID].Goodput()
}

// counts tells whether a flow is among those that are measured.
func (c *collector) counts(f *traffic.Flow) bool {
	return f.Start >= c.r.from && f.Start < c.r.until && f.Bytes != traffic.Endless
}

// begin notes a flow that starts.
func (c *collector) begin(f *traffic.Flow) {
	if f.Bytes == traffic.Endless {
		c.workloads[f.Tag].flows++
		c.workloads[f.Tag].endless = true
		return
	}
	c.open++
	if c.counts(f) {
		c.measured++
		c.workloads[f.Tag].flows++
	}
}

// stop notes that a flow without an end was stopped.
func (c *collector) stop(f *traffic.Flow) {
	if c.windows == 1 {
		c.workloads[f.Tag].bytes += c.r.progress(f)
	}
}

// done notes a flow that has ended.
func (c *collector) done(now engine.Time, f *traffic.Flow) {
	c.open--
	w := &c.workloads[f.Tag]
	w.ended = now
	if now >= c.r.from && now < c.r.until {
		w.bytes += f.Bytes
	}
	if c.counts(f) {
		w.done++
		idle, took := c.r.transport.idle(f), now-f.Start
		if took < idle && took >= c.r.floor(f, idle) {
			idle = took
		}
		if err := slowerThanIdle(took, idle); err != nil {
			if c.wrong++; c.firstErr == nil {
				c.firstErr = fmt.Errorf("a flow of %d bytes: %w", f.Bytes, err)
			}
		}
		c.count(f, took, idle, (*measure.FCT).Add)
	}
}

// count records a flow's time with all flows, and with those of its workload.
func (c *collector) count(f *traffic.Flow, took, idle engine.Time, record func(t *measure.FCT, bytes uint64, took, idle float64)) {
	record(c.fct, f.Bytes, took.Seconds(), idle.Seconds())
	if own := c.workloads[f.Tag].fct; own != nil {
		record(own, f.Bytes, took.Seconds(), idle.Seconds())
	}
}

// slowerThanIdle reports a flow that was faster than in an idle network: then the
// idle time is wrong. Rounding on the way explains a nanosecond, or a part in a
// million.
func slowerThanIdle(took, idle engine.Time) error {
	if idle <= 0 {
		return fmt.Errorf("an idle completion time of %v: it must be above 0", idle)
	}
	if idle-took > max(engine.Nanosecond, idle/1_000_000) {
		return fmt.Errorf("it took %v, but %v in an idle network: the idle time is wrong", took, idle)
	}
	return nil
}

// floor is the least time that a flow can take, idle if it had one path for
// itself. Only what sends a flow's packets by several paths can be faster than
// that: the last packet then need not wait for the one before it, and slow links
// of the fabric add up. Nothing is faster than the hosts' own links, though.
// Paths that are not alike, or come and go, and TCP's idle times between sizes
// that were simulated, are good for a part in a hundred.
func (r *run) floor(f *traffic.Flow, idle engine.Time) engine.Time {
	s := r.spec
	single := balance.Find(s.Scheme).Fixed && s.Transport.Subflows < 2
	if single && !r.uneven {
		return idle - idle/100
	}
	out, in := r.topo.Hosts[f.Src].Port, r.topo.Hosts[f.Dst].Port.Peer
	rate := min(out.Rate, in.Rate)
	return engine.Time(float64(f.Bytes)*8/float64(rate)*float64(engine.Second)) + out.Delay + in.Delay
}

// result sums up. It reports what would make the numbers worthless: packets that
// came from nowhere, or flows faster than light.
func (r *run) result(why string) (*measure.Result, error) {
	c, now := r.collect, r.group.Now()
	for c.windows < 2 { // it ended early
		c.closed = now
		c.window()
	}
	for _, id := range slices.Sorted(maps.Keys(r.flows)) {
		if f := r.flows[id]; c.counts(f) {
			c.count(f, now-f.Start, r.transport.idle(f), (*measure.FCT).Unfinished)
		}
	}
	if c.firstErr != nil {
		return nil, fmt.Errorf("a bug in the simulator: %d flows were faster than the idle network; the first: %w", c.wrong, c.firstErr)
	}
	ledger := r.net.Ledger()
	if err := ledger.Check(); err != nil {
		return nil, fmt.Errorf("a bug in the simulator: %w", err)
	}
	s := r.spec
	seconds := max(c.closed-c.opened, 1).Seconds()
	out := &measure.Result{
		Scheme: s.Scheme, Seed: s.Seed, End: why, LengthS: now.Seconds(), Flows: c.measured,
		GoodputBps: float64(c.goodput[1]-c.goodput[0]) * 8 / seconds,
		Transport:  maps.Collect(stat.Counters(r.transport.counters())), Drops: map[string]uint64{},
		Conservation: measure.Conservation{
			Made: ledger.Made, Delivered: ledger.Delivered + ledger.Consumed, Dropped: ledger.TotalDropped(),
			InFlight: ledger.Queued + ledger.Flying + ledger.Held,
		},
		Events: r.group.Handled(), PacketHops: r.net.Hops(),
	}
	out.Conservation.LostPercent = percent(out.Conservation.Dropped, out.Conservation.Made)
	for i := range s.Workloads {
		if out.Load == 0 {
			out.Load = s.Workloads[i].Load
		}
		w := r.workload(i)
		out.Workloads = append(out.Workloads, w)
		out.Unfinished += w.Unfinished
	}
	for reason, n := range ledger.Dropped {
		if n > 0 {
			out.Drops[network.Reason(reason).String()] = n
		}
	}
	out.FCT = c.fct.Summary()
	c.distributions(out, now)
	r.switches(out)
	return out, nil
}

// workload sums up one workload.
func (r *run) workload(i int) measure.WorkloadResult {
	c, w := &r.collect.workloads[i], &r.spec.Workloads[i]
	out := measure.WorkloadResult{Name: w.Name, Flows: c.flows, Unfinished: c.flows - c.done, EndedS: c.ended.Seconds()}
	if c.endless {
		out.Unfinished = 0
	}
	if c.fct != nil {
		out.FCT = c.fct.Summary()
	}
	from := max(r.collect.opened, engine.Of(w.Start))
	if to := min(r.collect.closed, engine.Of(w.Start+w.Duration)); to > from {
		out.GoodputBps = float64(c.bytes) * 8 / (to - from).Seconds()
	}
	if in := r.incasts[i]; in != nil && in.Finished() > 0 {
		out.EffectivePercent = 100 * in.Throughput() / float64(r.topo.Hosts[in.Client].Port.Peer.Rate)
	}
	return out
}

// curvePoints is how many points of a distribution a result keeps.
const curvePoints = 100

func (c *collector) distributions(out *measure.Result, now engine.Time) {
	out.Imbalance = measure.Distributions(c.leaves, c.imbalance)
	if c.progress != nil {
		out.Progress = c.progress.intervals
	}
	for _, q := range c.queues {
		if q.hists == nil {
			continue
		}
		hist := network.Together(now, q.hists...)
		d := measure.Distribution{Name: q.name, N: uint64(len(q.ports)), Mean: hist.Mean(now), Max: float64(hist.Peak())}
		at := func(p float64) float64 { return min(float64(hist.Quantile(now, p)), d.Max) }
		quantiles(&d, at)
		for i := 0; i <= curvePoints; i++ {
			share := float64(i) / curvePoints
			d.CDF = append(d.CDF, measure.Point{X: at(share), Y: share})
		}
		out.Queues = append(out.Queues, d)
	}
	out.Uplinks = c.shares(c.uplinks[0], c.uplinks[1], "")
	for i, p := range c.phases {
		if p.uplinks == nil {
			break // the run had ended by then
		}
		end := c.uplinks[1]
		if i+1 < len(c.phases) && c.phases[i+1].uplinks != nil {
			end = c.phases[i+1].uplinks
		}
		out.Phases = append(out.Phases, c.shares(p.uplinks, end, measure.FromPhase(p.from.Duration()))...)
	}
}

// quantiles fills in the quantiles of a distribution.
func quantiles(d *measure.Distribution, at func(p float64) float64) {
	d.P50, d.P90, d.P95, d.P99, d.P999 = at(0.5), at(0.9), at(0.95), at(0.99), at(0.999)
}

// shares returns what the leaves' uplinks sent between two looks at them.
func (c *collector) shares(from, to []uint64, suffix string) (out []measure.LinkShare) {
	i := 0
	for _, l := range c.r.topo.Leaves {
		first := i
		for _, p := range l.Uplinks() {
			out = append(out, measure.LinkShare{Link: p.Name + suffix, Bytes: to[i] - from[i]})
			i++
		}
		measure.Share(out[first:])
	}
	return out
}

// switches adds what leaves, spines and ports counted.
func (r *run) switches(out *measure.Result) {
	out.Scheduler = r.schemeCounters()
	r.conweaveResult(out)
	if u := r.datagrams.counters(); u.Sent > 0 {
		maps.Insert(out.Transport, stat.Counters(&u))
	}
	pfc := map[string]uint64{}
	for _, p := range r.net.Ports {
		s := p.Stats()
		pfc["pauses"] += s.Pauses
		pfc["paused_ns"] += uint64(s.Paused.Duration())
	}
	if r.spec.Topology.PFC {
		out.PFC = pfc
	}
}

// schemeCounters lists what the scheme counted in all leaves, by the names of the
// counters' tags: its own with own_ before them, its receivers' with receiver_.
func (r *run) schemeCounters() map[string]uint64 {
	var schemes []leaf.SchemeStats
	var receivers []leaf.ReceiverStats
	for _, l := range r.topo.Leaves {
		schemes = leaf.AddSchemes(schemes, l.Brain().SchemeStats())
		receivers = leaf.AddReceivers(receivers, l.Brain().ReceiverStats())
	}
	for _, s := range r.topo.Spines {
		if s.Brain() != nil {
			schemes = leaf.AddSchemes(schemes, s.Brain().SchemeStats())
		}
	}
	out := map[string]uint64{}
	for i := range schemes {
		s := &schemes[i]
		out["decisions"] += s.Decisions
		list(out, "flowlets_", &s.Flowlets)
		if s.Own != nil {
			list(out, "own_", s.Own)
		}
	}
	for _, x := range receivers {
		if s := balance.Find(r.spec.Scheme); s.Wire != 0 && balance.Find(x.Scheme).Wire == s.Wire {
			list(out, "receiver_", x.Stats)
		}
	}
	return out
}

// list adds counters to those of the same names: what their tags say behind a prefix.
func list(out map[string]uint64, prefix string, counters any) {
	for name, n := range stat.Counters(counters) {
		out[prefix+name] += n
	}
}
