package dataplane

import (
	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/internal/gcra"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
)

// storm bounds flooded frames, and their bytes. The zero storm admits everything.
type storm struct{ frames, bytes gcra.Bucket }

// StormLimit bounds what a worker floods. The zero value bounds nothing.
type StormLimit struct {
	Rate, Burst uint32 // frames per second, frames; rate 0: any number
	Bytes       uint64 // per second, in bursts of a tenth of that; 0: any number
}

// newStorm returns a storm that is so many times as wide as a limit.
func newStorm(s StormLimit, times uint64) (b storm) {
	if s.Rate != 0 {
		b.frames = gcra.New(1e12/(uint64(s.Rate)*times), max(uint64(s.Burst)*times, 1)-1)
	}
	if s.Bytes != 0 {
		b.bytes = gcra.New(1e12/(s.Bytes*times), s.Bytes*times/10)
	}
	return b
}

// take reports whether one more frame of so many bytes may pass at now.
func (b *storm) take(now mono.Time, bytes uint16) bool {
	if !b.frames.Ready(now) || !b.bytes.Ready(now) {
		return false
	}
	b.frames.Charge(now, 1)
	b.bytes.Charge(now, uint64(bytes))
	return true
}

// flood sends a broadcast, multicast or unknown-unicast frame from an access
// port to every other member of its VNI: the local ones, and one copy to each
// VTEP of the flood list (head-end replication). The last destination gets the
// frame itself. It returns why the frame is to be dropped, if it is.
func (l *leafWorker) flood(f *frame, vni VNIIndex, from member, m *overlay.Meta, now mono.Time) drop.Reason {
	if l.kernel {
		return drop.NotMirrored
	}
	if !l.storms[vni].take(now, f.len) {
		return drop.StormLimit
	}
	f.kind |= kindFlood
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
func (l *leafWorker) floodLocal(f *frame, vni VNIIndex, now mono.Time) drop.Reason {
	if l.kernel {
		return drop.NotMirrored
	}
	local := l.view.members[vni]
	if len(local) == 0 {
		return drop.NoMember
	}
	if !l.fabricStorms[vni].take(now, f.len) {
		return drop.StormLimit
	}
	f.kind |= kindFlood
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
