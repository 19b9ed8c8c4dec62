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
			v, err := compile(&cfg, tables)
			if err != nil {
				t.Fatal(err)
			}
			if v.paths[0] != tt.want {
				t.Errorf("paths %+v, want %+v", v.paths[0], tt.want)
			}
		})
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
