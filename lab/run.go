package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/internal/measure"
	"github.com/loomfabric/loom/internal/spread"
	"github.com/loomfabric/loom/internal/workload"
)

// RunOptions are the command line's additions to the file.
type RunOptions struct {
	Keep   bool   // leave the lab up
	Scheme string // instead of the file's; "": the file's
	// Sample is how often the leaves' uplinks are read; 0: only from fault to
	// fault. The shortest is 10 ms.
	Sample time.Duration
	// Page has the report keep what [Report.HTML] draws, for which Sample must be given.
	Page     bool
	Progress io.Writer // where progress goes; nil: nowhere
}

// drainTime is how long flows may go on after the last workload's end.
const drainTime = 5 * time.Second

// Run builds the lab (unless it is up), measures it, runs workloads and faults,
// and takes it down again (unless it was up, or is to be kept). Whatever ends
// the run, a lab that it built does not stay behind.
func (l *Lab) Run(ctx context.Context, opt RunOptions) (rep *Report, err error) {
	defer l.name(&err)
	if opt.Scheme != "" {
		if err := l.override(opt.Scheme); err != nil {
			return nil, err
		}
	}
	cdfs, err := l.loadSizes()
	if err != nil {
		return nil, err
	}
	prog := newProgress(opt.Progress)
	defer prog.End()
	if l.IsUp() {
		err = l.waitReady(ctx)
	} else {
		prog.say("building %d leaves, %d spines, %d links, %d hosts", len(l.Topo.Leaves), len(l.Topo.Spines), len(l.Topo.Links), len(l.Topo.Hosts))
		var release func() error
		err = l.build(ctx, func() (err error) {
			release, err = l.startGuard()
			return err
		})
		built := err == nil
		defer func() {
			if rep == nil && err == nil {
				return // a panic: the process is about to die, and the guard will act
			}
			if built && (!opt.Keep || err != nil) {
				prog.say("taking the fabric down")
				err = errors.Join(err, l.remove())
			}
			if release != nil {
				err = errors.Join(err, release())
			}
		}()
	}
	if err != nil {
		return nil, err
	}
	hosts, stop, err := l.openHosts()
	if err != nil {
		return nil, err
	}
	defer stop()
	r := &runner{lab: l, hosts: hosts, stop: stop, cdfs: cdfs, prog: prog, every: opt.Sample, page: opt.Page}
	if err := r.run(ctx); err != nil {
		return nil, cmp.Or(ctx.Err(), err) // what fails after the end of ctx fails for that
	}
	return r.rep, nil
}

// override replaces the file's scheme. The daemons of a lab that is up have
// another one.
func (l *Lab) override(scheme string) error {
	if l.IsUp() {
		return fmt.Errorf("it is up, and its scheme was chosen then: take it down (`loomlab down`) to run it with scheme %s", scheme)
	}
	return l.File.SetScheme(scheme)
}

// loadSizes reads the distributions that workloads name; those that have none
// stay nil.
func (l *Lab) loadSizes() ([]*workload.CDF, error) {
	out := make([]*workload.CDF, len(l.File.Workloads))
	for i, w := range l.File.Workloads {
		if w.Sizes == "" {
			continue
		}
		c, err := workload.Open(w.Sizes, l.BaseDir)
		if err != nil {
			return nil, fmt.Errorf("workload %s: %w", w.Name, err)
		}
		out[i] = c
	}
	return out, nil
}

// runner is one run.
type runner struct {
	lab   *Lab
	hosts []*host
	stop  func()          // closes the hosts
	cdfs  []*workload.CDF // by workload
	prog  *progress
	every time.Duration // between samples
	page  bool          // somebody wants a page: spines are sampled, and flows kept
	rep   *Report
	marks []mark
}

// run fills in the report.
func (r *runner) run(ctx context.Context) error {
	f, begun := r.lab.File, time.Now()
	r.rep = &Report{Lab: f.Name, Dataplane: f.Dataplane, Result: &measure.Result{Scheme: f.Scheme, End: "done"}}
	r.prog.say("pinging all pairs")
	if err := r.ping(ctx); err != nil {
		return err
	}
	if len(f.Workloads)+len(f.Faults) > 0 {
		r.prog.say("measuring the idle fabric")
		if err := r.measureIdle(ctx); err != nil {
			return err
		}
		if err := r.load(ctx); err != nil {
			return err
		}
	}
	if err := r.daemons(ctx); err != nil {
		return err
	}
	r.rep.Result.Machine.WallS = time.Since(begun).Seconds()
	return nil
}

// peers returns those of some hosts, by index, that a host may talk with.
func (r *runner) peers(host int, of []int, pairs string) (out []*host) {
	for _, i := range r.lab.Topo.Candidates(host, of, pairs) {
		out = append(out, r.hosts[i])
	}
	return out
}

// everyone returns the index of every host.
func (r *runner) everyone() []int {
	all := make([]int, len(r.hosts))
	for i := range all {
		all[i] = i
	}
	return all
}

