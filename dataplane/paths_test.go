package dataplane

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/loomfabric/loom/balance"
)

// Paths are numbered by what is usable now, uplinks by the configuration: an
// LBTag must mean the same uplink whatever else is up.
func TestPathsOfPeers(t *testing.T) {
	down := func(p PortID) func(*Tables) { return func(t *Tables) { t.Ports[p].Up = false } }
	for _, tt := range []struct {
		name   string
		change func(*Tables)
		want   balance.Paths
	}{
		{"both", func(*Tables) {}, balance.MakePaths(0, 1)},
		{"first down", down(up0), balance.MakePaths(1)},
		{"second down", down(up1), balance.MakePaths(0)},
		{"the other way round", func(t *Tables) { t.Peers[0].Hops = []HopID{1, 0} }, balance.MakePaths(1, 0)},
		{"first without MAC", func(t *Tables) { t.Hops[0].Resolved = false }, balance.MakePaths(1)},
		{"no route", func(t *Tables) { t.Peers[0].Hops = nil }, balance.MakePaths()},
		{"route through an access port", func(t *Tables) { t.Hops[0].Port = acc0 }, balance.MakePaths(1)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg, tables := leafConfig(), leafTables()
			cfg.VTEP = netip.MustParseAddr(testVTEP)
			tt.change(tables)
			v, err := compile(&cfg, layoutOf(t, &cfg), tables)
			if err != nil {
				t.Fatal(err)
			}
			got := v.paths[0]
			if got.N != tt.want.N || got.Uplink != tt.want.Uplink || got.Index != tt.want.Index || got.Weights != tt.want.Weights {
				t.Errorf("paths %+v, want %+v", got, tt.want)
			}
		})
	}
}

// A weight stays with its next hop, whatever others are out of use, and takes no more
// than that one path: LBTags are few.
func TestPathsHaveWeights(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*Tables)
		want   balance.Paths
	}{
		{"both", func(*Tables) {}, balance.MakeWeightedPaths([]uint8{0, 1}, []uint16{2, 100})},
		{"the other way round", func(t *Tables) { t.Peers[0].Hops = []HopID{1, 0} }, balance.MakeWeightedPaths([]uint8{1, 0}, []uint16{2, 100})},
		{"first down", func(t *Tables) { t.Ports[up0].Up = false }, balance.MakePaths(1)},
		{"first without MAC", func(t *Tables) { t.Hops[0].Resolved = false }, balance.MakePaths(1)},
		{"one with a MAC on a port that is down", func(t *Tables) { t.Ports[up0].Up, t.Hops[1].Resolved = false, false }, balance.MakePaths(1)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg, tables := leafConfig(), leafTables()
			cfg.VTEP = netip.MustParseAddr(testVTEP)
			tables.Peers[0].Weights = []uint16{2, 100}
			tt.change(tables)
			v, err := compile(&cfg, layoutOf(t, &cfg), tables)
			if err != nil {
				t.Fatal(err)
			}
			got := v.paths[0]
			if got.N != tt.want.N || got.Uplink != tt.want.Uplink || got.Index != tt.want.Index || got.Weights != tt.want.Weights {
				t.Errorf("paths %+v, want %+v", got, tt.want)
			}
		})
	}
	for _, weights := range [][]uint16{{1}, {1, 2, 3}, {0, 1}, {}} {
		cfg, tables := leafConfig(), leafTables()
		tables.Peers[0].Weights = weights
		if _, err := compile(&cfg, layoutOf(t, &cfg), tables); err == nil {
			t.Errorf("weights %v of two next hops are taken", weights)
		}
	}
}

// A spine spreads by weight what has a selector, in sixteenths, and what has none.
func TestSpineSpreadsByWeight(t *testing.T) {
	tables := spineTables()
	tables.Groups[0].Weights = []uint16{3, 1}
	cfg := spineConfig()
	v, err := compile(&cfg, layoutOf(t, &cfg), tables)
	if err != nil {
		t.Fatal(err)
	}
	g := &v.groups[0]
	var selected, hashed [2]int
	for s := range uint8(16) {
		selected[g.choice.Of(true, s, 0)]++
	}
	for i := range uint32(1000) {
		hashed[g.choice.Of(false, 0, i*0x9E3779B1)]++
	}
	if selected != [2]int{12, 4} || hashed[0] < 745 || hashed[0] > 755 {
		t.Errorf("%v of 16 selectors and %v of 1000 hashes, want three quarters for the first next hop", selected, hashed)
	}
	tables.Ports[v.hops[g.hops[0]].port].Up = false
	if v, err = compile(&cfg, layoutOf(t, &cfg), tables); err != nil || v.groups[0].n != 1 || v.groups[0].choice.Of(true, 0, 0) != 0 {
		t.Errorf("one next hop left: %+v, error %v", v.groups[0], err)
	}
	tables.Groups[0].Weights = []uint16{3}
	if _, err := compile(&cfg, layoutOf(t, &cfg), tables); err == nil {
		t.Error("one weight of two next hops is taken")
	}
}

