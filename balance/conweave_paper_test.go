package balance

import (
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// The tests in this file quote the claim of the ConWeave paper that they hold
// the source side to. Where the code differs, the test says how.

const usec = mono.Time(time.Microsecond)

// source is a ConWeave source with one flow to leaf 0.
type source struct {
	t    testing.TB
	p    *conweave
	view *View
	now  mono.Time
}

func newSource(t testing.TB, change func(*Options), uplinks ...uint8) *source {
	t.Helper()
	o := Options{Seed: 1}
	if change != nil {
		change(&o)
	}
	name := "conweave"
	p, err := New(name, o)
	if err != nil {
		t.Fatal(err)
	}
	return &source{t: t, p: p.(*conweave), view: newView(MakePaths(uplinks...)), now: mono.Time(time.Second)}
}

// send sends a packet of a flow d after the last one, and returns the header
// that it leaves with.
func (s *source) sendOf(hash uint32, d time.Duration) overlay.Fabric {
	s.t.Helper()
	s.now = s.now.Add(d)
	pkts := []Packet{{Hash: hash, Len: 1000}}
	s.p.Choose(s.now, s.view, pkts)
	f := overlay.Fabric{Capable: true}
	pkts[0].Stamp(s.now, reorder.SchemeID, s.view.Paths[0].Uplink[pkts[0].Path], &f)
	return f
}

func (s *source) send(d time.Duration) overlay.Fabric { s.t.Helper(); return s.sendOf(1, d) }

// answer is the answer of the destination to a packet, d after the last event.
func (s *source) answer(op overlay.Opcode, cause overlay.Fabric, d time.Duration) {
	s.now = s.now.Add(d)
	s.handle(0, 1, answerTo(op, cause))
}

// handle gives the source a message of a leaf about a flow. It reports whether the
// source knows what the message is about.
func (s *source) handle(leaf uint16, hash uint32, f overlay.Fabric) bool {
	return s.p.Handle(s.now, s.view, &overlay.Message{Leaf: leaf, Link: overlay.AnyLink, Cause: overlay.NoCause, Hash: hash, Fabric: f})
}

// section returns the datacenter's parameters of ConWeave with changes.
func section(change func(*ConWeaveSource)) *ConWeaveParams {
	p := newConWeaveParams(Datacenter).(*ConWeaveParams)
	change(&p.Source)
	return p
}

// answerTo is what package reorder makes of a packet.
func answerTo(op overlay.Opcode, cause overlay.Fabric) overlay.Fabric {
	f := overlay.Fabric{Capable: true, Scheme: reorder.SchemeID, Opcode: op, Epoch: cause.Epoch, Path: cause.Path}
	switch op {
	case overlay.OpRTTReply:
		f.Shim, f.Arg = true, cause.TxTstamp
	case overlay.OpClear:
		f.Shim, f.Arg = true, cause.Arg
	}
	return f
}

func (s *source) stats() ConWeaveStats { return *s.p.Stats().Own.(*ConWeaveStats) }

// reroute brings the flow to where its TAIL has just been sent.
func (s *source) reroute() (request, tail overlay.Fabric) {
	s.t.Helper()
	request = s.send(0)
	tail = s.send(9 * time.Microsecond)
	if request.Opcode != overlay.OpRTTRequest || !tail.Tail {
		s.t.Fatalf("request %+v, TAIL %+v", request, tail)
	}
	return request, tail
}

// TestPaperParameters: Tables 1 and 3.
//
//	θ_reply          Timeout value for RTT_REPLY                       8us
//	θ_path_busy      Duration to avoid using a congested path          8us
//	θ_inactive       Duration of flow inactivity to start a new epoch  300us
//
// and §4.1.4: "In lossless RDMA, we use 8 μs for θ_reply, 16 μs for
// θ_path_busy, and 1ms for θ_inactive" (fat-tree); §4.2: "12us for θ_reply, 32us
// for θ_path_busy …, and 10ms for θ_inactive" (testbed).
func TestPaperParameters(t *testing.T) {
	p := DatacenterConWeave()
	if p.Reply != 8*time.Microsecond || p.PathBusy != 8*time.Microsecond || p.Inactive != 300*time.Microsecond || p.Samples != 2 {
		t.Errorf("%+v", p)
	}
	for _, set := range [][3]time.Duration{{8 * time.Microsecond, 16 * time.Microsecond, time.Millisecond}, {12 * time.Microsecond, 32 * time.Microsecond, 10 * time.Millisecond}} {
		p.Reply, p.PathBusy, p.Inactive = set[0], set[1], set[2]
		if err := p.Validate(); err != nil {
			t.Errorf("a set of the paper's is refused: %v", err)
		}
	}
	lab := LabConWeave()
	if err := lab.Validate(); err != nil {
		t.Error(err)
	}
}

// TestPaperPacketTypes: Table 2, and what a source makes of each type.
//
//	RTT_REQUEST  request pkt. sent from SrcToR to DstToR
//	RTT_REPLY    reply pkt. sent from DstToR to SrcToR
//	TAIL         Last packet along the OLD path
//	REROUTED     Packets sent through the new path after rerouting
//	CLEAR        Signals no more out-of-order pkts. in the epoch
//	NOTIFY       Signals a congested path to the SrcToR
func TestPaperPacketTypes(t *testing.T) {
	s := newSource(t, nil, 0, 1)
	request := s.send(0)
	if request.Opcode != overlay.OpRTTRequest || request.Tail || request.Rerouted {
		t.Errorf("RTT_REQUEST %+v", request)
	}
	tail := s.send(9 * time.Microsecond)
	if tail.Opcode != overlay.OpData || !tail.Tail || tail.Rerouted || tail.Path != request.Path {
		t.Errorf("TAIL %+v", tail)
	}
	rerouted := s.send(0)
	if rerouted.Opcode != overlay.OpData || rerouted.Tail || !rerouted.Rerouted || rerouted.Path == request.Path {
		t.Errorf("REROUTED %+v", rerouted)
	}
	s.answer(overlay.OpNotify, rerouted, 0)
	s.answer(overlay.OpClear, tail, 0)
	s.answer(overlay.OpRTTReply, s.send(0), time.Microsecond)
	if st := s.stats(); st.Notifies != 1 || st.Clears != 1 || st.Replies != 1 {
		t.Errorf("handled %+v", st)
	}
}

// TestPaperOneRequestAnEpoch, §3.2: "In the initial state, a flow always begins
// with a new epoch." §3.2.1: "ConWeave selects and marks one packet from the flow
// as RTT_REQUEST in every epoch … As long as the RTT_REPLY is received prior to
// the cutoff, the process is repeated for the next epoch."
func TestPaperOneRequestAnEpoch(t *testing.T) {
	s := newSource(t, nil, 0, 1, 2, 3)
	var path overlay.PathID
	for epoch := range 10 {
		request := s.send(100 * time.Nanosecond)
		if epoch == 0 {
			path = request.Path
		}
		if request.Opcode != overlay.OpRTTRequest || request.Epoch != overlay.Epoch(epoch+1)&3 {
			t.Fatalf("epoch %d begins with %+v", epoch, request)
		}
		for range 20 {
			if f := s.send(100 * time.Nanosecond); f.Opcode != overlay.OpData || f.Epoch != request.Epoch {
				t.Fatalf("epoch %d goes on with %+v", epoch, f)
			}
		}
		s.answer(overlay.OpRTTReply, request, 5*time.Microsecond)
	}
	if f := s.send(0); f.Path != path {
		t.Errorf("the flow moved from path %v to %v, although each reply was in time", path, f.Path)
	}
	if st := s.stats(); st.Epochs != 11 || st.Requests != 11 || st.Replies != 10 || st.CutOffs != 0 {
		t.Errorf("%+v", st)
	}
}

// TestPaperCutOff, §3.2.1: "if an RTT_REQUEST is sent and no reply was received
// before the cutoff time, we infer that the existing path is likely to experience
// congestion … The rerouting mechanism is triggered." §3.4.1: "Every forwarded
// packet would check against the timestamp stored".
func TestPaperCutOff(t *testing.T) {
	for _, tt := range []struct {
		name  string
		reply time.Duration // after the request; 0: none
		next  time.Duration
		tail  bool
	}{
		{"no reply, before the cut-off", 0, 8 * time.Microsecond, false},
		{"no reply, after it", 0, 8*time.Microsecond + 1, true},
		{"reply at the cut-off", 8 * time.Microsecond, 20 * time.Microsecond, false},
		{"reply after it, before the next packet", 8*time.Microsecond + 1, 20 * time.Microsecond, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSource(t, nil, 0, 1)
			request := s.send(0)
			if tt.reply != 0 {
				s.answer(overlay.OpRTTReply, request, tt.reply)
			}
			if f := s.send(tt.next - tt.reply); f.Tail != tt.tail {
				t.Errorf("next packet %+v, want TAIL %v", f, tt.tail)
			}
		})
	}
}

