package dataplane

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/loomfabric/loom/bpf"
	"github.com/loomfabric/loom/dataplane/xsk"
	"github.com/loomfabric/loom/overlay"
)

// marks says how far a worker is with the frames that the fast path gave to it. XDP numbers
// them, ring by ring, and sends no frame ahead of those of its flow that are still here
// (decision 0033). A mark stands behind all that has come up to the end of a round. It has
// passed when the egress queues and the TX rings have sent what they held then. There is one
// mark at a time, so that it passes however much comes behind it. Owned by one worker, but
// for what is atomic.
type marks struct {
	tables *bpf.Fast
	shared *settling // with the other workers and fastPath
	// settled is the last request that was there when a mark was set which has passed: what
	// came under the views of before has left.
	settled atomic.Uint64

	request uint64   // shared.wanted, as of the beginning of the round
	came    []uint64 // by PortID: number of the last frame that came
	left    []uint64 // likewise that is said to have left
	emptied []bool   // by PortID: what its ring held of before has come

	set  bool // there is a mark
	upTo []uint64
	at   uint64 // request; 0: there were rings that had yet to be emptied
	on   []markedPort
}

// settling is what fastPath has all workers know.
type settling struct {
	wanted  atomic.Uint64 // number of the last request: see marks.settled
	inForce atomic.Uint32 // seq of the view that the tables in force are of
}

// markedPort is a port whose frames a mark stands behind.
type markedPort struct {
	id     PortID
	queued bool   // some of them may still be in the data queue
	tail   uint32 // of that queue
	sent   uint64 // frames that the TX ring has had to get before the mark
}

// numberLen is the length of the word that holds a frame's number, in front of its metadata.
const numberLen = 8

func newMarks(tables *bpf.Fast, room int, shared *settling) *marks {
	return &marks{
		tables: tables, shared: shared,
		came: make([]uint64, room), left: make([]uint64, room), upTo: make([]uint64, room), emptied: make([]bool, room),
		on: make([]markedPort, 0, room),
	}
}

// begin is called before a round looks for a new view.
func (m *marks) begin() { m.request = m.shared.wanted.Load() }

// received notes the numbers of a burst. The words are wiped: the next frame in this
// memory may come without.
func (m *marks) received(w *worker, id PortID, descs []xsk.Desc) {
	if len(descs) < burstSize {
		m.emptied[id] = true
	}
	for i := range descs {
		at := descs[i].Addr - overlay.MetaLen - numberLen
		if descs[i].Addr&w.frameMask < overlay.MetaLen+numberLen {
			continue
		}
		word := w.area[at : at+numberLen : at+numberLen]
		if n := m.tables.Number(binary.NativeEndian.Uint64(word)); n != 0 {
			m.came[id], m.emptied[id] = n, true // what came before was in front of it
		}
		clear(word)
	}
}

// end is called after a round has sent what it could.
func (m *marks) end(w *worker) {
	if m.set && !m.passed(w) {
		return
	}
	m.publish(w)
	if !m.due(w) {
		return
	}
	m.place(w)
	if m.passed(w) {
		m.publish(w)
	}
}

// due reports whether there is something to say.
func (m *marks) due(w *worker) bool {
	for _, p := range w.open {
		if m.came[p.id] != m.left[p.id] {
			return true
		}
	}
	return m.request != m.settled.Load()
}

// place sets a mark behind everything that is here, but for frames that wait for a MAC
// address. XDP does not know it either while it goes by the worker's view; while it goes by
// another one it may, and the mark is about no frame.
func (m *marks) place(w *worker) {
	m.set, m.on, m.at = true, m.on[:0], m.request
	if w.holds.len() == 0 || w.view.seq == m.shared.inForce.Load() {
		copy(m.upTo, m.came)
	}
	for _, p := range w.open {
		if !m.emptied[p.id] {
			m.at = 0
		}
		if slowEgress(&w.view.layout.ports[p.id].Egress) == "" {
			m.on = append(m.on, markedPort{id: p.id, queued: true, tail: p.egress.data.tail})
		}
	}
}

// passed reports whether the mark has passed all ports.
func (m *marks) passed(w *worker) bool {
	all := true
	for i := range m.on {
		if x := &m.on[i]; !x.passed(w) {
			all = false
		}
	}
	return all
}

// passed reports whether the mark has passed the port. A port that is down or stuck keeps
// nobody waiting.
func (x *markedPort) passed(w *worker) bool {
	p := &w.ports[x.id]
	if p.link == nil || p.rest > w.now {
		return true
	}
	if q := &p.egress.data; x.queued {
		if q.len() > 0 && int32(q.head-x.tail) < 0 || p.egress.line.len() > 0 {
			return false
		}
		x.queued, x.sent = false, p.stats.Sent.Frames
	}
	onRing := p.link.TXQueued()
	if z, ok := p.link.(interface{ ZeroCopy() bool }); ok && z.ZeroCopy() {
		onRing = p.link.TXPending() // the card sends it when it likes
	}
	return p.stats.Sent.Frames-uint64(onRing) >= x.sent
}

// publish says what a mark that has passed stands for.
func (m *marks) publish(w *worker) {
	if !m.set {
		return
	}
	m.set = false
	if m.at != 0 {
		m.settled.Store(m.at)
	}
	for id, n := range m.upTo {
		if n != m.left[id] {
			m.left[id] = n
			m.tables.Drain(m.tables.Ring(id, w.id), n)
		}
	}
}
