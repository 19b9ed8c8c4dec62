package dataplane

import (
	"sync/atomic"
	"time"

	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
)

// arrivalAge is how long a HELLO says by which uplinks its path ends: some rounds of all
// selectors of a large fabric.
const arrivalAge = 20 * time.Second

// arrivals notes by which uplink of this leaf the HELLOs of a peer's uplink came, for each
// selector apart. HELLOs go by all selectors in turn, and each from another outer source
// port. So arrivals shows among how many links the fabric divides what selectors and
// ports tell apart. Any worker may write; the last writer wins.
type arrivals struct {
	by   atomic.Uint64 // a uplink's LBTag for each selector, in 4 bits
	seen atomic.Uint32 // selectors that a HELLO came with, a bit each
	at   atomic.Int64  // of the last HELLO
}

// arrivalTable has the arrivals of all peers' LBTags.
type arrivalTable []arrivals

func newArrivalTable() arrivalTable { return make(arrivalTable, MaxPeers*MaxPaths) }

// note keeps that a HELLO of a peer came by an uplink.
func (t arrivalTable) note(peer PeerID, path overlay.PathID, uplink uint8, now mono.Time) {
	a, shift := &t[int(peer)*MaxPaths+int(path.Uplink())], 4*path.Selector()
	if mono.Time(a.at.Load()).Add(arrivalAge) < now {
		a.seen.Store(0)
	}
	a.by.Store(a.by.Load()&^(0xf<<shift) | uint64(uplink&0xf)<<shift)
	a.seen.Store(a.seen.Load() | 1<<path.Selector())
	a.at.Store(int64(now))
}

// Arrival is by which uplinks of this leaf comes what a peer sends by one of its own.
type Arrival struct {
	Tag       uint8    `json:"tag"`       // the peer's LBTag
	Selectors int      `json:"selectors"` // selectors, each with outer source ports of its own, that were heard from
	Ports     []string `json:"ports"`     // this leaf's uplinks that they came by
}

// of returns the arrivals of a peer, by its LBTag; those of which nothing was heard lately
// are left out.
func (t arrivalTable) of(peer PeerID, ports *layout, now mono.Time) []Arrival {
	all := []Arrival{}
	for tag := range uint8(MaxPaths) {
		a := &t[int(peer)*MaxPaths+int(tag)]
		by, seen := a.by.Load(), a.seen.Load()
		if seen == 0 || mono.Time(a.at.Load()).Add(arrivalAge) < now {
			continue
		}
		x, took := Arrival{Tag: tag, Ports: []string{}}, uint16(0)
		for s := range 16 {
			if seen>>s&1 != 0 {
				x.Selectors++
				took |= 1 << (by >> (4 * s) & 0xf)
			}
		}
		for u := range uint8(MaxPaths) {
			if name := ports.uplinkName(u); took>>u&1 != 0 && name != "" {
				x.Ports = append(x.Ports, name)
			}
		}
		all = append(all, x)
	}
	return all
}
