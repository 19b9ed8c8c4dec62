package balance

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/internal/flowtable"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// What does not fit the flow's state changes nothing. If the flow is known it is
// counted under its name; if not, the policy says so.
func TestConWeaveIgnoresNonsense(t *testing.T) {
	asked := func(s *source) overlay.Fabric { return s.send(0) }
	rerouted := func(s *source) overlay.Fabric { _, tail := s.reroute(); s.send(0); return tail }
	answered := func(s *source) overlay.Fabric {
		f := s.send(0)
		s.answer(overlay.OpRTTReply, f, 0)
		return f
	}
	type change func(*overlay.Fabric)
	keep := func(*overlay.Fabric) {}
	staleClears := func(s *ConWeaveStats) *uint64 { return &s.StaleClears }
	staleReplies := func(s *ConWeaveStats) *uint64 { return &s.StaleReplies }
	for _, tt := range []struct {
		name   string
		state  func(*source) overlay.Fabric
		op     overlay.Opcode
		change change
		leaf   uint16
		hash   uint32
		count  func(*ConWeaveStats) *uint64 // nil: it is about nothing that is known
	}{
		{"CLEAR without a reroute", asked, overlay.OpClear, keep, 0, 1, staleClears},
		{"REPLY while rerouted", rerouted, overlay.OpRTTReply, keep, 0, 1, staleReplies},
		{"REPLY twice", answered, overlay.OpRTTReply, keep, 0, 1, staleReplies},
		{"REPLY of another epoch", asked, overlay.OpRTTReply, func(f *overlay.Fabric) { f.Epoch = f.Epoch.Next() }, 0, 1, staleReplies},
		{"REPLY with another echo", asked, overlay.OpRTTReply, func(f *overlay.Fabric) { f.Arg++ }, 0, 1, staleReplies},
		{"REPLY without echo", asked, overlay.OpRTTReply, func(f *overlay.Fabric) { f.Shim = false }, 0, 1, staleReplies},
		{"CLEAR of another epoch", rerouted, overlay.OpClear, func(f *overlay.Fabric) { f.Epoch-- }, 0, 1, staleClears},
		{"CLEAR with another echo", rerouted, overlay.OpClear, func(f *overlay.Fabric) { f.Arg-- }, 0, 1, staleClears},
		{"CLEAR of no flow", rerouted, overlay.OpClear, keep, 0, 2, nil},
		{"REPLY of no flow", asked, overlay.OpRTTReply, keep, 0, 2, nil},
		{"CLEAR of a flow to another leaf", rerouted, overlay.OpClear, keep, 1, 1, nil},
		{"CLEAR of no leaf", rerouted, overlay.OpClear, keep, 2, 1, nil},
		{"NOTIFY of no leaf", asked, overlay.OpNotify, keep, 65535, 1, nil},
		{"NOTIFY of no uplink", asked, overlay.OpNotify, func(f *overlay.Fabric) { f.Path = overlay.MakePathID(9, 0) }, 0, 1, nil},
		{"NOTIFY of a leaf without flows", asked, overlay.OpNotify, keep, 1, 1, nil},
		{"data", asked, overlay.OpData, keep, 0, 1, nil},
		{"HELLO", asked, overlay.OpHello, keep, 0, 1, nil},
		{"EXPLORE", asked, overlay.OpExplore, keep, 0, 1, nil},
		{"no opcode", asked, 200, keep, 0, 1, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSource(t, nil, 0, 1)
			s.view.Paths = append(s.view.Paths, MakePaths(0, 1))
			cause := tt.state(s)
			before, conns := s.stats(), slices.Collect(s.p.Connections(s.now, 0, s.p.ConnectionSets()))
			busy := slices.Clone(s.p.busy)
			f := answerTo(tt.op, cause)
			tt.change(&f)
			if known := s.handle(tt.leaf, tt.hash, f); known != (tt.count != nil) {
				t.Errorf("known: %v", known)
			}
			if tt.count != nil {
				*tt.count(&before)++
			}
			if got := s.stats(); got != before {
				t.Errorf("counted %+v, want %+v", got, before)
			}
			if got := slices.Collect(s.p.Connections(s.now, 0, s.p.ConnectionSets())); !slices.Equal(got, conns) || !slices.Equal(s.p.busy, busy) {
				t.Errorf("it changed %+v to %+v", conns, got)
			}
		})
	}
}

