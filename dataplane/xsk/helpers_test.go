package xsk

import "unsafe"

// addressOf returns where b lies.
func addressOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// Give makes a frame of the worker's the property of to, a port.
func (p *Pool) Give(addr uint64, to Owner) {
	p.check("Give", addr, OwnerWorker)
	p.owner[p.frame(addr)] = to
}

// Take makes a frame of from's, a port, the worker's.
func (p *Pool) Take(addr uint64, from Owner) {
	p.check("Take", addr, from)
	p.owner[p.frame(addr)] = OwnerWorker
}

// Owner returns who owns the frame that addr lies in.
func (p *Pool) Owner(addr uint64) Owner { return p.owner[p.frame(addr)] }

// Count returns how many frames o owns. It looks at every frame of the pool.
func (p *Pool) Count(o Owner) int {
	n := 0
	for _, have := range p.owner {
		if have == o {
			n++
		}
	}
	return n
}

// Frames returns how many frames the area has.
func (u *Umem) Frames() int { return u.cfg.Frames }

// FrameSize returns the size of a frame in bytes, a power of two.
func (u *Umem) FrameSize() int { return u.cfg.FrameSize }

// Sockets returns how many sockets are open on the area.
func (u *Umem) Sockets() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.inUse
}
