package dataplane

import (
	"math/bits"

	"github.com/loomfabric/loom/dataplane/xsk"
	"github.com/loomfabric/loom/internal/drop"
)

// maxParts is how many descriptors a packet has at most that lies in one frame: its
// chunks.
const maxParts = xsk.LongFrame / 4096

// longFrames is what a worker needs besides where the kernel spreads packets over several
// descriptors (decision 0040). Everything else sees packets that lie in one frame in one
// piece. Owned by one worker.
type longFrames struct {
	chunk uint64     // bytes that a descriptor lies within
	shift uint       // log2 of the frame size
	left  []uint8    // by frame number, of what is on a TX ring: parts to be completed
	parts []xsk.Desc // scratch of one burst
	whole []uint64   // likewise
	part  [1]uint64  // likewise
}

// newLongFrames returns nil where every packet is one descriptor: where a chunk is a frame.
func newLongFrames(frames, frameSize, chunk int) *longFrames {
	if chunk == frameSize {
		return nil
	}
	return &longFrames{
		chunk: uint64(chunk), left: make([]uint8, frames), shift: uint(bits.TrailingZeros(uint(frameSize))),
		parts: make([]xsk.Desc, kickBurst), whole: make([]uint64, burstSize),
	}
}

// join puts the parts of long packets together in the frames of their first ones. w.descs
// has n descriptors from p, and has as many packets then as join returns, none of them in
// parts. What no frame holds is dropped.
func (w *worker) join(p *port, n int) int {
	for n > 0 && n < len(w.descs) && w.descs[n-1].Options&xsk.More != 0 && p.link.Receive(w.descs[n:n+1]) == 1 {
		n++ // the burst ended within a packet, all of which is there
	}
	packets := 0
	for i := 0; i < n; {
		d := w.descs[i]
		i++
		if d.Options&xsk.More != 0 {
			var fits bool
			if i, fits = w.append(p, &d, i, n); !fits {
				continue
			}
		}
		w.descs[packets] = d
		packets++
	}
	return packets
}

// append puts the parts of a packet from w.descs[i] on behind its first one, d. It returns
// where the next packet starts. Not fits: there is no room, or the end is missing, and the
// packet has been dropped.
func (w *worker) append(p *port, d *xsk.Desc, i, n int) (next int, fits bool) {
	more, bytes := true, uint64(d.Len)
	end, limit := d.Addr+uint64(d.Len), (d.Addr|w.frameMask)+1
	fits = true
	for ; more && i < n; i++ {
		part := &w.descs[i]
		more = part.Options&xsk.More != 0
		bytes += uint64(part.Len)
		if fits = fits && end+uint64(part.Len) <= limit; fits {
			end += uint64(copy(w.area[end:], w.area[part.Addr:part.Addr+uint64(part.Len)]))
		}
		w.long.part[0] = part.Addr
		w.pool.PutFrom(p.owner, w.long.part[:])
	}
	if fits && !more {
		d.Len, d.Options = uint32(bytes), 0
		return i, true
	}
	p.stats.Received.Frames++
	p.stats.Received.Bytes += bytes
	w.long.parts[0] = *d
	w.pool.TakeAll(p.owner, w.long.parts[:1])
	w.discard(&frame{off: uint32(d.Addr), len: uint16(d.Len), in: p.id}, drop.TooBig)
	return i, false
}

// split returns descriptors of the packets' parts, each within a chunk, and notes how many
// are to be completed.
func (l *longFrames) split(packets []xsk.Desc) []xsk.Desc {
	out := l.parts[:0]
	for i := range packets {
		d := packets[i]
		parts := uint8(1)
		for {
			room := uint32(l.chunk - d.Addr&(l.chunk-1))
			if d.Len <= room {
				break
			}
			out = append(out, xsk.Desc{Addr: d.Addr, Len: room, Options: xsk.More})
			d.Addr, d.Len = d.Addr+uint64(room), d.Len-room
			parts++
		}
		out = append(out, d)
		l.left[d.Addr>>l.shift] = parts
	}
	return out
}

// completed returns those frames of which every part has been completed.
func (l *longFrames) completed(addrs []uint64) []uint64 {
	out := l.whole[:0]
	for _, a := range addrs {
		if left := &l.left[a>>l.shift]; *left > 1 {
			*left--
			continue
		}
		out = append(out, a)
	}
	return out
}

// unfinished returns how many parts of what lies in frame i are to be completed.
func (l *longFrames) unfinished(i int) uint16 {
	if l == nil {
		return 0
	}
	return uint16(l.left[i])
}

// At most so many ports own frames, besides two other owners.
var _ = [1<<ownerBits - MaxPorts - 2]struct{}{}
