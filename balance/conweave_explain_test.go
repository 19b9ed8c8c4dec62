package balance

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/overlay"
)

// Explain says what a connection waits for, and where its next packet goes.
func TestConWeaveExplains(t *testing.T) {
	for _, tt := range []struct {
		name  string
		state func(*source)
		want  string
	}{
		{"asked", func(s *source) { s.send(0) }, "one is awaited"},
		{"answered", func(s *source) { s.answer(overlay.OpRTTReply, s.send(0), 0) }, "the last one did"},
		{"cut off", func(s *source) { s.send(0); s.now += 9 * usec }, "this packet is the TAIL"},
		{"rerouted", func(s *source) { s.reroute() }, "CLEAR"},
		{"path gone", func(s *source) {
			s.view.Paths[0] = MakePaths(without([]uint8{0, 1, 2}, s.send(0).Path.Uplink())...)
		}, "its path is gone: it moves"},
		{"NEW path gone", func(s *source) {
			s.reroute()
			s.view.Paths[0] = MakePaths(without([]uint8{0, 1, 2}, s.send(0).Path.Uplink())...)
		}, "returns to the one before"},
		{"moved", func(s *source) {
			s.view.Paths[0] = MakePaths(without([]uint8{0, 1, 2}, s.send(0).Path.Uplink())...)
			s.send(0)
		}, "it stays here until"},
		{"inactive", func(s *source) { s.send(0); s.now += 301 * usec }, "it stays there"},
		{"inactive, its path busy", func(s *source) {
			s.answer(overlay.OpNotify, overlay.Fabric{Path: s.send(0).Path}, 299*time.Microsecond)
			s.now += 2 * usec
		}, "random path that is not busy"},
		{"inactive, no answer twice", func(s *source) { s.send(0); s.send(301 * time.Microsecond); s.now += 301 * usec }, "random path that is not busy"},
		{"plain", func(s *source) { s.view.Capable = overlay.NewCapability(1) }, "does not speak ConWeave"},
		{"plain by now", func(s *source) { s.send(0); s.view.Capable = overlay.NewCapability(1) }, "no longer speaks ConWeave"},
		{"plain just now", func(s *source) {
			s.view.Capable = overlay.NewCapability(1)
			s.sendOf(2, 0)
			s.view.Capable = nil
		}, "just went, by hash"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSource(t, nil, 0, 1, 2)
			tt.state(s)
			x := Explain(s.p, s.now, s.view, &Packet{Hash: 1})
			if !strings.Contains(x.Reason, tt.want) {
				t.Errorf("reason %q, want %q", x.Reason, tt.want)
			}
			f := s.send(0)
			took := s.view.Paths[0].Index[f.Path.Uplink()]
			if x.Path >= 0 && x.Path != int(took) || x.Path < 0 && x.Fresh&(1<<f.Path.Uplink()) == 0 {
				t.Errorf("took path %d, explained %+v", took, x)
			}
		})
	}
}

// New flows are explained without the paths that are busy.
func TestConWeaveExplainsBusyPaths(t *testing.T) {
	for _, name := range []string{"conweave", "conweave-informed"} {
		p := mustNew(t, name, 1).(*conweave)
		s := &source{t: t, p: p, view: newView(MakePaths(0, 1, 2)), now: usec}
		s.send(0)
		s.answer(overlay.OpNotify, overlay.Fabric{Path: 0x10}, time.Microsecond)
		if x := Explain(p, s.now, s.view, &Packet{Hash: 2}); x.Fresh != 0b101 || x.Path != -1 {
			t.Errorf("%s: %+v", name, x)
		}
		if until, ok := p.BusyUntil(s.now, 0, 0x10); !ok || until != s.now+8*usec {
			t.Errorf("%s: busy until %d, %v", name, until, ok)
		}
		if _, ok := p.BusyUntil(s.now, 7, 0x10); ok {
			t.Errorf("%s: a leaf that there is not is busy", name)
		}
	}
}

// All connections are those of all sets, each once, and those of a flow's hash are
// in one of them.
func TestConnectionsInParts(t *testing.T) {
	s := newSource(t, func(o *Options) { o.Section = section(func(p *ConWeaveSource) { p.Connections = 64 }) }, 0, 1)
	for hash := range uint32(40) {
		s.sendOf(hash, 0)
	}
	s.now += 200 * usec
	for hash := range uint32(20) {
		s.sendOf(hash, 0)
	}
	s.now += 200 * usec // the others are aged
	all := slices.Collect(s.p.Connections(s.now, 0, s.p.ConnectionSets()))
	var parts []Connection
	for from := -3; from < s.p.ConnectionSets()+3; from += 3 {
		parts = slices.AppendSeq(parts, s.p.Connections(s.now, from, from+3))
	}
	if len(all) != 20 || !slices.Equal(all, parts) {
		t.Errorf("%d connections, want 20; in parts %v, want %v", len(all), parts, all)
	}
	for hash := range uint32(80) {
		want := []Connection(nil)
		for _, c := range all {
			if c.Hash == hash {
				want = append(want, c)
			}
		}
		if got := slices.Collect(s.p.ConnectionsOf(s.now, hash)); !slices.Equal(got, want) {
			t.Errorf("connections of hash %d: %v, want %v", hash, got, want)
		}
	}
}
