//go:build loomdebug

package xsk

import "fmt"

// check panics unless want owns the frame that addr lies in.
func (p *Pool) check(op string, addr uint64, want Owner) {
	frame := p.frame(addr)
	if frame >= uint64(len(p.owner)) {
		panic(fmt.Sprintf("xsk: Pool.%s: address %#x is outside of the pool's %d frames", op, addr, len(p.owner)))
	}
	if have := p.owner[frame]; have != want {
		panic(fmt.Sprintf("xsk: Pool.%s: frame %d (address %#x) belongs to %v, expected %v", op, frame, addr, have, want))
	}
}
