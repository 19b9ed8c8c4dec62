package liveness

import (
	"testing"

	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/internal/snapshot"
)

// What is counted beside the workers counts at once, for each of them, and goes along to
// another process with the first one's counts alone.
func TestTrafficBesideTheWorkers(t *testing.T) {
	table := NewTable(3, 2)
	beside := uint32(5)
	table.CountBeside(func(p uint16, tag uint8) (came, hot uint32) {
		if p != 1 || tag != 4 {
			return 0, 0
		}
		return beside, beside / 2
	}, func(p uint16, tag uint8) uint32 {
		if p != 1 || tag != 6 {
			return 0
		}
		return beside
	})
	workers := []*Traffic{NewTraffic(table, 0), NewTraffic(table, 1)}
	workers[0].Arrive(1, 4)
	workers[0].ArriveHot(1, 4)
	workers[0].Share(mono.Time(shareEvery), 3)
	check := func(of []*Traffic, came, hot uint32) {
		t.Helper()
		for i, w := range of {
			if c, h := w.Came(1, 4), w.Hot(1, 4); c != came || h != hot {
				t.Errorf("worker %d knows of %d packets, %d hot; want %d and %d", i, c, h, came, hot)
			}
			if n := w.Sent(1, 6); n != came-1 {
				t.Errorf("worker %d knows of %d packets sent, want %d", i, n, came-1)
			}
			if c := w.Came(1, 3) + w.Came(2, 4); c != 0 {
				t.Errorf("worker %d knows of %d packets by other paths", i, c)
			}
		}
	}
	check(workers, 6, 3)
	beside = 9
	check(workers, 10, 5)

	next := NewTable(3, 2)
	heirs := []*Traffic{NewTraffic(next, 0), NewTraffic(next, 1)}
	for i, w := range workers {
		var s snapshot.Writer
		s.Begin("traffic", 1)
		w.Save(&s, 1)
		s.End()
		sections, err := snapshot.Sections(s.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		r := snapshot.NewReader(sections[0].Body)
		heirs[i].Load(r, 1)
		if err := r.Done(); err != nil {
			t.Fatal(err)
		}
		heirs[i].Share(mono.Time(shareEvery), 3)
	}
	check(heirs, 10, 5)
}
