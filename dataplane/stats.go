package dataplane

import (
	"fmt"
	"slices"
	"time"

	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/internal/stat"
	"github.com/loomfabric/loom/leaf"
	"github.com/loomfabric/loom/reorder"
)

// Stats is a consistent copy of what the workers have counted. Each worker's
// [Account] balances exactly.
type Stats struct {
	// Workers are by queue. With Fast there is one more, the last: what XDP has forwarded by
	// itself, here or in a predecessor.
	Workers []WorkerStats
	Fast    bool       `json:",omitempty"`
	Ports   []PortInfo // by PortID; those that nobody has are without a name
}

// Sum returns what the workers counted for each port, VNI, peer, next hop, scheme and
// receiver, and for the leaf, together. Of what a worker counts for itself it has
// nothing. A worker's slices are as long as the tables that it has seen, the sum's as
// the longest.
func (s *Stats) Sum() (sum WorkerStats) {
	for i := range s.Workers {
		w := &s.Workers[i]
		stat.Add(&sum.Exchange, &w.Exchange)
		stat.Add(&sum.Leaf, &w.Leaf)
		sum.Schemes = leaf.AddSchemes(sum.Schemes, w.Schemes)
		sum.Receivers = leaf.AddReceivers(sum.Receivers, w.Receivers)
		sum.Shadows = leaf.AddShadows(sum.Shadows, w.Shadows)
		stat.Add(&sum.Gone, &w.Gone)
		addEach(&sum.Ports, w.Ports)
		addEach(&sum.Waiting, w.Waiting)
		addEach(&sum.VNIs, w.VNIs)
		addEach(&sum.PeerSent, w.PeerSent)
		addEach(&sum.PeerReceived, w.PeerReceived)
		addEach(&sum.HopSent, w.HopSent)
	}
	return sum
}

func addEach[T any](sums *[]T, add []T) {
	if n := len(add) - len(*sums); n > 0 {
		*sums = append(*sums, make([]T, n)...)
	}
	for i := range add {
		stat.Add(&(*sums)[i], &add[i])
	}
}

// Drops returns the frames that were dropped by reason; none that is 0.
func (s *Stats) Drops() map[string]uint64 {
	drops := make(map[string]uint64)
	for i := range s.Workers {
		w := &s.Workers[i]
		for p := range w.Ports {
			for r, n := range w.Ports[p].Drops {
				if n > 0 {
					drops[drop.Reason(r).String()] += n
				}
			}
		}
	}
	return drops
}

// WorkerStats is what one worker counted. Counters only grow.
type WorkerStats struct {
	_ struct{} `stat:"worker"`

	Ports    []PortStats // by PortID
	Gone     GoneStats   `stat:"-"`
	Made     uint64      `stat:"made" unit:"frames" help:"Frames made here: copies for flooding, and the fabric's own control packets."`
	Consumed uint64      `stat:"consumed" unit:"frames" help:"Control packets of the fabric that ended here, as they should."`
	Held     uint64      `stat:"held,gauge" unit:"frames" help:"Frames inside: in queues, in delay lines and waiting for neighbours."`
	Bursts   uint64      `stat:"bursts" help:"Rounds that the worker made over its ports, each with a burst or none."`
	Filled   uint64      `stat:"filled_bursts" help:"Bursts taken from a port with at least one frame in them."`
	Sleeps   uint64      `stat:"sleeps" help:"Times the worker slept for want of work."`
	// Busy is measured by the one look at the clock that each round takes.
	Busy time.Duration `stat:"busy,counter" help:"Time that the worker spent in rounds with at least one frame."`
	At   mono.Time     `stat:"-" json:"-"` // when all this was so

	// What follows is a leaf's only, but for HopSent, and for Schemes and what Leaf
	// counts of messages at a spine with a scheme of its own.
	FDBStats     `stat:"-"`
	LossStats    `stat:"-"`
	Exchange     congestion.ExchangeStats `stat:"-"`
	Leaf         leaf.Stats               `stat:"-"`
	Schemes      []leaf.SchemeStats       // by scheme in use
	Shadows      []leaf.ShadowStats       // of the classes in force
	Receivers    []leaf.ReceiverStats     // by scheme with a receiving side
	Waiting      []reorder.PortUse        // by PortID, of all that there is room for: frames that wait to be put in order; last, those for all members of a VNI
	VNIs         []VNIStats               // by VNIIndex
	PeerSent     []Traffic                // by PeerID: encapsulated towards it
	PeerReceived []Traffic                // by PeerID: decapsulated from it
	HopSent      []Traffic                // by HopID
}