// TestPaperReroute, §3.2.3: "Once a path is selected for rerouting, ConWeave sends
// one more packet over the OLD path by marking it as TAIL. The remaining packets
// are then rerouted to the NEW path and marked with the REROUTED flag." §3.3.1:
// "all packets in ConWeave carry the TX_TSTAMP … In addition, the REROUTED packets
// include the TAIL_TX_TSTAMP to inform the DstToR on when the TAIL departed".
func TestPaperReroute(t *testing.T) {
	s := newSource(t, nil, 0, 1, 2)
	request, tail := s.reroute()
	if tail.Path != request.Path || tail.Epoch != request.Epoch {
		t.Errorf("TAIL %+v on the path of %+v", tail, request)
	}
	at := overlay.TstampOf(s.now)
	if !request.Shim || !tail.Shim || tail.TxTstamp != at {
		t.Errorf("without TX_TSTAMP: %+v, %+v", request, tail)
	}
	first := s.send(0)
	for range 50 {
		f := s.send(3 * time.Microsecond)
		if !f.Rerouted || f.Tail || f.Path != first.Path || f.Path == tail.Path || f.Epoch != tail.Epoch || f.Opcode != overlay.OpData {
			t.Fatalf("after the TAIL %+v", f)
		}
		if !f.Shim || f.TxTstamp != overlay.TstampOf(s.now) || f.Arg != at {
			t.Fatalf("timestamps of %+v, TAIL left at %d", f, at)
		}
	}
}

