package xsk

import (
	"fmt"
	"math/bits"
)

// Owner is the holder of a frame. It is 16 bits wide because a node may have 256
// ports besides the two other owners.
type Owner uint16

// The owners. Values from firstPort on stand for a port's socket: the frame is on
// one of its rings or in the kernel.
const (
	OwnerFree   Owner = iota // on the pool's stack
	OwnerWorker              // in a vector, a queue, a delay line or a hold of the worker
	firstPort
)

// OwnerPort returns the owner for the socket of port p.
func OwnerPort(p uint16) Owner {
	if p > ^uint16(0)-uint16(firstPort) {
		panic(fmt.Sprintf("xsk: port %d cannot own frames: at most %d", p, ^uint16(0)-uint16(firstPort)))
	}
	return firstPort + Owner(p)
}

// String returns the owner's name: "free", "worker", "port 3".
func (o Owner) String() string {
	switch o {
	case OwnerFree:
		return "free"
	case OwnerWorker:
		return "worker"
	}
	return fmt.Sprintf("port %d", o-firstPort)
}

// Pool hands out the frames of a UMEM and remembers the owner of each, to find the
// frames of a closed socket again. The most recently used frame goes out first,
// because it is the likeliest to be in the cache.
//
// A frame's life is a cycle: Get makes it the worker's, GiveAll a port's (before
// it is transmitted), TakeAll the worker's again (after it was received), Put
// free. GetFor and PutFrom take the short way between a port and the stack. The
// build tag loomdebug makes a wrong transition panic and name frame, owner and
// expected owner; a normal build does not check.
//
// A pool is owned by one worker; it is not safe for concurrent use.
type Pool struct {
	free  []uint64 // stack of frame addresses; the top is free[n-1]
	n     int
	owner []Owner // by frame number
	shift uint8   // log2 of the frame size
	base  uint64  // mask that takes an address to its frame's
}

// NewPool returns a pool of frames frames of frameSize bytes, all free. It panics on
// numbers that [NewUmem] would not accept; frameSize must be a power of two.
func NewPool(frames, frameSize int) *Pool {
	if frames <= 0 || frameSize <= 0 || frameSize&(frameSize-1) != 0 {
		panic(fmt.Sprintf("xsk: a pool of %d frames of %d bytes is impossible", frames, frameSize))
	}
	p := &Pool{
		free:  make([]uint64, frames),
		n:     frames,
		owner: make([]Owner, frames),
		shift: uint8(bits.TrailingZeros(uint(frameSize))),
		base:  ^uint64(frameSize - 1),
	}
	for i := range p.free {
		p.free[i] = uint64(frames-1-i) << p.shift
	}
	return p
}

// frame returns the number of the frame that addr lies in. The mask tells the
// compiler that the shift is a single instruction.
func (p *Pool) frame(addr uint64) uint64 { return addr >> (p.shift & 63) }

// Get gives a free frame to the worker and returns its address. ok is false if
// there is none.
func (p *Pool) Get() (addr uint64, ok bool) {
	if p.n == 0 {
		return 0, false
	}
	p.n--
	addr = p.free[p.n]
	p.check("Get", addr, OwnerFree)
	p.owner[p.frame(addr)] = OwnerWorker
	return addr, true
}

// GetFor fills addrs with free frames that go straight to a port, to be filled,
// and returns how many there were.
func (p *Pool) GetFor(to Owner, addrs []uint64) int {
	n := min(len(addrs), p.n)
	addrs = addrs[:n]
	free, owner, shift := p.free[p.n-n:p.n], p.owner, p.shift&63
	for i := range addrs {
		a := free[len(free)-1-i]
		p.check("GetFor", a, OwnerFree)
		owner[a>>shift] = to
		addrs[i] = a
	}
	p.n -= n
	return n
}

// PutFrom frees the frames that a port has completed. Each address may lie
// anywhere in its frame.
func (p *Pool) PutFrom(from Owner, addrs []uint64) {
	free, owner, shift, base := p.free[p.n:p.n+len(addrs)], p.owner, p.shift&63, p.base
	for i, a := range addrs {
		p.check("PutFrom", a, from)
		owner[a>>shift] = OwnerFree
		free[i] = a & base
	}
	p.n += len(addrs)
}

// GiveAll gives the worker's frames to a port.
func (p *Pool) GiveAll(to Owner, descs []Desc) { p.pass("GiveAll", OwnerWorker, to, descs) }

// TakeAll gives a port's frames to the worker.
func (p *Pool) TakeAll(from Owner, descs []Desc) { p.pass("TakeAll", from, OwnerWorker, descs) }

func (p *Pool) pass(op string, from, to Owner, descs []Desc) {
	owner, shift := p.owner, p.shift&63
	for i := range descs {
		p.check(op, descs[i].Addr, from)
		owner[descs[i].Addr>>shift] = to
	}
}

// Put frees a frame of the worker. addr may lie anywhere in the frame.
func (p *Pool) Put(addr uint64) {
	p.check("Put", addr, OwnerWorker)
	p.owner[p.frame(addr)] = OwnerFree
	p.free[p.n] = addr & p.base
	p.n++
}

// Reclaim frees every frame of o and returns their number. It finds the frames that
// were on the rings of a closed socket. In zero-copy mode wait [ReleaseTime] after
// [Socket.Close] first. Reclaim walks the whole pool, and is not for the packet
// path.
func (p *Pool) Reclaim(o Owner) int {
	if o == OwnerFree {
		return 0
	}
	n := 0
	for i, have := range p.owner {
		if have != o {
			continue
		}
		p.owner[i] = OwnerFree
		p.free[p.n] = uint64(i) << p.shift
		p.n++
		n++
	}
	return n
}

// Free returns the number of free frames.
func (p *Pool) Free() int { return p.n }

// Frames returns the number of all frames.
func (p *Pool) Frames() int { return len(p.owner) }
