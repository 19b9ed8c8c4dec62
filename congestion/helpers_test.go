package congestion

import (
	"time"

	"github.com/loomfabric/loom/internal/mono"
)

// What CONGA §3.6 found to work well.
const (
	defaultTau   = 160 * time.Microsecond
	defaultAlpha = 0.1
	defaultQ     = 3
)

// newDRE returns an idle link meter of these parameters.
func newDRE(tau time.Duration, alpha float64, q uint) DRE {
	p := Params{Q: q, Tau: tau, Alpha: alpha}
	return p.DRE()
}

// Metric returns the metric of a leaf's tag as of now, aged; 0 if nothing is
// known of it.
func (t *ToLeaf) Metric(leaf uint16, tag uint8, now mono.Time) uint8 {
	metric, _, _ := t.Entry(leaf, tag, now)
	return metric
}
