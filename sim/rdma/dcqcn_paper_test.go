package rdma

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/loomfabric/loom/sim/engine"
)

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-9*math.Max(1, math.Abs(want)) {
		t.Errorf("%s is %.10g; want %.10g", what, got, want)
	}
}

// DCQCN §3.1: "When an RP gets a CNP, it reduces its current rate (R_C) and
// updates the value of the rate reduction factor, α […], and remembers current
// rate as target rate (R_T) for later recovery": R_T = R_C, R_C = R_C(1−α/2),
// α = (1−g)α+g. "if RP gets no feedback for K time units", α = (1−g)α. The rate
// increases F times by R_C = (R_T+R_C)/2 at the timer T, then with
// R_T = R_T+R_AI.
func TestRateAfterOneCNPFollowsThePaper(t *testing.T) {
	const line, g = 40e9, 1.0 / 256
	c := paperRates()
	c.IncreaseBytes = 0
	var r reactionPoint
	r.reset(&c, line)
	r.catchUp(engine.Second)
	near(t, "R_C before any CNP", r.rate, line)
	near(t, "alpha before any CNP", r.alpha, 1)

	start := engine.Second + 7*usec
	r.notify(start)
	near(t, "R_C after the CNP", r.rate, line/2)
	near(t, "R_T after the CNP", r.target, line)
	near(t, "alpha after the CNP", r.alpha, 1) // (1−g)·1 + g

	rc := line / 2.0
	for i := 1; i <= 5; i++ { // fast recovery
		at := start + engine.Time(i)*55*usec
		r.catchUp(at - 1)
		near(t, "R_C before the timer", r.rate, rc)
		rc = (rc + line) / 2
		r.catchUp(at)
		near(t, "R_C after the timer", r.rate, rc)
		near(t, "alpha", r.alpha, math.Pow(1-g, float64(i))) // K is 55 µs too
	}
	near(t, "R_C after fast recovery", r.rate, line*(1-1.0/64))

	// Now R_T would rise above the line: it is the line's.
	r.catchUp(start + 6*55*usec)
	near(t, "R_C after additive increase", r.rate, line*(1-1.0/128))
	near(t, "R_T after additive increase", r.target, line)

	// A second CNP: the target is what the rate was, and alpha has decayed.
	second := start + 6*55*usec + 1
	r.notify(second)
	rt, alpha := line*(1-1.0/128), math.Pow(1-g, 6)
	rc = rt * (1 - alpha/2)
	near(t, "R_C after the second CNP", r.rate, rc)
	near(t, "R_T after the second CNP", r.target, rt)
	near(t, "alpha after the second CNP", r.alpha, (1-g)*alpha+g)
	for i := 1; i <= 8; i++ {
		if i > 5 {
			rt += 40e6
		}
		if i > 6 { // both counters count with the timer alone: then hyper increase
			rt += 200e6 - 40e6
		}
		rc = (rc + min(rt, line)) / 2
		r.catchUp(second + engine.Time(i)*55*usec)
		near(t, "R_C after the second CNP, increased", r.rate, rc)
	}
	if r.cuts != 2 {
		t.Errorf("%d cuts are counted; want 2", r.cuts)
	}
}

// DCQCN §3.1: the timer and the byte counter each count; fast recovery lasts
// while max(T, BC) < F, hyper increase begins when min(T, BC) > F.
func TestByteCounterAndTimerShareThePhases(t *testing.T) {
	c := paperRates()
	c.IncreaseBytes = 1000
	var r reactionPoint
	r.reset(&c, 40e9)
	r.sent(1_000_000)
	near(t, "R_C before any CNP", r.rate, 40e9)
	r.notify(0)
	r.notify(1) // R_T 20, R_C 10 Gbit/s: far from the line
	rt, rc := 20e9, 10e9
	step := func(what string, add float64) {
		t.Helper()
		rt += add
		rc = (rc + rt) / 2
		near(t, "R_T after "+what, r.target, rt)
		near(t, "R_C after "+what, r.rate, rc)
	}
	r.sent(999)
	near(t, "R_C after 999 bytes", r.rate, 10e9)
	r.notify(1) // and the bytes count anew; alpha is 1 still
	rt, rc = 10e9, 5e9
	r.sent(999)
	near(t, "R_C after 999 bytes, again", r.rate, 5e9)
	r.sent(1)
	step("1000 bytes", 0)
	r.notify(1)
	rt, rc = rc, rc/2
	for range 5 {
		r.sent(1000)
		step("bytes", 0)
	}
	r.sent(1000) // BC 5, T 0
	step("the sixth time", 40e6)
	now := engine.Time(1)
	for range 6 { // BC 6; T from 0 to 5: not above F
		now += 55 * usec
		r.catchUp(now)
		step("the timer, behind", 40e6)
	}
	now += 55 * usec
	r.catchUp(now) // T 6, BC 6
	step("both", 200e6)
	r.sent(1000)
	step("both, by bytes", 200e6)
}

// ConWeave §4.1 uses "the recommendations in the recent Mellanox driver/
// firmware": α in slots of 1 µs, cuts at the ends of slots of 4 µs in which a
// CNP came, increases each 300 µs, one of fast recovery and one additive. Here
// are the slots one by one, with events as that firmware's model has them.
type slotwise struct {
	alpha, rate, target, line float64
	first                     engine.Time
	marked, cut               bool
	rise                      engine.Time
	stage                     int
}

