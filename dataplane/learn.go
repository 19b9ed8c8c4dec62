package dataplane

import (
	"time"

	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
)

const (
	sweepEvery   = mono.Time(10 * time.Millisecond)
	sweepBuckets = 64 // FDB buckets looked at for aged entries in one sweep
)

// recent is the last address that was learned, and the last that was found, in
// this round. The frames of a burst mostly have both in common; news from
// elsewhere come between rounds.
type recent struct {
	learned, found overlay.FDBKey // 0: none
	at, to         overlay.Dest
}

// find looks a destination address up.
func (w *worker) find(key overlay.FDBKey, now mono.Time) overlay.Dest {
	if key == w.recent.found {
		return w.recent.to
	}
	to := w.fdb.LookupKey(key, now)
	if to != overlay.DestNone {
		w.recent.found, w.recent.to = key, to
	}
	return to
}

// learn tells the FDB where a source address was seen.
func (w *worker) learn(key overlay.FDBKey, at overlay.Dest, now mono.Time) {
	if key != w.recent.learned || at != w.recent.at {
		w.learnNews(key, at, now)
	}
}

func (w *worker) learnNews(key overlay.FDBKey, at overlay.Dest, now mono.Time) {
	w.recent.learned, w.recent.at = key, at
	switch w.fdb.LearnKey(key, at, now) {
	case overlay.LearnedKnown:
		return
	case overlay.LearnedRefused:
		w.recent.learned = 0
		return
	case overlay.LearnedRefreshed:
	case overlay.LearnedNew:
		w.stats.FDBLearned++
	case overlay.LearnedMoved:
		w.stats.FDBMoved++
		w.recent.found = 0 // it may be the one
	case overlay.LearnedFull, overlay.LearnedLimit:
		w.stats.FDBFull++
		w.recent.learned = 0 // every frame counts
		return
	case overlay.LearnedStatic:
		w.stats.FDBStatic++
		w.recent.learned = 0
		return
	}
	if w.gossip != nil {
		w.gossip.tell(w.id, &learned{key, at, w.view.seq})
	}
}

// age forgets old addresses, a few buckets at a time.
func (w *worker) age(now mono.Time) {
	if w.fdb == nil || now < w.sweep {
		return
	}
	w.sweep = now + sweepEvery
	w.stats.FDBAged += uint64(w.fdb.Sweep(now, sweepBuckets))
}

// learned is what one worker tells the others about an address: receive-side
// scaling may bring the two directions of a conversation to different workers,
// and each has an FDB of its own. An event that gets lost is told again with the
// next refresh, a quarter of the ageing time later at most.
type learned struct {
	key overlay.FDBKey
	at  overlay.Dest
	seq uint32 // of the teller's view
}

// hear learns what the other workers told this one.
func (w *worker) hear(now mono.Time) {
	for from := range w.gossip.workers {
		r := w.gossip.between(from, w.id)
		for e := r.front(); e != nil; e = r.front() {
			// Told before the teller knew that the port had gone down: this
			// worker has forgotten the address for that very reason.
			if e.at.Remote() || int32(e.seq-w.flushed[e.at.Port()]) >= 0 {
				w.fdb.LearnKey(e.key, e.at, now)
			}
			r.pop()
		}
	}
}

// adoptLeaf brings FDB, limits and counters in line with new tables.
func (w *worker) adoptLeaf(old, v *view) {
	t := v.tables
	w.stats.VNIs = grow(w.stats.VNIs, len(t.VNIs))
	w.stats.PeerSent = grow(w.stats.PeerSent, len(t.Peers))
	w.stats.PeerReceived = grow(w.stats.PeerReceived, len(t.Peers))
	for i := range t.VNIs {
		n := &t.VNIs[i]
		if i == len(w.storms) {
			w.storms = append(w.storms, newBucket(n.StormRate, n.StormBurst))
		} else if b := &w.storms[i]; b.rate != n.StormRate || b.burst != max(n.StormBurst, 1) {
			*b = newBucket(n.StormRate, n.StormBurst)
		}
		w.fdb.SetLimit(uint16(i), int(n.FDBLimit))
	}
	if old != nil {
		for _, s := range old.tables.Static {
			w.fdb.DeleteStatic(uint16(s.VNI), s.MAC)
		}
		for i := range v.ports {
			if old.ports[i].up && !v.ports[i].up && w.ports[i].kind == Access {
				w.stats.FDBAged += uint64(w.fdb.FlushPort(uint16(i)))
				w.flushed[i] = v.seq
			}
		}
	}
	for _, s := range t.Static {
		at := overlay.DestRemote(uint16(s.Peer))
		if s.Port != NoPort {
			at = overlay.DestLocal(uint16(s.Port), s.VLAN)
		}
		w.fdb.SetStatic(uint16(s.VNI), s.MAC, at)
	}
}
