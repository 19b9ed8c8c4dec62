package dataplane

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/internal/stat"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// ConWeaveState shows both sides of ConWeave of a leaf. Counters stand in [Stats]:
// WorkerStats.Schemes has those of the sources, WorkerStats.Receivers those of the
// destination.
type ConWeaveState struct {
	Sources     []ConWeaveSource    `json:"sources"` // none: no class has a scheme of ConWeave's
	Destination ConWeaveDestination `json:"destination"`
	Auto        *AutoState          `json:"auto"` // null: no time is derived from round trips
}

// ConWeaveSource is the source side of one worker and one traffic class.
type ConWeaveSource struct {
	Worker int    `json:"worker"`
	Class  int    `json:"class"` // in order of precedence; the last one is the default
	Scheme string `json:"scheme"`

	Reply time.Duration `json:"reply_ns"` // θ_reply
	// ReplyExtra is what θ_reply is above a leaf's shortest round trip; 0: θ_reply is Reply.
	ReplyExtra time.Duration `json:"reply_extra_ns"`

	PathBusy  time.Duration `json:"path_busy_ns"` // θ_path_busy
	Inactive  time.Duration `json:"inactive_ns"`  // θ_inactive
	Samples   int           `json:"samples"`
	Selectors int           `json:"selectors"`

	Size int `json:"size"` // entries of the connection table
	// Active are connections with packets that may be under way. Asked wait for the
	// reply to their request, Rerouted for a CLEAR, and Moved for a path that went away
	// to be empty.
	Active   int `json:"active"`
	Asked    int `json:"asked"`
	Rerouted int `json:"rerouted"`
	Moved    int `json:"moved"`

	Connections []ConnectionEntry `json:"connections"` // those sent last first; limited
	Busy        []BusyPath        `json:"busy"`        // paths that a NOTIFY keeps flows off
}

// ConnectionEntry is a flow that ConWeave keeps account of.
type ConnectionEntry struct {
	Hash  uint32        `json:"hash"`
	VTEP  netip.Addr    `json:"vtep"`  // where to
	State string        `json:"state"` // see balance.Connection
	Epoch uint8         `json:"epoch"`
	Path  string        `json:"path"`     // uplink and selector
	Old   string        `json:"old_path"` // of what was sent before the TAIL; "" unless rerouted
	Port  string        `json:"port"`     // the uplink's
	Idle  time.Duration `json:"idle_ns"`
}

// BusyPath is a path that flows to a leaf are kept off.
type BusyPath struct {
	VTEP netip.Addr    `json:"vtep"`
	Path string        `json:"path"`
	Port string        `json:"port"`
	For  time.Duration `json:"for_ns"` // from now on
}

// ConWeaveDestination is the destination side: what is held, all workers
// together. The limits are those of each worker.
type ConWeaveDestination struct {
	ResumeExtra    time.Duration `json:"resume_extra_ns"`   // θ_resume_extra
	ResumeDefault  time.Duration `json:"resume_default_ns"` // θ_resume_default
	Inactive       time.Duration `json:"inactive_ns"`
	MaxHold        time.Duration `json:"max_hold_ns"`
	NotifyInterval time.Duration `json:"notify_interval_ns"`
	Admission      int           `json:"admission_percent"`

	Limit     HoldUse       `json:"limit"`
	PortLimit HoldUse       `json:"port_limit"`
	Held      HoldUse       `json:"held"`
	Peak      HoldUse       `json:"peak"`  // of the worker with the most
	Ports     []PortHoldUse `json:"ports"` // that ever held something; Port is "" for frames to all of a VNI
}

