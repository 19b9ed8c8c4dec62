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
