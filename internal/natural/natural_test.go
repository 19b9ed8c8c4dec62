package natural

import (
	"slices"
	"testing"
)

func TestCompare(t *testing.T) {
	want := []string{"L09", "L9", "L10", "a", "eth", "eth02", "eth2", "eth2.20", "eth2.100", "eth10", "leaf-2a", "leaf-2b", "leaf-10a", "swp1s9", "swp1s10"}
	names := slices.Sorted(slices.Values(want))
	slices.SortFunc(names, Compare)
	if !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
	for _, n := range want {
		if Compare(n, n) != 0 {
			t.Errorf("%s is not as it is itself", n)
		}
	}
}
