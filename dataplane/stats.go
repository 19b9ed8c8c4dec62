package dataplane

import (
	"fmt"
	"slices"
	"time"

	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/leaf"
	"github.com/loomfabric/loom/reorder"
)

// Stats is a consistent copy of what the workers have counted. For each worker
//
// the [Account] holds exactly.
type Stats struct {
	Workers []WorkerStats // by queue
	Ports   []PortInfo    // by PortID
}

// WorkerStats is what one worker counted. Counters only grow.
type WorkerStats struct {
	Ports    []PortStats // by PortID
	Made     uint64      // frames made here: copies for flooding, and the fabric's own control packets
	Consumed uint64      // control packets that ended here, as they should
	Held     uint64      // frames inside: queues, delay lines, waiting for neighbours
	Bursts   uint64
	Sleeps   uint64

	FDBEntries   uint64 // now
	FDBLearned   uint64
	FDBMoved     uint64
	FDBAged      uint64
	FDBFull      uint64                   // not learned: table, bucket or VNI limit
	FDBStatic    uint64                   // not learned: address is configured elsewhere
	LearnedLost  uint64                   // learned addresses that other workers were not told of
	MessagesLost uint64                   // messages that other workers were not told of
	Exchange     congestion.ExchangeStats // leaf: what leaves told each other
	Leaf         leaf.Stats               // leaf: round trips and messages
	Schemes      []leaf.SchemeStats       // leaf, by scheme in use
	Receivers    []leaf.ReceiverStats     // leaf, by scheme with a receiving side
	Waiting      []reorder.PortUse        // leaf, by PortID: frames that wait to be put in order; last, those for all members of a VNI
	VNIs         []VNIStats               // leaf, by VNIIndex
	PeerSent     []Traffic                // leaf, by PeerID: encapsulated towards it
	PeerReceived []Traffic                // leaf, by PeerID: decapsulated from it
	HopSent      []Traffic                // by HopID
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
	Utilisation            float64 // of the link, all workers together: share of its rate; 0 when that is unknown
	Metric                 uint8   // the same, quantised: what CE is raised to
	CERaised               uint64  // frames whose CE was raised here

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

// Account is where a worker's frames came from and where they went. Received,
// Sent and Dropped are sums over its ports.
type Account struct {
	Received, Made                uint64
	Sent, Dropped, Consumed, Held uint64
}

// Account adds up the worker's frames.
func (w *WorkerStats) Account() Account {
	a := Account{Made: w.Made, Consumed: w.Consumed, Held: w.Held}
	for i := range w.Ports {
		p := &w.Ports[i]
		a.Received += p.Received.Frames
		a.Sent += p.Sent.Frames
		for _, n := range p.Drops {
			a.Dropped += n
		}
	}
	return a
}

// Add adds another worker's account.
func (a *Account) Add(b Account) {
	a.Received += b.Received
	a.Made += b.Made
	a.Sent += b.Sent
	a.Dropped += b.Dropped
	a.Consumed += b.Consumed
	a.Held += b.Held
}

// Balances reports whether no frame was lost or made from nothing.
func (a Account) Balances() bool {
	return a.Received+a.Made == a.Sent+a.Dropped+a.Consumed+a.Held
}

// String is the equation.
func (a Account) String() string {
	sign := "="
	if !a.Balances() {
		sign = "≠"
	}
	return fmt.Sprintf("received %d + made %d %s sent %d + dropped %d + consumed %d + held %d",
		a.Received, a.Made, sign, a.Sent, a.Dropped, a.Consumed, a.Held)
}

// snapshot copies what is a leaf's.
func (l *leafWorker) snapshot(s *WorkerStats) {
	s.FDBEntries = uint64(l.fdb.Len())
	s.FDBLearned, s.FDBMoved, s.FDBAged = l.stats.FDBLearned, l.stats.FDBMoved, l.stats.FDBAged
	s.FDBFull, s.FDBStatic = l.stats.FDBFull, l.stats.FDBStatic
	s.VNIs = slices.Clone(l.stats.VNIs)
	s.PeerSent, s.PeerReceived = slices.Clone(l.stats.PeerSent), slices.Clone(l.stats.PeerReceived)
	for i := range s.VNIs {
		s.VNIs[i].FDBEntries = uint64(l.fdb.Count(uint16(i)))
	}
	s.Exchange, s.Leaf = l.brain.Exchange(), l.brain.Stats()
	s.Schemes, s.Receivers = l.brain.SchemeStats(), l.brain.ReceiverStats()
	if r, ok := l.brain.Receiver(reorder.SchemeID).(*reorder.ConWeave); ok {
		for i := range arrivalPorts(len(l.ports)) {
			s.Waiting = append(s.Waiting, r.Port(i))
		}
	}
	if l.learned != nil {
		s.LearnedLost = l.learned.lost[l.id].n.Load()
		s.MessagesLost = l.messages.lost[l.id].n.Load()
	}
}
