package experiment

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/loomfabric/loom/internal/measure"
	"github.com/loomfabric/loom/internal/yamlfile"
	"github.com/loomfabric/loom/sim"
)

// Runner makes runs of models: in virtual time, or over real daemons.
type Runner interface {
	// Name is the runner's name on the command line, and in records.
	Name() string
	// Version names the program that makes the runs: results of another version are
	// made again.
	Version() string
	// Check reports what is wrong with a model that reading it does not show, and
	// what the runner cannot honour.
	Check(*sim.Spec) yamlfile.Errors
	// Run makes one run. When ctx ends it returns soon: what it found until then
	// does not count.
	Run(ctx context.Context, spec *sim.Spec) (*measure.Result, error)
	// Jobs is how many runs may go side by side, at most.
	Jobs() int
}

// The names of runners.
const (
	OnSim = "sim"
	OnLab = "lab"
)

// RunOptions are how to make a size's runs.
type RunOptions struct {
	Runner Runner
	Jobs   int  // side by side; at least 1, at most as many as the runner allows
	Force  bool // make again what is there
	// AnyVersion keeps results of other versions of the program.
	AnyVersion bool
	// Shard is the share of the runs that is to be made.
	Shard Shard
	// Report is called for every run that begins or ends, one at a time; nil: it is
	// not.
	Report func(Event)
}

// Event is the beginning or the end of a run.
type Event struct {
	ID          string
	Begins      bool
	Err         error
	Result      *measure.Result // of its end; nil if it failed
	Wall        time.Duration
	Done, Total int           // runs of this call
	Left        time.Duration // about; 0 as long as none is done
	Running     []string      // in the order in which they began; the receiver must not keep it
}

// Summary is what a call came to.
type Summary struct {
	Total  int // runs of the size, or of the shard of it
	Kept   int // were there already
	Made   int
	Failed []error
}

// Failure joins what went wrong with runs; nil if nothing.
func (s *Summary) Failure() error {
	if len(s.Failed) == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d runs failed:\n%w", len(s.Failed), s.Total, errors.Join(s.Failed...))
}

// Run makes the runs of s that the store lacks, and puts each there as soon as it
// is finished. A run that fails does not keep the others from being made. When ctx ends Run
// returns its error soon; what was finished until then is kept.
func (st *Store) Run(ctx context.Context, s *Size, opt RunOptions) (*Summary, error) {
	unlock, err := st.lock(opt.Shard)
	if err != nil {
		return nil, err
	}
	defer unlock()
	runs := opt.Shard.of(s)
	sum := &Summary{Total: len(runs)}
	type job struct {
		run  *Run
		hash string
	}
	var jobs []job
	for _, run := range runs {
		hash, err := run.Hash()
		if err != nil {
			return nil, err
		}
		// A result that cannot be read is made again.
		rec, err := st.Get(run.ID)
		if err == nil && rec != nil && rec.Hash == hash && (rec.Version == opt.Runner.Version() || opt.AnyVersion) && !opt.Force {
			sum.Kept++
			continue
		}
		jobs = append(jobs, job{run, hash})
	}
	w := &work{store: st, size: s, opt: opt, sum: sum, total: len(jobs), begun: time.Now()}
	var workers errgroup.Group
	workers.SetLimit(max(min(opt.Jobs, opt.Runner.Jobs()), 1))
	for _, j := range jobs {
		workers.Go(func() error {
			w.do(ctx, j.run, j.hash)
			return nil
		})
	}
	_ = workers.Wait() // failures are in the summary
	return sum, ctx.Err()
}

// work is what the workers of one call share.
type work struct {
	store *Store
	size  *Size
	opt   RunOptions
	total int
	begun time.Time

	mu      sync.Mutex // guards what follows, and calls of opt.Report
	sum     *Summary
	done    int
	running []string
}

// report completes an event and hands it on; the caller holds the lock.
func (w *work) report(e Event) {
	if w.opt.Report == nil {
		return
	}
	e.Done, e.Total, e.Running = w.done, w.total, w.running
	if w.done > 0 {
		e.Left = time.Since(w.begun) / time.Duration(w.done) * time.Duration(w.total-w.done)
	}
	w.opt.Report(e)
}

// do makes one run and stores it.
func (w *work) do(ctx context.Context, run *Run, hash string) {
	if ctx.Err() != nil {
		return
	}
	w.mu.Lock()
	w.running = append(w.running, run.ID)
	w.report(Event{ID: run.ID, Begins: true})
	w.mu.Unlock()
	begun := time.Now()
	res, err := w.call(ctx, run)
	if ctx.Err() != nil {
		return // whatever it says, it was not let finish
	}
	if err == nil {
		err = w.store.put(w.opt.Shard, &Record{
			Experiment: w.size.Experiment.Name, Size: w.size.Name, ID: run.ID,
			Scheme: run.Scheme, Load: run.Load, Axis: run.Axis, Seed: run.Seed,
			On: w.opt.Runner.Name(), Version: w.opt.Runner.Version(), Hash: hash, Spec: run.Spec, Result: res,
		})
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done++
	w.running = slices.DeleteFunc(w.running, func(id string) bool { return id == run.ID })
	e := Event{ID: run.ID, Err: err, Wall: time.Since(begun)}
	if err != nil {
		w.sum.Failed = append(w.sum.Failed, fmt.Errorf("%s: %w", run.ID, err))
	} else {
		w.sum.Made++
		e.Result = res
	}
	w.report(e)
}

// call makes the run; a panic is its failure, not that of the others.
func (w *work) call(ctx context.Context, run *Run) (res *measure.Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	res, err = w.opt.Runner.Run(ctx, run.Spec)
	if err == nil && res == nil {
		err = errors.New("it has no result")
	}
	return res, err
}