// HoldUse is how much is held.
type HoldUse struct {
	Queues  int    `json:"queues"`
	Packets int    `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

// PortHoldUse is how much is held for one egress port.
type PortHoldUse struct {
	Port string  `json:"port"`
	Held HoldUse `json:"held"`
	Peak HoldUse `json:"peak"` // of the worker with the most
}

// ConWeave returns what both sides of ConWeave are at, with up to limit
// connections for each worker and class (below 0: all). It looks through whole
// tables even if the limit is 0, to count. A spine has neither side.
func (n *Node) ConWeave(limit int) *ConWeaveState {
	if n.cfg.Role != Leaf {
		return nil
	}
	s := &ConWeaveState{Sources: []ConWeaveSource{}, Auto: n.Auto()}
	var sum reorder.Stats
	ports := make([]reorder.PortUse, arrivalPorts(n.cfg.Room))
	for _, w := range n.leaves() {
		var classes []*class
		w.call(func() {
			classes = w.classes
			side := w.brain.Receiver(reorder.SchemeID).(*reorder.ConWeave)
			one := side.Counters()
			stat.Add(&sum, &one)
			for i := range ports {
				use := side.Port(i)
				stat.Add(&ports[i], &use)
			}
			s.Destination.params(side.Params())
		})
		for i, c := range classes {
			if p, ok := c.Policy.(balance.ConWeavePolicy); ok {
				s.Sources = append(s.Sources, w.conweaveSource(p, c.Scheme.Name, i, limit))
			}
		}
	}
	d := &s.Destination
	d.Held = HoldUse{sum.InUse, sum.Waiting, sum.WaitingBytes}
	d.Peak = HoldUse{sum.InUsePeak, sum.WaitingPeak, sum.WaitingBytesPeak}
	d.Ports = []PortHoldUse{}
	for i, u := range ports {
		if u.QueuesPeak == 0 {
			continue
		}
		p := PortHoldUse{Held: HoldUse{u.Queues, u.Packets, u.Bytes}, Peak: HoldUse{u.QueuesPeak, u.PacketsPeak, u.BytesPeak}}
		p.Port = n.layout.Load().name(PortID(i))
		d.Ports = append(d.Ports, p)
	}
	return s
}

func (d *ConWeaveDestination) params(p reorder.Params) {
	d.ResumeExtra, d.ResumeDefault, d.Inactive = p.ResumeExtra, p.ResumeDefault, p.Inactive
	d.MaxHold, d.NotifyInterval, d.Admission = p.MaxHold, p.NotifyInterval, p.Admission
	d.Limit = HoldUse{p.Queues, p.Packets, uint64(p.Bytes)}
	d.PortLimit = HoldUse{p.PortQueues, p.PortPackets, uint64(p.PortBytes)}
}

// conweaveSource shows the source side of a class that stays this worker's even
// when a reload has put another one in its place.
func (l *leafWorker) conweaveSource(policy balance.ConWeavePolicy, scheme string, class, limit int) ConWeaveSource {
	var p balance.ConWeaveSource
	var v *view
	l.call(func() { p, v = policy.Params(), l.view })
	s := ConWeaveSource{
		Worker: l.id, Class: class, Scheme: scheme,
		Reply: p.Reply, ReplyExtra: p.ReplyExtra, PathBusy: p.PathBusy, Inactive: p.Inactive, Samples: p.Samples, Selectors: p.Selectors,
		Size: p.Connections, Connections: []ConnectionEntry{}, Busy: []BusyPath{},
	}
	if v == nil {
		return s
	}
	if limit < 0 {
		limit = math.MaxInt
	}
	l.showConnections(&s, policy, limit)
	l.showBusy(&s, policy, v)
	return s
}

// showConnections counts the connections and lists those that sent last.
func (l *leafWorker) showConnections(s *ConWeaveSource, policy balance.ConWeavePolicy, limit int) {
	var v *view
	look := func(part []balance.Connection, from, to int) []balance.Connection {
		v = l.view // of a connection's leaf: it may be newer than what was asked before
		return slices.AppendSeq(part, policy.Connections(l.now, from, to))
	}
	var last []balance.Connection
	sets := policy.ConnectionSets()
	inParts(l.worker, sets, lookConnectionSets, s.Size/sets*lookConnectionSets, look, func(part []balance.Connection) bool {
		s.Active += len(part)
		for i := range part {
			switch part[i].State {
			case balance.ConnectionAsked:
				s.Asked++
			case balance.ConnectionRerouted:
				s.Rerouted++
			case balance.ConnectionMoved:
				s.Moved++
			}
		}
		if limit > 0 {
			last = append(last, part...)
		}
		if len(last)/2 > limit { // not more often: sorting is to cost little for each of them
			last = sentLast(last, limit)
		}
		return true
	})
	for _, c := range sentLast(last, limit) {
		s.Connections = append(s.Connections, v.connectionEntry(&c))
	}
}

// sentLast returns those up to limit that sent last, in order.
func sentLast(list []balance.Connection, limit int) []balance.Connection {
	slices.SortFunc(list, func(a, b balance.Connection) int {
		return cmp.Or(cmp.Compare(a.Idle, b.Idle), cmp.Compare(a.Hash, b.Hash), cmp.Compare(a.Leaf, b.Leaf))
	})
	return list[:min(limit, len(list))]
}

func (v *view) connectionEntry(c *balance.Connection) ConnectionEntry {
	e := ConnectionEntry{
		Hash: c.Hash, VTEP: v.tables.peerVTEP(PeerID(c.Leaf)), State: c.State, Epoch: uint8(c.Epoch),
		Path: c.Path.String(), Port: v.layout.uplinkName(c.Path.Uplink()), Idle: c.Idle,
	}
	if c.State == balance.ConnectionRerouted {
		e.Old = c.Old.String()
	}
	return e
}

// connectionOf returns the connection of a flow that was used last; nil: it has
// none. It is called on the worker's thread.
func (l *leafWorker) connectionOf(p balance.ConWeavePolicy, hash uint32) *ConnectionEntry {
	if of := sentLast(slices.Collect(p.ConnectionsOf(l.now, hash)), 1); len(of) > 0 {
		e := l.view.connectionEntry(&of[0])
		return &e
	}
	return nil
}

// busyPath is a path to a peer that is marked, and for how long from when it was
// looked at.
type busyPath struct {
	peer PeerID
	path overlay.PathID
	left time.Duration
}

// showBusy lists the paths to all peers that are marked. With one selector a mark
// is that of an uplink.
func (l *leafWorker) showBusy(s *ConWeaveSource, policy balance.ConWeavePolicy, v *view) {
	look := func(part []busyPath, from, to int) []busyPath {
		for peer := from; peer < to; peer++ {
			for i := range len(v.layout.uplinks) * s.Selectors {
				path := overlay.MakePathID(uint8(i/s.Selectors), uint8(i%s.Selectors))
				if until, ok := policy.BusyUntil(l.now, uint16(peer), path); ok {
					part = append(part, busyPath{PeerID(peer), path, until.Sub(l.now)})
				}
			}
		}
		return part
	}
	step := max(lookPaths/max(len(v.layout.uplinks)*s.Selectors, 1), 1)
	inParts(l.worker, len(v.tables.Peers), step, 64, look, func(part []busyPath) bool {
		for _, b := range part {
			s.Busy = append(s.Busy, BusyPath{v.tables.peerVTEP(b.peer), b.path.String(), v.layout.uplinkName(b.path.Uplink()), b.left})
		}
		return true
	})
}

// peerVTEP returns a peer's address; none if its place is empty.
func (t *Tables) peerVTEP(peer PeerID) netip.Addr {
	if int(peer) >= len(t.Peers) {
		return netip.Addr{}
	}
	return t.Peers[peer].VTEP
}
