// Package tcp is the TCP of the simulator: NewReno, CUBIC and DCTCP with
// selective acknowledgements, on connections that are opened a flow or kept, and
// Multipath TCP ([Multi]). It
// decides what the hosts' interfaces send; it must not know what is between
// them.
//
// # What is modelled
//
// Bytes, windows, acknowledgements, losses and timers follow the RFCs that the
// code names: slow start and congestion avoidance (RFC 5681), recovery
// by SACK (RFC 2018, 6675), limited transmit (RFC 3042), the retransmission
// timer with timestamps (RFC 6298, 7323), CUBIC (RFC 9438), DCTCP (RFC 8257).
// Sequence numbers are 64 bits wide, start at 0 and do not count SYN and FIN.
//
// What is not: window updates (the application reads at once, so the window
// offered is always [Config.Window]), tail loss probes and RACK (RFC 8985),
// proportional rate reduction (RFC 6937), DSACK (RFC 2883), HyStart (its
// thresholds are milliseconds of delay, which a data centre does not have),
// pacing, and the FIN exchange, for which nobody waits.
//
// A retransmission that is lost is found out by the timer, as RFC 6675 has it.
//
// # Reordering
//
// Three packets that overtake another one are a loss to TCP: it retransmits and
// halves its window for nothing. That TCP bears so little is why CONGA moves
// flowlets, not packets (§2.6.1), and why schemes that spray packets lose what
// they win (§2.4); it must not be modelled away. So two things that Linux does are
// not modelled: it learns to bear more reordering, up to 300 packets, and takes
// back a cut that was for nothing.
//
// # Bursts
//
// Segmentation offload makes the gaps between a flow's bursts that flowlets are
// made of. Three things bring it about here: a host's Quantum lets a source send
// that many bytes in a row; [Config.Defer] makes a sender wait, as Linux does,
// until the window has room for a worthwhile burst; and ACKs come for every
// second segment.
//
// # Conventions
//
// [Config.MSS] is what the MSS option says, the MTU less 40 (RFC 6691); with
// the timestamps option a segment carries 12 bytes less. Sizes on the wire do
// not count the Ethernet FCS, preamble and gap.
package tcp
