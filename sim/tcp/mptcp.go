package tcp

import (
	"fmt"

	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

// DSSOption is how long MPTCP's data sequence signal is, with numbers of 32 bits (RFC 8684
// §3.3, Figure 9): 18 bytes, padded. [Config.Options] has room for it.
const DSSOption = 20

// Multi is a connection of Multipath TCP (RFC 8684): subflows between the same two
// hosts, each with headers of its own, so that a fabric takes them for flows of their own.
// Each is a [Conn] with its own sequence numbers, window, recovery and timer. What the
// application writes is given to whichever subflow has room in its window, a segment at a
// time, those with the shortest round trip first. The receiver puts it together again.
//
// The subflows beyond the first one begin when that one is established. After the first
// timeout in a row a subflow's bytes are sent on another one too (§3.3.6), or else a
// single bad path would hold up all of the data.
//
// What is not modelled: the fourth ACK of MP_JOIN (§3.2), for which a subflow's first data
// waits; addresses that are announced; backup subflows; DATA_FIN. There is no DATA_ACK
// either, since the ACK of a subflow says the same: what a subflow has in order has its
// place in the data. It belongs to its [Stack].
type Multi struct {
	stack   *Stack
	id      network.FlowID
	subs    []*Conn
	oneShot bool // ends with its only message
	closing bool // ends when all is acknowledged
	open    bool

	// Sequence numbers of the data, at the sender.
	una   uint64 // first byte that is not acknowledged
	nxt   uint64 // first byte that no subflow was given
	end   uint64 // of what the application has written
	acked ranges // beyond una
	again ranges // for another subflow, too

	// At the receiver.
	next uint64 // first byte that is missing
	ooo  ranges // what is there beyond it

	messages  messages
	announced uint64 // bytes of all messages
}

// MaxSubflows is the most subflows that a connection can have.
const MaxSubflows = 64

// StartMulti sends a flow over a new connection with one subflow for each of subs, which
// ends with it.
func (s *Stack) StartMulti(now engine.Time, subs []network.Flow, bytes uint64) {
	s.OpenMultiFor(subs).Send(now, subs[0].ID, bytes)
}

// OpenMultiFor makes a connection for one message, with which it ends.
func (s *Stack) OpenMultiFor(subs []network.Flow) *Multi {
	m := s.OpenMulti(subs)
	m.oneShot = true
	return m
}

// OpenMulti makes a persistent connection with one subflow for each of subs, all between
// the same hosts. Nothing is sent before the first message.
func (s *Stack) OpenMulti(subs []network.Flow) *Multi {
	if len(subs) == 0 || len(subs) > MaxSubflows {
		panic(fmt.Sprintf("tcp: %d subflows: use 1 to %d", len(subs), MaxSubflows))
	}
	var m *Multi
	if n := len(s.freeMulti); n > 0 {
		m, s.freeMulti = s.freeMulti[n-1], s.freeMulti[:n-1]
	} else {
		m = new(Multi)
	}
	m.reset(s, subs[0].ID)
	for _, f := range subs {
		c := s.Open(Flow{Flow: f})
		c.multi = m
		m.subs = append(m.subs, c)
	}
	return m
}

// reset makes a connection without subflows out of an unused one. Slices keep their memory.
func (m *Multi) reset(s *Stack, id network.FlowID) {
	n := Multi{stack: s, id: id, open: true, subs: m.subs[:0], acked: m.acked, again: m.again, ooo: m.ooo, messages: m.messages}
	n.acked.reset()
	n.again.reset()
	n.ooo.reset()
	n.messages.reset()
	*m = n
}

// Send writes a message behind those that are not sent yet. [Done] is told id when the
// receiver has all of it.
func (m *Multi) Send(now engine.Time, id network.FlowID, bytes uint64) {
	m.Announce(id, bytes)
	m.Begin(now)
}

// Announce is [Conn.Announce].
func (m *Multi) Announce(id network.FlowID, bytes uint64) {
	if bytes == 0 || bytes > Endless || !m.open || m.closing {
		panic(fmt.Sprintf("tcp: message %d of %d bytes on flow %d: it must have 1 to 2^60 bytes, and the connection must be open", id, bytes, m.id))
	}
	m.announced += bytes
	m.messages.add(id, m.announced)
}

// Begin writes what was announced.
func (m *Multi) Begin(now engine.Time) {
	for _, c := range m.subs {
		if c.una == c.nxt {
			c.restart(now)
		}
	}
	m.end = m.announced
	m.closing = m.oneShot
	if m.subs[0].state == fresh {
		m.subs[0].state = synDue
	}
	m.wake(now, nil)
}

// Goodput returns how many bytes have arrived, each once and in order.
func (m *Multi) Goodput() uint64 { return m.next }

// Abort ends a connection at once, like [Conn.Abort].
func (m *Multi) Abort(now engine.Time) {
	if m.open {
		m.release(now)
	}
}

func (m *Multi) release(now engine.Time) {
	for _, c := range m.subs {
		c.Abort(now)
	}
	m.open = false
	m.stack.freeMulti = append(m.stack.freeMulti, m)
}

// wake tells interfaces which subflows have something to send, those with the shortest
// round trip first; but is left out.
func (m *Multi) wake(now engine.Time, but *Conn) {
	var done uint64
	for range m.subs {
		first := -1
		for i, c := range m.subs {
			if done>>i&1 == 0 && (first < 0 || c.srtt < m.subs[first].srtt) {
				first = i
			}
		}
		done |= 1 << first
		if c := m.subs[first]; c != but {
			c.wake(now)
		}
	}
}

// join begins the subflows that wait for the first one to be established.
func (m *Multi) join(now engine.Time) {
	for _, c := range m.subs {
		if c.state == fresh {
			c.state = synDue
			c.wake(now)
		}
	}
}

// rest returns how many bytes in a row a subflow could be given now: some that another
// one has lost, or else new ones, as far as the receiver has room for them.
func (m *Multi) rest(c *Conn) uint64 {
	if from, to := m.reinjected(c); from < to {
		return to - from
	}
	if m.nxt+min(m.end-m.nxt, uint64(m.stack.cfg.Segment())) > m.una+m.stack.cfg.Window {
		return 0
	}
	return m.end - m.nxt
}

// reinjected returns the first bytes that are to be sent once more, if it is for this
// subflow to send them: none, if it has just had a timeout itself.
func (m *Multi) reinjected(c *Conn) (from, to uint64) {
	for c.phase != loss && len(m.again.blocks) > 0 {
		b := m.again.blocks[0]
		if from, to = m.acked.hole(max(b.From, m.una), b.To); from < to {
			return from, to
		}
		m.again.cut(b.To) // it has arrived meanwhile
	}
	return 0, 0
}

// take gives a subflow the n bytes that it is about to send.
func (m *Multi) take(c *Conn, n uint64) {
	from, to := m.reinjected(c)
	if from < to {
		m.again.cut(from + n)
		c.counters.Reinjected += n
	} else {
		from = m.nxt
		m.nxt += n
	}
	c.sent.add(chunk{c.nxt, from, n})
	c.coming.add(chunk{c.nxt, from, n})
	c.end = c.nxt + n
}

// acknowledged takes in that a subflow's bytes below its una have arrived.
func (m *Multi) acknowledged(now engine.Time, c *Conn) {
	for b, ok := c.sent.below(c.una); ok; b, ok = c.sent.below(c.una) {
		if b.From = max(b.From, m.una); b.From < b.To {
			m.acked.add(b)
		}
	}
	if len(m.acked.blocks) == 0 || m.acked.blocks[0].From > m.una {
		return
	}
	full := m.nxt < m.end && m.nxt+uint64(m.stack.cfg.Segment()) > m.una+m.stack.cfg.Window
	m.una = m.acked.blocks[0].To
	m.acked.cut(m.una)
	if full {
		m.wake(now, c)
	}
}

// over reports whether all is acknowledged and nothing of the connection is under way.
func (m *Multi) over() bool {
	if !m.closing || m.una < m.end {
		return false
	}
	for _, c := range m.subs {
		if c.state == synDue || c.state == synSent || c.una < c.nxt {
			return false
		}
	}
	return true
}

// reinject has other subflows send what this one was given and has not got through.
func (m *Multi) reinject(now engine.Time, c *Conn) {
	for _, k := range c.sent.list[c.sent.first:] {
		if from := max(k.data, m.una); from < k.data+k.n {
			m.again.add(network.Block{From: from, To: k.data + k.n})
		}
	}
	m.wake(now, c)
}

// arrived puts what a subflow has in order where it belongs, and returns how many bytes
// of the data are newly in order.
func (m *Multi) arrived(c *Conn) uint64 {
	before := m.next
	for b, ok := c.coming.below(c.recv.next); ok; b, ok = c.coming.below(c.recv.next) {
		if b.From = max(b.From, m.next); b.From < b.To {
			m.ooo.add(b)
		}
	}
	if len(m.ooo.blocks) > 0 && m.ooo.blocks[0].From == m.next {
		m.next = m.ooo.blocks[0].To
		m.ooo.cut(m.next)
	}
	return m.next - before
}

// chunk is where n bytes of a subflow, from its byte at on, belong in the data: what a
// DSS option says.
type chunk struct{ at, data, n uint64 }

// chunks are a subflow's, oldest at first. What follows in both is one.
type chunks struct {
	list  []chunk
	first int
}

func (q *chunks) reset() { q.list, q.first = q.list[:0], 0 }

func (q *chunks) add(k chunk) {
	if len(q.list) > q.first {
		if last := &q.list[len(q.list)-1]; last.at+last.n == k.at && last.data+last.n == k.data {
			last.n += k.n
			return
		}
	}
	if len(q.list) == cap(q.list) && q.first > 0 {
		q.list, q.first = q.list[:copy(q.list, q.list[q.first:])], 0
	}
	q.list = append(q.list, k)
}

// below takes the oldest bytes out that lie below the subflow's byte at, and returns where
// they belong in the data; ok is false if there are none.
func (q *chunks) below(at uint64) (b network.Block, ok bool) {
	if q.first == len(q.list) || q.list[q.first].at >= at {
		return b, false
	}
	k := &q.list[q.first]
	n := min(k.n, at-k.at)
	b = network.Block{From: k.data, To: k.data + n}
	*k = chunk{k.at + n, k.data + n, k.n - n}
	if k.n == 0 {
		if q.first++; q.first == len(q.list) {
			q.reset()
		}
	}
	return b, true
}