// TestPaperTwoPaths, §3.2: "any flow can only have in-flight packets in at most two
// paths at any instance of time … Condition (iii) prohibits another rerouting to
// occur until the condition becomes true again." §3.2.3: "With the CLEAR packet,
// the SrcToR can then proceed to start a new epoch".
func TestPaperTwoPaths(t *testing.T) {
	s := newSource(t, nil, 0, 1, 2, 3)
	_, tail := s.reroute()
	for range 100 {
		if f := s.send(100 * time.Microsecond); !f.Rerouted { // many times θ_reply
			t.Fatalf("before CLEAR %+v", f)
		}
	}
	s.answer(overlay.OpClear, tail, time.Microsecond)
	if f := s.send(0); f.Opcode != overlay.OpRTTRequest || f.Epoch != tail.Epoch.Next() || f.Rerouted {
		t.Errorf("after CLEAR %+v", f)
	}
	if f := s.send(9 * time.Microsecond); !f.Tail {
		t.Errorf("and no reroute then: %+v", f)
	}
}

// TestPaperClearLost, §3.2.3: "if the CLEAR packet is lost or not sent by the
// DstToR, ConWeave would not be able to resume the RTT monitoring mechanism. To
// overcome this, the SrcToR keeps track of an inactive period of connection, i.e.,
// the gap between the last packet process time and the current time. If it exceeds
// θ_inactive, ConWeave automatically progresses to the next epoch".
//
// The paper does not say which path the flow takes then. It stays, so that a θ_inactive
// which is too short reorders nothing, unless its path is busy or does not answer.
func TestPaperClearLost(t *testing.T) {
	s := newSource(t, nil, 0, 1, 2, 3)
	_, tail := s.reroute()
	if f := s.send(300 * time.Microsecond); !f.Rerouted {
		t.Errorf("after a pause of θ_inactive, not longer: %+v", f)
	}
	if f := s.send(300*time.Microsecond + 1); f.Opcode != overlay.OpRTTRequest || f.Epoch != tail.Epoch.Next() || f.Rerouted {
		t.Errorf("after a longer one: %+v", f)
	}
	if st := s.stats(); st.Inactive != 1 || st.Unclear != 1 {
		t.Errorf("%+v", st)
	}
	request := s.send(0)
	path := request.Path
	for range 20 {
		s.answer(overlay.OpRTTReply, request, time.Microsecond)
		if request = s.send(time.Millisecond); request.Path != path || request.Opcode != overlay.OpRTTRequest {
			t.Fatalf("after a pause %+v, although path %v is not busy", request, path)
		}
	}
	s.answer(overlay.OpNotify, overlay.Fabric{Path: path}, time.Millisecond)
	if f := s.send(0); f.Path == path {
		t.Errorf("after a pause the flow stays on path %v, which is busy", path)
	}
}

