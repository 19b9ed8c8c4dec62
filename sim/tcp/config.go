package tcp

import (
	"github.com/loomfabric/loom/sim/engine"
)

// Control names a congestion control.
type Control string

// The congestion controls.
const (
	NewReno Control = "newreno" // RFC 5681
	Cubic   Control = "cubic"   // RFC 9438, Linux's default
	DCTCP   Control = "dctcp"   // RFC 8257
	LIA     Control = "lia"     // RFC 6356: NewReno whose subflows share one increase
)

// Sizes of headers, bytes.
const (
	tsOption   = 12 // timestamps, padded: in every segment
	synSize    = 14 + 20 + 20 + 20
	sackOption = 4 // and 8 a block
)

// Config is what all connections of a [Stack] have in common. It is made by
// [Defaults].
type Config struct {
	// Control is the congestion control.
	Control Control
	// MSS is what the MSS option would say: the MTU less 40 (RFC 6691). 1460;
	// 8960 with jumbo frames. A segment carries [Config.Segment] bytes.
	MSS uint32
	// Header is what a segment adds to its payload on the wire: Ethernet 14, IP
	// 20, TCP 20, timestamps 12.
	Header uint32
	// Options is how many bytes of further options a segment carries, which Header has
	// in it: 0, or [DSSOption] under MPTCP.
	Options uint32
	// InitialWindow is how many segments a new connection sends at first: 10
	// (RFC 6928).
	InitialWindow uint32
	// Window is the receive window in bytes; a sender has no more outstanding.
	Window uint64
	// Burst is the most that segmentation offload sends in a row, bytes. Hosts
	// want it as their Quantum. 0: there is no offload.
	Burst uint32
	// Defer lets a sender wait for a window that has room for a burst: a third
	// of the congestion window, Burst, or all the rest, whichever is least. Linux
	// does so (tcp_tso_win_divisor 3); nothing waits when nothing is in flight.
	Defer bool

	// MinRTO and MaxRTO bound the retransmission timeout (RFC 6298; Linux: 200 ms
	// and 120 s).
	MinRTO, MaxRTO engine.Time

	// AckEvery is how many full segments are acknowledged together at most: 2
	// (RFC 5681 §4.2); 1 acknowledges each.
	AckEvery uint32
	// QuickAcks is how many segments are acknowledged one by one at the start of
	// a connection and after it was idle for a timeout: 16 (Linux).
	QuickAcks uint32

	// DupThresh is how many duplicate ACKs mean a loss: 3 (RFC 5681).
	DupThresh uint32
	// LimitedTransmit sends new segments for the first duplicate ACKs (RFC 3042).
	LimitedTransmit bool
	// SlowStartAfterIdle halves the window for each timeout of idleness, down to
	// the initial window (RFC 2861; Linux's default). Connections of one flow
	// are never idle.
	SlowStartAfterIdle bool
	// Handshake makes a connection begin with SYN and SYN-ACK: a round trip
	// before the first data. Otherwise it is taken to be there.
	Handshake bool

	// ECN makes NewReno and CUBIC answer marks as losses, once a window (RFC
	// 3168). DCTCP uses ECN in any case.
	ECN bool
	// G is the weight of the newest sample in DCTCP's α: 1/16.
	G float64
}

// Defaults returns what Linux does in a data centre, with one exception: it
// does not adapt to reordering (see the package's comment).
func Defaults() Config {
	return Config{
		Control:            Cubic,
		MSS:                1460,
		Header:             14 + 20 + 20 + tsOption,
		InitialWindow:      10,
		Window:             2 << 20,
		Burst:              64 << 10,
		Defer:              true,
		MinRTO:             200 * engine.Millisecond,
		MaxRTO:             120 * engine.Second,
		AckEvery:           2,
		QuickAcks:          16,
		DupThresh:          3,
		LimitedTransmit:    true,
		SlowStartAfterIdle: true,
		Handshake:          true,
		G:                  1.0 / 16,
	}
}

// Segment returns how many bytes of payload a full segment carries.
func (c *Config) Segment() uint32 { return c.MSS - tsOption - c.Options }

// initialRTO is the timeout before there is a round-trip time to compute it from: one
// second (RFC 6298 §2.1) with Handshake; without, MinRTO, which is what a handshake
// would have led to.
func (c *Config) initialRTO() engine.Time {
	if c.Handshake {
		return max(c.MinRTO, engine.Second)
	}
	return c.MinRTO
}

// delayedAck is how long an ACK waits for a further segment: 40 ms, or half of MinRTO
// if that is less, for a sender must not time out meanwhile.
func (c *Config) delayedAck() engine.Time { return min(40*engine.Millisecond, c.MinRTO/2) }
