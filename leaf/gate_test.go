package leaf

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/reorder"
)

func items(w []Waiting[int]) (out []int) {
	for _, x := range w {
		out = append(out, x.Item)
	}
	return out
}

// Packets that wait come back when their time has come, not before, in the order of
// their times, and of one time in the order in which they began to wait.
func TestGateKeepsTheOrder(t *testing.T) {
	s := newSite(t, "ecmp", "spray")
	if s.Deadline() != reorder.Never {
		t.Errorf("nothing waits until %d", s.Deadline())
	}
	for item, w := range []struct {
		class int
		until mono.Time
	}{{0, 30}, {1, 10}, {0, 20}, {1, 10}, {0, 30}, {1, 5}, {0, 10}} {
		if !s.Wait(s.Classes()[w.class], &balance.Packet{Until: s.now + w.until}, item) {
			t.Fatalf("packet %d cannot wait", item)
		}
	}
	if s.Deadline() != s.now+5 || s.Held() != 7 {
		t.Errorf("the first of %d waits until %d", s.Held(), s.Deadline()-s.now)
	}
	start := s.now
	for _, step := range []struct {
		at   mono.Time
		want []int
		next mono.Time
	}{
		{0, nil, 5}, {4, nil, 5}, {5, []int{5}, 10}, {19, []int{1, 3, 6}, 20}, {30, []int{2, 0, 4}, reorder.Never - start},
	} {
		o := s.Tick(start+step.at, false)
		if got := items(o.Retry); !slices.Equal(got, step.want) || s.Deadline() != start+step.next {
			t.Errorf("at %d packets %v go on, the next at %d; want %v, %d", step.at, got, s.Deadline()-start, step.want, step.next)
		}
		for _, w := range o.Retry {
			if want := s.Classes()[map[int]int{1: 1, 3: 1, 5: 1}[w.Item]]; w.Class != want {
				t.Errorf("packet %d comes back in another class", w.Item)
			}
		}
	}
	if st := s.Stats(); st.Waited != 7 || st.GateFull != 0 || s.Held() != 0 {
		t.Errorf("%d waited, %d did not, %d are left", st.Waited, st.GateFull, s.Held())
	}
}

// The gate has an end: what does not fit goes at once, and is counted. A driver that
// stops gets all back, in order.
func TestGateFull(t *testing.T) {
	s := newSite(t, "ecmp")
	c := s.Classes()[0]
	for item := range gateSize {
		if !s.Wait(c, &balance.Packet{Until: s.now + mono.Time(gateSize-item)}, item) {
			t.Fatalf("packet %d of %d cannot wait", item, gateSize)
		}
	}
	if s.Wait(c, &balance.Packet{Until: s.now + 1}, -1) {
		t.Error("one more can wait")
	}
	got := items(s.Flush(s.now).Retry)
	slices.Reverse(got)
	for i, item := range got {
		if item != i {
			t.Fatalf("packet %d in place %d from the end", item, i)
		}
	}
	if st := s.Stats(); len(got) != gateSize || st.GateFull != 1 || st.Waited != gateSize || s.Held() != 0 {
		t.Errorf("%d back, %d did not fit, %d are left", len(got), st.GateFull, s.Held())
	}
	if !s.Wait(c, &balance.Packet{}, 1) {
		t.Error("it is empty, and no packet can wait")
	}
}

// The heap against a sorted list, at random.
func TestGateAgainstSort(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	s := newSite(t, "ecmp")
	type entry struct {
		until mono.Time
		item  int
	}
	var naive []entry
	for item := range 20_000 {
		until := s.now + mono.Time(rng.Int64N(100))
		if s.Wait(s.Classes()[0], &balance.Packet{Until: until}, item) != (len(naive) < gateSize) {
			t.Fatalf("%d wait", len(naive))
		}
		if len(naive) < gateSize {
			naive = append(naive, entry{until, item})
		}
		s.now = s.now.Add(time.Duration(rng.IntN(2)))
		if rng.IntN(10) > 0 {
			continue
		}
		slices.SortStableFunc(naive, func(a, b entry) int { return int(a.until - b.until) })
		due := 0
		for due < len(naive) && naive[due].until <= s.now {
			due++
		}
		var want []int
		for _, e := range naive[:due] {
			want = append(want, e.item)
		}
		naive = naive[due:]
		if got := items(s.Tick(s.now, false).Retry); !slices.Equal(got, want) {
			t.Fatalf("packets %v go on, want %v", got, want)
		}
	}
}

// A packet that has waited is offered to its scheme again, which lets it go.
func TestWaitingPacketsAreOfferedAgain(t *testing.T) {
	s := newSite(t, "ecmp")
	offers := 0
	f := &fakePolicy{name: "waits", deadline: reorder.Never}
	f.choose = func(pkts []balance.Packet) {
		offers++
		pkts[0].Until = 0
		if offers == 1 {
			pkts[0].Until = s.now + us
		}
	}
	c := f.class(0)
	s.SetClasses([]*Class{c})
	pkts := []balance.Packet{{Leaf: 1}}
	s.Choose(s.now, c, pkts, nil)
	if pkts[0].Until == 0 || !s.Wait(c, &pkts[0], 42) {
		t.Fatal("it does not wait")
	}
	s.now += us
	o := s.Tick(s.now, false)
	if len(o.Retry) != 1 || o.Retry[0].Item != 42 {
		t.Fatalf("back are %+v", o.Retry)
	}
	s.Choose(s.now, o.Retry[0].Class, pkts, nil)
	if pkts[0].Until != 0 || offers != 2 {
		t.Errorf("offered %d times, and waits until %d", offers, pkts[0].Until)
	}
}
