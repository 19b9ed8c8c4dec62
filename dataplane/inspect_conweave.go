package dataplane

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/mono"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// ConWeaveState is what both sides of ConWeave of a leaf are at. Counters stand
// in [Stats]: WorkerStats.Schemes has those of the sources, WorkerStats.Reorder
// those of the destination.
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

	Reply     time.Duration `json:"reply_ns"`     // θ_reply
	PathBusy  time.Duration `json:"path_busy_ns"` // θ_path_busy
	Inactive  time.Duration `json:"inactive_ns"`  // θ_inactive
	Samples   int           `json:"samples"`
	Selectors int           `json:"selectors"`

	Size     int `json:"size"`     // entries of the connection table
	Active   int `json:"active"`   // connections of which something may be under way, of which
	Asked    int `json:"asked"`    // wait for the reply to their request,
	Rerouted int `json:"rerouted"` // for a CLEAR,
	Moved    int `json:"moved"`    // for a path that went away to be empty

	Connections []ConnectionEntry `json:"connections"` // those sent last first; limited
	Busy        []BusyPath        `json:"busy"`        // paths that a NOTIFY keeps flows off
}

// States of a [ConnectionEntry].
const (
	ConnectionBegins   = "begins" // its next packet asks for a reply
	ConnectionAsked    = "asked"
	ConnectionRerouted = "rerouted"
	ConnectionMoved    = "moved"
)

// ConnectionEntry is a flow that ConWeave keeps account of.
type ConnectionEntry struct {
	Hash  uint32        `json:"hash"`
	VTEP  netip.Addr    `json:"vtep"` // where to
	State string        `json:"state"`
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
// tables between two bursts: some 100 µs a worker. A spine has neither side.
func (n *Node) ConWeave(limit int) *ConWeaveState {
	if n.cfg.Role != Leaf {
		return nil
	}
	s := &ConWeaveState{Sources: []ConWeaveSource{}, Auto: n.Auto()}
	var sum reorder.Stats
	ports := make([]reorder.PortUse, orderPorts(len(n.cfg.Ports)))
	for _, w := range n.workers {
		w.call(func() {
			for i, c := range w.classes {
				if p, ok := c.policy.(balance.ConWeavePolicy); ok {
					s.Sources = append(s.Sources, w.conweaveSource(p, i, limit))
				}
			}
			side := w.order.side
			one := side.Stats()
			sum.Add(&one)
			for i := range ports {
				use := side.Port(i)
				ports[i].Add(&use)
			}
			s.Destination.params(side.Params())
		})
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
		if i < len(n.cfg.Ports) {
			p.Port = n.cfg.Ports[i].Name
		}
		d.Ports = append(d.Ports, p)
	}
	return s
}

func (d *ConWeaveDestination) params(p reorder.Params) {
	d.ResumeExtra, d.ResumeDefault, d.Inactive = p.ResumeExtra, p.ResumeDefault, p.Inactive
	d.MaxHold, d.NotifyInterval, d.Admission = p.MaxHold, p.NotifyInterval, p.Admission
	d.Limit = HoldUse{p.Queues, p.Packets, p.Bytes}
	d.PortLimit = HoldUse{p.PortQueues, p.PortPackets, p.PortBytes}
}

func (w *worker) conweaveSource(policy balance.ConWeavePolicy, class, limit int) ConWeaveSource {
	p := policy.Params()
	s := ConWeaveSource{
		Worker: w.id, Class: class, Scheme: policy.Name(),
		Reply: p.Reply, PathBusy: p.PathBusy, Inactive: p.Inactive, Samples: p.Samples, Selectors: p.Selectors,
		Size: p.Connections, Connections: []ConnectionEntry{}, Busy: []BusyPath{},
	}
	if w.view == nil {
		return s
	}
	if limit < 0 {
		limit = math.MaxInt
	}
	for c := range policy.Connections(w.now) {
		s.Active++
		switch {
		case c.Asked:
			s.Asked++
		case c.Rerouted:
			s.Rerouted++
		case c.Moved:
			s.Moved++
		}
		if limit > 0 {
			s.Connections = append(s.Connections, w.connectionEntry(&c))
		}
	}
	slices.SortFunc(s.Connections, func(a, b ConnectionEntry) int {
		return cmp.Or(cmp.Compare(a.Idle, b.Idle), cmp.Compare(a.Hash, b.Hash))
	})
	s.Connections = s.Connections[:min(limit, len(s.Connections))]
	for peer := range w.view.paths {
		s.Busy = w.busyPaths(s.Busy, policy, PeerID(peer), p.Selectors)
	}
	return s
}

func (w *worker) connectionEntry(c *balance.Connection) ConnectionEntry {
	e := ConnectionEntry{
		Hash: c.Hash, VTEP: w.peerVTEP(PeerID(c.Leaf)), State: ConnectionBegins, Epoch: uint8(c.Epoch),
		Path: c.Path.String(), Port: w.uplinkName(c.Path.Uplink()), Idle: w.now.Sub(c.Last),
	}
	switch {
	case c.Asked:
		e.State = ConnectionAsked
	case c.Rerouted:
		e.State, e.Old = ConnectionRerouted, c.Old.String()
	case c.Moved:
		e.State = ConnectionMoved
	}
	return e
}

// connectionOf returns the connection of a flow that was used last; nil: it has
// none.
func (w *worker) connectionOf(p balance.ConWeavePolicy, hash uint32) *ConnectionEntry {
	var last *ConnectionEntry
	for c := range p.Connections(w.now) {
		if c.Hash != hash {
			continue
		}
		if e := w.connectionEntry(&c); last == nil || e.Idle < last.Idle {
			last = &e
		}
	}
	return last
}

// busyPaths appends the paths to a peer that are marked. With one selector a mark
// is that of an uplink.
func (w *worker) busyPaths(busy []BusyPath, policy balance.ConWeavePolicy, peer PeerID, selectors int) []BusyPath {
	for u := range uint8(len(w.uplinks)) {
		for sel := range uint8(selectors) {
			path := overlay.MakePathID(u, sel)
			if until, ok := policy.BusyUntil(w.now, uint16(peer), path); ok {
				busy = append(busy, BusyPath{w.peerVTEP(peer), path.String(), w.uplinkName(u), mono.Time(until).Sub(w.now)})
			}
		}
	}
	return busy
}

// peerVTEP returns a peer's address; none if its place is empty.
func (w *worker) peerVTEP(peer PeerID) netip.Addr {
	if int(peer) >= len(w.view.tables.Peers) {
		return netip.Addr{}
	}
	return w.view.tables.Peers[peer].VTEP
}
