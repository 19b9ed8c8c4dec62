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

// pathLab is two leaves under ConWeave whose uplinks are paths of their own
// delay, in virtual time.
type pathLab struct {
	*twoLeaves
	delay [2]time.Duration // by uplink, each way
	air   []flight
	got   []uint32 // by B's host: sequence numbers, as they came
	back  int      // frames for A's hosts
	seen  map[overlay.Opcode]int
	lose  func(from *rig, f *overlay.Fabric) bool
}

// flight is a packet between the leaves.
type flight struct {
	at   mono.Time
	to   *rig
	port PortID
	b    []byte
}

const tick = 50 * time.Microsecond

func newPathLab(t *testing.T, scheme string) *pathLab {
	l := &pathLab{seen: make(map[overlay.Opcode]int)}
	l.twoLeaves = newTwoLeavesWith(t, func(c *Config) {
		useConWeave(c, labConWeave())
		c.Scheme = scheme
	})
	l.sayHello()
	l.pass(20 * time.Millisecond)
	return l
}

// step lets a tick pass: packets land, leaves work, hosts send what is given.
func (l *pathLab) step(frames ...[]byte) {
	l.t.Helper()
	l.pass(tick)
	now := l.a.now
	for _, r := range []*rig{l.a, l.b} {
		r.w.shared.leaf.Capable.Confirm(0, now) // HELLOs are not what is tested here
	}
	for len(l.air) > 0 && l.air[0].at <= now {
		p := l.air[0]
		l.air = l.air[1:]
		overlay.Ethernet(p.b).SetDst(ownMAC) // as a spine does
		if !p.to.links[p.port].put(p.b) {
			l.t.Fatal("no frame to receive into")
		}
	}
	for _, b := range frames {
		l.a.links[acc0].put(b)
	}
	for _, r := range []*rig{l.a, l.b} {
		r.now = now
		l.launch(r, r.settle())
	}
}

// launch sends what left a leaf on its way, and takes what came out at B's host.
func (l *pathLab) launch(r *rig, out [][][]byte) {
	l.t.Helper()
	for u, port := range []PortID{up0, up1} {
		for _, b := range out[port] {
			d, _ := unwrap(l.t, b)
			l.seen[d.Fabric.Opcode]++
			if l.lose != nil && l.lose(r, &d.Fabric) {
				continue
			}
			l.air = append(l.air, flight{r.now.Add(l.delay[u]), l.other(r), port, b})
		}
	}
	slices.SortStableFunc(l.air, func(a, b flight) int { return int(a.at - b.at) })
	if r == l.b {
		for _, b := range out[acc0] {
			l.got = append(l.got, binary.BigEndian.Uint32(b[42:]))
		}
	} else {
		l.back += len(out[acc0]) + len(out[acc1]) + len(out[acc2])
	}
}

// numbered is a packet of A's host to B's, of a flow, with a sequence number.
func numbered(flow uint16, seq uint32) []byte {
	b := udp4(hostB, hostA, 0, flow, 100)
	binary.BigEndian.PutUint32(b[42:], seq)
	return b
}

// source is A's counters of ConWeave, dest is B's.
func (l *pathLab) source() balance.ConWeaveStats { return source(l.a.w.leaf.classes[0]) }
func (l *pathLab) dest() reorder.Stats           { return l.b.destination().Counters() }

// connection is that of A's flow of which a packet was sent last.
func (l *pathLab) connection() balance.Connection {
	l.t.Helper()
	p := l.a.w.leaf.classes[0].Policy.(balance.ConWeavePolicy)
	all := sentLast(slices.Collect(p.Connections(l.a.now, 0, p.ConnectionSets())), 1)
	if len(all) == 0 {
		l.t.Fatal("no flow has a connection")
	}
	return all[0]
}

// inOrder checks that B's host has got all of a flow's packets in order.
func (l *pathLab) inOrder(n int) {
	l.t.Helper()
	if len(l.got) != n || !slices.IsSorted(l.got) {
		l.t.Errorf("the host got %d packets, want %d in order: %v", len(l.got), n, l.got)
	}
}

// receiverStats returns a worker's counters of ConWeave's destination side.
func receiverStats(t *testing.T, s *WorkerStats) *reorder.Stats {
	t.Helper()
	for _, r := range s.Receivers {
		if c, ok := r.Stats.(*reorder.Stats); ok {
			return c
		}
	}
	t.Fatal("the leaf has no destination side of ConWeave")
	return nil
}