func (s *slotwise) cnp(now engine.Time) {
	if s.first < 0 {
		s.first, s.cut = now, true
		return
	}
	s.marked, s.cut = true, true
}

// tick ends what ends at now, a whole number of nanoseconds.
func (s *slotwise) tick(now engine.Time, ai, hai, g, floor float64) {
	if s.first < 0 || now == s.first {
		return
	}
	if (now-s.first)%(1*usec) == 0 {
		s.alpha *= 1 - g
		if s.marked {
			s.alpha += g
		}
		s.marked = false
	}
	if now == s.rise {
		switch {
		case s.stage == 1:
			s.target += ai
		case s.stage > 1:
			s.target += hai
		}
		s.target = math.Min(s.target, s.line)
		s.rate = (s.rate + s.target) / 2
		s.stage++
		s.rise += 300 * usec
	}
	if now > s.first+nsec && (now-s.first-nsec)%(4*usec) == 0 && s.cut {
		if s.stage > 0 {
			s.target = s.rate
		}
		s.rate = math.Max(floor, s.rate*(1-s.alpha/2))
		s.cut, s.stage, s.rise = false, 0, now+300*usec
	}
}

func TestFirmwareSlotsFollowTheModel(t *testing.T) {
	const line = 100e9
	c := ConWeaveRates()
	for seed := range uint64(8) {
		rnd := rand.New(rand.NewPCG(seed, 9))
		var r reactionPoint
		r.reset(&c, line)
		s := slotwise{alpha: 1, rate: line, target: line, line: line, first: -1, rise: -1}
		quiet := 1 + rnd.IntN(3000) // ns between CNPs, or none for a while
		next := engine.Time(rnd.IntN(5000)) * nsec
		looks := 0
		for now := engine.Time(0); now < 2*engine.Millisecond; now += nsec {
			s.tick(now, 40e6, 100e6, 1.0/256, 100e6)
			if now == next {
				r.notify(now)
				s.cnp(now)
				next += engine.Time(1+rnd.IntN(quiet)) * nsec
				if rnd.IntN(100) == 0 {
					next += engine.Time(rnd.IntN(900_000)) * nsec
				}
			} else if rnd.IntN(1000) == 0 {
				r.catchUp(now)
				looks++
				// Halving stops within a bit per second of the target.
				if math.Abs(r.rate-s.rate) > 1e-9*s.rate+1 || math.Abs(r.target-s.target) > 1e-9*s.target+1 ||
					s.first >= 0 && math.Abs(r.alpha-s.alpha) > 1e-9 {
					t.Fatalf("seed %d at %v: R_C %.6g, R_T %.6g, alpha %.6g; want %.6g, %.6g, %.6g",
						seed, now, r.rate, r.target, r.alpha, s.rate, s.target, s.alpha)
				}
			}
		}
		if looks < 1000 || r.cuts == 0 {
			t.Fatalf("seed %d: the rate was compared %d times and cut %d times", seed, looks, r.cuts)
		}
	}
}

// The first cut of a flow in numbers: a CNP at 0 and none after it. Four slots
// of alpha end before the cut.
func TestFirstFirmwareCut(t *testing.T) {
	c := ConWeaveRates()
	var r reactionPoint
	r.reset(&c, 100e9)
	r.notify(0)
	r.catchUp(4 * usec)
	near(t, "R_C before the slot ends", r.rate, 100e9)
	r.catchUp(4*usec + nsec)
	near(t, "R_C", r.rate, 100e9*(1-math.Pow(255.0/256, 4)/2)) // 50.78 Gbit/s
	r.catchUp(4*usec + nsec + 300*usec)
	near(t, "R_C, recovered by half", r.rate, 100e9*(1-math.Pow(255.0/256, 4)/4))
}

// A rate that nobody asks for in a long time is caught up with in one step.
func TestIdleYears(t *testing.T) {
	c := ConWeaveRates()
	var r reactionPoint
	r.reset(&c, 100e9)
	r.notify(0)
	r.catchUp(100 * 24 * 3600 * engine.Second)
	near(t, "R_C", r.rate, 100e9)
	near(t, "R_T", r.target, 100e9)
	r.notify(100*24*3600*engine.Second + 1)
	r.catchUp(100*24*3600*engine.Second + 10*usec)
	near(t, "R_C after a CNP: alpha has decayed", r.rate, 100e9)
	if r.cuts != 2 {
		t.Errorf("%d cuts; want 2", r.cuts)
	}
}

// paperRates is the reaction point of the DCQCN paper (§3.1, §5: g = 1/256,
// K = 55 µs, T = 55 µs, B = 10 MB, F = 5, R_AI = 40 Mbit/s), for a Config with
// CNPInterval 50 µs. The paper does not give R_HAI and the lowest rate: 200
// Mbit/s is its authors' (RATE_HAI in bobzhuyb/ns3-rdma), 100 Mbit/s is
// ConWeave's.
func paperRates() Rates {
	return Rates{
		Gain:             1.0 / 256,
		AlphaInterval:    55 * engine.Microsecond,
		Clamp:            true,
		IncreaseInterval: 55 * engine.Microsecond,
		IncreaseBytes:    10_000_000,
		FastRecovery:     5,
		Additive:         40_000_000,
		Hyper:            200_000_000,
		Min:              100_000_000,
	}
}
