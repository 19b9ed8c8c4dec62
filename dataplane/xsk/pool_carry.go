package xsk

import "fmt"

// Owners returns the owner of each frame, by number. The caller must not change it, and
// it is the pool's: it changes as the pool is used.
func (p *Pool) Owners() []Owner { return p.owner }

// Ports returns a bound on the ports that own frames: one more than the last of them.
func Ports(owners []Owner) int {
	n := 0
	for _, o := range owners {
		n = max(n, int(o)-int(firstPort)+1)
	}
	return n
}

// RestorePool returns the pool of an area that another process has used, from the owners
// that its pool had. port names the ports anew: port p of that process is port[p] of this
// one. kept are the worker's frames, by an address in each, that this process has
// handles of; the others of the worker's are freed, and orphans is their number.
//
// It refuses owners that there are not, and a kept frame that is not the worker's or
// comes twice: a frame with two handles would be sent twice, or overwritten on its way.
func RestorePool(owners []Owner, frameSize int, port []uint16, kept []uint64) (p *Pool, orphans int, err error) {
	p = NewPool(len(owners), frameSize)
	for _, addr := range kept {
		f := p.frame(addr)
		switch {
		case f >= uint64(len(owners)):
			return nil, 0, fmt.Errorf("xsk: a frame at %#x is outside of an area of %d frames of %d bytes", addr, len(owners), frameSize)
		case owners[f] != OwnerWorker:
			return nil, 0, fmt.Errorf("xsk: frame %d (address %#x) has a handle, and belongs to %v, not to the worker", f, addr, owners[f])
		case p.owner[f] == OwnerWorker:
			return nil, 0, fmt.Errorf("xsk: frame %d (address %#x) has two handles", f, addr)
		}
		p.owner[f] = OwnerWorker
	}
	p.n = 0
	// The last frame first, as in a new pool.
	for i := len(owners) - 1; i >= 0; i-- {
		switch o := owners[i]; {
		case o >= firstPort:
			old := int(o - firstPort)
			if old >= len(port) {
				return nil, 0, fmt.Errorf("xsk: frame %d belongs to %v, and there are %d ports", i, o, len(port))
			}
			p.owner[i] = OwnerPort(port[old])
			continue
		case o == OwnerWorker && p.owner[i] == OwnerWorker:
			continue
		case o == OwnerWorker:
			orphans++
		}
		p.free[p.n] = uint64(i) << p.shift
		p.n++
	}
	return p, orphans, nil
}
