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

// restart returns the keys in which two files differ and which need a restart.
func restart(old, changed any) []string {
	_, keys := Changes(old, changed)
	return keys
}

// TestChanges: what differs is named as in the file, whether it needs a restart or not.
func TestChanges(t *testing.T) {
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
		live   []string
		want   []string // that need a restart
	}{
		{"nothing", func(*Leaf) {}, nil, nil},
		{"scheme", func(l *Leaf) { l.Scheme = "spray" }, []string{"scheme"}, nil},
		{"weights", func(l *Leaf) { l.Scheme, l.Params = "static", &balance.StaticKeys{Weights: []uint32{1, 2}} }, []string{"scheme", "flowlets", "weights"}, nil},
		{"drill", func(l *Leaf) {
			l.Scheme, l.Params = "drill", &balance.DRILLKeys{DRILL: balance.DRILL{Samples: 3, Memory: 1}}
		}, []string{"scheme", "flowlets", "drill.samples", "drill.memory"}, nil},
		{"no classes", func(l *Leaf) { l.Classes = nil }, []string{"classes"}, nil},
		{"a class", func(l *Leaf) { l.Classes[1].Match.Port = units.Ports{First: 7, Last: 7} }, []string{"classes[1].match.port"}, nil},
		{"deep inside", func(l *Leaf) { l.Uplinks[1].ECN.Kmax = 5 }, []string{"uplinks[1].ecn.kmax"}, nil},
		{"a port more", func(l *Leaf) { l.Access = append(l.Access, Access{}) }, []string{"access"}, nil},
		{"addresses", func(l *Leaf) { l.VTEP = netip.AddrFrom4([4]byte{9, 9, 9, 9}) }, nil, []string{"vtep"}},
		{"a list's entry", func(l *Leaf) { l.Peers[0] = netip.AddrFrom4([4]byte{9, 9, 9, 9}) }, []string{"peers[0]"}, nil},
		{"a mapping", func(l *Leaf) { l.Access[1].VLANs[30] = 200 }, []string{"access[1].vlans"}, nil},
		{"a static MAC", func(l *Leaf) { l.VNIs[1].Static[0].MAC[5]++ }, []string{"vnis[1].static[0].mac"}, nil},
		{"flood to none", func(l *Leaf) { l.VNIs[0].Flood = []netip.Addr{} }, []string{"vnis[0].flood"}, nil},
		{"both kinds", func(l *Leaf) { l.Scheme, conga(l).Tau, l.Workers = "ecmp", 5, 3 }, []string{"scheme"}, []string{"workers", "congestion.tau"}},
		{"the log's level, not its form", func(l *Leaf) { l.Log = Log{"debug", "json"} }, []string{"log.level"}, []string{"log.format"}},
		{"the table's size", func(l *Leaf) { l.FDB.Size, l.MaxPorts = 64, 9 }, nil, []string{"fdb.size", "max_ports"}},
		{"what belongs to all schemes", func(l *Leaf) { conga(l).Detector = 1 }, nil, []string{"congestion.detector"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			changed := load()
			tc.change(changed)
			if live, got := Changes(load(), changed); !slices.Equal(live, tc.live) || !slices.Equal(got, tc.want) {
				t.Errorf("live %q, want %q; restart %q, want %q", live, tc.live, got, tc.want)
			}
		})
	}
	s, err := LoadSpine("../deploy/examples/spined.yaml", nil)
	if err != nil {
		t.Fatal(err)
	}
	other := *s
	other.Ports = append([]SpinePort(nil), s.Ports...)
	other.Ports[0].Shaper.Rate, other.VTEPs, other.Scheme = 5, nil, "drill"
	live, restart := Changes(s, &other)
	if !slices.Equal(live, []string{"vteps", "ports[0].shaper.rate"}) || !slices.Equal(restart, []string{"scheme"}) {
		t.Errorf("spine: live %q, restart %q", live, restart)
	}
}