// drainAir lets everything that is under way arrive.
func (l *pathLab) drainAir() {
	for range int(50 * time.Millisecond / tick) {
		l.step()
	}
}

// ConWeave §3.2, §3.3: the path slows down, the reply is late, the flow moves to
// the other path, what overtakes is held, and the host sees nothing of it.
func TestRerouteIsPutInOrder(t *testing.T) {
	for _, scheme := range []string{"conweave", "conweave-informed"} {
		t.Run(scheme, func(t *testing.T) {
			l := newPathLab(t, scheme)
			l.delay = [2]time.Duration{100 * time.Microsecond, 100 * time.Microsecond}
			const n = 400
			for seq := range uint32(n) {
				if seq == 50 { // whichever path it takes: it becomes slow
					l.delay[l.connection().Path.Uplink()] = 3 * time.Millisecond
				}
				l.step(numbered(7, seq))
			}
			l.drainAir()
			l.inOrder(n)
			src, dst := l.source(), l.dest()
			if src.Reroutes == 0 || src.Clears == 0 || src.Replies == 0 {
				t.Errorf("source: %+v", src)
			}
			if dst.Held == 0 || dst.TailFlushes == 0 || dst.Expiries+dst.Premature+dst.NoQueue != 0 {
				t.Errorf("destination: %d held, %d flushed by TAIL, %d by time, %d premature", dst.Held, dst.TailFlushes, dst.Expiries, dst.Premature)
			}
			if l.seen[overlay.OpRTTRequest] == 0 || l.seen[overlay.OpRTTReply] == 0 || l.seen[overlay.OpClear] == 0 {
				t.Errorf("packets by opcode: %v", l.seen)
			}
			for _, r := range []*rig{l.a, l.b} {
				if d := r.drops(); len(d) != 0 {
					t.Errorf("drops: %v", d)
				}
			}
		})
	}
}

// slowDown makes the path that the flow is on slow.
func (l *pathLab) slowDown(d time.Duration) {
	l.t.Helper()
	l.delay[l.connection().Path.Uplink()] = d
}

// run sends n packets of a flow, one a tick, and slows its path down after 50.
func (l *pathLab) run(n int, slow time.Duration) {
	l.t.Helper()
	for seq := range n {
		if seq == 50 {
			l.slowDown(slow)
		}
		l.step(numbered(7, uint32(seq)))
	}
}

func fastLab(t *testing.T) *pathLab {
	l := newPathLab(t, "conweave")
	l.delay = [2]time.Duration{100 * time.Microsecond, 100 * time.Microsecond}
	return l
}

// noneLost checks that the host got each of n packets once.
func (l *pathLab) noneLost(n int) {
	l.t.Helper()
	got := slices.Clone(l.got)
	slices.Sort(got)
	if len(slices.Compact(got)) != n || len(l.got) != n {
		l.t.Errorf("the host got %d packets, %d of them different, of %d", len(l.got), len(slices.Compact(got)), n)
	}
}

// ConWeave's control packets end at leaves: the host of the flow's source sees
// none of them, and every one is accounted for.
func TestControlPacketsEndAtLeaves(t *testing.T) {
	l := fastLab(t)
	l.run(400, 3*time.Millisecond)
	l.drainAir()
	received, _ := l.a.messages()
	if n := uint64(l.seen[overlay.OpRTTReply] + l.seen[overlay.OpClear] + l.seen[overlay.OpNotify]); received != n || n == 0 {
		t.Errorf("%d control packets received of %d that were sent", received, n)
	}
	if l.back != 0 {
		t.Errorf("%d frames came out of the source's access ports", l.back)
	}
	replies := uint64(l.seen[overlay.OpRTTReply])
	if got, want := l.b.w.snapshot().Leaf.Sent[overlay.OpRTTReply], (leaf.Amount{Frames: replies, Bytes: replies * (overlay.MaxOverhead + 14 + 20 + 20)}); got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
}

