package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/internal/measure"
	"github.com/loomfabric/loom/internal/workload"
)

// RunOptions are the command line's additions to the file.
type RunOptions struct {
	Keep   bool   // leave the lab up
	Scheme string // instead of the file's; "": the file's
	// Sample is how often the leaves' uplinks are read; 0: only from fault to
	// fault. The shortest is 10 ms.
	Sample   time.Duration
	Progress io.Writer // where progress goes; nil: nowhere
}

// drainTime is how long flows may go on after the last workload's end.
const drainTime = 5 * time.Second

// Run builds the lab (unless it is up), measures it, runs workloads and faults,
// and takes it down again (unless it was up, or is to be kept). Whatever ends
// the run, a lab that it built does not stay behind.
func (l *Lab) Run(ctx context.Context, opt RunOptions) (rep *Report, err error) {
	if opt.Scheme != "" {
		if err := l.override(opt.Scheme); err != nil {
			return nil, l.named(err)
		}
	}
	cdfs, err := l.loadSizes()
	if err != nil {
		return nil, l.named(err)
	}
	prog := newProgress(opt.Progress)
	defer prog.End()
	if l.IsUp() {
		err = l.waitReady(ctx)
	} else {
		prog.say("building %d leaves, %d spines, %d links, %d hosts", len(l.Topo.Leaves), len(l.Topo.Spines), len(l.Topo.Links), len(l.Topo.Hosts))
		var g *guard
		err = l.build(ctx, func() (err error) {
			g, err = l.startGuard()
			return err
		})
		built := err == nil
		defer func() {
			if rep == nil && err == nil {
				return // a panic: the process is about to die, and the guard will act
			}
			if built && (!opt.Keep || err != nil) {
				prog.say("taking the fabric down")
				err = errors.Join(err, l.Down())
			}
			if g != nil {
				err = errors.Join(err, g.release())
			}
		}()
	}
	if err != nil {
		return nil, err
	}
	agents, stop, err := l.startAgents()
	if err != nil {
		return nil, l.named(err)
	}
	defer stop()
	r := &runner{lab: l, agents: agents, cdfs: cdfs, prog: prog, sample: opt.Sample}
	if rep, err = r.run(ctx); err != nil {
		return nil, l.named(err)
	}
	return rep, nil
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
		c, err := l.loadCDF(w.Sizes)
		if err != nil {
			return nil, fmt.Errorf("workload %s: %w", w.Name, err)
		}
		out[i] = c
	}
	return out, nil
}

