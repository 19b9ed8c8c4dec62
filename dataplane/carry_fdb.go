package dataplane

import (
	"slices"
	"time"

	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/internal/snapshot"
	"github.com/loomfabric/loom/overlay"
)

// Where an address of a snapshot is.
const (
	behindPeer = 1
	behindPort = 2
)

// carriedLen is how long an address is in a snapshot, bytes.
const carriedLen = 2 + 8 + 1 + 2 + 2 + 8

// ageSlack is how much older than its age an entry may be: the table counts in ticks.
const ageSlack = 50 * time.Millisecond

// saveFDB writes the addresses that the worker has learned: those in a range of buckets,
// and noted at since or later; 0: all. Configured ones are the reader's own.
//
// Of each port it writes first which view flushed it last, so that a reader that has an
// older copy knows which addresses have gone from there.
func (l *leafWorker) saveFDB(w *snapshot.Writer, now, since mono.Time, from, to int) {
	w.Begin(sectionFDB, versionFDB)
	defer w.End()
	w.U32(uint32(len(l.flushed)))
	for _, seq := range l.flushed {
		w.U32(seq)
	}
	window := time.Duration(1<<63 - 1)
	if since > 0 {
		window = now.Sub(since) + ageSlack
	}
	if l.kernel {
		return // the kernel tells the reader, too
	}
	for e := range l.fdb.Some(now, from, to) {
		if e.Static || e.Age > window {
			continue
		}
		w.U16(e.VNI)
		w.U64(e.MAC.Uint64())
		if e.Dest.Remote() {
			w.U8(behindPeer)
			w.U16(e.Dest.Peer())
			w.U16(0)
		} else {
			w.U8(behindPort)
			w.U16(e.Dest.Port())
			w.U16(e.Dest.VLAN())
		}
		w.U64(uint64(now - mono.Time(e.Age)))
	}
}

// carried is an address of a snapshot.
type carried struct {
	key  overlay.FDBKey
	at   overlay.Dest
	seen mono.Time
}

// readFDB reads what saveFDB wrote, the oldest address first, without those whose place
// or network is no more.
func readFDB(body []byte, t *translation) (flushed []uint32, all []carried, err error) {
	r := snapshot.NewReader(body)
	for range r.Count(4) {
		flushed = append(flushed, r.U32())
	}
	all = make([]carried, 0, r.Len()/carriedLen)
	for r.Err() == nil && r.Len() > 0 {
		vni, mac := at(t.vnis, int(r.U16())), overlay.MACFromUint64(r.U64())
		kind, where, vlan := r.U8(), int(r.U16()), r.U16()
		c := carried{seen: mono.Time(r.U64())}
		port, peer := at(t.ports, where), at(t.peers, where)
		switch {
		case kind == behindPeer && peer >= 0:
			c.at = overlay.DestRemote(uint16(peer))
		case kind == behindPort && port >= 0:
			c.at = overlay.DestLocal(uint16(port), vlan)
		}
		if r.Err() == nil && vni >= 0 && c.at != overlay.DestNone {
			c.key = overlay.MakeFDBKey(uint16(vni), mac)
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b carried) int { return int(max(-1, min(1, a.seen-b.seen))) })
	return flushed, all, r.Done()
}

// learnCarried learns the addresses of a snapshot, as of when they were noted. Those that
// are behind a port of another kind now, or behind one that is not of their network, are
// left out. before are the flushes that an earlier section spoke of: what that brought
// from ports that were flushed since has gone.
func (l *leafWorker) learnCarried(flushed, before []uint32, all []carried, t *translation, now mono.Time) (learned int) {
	for old := range min(len(flushed), len(before)) {
		if port := at(t.ports, old); port >= 0 && flushed[old] != before[old] {
			l.fdb.FlushPort(uint16(port), now)
		}
	}
	if l.kernel {
		return 0
	}
	for i := range all {
		c := &all[i]
		if !c.at.Remote() && !l.ofNetwork(c) {
			continue
		}
		if r := l.fdb.LearnKey(c.key, c.at, min(c.seen, now)); r <= overlay.LearnedMoved {
			learned++
		}
	}
	return learned
}

// ofNetwork reports whether an address's port is an access port of its network, with its
// tag.
func (l *leafWorker) ofNetwork(c *carried) bool {
	port := c.at.Port()
	if l.view == nil || int(port) >= len(l.view.ports) || l.ports[port].kind != Access {
		return false
	}
	vlans := l.view.ports[port].vlans
	return int(c.at.VLAN()) < len(vlans) && vlans[c.at.VLAN()] == uint16(c.key>>48)+1
}
