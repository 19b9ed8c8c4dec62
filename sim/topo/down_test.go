package topo

import (
	"slices"
	"testing"

	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
	"github.com/loomfabric/loom/sim/node"
)

// down returns the links between switches that are down at time 0.
func (t *Topology) down() (names []string) {
	for _, l := range t.Links {
		if l.index < len(t.up) && !t.up[l.index] {
			names = append(names, l.Name)
		}
	}
	return names
}

// Links that are down at random are as many as asked for, the same with the same
// seed and others with another; no port on them is used, and leaves reach each other.
func TestDownAtRandom(t *testing.T) {
	seen := map[string]int{}
	for seed := uint64(1); seed <= 8; seed++ {
		s := leafSpine(6, 4, 2, 3)
		s.Down, s.DownSeed = 9, seed
		top, again := mustBuild(t, s, node.DefaultConfig()), mustBuild(t, s, node.DefaultConfig())
		names := top.down()
		if len(names) != 9 || !slices.Equal(names, again.down()) {
			t.Fatalf("seed %d: %v are down, and then %v", seed, names, again.down())
		}
		for _, n := range names {
			seen[n]++
		}
		for _, l := range top.Links {
			if isDown := slices.Contains(names, l.Name); l.A.Up() == isDown || l.B.Up() == isDown {
				t.Errorf("seed %d: link %s: its ports are up: %v", seed, l.Name, l.A.Up())
			}
		}
		for _, p := range top.BesideDown() {
			if !p.Up() {
				t.Errorf("seed %d: %s is beside a link that is down, and is down itself", seed, p.Name)
			}
		}
		if n := len(top.BesideDown()); n != 18 {
			t.Errorf("seed %d: %d ports are beside 9 links that are down", seed, n)
		}
	}
	if len(seen) < 35 {
		t.Errorf("8 draws of 9 links of 72 hit %d", len(seen))
	}
}

// A fabric keeps the links without which leaves would be parted.
func TestDownLeavesPaths(t *testing.T) {
	s := leafSpine(3, 2, 1, 1)
	s.Down, s.DownSeed = 3, 1
	if top := mustBuild(t, s, node.DefaultConfig()); len(top.down()) != 3 || top.start.parted(3) {
		t.Errorf("%v are down", top.down())
	}
	s.Down = 4
	if _, err := Build(network.New(engine.New()), s, node.DefaultConfig()); err == nil {
		t.Error("4 of 6 links of 3 leaves and 2 spines are down, and leaves reach each other")
	}
}