// ping fills in reachability: every ordered pair of hosts of one VNI.
func (r *runner) ping(ctx context.Context) error {
	all := r.everyone()
	rtts := make([][]time.Duration, len(r.hosts))
	var g errgroup.Group
	for i, h := range r.hosts {
		g.Go(func() (err error) {
			rtts[i], err = h.ping(ctx, r.peers(i, all, "any"))
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	out, answered := &r.rep.Reachability, []float64{}
	for i, h := range r.hosts {
		for k, to := range r.peers(i, all, "any") {
			rtt := rtts[i][k]
			out.Results = append(out.Results, PairResult{h.Name, to.Name, to.VNI, rtt >= 0, max(rtt, 0)})
			if rtt >= 0 {
				answered = append(answered, float64(rtt))
			}
		}
	}
	slices.Sort(answered)
	out.Pairs, out.Reachable = len(out.Results), len(answered)
	if out.Reachable > 0 {
		out.MedianRTT = time.Duration(spread.Quantile(answered, 0.5))
	}
	return nil
}

// tasks lists what the hosts begin in a load.
func (r *runner) tasks(l *load) (out []*task, err error) {
	t, f := r.lab.Topo, r.lab.File
	for _, w := range l.works {
		from, err := f.Select(w.From)
		if err != nil {
			return nil, err
		}
		to, err := f.Select(w.To)
		if err != nil {
			return nil, err
		}
		asking, asked := w.Askers(from, to)
		var rate float64
		if w.sizes != nil {
			rate = workload.FlowRate(w.Load, float64(t.Capacity(from, w.Of)), w.sizes.Mean()) / float64(len(asking))
		}
		peers := make([][]*host, len(r.hosts))
		if w.Type == vocab.Bulk || w.Type == vocab.UDP {
			for _, p := range t.Pairs(from, to) {
				peers[p[0]] = append(peers[p[0]], r.hosts[p[1]])
			}
		} else {
			for _, i := range asking {
				peers[i] = r.peers(i, asked, w.Pairs)
			}
		}
		for i, p := range peers {
			if len(p) > 0 {
				out = append(out, &task{work: w, at: r.hosts[i], peers: p, rate: rate})
			}
		}
	}
	return out, nil
}

// length is the time from the start to the last planned event. loadEnd is when the
// last workload stops to begin new work.
func (r *runner) length() (length, loadEnd time.Duration) {
	for _, w := range r.lab.File.Workloads {
		loadEnd = max(loadEnd, w.Start+w.Duration)
	}
	length = loadEnd
	for _, f := range r.lab.File.Faults {
		length = max(length, f.At)
	}
	return length, loadEnd
}

// load runs workloads and faults and reports what the hosts saw.
func (r *runner) load(ctx context.Context) error {
	length, loadEnd := r.length()
	l := newLoad(time.Now().Add(200*time.Millisecond), length+drainTime, r.lab.File.Workloads, r.cdfs)
	tasks, err := r.tasks(l)
	if err != nil {
		return err
	}
	running, cancel := context.WithCancel(ctx)
	finish := func() {
		cancel()
		l.tasks.Wait()
	}
	defer finish() // before the hosts are closed
	for _, h := range r.hosts {
		h.load.Store(l)
	}
	for _, t := range tasks {
		t.begin(running)
	}
	if err := r.mark(ctx, "start", 0); err != nil {
		return err
	}
	idle, total, err := cpuTimes()
	if err != nil {
		return err
	}
	samples := r.lab.startSampler(ctx, l, r.every, r.page)
	err = r.conduct(ctx, l, length)
	if err := errors.Join(err, samples.stop()); err != nil {
		return err
	}
	idle2, total2, err := cpuTimes()
	if err != nil {
		return err
	}
	unused := percent(idle2-idle, total2-total)
	r.rep.Result.Machine.CPUIdlePercent = &unused
	end := l.since()
	if err := r.mark(ctx, "end", end); err != nil {
		return err
	}
	finish()
	r.stop()
	for _, h := range r.hosts {
		h.countRoCE()
	}
	r.rep.Duration, r.rep.LoadEnd = end, loadEnd
	r.phases()
	r.rep.Uplinks = samples.series
	if r.page {
		r.rep.page = r.lab.picture(l, samples.spines)
	}
	r.rep.Result.Imbalance = samples.imbalance(r.upAt, 0, loadEnd)
	r.rep.Result.Reactions = r.lab.reactions(r.rep.Faults, r.rep.Uplinks, loadEnd)
	r.result(l)
	return nil
}

// conduct causes faults at their times and reports progress in between, until all
// tasks are over or the drain time has passed.
func (r *runner) conduct(ctx context.Context, l *load, length time.Duration) error {
	// Faults of one instant keep the file's order.
	faults := slices.SortedStableFunc(slices.Values(r.lab.File.Faults), func(a, b vocab.Fault) int { return cmp.Compare(a.At, b.At) })
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var nextLook time.Duration
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		now := l.since()
		for len(faults) > 0 && now >= faults[0].At {
			if err := r.fault(ctx, l, faults[0]); err != nil {
				return err
			}
			faults = faults[1:]
		}
		if now < nextLook {
			continue
		}
		if err := r.lab.deadDaemon(); err != nil {
			return err
		}
		nextLook = now + 500*time.Millisecond
		r.prog.load(now, length, l.bytes())
		if now >= length && (l.busy.Load() == 0 || now >= length+drainTime) {
			return nil
		}
	}
}

func (r *runner) fault(ctx context.Context, l *load, f vocab.Fault) error {
	link, action, do := f.Fail, "fail", r.lab.Fail
	if f.Restore != "" {
		link, action, do = f.Restore, "restore", r.lab.Restore
	}
	name := action + " " + link
	// The phase with the link down is counted from inside, so that what the link
	// itself sent in it is nothing, exactly.
	if f.Restore != "" {
		if err := r.mark(ctx, name, l.since()); err != nil {
			return err
		}
	}
	at := l.since()
	if err := do(link); err != nil {
		return err
	}
	r.prog.say("%s", name)
	r.rep.Faults = append(r.rep.Faults, FaultReport{Link: link, Action: action, At: at, Converged: l.since() - at})
	if f.Fail != "" {
		return r.mark(ctx, name, l.since())
	}
	return r.noteLinks()
}
