package balance

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// TestReplyExtra: with reply_extra θ_reply is each leaf's shortest round trip and the
// allowance. ConWeave Appendix B.1 chose one θ_reply, 8 µs, for paths of 4 µs; paths
// between pods of a fat-tree take 8 µs when idle, and would be rerouted off for ever.
func TestReplyExtra(t *testing.T) {
	const us = time.Microsecond
	for _, tt := range []struct {
		name          string
		reply, extra  time.Duration
		rtt           []time.Duration // of the epochs before, by turn
		before, after time.Duration   // the cut-off lies between
	}{
		{"none is known", 12 * us, 4 * us, nil, 12 * us, 12*us + 1},
		{"a near leaf", 12 * us, 4 * us, []time.Duration{4 * us}, 8 * us, 8*us + 1},
		{"a far leaf", 12 * us, 4 * us, []time.Duration{8 * us}, 12 * us, 12*us + 1},
		{"the shortest counts", 30 * us, 4 * us, []time.Duration{20 * us, 5 * us, 8 * us}, 9 * us, 9*us + 1},
		{"late replies count", 12 * us, 4 * us, []time.Duration{15 * us}, 19 * us, 19*us + 1},
		{"not beyond inactive", 12 * us, 295 * us, []time.Duration{15 * us}, 300 * us, 0},
		{"a constant", 8 * us, 0, []time.Duration{4 * us}, 8 * us, 8*us + 1},
	} {
		s := newSource(t, func(o *Options) {
			o.Section = section(func(p *ConWeaveSource) { p.Reply, p.ReplyExtra = tt.reply, tt.extra })
		}, 0, 1)
		for i, rtt := range tt.rtt { // a flow each
			hash := uint32(100 + i)
			request := s.sendOf(hash, 0)
			s.now = s.now.Add(rtt)
			s.handle(0, hash, answerTo(overlay.OpRTTReply, request))
		}
		s.sendOf(1, 0)
		s.sendOf(2, 0)
		at := s.now
		if f := s.sendOf(1, tt.before); f.Tail {
			t.Errorf("%s: rerouted after %v", tt.name, tt.before)
		}
		if s.now = at; tt.after > 0 && !s.sendOf(2, tt.after).Tail {
			t.Errorf("%s: not rerouted after %v", tt.name, tt.after)
		}
	}
}

// TestReplyExtraByLeaf: leaves do not share their round trips, and what came of one
// changes nothing about the time of another's replies.
func TestReplyExtraByLeaf(t *testing.T) {
	s := newSource(t, func(o *Options) {
		o.Section = section(func(p *ConWeaveSource) { p.Reply, p.ReplyExtra = 50*time.Microsecond, 4*time.Microsecond })
	}, 0, 1)
	s.view = newView(MakePaths(0, 1), MakePaths(0, 1))
	send := func(hash uint32, leaf uint16) overlay.Fabric {
		pkts := []Packet{{Hash: hash, Leaf: leaf, Len: 1000}}
		s.p.Choose(s.now, s.view, pkts)
		f := overlay.Fabric{Capable: true}
		pkts[0].Stamp(s.now, reorder.SchemeID, 0, &f)
		return f
	}
	for leaf, rtt := range []time.Duration{4 * time.Microsecond, 9 * time.Microsecond} {
		request := send(uint32(10+leaf), uint16(leaf))
		s.now = s.now.Add(rtt)
		s.handle(uint16(leaf), uint32(10+leaf), answerTo(overlay.OpRTTReply, request))
	}
	for leaf, want := range []time.Duration{8 * time.Microsecond, 13 * time.Microsecond} {
		if got := s.p.reply(uint16(leaf)); got != want {
			t.Errorf("θ_reply to leaf %d is %v, want %v", leaf, got, want)
		}
	}
}

// TestBaseRTT holds the shortest round trip against its definition: the least of the
// present window and of the one before, a window being a second from its first reply.
func TestBaseRTT(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	var b baseRTT
	var windows [][]time.Duration
	var since mono.Time
	now := mono.Time(time.Hour)
	for range 10_000 {
		now += mono.Time(rng.IntN(int(400 * time.Millisecond)))
		took := time.Duration(rng.IntN(1000)) * time.Microsecond
		b.add(now, took)
		if len(windows) == 0 || now-since > baseWindow {
			windows, since = append(windows, nil), now
		}
		last := len(windows) - 1
		windows[last] = append(windows[last], took)
		want := slices.Min(slices.Concat(windows[max(last-1, 0):]...))
		if got, ok := b.known(); !ok || got != want {
			t.Fatalf("at %v: %v, want %v", now, got, want)
		}
	}
	var none baseRTT
	none.add(now, -time.Microsecond)
	none.add(now, overlay.MaxInactive+time.Microsecond)
	if _, ok := none.known(); ok {
		t.Error("what timestamps cannot tell was taken for a round trip")
	}
}