// A path that disappears is left with the next packet, in a new epoch; until
// θ_inactive has passed the flow stays on the path that it got, as packets of the
// one that went may still arrive.
func TestConWeaveLeavesALostPath(t *testing.T) {
	s := newSource(t, nil, 0, 1, 2)
	request := s.send(0)
	lost := request.Path.Uplink()
	s.view.Paths[0] = MakePaths(without([]uint8{0, 1, 2}, lost)...)
	moved := s.send(time.Microsecond)
	if moved.Path.Uplink() == lost || moved.Epoch != request.Epoch.Next() || moved.Opcode != overlay.OpData || moved.Tail || moved.Rerouted {
		t.Fatalf("from %+v to %+v", request, moved)
	}
	for range 3 {
		if f := s.send(100 * time.Microsecond); f.Path != moved.Path || f.Opcode != overlay.OpData || f.Tail {
			t.Errorf("within θ_inactive: %+v", f)
		}
	}
	if f := s.send(1); f.Opcode != overlay.OpRTTRequest || f.Epoch != moved.Epoch.Next() || f.Path != moved.Path {
		t.Errorf("after it: %+v", f)
	}
	if st := s.stats(); st.Moves != 1 {
		t.Errorf("%+v", st)
	}
}

// If the NEW path goes while packets may be under way on the OLD one, the flow
// returns there: anything else would be a third path.
func TestConWeaveReturnsToTheOldPath(t *testing.T) {
	for seed := range uint64(20) {
		s := newSource(t, func(o *Options) { o.Seed = seed }, 0, 1, 2, 3, 4)
		_, tail := s.reroute()
		gone := s.send(0).Path.Uplink()
		s.view.Paths[0] = MakePaths(without([]uint8{0, 1, 2, 3, 4}, gone)...)
		if f := s.send(0); f.Path != tail.Path || f.Rerouted || f.Epoch != tail.Epoch.Next() {
			t.Fatalf("rerouted from %v, and that path is lost: %+v", tail.Path, f)
		}
	}
}

// When the OLD path goes, nothing changes: the flow is on the NEW one.
func TestConWeaveLosesTheOldPath(t *testing.T) {
	s := newSource(t, nil, 0, 1, 2)
	_, tail := s.reroute()
	next := s.send(0)
	s.view.Paths[0] = MakePaths(without([]uint8{0, 1, 2}, tail.Path.Uplink())...)
	if f := s.send(0); f.Path != next.Path || !f.Rerouted || f.Epoch != tail.Epoch {
		t.Errorf("%+v, before %+v", f, next)
	}
	s.view.Paths[0] = MakePaths() // all of them; the driver drops the packet
	pkts := []Packet{{Hash: 1}}
	s.p.Choose(s.now, s.view, pkts)
	if pkts[0].Marks != (Marks{}) {
		t.Errorf("without a path: %+v", pkts[0])
	}
}

func without(uplinks []uint8, u uint8) []uint8 {
	return slices.DeleteFunc(slices.Clone(uplinks), func(x uint8) bool { return x == u })
}

// As many samples as there are other paths are all of them: one that is free is
// found, with one selector and with several.
func TestConWeaveSamplesAreDifferent(t *testing.T) {
	for _, width := range []int{1, 2} {
		s := newSource(t, func(o *Options) {
			o.Section = section(func(p *ConWeaveSource) { p.Selectors, p.Samples = width, 6*width-1 })
		}, 3, 0, 4, 1, 5, 9)
		for i := range uint32(500) {
			hash := i*2654435761 + 1
			request := s.sendOf(hash, time.Millisecond)
			s.now = s.now.Add(9 * time.Microsecond)
			var others []overlay.PathID
			for _, u := range s.view.Paths[0].Uplink[:6] {
				for sel := range uint8(width) {
					if path := overlay.MakePathID(u, sel); u != request.Path.Uplink() || width > 1 && path != request.Path {
						others = append(others, path)
					}
				}
			}
			free := others[i%uint32(len(others))]
			for _, path := range others {
				if path != free {
					f := overlay.Fabric{Opcode: overlay.OpNotify, Path: path}
					s.handle(0, hash, f)
				}
			}
			s.sendOf(hash, 0)
			if f := s.sendOf(hash, 0); !f.Rerouted || f.Path.Uplink() != free.Uplink() || width > 1 && f.Path != free {
				t.Fatalf("width %d: flow on %v, free is %v: %+v", width, request.Path, free, f)
			}
		}
	}
}

