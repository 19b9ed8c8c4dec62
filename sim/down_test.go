package sim

import "testing"

// What stands beside a link that is down at random is shown as one distribution, and
// is that of its ports, which are shown alone, too.
func TestDownAtRandom(t *testing.T) {
	for seed := uint64(1); seed <= 3; seed++ {
		s := small()
		s.Topology.Links.Parallel, s.Topology.Links.Rate, s.Topology.Down, s.Seed = 2, 10e9, 1, seed
		s.Workloads[0].Load = 70
		s.Measure.Queues = []string{"beside-down", "spines"}
		queues := must(t, s).Queues
		together, found := queues[0], 0
		for _, q := range queues[1:] {
			if q.Mean == together.Mean && q.P99 == together.P99 && q.Max == together.Max {
				found++
			}
		}
		if together.Name != "beside-down" || together.N != 1 || together.Mean == 0 || found != 1 {
			t.Errorf("seed %d: beside the one link that is down: %s of %d ports, mean %g; %d ports have the same", seed, together.Name, together.N, together.Mean, found)
		}
	}
	s := small()
	s.Measure.Queues = []string{"beside-down"}
	if q := must(t, s).Queues; len(q) != 0 {
		t.Errorf("nothing is down, and beside it is %+v", q)
	}
	s.Topology.Down = 3
	if err := s.Complete("").Or(); err != nil {
		t.Error(err)
	}
	s.Topology.Down = -1
	if err := s.Complete("").Or(); err == nil {
		t.Error("-1 links are down")
	}
}