// Each loss is survived: REPLY lost is congestion, CLEAR lost is θ_inactive, TAIL
// lost is T_resume, NOTIFY lost is nothing (§3.2, §3.3).
func TestLossesAreSurvived(t *testing.T) {
	lose := func(match func(l *pathLab, from *rig, f *overlay.Fabric) bool) func(*pathLab) {
		return func(l *pathLab) {
			l.lose = func(from *rig, f *overlay.Fabric) bool { return match(l, from, f) }
		}
	}
	for _, tt := range []struct {
		name  string
		lose  func(*pathLab)
		check func(t *testing.T, s balance.ConWeaveStats, d reorder.Stats)
	}{
		{"replies", lose(func(_ *pathLab, _ *rig, f *overlay.Fabric) bool { return f.Opcode == overlay.OpRTTReply }),
			func(t *testing.T, s balance.ConWeaveStats, _ reorder.Stats) {
				if s.CutOffs == 0 || s.Reroutes == 0 {
					t.Errorf("no reroute without replies: %d cut off", s.CutOffs)
				}
			}},
		{"clears", lose(func(_ *pathLab, _ *rig, f *overlay.Fabric) bool { return f.Opcode == overlay.OpClear }),
			func(t *testing.T, s balance.ConWeaveStats, _ reorder.Stats) {
				if s.Reroutes != 1 || s.Clears != 0 || s.Unclear != 0 {
					t.Errorf("%d reroutes without a CLEAR", s.Reroutes)
				}
			}},
		{"tails", lose(func(_ *pathLab, _ *rig, f *overlay.Fabric) bool { return f.Tail && f.Opcode == overlay.OpData }),
			func(t *testing.T, s balance.ConWeaveStats, d reorder.Stats) {
				if d.Expiries == 0 || d.TailFlushes != 0 || s.Clears == 0 {
					t.Errorf("%d queues expired, %d drained by TAIL, %d CLEARs", d.Expiries, d.TailFlushes, s.Clears)
				}
			}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := fastLab(t)
			tt.lose(l)
			l.run(400, 3*time.Millisecond)
			l.drainAir()
			tt.check(t, l.source(), l.dest())
			if tt.name != "tails" {
				l.noneLost(400)
			}
			if l.b.w.held() != 0 || l.dest().Waiting != 0 {
				t.Errorf("%d frames held for ever", l.b.w.held())
			}
			if !slices.IsSorted(l.got) && l.dest().Premature == 0 {
				t.Error("out of order, and no flush too early was counted")
			}
		})
	}
}

// holding is a lab in which B holds frames of a flow, and the TAIL is still under
// way.
func holding(t *testing.T) *pathLab {
	l := fastLab(t)
	for seq := range uint32(2000) {
		if seq == 50 {
			l.slowDown(3 * time.Millisecond)
		}
		l.step(numbered(7, seq))
		if l.b.held() >= 5 {
			return l
		}
	}
	t.Fatal("nothing was ever held")
	return nil
}

// Frames held are part of the account, and of what keeps a worker from sleeping
// too long.
func TestHeldFramesAreAccountedFor(t *testing.T) {
	l := holding(t)
	s := l.b.w.snapshot()
	r := receiverStats(t, &s)
	if s.Held != uint64(l.b.held()) || r.Waiting != l.b.held() || s.Waiting[acc0].Packets != l.b.held() {
		t.Errorf("%d held; the account has %d, the counters %d, the port %d", l.b.held(), s.Held, r.Waiting, s.Waiting[acc0].Packets)
	}
	at, backlog := l.b.w.nextDeadline(l.b.now)
	if at != l.b.destination().Deadline() || backlog {
		t.Errorf("the next deadline is %v, T_resume %v", at, l.b.destination().Deadline())
	}
	l.b.now = at
	l.launch(l.b, l.b.settle())
	if n := l.b.w.held(); n != 0 || l.dest().Expiries != 1 {
		t.Errorf("%d held after T_resume, %d queues expired", n, l.dest().Expiries)
	}
}

func TestPortGoesDownWhileFramesAreHeldForIt(t *testing.T) {
	l := holding(t)
	held := uint64(l.b.held())
	down := leafTables()
	down.Peers, down.Ports[acc0].Up = []Peer{{VTEP: own(), Hops: []HopID{0, 1}}}, false
	down.VNIs[0].Flood, down.VNIs[1].Flood = []PeerID{0}, nil
	l.b.publish(down)
	l.lose = func(*rig, *overlay.Fabric) bool { return true }
	l.drainAir()
	if n := l.b.drops()[drop.PortDown]; n < held || l.b.w.held() != 0 {
		t.Errorf("%d of %d frames dropped for the port, %d held", n, held, l.b.w.held())
	}
}

func TestStoppingLetsHeldFramesGo(t *testing.T) {
	l := holding(t)
	held, sent := l.b.held(), l.b.links[acc0].sent
	l.b.w.cfg.Drain = time.Second
	l.b.w.drain()
	if got := l.b.links[acc0].sent - sent; got != held || l.b.w.held() != 0 || l.dest().Flushed == 0 {
		t.Errorf("%d of %d held frames were sent, %d are left, %d queues flushed", got, held, l.b.w.held(), l.dest().Flushed)
	}
	l.b.balance()
}

