package congestion

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/mono"
)

var seedFlag = flag.Uint64("seed", 0, "seed of the random tests; 0: a new one each time")

// newRand returns a generator for a random test and logs how to replay it.
func newRand(t testing.TB) *rand.Rand {
	t.Helper()
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("replay with -seed %d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

// ageing is the paper's 10 ms, rounded to ticks so that tests need not allow for
// a rounded age.
const ageing = mono.Time(10 * time.Millisecond / tick * tick)

func testParams() *Params {
	p := Datacenter()
	p.Ageing = time.Duration(ageing)
	return &p
}

// TestWordAge: the distance of any two times that are less than half a wrap
// apart, wherever on the clock.
func TestWordAge(t *testing.T) {
	rng := newRand(t)
	for range 100_000 {
		then := mono.Time(rng.Uint64())
		ahead := mono.Time(rng.Uint64() >> (7 + rng.IntN(50))) // below 2^57
		metric := uint8(rng.Uint32())
		w := makeWord(metric, then)
		if !w.known() || w.metric() != metric {
			t.Fatalf("word %#x of metric %d: known %v, metric %d", uint64(w), metric, w.known(), w.metric())
		}
		for _, now := range []mono.Time{then + ahead, then - ahead} { // may wrap
			got := mono.Time(w.age(now))
			if diff := got - ahead; diff < -mono.Time(tick) || diff > mono.Time(tick) {
				t.Fatalf("age of %d at %d is %d, want %d", then, now, got, ahead)
			}
		}
	}
}