// GoneStats counts what ports did that are gone, and whose PortIDs others have.
type GoneStats struct {
	_ struct{} `stat:"gone_ports"`

	Received Traffic `stat:"received" help:"received by ports that were removed, and whose places others have by now"`
	Sent     Traffic `stat:"sent" help:"sent by ports that were removed, and whose places others have by now"`
	Dropped  uint64  `stat:"dropped" unit:"frames" help:"Frames dropped that came in by ports which were removed, and whose places others have by now."`
}

// add adds what a port has counted.
func (g *GoneStats) add(p *PortStats) {
	stat.Add(&g.Received, &p.Received)
	stat.Add(&g.Sent, &p.Sent)
	g.Dropped += p.Dropped()
}

// FDBStats counts what became of MAC addresses.
type FDBStats struct {
	_ struct{} `stat:"fdb"`

	FDBEntries uint64 `stat:"entries,gauge" help:"MAC addresses in the worker's table."`
	FDBLearned uint64 `stat:"learned" help:"MAC addresses learned."`
	FDBMoved   uint64 `stat:"moved" help:"Learned MAC addresses that appeared elsewhere."`
	FDBHeld    uint64 `stat:"held" unit:"frames" help:"Frames whose source address was not moved, as it had moved more than five times within a second and is held where it was for five."`
	FDBAged    uint64 `stat:"aged" help:"Learned MAC addresses forgotten because they were not seen for long."`
	FDBEvicted uint64 `stat:"evicted" help:"Learned MAC addresses forgotten for others: of their VNI or port at its limit, or of a VNI above its part of a full table."`
	FDBFull    uint64 `stat:"full" help:"MAC addresses not learned because the table or their bucket was full of what other VNIs have a right to."`
	FDBStatic  uint64 `stat:"static" help:"MAC addresses not learned because they are configured elsewhere."`
	FDBRefused uint64 `stat:"refused" help:"Static MAC addresses, and those of the kernel's overlay, that found no room in a worker's table or in that of the XDP programs."`
}

// LossStats counts what other workers were not told because they were behind.
type LossStats struct {
	_ struct{} `stat:"leaf"`

	LearnedLost  uint64 `stat:"learned_lost" metric:"loom_fdb_gossip_lost" help:"Learned MAC addresses that did not reach another worker, as it was behind."`
	MessagesLost uint64 `stat:"messages_lost" help:"Control packets that did not reach another worker, as it was behind."`
}

// VNIStats counts one virtual network.
type VNIStats struct {
	_ struct{} `stat:"vni"`

	Encapsulated Traffic `stat:"encapsulated" help:"of the VNI put into tunnels, replicas included, outer headers not"`
	Decapsulated Traffic `stat:"decapsulated" help:"of the VNI taken out of tunnels, outer headers not included"`
	Local        Traffic `stat:"local" help:"of the VNI forwarded to an access port of the leaf they came in by"`
	Flooded      Traffic `stat:"flooded" help:"of the VNI flooded, each once, however many copies were made"`
	// Each worker has a table with the addresses of all.
	FDBEntries uint64 `stat:"fdb_entries,max" help:"MAC addresses of the VNI in the fullest worker's table."`
}

// Traffic is a frame count and the sum of the frames' lengths.
type Traffic = stat.Amount

// PortStats counts one queue of one port.
type PortStats struct {
	_ struct{} `stat:"port"`

	Received Traffic `stat:"received" help:"received"`
	Sent     Traffic `stat:"sent" help:"sent"`
	Marked   Traffic `stat:"marked" help:"on which congestion was marked here (ECN CE)"`
	// Drops are charged to the port that the frame came in by.
	Drops      drop.Counts `stat:"-"`
	QueueBytes uint64      `stat:"queue_bytes,gauge" unit:"bytes" help:"Bytes in the data queue."`
	// QueueDepth replaces a peak, which says neither when nor how often.
	QueueDepth  stat.Sizes `stat:"queue_depth" unit:"bytes" help:"Bytes in a worker's data queue, at each round in which frames wait there."`
	QueueFrames uint64     `stat:"queue_frames,gauge" unit:"frames" help:"Frames in the data queue."`
	// Utilisation is a share of the link's rate, all workers together; 0 when that is
	// unknown. Metric is the same, quantised: what CE is raised to.
	Utilisation float64 `stat:"-,max"`
	Metric      uint8   `stat:"-,max"`
	CERaised    uint64  `stat:"ce_raised" unit:"frames" help:"Frames whose CE, the congestion that they met so far, was raised to the port's metric."`
	TXAbandoned uint64  `stat:"tx_abandoned" unit:"frames" help:"Frames counted as sent that were on the TX ring when the interface vanished."`
	Finished    uint64  `stat:"checksums_finished" unit:"frames" help:"Frames from hosts, and out of tunnels, whose TCP or UDP checksum was left to a network card, and was computed here."`
	MetaMissing uint64  `stat:"metadata_missing" unit:"frames" help:"Frames parsed again because the XDP program left no metadata."`
	SocketStats
}

