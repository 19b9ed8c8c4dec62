package congestion

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/mono"
)

const gap = 500 * time.Microsecond

// naiveFlowlets is the table as the text describes it: timestamps compared, or
// the age bits of the paper with a timer that visits every entry.
type naiveFlowlets struct {
	detector Detector
	timer    mono.Time // AgeBit: when it runs next
	entries  map[uint32]*naiveFlowlet
	stats    FlowletStats
}

type naiveFlowlet struct {
	uplink     uint8
	last       mono.Time
	age, valid bool // AgeBit: age bit, valid bit
}

// runTo lets the paper's timer run up to now: "A timer periodically (every Tfl
// seconds) checks the age bit before setting it."
func (n *naiveFlowlets) runTo(now mono.Time) {
	for ; n.timer <= now; n.timer += mono.Time(gap) {
		for _, e := range n.entries {
			if e.age {
				e.valid = false
			}
			e.age = true
		}
	}
}

func (n *naiveFlowlets) lookup(slot uint32, now mono.Time) (uint8, bool) {
	e := n.entries[slot]
	switch {
	case e == nil:
		return NoUplink, false
	case n.detector == AgeBit:
		return e.uplink, e.valid
	}
	return e.uplink, now-e.last <= mono.Time(gap)
}

func (n *naiveFlowlets) packet(slot uint32, now mono.Time) {
	e := n.entries[slot]
	e.last, e.age, e.valid = now, false, true
}

func (n *naiveFlowlets) set(slot uint32, uplink uint8, now mono.Time) {
	n.stats.Started++
	if e := n.entries[slot]; e != nil {
		if e.uplink == uplink {
			n.stats.Kept++
		} else {
			n.stats.Moved++
		}
		if _, active := n.lookup(slot, now); !active {
			n.stats.Expired++
		}
	}
	n.entries[slot] = &naiveFlowlet{uplink: uplink}
	n.packet(slot, now)
}

func TestFlowletsEqualModel(t *testing.T) {
	rng := newRand(t)
	const slots = 16
	for _, d := range []Detector{Timestamp, AgeBit} {
		for range 100 {
			f := NewFlowlets(slots, gap, d)
			now := mono.Time(rng.Int64() >> 8)
			if rng.IntN(2) == 0 {
				now = -now
			}
			// The timer that the lazy detector stands for runs at multiples of
			// T_fl from the clock's lowest value.
			naive := &naiveFlowlets{detector: d, entries: map[uint32]*naiveFlowlet{}}
			naive.timer = now - mono.Time((uint64(now)+1<<63)%uint64(gap)) + mono.Time(gap)
			for step := range 1000 {
				if rng.IntN(10) == 0 {
					now += mono.Time(rng.Int64N(3 * int64(gap)))
				} else {
					now += mono.Time(rng.Int64N(int64(gap) / 8))
				}
				naive.runTo(now)
				hash := rng.Uint32() &^ (slots / 4) // half of the slots
				slot := hash % slots
				uplink, active := f.Lookup(hash, now)
				wantUplink, wantActive := naive.lookup(slot, now)
				if uplink != wantUplink || active != wantActive {
					t.Fatalf("%v, step %d: uplink %d active %v, the model has %d %v", d, step, uplink, active, wantUplink, wantActive)
				}
				if active && rng.IntN(20) > 0 {
					if u, ok := f.Packet(hash, f.Stamp(now)); u != uplink || !ok {
						t.Fatalf("%v, step %d: Packet says uplink %d active %v, Lookup said %d true", d, step, u, ok, uplink)
					}
					naive.packet(slot, now)
				} else { // also an active one: its uplink is gone
					if u, ok := f.Packet(hash, f.Stamp(now)); u != uplink || ok != active {
						t.Fatalf("%v, step %d: Packet says uplink %d active %v, Lookup said %d %v", d, step, u, ok, uplink, active)
					}
					u := uint8(rng.IntN(MaxTags))
					f.Set(hash, u, now)
					naive.set(slot, u, now)
				}
				if fl, ok := f.Find(hash, now); !ok || !fl.Active || fl.Slot != slot || fl.Idle > gap {
					t.Fatalf("%v: Find right after a packet = %+v, %v", d, fl, ok)
				}
			}
			if f.Stats() != naive.stats {
				t.Fatalf("%v: stats %+v, the model has %+v", d, f.Stats(), naive.stats)
			}
			n := 0
			for slot := range uint32(f.Len()) {
				fl, ok := f.Find(slot, now)
				if !ok {
					continue
				}
				if e := naive.entries[fl.Slot]; e == nil || e.uplink != fl.Uplink {
					t.Fatalf("%v: All has %+v, the model %+v", d, fl, e)
				}
				n++
			}
			if n != len(naive.entries) {
				t.Fatalf("%v: All has %d entries, the model %d", d, n, len(naive.entries))
			}
		}
	}
}