// With several selectors a path is an uplink and a selector: a reroute may keep
// one of them, all are used, and NOTIFY marks one path only.
func TestConWeaveSelectors(t *testing.T) {
	s := newSource(t, func(o *Options) {
		o.Section = section(func(p *ConWeaveSource) { p.Selectors = 4 })
	}, 0, 5)
	used := map[overlay.PathID]int{}
	sameUplink := 0
	for i := range uint32(4000) {
		hash := i*2654435761 + 1
		request := s.sendOf(hash, time.Microsecond)
		tail := s.sendOf(hash, 9*time.Microsecond)
		next := s.sendOf(hash, 0)
		if !tail.Tail || tail.Path != request.Path || next.Path == tail.Path || next.Path.Selector() > 3 {
			t.Fatalf("%+v, %+v, %+v", request, tail, next)
		}
		used[request.Path]++
		used[next.Path]++
		if next.Path.Uplink() == tail.Path.Uplink() {
			sameUplink++
		}
	}
	if len(used) != 8 {
		t.Errorf("paths used: %v", used)
	}
	for path, n := range used {
		if n < 850 || n > 1150 {
			t.Errorf("path %v was used %d times, want about 1000", path, n)
		}
	}
	if want := 4000 * 3 / 7; sameUplink < want*9/10 || sameUplink > want*11/10 {
		t.Errorf("%d reroutes kept the uplink, want about %d", sameUplink, want)
	}
	f := overlay.Fabric{Opcode: overlay.OpNotify, Path: overlay.MakePathID(5, 2)}
	s.handle(0, 1, f)
	for sel := range uint8(4) {
		if _, busy := s.p.BusyUntil(s.now, 0, overlay.MakePathID(5, sel)); busy != (sel == 2) {
			t.Errorf("selector %d: busy %v", sel, busy)
		}
	}
	f.Path = overlay.MakePathID(5, 4)
	if s.handle(0, 1, f) || s.stats().Notifies != 1 {
		t.Errorf("a path that there is not is taken for one: %+v", s.stats())
	}
}

// With one selector each flow has its own by hash, on whatever uplink: parallel
// links behind the spines share the flows, and a path stays one path.
func TestConWeaveSelectorByHash(t *testing.T) {
	s := newSource(t, nil, 0, 1, 2)
	var used [16]int
	for i := range uint32(3200) {
		hash := i*2654435761 + 1
		request := s.sendOf(hash, time.Microsecond)
		s.sendOf(hash, 9*time.Microsecond)
		if next := s.sendOf(hash, 0); !next.Rerouted || next.Path.Selector() != request.Path.Selector() || next.Path.Uplink() == request.Path.Uplink() {
			t.Fatalf("from %v to %v", request.Path, next.Path)
		}
		used[request.Path.Selector()]++
	}
	if slices.Min(used[:]) < 140 || slices.Max(used[:]) > 260 {
		t.Errorf("flows by selector: %v, want about 200 each", used)
	}
	// NOTIFY is about the uplink then.
	f := overlay.Fabric{Opcode: overlay.OpNotify, Path: overlay.MakePathID(1, 3)}
	s.handle(0, 1, f)
	if _, busy := s.p.BusyUntil(s.now, 0, overlay.MakePathID(1, 8)); !busy {
		t.Error("not busy under another flow's selector")
	}
}

