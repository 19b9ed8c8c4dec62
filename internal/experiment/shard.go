package experiment

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
)

// Shard is a share of the runs of every size: part Index, from 0 to Of-1. Machines that
// share nothing but the program and the files make one each, and their results are files
// of one directory. The zero value is all runs.
type Shard struct{ Index, Of int }

// ParseShard reads a shard as the command line has it: "2/8" is the third of eight.
func ParseShard(text string) (Shard, error) {
	index, of, ok := strings.Cut(text, "/")
	i, err1 := strconv.Atoi(index)
	n, err2 := strconv.Atoi(of)
	if !ok || err1 != nil || err2 != nil || n < 1 || i < 0 || i >= n {
		return Shard{}, fmt.Errorf("shard %q: write I/N, with I from 0 to N-1: 0/4 is the first of four", text)
	}
	return Shard{i, n}, nil
}

// All reports whether the shard is all runs.
func (h Shard) All() bool { return h.Of <= 1 }

// of returns the runs of a size that belong to the shard. Every run belongs to one of the
// Of shards, whatever else is run. Shards of a size differ by one run at most, and runs that
// are alike are spread over them: of the runs in the order of a hash of their names, each
// shard has every Of-th.
func (h Shard) of(s *Size) (runs []*Run) {
	type ranked struct {
		run  *Run
		hash uint64
	}
	all := make([]ranked, len(s.Runs))
	for i := range s.Runs {
		f := fnv.New64a()
		fmt.Fprintf(f, "%s %s %s", s.Experiment.Name, s.Name, s.Runs[i].ID)
		all[i] = ranked{&s.Runs[i], f.Sum64()}
	}
	if !h.All() {
		slices.SortFunc(all, func(a, b ranked) int {
			return cmp.Or(cmp.Compare(a.hash, b.hash), strings.Compare(a.run.ID, b.run.ID))
		})
	}
	for i := range all {
		if h.All() || i%h.Of == h.Index {
			runs = append(runs, all[i].run)
		}
	}
	return runs
}

// suffix tells the files of a shard that works from those of others.
func (h Shard) suffix() string {
	if h.All() {
		return ""
	}
	return fmt.Sprintf("-%d-of-%d", h.Index, h.Of)
}