func TestFlowletsClockJumps(t *testing.T) {
	const start = mono.Time(1 << 50)
	for _, d := range []Detector{Timestamp, AgeBit} {
		for _, tt := range []struct {
			name   string
			to     mono.Time
			active bool
		}{
			{"same instant", start, true},
			{"a moment back", start - 1000, true},
			{"an hour back", start - mono.Time(time.Hour), true},
			{"three gaps on", start + 3*mono.Time(gap), false},
			{"an hour on", start + mono.Time(time.Hour), false},
			{"a year on", start + mono.Time(365*24*time.Hour), false},
		} {
			t.Run(d.String()+"/"+tt.name, func(t *testing.T) {
				f := NewFlowlets(8, gap, d)
				f.Set(3, 5, start)
				uplink, active := f.Lookup(3, tt.to)
				if uplink != 5 || active != tt.active {
					t.Errorf("uplink %d active %v, want 5 %v", uplink, active, tt.active)
				}
				// The next packet anchors the flowlet where the clock is now.
				f.Set(3, 5, tt.to)
				if _, active := f.Lookup(3, tt.to+mono.Time(gap)); !active {
					t.Error("not active one gap after a packet")
				}
				if _, active := f.Lookup(3, tt.to+2*mono.Time(gap)+1); active {
					t.Error("still active more than two gaps after its last packet")
				}
			})
		}
	}
}

// A flowlet that lives across the point where the stamp wraps, or the clock
// crosses its origin, is one flowlet.
func TestFlowletsWrap(t *testing.T) {
	for _, d := range []Detector{Timestamp, AgeBit} {
		for _, at := range []mono.Time{0, 1 << 55, 1 << 56, -1 << 55, 1 << 62, math.MinInt64 + mono.Time(gap)} {
			f := NewFlowlets(1, gap, d)
			f.Set(0, 1, at-100)
			if _, active := f.Lookup(0, at+100); !active {
				t.Errorf("%v: flowlet ended by the clock passing %d", d, at)
			}
			if _, active := f.Lookup(0, at+2*mono.Time(gap)); active {
				t.Errorf("%v: flowlet from %d did not end", d, at)
			}
		}
	}
}

func TestFlowletsSize(t *testing.T) {
	for _, tt := range []struct{ ask, want int }{{-1, 1}, {0, 1}, {1, 1}, {2, 2}, {3, 4}, {1000, 1024}, {DefaultFlowlets, 65536}} {
		if got := NewFlowlets(tt.ask, gap, Timestamp).Len(); got != tt.want {
			t.Errorf("%d entries asked for: %d, want %d", tt.ask, got, tt.want)
		}
	}
}

func TestFlowletsDoNotAllocate(t *testing.T) {
	for _, d := range []Detector{Timestamp, AgeBit} {
		f := NewFlowlets(1024, gap, d)
		now, hash := mono.Time(0), uint32(0)
		if n := testing.AllocsPerRun(1000, func() {
			now += 1000
			hash = hash*1664525 + 1013904223
			if u, active := f.Packet(hash, f.Stamp(now)); !active {
				f.Set(hash, (u+1)&15, now)
			}
		}); n != 0 {
			t.Errorf("%v: %v allocations a packet, want none", d, n)
		}
	}
}

func BenchmarkFlowlets(b *testing.B) {
	for _, d := range []Detector{Timestamp, AgeBit} {
		b.Run(d.String(), func(b *testing.B) {
			f := NewFlowlets(DefaultFlowlets, gap, d)
			rng := rand.New(rand.NewPCG(1, 2))
			hashes := make([]uint32, 1024) // flows under way
			for i := range hashes {
				hashes[i] = rng.Uint32()
			}
			now := mono.Time(0)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				now += 50
				h := hashes[i&1023]
				if _, active := f.Packet(h, f.Stamp(now)); !active {
					f.Set(h, 1, now)
				}
			}
		})
	}
}
