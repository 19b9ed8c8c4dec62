// Package rdma is the RDMA transport of the simulator: WRITE messages on RoCEv2
// queue pairs, with DCQCN (Zhu et al., SIGCOMM 2015), and with Go-Back-N or
// IRN (Mittal et al., SIGCOMM 2018) against loss. The defaults are those of
// ConWeave's evaluation (§4.1).
//
// A sender is a [network.Source] that its host's interface pulls from; packets,
// ACKs, NACKs and CNPs are all that the two ends of a queue pair tell each
// other. It must not know switches, schemes or workloads.
//
// # Completion
//
// A message is complete when its sender has the ACK of its last packet: ConWeave
// measures "queue completion events at the RDMA clients" (§2, footnote 2), and
// its simulation likewise logs a flow when all of it is acknowledged. Message
// also has the time at which the receiver had every byte in order.
package rdma

import "github.com/loomfabric/loom/sim/engine"

// Recovery says what happens about packets that do not arrive in order.
type Recovery string

// The ways to recover.
const (
	// GoBackN is what RoCE NICs do: the receiver drops whatever it does not
	// expect, and the sender starts again from there. It wants PFC.
	GoBackN Recovery = "gbn"
	// IRN is selective retransmission with at most one BDP in flight.
	IRN Recovery = "irn"
)

// Control says who sets the sending rate.
type Control string

// The congestion controls.
const (
	DCQCN        Control = "dcqcn"
	Uncontrolled Control = "none" // line rate, whatever comes
)

// Config is what all queue pairs of a run have in common. Start from
// [Defaults].
//
// "ns-3 of ConWeave" below is the simulation that the paper's authors published
// as conweave-project/conweave-ns3: what its run.py writes into a run's
// configuration, or what network-load-balance.cc and rdma-hw.cc set.
type Config struct {
	// Payload is what a full packet carries, bytes. Default 1000
	// (PACKET_PAYLOAD_SIZE 1000 in the ns-3 of ConWeave and of HPCC).
	Payload uint32
	// Header is the rest of a data packet, bytes. Default 58: Ethernet 14,
	// IPv4 20, UDP 8, BTH 12, ICRC 4; the RETH that only a message's first
	// packet has is not counted. (The ns-3 of ConWeave has 48, for headers that
	// no RoCE packet has.)
	Header uint32
	// AckBytes is the size of ACKs and NACKs. Default 62: Header with an AETH.
	AckBytes uint32
	// CNPBytes is the size of CNPs. Default 74: Header with the 16 reserved
	// bytes of RoCEv2's annex.
	CNPBytes uint32
	// AckEvery is how many packets in order one ACK acknowledges. Each message's
	// last packet is acknowledged in any case. Default 1 (L2_ACK_INTERVAL 1 in the ns-3 of ConWeave).
	AckEvery uint32

	// Recovery is GoBackN by default: "Lossless RDMA" in ConWeave §4.1.
	Recovery Recovery
	// NackInterval is after what time a Go-Back-N receiver repeats the NACK of
	// a gap that is still open when further packets come. 0: never, as the
	// InfiniBand specification has it; the sender's timeout then mends what the
	// NACK did not. Default 4 µs (NACKGenerationInterval 4.0 in rdma-hw.cc).
	NackInterval engine.Time
	// RTO is for how long a Go-Back-N sender with packets in flight waits for
	// anything. Default 4 ms (L2Timeout in rdma-hw.cc).
	RTO engine.Time
	// RTOLow is IRN's timeout while at most RTOLowPackets are in flight, RTOHigh
	// its timeout with more. Defaults 100 µs, 320 µs and 3 (IRN §3.1 and §4.1; IrnRtoLow
	// and IrnRtoHigh in network-load-balance.cc, GetRto in rdma-queue-pair.h).
	RTOLow, RTOHigh engine.Time
	RTOLowPackets   uint64
	// BDP bounds the payload in flight of a sender, bytes (IRN §3.2: BDP-FC).
	// Default 104000: 100 Gbit/s times 8.32 µs, topo2bdp of run.py for the
	// leaf-spine of ConWeave §4.1; 156000 is its k=8 fat-tree's. Go-Back-N does
	// not heed it (HAS_WIN 0: DCQCN only bounds the rate).
	BDP uint64
	// NackThreshold is how many NACKs make an IRN sender believe in a loss.
	// Default 1; more tolerates reordering (IRN §7).
	NackThreshold uint32

	// Control is DCQCN by default.
	Control Control
	// CNPInterval is the least time between CNPs of one queue pair. Default 0:
	// there are no CNPs of their own, and every ACK and NACK says whether what
	// it answers was marked; that is what the ns-3 of ConWeave (and of HPCC)
	// does, and its reaction point ([ConWeaveRates]) is made for it. 50 µs in
	// the paper (DCQCN §3.1: N).
	CNPInterval engine.Time
	// OutOfOrderCNP has a packet that leaves a gap count as marked: NICs "reduce
	// the sending rate" for reordering (ConWeave §2); rdma-hw.cc sets the CNP
	// flag of such NACKs. Default true.
	OutOfOrderCNP bool
	// Rates is the reaction point. Default [ConWeaveRates].
	Rates Rates
}

