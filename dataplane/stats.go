package dataplane

import (
	"time"

	"github.com/loomfabric/loom/drop"
)

// Stats is a consistent copy of what the workers have counted. For each worker
//
//	Received + Copied = Sent + Dropped + Held
//
// holds exactly, where Received, Copied and Sent are sums over its ports,
// Dropped sums Drops, and Held is the number of frames inside.
type Stats struct {
	Workers []WorkerStats // by queue
	Ports   []PortInfo    // by PortID
}

// WorkerStats is what one worker counted. Counters only grow.
type WorkerStats struct {
	Ports  []PortStats // by PortID
	Copied uint64      // frames made by replication
	Held   uint64      // frames inside: queues, delay lines, waiting for neighbours
	Bursts uint64
	Sleeps uint64

	FDBEntries   uint64 // now
	FDBLearned   uint64
	FDBMoved     uint64
	FDBAged      uint64
	FDBFull      uint64     // not learned: table, bucket or VNI limit
	FDBStatic    uint64     // not learned: address is configured elsewhere
	GossipLost   uint64     // learned addresses that other workers were not told of
	VNIs         []VNIStats // leaf, by VNIIndex
	PeerSent     []Traffic  // leaf, by PeerID: encapsulated towards it
	PeerReceived []Traffic  // leaf, by PeerID: decapsulated from it
	HopSent      []Traffic  // by HopID
}

// VNIStats counts one virtual network.
type VNIStats struct {
	Encapsulated, Decapsulated, Local, Flooded Traffic
	FDBEntries                                 uint64
}

// Traffic is a frame count and the sum of the frames' lengths.
type Traffic struct{ Frames, Bytes uint64 }

// Add counts one frame of n bytes.
func (t *Traffic) Add(n uint32) { t.Frames++; t.Bytes += uint64(n) }

// PortStats counts one queue of one port.
type PortStats struct {
	Received, Sent, Marked Traffic                 // Marked: ECN CE set here
	Drops                  [drop.NumReasons]uint64 // charged to the port the frame came in by
	QueueBytes, QueuePeak  uint64                  // data queue, now and its high-water mark
	QueueFrames            uint64
	Utilisation            float64 // DRE, share of the link rate; 0 when the rate is unknown

	// What the kernel counted (XDP_STATISTICS) and what the rings met.
	RXDropped, RXRingFull, FillEmpty, RXInvalid, TXInvalid, TXEmpty uint64
	Kicks, KickAgain, KickErrors, TXFull                            uint64
	TXAbandoned                                                     uint64 // sent, but still on the TX ring when its interface vanished
	MetaMissing                                                     uint64 // frames parsed again for want of metadata
}

// PortInfo is what a port asked for and what it got.
type PortInfo struct {
	Name     string
	Kind     PortKind
	Open     bool   // sockets are bound
	XDPMode  string // "native" or "generic"
	CopyMode string // "zero-copy" or "copy"
	Error    string // why it is not open
	Since    time.Time
	// Classifier counts what the XDP program did, by verdict name.
	Classifier map[string]uint64
}
