package measure

import "math"

// Spread is a figure over several runs that differ in their seed.
type Spread struct {
	Runs  int    `json:"runs"`
	Mean  Number `json:"mean"`
	Min   Number `json:"min"`
	Max   Number `json:"max"`
	Stdev Number `json:"stdev"` // of the population that the runs are a sample of
	// CI95 is half the width of the 95 % confidence interval of the mean, by
	// Student's t: null for a single run, which says nothing about others.
	CI95 Number `json:"ci95"`
}

// SpreadOf summarises one figure of each run. Runs that do not have it (NaN) are
// left out, and not counted.
func SpreadOf(x []float64) Spread {
	s := Spread{Mean: Number(math.NaN()), Min: Number(math.NaN()), Max: Number(math.NaN()), Stdev: Number(math.NaN()), CI95: Number(math.NaN())}
	var mean, m2 float64
	for _, v := range x {
		if math.IsNaN(v) {
			continue
		}
		s.Runs++
		if s.Runs == 1 {
			s.Min, s.Max = Number(v), Number(v)
		}
		s.Min, s.Max = min(s.Min, Number(v)), max(s.Max, Number(v))
		d := v - mean
		mean += d / float64(s.Runs)
		m2 += d * (v - mean)
	}
	if s.Runs == 0 {
		return s
	}
	s.Mean = Number(mean)
	if n := float64(s.Runs); s.Runs > 1 {
		sd := math.Sqrt(m2 / (n - 1))
		s.Stdev = Number(sd)
		s.CI95 = Number(student975(s.Runs-1) * sd / math.Sqrt(n))
	}
	return s
}

// t975 is the 97.5 % quantile of Student's t for 1 to 30 degrees of freedom.
var t975 = [...]float64{
	12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
	2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
	2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
}

// student975 is that quantile for any degrees of freedom from 1 on: above the
// table by the expansion around the normal distribution's (Abramowitz and Stegun
// 26.7.5).
func student975(df int) float64 {
	if df <= len(t975) {
		return t975[df-1]
	}
	const z = 1.959964
	v := float64(df)
	return z + (z*z*z+z)/(4*v) + (5*z*z*z*z*z+16*z*z*z+3*z)/(96*v*v)
}