// conweave-informed chooses by waits: a new flow the shortest of the paths that are not
// busy, and a reroute the shortest of the others.
func TestConWeaveInformed(t *testing.T) {
	const unit = metricWeight / 7 // bytes of a step of the far end's metric
	for _, tt := range []struct {
		name   string
		queue  [4]uint32
		remote [4]uint8
		busy   uint8 // a bit each
		first  int   // path of a new flow
		second int   // and of its reroute
	}{
		{"queues", [4]uint32{3000, 1000, 2000, 4000}, [4]uint8{}, 0, 1, 2},
		{"the way behind", [4]uint32{}, [4]uint8{4, 1, 2, 3}, 0, 1, 2},
		{"both together", [4]uint32{0, 3 * unit, 6 * unit, 5 * unit}, [4]uint8{7, 3, 1, 0}, 0, 3, 1},
		{"the shortest is busy for a while", [4]uint32{3000, 1000, 2000, 4000}, [4]uint8{}, 0b0010, 2, 1},
		{"one is not busy", [4]uint32{3000, 1000, 2000, 4000}, [4]uint8{}, 0b0111, 3, 1},
	} {
		p := mustNew(t, "conweave-informed", 1).(*conweave)
		s := &source{t: t, p: p, view: newView(MakePaths(0, 1, 2, 3)), now: mono.Time(time.Second)}
		s.sendOf(99, 0) // the leaf is known
		s.view.Remote = congestion.NewToLeaf(1, params())
		look := func() {
			copy(s.view.Queue[:], tt.queue[:])
			for u := range uint8(4) {
				s.view.Remote.Update(0, u, tt.remote[u], s.now)
				if tt.busy>>u&1 != 0 {
					s.handle(0, 1, overlay.Fabric{Opcode: overlay.OpNotify, Path: overlay.MakePathID(u, 0)})
				}
			}
		}
		look()
		if f := s.send(0); int(f.Path.Uplink()) != tt.first {
			t.Errorf("%s: a new flow takes uplink %d, want %d", tt.name, f.Path.Uplink(), tt.first)
		}
		look()
		f := s.send(9 * time.Microsecond)
		if !f.Tail {
			t.Errorf("%s: %+v, %+v", tt.name, f, s.stats())
		}
		if next := s.send(0); int(next.Path.Uplink()) != tt.second {
			t.Errorf("%s: rerouted to uplink %d, want %d", tt.name, next.Path.Uplink(), tt.second)
		}
	}
}

// All but the free path are busy: a new flow finds it when its samples do, and
// goes anywhere otherwise; never nowhere.
func TestConWeaveStartsOnFreePaths(t *testing.T) {
	s := newSource(t, nil, 0, 1, 2, 3)
	s.send(0)
	on := [4]int{}
	for i := range uint32(4000) {
		for u := range uint8(3) {
			f := overlay.Fabric{Opcode: overlay.OpNotify, Path: overlay.MakePathID(u, 0)}
			s.handle(0, 1, f)
		}
		on[s.sendOf(i*2654435761+7, 100*time.Nanosecond).Path.Uplink()]++
	}
	// Two of four samples hit path 3 in half of the cases, else each has a quarter.
	if on[3] < 2350 || on[3] > 2650 || slices.Min(on[:3]) < 400 || slices.Max(on[:3]) > 600 {
		t.Errorf("flows by path: %v, want about 500 500 500 2500", on)
	}
}

// The table against a plain map of flows: as long as no set is full of flows that
// are under way, each flow has its own state, and flows that were forgotten are new.
func TestConWeaveTableAgainstMap(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	s := newSource(t, func(o *Options) {
		o.Section = section(func(p *ConWeaveSource) { p.Connections = 16 })
	}, 0, 1, 2)
	s.view.Paths = append(s.view.Paths, MakePaths(0, 1, 2))
	type key struct {
		leaf uint16
		hash uint32
	}
	last := map[key]mono.Time{}
	inactive := mono.Time(s.p.params.Inactive)
	overflow, unmarked := uint64(0), 0
	for range 20_000 {
		s.now += mono.Time(rng.Int64N(int64(60 * usec)))
		k := key{uint16(rng.IntN(2)), rng.Uint32N(40)}
		live := 0
		for o, at := range last {
			if o.hash&3 == k.hash&3 && o != k && s.now-at <= inactive {
				live++
			}
		}
		_, known := last[k]
		known = known && s.now-last[k] <= inactive
		pkts := []Packet{{Hash: k.hash, Leaf: k.leaf}}
		s.p.Choose(s.now, s.view, pkts)
		switch {
		case !pkts[0].Shim:
			unmarked++
			if known || live < flowtable.Ways {
				t.Fatalf("flow %+v has no place among %d others", k, live)
			}
			overflow++
			continue
		case !known && live >= flowtable.Ways:
			t.Fatalf("flow %+v has a place, where %d others are", k, live)
		case !known && pkts[0].Opcode != overlay.OpRTTRequest:
			t.Fatalf("flow %+v is new, and sends %+v", k, pkts[0])
		}
		last[k] = s.now
	}
	if unmarked == 0 || s.stats().Overflow != overflow {
		t.Errorf("%d packets unmarked, counted %d", unmarked, s.stats().Overflow)
	}
}

