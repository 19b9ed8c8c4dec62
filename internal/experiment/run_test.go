package experiment

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/measure"
	"github.com/loomfabric/loom/internal/yamlfile"
	"github.com/loomfabric/loom/sim"
)

const small = `name: small
topology: {leaves: 2, spines: 2, hosts: {per_leaf: 2, link: {rate: 1Gbit}}, links: {rate: 1Gbit}}
workloads: [{sizes: sizes.csv, load: 10}]
duration: 1ms
schemes: [ecmp, conga]
loads: [30, 60]
seeds: 2
`

// smallSize writes the experiment's files and loads its only size.
func smallSize(t *testing.T, dir, text string) *Size {
	t.Helper()
	for name, data := range map[string]string{"small.yaml": text, "sizes.csv": "bytes,cdf\n1000,0\n2000,1\n"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil || name == "small.yaml" {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	e, err := Load(filepath.Join(dir, "small.yaml"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	return e.Sizes[0]
}

// runner is a Runner made of a function.
type runner struct {
	version string
	run     func(context.Context, *sim.Spec) (*measure.Result, error)
	jobs    int // 0: many
}

func (r *runner) Name() string                                                  { return OnSim }
func (r *runner) Version() string                                               { return r.version }
func (r *runner) Check(*sim.Spec) yamlfile.Errors                               { return nil }
func (r *runner) Jobs() int                                                     { return cmp.Or(r.jobs, 1000) }
func (r *runner) Run(ctx context.Context, s *sim.Spec) (*measure.Result, error) { return r.run(ctx, s) }

// fake answers with a result that is made up from the model.
func fake(_ context.Context, s *sim.Spec) (*measure.Result, error) {
	return &measure.Result{Scheme: s.Scheme, Load: s.Workloads[0].Load, Seed: s.Seed, End: "done", Flows: int(s.Seed)}, nil
}

func TestRunResumes(t *testing.T) {
	dir := t.TempDir()
	s := smallSize(t, dir, small)
	st := &Store{filepath.Join(dir, "results"), OnSim}
	var made atomic.Int64
	by := &runner{version: "v1", run: func(ctx context.Context, s *sim.Spec) (*measure.Result, error) { made.Add(1); return fake(ctx, s) }}
	opt := RunOptions{Runner: by, Jobs: 3}
	for _, tt := range []struct {
		name   string
		change func()
		want   int64
	}{
		{"nothing is there", func() {}, 8},
		{"all is there", func() {}, 0},
		{"one is gone", func() { os.Remove(filepath.Join(dir, "results", s.Runs[3].ID+".json")) }, 1},
		{"one is broken", func() { write(t, filepath.Join(dir, "results", s.Runs[3].ID+".json"), "{") }, 1},
		{"another version", func() { by.version = "v2" }, 8},
		{"any version", func() { by.version, opt.AnyVersion = "v3", true }, 0},
		{"forced", func() { opt.Force = true }, 8},
		{"another model", func() {
			opt.Force = false
			s = smallSize(t, dir, strings.Replace(small, "1ms", "2ms", 1))
		}, 8},
		{"one more seed", func() { s = smallSize(t, dir, strings.Replace(small, "1ms\n", "2ms\n", 1)+"sizes: {x: {seeds: 3}}\n") }, 4},
		{"another file of sizes", func() { write(t, filepath.Join(dir, "sizes.csv"), "bytes,cdf\n1000,0\n3000,1\n") }, 12},
	} {
		tt.change()
		made.Store(0)
		sum, err := st.Run(t.Context(), s, opt)
		if err != nil || made.Load() != tt.want || sum.Made != int(tt.want) || sum.Kept != len(s.Runs)-int(tt.want) || sum.Failure() != nil {
			t.Errorf("%s: %d runs made, %+v, %v; want %d", tt.name, made.Load(), sum, err, tt.want)
		}
	}
	res, err := st.Results(s)
	if err != nil || res.Stored() != 12 || res.Stale != 0 || len(res.Versions) != 1 || res.Versions[0] != "v3" {
		t.Errorf("stored: %d, %+v, %v", res.Stored(), res.Versions, err)
	}
	for i, rec := range res.Records {
		if rec.ID != s.Runs[i].ID || rec.Result.Seed != s.Runs[i].Seed || rec.Result.Load != s.Runs[i].Load {
			t.Errorf("run %s has the result of %+v", s.Runs[i].ID, rec.Result)
		}
	}
	// What was made of another model is not shown as this one's.
	s = smallSize(t, dir, strings.Replace(small, "1ms", "5ms", 1))
	if res, err := st.Results(s); err != nil || res.Stored() != 0 || res.Stale != 8 {
		t.Errorf("stale: %d of %d, %v", res.Stale, res.Stored(), err)
	}
}

func TestHashDoesNotDependOnPlace(t *testing.T) {
	var hashes []string
	for range 2 {
		h, err := smallSize(t, t.TempDir(), small).Runs[0].Hash()
		if err != nil {
			t.Fatal(err)
		}
		hashes = append(hashes, h)
	}
	if hashes[0] != hashes[1] {
		t.Errorf("%s and %s", hashes[0], hashes[1])
	}
}

// Interrupted in the middle, what finished is there, nothing is half-written, and
// the next call makes the rest.
func TestRunInterrupted(t *testing.T) {
	dir := t.TempDir()
	s := smallSize(t, dir, small)
	st := &Store{filepath.Join(dir, "results"), OnSim}
	ctx, cancel := context.WithCancel(t.Context())
	var n atomic.Int64
	blocked := make(chan struct{}, 8)
	var summary *Summary
	var err error
	var wg sync.WaitGroup
	wg.Go(func() {
		summary, err = st.Run(ctx, s, RunOptions{Jobs: 2, Runner: &runner{version: "v", run: func(ctx context.Context, s *sim.Spec) (*measure.Result, error) {
			if n.Add(1) > 3 {
				blocked <- struct{}{}
				<-ctx.Done()
				r, _ := fake(ctx, s)
				r.End = "interrupted"
				return r, nil // what it knows until then
			}
			return fake(ctx, s)
		}}})
	})
	<-blocked
	<-blocked // both workers are in a run
	cancel()
	wg.Wait()
	if !errors.Is(err, context.Canceled) || summary.Made != 3 || len(summary.Failed) != 0 {
		t.Fatalf("%+v, %v", summary, err)
	}
	entries, _ := os.ReadDir(filepath.Join(dir, "results"))
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), tmpPrefix) {
			t.Errorf("%s is left", e.Name())
		}
	}
	if res, err := st.Results(s); err != nil || res.Stored() != 3 {
		t.Errorf("%d are stored, %v", res.Stored(), err)
	}
	if sum, err := st.Run(t.Context(), s, RunOptions{Jobs: 2, Runner: &runner{version: "v", run: fake}}); err != nil || sum.Kept != 3 || sum.Made != 5 {
		t.Errorf("the rest: %+v, %v", sum, err)
	}
}

func TestRunFailures(t *testing.T) {
	dir := t.TempDir()
	s := smallSize(t, dir, small)
	st := &Store{filepath.Join(dir, "results"), OnSim}
	// A killed program's rest goes away; a second program is kept out.
	if err := os.MkdirAll(filepath.Join(dir, "results"), 0o755); err != nil {
		t.Fatal(err)
	}
	rest := filepath.Join(dir, "results", tmpPrefix+"123")
	if err := os.WriteFile(rest, []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	var events []Event
	var second error
	sum, err := st.Run(t.Context(), s, RunOptions{Jobs: 1, Report: func(e Event) {
		if e.Begins {
			if len(e.Running) != 1 || e.Running[0] != e.ID || e.Done != len(events) {
				t.Errorf("begins: %+v after %d", e, len(events))
			}
			return
		}
		events = append(events, e)
	}, Runner: &runner{run: func(ctx context.Context, s *sim.Spec) (*measure.Result, error) {
		switch {
		case s.Scheme == "conga" && s.Seed == 1 && s.Workloads[0].Load == 30:
			return nil, errors.New("no room")
		case s.Scheme == "conga" && s.Seed == 2 && s.Workloads[0].Load == 60:
			panic("index out of range")
		case s.Seed == 1 && s.Workloads[0].Load == 60:
			_, second = st.Run(ctx, &Size{}, RunOptions{})
		}
		return fake(ctx, s)
	}}})
	if err != nil || sum.Made != 6 || len(sum.Failed) != 2 || len(events) != 8 {
		t.Fatalf("%+v, %v, %d events", sum, err, len(events))
	}
	text := sum.Failure().Error()
	for _, want := range []string{"2 of 8 runs failed", "conga_load30_seed1: no room", "conga_load60_seed2: panic: index out of range"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
	if second == nil || !strings.Contains(second.Error(), "another run writes there") {
		t.Errorf("a second program: %v", second)
	}
	if _, err := os.Stat(rest); err == nil {
		t.Error("a half-written result is still there")
	}
	if e := events[1]; e.ID != "conga_load30_seed1" || e.Err == nil || e.Done != 2 || e.Total != 8 || e.Result != nil {
		t.Errorf("%+v", e)
	}
	if last := events[7]; last.Left != 0 || last.Done != 8 {
		t.Errorf("%+v", last)
	}
	// Failed runs are made again.
	if sum, err := st.Run(t.Context(), s, RunOptions{Jobs: 1, Runner: &runner{run: fake}}); err != nil || sum.Made != 2 {
		t.Errorf("%+v, %v", sum, err)
	}
	os.Remove(filepath.Join(dir, "sizes.csv"))
	if _, err := st.Run(t.Context(), s, RunOptions{Jobs: 1, Runner: &runner{run: fake}}); err == nil || !strings.Contains(err.Error(), "sizes.csv") {
		t.Errorf("without its file: %v", err)
	}
}

// As many runs are under way at once as there are jobs, if the runner allows it.
func TestRunJobs(t *testing.T) {
	dir := t.TempDir()
	s := smallSize(t, dir, small)
	var now, most atomic.Int64
	st := s.Store(filepath.Join(dir, "r"), OnSim)
	_, err := st.Run(t.Context(), s, RunOptions{Jobs: 4, Runner: &runner{run: func(ctx context.Context, s *sim.Spec) (*measure.Result, error) {
		n := now.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		for deadline := time.Now().Add(time.Second); now.Load() < 4 && most.Load() < 4 && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
		now.Add(-1)
		return fake(ctx, s)
	}}})
	if err != nil || most.Load() != 4 {
		t.Errorf("%d at once, %v", most.Load(), err)
	}
	_, err = st.Run(t.Context(), s, RunOptions{Jobs: 4, Force: true, Runner: &runner{jobs: 1, run: func(ctx context.Context, s *sim.Spec) (*measure.Result, error) {
		if n := now.Add(1); n > 1 {
			t.Errorf("%d at once, by a runner of one", n)
		}
		time.Sleep(time.Millisecond)
		now.Add(-1)
		return fake(ctx, s)
	}}})
	if err != nil {
		t.Error(err)
	}
}

// TestStores: what runners find is kept apart.
func TestStores(t *testing.T) {
	s := smallSize(t, t.TempDir(), small)
	inSim, inLab := s.Store("results", OnSim), s.Store("results", OnLab)
	if inSim.Dir() != "results/small-default" || inLab.Dir() != "results/small-default-lab" {
		t.Errorf("%s and %s", inSim.Dir(), inLab.Dir())
	}
	if r, err := inLab.Results(s); err != nil || r.On != OnLab || r.Stored() != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// write replaces a file.
func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
