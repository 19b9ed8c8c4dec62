package reorder_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// The model: one source leaf, one destination leaf, paths between them that are
// FIFOs of random delay, and a way back for messages that keeps no order.
// Everything may be lost and copied. It is small on purpose: what it says must
// be plain.

const us = mono.Time(time.Microsecond)

// modelConfig is a fabric's temper.
type modelConfig struct {
	paths, flows, packets int
	selectors             int
	delay, spread         mono.Time // one way: least, and how much longer at most
	back                  mono.Time // way back, at most
	lose, copy, loseBack  float64
	mark                  float64 // CE
	extra, deflt          mono.Time
	scheme                string
	source                balance.ConWeaveSource
	dest                  func(*reorder.Params)
	restart               bool    // either leaf, at random
	linkDown              float64 // chance that an event is a change of the set of paths
	start                 mono.Time
}

type packet struct {
	flow, seq int
	path      overlay.PathID
	copy      bool
	fabric    overlay.Fabric
}

type event struct {
	at   mono.Time
	n    int // to order events of the same time
	kind int
	pkt  packet
	msg  overlay.Message
}

const (
	evSend = iota // next packet of a flow
	evData        // arrives
	evBack        // control packet arrives at the source
)

// model is a run.
type model struct {
	t    *testing.T
	cfg  *modelConfig
	rng  *rand.Rand
	now  mono.Time
	heap []event
	n    int

	src  balance.Messenger
	dst  *driver[packet]
	view balance.View

	lastArrival map[[2]int]mono.Time // by flow and path: of the FIFO
	inFlight    []map[overlay.PathID]int
	maxFlight   int
	sent        []int
	got         []int // highest number delivered so far
	seen        []map[int]bool
	delivered   int
	lost        int
	disorder    int // packets delivered behind a later one
	ended       reorder.Stats
	restarts    int
}

func newModel(t *testing.T, cfg *modelConfig, seed uint64) *model {
	m := &model{t: t, cfg: cfg, rng: rand.New(rand.NewPCG(seed, 5)), now: cfg.start, lastArrival: map[[2]int]mono.Time{}}
	m.newSource(seed)
	m.newDest()
	up := make([]uint8, cfg.paths)
	for i := range up {
		up[i] = uint8(i)
	}
	m.view = balance.View{
		Paths: []balance.Paths{balance.MakePaths(), balance.MakePaths(up...)},
		Local: new([balance.MaxPaths]uint8), Queue: new([balance.MaxPaths]uint32),
	}
	for f := range cfg.flows {
		m.inFlight = append(m.inFlight, map[overlay.PathID]int{})
		m.seen = append(m.seen, map[int]bool{})
		m.push(event{at: m.now + mono.Time(m.rng.Int64N(int64(50*us))), kind: evSend, pkt: packet{flow: f}})
	}
	m.sent, m.got = make([]int, cfg.flows), make([]int, cfg.flows)
	return m
}

func (m *model) newSource(seed uint64) {
	p, err := balance.New(m.cfg.scheme, balance.Options{
		Seed: seed, Section: &balance.ConWeaveParams{Source: m.cfg.source, Destination: reorder.Datacenter()},
	})
	if err != nil {
		m.t.Fatal(err)
	}
	m.src = p.(balance.Messenger)
}

func (m *model) newDest() {
	m.dst = mustNew[packet](m.t, func(p *reorder.Params) {
		p.Inactive = m.cfg.source.Inactive
		p.ResumeExtra, p.ResumeDefault = time.Duration(m.cfg.extra), time.Duration(m.cfg.deflt)
		p.Flows, p.Leaves, p.Ports, p.Packets, p.Queues = 64, 2, 2, 512, 16
		p.MaxHold = 4 * time.Millisecond
		if m.cfg.dest != nil {
			m.cfg.dest(p)
		}
	})
}

func (m *model) push(e event) {
	m.n++
	e.n = m.n
	m.heap = append(m.heap, e)
	for i := len(m.heap) - 1; i > 0 && m.before(i, (i-1)/2); i = (i - 1) / 2 {
		m.heap[i], m.heap[(i-1)/2] = m.heap[(i-1)/2], m.heap[i]
	}
}

func (m *model) before(i, j int) bool {
	a, b := &m.heap[i], &m.heap[j]
	return a.at < b.at || a.at == b.at && a.n < b.n
}

func (m *model) pop() event {
	e, last := m.heap[0], len(m.heap)-1
	m.heap[0] = m.heap[last]
	m.heap = m.heap[:last]
	for i := 0; ; {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < last; c++ {
			if m.before(c, least) {
				least = c
			}
		}
		if least == i {
			return e
		}
		m.heap[i], m.heap[least] = m.heap[least], m.heap[i]
		i = least
	}
}