// A clock that jumps makes flows begin anew, and busy paths free; nothing waits
// for it to come back.
func TestConWeaveClockJumps(t *testing.T) {
	for _, jump := range []time.Duration{time.Hour, -time.Hour, 150 * 365 * 24 * time.Hour} {
		s := newSource(t, nil, 0, 1)
		_, tail := s.reroute()
		s.answer(overlay.OpNotify, tail, 0)
		if f := s.send(jump); f.Opcode != overlay.OpRTTRequest || f.Rerouted {
			t.Errorf("after a jump of %v: %+v", jump, f)
		}
		if _, busy := s.p.BusyUntil(s.now, 0, tail.Path); busy {
			t.Errorf("after a jump of %v a path is busy", jump)
		}
	}
	// One back by less than θ_inactive is none.
	s := newSource(t, nil, 0, 1)
	request := s.send(0)
	if f := s.send(-100 * time.Microsecond); f.Opcode != overlay.OpData || f.Epoch != request.Epoch {
		t.Errorf("%+v", f)
	}
}

// A connection's entry takes half a line of the cache.
func TestConnectionSize(t *testing.T) {
	if n := unsafe.Sizeof(conn{}); n != 32 {
		t.Errorf("a connection takes %d bytes", n)
	}
}

func TestConWeaveParamsAreChecked(t *testing.T) {
	for _, tt := range []struct {
		key, want string
		change    func(*ConWeaveSource)
	}{
		{"inactive", "inactive is 30.000001ms", func(p *ConWeaveSource) { p.Inactive = overlay.MaxInactive + 1 }},
		{"inactive", "inactive is 0s", func(p *ConWeaveSource) { p.Inactive = 0 }},
		{"reply", "reply is 0s", func(p *ConWeaveSource) { p.Reply = 0 }},
		{"reply", "above inactive", func(p *ConWeaveSource) { p.Reply = p.Inactive + 1 }},
		{"reply_extra", "reply_extra is", func(p *ConWeaveSource) { p.ReplyExtra = p.Inactive + 1 }},
		{"path_busy", "path_busy is -1ns", func(p *ConWeaveSource) { p.PathBusy = -1 }},
		{"samples", "17 path samples", func(p *ConWeaveSource) { p.Samples = 17 }},
		{"samples", "0 path samples", func(p *ConWeaveSource) { p.Samples = 0 }},
		{"selectors", "17 selectors", func(p *ConWeaveSource) { p.Selectors = 17 }},
		{"selectors", "0 selectors", func(p *ConWeaveSource) { p.Selectors = 0 }},
		{"connections", "table of 3 entries", func(p *ConWeaveSource) { p.Connections = 3 }},
		{"connections", "table of 6 entries", func(p *ConWeaveSource) { p.Connections = 6 }},
	} {
		_, err := New("conweave", Options{Section: section(tt.change)})
		var field *FieldError
		if !errors.As(err, &field) || field.Key != tt.key || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, about %+v", tt.want, err, field)
		}
	}
	// What the destination side says of its own is as good.
	p := section(func(*ConWeaveSource) {})
	p.Destination.MaxHold = 0
	if _, err := New("conweave", Options{Section: p}); err == nil || !strings.Contains(err.Error(), "max_hold") {
		t.Errorf("a longest hold of 0: %v", err)
	}
	if got := mustNew(t, "conweave", 1).(ConWeavePolicy).Params(); got != DatacenterConWeave() {
		t.Errorf("default %+v", got)
	}
}

