package dataplane

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/mono"
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
		c.Scheme = scheme
		c.Options.ConWeave = balance.LabConWeave()
		c.Reorder = reorder.Lab()
	})
	l.greet()
	l.pass(20 * time.Millisecond)
	return l
}

// step lets a tick pass: packets land, leaves work, hosts send what is given.
func (l *pathLab) step(frames ...[]byte) {
	l.t.Helper()
	l.pass(tick)
	now := l.a.now
	for _, r := range []*rig{l.a, l.b} {
		r.w.shared.capable.Heard(0, now) // greetings are not what is tested here
	}
	for len(l.air) > 0 && l.air[0].at <= now {
		p := l.air[0]
		l.air = l.air[1:]
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
	}
}

// numbered is a packet of A's host to B's, of a flow, with a sequence number.
func numbered(flow uint16, seq uint32) []byte {
	b := udp4(hostB, hostA, 0, flow, 100)
	binary.BigEndian.PutUint32(b[42:], seq)
	return b
}

// source is A's counters of ConWeave, dest is B's.
func (l *pathLab) source() balance.ConWeaveStats { return l.a.w.classes[0].policy.Stats().ConWeave }
func (l *pathLab) dest() reorder.Stats           { return l.b.w.order.side.Stats() }

// connection is that of A's flow of which a packet was sent last.
func (l *pathLab) connection() (last balance.Connection) {
	l.t.Helper()
	p := l.a.w.classes[0].policy.(balance.ConWeavePolicy)
	for e := range p.Connections(l.a.now) {
		if e.Last >= last.Last {
			last = e
		}
	}
	if last.Last == 0 {
		l.t.Fatal("no flow has a connection")
	}
	return last
}

// inOrder checks that B's host has got all of a flow's packets in order.
func (l *pathLab) inOrder(n int) {
	l.t.Helper()
	if len(l.got) != n || !slices.IsSorted(l.got) {
		l.t.Errorf("the host got %d packets, want %d in order: %v", len(l.got), n, l.got)
	}
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
	for _, scheme := range []string{"conweave", "conweave-conga"} {
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
