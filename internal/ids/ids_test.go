package ids

import (
	"testing"
	"time"
)

// round has the table give numbers to keys, and returns them; -1: there was none.
func round(t *Table[string], now time.Time, keys ...string) (numbers []int) {
	t.Begin()
	for _, k := range keys {
		n, ok := t.Get(k, now)
		if !ok {
			n = -1
		}
		numbers = append(numbers, n)
	}
	t.End(now)
	return numbers
}

func TestNumbersRest(t *testing.T) {
	const rest = 10 * time.Second
	table := New[string](2, rest)
	start := time.Unix(100, 0)
	for _, step := range []struct {
		at   time.Duration
		keys []string
		want []int
	}{
		{0, []string{"a"}, []int{0}},
		{1, []string{"b"}, []int{1}},         // not a's, as there is another one
		{2, []string{"b", "a"}, []int{1, 0}}, // a has its own again
		{3, []string{"b"}, []int{1}},         // from here on a's rests
		{4, []string{"b"}, []int{1}},         // a round in between changes nothing
		{9 * time.Second, []string{"b", "c"}, []int{1, -1}},
		{rest + 3, []string{"b", "c"}, []int{1, 0}},
		{rest + 4, []string{"b", "c", "a"}, []int{1, 0, -1}},
	} {
		got := round(&table, start.Add(step.at), step.keys...)
		for i := range got {
			if got[i] != step.want[i] {
				t.Errorf("at %v: %v have %v, want %v", step.at, step.keys, got, step.want)
				break
			}
		}
	}
	if table.Full() != 2 || table.Len() != 2 || table.Key(0) != "c" || !table.Live(0) {
		t.Errorf("full %d, %d numbers, 0 is %q's", table.Full(), table.Len(), table.Key(0))
	}
}

func TestWait(t *testing.T) {
	const rest = 10 * time.Second
	table := New[string](1, rest)
	now := time.Unix(100, 0)
	if d, ok := table.Wait(now); d != 0 || !ok {
		t.Errorf("an empty table lets wait for %v, %v", d, ok)
	}
	round(&table, now, "a")
	if _, ok := table.Wait(now); ok {
		t.Error("a number is in use, and yet it is said when it is free")
	}
	trial := table.Clone()
	round(&trial, now)
	if d, ok := trial.Wait(now.Add(time.Second)); d != rest-time.Second || !ok {
		t.Errorf("wait %v, %v", d, ok)
	}
	if !table.Live(0) {
		t.Error("what a copy is told reaches the table")
	}
}