// A peer's number goes to another leaf: what waits of the old one's goes on, and
// the new one is not told of it.
func TestNewPeerIsNotAnsweredForAnOldOne(t *testing.T) {
	l := holding(t)
	held, sent, made := l.b.held(), l.b.links[acc0].sent, l.b.w.made
	moved := leafTables()
	moved.Peers = []Peer{{VTEP: vtep3, Hops: []HopID{0, 1}}}
	moved.VNIs[0].Flood, moved.VNIs[1].Flood = []PeerID{0}, nil
	l.b.publish(moved)
	l.b.settle()
	if got := l.b.links[acc0].sent - sent; got != held || l.b.held() != 0 {
		t.Errorf("%d of %d frames went on", got, held)
	}
	if l.b.w.made != made {
		t.Errorf("%d packets were made for the new peer", l.b.w.made-made)
	}
}

// A reload in the middle of a reroute starts connections anew, loses nothing and
// leaves nothing behind.
func TestReloadInTheMiddleOfAReroute(t *testing.T) {
	for _, scheme := range []string{"conweave", "conweave-informed", "ecmp"} {
		t.Run(scheme, func(t *testing.T) {
			l := holding(t)
			l.a.reload(scheme)
			n := int(slices.Max(l.got)) + 100 // behind everything sent so far
			first := n
			for ; n < first+200; n++ {
				l.step(numbered(7, uint32(n)))
			}
			l.drainAir()
			if l.b.w.held() != 0 {
				t.Errorf("%d frames held for ever", l.b.w.held())
			}
			late := l.got[len(l.got)-150:]
			if !slices.IsSorted(late) {
				t.Errorf("out of order long after the reload: %v", late)
			}
			for _, r := range []*rig{l.a, l.b} {
				if d := r.drops(); len(d) != 0 && (scheme != "ecmp" || len(d) != 1 || d[drop.Control] == 0) {
					t.Errorf("drops: %v", d)
				}
			}
		})
	}
}

// Frames to an address that the destination does not know go to all its members,
// and are put in order all the same; their source gets its replies.
func TestFloodedFlowsArePutInOrder(t *testing.T) {
	l := fastLab(t)
	ghost := overlay.MAC{2, 9, 9, 9, 9, 9}
	learned := udp4(bcast, ghost, 0, 1, 10) // A knows where it is, B never learns
	l.a.send(up0, wrap(l.b.w.cfg.VTEP, l.a.w.cfg.VTEP, 100, learned, nil))
	for seq := range uint32(400) {
		if seq == 50 {
			l.slowDown(3 * time.Millisecond)
		}
		b := numbered(7, seq)
		copy(b, ghost[:])
		l.step(b)
	}
	l.drainAir()
	l.inOrder(400)
	if s, d := l.source(), l.dest(); s.Replies == 0 || s.Reroutes == 0 || d.Held == 0 {
		t.Errorf("%d replies, %d reroutes, %d held", s.Replies, s.Reroutes, d.Held)
	}
	if u := l.b.destination().Port(len(l.b.w.ports)); u.PacketsPeak == 0 {
		t.Error("nothing was held for all members")
	}
}

// ConWeave §3.2.2: a CE mark of the outer header comes back as a NOTIFY.
func TestMarksComeBackAsNotify(t *testing.T) {
	l := fastLab(t)
	ect := func(seq uint32) []byte {
		b := numbered(7, seq)
		b[15] = 2
		fixChecksum(b[14:])
		return b
	}
	l.step(ect(0))
	l.step()
	for i := range l.air {
		ip := overlay.IPv4(l.air[i].b[overlay.EthernetLen:])
		ip[1] |= 3
		fixChecksum(ip)
	}
	path := l.connection().Path
	for range 10 {
		l.step()
	}
	if l.seen[overlay.OpNotify] != 1 || l.source().Notifies != 1 {
		t.Fatalf("%d NOTIFYs sent, %d received", l.seen[overlay.OpNotify], l.source().Notifies)
	}
	s := node(l.a).ConWeave(-1)
	if len(s.Sources) != 1 || len(s.Sources[0].Busy) != 1 || s.Sources[0].Busy[0].Path[:1] != path.String()[:1] {
		t.Errorf("busy: %+v, want %v", s.Sources, path)
	}
	if n := len(l.got); n != 1 {
		t.Errorf("the host got %d packets", n)
	}
}

