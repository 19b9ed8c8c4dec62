// Package theory is the stochastic model of CONGA §6.2: flows that are thrown
// on links at random, and how uneven the links' traffic is after some time. It
// has no queues, packets or congestion; what those do is the simulator's to show. Beside
// it stands TCP-Path's formula of what exploring costs.
package theory

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/loomfabric/loom/internal/workload"
)

// Sizes is a distribution of flow sizes in bytes. *workload.CDF is one.
type Sizes interface {
	// Quantile is the inverse of the distribution.
	Quantile(p float64) float64
	Mean() float64
	MeanSquare() float64
}

var _ Sizes = (*workload.CDF)(nil)

// Exponential is the exponential distribution with this mean, bytes.
type Exponential float64

// Quantile is the inverse of the distribution.
func (e Exponential) Quantile(p float64) float64 { return -float64(e) * math.Log1p(-p) }

// Mean returns the mean.
func (e Exponential) Mean() float64 { return float64(e) }

// MeanSquare returns the mean of squares: a coefficient of variation of 1.
func (e Exponential) MeanSquare() float64 { return 2 * float64(e) * float64(e) }

// Model is CONGA's: "Flows with an arbitrary size distribution, S, arrive
// according to a Poisson process of rate λ and are spread across n links. For
// each flow, a random link is chosen" (§6.2). Quantum extends it to flows that are
// cut into pieces of equal size. Each piece goes over a random link of its own, at
// the time of the flow's arrival.
type Model struct {
	Links   int     // n, at least 2
	Rate    float64 // λ, flows per second
	Sizes   Sizes
	Quantum float64 // the most bytes of a piece; 0: no limit
}

// maxPieces bounds what a Quantum may cut a flow into.
const maxPieces = 1 << 20

// Validate reports what the model cannot be.
func (m *Model) Validate() error {
	switch {
	case m.Links < 2:
		return fmt.Errorf("%d links cannot be uneven: the model needs 2", m.Links)
	case !(m.Rate > 0) || math.IsInf(m.Rate, 0):
		return fmt.Errorf("flows cannot arrive at a rate of %g per second", m.Rate)
	case m.Sizes == nil || !(m.Sizes.Mean() > 0):
		return errors.New("the model needs flow sizes with a mean above 0")
	case !(m.Quantum >= 0):
		return fmt.Errorf("flows cannot be cut into pieces of at most %g bytes", m.Quantum)
	case m.Quantum > 0 && m.Sizes.Quantile(1-1e-9)/m.Quantum > maxPieces:
		return fmt.Errorf("pieces of %g bytes are too small for flows of up to %g: at most %d pieces are simulated", m.Quantum, m.Sizes.Quantile(1-1e-9), maxPieces)
	}
	return nil
}

// pieces returns how many pieces of equal size a flow is cut into.
func (m *Model) pieces(size float64) int {
	if m.Quantum == 0 {
		return 1
	}
	return min(max(1, int(math.Ceil(size/m.Quantum))), maxPieces)
}

// EffectiveRate is λe of Theorem 2, per second:
//
//	λe = λ / (8 n ln n (1 + (σS/E(S))²))
//
// The factor in brackets is E(S²)/E(S)². If flows are cut up, the traffic of two
// links differs by the pieces alone: whatever the flows, the variance of the
// difference is 2/n λt E(Σ piece²). So Σ piece² takes the place of S². For k
// equal pieces that is S²/k, and λe grows k times: it is the whole bracket that
// shrinks, not only (σS/E(S))². The paper has no such formula, but says that
// flowlets help because of it.
func (m *Model) EffectiveRate() float64 {
	mean := m.Sizes.Mean()
	n := float64(m.Links)
	return m.Rate * mean * mean / (8 * n * math.Log(n) * m.pieceSquares())
}

// pieceSquares is the expected sum of squares of a flow's pieces.
func (m *Model) pieceSquares() float64 {
	if m.Quantum == 0 {
		return m.Sizes.MeanSquare()
	}
	// size²/pieces has a jump at each multiple of the quantum: the mean over
	// equal shares of probability, in their middles.
	const steps = 1 << 20
	sum := 0.0
	for i := range steps {
		s := m.Sizes.Quantile((float64(i) + 0.5) / steps)
		sum += s * s / float64(m.pieces(s))
	}
	return sum / steps
}

// Bound is the leading term of Theorem 2 at time t in seconds: E(χ(t)) ≤
// 1/√(λe t) + O(1/t), for t sufficiently large.
func (m *Model) Bound(t float64) float64 { return 1 / math.Sqrt(m.EffectiveRate()*t) }

// Imbalance is χ at some times, seen in many trials.
type Imbalance struct {
	Time   float64 `json:"time_s"`
	Flows  float64 `json:"flows_mean"`
	Mean   float64 `json:"imbalance_mean"`
	Stderr float64 `json:"imbalance_stderr"` // of Mean
	Bound  float64 `json:"bound"`            // [Model.Bound]
}

// Run follows the model in a number of trials, and returns the mean imbalance at
// each of times. They are in seconds, above 0 and ascending:
//
//	χ(t) = (Z(t) − Y(t)) / (λ E(S) t / n)
//
// with Z and Y the most and the least traffic that a link has got in (0, t).
// (The paper's formula has W(t) for Y(t), which is a misprint.) The same seed
// gives the same result.
func (m *Model) Run(times []float64, trials int, seed uint64) ([]Imbalance, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	last := 0.0
	for _, t := range times {
		if !(t > last) || math.IsInf(t, 0) {
			return nil, fmt.Errorf("a time of %g s does not lie above %g s: times must be ascending", t, last)
		}
		last = t
	}
	if trials < 2 {
		return nil, fmt.Errorf("%d trials have no mean with an error: run at least 2", trials)
	}
	out := make([]Imbalance, len(times))
	sq := make([]float64, len(times))
	links := make([]float64, m.Links)
	arrivals, sizes, throws := workload.NewRand(seed, 0), workload.NewRand(seed, 1), workload.NewRand(seed, 2)
	for range trials {
		clear(links)
		now, flows := arrivals.ExpFloat64()/m.Rate, 0
		for i, t := range times {
			for ; now <= t; now += arrivals.ExpFloat64() / m.Rate {
				m.throw(links, sizes, throws)
				flows++
			}
			chi := m.chi(links, t)
			out[i].Flows += float64(flows) / float64(trials)
			out[i].Mean += chi / float64(trials)
			sq[i] += chi * chi / float64(trials)
		}
	}
	effective := m.EffectiveRate()
	for i, t := range times {
		out[i].Time, out[i].Bound = t, 1/math.Sqrt(effective*t)
		out[i].Stderr = math.Sqrt(max(0, sq[i]-out[i].Mean*out[i].Mean) / float64(trials-1))
	}
	return out, nil
}

// throw puts one flow on links.
func (m *Model) throw(links []float64, sizes, throws *rand.Rand) {
	size := m.Sizes.Quantile(sizes.Float64())
	k := m.pieces(size)
	for range k {
		links[throws.IntN(len(links))] += size / float64(k)
	}
}

func (m *Model) chi(links []float64, t float64) float64 {
	least, most := links[0], links[0]
	for _, a := range links[1:] {
		least, most = min(least, a), max(most, a)
	}
	return (most - least) / (m.Rate * m.Sizes.Mean() * t / float64(len(links)))
}
