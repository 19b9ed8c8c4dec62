package tcp

import (
	"sort"

	"github.com/loomfabric/loom/sim/network"
)

// ranges is a set of bytes: disjoint blocks in ascending order that do not
// touch. The sender's scoreboard is one, and what the receiver has out of order.
type ranges struct {
	blocks []network.Block
	bytes  uint64 // in all of them
}

func (r *ranges) reset() {
	r.blocks = r.blocks[:0]
	r.bytes = 0
}

// find returns the index of the first block that ends at or after at.
func (r *ranges) find(at uint64) int {
	// What is new comes mostly at the end.
	if n := len(r.blocks); n > 0 && r.blocks[n-1].To < at {
		return n
	}
	return sort.Search(len(r.blocks), func(i int) bool { return r.blocks[i].To >= at })
}

// add puts b in and returns how many of its bytes are new.
func (r *ranges) add(b network.Block) uint64 {
	before := r.bytes
	i := r.find(b.From)
	j := i
	for j < len(r.blocks) && r.blocks[j].From <= b.To {
		o := r.blocks[j]
		b.From, b.To = min(b.From, o.From), max(b.To, o.To)
		r.bytes -= o.To - o.From
		j++
	}
	r.bytes += b.To - b.From
	if j > i {
		r.blocks[i] = b
		if j > i+1 {
			r.blocks = append(r.blocks[:i+1], r.blocks[j:]...)
		}
		return r.bytes - before
	}
	if r.blocks == nil {
		r.blocks = make([]network.Block, 0, 32) // few windows have more holes
	}
	r.blocks = append(r.blocks, network.Block{})
	copy(r.blocks[i+1:], r.blocks[i:])
	r.blocks[i] = b
	return r.bytes - before
}

// cut removes everything below at and returns how many bytes that were.
func (r *ranges) cut(at uint64) uint64 {
	before := r.bytes
	n := 0
	for n < len(r.blocks) && r.blocks[n].From < at {
		o := &r.blocks[n]
		if o.To > at {
			r.bytes -= at - o.From
			o.From = at
			break
		}
		r.bytes -= o.To - o.From
		n++
	}
	if n > 0 {
		r.blocks = r.blocks[:copy(r.blocks, r.blocks[n:])]
	}
	return before - r.bytes
}

// has reports whether all of b is in the set.
func (r *ranges) has(b network.Block) bool {
	i := r.find(b.To)
	return i < len(r.blocks) && r.blocks[i].From <= b.From
}

// top returns the end of the last block, 0 without one.
func (r *ranges) top() uint64 {
	if len(r.blocks) == 0 {
		return 0
	}
	return r.blocks[len(r.blocks)-1].To
}

// hole returns the first bytes at or after from that are not in the set: up to
// the next block, or up to limit.
func (r *ranges) hole(from, limit uint64) (start, end uint64) {
	for i := r.find(from); i < len(r.blocks); i++ {
		if b := r.blocks[i]; b.From > from {
			return from, min(b.From, limit)
		} else if b.To > from {
			from = b.To
		}
	}
	return from, limit
}

// missing returns how many bytes from a up to b are not in the set.
func (r *ranges) missing(a, b uint64) uint64 {
	if a >= b {
		return 0
	}
	n := b - a
	for i := r.find(a); i < len(r.blocks); i++ {
		o := r.blocks[i]
		if o.From >= b {
			break
		}
		n -= min(o.To, b) - max(o.From, a)
	}
	return n
}
