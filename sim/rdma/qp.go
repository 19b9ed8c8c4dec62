package rdma

import (
	"fmt"
	"sort"

	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

// QP is a queue pair in one direction, with both of its ends: messages are
// posted at one and arrive at the other. The ends share what both would learn
// with the first packet (where messages end), and nothing else. Packet sequence
// numbers count from 0 and do not wrap.
//
// Its opener may use it until it is closed: then it is used again.
type QP struct {
	network.Turn
	stack  *Stack
	src    *seat // the sender's
	dst    *seat // the receiver's
	number uint32
	closed bool
	idle   bool // the host does not know that there is anything to send
	flow   network.Flow

	oneShot bool // closes with its only message

	announced messages   // whose sending has not begun
	planned   uint64     // packets of all messages so far, the announced ones included
	spare     []*message // that can be used again

	// The sender.
	messages  messages
	posted    uint64 // packets of all messages so far that were sent or wait for it
	una       uint64 // the oldest packet that is not acknowledged
	next      uint64 // the next packet to send in turn
	highest   uint64 // the first one never sent
	paceUntil engine.Time
	timer     engine.Timer
	rp        reactionPoint
	sacked    bitmap // IRN: of those in flight
	loss      loss   // IRN

	// The receiver.
	incoming   messages // that have not arrived
	expected   uint64   // the first packet that is missing
	latest     uint64   // after the latest one that came
	unanswered uint32   // packets that came in order since the last ACK
	mark       bool     // to be told with the next answer
	nacked     bool     // the gap at expected
	nackAgain  engine.Time
	cnpAgain   engine.Time
	have       bitmap // IRN: of those after expected

	n Counters
}

// loss is an IRN sender's recovery (IRN §3.1).
type loss struct {
	on   bool
	end  uint64 // recovery ends when all below is acknowledged
	next uint64 // those from here on, up to lost, are to be sent again unless sacked
	lost uint64
	high uint64 // after the highest packet that was sacked
	nack uint32 // since una advanced
}

// open readies a queue pair, new or used, for a flow. The timer is not touched:
// an event of it may be pending.
func (q *QP) open(f network.Flow) {
	s := q.stack
	q.closed, q.oneShot, q.idle, q.flow = false, false, true, f
	q.announced.clear()
	q.messages.clear()
	q.incoming.clear()
	q.planned = 0
	q.posted, q.una, q.next, q.highest, q.paceUntil = 0, 0, 0, 0, 0
	q.loss = loss{}
	q.expected, q.latest, q.unanswered = 0, 0, 0
	q.mark, q.nacked, q.nackAgain, q.cnpAgain = false, false, 0, 0
	q.sacked.reset(s.window)
	q.have.reset(s.window)
	q.n = Counters{}
	q.rp.reset(&s.c.Rates, f.Src.Port.Rate)
}

// Counters returns what happened so far.
func (q *QP) Counters() Counters {
	c := q.n
	c.Cuts = q.rp.cuts
	return c
}

// Goodput returns how many bytes have arrived, each once and in order.
func (q *QP) Goodput() uint64 { return q.n.Delivered }

// Abort closes the queue pair.
func (q *QP) Abort(engine.Time) { q.stack.Close(q) }

// Send appends a message to what the queue pair sends. One of 0 bytes is a
// packet without payload.
func (q *QP) Send(now engine.Time, id network.FlowID, bytes uint64) {
	q.Announce(id, bytes)
	q.Begin(now)
}

// Announce tells both ends of a message whose sending will begin with the next
// [QP.Begin] for which none was announced before.
func (q *QP) Announce(id network.FlowID, bytes uint64) {
	if q.closed {
		panic(fmt.Sprintf("rdma: message %d is posted to a queue pair of flow %d that is closed", id, q.flow.ID))
	}
	size := uint64(q.stack.c.Payload)
	packets := max(1, (bytes+size-1)/size)
	var m *message
	if n := len(q.spare); n > 0 {
		m = q.spare[n-1]
		q.spare = q.spare[:n-1]
	} else {
		m = new(message)
	}
	*m = message{Message: Message{ID: id, Bytes: bytes}, first: q.planned, end: q.planned + packets}
	q.planned += packets
	q.announced.push(m)
	q.incoming.push(m)
}

// Begin posts the oldest message that was announced.
func (q *QP) Begin(now engine.Time) {
	m := q.announced.at(0)
	q.announced.pop()
	m.Posted = now
	q.messages.push(m)
	q.posted = m.end
	q.wake(now)
}

// message is a Message in packets: from first up to end. Both ends know it, and each
// writes what is its own.
type message struct {
	Message
	first, end uint64
}

// payload is what packet psn of the message carries.
func (m *message) payload(psn uint64, full uint32) uint32 {
	return uint32(min(uint64(full), m.Bytes-(psn-m.first)*uint64(full)))
}

// messages are those that are not complete, oldest first.
type messages struct {
	list  []*message
	first int // those before it are complete
}

func (m *messages) clear() { m.list, m.first = m.list[:0], 0 }

func (m *messages) n() int { return len(m.list) - m.first }

// at returns the i-th oldest.
func (m *messages) at(i int) *message { return m.list[m.first+i] }

func (m *messages) push(x *message) {
	if len(m.list) == cap(m.list) && m.first > 0 {
		m.list, m.first = m.list[:copy(m.list, m.list[m.first:])], 0
	}
	m.list = append(m.list, x)
}

func (m *messages) pop() {
	if m.first++; m.first == len(m.list) {
		m.clear()
	}
}

// of returns the message that packet psn is of; it is there.
func (m *messages) of(psn uint64) *message {
	return m.at(sort.Search(m.n()-1, func(i int) bool { return m.at(i).end > psn }))
}

// bitmap has a bit for each packet of a window.
type bitmap struct {
	words []uint64 // as many as a power of two
}

func (b *bitmap) reset(window uint64) {
	n := 0
	if window > 0 {
		n = 1
		for uint64(n)*64 < window {
			n *= 2
		}
	}
	if len(b.words) != n {
		b.words = make([]uint64, n)
	}
	clear(b.words)
}

func (b *bitmap) word(psn uint64) (*uint64, uint64) {
	return &b.words[psn>>6&uint64(len(b.words)-1)], 1 << (psn & 63)
}

func (b *bitmap) has(psn uint64) bool {
	w, bit := b.word(psn)
	return *w&bit != 0
}

func (b *bitmap) set(psn uint64) {
	w, bit := b.word(psn)
	*w |= bit
}

func (b *bitmap) clear(psn uint64) {
	w, bit := b.word(psn)
	*w &^= bit
}