// A path that swallows everything does not keep a flow that pauses after each
// packet, and so is never cut off.
func TestConWeaveLeavesSilentPaths(t *testing.T) {
	s := newSource(t, nil, 0, 1)
	const dead = 1
	lost := 0
	for hash := range uint32(200) {
		for range 12 {
			f := s.sendOf(hash, time.Millisecond)
			if f.Path.Uplink() == dead {
				lost++
				continue
			}
			f = answerTo(overlay.OpRTTReply, f)
			s.handle(0, hash, f)
		}
	}
	// Half of the flows begin there, and leave after two packets one time in two.
	if lost < 200 || lost > 600 {
		t.Errorf("%d of 2400 packets went by a path that answers none", lost)
	}
}

// TestPaperBusyPaths, §3.2.2: "Upon receiving a NOTIFY packet, the corresponding
// path will be marked as unavailable by the SrcToR for a time of θ_path_busy."
func TestPaperBusyPaths(t *testing.T) {
	for _, tt := range []struct {
		age  time.Duration
		free bool
	}{{8*time.Microsecond - 1, false}, {8 * time.Microsecond, true}} {
		s := newSource(t, nil, 3, 7)
		request := s.send(0)
		other := uint8(3 + 7 - request.Path.Uplink())
		s.answer(overlay.OpNotify, overlay.Fabric{Path: overlay.MakePathID(other, 9)}, 9*time.Microsecond)
		if f := s.send(tt.age); f.Tail != tt.free {
			t.Errorf("%v after the NOTIFY: TAIL %v", tt.age, f.Tail)
		}
	}
}

// TestPaperSamples, §3.2.2: "Whenever a new path is needed, ConWeave randomly
// selects a few sample paths (e.g., 2) … If a path is available, we select the
// path for rerouting. If all paths are unavailable, … rerouting is aborted."
//
// The samples here are different paths, none of them the present one: of eight
// paths of which six are busy and one is the flow's, two samples miss the free one
// in 5 of 7 cases; the paper's samples can be alike.
func TestPaperSamples(t *testing.T) {
	const flows = 4000
	rerouted := 0
	s := newSource(t, nil, 0, 1, 2, 3, 4, 5, 6, 7)
	for i := range uint32(flows) {
		hash := i*2654435761 + 1
		request := s.sendOf(hash, time.Millisecond)
		s.now = s.now.Add(9 * time.Microsecond)
		for u := range uint8(8) {
			if u != request.Path.Uplink() && u != (request.Path.Uplink()+1)%8 {
				f := overlay.Fabric{Opcode: overlay.OpNotify, Path: overlay.MakePathID(u, 0)}
				s.handle(0, hash, f)
			}
		}
		if f := s.sendOf(hash, 0); f.Tail {
			rerouted++
			if next := s.sendOf(hash, 0); next.Path.Uplink() != (request.Path.Uplink()+1)%8 {
				t.Fatalf("from %v to %v, which is busy", request.Path, next.Path)
			}
		}
	}
	if want := flows * 2 / 7; rerouted < want*9/10 || rerouted > want*11/10 {
		t.Errorf("%d of %d flows were rerouted, want about %d", rerouted, flows, want)
	}
	if st := s.stats(); st.Aborts != flows-uint64(rerouted) || st.Reroutes != uint64(rerouted) {
		t.Errorf("%+v", st)
	}
}