// run plays all events and timers in order of time, and then lets the last
// timers expire.
func (m *model) run() {
	for len(m.heap) > 0 || m.dst.Deadline() != reorder.Never {
		if d := m.dst.Deadline(); len(m.heap) == 0 || d <= m.heap[0].at {
			m.now = max(m.now, d)
			m.expire()
			if m.dst.Deadline() <= m.now {
				m.t.Fatal("a queue is held beyond its deadline")
			}
			continue
		}
		e := m.pop()
		m.now = e.at
		switch e.kind {
		case evSend:
			m.send(e.pkt.flow)
		case evData:
			m.arrive(e.pkt)
		case evBack:
			m.src.Handle(m.now, &m.view, &e.msg)
		}
		m.upset()
	}
}

// upset restarts leaves and changes paths.
func (m *model) upset() {
	if m.cfg.restart && m.rng.IntN(300) == 0 {
		m.restarts++
		if m.rng.IntN(2) == 0 {
			m.newSource(m.rng.Uint64())
		} else {
			m.count()
			m.lost += m.dst.Counters().Waiting
			m.newDest()
		}
	}
	if m.rng.Float64() < m.cfg.linkDown {
		var up []uint8
		for u := range uint8(m.cfg.paths) {
			if m.rng.IntN(3) > 0 {
				up = append(up, u)
			}
		}
		m.view.Paths[1] = balance.MakePaths(up...)
	}
}

func hashOf(flow int) uint32 { return uint32(flow+1) * 0x9E3779B1 }

// gap is the time to a flow's next packet: mostly none or little, now and then a
// pause that a θ_inactive ends.
func (m *model) gap() mono.Time {
	switch m.rng.IntN(40) {
	case 0:
		return mono.Time(m.rng.Int64N(int64(3 * m.cfg.source.Inactive)))
	case 1, 2, 3, 4, 5:
		return 0
	case 6, 7:
		return mono.Time(m.rng.Int64N(int64(2 * m.cfg.source.Reply)))
	}
	return mono.Time(m.rng.Int64N(int64(us)))
}

func (m *model) send(flow int) {
	if m.sent[flow]++; m.sent[flow] < m.cfg.packets {
		m.push(event{at: m.now + m.gap(), kind: evSend, pkt: packet{flow: flow}})
	}
	pkts := []balance.Packet{{Hash: hashOf(flow), Leaf: 1, Len: 1000}}
	m.src.Choose(m.now, &m.view, pkts)
	paths := &m.view.Paths[1]
	if paths.N == 0 {
		m.lost++
		return
	}
	if pkts[0].Path >= paths.N {
		m.t.Fatalf("path %d of %d", pkts[0].Path, paths.N)
	}
	p := packet{flow: flow, seq: m.sent[flow]}
	p.fabric.Capable = true
	pkts[0].Stamp(m.now, reorder.SchemeID, paths.Uplink[pkts[0].Path], &p.fabric)
	p.path = p.fabric.Path
	if m.rng.Float64() < m.cfg.lose {
		m.lost++
		return
	}
	m.inFlight[flow][p.path]++
	m.maxFlight = max(m.maxFlight, len(m.inFlight[flow]))
	m.travel(p)
	if m.rng.Float64() < m.cfg.copy {
		p.copy = true
		m.travel(p)
	}
}

// travel puts a packet into its path, which keeps order. A copy comes later than
// the packet, and may come behind others.
func (m *model) travel(p packet) {
	at := m.now + m.cfg.delay + mono.Time(m.rng.Int64N(int64(m.cfg.spread)+1))
	fifo := [2]int{p.flow, int(p.path)}
	if last, ok := m.lastArrival[fifo]; ok {
		at = max(at, last)
	}
	if p.copy {
		at += mono.Time(m.rng.Int64N(int64(m.cfg.spread) + 1))
	} else {
		m.lastArrival[fifo] = at
	}
	m.push(event{at: at, kind: evData, pkt: p})
}

func (m *model) arrive(p packet) {
	if !p.copy {
		if m.inFlight[p.flow][p.path]--; m.inFlight[p.flow][p.path] == 0 {
			delete(m.inFlight[p.flow], p.path)
		}
	}
	_, sent := m.dst.Arrive(m.now, 1, hashOf(p.flow), &p.fabric, m.rng.Float64() < m.cfg.mark, p, 1000, p.flow%2)
	m.answer()
	m.deliver(sent)
}

func (m *model) expire() {
	for sent, ok := m.dst.Expire(m.now); ok; sent, ok = m.dst.Expire(m.now) {
		out := m.dst.Outbox()
		if len(out) != 1 || out[0].Fabric.Opcode != overlay.OpClear || out[0].Hash != hashOf(sent[0].flow) {
			m.t.Fatalf("an expiry says %+v, want one CLEAR about flow %d", out, sent[0].flow)
		}
		m.answer()
		m.deliver(sent)
	}
}

// answer sends messages back: some get lost, some are copied, and no order is kept.
func (m *model) answer() {
	for _, msg := range m.dst.Outbox() {
		e := event{kind: evBack, msg: msg}
		for range 1 + m.rng.IntN(2) {
			if m.rng.Float64() >= m.cfg.loseBack {
				e.at = m.now + m.cfg.delay + mono.Time(m.rng.Int64N(int64(m.cfg.back)+1))
				m.push(e)
			}
		}
	}
}

