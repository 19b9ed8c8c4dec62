package tcp

import (
	"fmt"

	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

// state is how far a connection has come.
type state uint8

const (
	closed      state = iota // not in use
	fresh                    // nothing was sent, and a handshake comes first
	synDue                   // a SYN is to be sent
	synSent                  // a SYN was sent
	established              // data may be sent
)

// phase is what the sender makes of losses.
type phase uint8

const (
	open     phase = iota // nothing is known to be lost
	recovery              // fast recovery (RFC 6675), up to recover
	loss                  // after a timeout, up to recover
)

// message is a flow on a connection: the bytes up to end that no earlier one has.
type message struct {
	id  network.FlowID
	end uint64
}

// messages are those of a connection that are not complete, oldest at first.
type messages struct {
	list  []message
	first int
}

func (m *messages) reset() { m.list, m.first = m.list[:0], 0 }

func (m *messages) add(id network.FlowID, end uint64) {
	if len(m.list) == cap(m.list) && m.first > 0 {
		m.list, m.first = m.list[:copy(m.list, m.list[m.first:])], 0
	}
	m.list = append(m.list, message{id, end})
}

// deliver tells who waits for the messages that end at next or before. Who is told may end
// the connection, which another one then is made of: next is looked at each time.
func (m *messages) deliver(now engine.Time, s *Stack, next *uint64) {
	for m.first < len(m.list) && m.list[m.first].end <= *next {
		id := m.list[m.first].id
		if m.first++; m.first == len(m.list) {
			m.reset()
		}
		if s.done != nil {
			s.done.FlowDone(now, id)
		}
	}
}

// Conn is a connection: the sender at one host and the receiver at another.
// What only one of them would know the other does not use. It belongs to its
// [Stack].
type Conn struct {
	network.Turn
	stack *Stack
	near  *seat // of the sender
	far   *seat // of the receiver
	index uint64

	flow          network.FlowID
	src, dst      *network.Host
	hash, reverse uint32
	oneShot       bool // ends with its only message
	closing       bool // ends when all is acknowledged
	asked         bool // the interface will ask for a packet

	state state
	phase phase

	// Sequence numbers of the sender.
	una uint64 // first byte that is not acknowledged
	nxt uint64 // first byte that was never sent
	end uint64 // of what the application has written

	// Windows, bytes. cwnd grows by fractions of bytes.
	cwnd, ssthresh float64
	pipe           uint64 // in flight, as RFC 6675 §4 estimates it
	burst          uint64 // what is left of the burst that is being sent
	cutEnd         uint64 // marks are not answered again before this is acknowledged
	// Whether the window was what kept the sender back, in the last window of
	// data (RFC 7661 §4.3; Linux: tcp_cwnd_validate).
	limited   bool
	maxFlight uint64
	usageEnd  uint64

	// Recovery.
	sacked    ranges
	recover   uint64 // phase ends when this is acknowledged
	highRxt   uint64 // below this the phase has sent again what was lost
	rescueRxt uint64
	dupAcks   uint32
	force     bool // a retransmission that does not ask for pipe
	resent    bool // the phase has sent something again

	// Timer.
	rto          engine.Timer
	srtt, rttvar engine.Time
	timeoutAfter engine.Time // RTO, not backed off
	backoff      uint8
	sampled      bool
	lastSent     engine.Time
	number       uint64 // of Data packets that were sent

	cubic cubicState
	dctcp dctcpState

	// They are the receiver's.
	messages  messages
	announced uint64   // bytes of all messages
	waiting   []uint64 // sizes of messages whose sending has not begun

	// Of a subflow.
	multi  *Multi // nil: the connection is no subflow
	sent   chunks // given to it, and not acknowledged
	coming chunks // given to it, and not arrived in order

	recv     receiver
	counters Counters
}

// reset makes a connection of flow f out of an unused one. Slices keep their
// memory, timers the events that are still to come for them.
func (c *Conn) reset(f Flow) {
	s := c.stack
	n := Conn{
		stack: s, near: c.near, far: c.far, index: c.index, rto: c.rto,
		flow: f.ID, src: f.Src, dst: f.Dst, hash: f.Hash, reverse: f.ReverseHash,
		state:        established,
		ssthresh:     float64(uint64(1) << 62),
		timeoutAfter: s.cfg.initialRTO(),
		sacked:       c.sacked,
		messages:     c.messages, sent: c.sent, coming: c.coming,
		waiting: c.waiting[:0],
		recv:    receiver{conn: c, timer: c.recv.timer, ooo: c.recv.ooo, quick: s.cfg.QuickAcks},
	}
	n.sacked.reset()
	n.messages.reset()
	n.sent.reset()
	n.coming.reset()
	n.recv.ooo.reset()
	if s.cfg.Handshake {
		n.state = fresh
	}
	n.cwnd = float64(s.cfg.InitialWindow * s.cfg.Segment())
	n.dctcp.alpha = 1 // RFC 8257 §4.2: the first mark halves the window
	*c = n
}

// Counters returns what the connection did so far.
func (c *Conn) Counters() Counters { return c.counters }

// Goodput returns how many bytes have arrived, each once and in order.
func (c *Conn) Goodput() uint64 { return c.counters.Goodput }

// Send writes a message behind those that are not sent yet. [Done] is told id
// when the receiver has all of it.
func (c *Conn) Send(now engine.Time, id network.FlowID, bytes uint64) {
	c.Announce(id, bytes)
	c.Begin(now)
}

// Announce tells the receiver of a message whose sending will begin with the next
// [Conn.Begin] for which none was announced before.
func (c *Conn) Announce(id network.FlowID, bytes uint64) {
	if bytes == 0 || bytes > Endless || c.state == closed || c.closing {
		panic(fmt.Sprintf("tcp: message %d of %d bytes on flow %d: it must have 1 to 2^60 bytes, and the connection must be open", id, bytes, c.flow))
	}
	c.announced += bytes
	c.waiting = append(c.waiting, bytes)
	c.messages.add(id, c.announced)
}

// Begin writes the oldest message that was announced.
func (c *Conn) Begin(now engine.Time) {
	if c.una == c.end {
		c.restart(now)
	}
	c.end += c.waiting[0]
	c.waiting = c.waiting[:copy(c.waiting, c.waiting[1:])]
	c.closing = c.oneShot
	if c.state == fresh {
		c.state = synDue
	}
	c.wake(now)
}

// restart is what idleness does to a window (RFC 2861 §3.2): what it was worth
// is known less and less.
func (c *Conn) restart(now engine.Time) {
	idle := now - c.lastSent
	if c.nxt == 0 || idle <= 0 {
		return
	}
	c.cubic.pause(idle)
	rto := c.currentRTO()
	if !c.stack.cfg.SlowStartAfterIdle || idle <= rto {
		return
	}
	floor := min(c.cwnd, float64(c.stack.cfg.InitialWindow*c.stack.cfg.Segment()))
	c.ssthresh = max(c.ssthresh, c.cwnd*3/4)
	for idle -= rto; idle > 0 && c.cwnd > floor; idle -= rto {
		c.cwnd /= 2
	}
	c.cwnd = max(c.cwnd, floor)
	c.limited, c.maxFlight = false, 0
}

// arrived takes in that bytes from before on have arrived in order, and returns how many
// bytes that makes in the order of what the application has written.
func (c *Conn) arrived(before uint64) uint64 {
	if c.multi != nil {
		return c.multi.arrived(c)
	}
	return c.recv.next - before
}

// delivered tells who waits for the messages that are complete.
func (c *Conn) delivered(now engine.Time) {
	if m := c.multi; m != nil {
		m.messages.deliver(now, c.stack, &m.next)
		return
	}
	c.messages.deliver(now, c.stack, &c.recv.next)
}

// Abort ends a connection at once, like closing a socket that does not linger: it
// drops what is still to be sent. [Done] is not called for its messages, and the
// network drops packets that are on their way. The connection must not be used
// afterwards.
func (c *Conn) Abort(now engine.Time) {
	if c.state != closed {
		c.stack.release(now, c)
	}
}
