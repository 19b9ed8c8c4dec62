package balance

import (
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// New times count from the next packet on, and connections stay.
func TestConWeaveRetime(t *testing.T) {
	s := newSource(t, nil, 0, 1)
	if err := s.p.Retime(s.now, &reorder.Times{Reply: time.Millisecond, Inactive: 5 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	request := s.send(0)
	if request.Opcode != overlay.OpRTTRequest {
		t.Fatalf("the first packet is %+v", request)
	}
	if f := s.send(900 * time.Microsecond); f.Tail {
		t.Error("rerouted before the new reply time")
	}
	if err := s.p.Retime(s.now, &reorder.Times{Reply: 2 * time.Millisecond, Inactive: 5 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	if f := s.send(200 * time.Microsecond); !f.Tail {
		t.Error("the request that was under way got another reply time")
	}
	if got := s.stats(); got.Epochs != 1 || got.Reroutes != 1 {
		t.Errorf("%d epochs, %d reroutes", got.Epochs, got.Reroutes)
	}
	s.send(5*time.Millisecond + 1)
	if got := s.stats(); got.Inactive != 1 {
		t.Error("a pause of the new inactive time did not end the epoch")
	}
}

// Times that are left out stay, and make room for those that are given, whichever
// these are. What timestamps cannot tell apart changes nothing.
func TestConWeaveRetimeFits(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		name            string
		times           reorder.Times
		reply, inactive time.Duration
		refused         bool
	}{
		{"none", reorder.Times{}, ms, 10 * ms, false},
		{"of others", reorder.Times{ResumeExtra: ms, FlowletGap: ms, MaxHold: 9 * ms}, ms, 10 * ms, false},
		{"a reply time", reorder.Times{Reply: 2 * ms}, 2 * ms, 10 * ms, false},
		{"a reply time above the inactive time", reorder.Times{Reply: 20 * ms}, 10 * ms, 10 * ms, false},
		{"an inactive time below the reply time", reorder.Times{Inactive: ms / 2}, ms, ms, false},
		{"both, the wrong way round", reorder.Times{Reply: 3 * ms, Inactive: 2 * ms}, 3 * ms, 3 * ms, false},
		{"beyond timestamps", reorder.Times{Inactive: overlay.MaxInactive + 1}, ms, 10 * ms, true},
		{"below zero", reorder.Times{Reply: -ms}, ms, 10 * ms, true},
	} {
		s := newSource(t, func(o *Options) { o.Section = newConWeaveParams(Lab) }, 0, 1)
		if err := s.p.Retime(s.now, &tt.times); (err != nil) != tt.refused {
			t.Errorf("%s: %v", tt.name, err)
		}
		if p := s.p.Params(); p.Reply != tt.reply || p.Inactive != tt.inactive {
			t.Errorf("%s: reply %v, inactive %v, want %v, %v", tt.name, p.Reply, p.Inactive, tt.reply, tt.inactive)
		}
	}
}

// A gap that follows from round trips is that of all schemes that move flows after
// one, and not of those for which a flowlet is to be a flow.
func TestFlowletsRetime(t *testing.T) {
	for _, s := range Schemes() {
		p := mustNew(t, s.Name, 1)
		tuned, ok := p.(Tuned)
		if _, keeps := p.(FlowletPolicy); !keeps {
			continue
		}
		if !ok {
			t.Errorf("%s keeps flowlets, and cannot be told another gap", s.Name)
			continue
		}
		v, now := newView(firstPaths(2)), mono.Time(time.Hour)
		started := func(pause time.Duration) uint64 {
			now = now.Add(pause)
			before := p.Stats().Decisions
			p.Choose(now, v, make([]Packet, 1))
			return p.Stats().Decisions - before
		}
		gap, key := s.Gap(params())
		started(0)
		for _, times := range []reorder.Times{{}, {Reply: 1, MaxHold: 2}} {
			if err := tuned.Retime(now, &times); err != nil || started(gap) != 0 {
				t.Errorf("%s: %+v changed the gap (%v)", s.Name, times, err)
			}
		}
		if err := tuned.Retime(now, &reorder.Times{FlowletGap: gap / 2}); err != nil {
			t.Errorf("%s: %v", s.Name, err)
		}
		if moves := started(gap/2+1) == 1; moves != (key == "flowlet_gap") {
			t.Errorf("%s: a flowlet starts after half of %s: %v", s.Name, key, moves)
		}
	}
}
