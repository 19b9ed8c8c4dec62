package gcra

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/mono"
)

const second = mono.Time(time.Second)

// model is a bucket of tokens as textbooks have it: it fills by and by up to depth and one
// unit, and what is charged may overdraw it.
type model struct {
	per, depth, tokens float64 // nanoseconds, units, units
	at                 mono.Time
}

func (m *model) fill(now mono.Time) {
	m.tokens = min(m.tokens+float64(now-m.at)/m.per, m.depth)
	m.at = now
}

// TestAgainstTokens: at any times and charges the bucket is ready when a bucket of tokens
// is not overdrawn.
func TestAgainstTokens(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		per, depth := 1000*(1+rnd.Uint64N(1000)), rnd.Uint64N(100)
		b, m := New(per, depth), model{per: float64(per) / 1000, depth: float64(depth), tokens: float64(depth)}
		now := mono.Time(rnd.Int64N(1000))
		for i := range 1000 {
			now += mono.Time(rnd.Uint64N(per / 200))
			m.fill(now)
			if ready := m.tokens >= -1e-6; b.Ready(now) != ready && math.Abs(m.tokens) > 1e-6 {
				t.Fatalf("seed %d, step %d: ready %v, and %g tokens of %d", seed, i, b.Ready(now), m.tokens, depth)
			}
			if when := b.When(now); when < now || !b.Ready(when) || when > now && b.Ready(when-1) {
				t.Fatalf("seed %d, step %d: not ready before %d, it says at %d", seed, i, when, now)
			}
			if n := rnd.Uint64N(4); b.Ready(now) || rnd.IntN(20) == 0 {
				b.Charge(now, n)
				m.tokens -= float64(n)
			}
		}
	}
}

// TestRateOfFractions: a unit of 0.7 ns is charged exactly, over the long run.
func TestRateOfFractions(t *testing.T) {
	b := New(700, 0)
	n := 0
	for now := mono.Time(0); now < second/1000; now = b.When(now + 1) {
		for b.Ready(now) {
			b.Charge(now, 1)
			n++
		}
	}
	if want := 1e6 / 0.7; math.Abs(float64(n)-want) > 3 {
		t.Errorf("%d units in a millisecond, want %.0f", n, want)
	}
}

func TestTake(t *testing.T) {
	b := New(1e9, 3) // a millisecond a unit, four in a row
	taken := func(now mono.Time) (n int) {
		for b.Take(now) {
			n++
		}
		return n
	}
	for _, c := range []struct {
		at   mono.Time
		want int
	}{{0, 4}, {second / 1000, 1}, {second / 200, 4}, {second, 4}, {second / 2, 4}} { // the last one: the clock was set back
		if n := taken(c.at); n != c.want {
			t.Errorf("at %v: %d units, want %d", c.at.Sub(0), n, c.want)
		}
	}
	var none Bucket
	for range 1000 {
		if !none.Take(0) || none.Limits() || none.When(5) != 5 {
			t.Fatal("the zero Bucket limits")
		}
	}
}

// TestDeepBuckets: no depth makes a sum wrap.
func TestDeepBuckets(t *testing.T) {
	b := New(math.MaxUint32, math.MaxUint64)
	b.Charge(second, 1<<20)
	if !b.Ready(second) || b.depth <= 0 || b.depth > 1<<61 {
		t.Errorf("%+v", b)
	}
}

func TestAllocs(t *testing.T) {
	b := New(1000, 10)
	now := mono.Time(0)
	if n := testing.AllocsPerRun(100, func() { now++; b.Take(now); b.Charge(b.When(now), 3) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