func (l *Lab) loadCDF(name string) (*workload.CDF, error) {
	if !strings.HasSuffix(name, ".csv") {
		return workload.Builtin(name)
	}
	path := name
	if !filepath.IsAbs(path) {
		path = filepath.Join(l.BaseDir, name)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	c, err := workload.ReadCDF(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// runner is one run.
type runner struct {
	lab    *Lab
	agents []*hostAgent
	cdfs   []*workload.CDF // by workload
	prog   *progress
	idle   idleTable
	sample time.Duration
}

func (r *runner) run(ctx context.Context) (*Report, error) {
	l := r.lab
	begun := time.Now()
	rep := &Report{Lab: l.File.Name, Dataplane: l.File.Dataplane, Result: &measure.Result{Scheme: l.File.Scheme, End: "done"}}
	r.prog.say("pinging all pairs")
	if err := r.ping(ctx, rep); err != nil {
		return nil, err
	}
	if len(l.File.Workloads)+len(l.File.Faults) > 0 {
		r.prog.say("measuring the idle fabric")
		if err := r.measureIdle(ctx, rep); err != nil {
			return nil, err
		}
		if err := r.load(ctx, rep); err != nil {
			return nil, err
		}
	}
	if err := r.daemons(ctx, rep); err != nil {
		return nil, err
	}
	rep.Result.Machine.WallS = time.Since(begun).Seconds()
	return rep, nil
}

// ping fills in reachability: every ordered pair of hosts of one VNI.
func (r *runner) ping(ctx context.Context, rep *Report) error {
	hosts := r.lab.Topo.Hosts
	all := make([]int, len(hosts))
	for i := range all {
		all[i] = i
	}
	build := func(a *hostAgent) *request {
		spec := &pingSpec{Attempts: 5, Timeout: 500 * time.Millisecond}
		for _, i := range r.lab.Topo.Candidates(a.host.Index, all, "any") {
			spec.Targets = append(spec.Targets, hosts[i].Addr.Addr().String())
		}
		return &request{Op: opPing, Ping: spec}
	}
	return each(ctx, r.agents, build, func(a *hostAgent, rp *reply) error {
		for k, i := range r.lab.Topo.Candidates(a.host.Index, all, "any") {
			rep.Reachability.add(a.host.Name, hosts[i].Name, hosts[i].VNI, rp.RTTs[k])
		}
		return nil
	})
}

// tasksOf lists what a host begins.
func (r *runner) tasksOf(host int) ([]task, error) {
	t, f := r.lab.Topo, r.lab.File
	var out []task
	for i, w := range f.Workloads {
		from, err := f.Select(w.From)
		if err != nil {
			return nil, err
		}
		to, err := f.Select(w.To)
		if err != nil {
			return nil, err
		}
		tk := task{
			Workload: i, Type: w.Type, Start: w.Start, Duration: w.Duration, Seed: w.Seed, Stream: uint64(host),
			Flows: w.Flows, Persistent: w.Pool, FanIn: w.FanIn, Bytes: uint64(w.Bytes), Interval: w.Interval,
			Rate: uint64(w.Rate), Size: int(w.Size), QueuePairs: w.QueuePairs,
		}
		var peers []int
		asking, asked := w.Askers(from, to)
		if slices.Contains(asking, host) {
			peers = t.Candidates(host, asked, w.Pairs)
		}
		switch w.Type {
		case vocab.Bulk, vocab.UDP:
			peers = nil
			for _, p := range t.Pairs(from, to) {
				if p[0] == host {
					peers = append(peers, p[1])
				}
			}
		case vocab.Poisson, vocab.RoCE:
			c := r.cdfs[i]
			tk.Sizes = c.Points()
			tk.FlowRate = workload.FlowRate(w.Load, float64(t.Capacity(from, w.Of)), c.Mean()) / float64(len(asking))
		}
		for _, p := range peers {
			tk.Peers = append(tk.Peers, t.Hosts[p].Addr.Addr().String())
		}
		if len(peers) > 0 {
			out = append(out, tk)
		}
	}
	return out, nil
}

// loadEnd is when the last workload stops to begin new work.
func (r *runner) loadEnd() (d time.Duration) {
	for _, w := range r.lab.File.Workloads {
		d = max(d, w.Start+w.Duration)
	}
	return d
}

// length is the time from the start to the last planned event.
func (r *runner) length() time.Duration {
	d := r.loadEnd()
	for _, f := range r.lab.File.Faults {
		d = max(d, f.At)
	}
	return d
}

// load runs workloads and faults and collects what the agents saw.
func (r *runner) load(ctx context.Context, rep *Report) error {
	length := r.length()
	epoch := monotonic() + int64(200*time.Millisecond) // all agents have their tasks by then
	var buildErr error
	err := each(ctx, r.agents, func(a *hostAgent) *request {
		tasks, err := r.tasksOf(a.host.Index)
		buildErr = errors.Join(buildErr, err)
		return &request{Op: opStart, Start: &startSpec{
			Epoch: epoch, Length: length + drainTime, Workloads: len(r.lab.File.Workloads), Tasks: tasks}}
	}, nil)
	if err := errors.Join(buildErr, err); err != nil {
		return err
	}
	phases := &phases{lab: r.lab}
	if err := phases.mark(ctx, "start", 0); err != nil {
		return err
	}
	idle, total, err := cpuTimes()
	if err != nil {
		return err
	}
	samples := r.lab.startSampler(ctx, epoch, r.sample)
	err = r.conduct(ctx, epoch, length, phases, rep)
	if err := errors.Join(err, samples.stop()); err != nil {
		return err
	}
	idle2, total2, err := cpuTimes()
	if err != nil {
		return err
	}
	unused := percent(idle2-idle, total2-total)
	rep.Result.Machine.CPUIdlePercent = &unused
	end := time.Duration(monotonic() - epoch)
	if err := phases.mark(ctx, "end", end); err != nil {
		return err
	}
	rep.Duration, rep.LoadEnd = end, r.loadEnd()
	rep.Phases = phases.report()
	rep.Uplinks = samples.series()
	rep.Result.Imbalance = samples.imbalance(phases.upAt, 0, r.loadEnd())
	rep.Result.Reactions = r.lab.reactions(rep.Faults, rep.Uplinks, r.loadEnd())
	return r.collect(ctx, rep)
}

// conduct causes faults at their times and reports progress in between, until all
// tasks are over or the drain time has passed.
func (r *runner) conduct(ctx context.Context, epoch int64, length time.Duration, ph *phases, rep *Report) error {
	faults := sortedFaults(r.lab.File.Faults)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var nextLook time.Duration
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		now := time.Duration(monotonic() - epoch)
		for len(faults) > 0 && now >= faults[0].At {
			if err := r.fault(ctx, epoch, faults[0], ph, rep); err != nil {
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
		var received uint64
		busy := false
		err := each(ctx, r.agents, func(*hostAgent) *request { return &request{Op: opProgress} }, func(_ *hostAgent, rp *reply) error {
			received += rp.Received
			busy = busy || rp.Busy
			return nil
		})
		if err != nil {
			return err
		}
		r.prog.load(now, length, received)
		if now >= length && (!busy || now >= length+drainTime) {
			return nil
		}
	}
}

func (r *runner) fault(ctx context.Context, epoch int64, f vocab.Fault, ph *phases, rep *Report) error {
	link, action, do := f.Fail, "fail", r.lab.Fail
	if f.Restore != "" {
		link, action, do = f.Restore, "restore", r.lab.Restore
	}
	name := action + " " + link
	// The phase with the link down is counted from inside, so that what the link
	// itself sent in it is nothing, exactly.
	if f.Restore != "" {
		if err := ph.mark(ctx, name, time.Duration(monotonic()-epoch)); err != nil {
			return err
		}
	}
	at := time.Duration(monotonic() - epoch)
	if err := do(link); err != nil {
		return err
	}
	r.prog.say("%s", name)
	rep.Faults = append(rep.Faults, FaultReport{
		Link: link, Action: action, At: at, Converged: time.Duration(monotonic()-epoch) - at})
	if f.Fail != "" {
		return ph.mark(ctx, name, time.Duration(monotonic()-epoch))
	}
	return ph.state()
}
