package matrix

import (
	"path/filepath"
	"testing"

	"github.com/loomfabric/loom/internal/experiment"
)

// TestShippedSizesCanRun: the simulator takes one scheme's first runs at every point of
// every size, published ones too, which nobody makes in development.
func TestShippedSizesCanRun(t *testing.T) {
	files, err := filepath.Glob("../../../experiments/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		e, err := experiment.Load(file, experiment.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range e.Sizes {
			if _, err := experiment.Load(file, experiment.Options{Check: (&Simulator{}).Check, Sizes: []string{s.Name}, Schemes: s.Schemes[:1]}); err != nil {
				t.Error(err)
			}
		}
	}
}
