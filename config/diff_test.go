package config

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/internal/units"
)

func conga(l *Leaf) *vocab.CongestionParams { return l.Congestion.Params.(*vocab.CongestionParams) }

// TestNeedsRestart: what may change is left out, and what may not is named as
// in the file.
func TestNeedsRestart(t *testing.T) {
	load := func() *Leaf {
		l, err := LoadLeaf("../deploy/examples/leafd.yaml", nil)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	for _, tc := range []struct {
		name   string
		change func(*Leaf)
		want   []string
	}{
		{"nothing", func(*Leaf) {}, nil},
		{"scheme", func(l *Leaf) { l.Scheme = "spray" }, nil},
		{"weights", func(l *Leaf) { l.Scheme, l.Params = "static", &balance.StaticKeys{Weights: []uint32{1, 2}} }, nil},
		{"drill", func(l *Leaf) {
			l.Scheme, l.Params = "drill", &balance.DRILLKeys{DRILL: balance.DRILL{Samples: 3, Memory: 1}}
		}, nil},
		{"no classes", func(l *Leaf) { l.Classes = nil }, nil},
		{"a class", func(l *Leaf) { l.Classes[1].Match.Port = units.Ports{First: 7, Last: 7} }, nil},
		{"deep inside", func(l *Leaf) { l.Uplinks[1].ECN.Kmax = 5 }, []string{"uplinks[1].ecn.kmax"}},
		{"a port more", func(l *Leaf) { l.Access = append(l.Access, Access{}) }, []string{"access"}},
		{"addresses", func(l *Leaf) { l.VTEP = netip.AddrFrom4([4]byte{9, 9, 9, 9}) }, []string{"vtep"}},
		{"a list's entry", func(l *Leaf) { l.Peers[0] = netip.AddrFrom4([4]byte{9, 9, 9, 9}) }, []string{"peers[0]"}},
		{"a mapping", func(l *Leaf) { l.Access[1].VLANs[30] = 200 }, []string{"access[1].vlans"}},
		{"a static MAC", func(l *Leaf) { l.VNIs[1].Static[0].MAC[5]++ }, []string{"vnis[1].static[0].mac"}},
		{"flood to none", func(l *Leaf) { l.VNIs[0].Flood = []netip.Addr{} }, []string{"vnis[0].flood"}},
		{"both kinds", func(l *Leaf) { l.Scheme, conga(l).Tau, l.Workers = "ecmp", 5, 3 }, []string{"workers", "congestion.tau"}},
		{"what belongs to all schemes", func(l *Leaf) { conga(l).Detector = 1 }, []string{"congestion.detector"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			changed := load()
			tc.change(changed)
			if got := NeedsRestart(load(), changed); !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
	s, err := LoadSpine("../deploy/examples/spined.yaml", nil)
	if err != nil {
		t.Fatal(err)
	}
	other := *s
	other.Ports = append([]SpinePort(nil), s.Ports...)
	other.Ports[0].Shaper.Rate, other.VTEPs = 5, nil
	if got, want := NeedsRestart(s, &other), []string{"vteps", "ports[0].shaper.rate"}; !slices.Equal(got, want) {
		t.Errorf("spine: got %q, want %q", got, want)
	}
}