func TestUplinksAreLimited(t *testing.T) {
	cfg := leafConfig()
	cfg.VTEP, cfg.Workers, cfg.RingSize, cfg.FDBSize = netip.MustParseAddr(testVTEP), 1, 512, 1
	for i := 2; i < MaxPaths; i++ {
		cfg.Ports = append(cfg.Ports, PortConfig{Name: fmt.Sprint("up", i), Kind: Uplink})
	}
	if err := cfg.check(); err != nil {
		t.Fatalf("sixteen uplinks: %v", err)
	}
	cfg.Ports = append(cfg.Ports, PortConfig{Name: "up16", Kind: Uplink})
	if err := cfg.check(); err == nil || !strings.Contains(err.Error(), "17 uplinks") {
		t.Errorf("seventeen uplinks: error %v", err)
	}
}

// Flows stay with their next hops while others are down, unresolved, or gone from the
// tables altogether.
func TestFlowsStayWhileNextHopsGo(t *testing.T) {
	leafOf := func(change func(*Tables)) *balance.Paths {
		t.Helper()
		cfg, tables := leafConfig(), leafTables()
		cfg.VTEP = netip.MustParseAddr(testVTEP)
		change(tables)
		v, err := compile(&cfg, layoutOf(t, &cfg), tables)
		if err != nil {
			t.Fatal(err)
		}
		return &v.paths[0]
	}
	spineOf := func(change func(*Tables)) *viewGroup {
		t.Helper()
		cfg, tables := spineConfig(), spineTables()
		change(tables)
		v, err := compile(&cfg, layoutOf(t, &cfg), tables)
		if err != nil {
			t.Fatal(err)
		}
		return &v.groups[0]
	}
	allPaths, allHops := leafOf(func(*Tables) {}), spineOf(func(*Tables) {})
	for _, tt := range []struct {
		name        string
		leaf, spine func(*Tables)
	}{
		{
			"port down", func(t *Tables) { t.Ports[t.Hops[t.Peers[0].Hops[0]].Port].Up = false },
			func(t *Tables) { t.Ports[t.Hops[t.Groups[0].Hops[0]].Port].Up = false },
		},
		{
			"no MAC", func(t *Tables) { t.Hops[t.Peers[0].Hops[0]].Resolved = false },
			func(t *Tables) { t.Hops[t.Groups[0].Hops[0]].Resolved = false },
		},
		{
			"gone", func(t *Tables) { t.Peers[0].Hops, t.Peers[0].Gone = t.Peers[0].Hops[1:], []Gone{{0, 1}} },
			func(t *Tables) { t.Groups[0].Hops, t.Groups[0].Gone = t.Groups[0].Hops[1:], []Gone{{0, 1}} },
		},
	} {
		paths, hops := leafOf(tt.leaf), spineOf(tt.spine)
		if paths.N != allPaths.N-1 || hops.n != allHops.n-1 {
			t.Errorf("%s: %d paths of %d, %d next hops of %d", tt.name, paths.N, allPaths.N, hops.n, allHops.n)
			continue
		}
		for i := range uint32(1000) {
			number := i * 0x9E3779B1
			was, is := allPaths.Uplink[allPaths.Share(number)], paths.Uplink[paths.Share(number)]
			if was != allPaths.Uplink[0] && was != is {
				t.Fatalf("%s: a flow moved from uplink %d to %d", tt.name, was, is)
			}
			for _, capable := range []bool{false, true} {
				was, is := allHops.hops[allHops.choice.Of(capable, uint8(i%16), number)], hops.hops[hops.choice.Of(capable, uint8(i%16), number)]
				if was != allHops.hops[0] && was != is {
					t.Fatalf("%s: a flow moved from next hop %d to %d", tt.name, was, is)
				}
			}
		}
	}
}
