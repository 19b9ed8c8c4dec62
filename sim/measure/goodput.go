package measure

import (
	"math"

	"github.com/loomfabric/loom/sim/engine"
)

// Goodput counts payload that arrived in order or for the first time, within a
// window of time: what comes before, as the network fills, and after it, does
// not count.
type Goodput struct {
	From, To engine.Time // To 0: no end
	bytes    uint64
}

// Add records payload bytes that arrived at now.
func (g *Goodput) Add(now engine.Time, bytes uint64) {
	if now >= g.From && (g.To == 0 || now < g.To) {
		g.bytes += bytes
	}
}

// Bytes returns what was counted.
func (g *Goodput) Bytes() uint64 { return g.bytes }

// Rate returns the mean goodput in bit/s up to now, or up to the window's end if
// that came first; NaN if no time has passed.
func (g *Goodput) Rate(now engine.Time) float64 {
	if g.To != 0 {
		now = min(now, g.To)
	}
	if now <= g.From {
		return math.NaN()
	}
	return float64(g.bytes) * 8 / (now - g.From).Seconds()
}

// Fairness is Jain's index of rates or amounts: 1 if all are equal, 1/n if one
// has everything; NaN without any (Jain, Chiu and Hawe 1984).
func Fairness(x []float64) float64 {
	var sum, sq float64
	for _, v := range x {
		sum += v
		sq += v * v
	}
	if sq == 0 {
		return math.NaN()
	}
	return sum * sum / (float64(len(x)) * sq)
}
