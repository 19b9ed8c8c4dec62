package dataplane

import (
	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
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
// frame itself. It returns why the frame is to be dropped, if it is.
func (l *leafWorker) flood(f *frame, vni VNIIndex, from member, m *overlay.Meta, now mono.Time) drop.Reason {
	if !l.storms[vni].take(now) {
		return drop.StormLimit
	}
	l.stats.VNIs[vni].Flooded.Add(uint32(f.len))
	peers := l.view.tables.VNIs[vni].Flood
	local := l.view.members[vni]
	left := len(peers) + len(local)
	for _, m := range local {
		if m == from {
			left--
		}
	}
	if left == 0 {
		return drop.NoMember
	}
	for _, to := range local {
		if to == from {
			continue
		}
		if left--; left == 0 {
			return l.deliver(f, vni, to)
		}
		l.deliverCopy(f, vni, to)
	}
	for _, peer := range peers {
		if left--; left == 0 {
			l.toFabric(f, vni, peer, m, now)
		} else if c, ok := l.clone(f); ok {
			l.toFabric(&c, vni, peer, m, now)
		}
	}
	return drop.None
}

// floodLocal sends a frame from the fabric to all access ports of its VNI, and
// never back into the fabric. It returns why the frame is to be dropped, if it is.
func (l *leafWorker) floodLocal(f *frame, vni VNIIndex) drop.Reason {
	local := l.view.members[vni]
	if len(local) == 0 {
		return drop.NoMember
	}
	l.stats.VNIs[vni].Flooded.Add(uint32(f.len))
	for _, to := range local[:len(local)-1] {
		l.deliverCopy(f, vni, to)
	}
	return l.deliver(f, vni, local[len(local)-1])
}

// deliverCopy sends a copy of a frame out of an access port.
func (l *leafWorker) deliverCopy(f *frame, vni VNIIndex, to member) {
	c, ok := l.clone(f)
	if !ok {
		return
	}
	if r := l.deliver(&c, vni, to); r != drop.None {
		l.discard(&c, r)
	}
}
