package dataplane

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/leaf"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// talker is a scheme that says something to the neighbours of its links when it is
// time, and notes what they say. It is in no list of schemes.
type talker struct {
	balance.Policy
	at    mono.Time
	say   []overlay.Message
	heard []overlay.Message
}

const talkerWire = overlay.SchemeID(14)

func newTalker(t testing.TB) *talker {
	t.Helper()
	p, err := balance.New("ecmp", balance.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return &talker{Policy: p, at: reorder.Never}
}

func (p *talker) Handle(_ mono.Time, _ *balance.View, m *overlay.Message) bool {
	p.heard = append(p.heard, *m)
	return m.Fabric.Epoch == 1
}

func (p *talker) Deadline() mono.Time { return p.at }

func (p *talker) Tick(_ mono.Time, _ *balance.View, out []overlay.Message) []overlay.Message {
	p.at = reorder.Never
	return append(out, p.say...)
}

// talk has a leaf's default class talk.
func (r *rig) talk(p *talker) {
	r.w.leaf.classes[0].Class = leaf.NewClass(&balance.Scheme{Name: "talker", Wire: talkerWire}, p)
	r.w.leaf.setClasses(r.w.leaf.classes)
}

// talkingSpine is a spine whose bundles talk.
func talkingSpine(t testing.TB, workers int, tables *Tables) (rigs []*rig, policies [][]*talker) {
	t.Helper()
	rigs = newRigs(t, spineConfig(), tables, workers)
	policies = make([][]*talker, workers)
	messages := newWorkerRings[message](workers)
	for i, r := range rigs {
		scheme := &balance.Scheme{Name: "talker", Wire: talkerWire, New: func(*balance.Options) balance.Policy {
			p := newTalker(t)
			policies[i] = append(policies[i], p)
			return p
		}}
		brain, err := leaf.NewSpineOf(scheme, leaf.SpineConfig{Links: r.w.spine})
		if err != nil {
			t.Fatal(err)
		}
		r.w.spine.brain, policies[i] = brain, nil
		if workers > 1 {
			r.w.spine.messages = messages
		}
		r.publish(tables)
	}
	return rigs, policies
}

// said is a message by a link.
func said(link uint8, arg overlay.Tstamp) overlay.Message {
	return overlay.Message{Link: link, Fabric: overlay.Fabric{Opcode: overlay.OpExplore, Epoch: 1, Shim: true, TxTstamp: 7, Arg: arg, Path: 0x31}}
}

// What a leaf's policy says by Tick, the policy of the spine at the other end of the
// link handles, and the other way round: over a wire of which each end has the MAC
// address that the other one takes for its next hop's.
func TestNeighboursTalk(t *testing.T) {
	r := newRig(t, leafConfig(), leafTables())
	l := newTalker(t)
	r.talk(l)
	spineTables := spineTables()
	spineTables.Ports[dn0].MAC = gwMAC // up1 leads there
	spineTables.Hops[0].MAC = ownMAC
	rigs, policies := talkingSpine(t, 1, spineTables)
	s := rigs[0]

	l.at, l.say = r.now, []overlay.Message{said(1, 500)}
	out := r.settle()
	if len(out[up1]) != 1 || len(out[up0]) != 0 {
		t.Fatalf("%d and %d messages left", len(out[up0]), len(out[up1]))
	}
	b := out[up1][0]
	eth := overlay.Ethernet(b)
	if len(b) != overlay.LinkMessageLen || eth.Dst() != gwMAC || overlay.MAC(eth[6:12]) != ownMAC || binary.BigEndian.Uint16(b[12:]) != 0x88b5 {
		t.Fatalf("sent % x", b)
	}
	if out = s.send(dn0, b); slices.ContainsFunc(out, func(sent [][]byte) bool { return len(sent) > 0 }) {
		t.Error("the spine sent a message on")
	}
	want := said(0, 500) // dn0 is the first port of the first bundle
	want.Cause, want.Fabric.Capable, want.Fabric.Scheme = overlay.NoCause, true, talkerWire
	if p := policies[0][0]; len(p.heard) != 1 || p.heard[0] != want {
		t.Errorf("the spine handled %+v, want %+v", p.heard, want)
	}
	if st := s.w.snapshot(); st.Consumed != 1 || st.Leaf.Received[overlay.OpExplore] != 1 || st.Leaf.Known[overlay.OpExplore] != 1 {
		t.Errorf("the spine consumed %d, counted %+v", st.Consumed, st.Leaf)
	}

	p := policies[0][0]
	p.at, p.say = s.now, []overlay.Message{said(0, 900), said(5, 901)} // the second by no link
	out = s.settle()
	if len(out[dn0]) != 1 {
		t.Fatalf("%d messages left the spine", len(out[dn0]))
	}
	r.send(up1, out[dn0][0])
	want = said(1, 900)
	want.Cause, want.Fabric.Capable, want.Fabric.Scheme = overlay.NoCause, true, talkerWire
	if len(l.heard) != 1 || l.heard[0] != want {
		t.Errorf("the leaf handled %+v, want %+v", l.heard, want)
	}
	sent := leaf.Amount{Frames: 1, Bytes: overlay.LinkMessageLen}
	if st := s.w.snapshot().Leaf; st.Sent[overlay.OpExplore] != sent || st.Unsent != (leaf.Unsent{NoPath: 1}) {
		t.Errorf("the spine sent %+v, unsent %+v", st.Sent[overlay.OpExplore], st.Unsent)
	}
	if st := r.w.snapshot().Leaf; st.Sent[overlay.OpExplore] != sent || st.Received[overlay.OpExplore] != 1 || st.Known[overlay.OpExplore] != 1 {
		t.Errorf("the leaf counted %+v", st)
	}
	for _, x := range []*rig{r, s} {
		if d := x.drops(); len(d) != 0 {
			t.Errorf("drops %v", d)
		}
	}
}

// A message goes ahead of the data that waits for the link, and keeps a worker from
// sleeping past its time.
func TestNeighboursAreToldFirst(t *testing.T) {
	cfg := leafConfig()
	cfg.Ports[up1].Egress.Rate, cfg.Ports[up1].Egress.Burst = 1e6, 100
	r := newRig(t, cfg, leafTables())
	l := newTalker(t)
	r.talk(l)
	r.send(up0, wrap(vtep2, own(), 100, udp4(bcast, hostB, 0, 1, 10), nil))
	for flow := range uint16(40) {
		r.send(acc0, udp4(hostB, hostA, 0, flow, 1400))
	}
	if r.w.ports[up1].egress.data.len() == 0 {
		t.Fatal("nothing waits for the uplink")
	}
	l.at, l.say = r.now.Add(time.Microsecond), []overlay.Message{said(1, 1)}
	if at, _ := r.w.nextDeadline(r.now); at > l.at {
		t.Errorf("the worker may sleep until %v, the policy wants to be woken at %v", at, l.at)
	}
	r.now = l.at
	r.w.round(r.now)
	out := r.links[up1].out
	if len(out) == 0 || overlay.Ethernet(out[len(out)-1]).EtherType() != overlay.EtherTypeLocal {
		t.Error("the message waits behind data")
	}
}

// A neighbour whose MAC address is not known is not told anything: the control plane is
// asked for the address, and the message is counted. Nothing is sent to a group.
func TestNeighboursWithoutAnAddress(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*Tables)
		asked  bool
	}{
		{"no MAC", func(t *Tables) { t.Hops[1].Resolved = false }, true},
		{"no next hop", func(t *Tables) { t.Hops[1].Port = up0 }, false},
		{"link down", func(t *Tables) { t.Ports[up1].Up = false }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tables := leafTables()
			tt.change(tables)
			r := newRig(t, leafConfig(), tables)
			l := newTalker(t)
			r.talk(l)
			for range 3 {
				l.at, l.say = r.now, []overlay.Message{said(1, 1), said(2, 1)} // there are two uplinks
				for p, sent := range r.settle() {
					if len(sent) != 0 {
						t.Errorf("port %d sent % x", p, sent)
					}
				}
			}
			if s := r.w.snapshot(); s.Leaf.Unsent != (leaf.Unsent{NoPath: 6}) || s.Made != 0 {
				t.Errorf("unsent %+v, made %d", s.Leaf.Unsent, s.Made)
			}
			if (len(r.ask) == 1) != tt.asked {
				t.Errorf("asked for %d addresses", len(r.ask))
			}
		})
	}
}

