package leaf

import (
	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/internal/stat"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// Stats counts what one worker of a leaf did.
type Stats struct {
	// RoundTrip has the round trips of HELLOs, which go ahead of data in every queue.
	RoundTrip reorder.Histogram
	// Received are messages that came to this worker for a scheme that handles
	// them, by opcode. Known are those of them, and of those that other workers passed
	// on, that were about something this worker knows: over all workers, Received less
	// Known were about nothing. A NOTIFY concerns all workers, so only the one that it
	// came to counts it, and a path that leads to the leaf is known.
	Received, Known [overlay.NumOpcodes]uint64
	Relayed         uint64                     // messages that other workers passed on to this one
	Sent            [overlay.NumOpcodes]Amount // messages, by opcode; bytes on the wire
	Unsent          Unsent
	Waited          uint64 // packets that their scheme has told to wait
	GateFull        uint64 // packets that could not wait, because too many did
}

// Amount is a number of packets and the sum of their lengths.
type Amount struct{ Frames, Bytes uint64 }

// Unsent counts messages that were not sent, by why.
type Unsent struct {
	Incapable uint64 // the leaf no longer reads the fabric's fields
	NoPath    uint64 // no next hop with a known MAC address leads there
	NoFrame   uint64 // there was no free packet buffer
}

// SchemeStats counts what a scheme decided, in all classes that have it or had it.
type SchemeStats struct {
	Scheme string
	balance.Stats
}

// ReceiverStats counts what the receiving side of a scheme did.
type ReceiverStats struct {
	Scheme string // that names the receiver
	Stats  any    // a pointer to a copy of its counters
}

func (c *Class) stats() SchemeStats { return SchemeStats{c.Scheme.Name, c.Policy.Stats()} }

// Add adds what another policy of the same scheme counted.
func (s *SchemeStats) Add(o *SchemeStats) {
	s.Decisions += o.Decisions
	stat.Add(&s.Flowlets, &o.Flowlets)
	switch {
	case o.Own == nil:
	case s.Own == nil:
		s.Own = stat.Clone(o.Own)
	default:
		stat.Add(s.Own, o.Own)
	}
}

// AddSchemes adds what schemes counted to each one's place in sums.
func AddSchemes(sums, add []SchemeStats) []SchemeStats {
	for _, s := range add {
		sums = addScheme(sums, s)
	}
	return sums
}

func addScheme(sums []SchemeStats, s SchemeStats) []SchemeStats {
	for i := range sums {
		if sums[i].Scheme == s.Scheme {
			sums[i].Add(&s)
			return sums
		}
	}
	if s.Own != nil {
		s.Own = stat.Clone(s.Own)
	}
	return append(sums, s)
}

// Stats returns the leaf's own counters.
func (l *Leaf[T]) Stats() Stats { return l.stats }

// Exchange returns what leaves told each other.
func (l *Leaf[T]) Exchange() congestion.ExchangeStats { return l.exchange.Stats() }

// SchemeStats returns what schemes decided, those of former classes included.
func (l *Leaf[T]) SchemeStats() []SchemeStats {
	sums := AddSchemes(nil, l.retired)
	for _, c := range l.classes {
		sums = addScheme(sums, c.stats())
	}
	return sums
}

// ReceiverStats returns what the receiving sides did.
func (l *Leaf[T]) ReceiverStats() []ReceiverStats {
	out := make([]ReceiverStats, len(l.active))
	for i, rx := range l.active {
		out[i] = ReceiverStats{rx.scheme.Name, rx.r.Stats()}
	}
	return out
}