// A flow's life with all messages about it allocates nothing.
func TestConWeaveDoesNotAllocate(t *testing.T) {
	for _, name := range []string{"conweave", "conweave-informed"} {
		p := mustNew(t, name, 1).(Messenger)
		v := newView(firstPaths(4), firstPaths(4))
		v.Remote, v.Capable = congestion.NewToLeaf(2, params()), overlay.NewCapability(2)
		now := mono.Time(time.Second)
		v.Capable.Confirm(1, now)
		pkts := []Packet{{Hash: 1, Leaf: 1}, {Hash: 2, Leaf: 1}, {Hash: 3}}
		m := overlay.Message{Leaf: 1, Link: overlay.AnyLink}
		say := func(op overlay.Opcode, pkt *Packet) {
			pkt.Stamp(now, reorder.SchemeID, v.Paths[1].Uplink[pkt.Path], &m.Fabric)
			m.Fabric, m.Hash = answerTo(op, m.Fabric), pkt.Hash
			p.Handle(now, v, &m)
		}
		if n := testing.AllocsPerRun(1000, func() {
			for _, step := range []mono.Time{0, 9 * usec, 0, usec, 9 * usec, 301 * usec} {
				now += step
				v.Capable.Confirm(1, now)
				p.Choose(now, v, pkts)
				say(overlay.OpNotify, &pkts[1])
				say(overlay.OpClear, &pkts[0])
				if step == usec {
					say(overlay.OpRTTReply, &pkts[0])
				}
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
		if st := p.Stats().Own.(*ConWeaveStats); st.Reroutes == 0 || st.Clears == 0 || st.Notifies == 0 || st.Inactive == 0 || st.Incapable == 0 {
			t.Errorf("%s: not all of it happened: %+v", name, st)
		}
	}
}

// FuzzConWeaveHandle feeds a source whatever headers the wire can bring, between
// packets of its flows: no panic, paths that exist, and never a flow whose
// packets are rerouted twice without a CLEAR or a pause between.
func FuzzConWeaveHandle(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{2, 1, 1, 0, 0, 9, 3, 200, 255, 255, 4, 0, 1, 0x30, 1, 90, 0, 0, 1, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		s := newSource(t, func(o *Options) {
			o.Section = section(func(p *ConWeaveSource) { p.Connections, p.Selectors = 4, 2 })
		}, 0, 1, 2)
		tails := 0
		type tail struct {
			ends uint64 // CLEARs, pauses and moves when it was sent
			last mono.Time
		}
		var flows [8]tail
		for ; len(b) >= 10; b = b[10:] {
			h := overlay.Fabric{
				Capable: b[1]&1 != 0, Opcode: overlay.Opcode(b[0] & 7), Epoch: overlay.Epoch(b[1] >> 1 & 3), Rerouted: b[1]&8 != 0, Tail: b[1]&16 != 0,
				Shim: b[1]&32 != 0, Path: overlay.PathID(b[2]), TxTstamp: overlay.Tstamp(b[3])<<8 | overlay.Tstamp(b[4]), Arg: overlay.TstampOf(s.now) - overlay.Tstamp(b[5]),
			}
			s.handle(uint16(b[6]&1), uint32(b[6]>>1&3), h)
			if b[7]&1 != 0 {
				s.view.Paths[0] = MakePaths([]uint8{0, 1, 2}[:b[7]>>1&3]...)
			}
			pkts := []Packet{{Hash: uint32(b[8] & 7)}}
			s.now = s.now.Add(time.Duration(b[9]) * 200 * time.Nanosecond)
			s.p.Choose(s.now, s.view, pkts)
			if n := s.view.Paths[0].N; n > 0 && pkts[0].Path >= n || pkts[0].Selector > 15 || pkts[0].Epoch > 3 {
				t.Fatalf("%+v of %d paths", pkts[0], n)
			}
			st, fl := s.stats(), &flows[b[8]&7]
			ends := st.Clears + st.Inactive + st.Moves + 1
			if s.now-fl.last > mono.Time(s.p.params.Inactive) {
				fl.ends = 0 // its entry may have been another flow's in between
			}
			if pkts[0].Tail {
				tails++
				if fl.ends == ends {
					t.Fatal("rerouted twice")
				}
				fl.ends = ends
			}
			if pkts[0].Shim {
				fl.last = s.now
			}
			if pkts[0].Tail && pkts[0].Rerouted || pkts[0].Opcode != overlay.OpData && (pkts[0].Tail || pkts[0].Rerouted) {
				t.Fatalf("marked as %+v", pkts[0].Marks)
			}
		}
		if st := s.stats(); uint64(tails) != st.Reroutes || st.Reroutes > st.Epochs {
			t.Fatalf("%d TAILs: %+v", tails, st)
		}
	})
}
