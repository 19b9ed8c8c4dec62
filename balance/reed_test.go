package balance

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/internal/flowtable"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/internal/units"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// reedWith returns a reed with other parameters, and a view of one leaf.
func reedWith(t *testing.T, change func(*ReedParams), uplinks ...uint8) (*reed, *View) {
	t.Helper()
	p := newReedParams(Datacenter).(*ReedParams)
	if change != nil {
		change(p)
	}
	s, err := New("reed", Options{Seed: 1, Section: p, Leaves: 1})
	if err != nil {
		t.Fatal(err)
	}
	v := newView(MakePaths(uplinks...))
	v.Remote = congestion.NewToLeaf(1, params())
	return s.(*reed), v
}

// sendOne sends one packet of a flow, and returns it.
func sendOne(s *reed, v *View, now mono.Time, hash uint32) Packet {
	pkts := []Packet{{Hash: hash, Len: 1500}}
	s.Choose(now, v, pkts)
	return pkts[0]
}

// A flow's packets are numbered from 0, and wrap; the first ones say that they are. After
// a pause of inactive, and not before, the flow begins anew under the next epoch.
func TestReedNumbers(t *testing.T) {
	s, v := reedWith(t, nil, 0, 1, 2, 3)
	now := mono.Time(time.Second)
	epoch := sendOne(s, v, now, 7).Epoch
	for n := 1; n < 70_000; n++ {
		if now += 100; n == 40_000 {
			now = now.Add(9 * time.Millisecond)
		}
		p := sendOne(s, v, now, 7)
		if p.Arg != overlay.Tstamp(n) || p.Rerouted != (n < reorder.Young) || p.Epoch != epoch || !p.Shim || p.Tail {
			t.Fatalf("packet %d: %+v", n, p)
		}
	}
	if p := sendOne(s, v, now, 8); p.Arg != 0 || !p.Rerouted {
		t.Errorf("another flow: %+v", p)
	}
	if p := sendOne(s, v, now.Add(10*time.Millisecond+1), 7); p.Arg != 0 || !p.Rerouted || p.Epoch != epoch.Next() {
		t.Errorf("after a pause: %+v, epoch was %d", p, epoch)
	}
	if st := s.Stats().Own.(*ReedStats); st.Flows != 3 || st.Frames != 70_002 {
		t.Errorf("counted %+v", st)
	}
}

// The path is that of the shortest wait: what stands in the uplink's queue and the packet
// itself take as long as the link's rate makes them, and the far end's metric counts for
// as much as a part of weight.
func TestReedTakesTheShortestWait(t *testing.T) {
	const gig = 1_000_000_000
	for _, tt := range []struct {
		name   string
		queue  [3]uint32
		rates  [3]uint64
		remote [3]uint8
		want   uint8
	}{
		{"queue", [3]uint32{9000, 1000, 9000}, [3]uint64{gig, gig, gig}, [3]uint8{}, 1},
		{"rate", [3]uint32{9000, 9000, 9000}, [3]uint64{gig, gig, 10 * gig}, [3]uint8{}, 2},
		{"a fast link with a longer queue", [3]uint32{9000, 9000, 60000}, [3]uint64{gig, gig, 10 * gig}, [3]uint8{}, 2},
		{"an idle slow link behind a fast one with a queue", [3]uint32{0, 12000, 12000}, [3]uint64{gig, 10 * gig, gig}, [3]uint8{}, 1},
		{"metric", [3]uint32{}, [3]uint64{gig, gig, gig}, [3]uint8{3, 2, 1}, 2},
		{"a queue is shorter than the way behind the others is full", [3]uint32{4000, 0, 0}, [3]uint64{gig, gig, gig}, [3]uint8{0, 7, 2}, 0},
		{"a queue is longer", [3]uint32{6000, 0, 0}, [3]uint64{gig, gig, gig}, [3]uint8{0, 7, 2}, 2},
		{"what rate is unknown is one of 1 Gbit/s", [3]uint32{9000, 9000, 8000}, [3]uint64{0, gig, 0}, [3]uint8{}, 2},
	} {
		s, v := reedWith(t, func(p *ReedParams) { p.Source.Samples, p.Source.Weight = 0, 16<<10 }, 0, 1, 2)
		v.ByteTime = new([MaxPaths]uint32)
		now := mono.Time(time.Second)
		for u := range uint8(3) {
			v.Queue[u], v.ByteTime[u] = tt.queue[u], ByteTime(tt.rates[u])
			v.Remote.Update(0, u, tt.remote[u], now)
		}
		x := Explain(s, now, v, &Packet{Hash: 1, Len: 1500})
		if got := v.Paths[0].Uplink[sendOne(s, v, now, 1).Path]; got != tt.want || x.Fresh != 1<<tt.want {
			t.Errorf("%s: uplink %d, want %d; explained was %+v", tt.name, got, tt.want, x)
		}
	}
}

