package balance

import (
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// The halves of a scheme besides Choose. A driver asserts each once, when it makes
// the policy.

// Messenger is a Policy that handles messages from other leaves or from the
// neighbours of its links.
type Messenger interface {
	Policy
	// Handle takes a message. It reports whether this policy knows what the message
	// is about: where several workers share a leaf's flows all are told, and one
	// knows. A message that makes no sense changes nothing: it may be late, a copy,
	// or forged.
	Handle(now mono.Time, v *View, m *overlay.Message) bool
}

// Timed is a Policy that acts when time has passed, without a packet.
type Timed interface {
	Policy
	// Deadline returns when Tick is to be called next; reorder.Never: not unless
	// something else happens first.
	Deadline() mono.Time
	// Tick does what is due, and appends to out what there is to say. It returns
	// the extended slice.
	Tick(now mono.Time, v *View, out []overlay.Message) []overlay.Message
}

// RoundTripper is a Policy that measures round trips to other leaves.
type RoundTripper interface {
	Policy
	// RoundTrips adds to h all that were measured so far.
	RoundTrips(h *reorder.Histogram)
}

// Tuned is a policy or a receiver that takes times which were derived from round
// trips; those that are 0, and those of other schemes, are not its business.
type Tuned interface {
	// Retime puts the times in force. It reports times that make no sense, and then
	// changes nothing.
	Retime(now mono.Time, t *reorder.Times) error
}

// Receiver is a scheme's receiving side: it says what becomes of the packets that
// carry the scheme's shim. It is owned by one worker, to which all packets of a
// flow come, whatever path they took. It knows packets by their headers; the
// driver keeps what is held, by the numbers of queues.
type Receiver interface {
	// Receive decides about packets, in the order in which they came.
	Receive(now mono.Time, pkts []reorder.Arrival)
	// MayHold reports whether Receive might hold such a packet.
	MayHold(p *reorder.Arrival) bool
	// Expire returns a queue that is to be sent on because its time has come; ok is
	// false if there is none. The driver calls again until there is none.
	Expire(now mono.Time) (queue int, ok bool)
	// Flush is Expire for any queue that holds something, for a driver that stops.
	Flush(now mono.Time) (queue int, ok bool)
	// Deadline returns when Expire is to be called next; reorder.Never: nothing is
	// held. Receive, Expire and Flush may change it.
	Deadline() mono.Time
	// Outbox returns what the last Receive, Expire or Flush has to say. It is valid
	// until the next call. The Cause of what Expire says is the first packet of the
	// queue.
	Outbox() []overlay.Message
	// Queues returns the number of queues and how many packets they hold at most,
	// in one and in all.
	Queues() (queues, perQueue, packets int)
	// Grace returns how long after Deadline a driver that may have packets unread
	// reads them first.
	Grace() mono.Time
	// Stats returns a pointer to a copy of the counters: a struct whose fields
	// are uint64s, ints and Histograms with the tags of package stat.
	Stats() any
}

// Populated is a Receiver with a table of flows.
type Populated interface {
	Receiver
	// Entries returns how many flows are in the leaf's table. It may look at all of it.
	Entries(now mono.Time) int
}
