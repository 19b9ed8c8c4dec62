package dataplane

import (
	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/internal/mono"
)

// bucket is a token bucket for frames. The zero bucket admits everything.
type bucket struct {
	rate, burst uint32 // frames per second, frames
	tokens      float64
	last        mono.Time
}

func newBucket(rate, burst uint32) bucket {
	return bucket{rate: rate, burst: max(burst, 1), tokens: float64(max(burst, 1))}
}

// take reports whether one more frame may pass at now.
func (b *bucket) take(now mono.Time) bool {
	if b.rate == 0 {
		return true
	}
	if now > b.last {
		b.tokens = min(float64(b.burst), b.tokens+float64(now-b.last)*1e-9*float64(b.rate))
		b.last = now
	}
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

// flood sends a broadcast, multicast or unknown-unicast frame from an access
// port to every other member of its VNI: the local ones, and one copy to each
// VTEP of the flood list (head-end replication). The last destination gets the
// frame itself.
func (w *worker) flood(f *frame, vni VNIIndex, from member, now mono.Time) {
	if !w.storms[vni].take(now) {
		w.discard(f, drop.StormLimit)
		return
	}
	w.stats.VNIs[vni].Flooded.Add(uint32(f.len))
	peers := w.view.tables.VNIs[vni].Flood
	local := w.view.members[vni]
	left := len(peers) + len(local)
	for _, m := range local {
		if m == from {
			left--
		}
	}
	if left == 0 {
		w.discard(f, drop.NoMember)
		return
	}
	for _, m := range local {
		if m == from {
			continue
		}
		if left--; left == 0 {
			w.deliver(f, m)
		} else if c, ok := w.clone(f); ok {
			w.deliver(&c, m)
		}
	}
	for _, peer := range peers {
		if left--; left == 0 {
			w.toFabric(f, vni, peer, now)
		} else if c, ok := w.clone(f); ok {
			w.toFabric(&c, vni, peer, now)
		}
	}
}

// floodLocal sends a frame from the fabric to all access ports of its VNI, and
// never back into the fabric.
func (w *worker) floodLocal(f *frame, vni VNIIndex) {
	local := w.view.members[vni]
	if len(local) == 0 {
		w.discard(f, drop.NoMember)
		return
	}
	w.stats.VNIs[vni].Flooded.Add(uint32(f.len))
	for _, m := range local[:len(local)-1] {
		if c, ok := w.clone(f); ok {
			w.deliver(&c, m)
		}
	}
	w.deliver(f, local[len(local)-1])
}
