package admin

import (
	"net/netip"
	"time"

	"github.com/loomfabric/loom/dataplane"
)

// SnapshotFormat is the format of [Snapshot]. It changes when a field changes its
// meaning, and not when fields are added.
const SnapshotFormat = 1

// Snapshot is the answer of /v1/snapshot: what the node knows at one moment, without
// what has an entry for each address or flow. Its parts are those of the other answers
// and have their names. A file of snapshots has one on each line, in the order of time.
type Snapshot struct {
	Format int   `json:"format"`
	Time   int64 `json:"time_ns"` // when it was taken; since 1970
	Status
	VTEP  netip.Addr `json:"vtep"` // "" of a spine
	Ports []Port     `json:"ports"`
	// NextHops are the neighbours behind ports. The MAC addresses of two nodes' ports and
	// neighbours say which port is linked to which.
	NextHops []dataplane.NextHop `json:"next_hops"`
	// Peers, Paths and Conga are a leaf's; empty of a spine.
	Peers     []Peer                `json:"peers"`
	Paths     []dataplane.PeerPaths `json:"paths"`
	Conga     []dataplane.PeerState `json:"conga"`
	Workers   []Worker              `json:"workers"`
	Drops     map[string]uint64     `json:"drops"`     // by reason; none that is 0
	Schemes   []Counters            `json:"schemes"`   // what each decided, flowlets among it
	Receivers []Counters            `json:"receivers"` // what waits to be in order, and waited
}

// snapshot asks each worker once for what all workers count, and one of them for what
// they share.
func snapshot(o *Options) *Snapshot {
	now, configs, tables := time.Now(), o.Ports(), o.Tables()
	st := o.Node.Stats()
	reasons := dataplane.Unready(configs, o.Node.PortInfos(), tables)
	counted := stats(&st)
	s := &Snapshot{
		Format: SnapshotFormat, Time: now.UnixNano(), Status: Status{o.Name, o.Role, o.Version, len(reasons) == 0, reasons}, VTEP: o.VTEP,
		Ports: ports(configs, &st, tables).Ports, NextHops: []dataplane.NextHop{},
		Peers: []Peer{}, Paths: []dataplane.PeerPaths{}, Conga: []dataplane.PeerState{},
		Workers: counted.Workers, Drops: counted.Drops, Schemes: counted.Schemes, Receivers: counted.Receivers,
	}
	s.Reasons = orEmpty(s.Reasons)
	if tables != nil {
		for _, h := range tables.Hops {
			if port := at(configs, int(h.Port)).Name; port != "" {
				s.NextHops = append(s.NextHops, dataplane.NextHop{Port: port, Gateway: h.Gateway, MAC: h.MAC.String(), Resolved: h.Resolved})
			}
		}
	}
	if o.Leaf {
		s.Conga = orEmpty(o.Node.Congestion())
		s.Paths = orEmpty(o.Node.Paths())
		s.Peers = peers(configs, &st, tables, s.Conga).Peers
	}
	return s
}
