package leaf

import (
	"slices"
	"testing"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// scripted is a receiver that decides as the packets say: Hash is the verdict, Port
// the queue to hold in, Epoch and what follows it in also the queues to drain.
type scripted struct {
	*reorder.ConWeave // for what the script leaves out
	also              []uint16
	vectors           [][]reorder.Arrival
	say               []overlay.Message
	expired           []int
	deadline          mono.Time
	grace             mono.Time
}

func (r *scripted) Receive(_ mono.Time, pkts []reorder.Arrival) {
	for i := range pkts {
		p := &pkts[i]
		p.Verdict, p.Hold, p.Drain, p.Also = reorder.Verdict(p.Hash), p.Port, uint16(p.Fabric.Epoch), r.also
	}
	r.vectors = append(r.vectors, slices.Clone(pkts))
}

func (r *scripted) Outbox() []overlay.Message       { return r.say }
func (r *scripted) Deadline() mono.Time             { return r.deadline }
func (r *scripted) Grace() mono.Time                { return r.grace }
func (r *scripted) Queues() (int, int, int)         { return 8, 3, 6 }
func (r *scripted) Flush(mono.Time) (int, bool)     { return r.next() }
func (r *scripted) Expire(t mono.Time) (int, bool)  { return r.next() }
func (r *scripted) MayHold(p *reorder.Arrival) bool { return p.Fabric.Rerouted }

func (r *scripted) next() (int, bool) {
	if len(r.expired) == 0 {
		return 0, false
	}
	q := r.expired[0]
	r.expired = r.expired[1:]
	return q, true
}

// install puts a scripted receiver in the place of a wire number.
func (s *site) install(wire overlay.SchemeID) *scripted {
	r := &scripted{deadline: reorder.Never}
	queues, perQueue, packets := r.Queues()
	rx := &receiver[int]{scheme: &balance.Scheme{Name: "scripted", Wire: wire}, r: r, holds: reorder.NewHolds[kept[int]](queues, packets, perQueue)}
	s.receivers[wire] = rx
	s.active = append(s.active, rx)
	s.wires |= 1 << wire
	return r
}

// script is a packet for the scripted receiver of a wire number.
func script(wire overlay.SchemeID, v reorder.Verdict, hold uint16, drain overlay.Epoch) reorder.Arrival {
	return reorder.Arrival{Hash: uint32(v), Port: hold, Len: 100, Leaf: 1, Fabric: overlay.Fabric{Capable: true, Shim: true, Scheme: wire, Epoch: drain}}
}

// plain is a tenant's packet that no receiver is for.
func plain() reorder.Arrival { return reorder.Arrival{Len: 100, Leaf: 1} }

func (s *site) wantDelivered(o *Output[int], want ...int) {
	s.t.Helper()
	if !slices.Equal(o.Deliver, want) {
		s.t.Errorf("delivered %v, want %v", o.Deliver, want)
	}
}

// Each verdict puts the packet and what is held into their order, before the next
// packet's verdict counts.
func TestVerdicts(t *testing.T) {
	s := newSite(t, "ecmp")
	r := s.install(9)
	const hold, pass = reorder.Hold, reorder.Pass
	in := func(v reorder.Verdict, queue uint16, drain overlay.Epoch) reorder.Arrival {
		return script(9, v, queue, drain)
	}

	o := s.arrive(1, nil, in(pass, 0, 0), in(hold, 1, 0), in(hold, 2, 0), in(hold, 1, 0), in(pass, 0, 0))
	s.wantDelivered(o, 1, 5)
	if s.Held() != 3 {
		t.Errorf("%d held", s.Held())
	}
	s.wantDelivered(s.arrive(10, nil, in(reorder.PassDrain, 0, 1)), 10, 2, 4)
	s.wantDelivered(s.arrive(20, nil, in(hold, 1, 0), in(reorder.DrainPass, 0, 2)), 3, 21)
	// Of one queue, what it holds goes and the packet takes its place.
	s.wantDelivered(s.arrive(30, nil, in(reorder.DrainHold, 1, 1)), 20)
	s.wantDelivered(s.arrive(40, nil, in(reorder.PassDrain, 0, 1), in(hold, 1, 0), in(reorder.DrainPass, 0, 1)), 40, 30, 41, 42)
	// A copy goes nowhere.
	o = s.arrive(50, nil, in(reorder.Discard, 0, 0), in(pass, 0, 0))
	s.wantDelivered(o, 51)
	if !slices.Equal(o.Copies, []int{50}) {
		t.Errorf("copies %v", o.Copies)
	}
	// Several queues go in the order that the receiver says.
	s.wantDelivered(s.arrive(60, nil, in(hold, 3, 0), in(hold, 1, 0), in(hold, 2, 0)))
	r.also = []uint16{3, 1}
	s.wantDelivered(s.arrive(70, nil, in(reorder.DrainPass, 0, 2)), 62, 60, 61, 70)
	r.also = nil
	// A queue that is full, or a pool that is, holds nothing up.
	s.wantDelivered(s.arrive(80, nil, in(hold, 1, 0), in(hold, 1, 0), in(hold, 1, 0), in(hold, 1, 0)), 83)
	s.wantDelivered(s.arrive(90, nil, in(hold, 2, 0), in(hold, 2, 0), in(hold, 2, 0), in(hold, 3, 0)), 93)
	if s.Held() != 6 {
		t.Errorf("%d held", s.Held())
	}
}

// Packets of several schemes, and such of none, stay in the order in which they came;
// each receiver gets vectors of its own, as long as can be.
func TestVectorsAreSplitByReceiver(t *testing.T) {
	s := newSite(t, "ecmp")
	a, b := s.install(9), s.install(10)
	a.say, b.say = []overlay.Message{{Leaf: 1, Link: overlay.AnyLink, Cause: 1}}, nil
	s.prove(1)
	noShim, unknown := script(9, reorder.Hold, 1, 0), script(11, reorder.Hold, 1, 0)
	noShim.Fabric.Shim = false
	o := s.arrive(0, []uint8{0, 1, 2, 3, 0, 1, 2, 3, 0},
		plain(), script(9, reorder.Hold, 1, 0), script(9, reorder.Pass, 0, 0), script(10, reorder.Hold, 1, 0), noShim, unknown,
		script(10, reorder.PassDrain, 0, 1), script(9, reorder.PassDrain, 0, 1), script(9, reorder.Pass, 0, 0))
	s.wantDelivered(o, 0, 2, 4, 5, 6, 3, 7, 1, 8)
	if len(a.vectors) != 2 || len(a.vectors[0]) != 2 || len(a.vectors[1]) != 2 || len(b.vectors) != 2 {
		t.Errorf("vectors %v and %v", a.vectors, b.vectors)
	}
	// A cause is counted from the start of its vector.
	if len(o.Messages) != 2 || o.Messages[0].Item != 2 || o.Messages[1].Item != 8 || o.Messages[0].Path != 2 || o.Messages[1].Path != 0 {
		t.Errorf("messages %+v", o.Messages)
	}
}

// What arrives is one of five kinds.
func TestAcceptTellsKinds(t *testing.T) {
	s := newSite(t, "ecmp")
	s.install(9)
	for _, tt := range []struct {
		name string
		f    overlay.Fabric
		want Kind
	}{
		{"plain VXLAN", overlay.Fabric{}, Plain},
		{"fields", overlay.Fabric{Capable: true}, Plain},
		{"ConWeave's", overlay.Fabric{Capable: true, Scheme: 1, Shim: true}, Marked},
		{"ConWeave's request", overlay.Fabric{Capable: true, Scheme: 1, Shim: true, Opcode: overlay.OpRTTRequest}, Marked},
		{"ConWeave's without a shim", overlay.Fabric{Capable: true, Scheme: 1}, Plain},
		{"another scheme's", overlay.Fabric{Capable: true, Scheme: 9, Shim: true}, Marked},
		{"of a scheme that there is not", overlay.Fabric{Capable: true, Scheme: 15, Shim: true}, Plain},
		{"a shim of nobody's", overlay.Fabric{Capable: true, Shim: true}, Plain},
		{"NOTIFY", overlay.Fabric{Capable: true, Scheme: 1, Opcode: overlay.OpNotify}, Message},
		{"EXPLORE of another scheme", overlay.Fabric{Capable: true, Scheme: 9, Opcode: overlay.OpExplore}, Message},
		{"message of a scheme that there is not", overlay.Fabric{Capable: true, Scheme: 15, Opcode: overlay.OpExtension}, Unknown},
		{"message of nobody's", overlay.Fabric{Capable: true, Opcode: overlay.OpClear}, Unknown},
		{"HELLO", overlay.Fabric{Capable: true, Opcode: overlay.OpHello}, Greeting},
		{"HELLO with a scheme", overlay.Fabric{Capable: true, Scheme: 15, Opcode: overlay.OpHello}, Greeting},
	} {
		if got := s.Accept(s.now, 1, &tt.f); got != tt.want {
			t.Errorf("%s: kind %d, want %d", tt.name, got, tt.want)
		}
	}
	if !s.MayHold(&reorder.Arrival{Fabric: overlay.Fabric{Shim: true, Scheme: 9, Rerouted: true}}) ||
		s.MayHold(&reorder.Arrival{Fabric: overlay.Fabric{Scheme: 9, Rerouted: true}}) || s.MayHold(&reorder.Arrival{Fabric: overlay.Fabric{Shim: true, Scheme: 15, Rerouted: true}}) {
		t.Error("what may be held is not what a receiver says")
	}
	if s.Receiver(9) == nil || s.Receiver(15) != nil || s.Receiver(0) != nil {
		t.Error("receivers by wire number")
	}
}

// ConWeave's answers go before what they are about, with its headers, back by the
// uplink that it came by.
func TestAnswers(t *testing.T) {
	s := newSite(t, "ecmp")
	s.prove(1, 2)
	o := s.arrive(1, []uint8{2, 3, 1}, request(500), rerouted(510, 505), data(502))
	s.wantDelivered(o, 1, 3)
	if len(o.Messages) != 1 || o.Messages[0].Item != 1 {
		t.Fatalf("messages %+v", o.Messages)
	}
	m := o.Messages[0]
	want := overlay.Fabric{
		Capable: true, Scheme: reorder.SchemeID, Opcode: overlay.OpRTTReply, LBTag: 2, Epoch: 1, Path: 0x10, Shim: true, Arg: 500,
		FBValid: true, FBTag: 1, // what leaf 1 has said to prove itself
	}
	if m.Fabric != want || m.Leaf != 1 || m.Hash != 7 || m.Link != overlay.AnyLink || m.Path != 2 {
		t.Errorf("RTT_REPLY %+v\nwant %+v", m, want)
	}
	o = s.arrive(10, []uint8{3}, tail(505))
	s.wantDelivered(o, 10, 2)
	if len(o.Messages) != 1 || o.Messages[0].Fabric.Opcode != overlay.OpClear || o.Messages[0].Item != 10 || o.Messages[0].Path != 3 {
		t.Errorf("CLEAR %+v", o.Messages)
	}
	if st := s.ReceiverStats(); st[0].Scheme != "conweave" || st[0].Stats.(*reorder.Stats).TailFlushes != 1 {
		t.Errorf("%+v", st)
	}
}

// Answers take the arrival's uplink if it leads to the leaf, and go by hash if not.
// To a leaf that no longer reads the fields, or that no path leads to, none is sent.
func TestAnswersFindTheirWay(t *testing.T) {
	for _, tt := range []struct {
		name   string
		leaf   uint16
		uplink uint8
		hash   uint32
		path   int // -1: none
	}{
		{"by its uplink", 1, 2, 0, 2},
		{"by its uplink, whatever its hash", 1, 3, 0xffffffff, 3},
		{"the second of two paths", 2, 1, 0, 1},
		{"uplink 0 does not lead there: by hash, low", 2, 0, 0, 0},
		{"uplink 2 does not lead there: by hash, high", 2, 2, 0xffffffff, 1},
		{"no such uplink: by hash", 1, 200, 0x80000000, 2},
		{"no path", 3, 1, 0, -1},
		{"no such leaf", 99, 1, 0, -1},
	} {
		s := newSite(t, "ecmp")
		s.prove(1, 2, 3)
		p := request(500)
		p.Leaf, p.Hash = tt.leaf, tt.hash
		o := s.arrive(1, []uint8{tt.uplink}, p)
		s.wantDelivered(o, 1)
		st := s.Stats().Unsent
		switch {
		case tt.path < 0:
			if len(o.Messages) != 0 || st != (Unsent{NoPath: 1}) {
				t.Errorf("%s: %+v, %+v", tt.name, o.Messages, st)
			}
		case len(o.Messages) != 1 || o.Messages[0].Path != tt.path || st != (Unsent{}):
			t.Errorf("%s: %+v, want path %d", tt.name, o.Messages, tt.path)
		case o.Messages[0].Fabric.LBTag != s.View().Paths[tt.leaf].Uplink[tt.path]:
			t.Errorf("%s: path %d with LBTag %d", tt.name, tt.path, o.Messages[0].Fabric.LBTag)
		}
	}
	s := newSite(t, "ecmp")
	if o := s.arrive(1, nil, request(500)); len(o.Messages) != 0 || s.Stats().Unsent != (Unsent{Incapable: 1}) {
		t.Errorf("to a leaf that has proved nothing: %+v, %+v", o.Messages, s.Stats().Unsent)
	}
}

// T_resume ends what is held, with a CLEAR that carries the headers of the first
// packet and takes the way back that this packet came by. A driver that has packets
// to read gets some time for them first.
func TestExpiry(t *testing.T) {
	s := newSite(t, "ecmp")
	s.prove(1)
	if s.Deadline() != reorder.Never {
		t.Error("nothing is held, and something is due")
	}
	s.wantDelivered(s.arrive(1, []uint8{3, 2}, rerouted(510, 505), rerouted(511, 505)))
	due := s.now.Add(200 * time.Microsecond) // θ_resume_default
	if s.Deadline() != due {
		t.Fatalf("T_resume in %v", s.Deadline().Sub(s.now))
	}
	s.wantDelivered(s.Tick(due-1, false))
	s.wantDelivered(s.Tick(due, true))
	s.wantDelivered(s.Tick(due.Add(16*time.Microsecond)-1, true))
	s.now = due.Add(16 * time.Microsecond)
	o := s.Tick(s.now, true) // θ_resume_extra is over
	s.wantDelivered(o, 1, 2)
	if len(o.Messages) != 1 || o.Messages[0].Item != 1 || o.Messages[0].Path != 3 || o.Messages[0].Fabric.Opcode != overlay.OpClear {
		t.Errorf("%+v", o.Messages)
	}
	if s.Held() != 0 || s.Deadline() != reorder.Never {
		t.Errorf("%d held until %d", s.Held(), s.Deadline())
	}
}

// A driver that stops gets all back, says nothing, and goes on as before.
func TestFlush(t *testing.T) {
	s := newSite(t, "ecmp")
	s.prove(1)
	other := rerouted(510, 505)
	other.Hash = 8
	s.wantDelivered(s.arrive(1, nil, rerouted(510, 505), other, rerouted(511, 505)))
	s.Wait(s.Classes()[0], &balance.Packet{Until: s.now + 1}, 9)
	if s.Held() != 4 {
		t.Errorf("%d held", s.Held())
	}
	o := s.Flush(s.now)
	slices.Sort(o.Deliver)
	s.wantDelivered(o, 1, 2, 3)
	if len(o.Messages) != 0 || !slices.Equal(items(o.Retry), []int{9}) || s.Held() != 0 || s.Deadline() != reorder.Never {
		t.Errorf("%+v, %d held", o, s.Held())
	}
	s.wantDelivered(s.arrive(10, nil, rerouted(512, 505), tail(505)), 10, 11)
}

// Several queues that expire at a time go one by one, and each answer with its own
// first packet.
func TestExpiriesOfSeveralQueues(t *testing.T) {
	s := newSite(t, "ecmp")
	s.prove(1)
	r := s.install(9)
	s.wantDelivered(s.arrive(1, []uint8{1, 2, 3}, script(9, reorder.Hold, 4, 0), script(9, reorder.Hold, 2, 0), script(9, reorder.Hold, 4, 0)))
	r.deadline, r.expired = s.now, []int{2, 4}
	r.say = []overlay.Message{{Leaf: 1, Link: overlay.AnyLink, Cause: overlay.NoCause}}
	o := s.Tick(s.now, false)
	s.wantDelivered(o, 2, 1, 3)
	if len(o.Messages) != 2 || o.Messages[0].Item != 2 || o.Messages[0].Path != 2 || o.Messages[1].Item != 1 || o.Messages[1].Path != 1 {
		t.Errorf("%+v", o.Messages)
	}
}

// A driver that knows what other leaves send by pays for no other receiving side. Its own
// classes' are there all the same: leaves take them for granted.
func TestSendersDecideAboutReceivers(t *testing.T) {
	for _, tt := range []struct {
		name    string
		senders []string
		own     string
		want    []overlay.SchemeID
	}{
		{"not known", nil, "ecmp", []overlay.SchemeID{1, 2, 4, 5}},
		{"nobody needs one", []string{"ecmp", "conga"}, "letflow", nil},
		{"another leaf's", []string{"ecmp", "conweave"}, "ecmp", []overlay.SchemeID{1}},
		{"variants share one", []string{"conweave-informed"}, "ecmp", []overlay.SchemeID{1}},
		{"the leaf's own", []string{"ecmp"}, "reed", []overlay.SchemeID{4}},
		{"both", []string{"tfe"}, "reed", []overlay.SchemeID{4, 5}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSiteOf(t, Config{Senders: tt.senders}, tt.own)
			for wire := range overlay.SchemeID(overlay.NumSchemes) {
				got, want := s.Receiver(wire) != nil, slices.Contains(tt.want, wire)
				if got != want && (want || tt.senders != nil) { // of those there are, some are not named here
					t.Errorf("receiver of scheme %d: %v, want %v", wire, got, want)
				}
			}
		})
	}
}