// Dropped returns the sum of the drops.
func (s *PortStats) Dropped() (sum uint64) {
	for _, n := range s.Drops {
		sum += n
	}
	return sum
}

// SocketStats is what the kernel counted for an AF_XDP socket (XDP_STATISTICS), and
// what its rings met.
type SocketStats struct {
	_ struct{} `stat:"xsk"`

	RXDropped  uint64 `stat:"rx_dropped" help:"Frames that the kernel dropped before the RX ring for another reason than a full ring."`
	RXRingFull uint64 `stat:"rx_ring_full" help:"Frames that the kernel dropped because the RX ring was full."`
	FillEmpty  uint64 `stat:"fill_ring_empty" help:"Times the kernel found no frame to receive into; what arrived then was lost, before any worker could count it by name."`
	RXInvalid  uint64 `stat:"rx_invalid_descriptors" help:"Descriptors on the fill ring that the kernel refused."`
	TXInvalid  uint64 `stat:"tx_invalid_descriptors" help:"Descriptors on the TX ring that the kernel refused."`
	TXEmpty    uint64 `stat:"tx_ring_empty" help:"Times the kernel found the TX ring empty."`
	TXFull     uint64 `stat:"tx_ring_full" help:"Times the TX ring had no room for what was to be sent."`
	Kicks      uint64 `stat:"kicks" help:"System calls that told the kernel to send."`
	KickAgain  uint64 `stat:"kick_again" help:"Kicks that the kernel was too busy for and that were repeated."`
	KickErrors uint64 `stat:"kick_errors" help:"Kicks that failed, as while the link is down."`
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
	Received uint64 `json:"received"`
	Made     uint64 `json:"made"`
	Sent     uint64 `json:"sent"`
	Dropped  uint64 `json:"dropped"`
	Consumed uint64 `json:"consumed"`
	Held     uint64 `json:"held"`
}

// Account adds up the worker's frames.
func (s *WorkerStats) Account() Account {
	a := Account{Made: s.Made, Consumed: s.Consumed, Held: s.Held}
	for i := range s.Ports {
		p := &s.Ports[i]
		a.Received += p.Received.Frames
		a.Sent += p.Sent.Frames
		a.Dropped += p.Dropped()
	}
	a.Received += s.Gone.Received.Frames
	a.Sent += s.Gone.Sent.Frames
	a.Dropped += s.Gone.Dropped
	return a
}

// Add adds another worker's account.
func (a *Account) Add(b Account) { stat.Add(a, &b) }

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
	s.FDBStats = l.stats.FDBStats
	s.FDBEntries, s.FDBEvicted = uint64(l.fdb.Len()), l.fdb.Evicted()
	s.VNIs = slices.Clone(l.stats.VNIs)
	s.PeerSent, s.PeerReceived = slices.Clone(l.stats.PeerSent), slices.Clone(l.stats.PeerReceived)
	for i := range s.VNIs {
		s.VNIs[i].FDBEntries = uint64(l.fdb.Count(uint16(i)))
	}
	s.Exchange, s.Leaf = l.brain.Exchange(), l.brain.Stats()
	s.Schemes, s.Receivers, s.Shadows = l.brain.SchemeStats(), l.brain.ReceiverStats(), l.brain.ShadowStats()
	if r, ok := l.brain.Receiver(reorder.SchemeID).(*reorder.ConWeave); ok {
		for i := range arrivalPorts(l.cfg.Room) {
			s.Waiting = append(s.Waiting, r.Port(i))
		}
	}
	if l.learned != nil {
		s.LearnedLost = l.learned.lost[l.id].n.Load()
		s.MessagesLost = l.messages.lost[l.id].n.Load()
	}
}