// What comes as a neighbour's message and is none is dropped by name.
func TestNeighbourMessagesNobodyAskedFor(t *testing.T) {
	message := func(change func(*overlay.Fabric)) []byte {
		m := said(0, 1)
		m.Fabric.Capable, m.Fabric.Scheme = true, talkerWire
		if change != nil {
			change(&m.Fabric)
		}
		b := make([]byte, overlay.LinkMessageLen)
		overlay.EncodeLink(b, gwMAC, ownMAC, &m.Fabric)
		return b
	}
	other := message(nil)
	other[5]++
	for _, tt := range []struct {
		name string
		b    []byte
		want drop.Reason
	}{
		{"another EtherType", append(append([]byte(nil), other[:13]...), 0xb6, 0, 0), drop.BadEtherType},
		{"cut short", message(nil)[:20], drop.Truncated},
		{"without its shim", message(nil)[:24], drop.Truncated},
		{"to another one on the link", other, drop.Control},
		{"plain", message(func(f *overlay.Fabric) { f.Capable = false }), drop.BadOpcode},
		{"a tenant's", message(func(f *overlay.Fabric) { f.Opcode = overlay.OpData }), drop.BadOpcode},
		{"HELLO", message(func(f *overlay.Fabric) { f.Opcode = overlay.OpHello }), drop.BadOpcode},
		{"of another scheme", message(func(f *overlay.Fabric) { f.Scheme = 13 }), drop.Control},
		{"of no scheme", message(func(f *overlay.Fabric) { f.Scheme = 0 }), drop.Control},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, leafConfig(), leafTables())
			l := newTalker(t)
			r.talk(l)
			r.send(up0, tt.b)
			if d := r.drops(); len(d) != 1 || d[tt.want] != 1 || len(l.heard) != 0 {
				t.Errorf("leaf: dropped %v, want %v; handled %d", d, tt.want, len(l.heard))
			}
			rigs, policies := talkingSpine(t, 1, spineTables())
			rigs[0].send(dn0, tt.b)
			if d := rigs[0].drops(); len(d) != 1 || d[tt.want] != 1 || len(policies[0][0].heard) != 0 {
				t.Errorf("spine: dropped %v, want %v", d, tt.want)
			}
		})
	}
	// A spine without a scheme, and a host, which may send what it likes.
	s := newRig(t, spineConfig(), spineTables())
	if s.send(dn0, message(nil)); s.drops()[drop.Control] != 1 {
		t.Errorf("a spine without a scheme: %v", s.drops())
	}
	r := newRig(t, leafConfig(), leafTables())
	if out := r.send(acc0, message(nil)); len(out[acc1]) != 1 {
		t.Errorf("a host's frame: %v", r.drops())
	}
}

