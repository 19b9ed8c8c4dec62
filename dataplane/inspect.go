package dataplane

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
)

// What people may ask a running node. Answers are made of copies that a worker
// takes between two bursts; of large tables in parts, because frames wait
// meanwhile. The names in the answers' tags are those of the admin API.

// How much of a table a worker looks at between two bursts: a few ten
// microseconds' worth if all of it is in use.
const (
	lookFlowlets       = 4096
	lookBuckets        = 1024
	lookConnectionSets = 256
	lookPaths          = 4096
	lookPeers          = 32
)

// inParts looks through a table of a worker. For a part of its size places after
// the other it has look, on the worker's thread, append what is to be seen there,
// and then take, not on it, look at that, until take has enough and returns false.
// What takes long belongs into take: it sorts, counts and formats. One call of look
// appends about as many as room.
func inParts[T any](w *worker, size, step, room int, look func(part []T, from, to int) []T, take func(part []T) bool) {
	part := make([]T, 0, room)
	for from := 0; from < size; from += step {
		w.call(func() { part = look(part[:0], from, min(from+step, size)) })
		if !take(part) {
			return
		}
	}
}

// leaves returns the workers of a leaf; none on a spine.
func (n *Node) leaves() (all []*leafWorker) {
	for _, w := range n.workers {
		if w.leaf != nil {
			all = append(all, w.leaf)
		}
	}
	return all
}

// PeerState is what a leaf knows of the way to one peer.
type PeerState struct {
	_ struct{} `stat:"peer"`

	VTEP    netip.Addr `json:"vtep"`
	Capable bool       `json:"capable" help:"1 while the peer proves that it reads the fabric's fields; 0: it is sent plain VXLAN."`
	// State is why: unproved, capable, left (it said goodbye) or silent.
	State string `json:"state" stat:"-"`
	// Paths are this leaf's uplinks, by number: the Congestion-To-Leaf table.
	Paths []PathState `json:"paths"`
	// FromLeaf is the Congestion-From-Leaf table: by the peer's uplink, what is
	// fed back to it. Tags without a metric are left out.
	FromLeaf []TagMetric `json:"from_leaf"`
}

// PathState is one uplink of this leaf, on the way to one peer.
type PathState struct {
	_ struct{} `stat:"congestion_to_leaf"`

	Uplink      uint8   `json:"uplink" stat:"-"` // its LBTag
	Port        string  `json:"port"`
	Usable      bool    `json:"usable" stat:"-"`       // a next hop of the peer is behind it
	Avoided     bool    `json:"avoided" stat:"-"`      // traffic keeps off it: the peer says that it does not deliver
	Local       uint8   `json:"local_metric" stat:"-"` // of its own link
	Utilisation float64 `json:"utilisation" stat:"-"`  // of its own link, share of the rate; 0: rate unknown
	Remote      uint8   `json:"remote_metric" stat:"metric" help:"Congestion of the paths from here to the peer that start on the uplink of this tag, as the peer reported it."`
	// RemoteKnown is false as long as the peer has fed back nothing; RemoteAge
	// is the time since it last did.
	RemoteKnown bool          `json:"remote_known" stat:"-"`
	RemoteAge   time.Duration `json:"remote_age_ns" stat:"age" help:"Time since loom_congestion_to_leaf_metric was confirmed, to 1/16 of the ageing time."`
}

// TagMetric is a metric that is fed back for an uplink of a peer.
type TagMetric struct {
	_ struct{} `stat:"congestion_from_leaf"`

	Tag    uint8         `json:"tag" stat:"-"`
	Metric uint8         `json:"metric" help:"Congestion of the paths from the peer to here that start on its uplink of this tag, as it was measured."`
	Age    time.Duration `json:"age_ns" help:"Time since loom_congestion_from_leaf_metric was confirmed, to 1/16 of the ageing time."`
}