func (m *model) deliver(sent []packet) {
	for _, p := range sent {
		if m.seen[p.flow][p.seq] {
			continue // a copy
		}
		m.seen[p.flow][p.seq] = true
		m.delivered++
		if p.seq < m.got[p.flow] {
			m.disorder++
		}
		m.got[p.flow] = max(m.got[p.flow], p.seq)
	}
}

// count adds up what destinations counted before they restarted.
func (m *model) count() {
	s := m.dst.Counters()
	m.ended.Premature += s.Premature
	m.ended.Late += s.Late
	m.ended.PassedUnheld += s.PassedUnheld
	m.ended.NoFlow += s.NoFlow
	m.ended.Overtaken += s.Overtaken
	m.ended.Held += s.Held
	m.ended.Expiries += s.Expiries
	m.ended.TailFlushes += s.TailFlushes
	m.ended.Tails += s.Tails
}

// check holds a finished run to what no fabric may break.
func (m *model) check() {
	m.count()
	s := m.dst.Counters()
	total := m.cfg.flows * m.cfg.packets
	if s.InUse != 0 || s.Waiting != 0 || s.WaitingBytes != 0 {
		m.t.Errorf("%d packets in %d queues are held in the end", s.Waiting, s.InUse)
	}
	// A copy may save a packet that the restart of a leaf has lost.
	if m.delivered+m.lost < total || m.restarts == 0 && m.delivered+m.lost != total {
		m.t.Errorf("%d delivered, %d lost, of %d", m.delivered, m.lost, total)
	}
	p := m.dst.Params()
	if s.Hold.Max > p.MaxHold {
		m.t.Errorf("a queue was held for %v", s.Hold.Max)
	}
	if s.InUsePeak > p.Queues || s.WaitingPeak > p.Packets || s.WaitingBytesPeak > uint64(p.Bytes) {
		m.t.Errorf("up to %d queues, %d packets, %d bytes", s.InUsePeak, s.WaitingPeak, s.WaitingBytesPeak)
	}
	ofPorts := uint64(0)
	for port := range p.Ports {
		u := m.dst.Port(port)
		ofPorts += u.BytesDepth.N()
		if u.Queues+u.Packets+int(u.Bytes) != 0 || u.QueuesPeak > p.PortQueues || u.PacketsPeak > p.PortPackets || u.BytesPeak > uint64(p.PortBytes) {
			m.t.Errorf("port %d: %+v", port, u)
		}
	}
	if got := s.TailFlushes + s.Expiries + s.Overtaken + s.Exhausted + s.Flushed; got != s.Queues {
		m.t.Errorf("%d queues were taken, %d drained for a reason: %+v", s.Queues, got, s)
	}
	if s.QueuesDepth.N() != s.Queues || s.WaitingDepth.N() != s.Held || s.BytesDepth.N() != s.Held || ofPorts != s.Held ||
		s.QueuesDepth.Sum < s.Queues || s.WaitingDepth.Sum < s.Held || s.BytesDepth.Sum < s.HeldBytes {
		m.t.Errorf("%d queues and %d packets of %d bytes, and counted as they came (of ports %d): %+v", s.Queues, s.Held, s.HeldBytes, ofPorts, s)
	}
	if s.Hold.N != s.Queues {
		m.t.Errorf("%d queues, %d times of holding", s.Queues, s.Hold.N)
	}
}

// excused is how many packets were let pass out of order, and counted.
func (m *model) excused() uint64 {
	e := &m.ended
	return e.Premature + e.Late + e.PassedUnheld + e.NoFlow + e.Overtaken
}

// settle sends packets over a fabric that loses nothing, each flow until its
// connection has been answered, and checks that both sides are idle again.
func (m *model) settle() {
	c := *m.cfg
	c.lose, c.copy, c.loseBack, c.mark, c.restart, c.linkDown = 0, 0, 0, 0, false, 0
	c.spread, c.back = 0, 0
	c.delay = mono.Time(c.source.Reply) / 4
	m.cfg = &c
	for u := uint8(0); u == 0; u++ {
		var up []uint8
		for i := range uint8(c.paths) {
			up = append(up, i)
		}
		m.view.Paths[1] = balance.MakePaths(up...)
	}
	m.now += 2 * mono.Time(c.source.Inactive)
	for f := range c.flows {
		c.packets = max(c.packets, m.sent[f]+1)
	}
	for f := range c.flows {
		m.sent[f] = c.packets - 1
		m.push(event{at: m.now, kind: evSend, pkt: packet{flow: f}})
	}
	m.run()
	n := 0
	src := m.src.(balance.ConWeavePolicy)
	for conn := range src.Connections(m.now, 0, src.ConnectionSets()) {
		n++
		if conn.State != balance.ConnectionBegins {
			m.t.Errorf("connection %+v is not idle", conn)
		}
	}
	if n != c.flows {
		m.t.Errorf("%d connections of %d flows", n, c.flows)
	}
	if s := m.dst.Counters(); s.InUse != 0 || m.dst.Deadline() != reorder.Never {
		m.t.Errorf("%d queues in use", s.InUse)
	}
}
