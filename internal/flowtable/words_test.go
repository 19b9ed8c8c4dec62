package flowtable

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/loomfabric/loom/internal/mono"
)

const (
	shortAge = mono.Time(500 * time.Millisecond)
	longAge  = mono.Time(10 * time.Second)
)

// naiveWords is what Words does, without sets and ticks: each set is a map.
type naiveWords struct {
	sets map[uint64]map[uint64]naiveWord
	mask uint64
}

type naiveWord struct {
	value uint32
	last  mono.Time
}

func (w naiveWord) age() mono.Time {
	if w.value&LongLived != 0 {
		return longAge
	}
	return shortAge
}

// Words finds what a map finds, evicts the flow that was not used for longest, and no
// flow within its age.
func TestWordsAgainstMaps(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	const entries = 16
	words := NewWords(entries, shortAge, longAge)
	naive := naiveWords{map[uint64]map[uint64]naiveWord{}, entries/Ways - 1}
	const tick = mono.Time(1) << tickShift
	now := mono.Time(rng.Int64N(1<<60)) &^ (tick - 1)
	inserted, refused, evicted := 0, 0, 0
	for range 20_000 {
		now += tick * mono.Time(1+rng.Int64N(200)) // no two uses at a time: the oldest is one
		tag := Tag(2 + rng.Uint64N(60))
		set := naive.sets[tag&naive.mask]
		if set == nil {
			set = map[uint64]naiveWord{}
			naive.sets[tag&naive.mask] = set
		}
		have, known := set[tag]
		w := words.Find(tag)
		if w.Found() != known || known && w.Value != have.value {
			t.Fatalf("tag %d: found %v %#x, want %v %#x", tag, w.Found(), w.Value, known, have.value)
		}
		if live := known && now-have.last <= have.age(); words.Live(now, w) != live {
			t.Fatalf("tag %d, last used %v ago: live %v", tag, (now - have.last).Sub(0), !live)
		}
		value := rng.Uint32()
		switch {
		case known && rng.IntN(2) == 0:
			words.Use(now, w)
			set[tag] = naiveWord{have.value, now}
		case known:
			if !words.Set(now, w, value) {
				t.Fatal("nobody else is there, and the entry is not as it was found")
			}
			set[tag] = naiveWord{value, now}
		default:
			room := len(set) < Ways
			if !room {
				oldest := uint64(0)
				for other, o := range set {
					if now-o.last > o.age() && (oldest == 0 || o.last < set[oldest].last) {
						oldest = other
					}
				}
				if room = oldest != 0; room {
					delete(set, oldest)
					evicted++
				}
			}
			if words.Insert(now, tag, value) != room {
				t.Fatalf("tag %d: room %v", tag, !room)
			}
			if room {
				inserted++
				set[tag] = naiveWord{value, now}
			} else {
				refused++
			}
		}
	}
	live := 0
	for _, set := range naive.sets {
		for _, w := range set {
			if now-w.last <= w.age() {
				live++
			}
		}
	}
	if n := words.Count(now); n != live {
		t.Errorf("%d entries are live, counted %d", live, n)
	}
	if inserted < 100 || refused < 100 || evicted < 100 {
		t.Errorf("%d inserted, %d refused, %d evicted: the test has lost its point", inserted, refused, evicted)
	}
}

// An entry that changed since it was found is left alone.
func TestWordsSetFailsAfterAChange(t *testing.T) {
	words := NewWords(Ways, shortAge, longAge)
	words.Insert(0, 7, 1)
	w := words.Find(7)
	if !words.Set(0, w, 2) || words.Set(0, w, 3) {
		t.Error("the second of two changes of one entry did not fail")
	}
	if got := words.Find(7).Value; got != 2 {
		t.Errorf("value %d", got)
	}
}

// A clock that is a little behind another worker's does not make its entries old, and one
// that jumps does.
func TestWordsClocks(t *testing.T) {
	words := NewWords(Ways, shortAge, longAge)
	now := mono.Time(time.Hour)
	words.Insert(now, 7, 1)
	for d, want := range map[time.Duration]bool{
		0: true, -time.Millisecond: true, -100 * time.Millisecond: true, -time.Minute: false, 499 * time.Millisecond: true, 502 * time.Millisecond: false,
	} {
		if got := words.Live(now.Add(d), words.Find(7)); got != want {
			t.Errorf("after %v live is %v", d, got)
		}
	}
}

// Tags that stand for no flow are given to none.
func TestTag(t *testing.T) {
	for _, h := range []uint64{0, 1, 2, 3, 1<<64 - 1} {
		if tag := Tag(h); tag <= tagBusy || h > tagBusy && tag != h {
			t.Errorf("hash %d has tag %d", h, tag)
		}
	}
}

// Whatever workers do at a time, a flow never has another one's value.
func TestWordsAreSharedWithoutMixingFlows(t *testing.T) {
	words := NewWords(Ways, 0, 0)
	var all sync.WaitGroup
	for worker := range 4 {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(worker), 1))
			now := mono.Time(0)
			for range 20_000 {
				now += 5 << tickShift
				tag := 2 + rng.Uint64N(16)
				w := words.Find(tag)
				switch {
				case w.Found() && w.Value>>8 != uint32(tag):
					t.Errorf("flow %d has the value of flow %d", tag, w.Value>>8)
					return
				case w.Found():
					words.Set(now, w, uint32(tag)<<8|rng.Uint32N(256))
				default:
					words.Insert(now, tag, uint32(tag)<<8)
				}
			}
		})
	}
	all.Wait()
}

// A set is one line of the cache, and nothing allocates.
func TestWordsAreCheap(t *testing.T) {
	if size := unsafe.Sizeof(wordSet{}); size != 64 {
		t.Errorf("a set has %d bytes", size)
	}
	words := NewWords(1024, shortAge, longAge)
	now, tag := mono.Time(0), uint64(1)
	if n := testing.AllocsPerRun(1000, func() {
		now += 1 << tickShift
		tag = tag*6364136223846793005 + 1442695040888963407
		words.Insert(now, Tag(tag), 5)
		words.Use(now, words.Find(Tag(tag)))
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
