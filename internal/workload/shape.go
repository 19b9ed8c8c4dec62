package workload

import (
	"fmt"
	"math"
)

// Scale returns the distribution of sizes times factor: the same shape for
// slower links or shorter runs.
func (c *CDF) Scale(factor float64) (*CDF, error) {
	if !(factor > 0) || math.IsInf(factor, 0) {
		return nil, fmt.Errorf("sizes cannot be scaled by %g: give a number above 0", factor)
	}
	points := c.Points()
	for i := range points {
		points[i].Bytes *= factor
	}
	return NewCDF(points)
}

// Truncate returns the distribution of the sizes that do not exceed limit
// bytes, as if larger ones were drawn again: the mean falls, and nothing piles
// up at the limit. A limit above [CDF.Max] changes nothing.
func (c *CDF) Truncate(limit float64) (*CDF, error) {
	if limit >= c.Max() {
		return c, nil
	}
	share := c.P(limit)
	if !(share > 0) || !(limit > c.points[0].Bytes) {
		return nil, fmt.Errorf("no distribution is left below %g bytes: sizes go from %g to %g bytes", limit, c.points[0].Bytes, c.Max())
	}
	var points []Point
	for _, p := range c.points {
		if p.Bytes >= limit {
			break
		}
		points = append(points, Point{p.Bytes, p.P / share})
	}
	return NewCDF(append(points, Point{limit, 1}))
}

// MeanSquare is the expected square of the flow size, in bytes squared.
func (c *CDF) MeanSquare() float64 {
	first := c.points[0]
	sum := first.P * first.Bytes * first.Bytes
	for i := 1; i < len(c.points); i++ {
		a, b := c.points[i-1], c.points[i]
		sum += (b.P - a.P) * (a.Bytes*a.Bytes + a.Bytes*b.Bytes + b.Bytes*b.Bytes) / 3
	}
	return sum
}

// Variation is the coefficient of variation of the flow size: its standard
// deviation over its mean.
func (c *CDF) Variation() float64 {
	return math.Sqrt(max(0, c.MeanSquare()/(c.mean*c.mean)-1))
}

// MeanPackets is the expected number of packets of a flow when a packet carries
// at most payload bytes, which must be above 0.
func (c *CDF) MeanPackets(payload float64) float64 {
	// below is the integral of ceil(x/payload) from 0 to x.
	below := func(x float64) float64 {
		k := math.Floor(x / payload)
		return payload*k*(k+1)/2 + (k+1)*(x-k*payload)
	}
	first := c.points[0]
	sum := first.P * max(1, math.Ceil(first.Bytes/payload)) // Sample draws no empty flow
	for i := 1; i < len(c.points); i++ {
		a, b := c.points[i-1], c.points[i]
		sum += (b.P - a.P) / (b.Bytes - a.Bytes) * (below(b.Bytes) - below(a.Bytes))
	}
	return sum
}