// Congestion returns what a leaf knows of the congestion towards and from each
// peer; nothing on a spine and before the first tables.
func (n *Node) Congestion() (peers []PeerState) {
	if n.cfg.Role != Leaf {
		return nil
	}
	w := n.workers[0].leaf
	size := 0
	w.call(func() {
		if w.view != nil {
			size = len(w.view.tables.Peers)
		}
	})
	look := func(part []PeerState, from, to int) []PeerState {
		for i := from; i < min(to, len(w.view.tables.Peers)); i++ {
			if w.view.tables.Peers[i].VTEP.IsValid() {
				part = append(part, w.peerState(PeerID(i), w.now))
			}
		}
		return part
	}
	inParts(w.worker, size, lookPeers, lookPeers, look, func(part []PeerState) bool {
		peers = append(peers, part...)
		return true
	})
	return peers
}

func (l *leafWorker) peerState(peer PeerID, now mono.Time) PeerState {
	s := PeerState{
		VTEP:     l.view.tables.Peers[peer].VTEP,
		FromLeaf: []TagMetric{},
	}
	standing := l.shared.leaf.Capable.Standing(uint16(peer), now)
	s.Capable, s.State = standing == overlay.Proved, standing.String()
	for u, p := range l.uplinks {
		if p != NoPort {
			s.Paths = append(s.Paths, l.pathState(peer, uint8(u), now))
		}
	}
	for tag := range uint8(congestion.MaxTags) {
		if m, age, ok := l.shared.leaf.From.Entry(uint16(peer), tag, now); ok {
			s.FromLeaf = append(s.FromLeaf, TagMetric{Tag: tag, Metric: m, Age: age})
		}
	}
	return s
}

func (l *leafWorker) pathState(peer PeerID, uplink uint8, now mono.Time) PathState {
	e := &l.ports[l.uplinks[uplink]].egress
	s := PathState{
		Uplink: uplink, Port: l.view.layout.uplinkName(uplink), Usable: l.view.paths[peer].Index[uplink] >= 0,
		Avoided: l.shared.leaf.Paths.Dead(uint16(peer))>>uplink&1 != 0,
		Local:   e.meter.Metric(now, e.rate), Utilisation: e.meter.Utilisation(now, e.rate),
	}
	if m, age, ok := l.shared.leaf.To.Entry(uint16(peer), uplink, now); ok {
		s.Remote, s.RemoteAge, s.RemoteKnown = m, age, true
	}
	return s
}

// FlowletTable is one worker's flowlet table of one traffic class.
type FlowletTable struct {
	Worker  int            `json:"worker"`
	Class   int            `json:"class"` // in order of precedence; the last one is the default
	Scheme  string         `json:"scheme"`
	Size    int            `json:"size"` // entries
	Used    int            `json:"used"` // ever
	Active  int            `json:"active"`
	Started uint64         `json:"started"` // the sum of moved, kept and new flows
	Moved   uint64         `json:"moved"`
	Kept    uint64         `json:"kept"`
	Expired uint64         `json:"expired"`
	Entries []FlowletEntry `json:"entries"` // active ones first, then by slot; limited
}

// FlowletEntry is a place in a flowlet table, which all flows share whose hash
// ends in its number.
type FlowletEntry struct {
	Slot   uint32        `json:"slot"`
	Uplink uint8         `json:"uplink"`
	Port   string        `json:"port"`
	Active bool          `json:"active"` // else it is where the last flowlet went
	Idle   time.Duration `json:"idle_ns"`
}

// Flowlets returns the flowlet tables of all workers and classes, with up to
// limit entries each; a limit below 0: all. Schemes without flowlets have none.
func (n *Node) Flowlets(limit int) []FlowletTable {
	var all []FlowletTable
	for _, w := range n.leaves() {
		var classes []*class
		w.call(func() { classes = w.classes })
		for i, c := range classes {
			if p, ok := c.Policy.(balance.FlowletPolicy); ok {
				t := w.flowletTable(n.layout.Load(), p.Flowlets(), limit)
				t.Class, t.Scheme = i, c.Scheme.Name
				all = append(all, t)
			}
		}
	}
	return all
}

