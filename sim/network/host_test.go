package network

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/loomfabric/loom/sim/engine"
)

// testSource sends packets of one flow, a number of them or as long as it is
// asked, not closer than gap.
type testSource struct {
	Turn
	host  *Host
	flow  FlowID
	dst   HostID
	size  uint32
	left  int // -1: no end
	gap   engine.Time
	next  engine.Time
	made  uint64
	pulls int
	ect   bool
}

func (s *testSource) Pull(now engine.Time) (*Packet, engine.Time) {
	s.pulls++
	if s.left == 0 {
		return nil, engine.Never
	}
	if now < s.next {
		return nil, s.next
	}
	s.next = now + s.gap
	if s.left > 0 {
		s.left--
	}
	p := s.host.net.Pool.Get()
	p.Flow, p.Src, p.Dst, p.Size, p.Len = s.flow, s.host.ID, s.dst, s.size, s.size
	p.ECT, p.Number = s.ect, s.made
	s.made++
	if s.left == 0 {
		return p, engine.Never
	}
	return p, s.next
}

// sink counts what it is given, and keeps a record if it is asked to.
type sink struct {
	net     *Network
	record  bool
	packets uint64
	bytes   uint64
	marked  uint64
	times   []engine.Time
	flows   []FlowID
}

func (s *sink) Receive(now engine.Time, p *Packet) {
	s.packets++
	s.bytes += uint64(p.Size)
	if p.CE {
		s.marked++
	}
	if s.record {
		s.times = append(s.times, now)
		s.flows = append(s.flows, p.Flow)
	}
	s.net.Pool.Put(p)
}

// pair is two hosts and a wire.
func pair(c PortConfig) (n *Network, a, b *Host, at *sink) {
	n = New(engine.New())
	a, b = n.NewHost(), n.NewHost()
	Connect(n.NewPort("a", 0, a, c, nil), n.NewPort("b", 0, b, c, nil))
	return n, a, b, &sink{net: n, record: true}
}

func checkLedger(t *testing.T, n *Network) {
	t.Helper()
	l := n.Ledger()
	if err := l.Check(); err != nil {
		t.Fatal(err)
	}
	if out := uint64(n.Pool.Out()); out != l.Queued+l.Flying+l.Held {
		t.Fatalf("%d packets are out of the pool, but %d queued, %d on wires and %d held", out, l.Queued, l.Flying, l.Held)
	}
}

func TestHostTurns(t *testing.T) {
	for _, c := range []struct {
		quantum uint64
		want    string
	}{
		{0, "012012012011111"},
		{1000, "012012012011111"},
		{1001, "001122001121111"},
		{3000, "000111222011111"},
	} {
		t.Run(fmt.Sprint(c.quantum), func(t *testing.T) {
			n, a, b, at := pair(PortConfig{Rate: 10e9, Delay: engine.Microsecond})
			a.Quantum = c.quantum
			a.Port.pulling = true // let all be ready before the first is asked
			var first *testSource
			for f, left := range []int{4, 8, 3} {
				n.Bind(FlowID(f), nil, at)
				s := &testSource{host: a, flow: FlowID(f), dst: b.ID, size: 1000, left: left}
				a.Ready(0, s)
				if first == nil {
					first = s
				}
				a.Ready(0, first) // which keeps its turn
			}
			a.Port.pulling = false
			a.Port.Kick(0)
			n.Engine.Run(engine.Never)
			var got strings.Builder
			for _, f := range at.flows {
				fmt.Fprint(&got, f)
			}
			if got.String() != c.want {
				t.Errorf("flows had their turns as %s, want %s", got.String(), c.want)
			}
			checkLedger(t, n)
		})
	}
}

func TestHostPacing(t *testing.T) {
	n, a, b, at := pair(PortConfig{Rate: 100e9, Delay: engine.Microsecond})
	gaps := []engine.Time{engine.Microsecond, 3 * engine.Microsecond, 700 * engine.Nanosecond}
	var sources []*testSource
	for f, gap := range gaps {
		n.Bind(FlowID(f), nil, at)
		s := &testSource{host: a, flow: FlowID(f), dst: b.ID, size: 1000, left: 20, gap: gap}
		sources = append(sources, s)
		a.Ready(0, s)
	}
	// One that waits may become ready early; it is asked, and waits again.
	n.Engine.Run(10*engine.Microsecond + 1)
	before := sources[1].pulls
	a.Ready(n.Engine.Now(), sources[1])
	if sources[1].pulls != before+1 {
		t.Errorf("a waiting source that became ready was asked %d times, want once", sources[1].pulls-before)
	}
	n.Engine.Run(engine.Never)
	last := map[FlowID]engine.Time{}
	count := map[FlowID]int{}
	for i, f := range at.flows {
		// The wire may be busy for others for two packets.
		if d := at.times[i] - last[f]; count[f] > 0 && (d < gaps[f]-160*engine.Nanosecond || d > gaps[f]+160*engine.Nanosecond) {
			t.Errorf("flow %d: packet %d came %v after the one before, want %v", f, count[f], d, gaps[f])
		}
		last[f] = at.times[i]
		count[f]++
	}
	for f := range gaps {
		if count[FlowID(f)] != 20 {
			t.Errorf("flow %d: %d packets, want 20", f, count[FlowID(f)])
		}
	}
	checkLedger(t, n)
}

func TestHostLeave(t *testing.T) {
	n, a, b, at := pair(PortConfig{Rate: 10e9, Delay: engine.Microsecond})
	n.Bind(0, nil, at)
	n.Bind(1, nil, at)
	paced := &testSource{host: a, flow: 0, dst: b.ID, size: 1000, left: -1, gap: 5 * engine.Microsecond}
	busy := &testSource{host: a, flow: 1, dst: b.ID, size: 1000, left: -1}
	a.Ready(0, paced)
	a.Ready(0, busy)
	n.Engine.Run(2 * engine.Microsecond)
	a.Leave(paced)
	a.Leave(busy)
	n.Engine.Run(engine.Never)
	if slices.Contains(at.flows[1:], 0) || paced.made != 1 || busy.made != 2 {
		t.Errorf("sources that left were asked: %d and %d packets", paced.made, busy.made)
	}
	checkLedger(t, n)
}

func TestUnbind(t *testing.T) {
	n, a, b, at := pair(PortConfig{Rate: 10e9, Delay: 10 * engine.Microsecond})
	n.Bind(3, nil, at)
	a.Ready(0, &testSource{host: a, flow: 3, dst: b.ID, size: 1250, left: 10})
	n.Engine.Run(14500 * engine.Nanosecond)
	n.Unbind(3)
	n.Unbind(99)
	n.Engine.Run(engine.Never)
	l := n.Ledger()
	if l.Delivered != 4 || l.Dropped[NoFlow] != 6 {
		t.Errorf("%d delivered, %d late; want 4 and 6", l.Delivered, l.Dropped[NoFlow])
	}
	checkLedger(t, n)
}