// RFC 6040 §4.1: a host's own CE is in the outer header, too. It says nothing of paths:
// a host could keep all tenants off them.
func TestMarksOfHostsAreNoNotify(t *testing.T) {
	l := fastLab(t)
	for seq := range uint32(20) {
		b := numbered(7, seq)
		b[15] = 3
		fixChecksum(b[14:])
		l.step(b)
	}
	l.drainAir()
	if l.seen[overlay.OpNotify] != 0 {
		t.Errorf("%d NOTIFYs sent", l.seen[overlay.OpNotify])
	}
	if n := len(l.got); n != 20 {
		t.Errorf("the host got %d packets of 20", n)
	}
}

// A peer from which nothing came lately is not answered, nor is one to
// which no path leads: its source takes the silence for congestion.
func TestAnswersThatCannotBeSentAreCounted(t *testing.T) {
	request := &overlay.Fabric{Capable: true, Scheme: reorder.SchemeID, Shim: true, Opcode: overlay.OpRTTRequest, Epoch: 1}
	for _, tt := range []struct {
		name   string
		change func(*Tables)
		prep   func(*rig)
		want   leaf.Unsent
	}{
		{"answered", func(*Tables) {}, func(*rig) {}, leaf.Unsent{}},
		{"no route", func(t *Tables) { t.Peers[0].Hops = nil }, func(*rig) {}, leaf.Unsent{NoPath: 1}},
		{"no MAC", func(t *Tables) { t.Hops[0].Resolved, t.Hops[1].Resolved = false, false }, func(*rig) {}, leaf.Unsent{NoPath: 1}},
		{"no frame", func(*Tables) {}, func(r *rig) {
			for _, ok := r.w.pool.Get(); ok; _, ok = r.w.pool.Get() {
			}
		}, leaf.Unsent{NoFrame: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tables := leafTables()
			tt.change(tables)
			cfg := leafConfig()
			cfg.ReversePath = AnyPath
			r := newRig(t, cfg, tables)
			r.send(acc0, udp4(bcast, hostA, 0, 1, 10))
			r.prove(0)
			if !r.links[up0].put(wrap(vtep2, own(), 100, udp4(hostA, hostB, 0, 1, 10), request)) {
				t.Fatal("no frame to receive into")
			}
			made := r.w.made
			tt.prep(r)
			r.w.round(r.now)
			if got := r.w.leaf.brain.Stats().Unsent; got != tt.want {
				t.Errorf("%+v, want %+v", got, tt.want)
			}
			if answered := r.w.made - made; answered != 1 && tt.want == (leaf.Unsent{}) || answered != 0 && tt.want != (leaf.Unsent{}) {
				t.Errorf("%d answers", answered)
			}
		})
	}
}

// T_resume has passed while the worker did not run, and the TAIL is in its ring,
// behind more than a burst of other frames: they are read first. Under load that
// does not end, held frames are let go all the same.
func TestBacklogIsReadBeforeFramesExpire(t *testing.T) {
	for _, tt := range []struct {
		name string
		late time.Duration // after T_resume
		want uint64
	}{{"in time", 500 * time.Microsecond, 0}, {"for too long", 2 * time.Millisecond, 1}} {
		t.Run(tt.name, func(t *testing.T) {
			l := holding(t)
			at := slices.IndexFunc(l.air, func(p flight) bool {
				d, _ := unwrap(t, p.b)
				return p.to == l.b && d.Fabric.Tail
			})
			if at < 0 {
				t.Fatal("no TAIL is under way")
			}
			tail := l.air[at]
			other := wrap(l.a.w.cfg.VTEP, l.b.w.cfg.VTEP, 100, udp4(hostB, hostA, 0, 9, 10), nil)
			for range burstSize + 5 {
				l.b.links[tail.port].put(other)
			}
			overlay.Ethernet(tail.b).SetDst(ownMAC)
			l.b.links[tail.port].put(tail.b)
			now := l.b.destination().Deadline().Add(tt.late)
			l.b.now = now
			l.b.w.round(now)
			if d := l.dest(); d.Expiries != tt.want {
				t.Errorf("%d queues expired after a burst, want %d", d.Expiries, tt.want)
			}
			l.b.w.round(now)
			if d := l.dest(); d.Expiries != tt.want || d.TailFlushes == 0 && tt.want == 0 || l.b.held() != 0 {
				t.Errorf("%d queues expired, %d drained by TAIL, %d frames held", d.Expiries, d.TailFlushes, l.b.held())
			}
		})
	}
}
