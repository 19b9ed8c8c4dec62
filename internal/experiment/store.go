package experiment

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/measure"
	"github.com/loomfabric/loom/sim"
)

// Record is what is stored of a run that was made: one JSON file each.
type Record struct {
	Experiment string          `json:"experiment"`
	Size       string          `json:"size"`
	ID         string          `json:"id"`
	Scheme     string          `json:"scheme"` // the label
	Load       float64         `json:"load,omitempty"`
	Axis       string          `json:"axis,omitempty"`
	Seed       uint64          `json:"seed"`
	On         string          `json:"on"`      // the name of its runner
	Version    string          `json:"version"` // of the program
	Hash       string          `json:"hash"`    // of the model and the files that it names
	Spec       *sim.Spec       `json:"spec"`
	Result     *measure.Result `json:"result"`

	numbers map[string]float64 // by metric; nil: see number
}

// format is what the definitions of results and their form are counted by: a
// record of an earlier one counts as one of another model.
const format = 3

// Hash is a run's model in one word: another model, or other contents of a file
// that it names, is another hash. Where the files are does not matter.
func (run *Run) Hash() (string, error) {
	s := *run.Spec
	s.Workloads = slices.Clone(s.Workloads)
	for _, name := range fileNames(&s) {
		data, err := os.ReadFile(*name)
		if err != nil {
			return "", fmt.Errorf("run %s: %w", run.ID, err)
		}
		*name = fmt.Sprintf("%x", sha256.Sum256(data))
	}
	data, err := json.Marshal(struct {
		Format int
		Spec   *sim.Spec
	}{format, &s})
	if err != nil {
		return "", fmt.Errorf("run %s: %w", run.ID, err)
	}
	sum := sha256.Sum256(data)
	return fmt.Sprintf("%x", sum[:16]), nil
}

// Store is a directory with the results of one experiment at one size by one
// runner.
type Store struct{ dir, on string }

// resultSuffix ends the names of results; what is being written begins with tmpPrefix.
const (
	resultSuffix = ".json"
	tmpPrefix    = ".tmp-"
	lockName     = ".lock"
)

// Store returns the store of a size's results that a runner makes, below root
// ("results" as a rule). It need not exist until something is put there.
func (s *Size) Store(root, on string) *Store {
	return &Store{filepath.Join(root, s.ID(on)), on}
}

// Dir is the store's directory.
func (st *Store) Dir() string { return st.dir }

// lock makes sure that one program only writes to the store, or one for each shard, and
// removes what a killed one left half-written.
func (st *Store) lock(h Shard) (unlock func(), err error) {
	if err := os.MkdirAll(st.dir, 0o777); err != nil {
		return nil, fmt.Errorf("results: %w", err)
	}
	how := unix.LOCK_EX
	if !h.All() {
		how = unix.LOCK_SH // other shards may write, too
	}
	all, err := st.flock(lockName, how)
	if err != nil {
		return nil, err
	}
	own, rest := all, tmpPrefix+"*"
	if !h.All() {
		if own, err = st.flock(lockName+h.suffix(), unix.LOCK_EX); err != nil {
			all.Close()
			return nil, err
		}
		rest = tmpPrefix + "*" + h.suffix()
	}
	unlock = func() { own.Close(); all.Close() }
	names, _ := filepath.Glob(filepath.Join(st.dir, rest))
	for _, name := range names {
		err = errors.Join(err, os.Remove(name))
	}
	if err != nil {
		unlock()
		return nil, fmt.Errorf("results: %w", err)
	}
	return unlock, nil
}

// flock locks a file of the store until it is closed.
func (st *Store) flock(name string, how int) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(st.dir, name), os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return nil, fmt.Errorf("results: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = errors.New("another run writes there: wait for it, or use another directory")
		}
		return nil, fmt.Errorf("results in %s: %w", st.dir, err)
	}
	return f, nil
}

// Get reads a run's record; nil if there is none.
func (st *Store) Get(id string) (*Record, error) {
	path := filepath.Join(st.dir, id+resultSuffix)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("result: %w", err)
	}
	r := &Record{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("result %s: %w; remove the file, and the run will be made again", path, err)
	}
	if r.Result == nil || r.ID != id {
		return nil, fmt.Errorf("result %s is not one of run %s; remove the file, and the run will be made again", path, id)
	}
	return r, nil
}

// Put writes a record. It is there as a whole or not at all, whenever the program
// or the machine is stopped.
func (st *Store) Put(r *Record) error { return st.put(Shard{}, r) }

// put is Put for a program that makes a shard.
func (st *Store) put(h Shard, r *Record) error {
	tmp := filepath.Join(st.dir, tmpPrefix+r.ID+h.suffix())
	err := func() error {
		data, err := json.MarshalIndent(r, "", " ")
		if err != nil {
			return err
		}
		f, err := os.Create(tmp)
		if err != nil {
			return err
		}
		_, err = f.Write(append(data, '\n'))
		if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
			return errors.Join(err, os.Remove(tmp))
		}
		return os.Rename(tmp, filepath.Join(st.dir, r.ID+resultSuffix))
	}()
	if err != nil {
		return fmt.Errorf("result of %s: %w", r.ID, err)
	}
	return nil
}

// Results are what is stored of a size.
type Results struct {
	Size    *Size
	On      string    // the name of the runner
	Records []*Record // in the order of Size.Runs; nil: not there, or of another model
	// Stale counts records of another model: the experiment was changed since.
	Stale int
	// Versions of the program that made them.
	Versions []string
}

// Results reads what there is of a size. A record of another model counts as missing.
func (st *Store) Results(s *Size) (*Results, error) {
	out := &Results{Size: s, On: st.on, Records: make([]*Record, len(s.Runs))}
	var errs []error
	for i := range s.Runs {
		rec, err := st.Get(s.Runs[i].ID)
		if err != nil || rec == nil {
			errs = append(errs, err)
			continue
		}
		switch hash, err := s.Runs[i].Hash(); {
		case err != nil:
			errs = append(errs, err)
		case hash != rec.Hash:
			out.Stale++
		default:
			out.Records[i] = rec
			out.Versions = append(out.Versions, rec.Version)
		}
	}
	slices.Sort(out.Versions)
	out.Versions = slices.Compact(out.Versions)
	return out, errors.Join(errs...)
}

// Stored counts the records that are there.
func (r *Results) Stored() int {
	n := 0
	for _, rec := range r.Records {
		if rec != nil {
			n++
		}
	}
	return n
}
