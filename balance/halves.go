package balance

import (
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/internal/snapshot"
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

// Carrier is a Policy that leaves the flows that it knows to the process that goes on in
// its place, with the same clock, flow hash and uplinks. The flows of other policies start
// anew then, as after a change of schemes.
type Carrier interface {
	Policy
	// CarryVersion is that of what Save writes: another one for each change of the
	// fields, or of what they mean.
	CarryVersion() uint16
	// Save writes the flows that count at now.
	Save(now mono.Time, w *snapshot.Writer)
	// Load reads what Save of the same version wrote, before the first Choose. numbers
	// translates the numbers of leaves; false: the leaf is no more. What does not fit the
	// policy's parameters is an error of r's, and the policy is as good as new.
	Load(r *snapshot.Reader, numbers func(uint16) (uint16, bool))
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

// Switch is what a scheme knows of, and does with, all links of a node, which can be more
// than a policy knows. It is owned by one worker.
type Switch interface {
	// SetRoute names the ports that lead to a leaf, by the number that all nodes know it
	// by. here says that the leaf is this node itself; then there are none.
	SetRoute(leaf uint16, ports []int, here bool)
	// Handle takes a message of the node at the other end of a port. It reports false for
	// one that makes no sense, which changes nothing.
	Handle(now mono.Time, port int, m *overlay.Message) bool
	// Deadline returns when Tick is to be called next; reorder.Never: not unless something
	// else happens first.
	Deadline() mono.Time
	// Tick does what is due, and appends to out what there is to say. It returns the
	// extended slice.
	Tick(now mono.Time, out []PortMessage) []PortMessage
}

// Node is what a driver knows of all ports of its node, and does with them.
type Node interface {
	// Queue returns the bytes of data that wait at a port, of all workers; 0 for a port
	// that there is not.
	Queue(now mono.Time, port int) uint32
	// Hosts returns the most bytes of data that wait at a port towards a host; 0: none is
	// there.
	Hosts(now mono.Time) uint32
	// Hold has a port send no data before a time. A time that has passed lets it go.
	Hold(now mono.Time, port int, until mono.Time)
}

// PortMessage is a message for the node at the other end of a port.
type PortMessage struct {
	overlay.Message
	Port int
}

// HostPauser is a Switch that may have hosts pause.
type HostPauser interface {
	Switch
	// PauseHost returns the time before which a host is to send nothing whose packet has
	// met a queue of so many bytes, of a link of so many bits per second; 0: it may go on.
	PauseHost(now mono.Time, queue uint32, rate uint64) mono.Time
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
