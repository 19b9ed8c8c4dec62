package leaf_test

import (
	"testing"

	"github.com/loomfabric/loom/internal/scenario"
)

// TestScenarios holds a leaf alone against what is written down: it is what the data
// plane and the simulator are held against.
func TestScenarios(t *testing.T) {
	for _, s := range scenario.Written {
		t.Run(s.Name, func(t *testing.T) { scenario.Check(t, &s, scenario.NewAlone) })
	}
}
