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
	_ struct{} `stat:"leaf"`

	RoundTrip reorder.Histogram `stat:"round_trip" metric:"loom_round_trip" help:"Round trips of HELLOs to peers, which go ahead of data in every queue."`
	// Received less Known, over all workers, are messages about nothing that the leaf
	// knows. A NOTIFY concerns all workers, so only the one that it came to counts it,
	// and a path that leads to the leaf is known.
	Received Messages[uint64] `stat:"messages_received" help:"Control packets that came to a worker, for a scheme that handles them."`
	Known    Messages[uint64] `stat:"messages_known" help:"Control packets about something that a worker knows, the one that they came to or another one."`
	Relayed  uint64           `stat:"messages_relayed" help:"Control packets that other workers passed on to this one."`
	Sent     Messages[Amount] `stat:"control" metric:"loom_reorder_control" help:"sent as control packets to other leaves; bytes are those of ConWeave Table 4, with outer headers"`
	Unsent   Unsent           `stat:",inline"`
	Unproved uint64           `stat:"hellos_unproved" help:"HELLOs from a peer's address that did not echo what the peer was sent last: of one that has just started, or forged."`
	// Farewells, Silent and Stale are of peers.
	Farewells uint64 `stat:"farewells" help:"Peers that said goodbye: they are sent plain VXLAN until they prove again that they read the fabric's fields."`
	Silent    uint64 `stat:"peers_silent" help:"Times that a peer was taken for a plain one because nothing came from it, by any path, for two of its rounds of HELLOs."`
	Stale     uint64 `stat:"hellos_stale" help:"HELLOs of a process that has said goodbye: they were under way, or somebody has kept them."`
	Waited    uint64 `stat:"waited_frames" unit:"frames" help:"Frames that their scheme made wait before they were sent."`
	GateFull  uint64 `stat:"wait_overflow_frames" unit:"frames" help:"Frames that could not wait, because too many did."`
}

// counted has the counters of a leaf or a spine.
type counted struct{ stats Stats }

// Stats returns the node's own counters.
func (c *counted) Stats() Stats { return c.stats }

// Unsent are the counters of messages that could not be sent, for the driver to count
// what it finds.
func (c *counted) Unsent() *Unsent { return &c.stats.Unsent }

// Account notes that a message was sent, and how long it was on the wire, bytes.
func (c *counted) Account(op overlay.Opcode, bytes uint32) {
	a := &c.stats.Sent[op&(overlay.NumOpcodes-1)]
	a.Frames++
	a.Bytes += uint64(bytes)
}

// handled notes a message that a scheme handles: first, if it came to this worker and
// not by way of another one, and known, if it is about something.
func (c *counted) handled(op overlay.Opcode, first, known bool) {
	op &= overlay.NumOpcodes - 1
	if first {
		c.stats.Received[op]++
	} else {
		c.stats.Relayed++
	}
	if known {
		c.stats.Known[op]++
	}
}

// Amount is a number of packets and the sum of their lengths.
type Amount = stat.Amount

// Messages has something for each kind of message, by opcode.
type Messages[T any] [overlay.NumOpcodes]T

// Index returns the name of an opcode; "" for those of tenants' packets.
func (Messages[T]) Index(i int) (label, value string) {
	if op := overlay.Opcode(i); op.Control() {
		value = op.String()
	}
	return "opcode", value
}

// Unsent counts messages that were not sent, by why.
type Unsent struct {
	Incapable uint64 `stat:"control_unsent{reason=incapable}" metric:"loom_reorder_control_unsent" help:"Control packets that could not be sent." about:"The leaf no longer reads the fabric's fields."`
	NoPath    uint64 `stat:"control_unsent{reason=no_path}" metric:"loom_reorder_control_unsent" about:"No next hop with a known MAC address leads there."`
	NoFrame   uint64 `stat:"control_unsent{reason=no_frame}" metric:"loom_reorder_control_unsent" about:"There was no free packet buffer."`
	// OverBudget is what a peer's packets asked for beyond [Config.Answers].
	OverBudget uint64 `stat:"control_unsent{reason=over_budget}" metric:"loom_reorder_control_unsent" about:"The leaf's packets asked for more answers than 10 Gb/s of short flows do."`
}

// Unknown returns how many messages that came were about nothing that the leaf knows.
// s is the sum over all workers. The workers' copies are not of one time: a message
// that one is still passing on to the others is among them for that moment.
func (s *Stats) Unknown() (n Messages[uint64]) {
	for op := range n {
		n[op] = s.Received[op] - min(s.Received[op], s.Known[op])
	}
	return n
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

// add adds what another policy of the same scheme counted.
func (s *SchemeStats) add(o *SchemeStats) {
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
			sums[i].add(&s)
			return sums
		}
	}
	if s.Own != nil {
		s.Own = stat.Clone(s.Own)
	}
	return append(sums, s)
}

// AddReceivers adds what receivers counted to each one's place in sums.
func AddReceivers(sums, add []ReceiverStats) []ReceiverStats {
next:
	for _, r := range add {
		for _, s := range sums {
			if s.Scheme == r.Scheme {
				stat.Add(s.Stats, r.Stats)
				continue next
			}
		}
		sums = append(sums, ReceiverStats{r.Scheme, stat.Clone(r.Stats)})
	}
	return sums
}

// Counts returns what a scheme and its receiver count, before there is anything to
// count: pointers to structs with the tags of package stat. nil: it has none.
func Counts(s *balance.Scheme) (own, receiver any) {
	o := balance.Options{Leaves: 1, Ports: 1}
	if s.Complete(&o) != nil {
		return nil, nil
	}
	if s.Receiver != nil {
		if r, err := s.Receiver(&o); err == nil {
			o.Receiver, receiver = r, r.Stats()
		}
	}
	return s.New(&o).Stats().Own, receiver
}

// Exchange returns what the exchange with other leaves counted.
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