// TestPaperAbort, §3.2.2: "If all paths are unavailable, the network is considered
// highly congested and rerouting is aborted." When it is tried again the paper does
// not say. Here the epoch goes on: after each further θ_reply there is another
// attempt, until a path is free or the reply comes after all.
func TestPaperAbort(t *testing.T) {
	abort := func() (*source, overlay.Fabric) {
		s := newSource(t, nil, 0, 1)
		request := s.send(0)
		for u := range uint8(2) {
			s.answer(overlay.OpNotify, overlay.Fabric{Path: overlay.MakePathID(u, 0)}, 4*time.Microsecond)
		}
		if f := s.send(time.Microsecond); f.Tail || f.Rerouted || f.Path != request.Path || f.Epoch != request.Epoch || f.Opcode != overlay.OpData {
			t.Fatalf("rerouting was not aborted: %+v", f)
		}
		return s, request
	}
	s, request := abort()
	if f := s.send(8 * time.Microsecond); f.Tail {
		t.Errorf("tried again within θ_reply: %+v", f)
	}
	if f := s.send(1); !f.Tail || f.Epoch != request.Epoch {
		t.Errorf("not tried again after θ_reply: %+v", f)
	}
	if st := s.stats(); st.Aborts != 1 || st.CutOffs != 1 || st.Reroutes != 1 {
		t.Errorf("%+v", st)
	}

	s, request = abort()
	s.answer(overlay.OpRTTReply, request, 50*time.Microsecond)
	if f := s.send(0); f.Opcode != overlay.OpRTTRequest || f.Epoch != request.Epoch.Next() || f.Path != request.Path {
		t.Errorf("after the late reply: %+v", f)
	}
}

// TestPaperFallback, §3.4.3: "In cases where there are more active connections
// than what ConWeave supports, ConWeave applies ECMP to the rest as a fallback". And
// §3.4.1: the table is "4-way associative".
func TestPaperFallback(t *testing.T) {
	s := newSource(t, func(o *Options) {
		o.Section = section(func(p *ConWeaveSource) { p.Connections = 4 })
	}, 0, 1, 2, 3, 4)
	for hash := uint32(1); hash <= 4; hash++ {
		if f := s.sendOf(hash, 0); f.Opcode != overlay.OpRTTRequest {
			t.Fatalf("flow %d has no place: %+v", hash, f)
		}
	}
	ecmp := mustNew(t, "ecmp", 1)
	for hash := uint32(5); hash < 100; hash++ {
		pkts := []Packet{{Hash: hash}}
		ecmp.Choose(s.now, s.view, pkts)
		f := s.sendOf(hash, time.Microsecond)
		if f.Shim || f.Opcode != overlay.OpData || f.Rerouted || f.Tail || f.Epoch != 0 || f.Path.Uplink() != pkts[0].Path {
			t.Fatalf("flow %d without a place: %+v, ECMP has path %d", hash, f, pkts[0].Path)
		}
	}
	if st := s.stats(); st.Overflow != 95 {
		t.Errorf("%+v", st)
	}
	// Aged entries are used again; flows that went by hash a moment ago stay
	// where they are.
	pkts := []Packet{{Hash: 99}}
	ecmp.Choose(s.now, s.view, pkts)
	if f := s.sendOf(99, 250*time.Microsecond); f.Opcode != overlay.OpRTTRequest || f.Path.Uplink() != pkts[0].Path {
		t.Errorf("flow 99 gets a place with %+v, its path is %d", f, pkts[0].Path)
	}
}