// A neighbour's message comes to any worker. It is for all of them, and counts once.
func TestNeighbourMessagesReachAllWorkers(t *testing.T) {
	m := said(0, 1)
	m.Fabric.Capable, m.Fabric.Scheme = true, talkerWire
	b := make([]byte, overlay.LinkMessageLen)
	overlay.EncodeLink(b, gwMAC, ownMAC, &m.Fabric)
	count := func(rigs []*rig) (received, known, relayed uint64) {
		for _, r := range rigs {
			s := r.w.snapshot().Leaf
			received, known, relayed = received+s.Received[overlay.OpExplore], known+s.Known[overlay.OpExplore], relayed+s.Relayed
		}
		return
	}
	leaves := newRigs(t, leafConfig(), leafTables(), 3)
	var policies []*talker
	for _, r := range leaves {
		policies = append(policies, newTalker(t))
		r.talk(policies[len(policies)-1])
	}
	leaves[1].send(up1, b)
	spines, perSpine := talkingSpine(t, 3, spineTables())
	for _, p := range perSpine {
		policies = append(policies, p[0])
	}
	spines[1].send(dn1, b)
	for i := range 3 {
		leaves[i].settle()
		spines[i].settle()
	}
	for i, p := range policies {
		if len(p.heard) != 1 || p.heard[0].Link != 1 {
			t.Errorf("worker %d handled %+v", i, p.heard)
		}
	}
	for _, rigs := range [][]*rig{leaves, spines} {
		if received, known, relayed := count(rigs); received != 1 || known != 1 || relayed != 2 {
			t.Errorf("%d received, %d known, %d passed on", received, known, relayed)
		}
	}
}

// Talking, with data beside it, allocates nothing.
func TestNeighbourMessagesDoNotAllocate(t *testing.T) {
	r := newRig(t, leafConfig(), leafTables())
	l := newTalker(t)
	l.say, l.heard = []overlay.Message{said(0, 1), said(1, 1)}, make([]overlay.Message, 0, 1<<16)
	r.talk(l)
	rigs, policies := talkingSpine(t, 1, spineTables())
	s, p := rigs[0], policies[0][0]
	p.say, p.heard = []overlay.Message{said(0, 1), said(1, 1)}, make([]overlay.Message, 0, 1<<16)
	m := said(0, 1)
	m.Fabric.Capable, m.Fabric.Scheme = true, talkerWire
	b := make([]byte, overlay.LinkMessageLen)
	overlay.EncodeLink(b, gwMAC, ownMAC, &m.Fabric)
	for _, x := range []*rig{r, s} {
		for i := range x.links {
			x.links[i].keep = false
		}
	}
	turn := func() {
		l.at, p.at = r.now, s.now
		r.links[up0].put(b)
		s.links[dn0].put(b)
		for r.w.round(r.now)+s.w.round(s.now) > 0 {
		}
		r.now, s.now = r.now.Add(time.Millisecond), s.now.Add(time.Millisecond)
	}
	for range 1200 {
		turn()
	}
	if n := testing.AllocsPerRun(100, turn); n != 0 {
		t.Errorf("%v allocations a turn", n)
	}
	if len(l.heard) < 1200 || len(p.heard) < 1200 {
		t.Errorf("handled %d and %d", len(l.heard), len(p.heard))
	}
}
