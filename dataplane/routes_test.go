package dataplane

import (
	"maps"
	"net/netip"
	"testing"

	"github.com/gaissmai/bart"
)

// A spine of any VTEP takes what it has a next hop for that it can use, and neither what
// is this machine's nor what no router sends on.
func TestSpineTakesWhatItHasARouteFor(t *testing.T) {
	tables := spineTables()
	tables.Routes = new(bart.Table[uint32])
	for p, g := range map[string]uint32{"10.255.0.0/16": 1, "10.255.9.0/24": 0, "0.0.0.0/0": 1, "10.255.7.0/24": 9} {
		tables.Routes.Insert(netip.MustParsePrefix(p), g)
	}
	tables.Groups = []Group{{}, tables.Groups[0]}
	tables.Local = []netip.Addr{netip.MustParseAddr("10.255.0.99")}
	cfg := spineConfig()
	taken := func() map[string]bool {
		t.Helper()
		v, err := compile(&cfg, layoutOf(t, &cfg), tables)
		if err != nil {
			t.Fatal(err)
		}
		out := make(map[string]bool)
		for p, is := range v.taken() {
			out[p.String()] = is
		}
		return out
	}
	want := map[string]bool{
		"10.255.0.0/16": true, "10.255.9.0/24": false, "0.0.0.0/0": true, "10.255.7.0/24": false, "10.255.0.99/32": false,
		"0.0.0.0/8": false, "127.0.0.0/8": false, "224.0.0.0/4": false, "255.255.255.255/32": false,
		"::/64": false, "fe80::/10": false, "ff00::/8": false,
	}
	if got := taken(); !maps.Equal(got, want) {
		t.Errorf("taken %v, want %v", got, want)
	}
	for i := range tables.Ports {
		tables.Ports[i].Up = false
	}
	want["10.255.0.0/16"], want["0.0.0.0/0"] = false, false
	if got := taken(); !maps.Equal(got, want) {
		t.Errorf("with all ports down: taken %v, want %v", got, want)
	}
}