// TestPaperIncrementalDeployment, §5: "For inter-rack communications that involve
// non-ConWeave ToR switches, the default ECMP is applied."
func TestPaperIncrementalDeployment(t *testing.T) {
	s := newSource(t, nil, 0, 1, 2, 3)
	s.view.Capable = overlay.NewCapability(1)
	ecmp := mustNew(t, "ecmp", 1)
	pkts := []Packet{{Hash: 1}}
	ecmp.Choose(s.now, s.view, pkts)
	for range 5 {
		if f := s.send(9 * time.Microsecond); f.Shim || f.Opcode != overlay.OpData || f.Tail || f.Path.Uplink() != pkts[0].Path {
			t.Fatalf("to a leaf that does not speak ConWeave: %+v", f)
		}
	}
	s.view.Capable.Confirm(0, s.now)
	request := s.send(9 * time.Microsecond)
	if request.Opcode != overlay.OpRTTRequest || request.Path.Uplink() != pkts[0].Path {
		t.Fatalf("now that it does: %+v, want the path of the packets under way, %d", request, pkts[0].Path)
	}
	s.view.Capable.Forget(0)
	for range 5 { // what is under way must not be overtaken without a reroute
		if f := s.send(9 * time.Microsecond); f.Shim || f.Tail || f.Path.Uplink() != pkts[0].Path {
			t.Fatalf("now that it no longer does: %+v", f)
		}
	}
	if st := s.stats(); st.Incapable != 10 {
		t.Errorf("%+v", st)
	}
}

// TestPaperAdmissionControl, §5: "applying admission control so that destination
// ToRs permit source ToRs to do rerouting only when there are spare resources."
// A leaf that is short says so in what it sends; the flow is not rerouted at the
// next cut-off. That stands for one attempt, so that a flow whose replies get lost
// does not wait for ever for permission.
func TestPaperAdmissionControl(t *testing.T) {
	s := newSource(t, nil, 0, 1)
	reply := answerTo(overlay.OpRTTReply, s.send(0))
	reply.Rerouted = true
	if !reply.Refuses() {
		t.Fatal("the reply does not refuse")
	}
	s.handle(0, 1, reply)
	request := s.send(0)
	if f := s.send(9 * time.Microsecond); f.Tail || request.Opcode != overlay.OpRTTRequest {
		t.Errorf("rerouted all the same: %+v, %+v", request, f)
	}
	if st := s.stats(); st.Refused != 1 || st.Aborts != 0 || st.CutOffs != 1 {
		t.Errorf("%+v", st)
	}
	if f := s.send(9 * time.Microsecond); !f.Tail {
		t.Errorf("refused for ever: %+v", f)
	}
	// A reply without it takes it back.
	s = newSource(t, nil, 0, 1)
	request = s.send(0)
	notify := answerTo(overlay.OpNotify, request)
	notify.Rerouted = true
	s.handle(0, 1, notify)
	s.answer(overlay.OpRTTReply, request, time.Microsecond)
	s.send(0)
	if f := s.send(9 * time.Microsecond); !f.Tail {
		t.Errorf("%+v, %+v", f, s.stats())
	}
}

// TestPaperEpochsWrap, §3.4: "The 2-bit Epoch field indicates the epoch of the
// packet". Footnote 6 knows that it wraps; here REPLY and CLEAR echo the timestamp
// of what they answer, and one that is four epochs late ends nothing.
func TestPaperEpochsWrap(t *testing.T) {
	s := newSource(t, nil, 0, 1, 2)
	var clears, replies []overlay.Fabric
	for range 9 {
		request, tail := s.reroute()
		s.send(0)
		clears, replies = append(clears, tail), append(replies, request)
		s.answer(overlay.OpClear, tail, time.Microsecond)
	}
	request := s.send(0)
	for i, old := range replies {
		s.answer(overlay.OpRTTReply, old, 0)
		if f := s.send(0); f.Opcode == overlay.OpRTTRequest {
			t.Fatalf("a copy of reply %d, of epoch %d, ended epoch %d", i, old.Epoch, request.Epoch)
		}
	}
	tail := s.send(9 * time.Microsecond)
	for i, old := range clears {
		s.answer(overlay.OpClear, old, 0)
		if f := s.send(0); !f.Rerouted {
			t.Fatalf("a copy of CLEAR %d, of epoch %d, ended epoch %d", i, old.Epoch, tail.Epoch)
		}
	}
	if st := s.stats(); st.StaleClears != 9 || st.StaleReplies != 9 {
		t.Errorf("%+v", st)
	}
}
