package experiment

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

func TestParseShard(t *testing.T) {
	for text, want := range map[string]Shard{"0/1": {0, 1}, "0/4": {0, 4}, "3/4": {3, 4}} {
		if got, err := ParseShard(text); err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "4/4", "-1/4", "1", "1/", "/4", "a/4", "1/4/2", "0/0"} {
		if got, err := ParseShard(text); err == nil || !strings.Contains(err.Error(), "I from 0 to N-1") {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

// TestShardsAreTheMatrix: every run is in exactly one shard, shards are of equal size, and
// the runs of one are not all alike.
func TestShardsAreTheMatrix(t *testing.T) {
	dir := t.TempDir()
	s := smallSize(t, dir, strings.Replace(small, "seeds: 2", "seeds: 20", 1))
	for n := 1; n <= len(s.Runs)+2; n++ {
		in := map[string]int{}
		for i := range n {
			runs := Shard{i, n}.of(s)
			if least := len(s.Runs) / n; len(runs) < least || len(runs) > least+1 {
				t.Errorf("shard %d of %d has %d of %d runs", i, n, len(runs), len(s.Runs))
			}
			schemes := map[string]bool{}
			for _, run := range runs {
				in[run.ID]++
				schemes[run.Scheme] = true
			}
			if n == 2 && len(schemes) < 2 {
				t.Errorf("shard %d of 2 has runs of %v only", i, schemes)
			}
		}
		for _, run := range s.Runs {
			if in[run.ID] != 1 {
				t.Errorf("run %s is in %d of %d shards", run.ID, in[run.ID], n)
			}
		}
	}
}

// TestShardsMerge makes the shards of a size into one store, at the same time or into
// stores that are copied together: the results are those of one program that made all.
func TestShardsMerge(t *testing.T) {
	dir := t.TempDir()
	s := smallSize(t, dir, small)
	by := &runner{version: "v1", run: fake}
	st := &Store{filepath.Join(dir, "together"), OnSim}
	const n = 3
	// While one shard is made, another one may be, but neither the same one nor all.
	for i := range n {
		unlock, err := st.lock(Shard{(i + 1) % n, n})
		if err != nil {
			t.Fatal(err)
		}
		for _, busy := range []Shard{{}, {(i + 1) % n, n}} {
			if _, err := st.Run(context.Background(), s, RunOptions{Runner: by, Shard: busy}); err == nil || !strings.Contains(err.Error(), "another run writes there") {
				t.Errorf("shard %v is made twice at a time: %v", busy, err)
			}
		}
		sum, err := st.Run(context.Background(), s, RunOptions{Runner: by, Shard: Shard{i, n}})
		if err != nil || sum.Failure() != nil || sum.Made != sum.Total || sum.Total > 3 {
			t.Fatalf("shard %d: %+v, %v", i, sum, err)
		}
		unlock()
	}
	r, err := st.Results(s)
	if err != nil || r.Stored() != len(s.Runs) {
		t.Fatalf("%d of %d results, %v", r.Stored(), len(s.Runs), err)
	}
	sum, err := st.Run(context.Background(), s, RunOptions{Runner: by})
	if err != nil || sum.Made != 0 || sum.Kept != len(s.Runs) {
		t.Errorf("all runs after all shards: %+v, %v", sum, err)
	}
	for i, rec := range r.Records {
		if want := fmt.Sprint(s.Runs[i].Scheme); rec.Scheme != want || rec.ID != s.Runs[i].ID {
			t.Errorf("run %s has the result of %s under %s", s.Runs[i].ID, rec.ID, rec.Scheme)
		}
	}
}
