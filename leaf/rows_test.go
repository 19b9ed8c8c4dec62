package leaf

import (
	"math/rand/v2"
	"testing"

	"github.com/loomfabric/loom/balance"
)

// The paths of rows are the driver's, also where some are kept from schemes: each flow has the
// path that a worker's scheme gives it.
func TestRowsOfQuarantinedPaths(t *testing.T) {
	p := newPair(t, "ecmp")
	a := p.site[0]
	rows, err := NewRows(a.cfg, a.shared)
	if err != nil {
		t.Fatal(err)
	}
	rows.SetPaths(a.paths)
	rng := rand.New(rand.NewPCG(1, 2))
	compare := func(want uint16) {
		t.Helper()
		var r balance.Row
		path, ok := rows.Row(a.now, 0, 1, &r)
		if !ok {
			t.Fatal("no row")
		}
		stays, used := uint16(0), uint16(0)
		for u, i := range path {
			if i >= 0 {
				stays |= 1 << u
			}
			if i >= 0 && int(a.paths[1].Uplink[i]) != u {
				t.Errorf("uplink %d has path %d, which starts on %d", u, i, a.paths[1].Uplink[i])
			}
		}
		for range 400 {
			pkts := []balance.Packet{{Hash: rng.Uint32(), Leaf: 1}}
			a.Choose(a.now, a.Classes()[0], pkts, nil)
			got := r.Of(balance.Remix(uint64(pkts[0].Hash) ^ r.Seed))
			if got != pkts[0].Path {
				t.Fatalf("flow %#x: the row has path %d, the scheme %d", pkts[0].Hash, got, pkts[0].Path)
			}
			used |= 1 << a.paths[1].Uplink[got]
		}
		if stays != want || used != want {
			t.Errorf("flows stay on uplinks %04b and take %04b, want %04b", stays, used, want)
		}
	}
	p.rounds(20)
	compare(0b1111)
	p.lost = func(from int, uplink uint8, _ bool) bool { return from == 0 && (uplink == 1 || uplink == 2) }
	p.rounds(8)
	if !rows.Behind() {
		t.Error("paths are dead, and the rows are not behind")
	}
	rows.SetPaths(a.paths)
	if rows.Behind() {
		t.Error("the rows are behind after SetPaths")
	}
	compare(0b1001)
}

// A table stands for schemes that need nothing but a path.
func TestTabledSchemes(t *testing.T) {
	var classes []ClassConfig
	for _, name := range balance.Names() {
		classes = append(classes, ClassConfig{Scheme: name})
	}
	p := newPair(t, "ecmp")
	cfg := p.site[0].cfg
	cfg.Classes = classes
	rows, err := NewRows(cfg, p.site[0].shared)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{"ecmp": false, "letflow": true, "local": true, "conga": true, "conga-flow": true} // whether about flowlets
	for i, c := range classes {
		flowlets, tabled := want[c.Scheme]
		if got, ofFlowlets := rows.Tabled(i); got != tabled || ofFlowlets != flowlets {
			t.Errorf("scheme %s: a table %v, of flowlets %v", c.Scheme, got, ofFlowlets)
		}
	}
}
