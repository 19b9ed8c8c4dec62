package roce

import (
	"time"

	"github.com/loomfabric/loom/internal/mono"
)

// Config is what both ends of a queue pair agree on.
type Config struct {
	QP       uint32 // number, 24 bits; the same at both ends
	MTU      int    // data of a full packet, MinData to MaxData
	Workload uint32
	// Window is how many packets may be unacknowledged. A NIC has no such bound.
	// Here it keeps a sender without congestion control from filling every queue
	// while nothing comes back.
	Window uint64
	// Timeout is how long a sender with packets unacknowledged waits for progress
	// before it goes back to the first of them. It must exceed the longest round trip.
	Timeout time.Duration
}

// ackEvery is how often a request asks for an acknowledgement; a message's last
// one always does.
const ackEvery = 16

// SenderStats counts what a sender did.
type SenderStats struct {
	Sent          uint64 // packets, repetitions included
	Retransmitted uint64 // of those, sent before
	Rewinds       uint64 // times that it went back for a NAK
	Timeouts      uint64 // and because no answer came
}

// Sender is the requester's half of a queue pair: it cuts messages into packets
// and sends them in order, and again from the first that is missing when the
// receiver says so or stays silent (Go-Back-N). Not safe for concurrent use.
type Sender struct {
	cfg Config
	// Numbers of packets since the start; a PSN is the low 24 bits of one. They are
	// una, the first unacknowledged; next, the next to send; top, the first that was
	// never sent; end, the first that no message has.
	una, next, top, end uint64
	messages            []message // with packets from una on
	cursor              int       // the message of packet next, len(messages) if there is none
	progress            mono.Time // when something was acknowledged, or sent after a pause
	sequence            uint64
	stats               SenderStats
}

type message struct {
	first, end uint64 // packets
	size       uint64
	posted     int64
}

// NewSender returns a sender without messages.
func NewSender(cfg Config) *Sender { return &Sender{cfg: cfg} }

// Post queues a message of size bytes, at least one.
func (s *Sender) Post(now mono.Time, size uint64) {
	packets := max((size+uint64(s.cfg.MTU)-1)/uint64(s.cfg.MTU), 1)
	s.messages = append(s.messages, message{s.end, s.end + packets, size, int64(now)})
	s.end += packets
}

// Backlog is how many packets wait to be sent or acknowledged.
func (s *Sender) Backlog() uint64 { return s.end - s.una }

// Ready reports whether a packet may be sent now.
func (s *Sender) Ready() bool { return s.next < s.end && s.next < s.una+s.cfg.Window }

// Send makes the next packet; [Sender.Ready] must have said yes.
func (s *Sender) Send(now mono.Time) Packet {
	for s.messages[s.cursor].end <= s.next {
		s.cursor++
	}
	m := &s.messages[s.cursor]
	if s.next == s.una {
		s.progress = now
	}
	p := Packet{
		QP: s.cfg.QP, PSN: PSN(s.next & psnMask), Sequence: s.sequence,
		Posted: m.posted, Size: m.size, Workload: s.cfg.Workload, Data: uint32(s.cfg.MTU),
	}
	isFirst, isLast := s.next == m.first, s.next+1 == m.end
	switch {
	case isFirst && isLast:
		p.Opcode = WriteOnly
	case isFirst:
		p.Opcode = WriteFirst
	case isLast:
		p.Opcode = WriteLast
	default:
		p.Opcode = WriteMiddle
	}
	if isLast {
		p.Data = max(uint32(m.size-(m.end-m.first-1)*uint64(s.cfg.MTU)), MinData)
	}
	p.AckReq = isLast || s.next%ackEvery == ackEvery-1
	s.sequence++
	s.stats.Sent++
	if s.next < s.top {
		s.stats.Retransmitted++
	}
	s.next++
	s.top = max(s.top, s.next)
	return p
}

// Acknowledged takes an ACK or NAK. It returns how many messages it completed;
// what it does not make sense of, it ignores.
func (s *Sender) Acknowledged(now mono.Time, p *Packet) (completed int) {
	upTo := p.PSN + 1 // the first that the receiver has not
	if p.Nak {
		upTo = p.PSN
	}
	distance := (upTo & psnMask).Sub(PSN(s.una & psnMask))
	if distance < 0 || uint64(distance) > s.top-s.una {
		return 0 // older than what is known, or of what was not sent
	}
	if distance > 0 {
		s.una += uint64(distance)
		s.progress = now
		for completed < len(s.messages) && s.messages[completed].end <= s.una {
			completed++
		}
		s.messages = append(s.messages[:0], s.messages[completed:]...)
		s.cursor = max(s.cursor-completed, 0)
		s.next = max(s.next, s.una)
	}
	if p.Nak && s.next > s.una {
		s.stats.Rewinds++
		s.rewind(now)
	}
	return completed
}

// rewind makes the first unacknowledged packet the next one.
func (s *Sender) rewind(now mono.Time) { s.next, s.cursor, s.progress = s.una, 0, now }

// Deadline is when [Sender.Expire] is due; ok is false if nothing is awaited.
func (s *Sender) Deadline() (at mono.Time, ok bool) {
	return s.progress.Add(s.cfg.Timeout), s.next > s.una
}

// Expire goes back if no progress was made for the time-out.
func (s *Sender) Expire(now mono.Time) {
	if at, ok := s.Deadline(); ok && now >= at {
		s.stats.Timeouts++
		s.rewind(now)
	}
}

// Stats returns what happened so far.
func (s *Sender) Stats() SenderStats { return s.stats }

// Pending calls yield for each message that is not acknowledged, with the time at
// which it was posted and its size.
func (s *Sender) Pending(yield func(posted mono.Time, size uint64)) {
	for _, m := range s.messages {
		yield(mono.Time(m.posted), m.size)
	}
}