// A full path counts for no more than half of the own queue, however large the weight: the
// queue does not run over while there is another path.
func TestReedDoesNotFillShortQueues(t *testing.T) {
	s, v := reedWith(t, func(p *ReedParams) { p.Source.Samples = 0 }, 0, 1)
	v.Room = &[MaxPaths]uint32{24_000, 24_000}
	now := mono.Time(time.Second)
	v.Remote.Update(0, 1, 7, now)
	on := [2]int{}
	for range 24 { // 36 KB at once
		p := sendOne(s, v, now, 1)
		on[p.Path]++
		v.Queue[p.Path] += 1500
	}
	if on != [2]int{16, 8} { // 24 and 12 KB
		t.Errorf("packets by path: %v, want 16 and 8", on)
	}
}

// Of one flow's burst over idle links of different rates, each uplink gets its share by
// rate, packet by packet.
func TestReedSpreadsOneFlowByRates(t *testing.T) {
	s, v := reedWith(t, func(p *ReedParams) { p.Source.Samples = 0 }, 0, 1, 2)
	v.ByteTime = &[MaxPaths]uint32{ByteTime(10e9), ByteTime(10e9), ByteTime(40e9)}
	pkts := make([]Packet, 600)
	for i := range pkts {
		pkts[i] = Packet{Hash: 5, Len: 1500}
	}
	s.Choose(mono.Time(time.Second), v, pkts)
	var on [3]int
	for i := range pkts {
		on[pkts[i].Path]++
	}
	for u, want := range [3]int{100, 100, 400} {
		if d := on[u] - want; d < -3 || d > 3 {
			t.Errorf("packets by uplink: %v, want 100 100 400", on)
		}
	}
}

// Two uplinks drawn at random and the last best one do nearly as well as all (Mitzenmacher
// et al., "Load Balancing with Memory"): of many packets over 16 idle uplinks the fullest
// gets at most a few packets more than its share.
func TestReedSamplesDoAsWell(t *testing.T) {
	uplinks := make([]uint8, 16)
	for i := range uplinks {
		uplinks[i] = uint8(i)
	}
	s, v := reedWith(t, nil, uplinks...)
	pkts := make([]Packet, 16*200)
	for i := range pkts {
		pkts[i] = Packet{Hash: uint32(i % 9), Len: 1000}
	}
	s.Choose(mono.Time(time.Second), v, pkts)
	var on [16]int
	for i := range pkts {
		on[pkts[i].Path]++
	}
	for u, n := range on {
		if n < 195 || n > 205 {
			t.Errorf("uplink %d has %d packets, want about 200: %v", u, n, on)
		}
	}
}

// A leaf that is short of memory is not sprayed to for a while: its flows move only when
// they pause, and go on with their numbers.
func TestReedSparesMemory(t *testing.T) {
	s, v := reedWith(t, nil, 0, 1, 2, 3)
	now := mono.Time(time.Second)
	sendOne(s, v, now, 1)
	m := overlay.Message{Leaf: 0, Fabric: overlay.Fabric{Opcode: overlay.OpNotify, Rerouted: true}}
	for _, wrong := range []overlay.Message{
		{Leaf: 1, Fabric: m.Fabric}, {Fabric: overlay.Fabric{Opcode: overlay.OpNotify}}, {Fabric: overlay.Fabric{Opcode: overlay.OpClear, Rerouted: true}},
	} {
		if s.Handle(now, v, &wrong) {
			t.Errorf("%+v was accepted", wrong)
		}
	}
	if !s.Handle(now, v, &m) {
		t.Fatal("the message was refused")
	}
	uplinks := func(flow uint32, gap time.Duration) int {
		seen := map[uint8]bool{}
		for range 40 {
			now = now.Add(gap)
			seen[sendOne(s, v, now, flow).Path] = true
		}
		return len(seen)
	}
	if n := uplinks(1, time.Microsecond); n != 1 {
		t.Errorf("a flow takes %d uplinks", n)
	}
	if n := uplinks(2, time.Microsecond); n != 1 {
		t.Errorf("a new flow takes %d uplinks", n)
	}
	if p := sendOne(s, v, now, 1); p.Arg != 41 {
		t.Errorf("its number is %d, want 41", p.Arg)
	}
	now = now.Add(510 * time.Microsecond)
	was := s.flows.Find(1, 0).V.uplink
	v.Queue[was] = 1 << 20
	if p := sendOne(s, v, now, 1); v.Paths[0].Uplink[p.Path] == was {
		t.Error("it stayed when it had paused")
	}
	now = now.Add(10 * time.Millisecond)
	v.Queue[was] = 0
	if n := uplinks(3, time.Microsecond); n < 3 {
		t.Errorf("later a flow takes %d uplinks", n)
	}
}

