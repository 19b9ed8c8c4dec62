package congestion

import "github.com/loomfabric/loom/internal/mono"

// Metric returns the metric of a leaf's tag as of now, aged; 0 if nothing is
// known of it.
func (t *ToLeaf) Metric(leaf uint16, tag uint8, now mono.Time) uint8 {
	metric, _, _ := t.Entry(leaf, tag, now)
	return metric
}