// Rates are the parameters of DCQCN's reaction point. [ConWeaveRates] is a
// complete set.
type Rates struct {
	// Gain is g, of the moving average alpha.
	Gain float64
	// AlphaInterval is the length of alpha's time slots (DCQCN §3.1: K).
	AlphaInterval engine.Time
	// CutInterval is the length of another slot: at its end the rate is cut if a
	// CNP came. 0: each CNP cuts at once, and alpha's slots begin with it, as
	// published.
	CutInterval engine.Time
	// Clamp makes the current rate the target at every cut, as published;
	// otherwise only at a cut that follows an increase by the timer.
	Clamp bool
	// IncreaseInterval is the timer's (DCQCN §3.1: T).
	IncreaseInterval engine.Time
	// IncreaseBytes is the byte counter's (DCQCN §3.1: B); 0: there is none.
	IncreaseBytes uint64
	// FastRecovery is F: how many increases halve the way to the target before
	// the target rises.
	FastRecovery uint32
	// Additive and Hyper are R_AI and R_HAI, bit/s; 0: that share of the line
	// rate which [ConWeaveRates] names.
	Additive, Hyper uint64
	// Min is the lowest rate, bit/s.
	Min uint64
}

// ConWeaveRates is the reaction point of ConWeave's evaluation: "the
// recommendations in the recent Mellanox driver/firmware" (§4.1). The values
// are those that run.py writes for DCQCN: EWMA_GAIN 0.00390625,
// ALPHA_RESUME_INTERVAL 1, RATE_DECREASE_INTERVAL 4, CLAMP_TARGET_RATE 0,
// RP_TIMER 300, FAST_RECOVERY_TIMES 1, MIN_RATE 100Mb/s; RATE_AI is 10/25 and
// RATE_HAI 25/25 Mbit/s for each Gbit/s of the line. Its model has no byte
// counter.
func ConWeaveRates() Rates {
	return Rates{
		Gain:             1.0 / 256,
		AlphaInterval:    1 * engine.Microsecond,
		CutInterval:      4 * engine.Microsecond,
		IncreaseInterval: 300 * engine.Microsecond,
		FastRecovery:     1,
		Min:              100_000_000,
	}
}

// Defaults is the Config of ConWeave's lossless evaluation. Its marking, which
// is the switches', goes with it: 100 KB, 400 KB, 0.2 (§4.1).
func Defaults() Config {
	return Config{
		Payload:       1000,
		Header:        58,
		AckBytes:      62,
		CNPBytes:      74,
		AckEvery:      1,
		Recovery:      GoBackN,
		NackInterval:  4 * engine.Microsecond,
		RTO:           4 * engine.Millisecond,
		RTOLow:        100 * engine.Microsecond,
		RTOHigh:       320 * engine.Microsecond,
		RTOLowPackets: 3,
		BDP:           104_000,
		NackThreshold: 1,
		Control:       DCQCN,
		OutOfOrderCNP: true,
		Rates:         ConWeaveRates(),
	}
}

// window is IRN's BDP in packets.
func (c *Config) window() uint64 { return max(1, c.BDP/uint64(c.Payload)) }
