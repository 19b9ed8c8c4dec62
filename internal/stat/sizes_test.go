package stat_test

import (
	"testing"

	"github.com/loomfabric/loom/internal/stat"
)

// A size is in the first bucket whose bound is not below it.
func TestSizes(t *testing.T) {
	sum := uint64(0)
	var all stat.Sizes
	for _, n := range []uint64{0, 1, 2, 3, 4, 5, 15, 16, 17, 64, 65, 1500, 1 << 20, 1<<24 - 1, 1 << 24, 1<<24 + 1, 1 << 40} {
		want := 0
		for want < stat.SizeBuckets-1 && stat.UpperSize(want) < n {
			want++
		}
		var s stat.Sizes
		s.Add(n)
		all.Add(n)
		sum += n
		if s.Counts[want] != 1 || s.N() != 1 || s.Sum != n {
			t.Errorf("%d is counted as %v, want it in bucket %d", n, s, want)
		}
	}
	if all.N() != 17 || all.Sum != sum {
		t.Errorf("%d sizes of %d together, want 17 of %d", all.N(), all.Sum, sum)
	}
	twice := all
	stat.Add(&twice, &all)
	if twice.N() != 34 || twice.Sum != 2*sum {
		t.Errorf("added up: %+v", twice)
	}
	if n := testing.AllocsPerRun(100, func() { all.Add(9000) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