// flowletTable copies a table that stays this worker's even when a reload has
// put another one in its place.
func (l *leafWorker) flowletTable(ports *layout, table *congestion.Flowlets, limit int) FlowletTable {
	t := FlowletTable{Worker: l.id, Size: table.Len(), Entries: []FlowletEntry{}}
	if limit < 0 {
		limit = math.MaxInt
	}
	idle := []FlowletEntry{} // shown only when there is room behind the active ones
	look := func(part []congestion.Flowlet, from, to int) []congestion.Flowlet {
		for slot := from; slot < to; slot++ {
			if f, ok := table.Find(uint32(slot), l.now); ok {
				part = append(part, f)
			}
		}
		s := table.Stats()
		t.Started, t.Moved, t.Kept, t.Expired = s.Started, s.Moved, s.Kept, s.Expired
		return part
	}
	inParts(l.worker, t.Size, lookFlowlets, lookFlowlets, look, func(part []congestion.Flowlet) bool {
		t.Used += len(part)
		for _, f := range part {
			list := &idle
			if f.Active {
				t.Active++
				list = &t.Entries
			}
			if len(*list) < limit {
				*list = append(*list, ports.flowletEntry(f))
			}
		}
		return true
	})
	t.Entries = append(t.Entries, idle[:min(len(idle), limit-len(t.Entries))]...)
	return t
}

func (l *layout) flowletEntry(f congestion.Flowlet) FlowletEntry {
	return FlowletEntry{f.Slot, f.Uplink, l.uplinkName(f.Uplink), f.Active, f.Idle}
}

// FDBTable is the MAC addresses that a node knows.
type FDBTable struct {
	// Total is how many there are: in the table of the worker with the most.
	Total   int        `json:"total"`
	Entries []FDBEntry `json:"entries"` // by VNI and address; limited
}

// FDBEntry is one address. It lives behind a peer (VTEP) or an access port.
type FDBEntry struct {
	VNI    uint32        `json:"vni"`
	MAC    string        `json:"mac"`
	VTEP   netip.Addr    `json:"vtep"` // "" when local
	Port   string        `json:"port"` // "" when remote
	VLAN   uint16        `json:"vlan"` // tag on the port; 0: none
	Static bool          `json:"static"`
	Age    time.Duration `json:"age_ns"` // since it was last noted
}

// FDB returns up to limit addresses (below 0: all) of those that any worker
// knows; each worker has a table of its own, and the freshest entry counts.
func (n *Node) FDB(limit int) FDBTable {
	t := FDBTable{Entries: []FDBEntry{}}
	seen := make(map[overlay.FDBKey]overlay.FDBEntry)
	var v *view
	for _, w := range n.leaves() {
		look := func(part []overlay.FDBEntry, from, to int) []overlay.FDBEntry {
			if w.view == nil {
				return part
			}
			v, t.Total = w.view, max(t.Total, w.fdb.Len())
			return slices.AppendSeq(part, w.fdb.Some(w.now, from, to))
		}
		inParts(w.worker, w.fdb.Buckets(), lookBuckets, 4*lookBuckets, look, func(part []overlay.FDBEntry) bool {
			for _, e := range part {
				key := overlay.MakeFDBKey(e.VNI, e.MAC)
				if have, ok := seen[key]; !ok && (limit < 0 || len(seen) < limit) || ok && e.Age < have.Age {
					seen[key] = e
				}
			}
			return limit < 0 || len(seen) < limit
		})
	}
	for _, e := range seen {
		t.Entries = append(t.Entries, v.fdbEntry(e))
	}
	slices.SortFunc(t.Entries, func(a, b FDBEntry) int {
		return cmp.Or(cmp.Compare(a.VNI, b.VNI), cmp.Compare(a.MAC, b.MAC))
	})
	return t
}

func (v *view) fdbEntry(e overlay.FDBEntry) FDBEntry {
	t := v.tables
	x := FDBEntry{MAC: e.MAC.String(), Static: e.Static, Age: e.Age}
	if int(e.VNI) < len(t.VNIs) { // tables only grow, and e may be newer than t
		x.VNI = uint32(t.VNIs[e.VNI].VNI)
	}
	switch {
	case !e.Dest.Remote():
		x.Port, x.VLAN = v.layout.name(PortID(e.Dest.Port())), e.Dest.VLAN()
	case int(e.Dest.Peer()) < len(t.Peers):
		x.VTEP = t.Peers[e.Dest.Peer()].VTEP
	}
	return x
}
