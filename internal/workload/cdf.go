// Package workload makes traffic: flow sizes drawn from published
// distributions and Poisson arrivals that offer a given load. It has no clock
// and no randomness of its own; a seed goes in and the same flows come out.
package workload

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"sort"
	"strconv"
	"strings"
)

// Point is one point of a distribution: P is the probability that a flow has at
// most Bytes.
type Point struct {
	Bytes float64
	P     float64
}

// CDF is a distribution of flow sizes, linear between its points. It is
// immutable.
type CDF struct {
	points []Point // Bytes strictly ascending, P ascending from >= 0 to 1
	mean   float64 // bytes
}

// NewCDF checks points and builds the distribution. Bytes must rise strictly, P
// must not fall and must end at 1.
func NewCDF(points []Point) (*CDF, error) {
	if len(points) < 2 {
		return nil, errors.New("a distribution needs at least two points")
	}
	for i, p := range points {
		switch {
		case math.IsNaN(p.Bytes) || math.IsInf(p.Bytes, 0) || p.Bytes < 0:
			return nil, fmt.Errorf("point %d: %g bytes is not a size", i+1, p.Bytes)
		case !(p.P >= 0 && p.P <= 1):
			return nil, fmt.Errorf("point %d: %g is not a probability", i+1, p.P)
		case i > 0 && p.Bytes <= points[i-1].Bytes:
			return nil, fmt.Errorf("point %d: %g bytes does not lie above the previous %g", i+1, p.Bytes, points[i-1].Bytes)
		case i > 0 && p.P < points[i-1].P:
			return nil, fmt.Errorf("point %d: probability %g falls below the previous %g", i+1, p.P, points[i-1].P)
		}
	}
	if last := points[len(points)-1].P; last != 1 {
		return nil, fmt.Errorf("the last probability is %g: it must be 1", last)
	}
	c := &CDF{points: append([]Point(nil), points...)}
	c.mean = meanOf(points)
	if c.mean <= 0 {
		return nil, errors.New("the mean size is 0")
	}
	return c, nil
}

// ReadCDF reads a CSV with the header "bytes,cdf"; lines that start with # are
// comments.
func ReadCDF(r io.Reader) (*CDF, error) {
	var points []Point
	header := false
	scan := bufio.NewScanner(r)
	for line := 1; scan.Scan(); line++ {
		text := strings.TrimSpace(scan.Text())
		if text == "" || text[0] == '#' {
			continue
		}
		if !header {
			if text != "bytes,cdf" {
				return nil, fmt.Errorf("line %d: %q: the header must be \"bytes,cdf\"", line, text)
			}
			header = true
			continue
		}
		a, b, _ := strings.Cut(text, ",")
		size, err1 := strconv.ParseFloat(strings.TrimSpace(a), 64)
		p, err2 := strconv.ParseFloat(strings.TrimSpace(b), 64)
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		points = append(points, Point{size, p})
	}
	if err := scan.Err(); err != nil {
		return nil, err
	}
	return NewCDF(points)
}

// Mean is the expected flow size in bytes.
func (c *CDF) Mean() float64 { return c.mean }

// Max is the largest possible flow size in bytes.
func (c *CDF) Max() float64 { return c.points[len(c.points)-1].Bytes }

// Quantile is the inverse of the distribution: the size in bytes that a share p
// of flows does not exceed. p is clamped to 0..1.
func (c *CDF) Quantile(p float64) float64 {
	i := sort.Search(len(c.points), func(i int) bool { return c.points[i].P >= p })
	if i == 0 {
		return c.points[0].Bytes
	}
	if i == len(c.points) {
		return c.Max()
	}
	a, b := c.points[i-1], c.points[i]
	return a.Bytes + (b.Bytes-a.Bytes)*(p-a.P)/(b.P-a.P)
}

// meanOf returns the mean of a distribution. A first probability above 0 is a
// point mass at the first size.
func meanOf(points []Point) float64 {
	sum := points[0].P * points[0].Bytes
	for i := 1; i < len(points); i++ {
		a, b := points[i-1], points[i]
		sum += (b.P - a.P) * (a.Bytes + b.Bytes) / 2
	}
	return sum
}

// Sample draws a flow size by inversion: whole bytes, at least 1.
func (c *CDF) Sample(r *rand.Rand) uint64 {
	return uint64(max(1, math.Round(c.Quantile(r.Float64()))))
}

// Points returns a copy of the points.
func (c *CDF) Points() []Point { return append([]Point(nil), c.points...) }