// trips are round trips by uplink.
type trips [MaxPaths]time.Duration

func (r *trips) Trip(_ uint16, uplink uint8) time.Duration { return r[uplink] }

// Packets are not sprayed over paths so different that they would wait for each other for
// too long; paths of which nothing is known are as good as others.
func TestReedSpraysOverPathsOfOneLength(t *testing.T) {
	for _, tt := range []struct {
		trips   trips // max_hold is 5 ms
		uplinks []uint8
		want    string
	}{
		{trips{}, []uint8{0, 1, 2, 3}, "[0 1 2 3]"},
		{trips{1e6, 3e6, 3.6e6, 9e6}, []uint8{0, 1, 2, 3}, "[0 1]"},
		{trips{1e6, 3e6, 3.6e6, 9e6}, []uint8{1, 2, 3}, "[1 2]"},
		{trips{1e6, 3e6, 3.6e6, 9e6}, []uint8{3}, "[3]"},
		{trips{0, 9e6, 2e6, 0}, []uint8{0, 1, 2, 3}, "[0 2 3]"},
	} {
		s, v := reedWith(t, nil, tt.uplinks...)
		v.Trips = &tt.trips
		now, took := mono.Time(time.Second), map[uint8]bool{}
		x := Explain(s, now, v, &Packet{Hash: 1, Len: 1000})
		for i := range 400 {
			now += 1000
			u := v.Paths[0].Uplink[sendOne(s, v, now, uint32(i%7)).Path]
			took[u] = true
			if x.Fresh>>u&1 == 0 {
				t.Errorf("%v: took %d, explained was %+v", tt.trips, u, x)
			}
		}
		if got := fmt.Sprint(slices.Sorted(maps.Keys(took))); got != tt.want {
			t.Errorf("trips %v: sprayed over %s, want %s", tt.trips[:4], got, tt.want)
		}
	}
}

// What has no place in the table goes by hash, unnumbered; so does what goes to a leaf
// that would not understand.
func TestReedGoesByHash(t *testing.T) {
	s, v := reedWith(t, func(p *ReedParams) { p.Source.Flows = flowtable.Ways }, 0, 1, 2, 3)
	for flow := range uint32(flowtable.Ways + 1) {
		p := sendOne(s, v, 1000, flow*64)
		if p.Shim != (flow < flowtable.Ways) {
			t.Errorf("flow %d: %+v", flow, p)
		}
	}
	v.Capable = overlay.NewCapability(1)
	if p := sendOne(s, v, 1000, 0); p.Shim {
		t.Errorf("to a leaf without the fabric's fields: %+v", p)
	}
	if st := s.Stats().Own.(*ReedStats); st.Overflow != 1 || st.Incapable != 1 {
		t.Errorf("counted %+v", st)
	}
}

func TestReedParams(t *testing.T) {
	for key, change := range map[string]func(*ReedParams){
		"samples":   func(p *ReedParams) { p.Source.Samples = 17 },
		"weight":    func(p *ReedParams) { p.Source.Weight = units.Size(1<<30 + 1) },
		"inactive":  func(p *ReedParams) { p.Source.Inactive = 0 },
		"flows":     func(p *ReedParams) { p.Source.Flows = 100 },
		"selectors": func(p *ReedParams) { p.Source.Selectors = 17 },
		"hold":      func(p *ReedParams) { p.Receiver.Hold = p.Receiver.MaxHold + 1 },
		"max_hold":  func(p *ReedParams) { p.Receiver.MaxHold = p.Source.Inactive },
		"guard":     func(p *ReedParams) { p.Receiver.Guard = -1 },
		"window":    func(p *ReedParams) { p.Receiver.Window = 1<<14 + 1 },
		"packets":   func(p *ReedParams) { p.Receiver.Packets = 0 },
	} {
		for _, profile := range reedSection.Profiles {
			p := newReedParams(profile).(*ReedParams)
			if err := p.Validate(); err != nil {
				t.Fatal(err)
			}
			change(p)
			if err, ok := p.Validate().(*FieldError); !ok || err.Key != key {
				t.Errorf("%s: %v", key, err)
			}
		}
	}
}
