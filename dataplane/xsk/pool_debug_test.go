//go:build loomdebug

package xsk

import "testing"

// TestPoolChecks performs each wrong transition; the panic must name frame,
// owner and expected owner.
func TestPoolChecks(t *testing.T) {
	a, b := OwnerPort(1), OwnerPort(2)
	for name, test := range map[string]struct {
		panics string
		do     func(p *Pool, addr uint64) // the frame is the worker's
	}{
		"freed twice":             {"Put|frame 1|belongs to free|expected worker", func(p *Pool, f uint64) { p.Put(f); p.Put(f) }},
		"freed on a ring":         {"Put|frame 1|belongs to port 1|expected worker", func(p *Pool, f uint64) { p.Give(f, a); p.Put(f) }},
		"on two rings":            {"Give|frame 1|belongs to port 1|expected worker", func(p *Pool, f uint64) { p.Give(f, a); p.Give(f, b) }},
		"free, on a ring":         {"Give|frame 1|belongs to free|expected worker", func(p *Pool, f uint64) { p.Put(f); p.Give(f, b) }},
		"from the wrong port":     {"Take|frame 1|belongs to port 1|expected port 2", func(p *Pool, f uint64) { p.Give(f, a); p.Take(f, b) }},
		"received what is held":   {"Take|frame 1|belongs to worker|expected port 1", func(p *Pool, f uint64) { p.Take(f, a) }},
		"completed after reclaim": {"Take|frame 1|belongs to free|expected port 1", func(p *Pool, f uint64) { p.Give(f, a); p.Reclaim(a); p.Take(f, a) }},
		"not in the area":         {"Put|0x2900|outside|4 frames", func(p *Pool, f uint64) { p.Put(f + 4*2048) }},
		"stack overwritten": {"Get|frame 1|belongs to worker|expected free", func(p *Pool, f uint64) {
			p.free[p.n-1] = f
			p.Get()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p := NewPool(4, 2048)
			p.Get()
			addr, _ := p.Get()
			wantPanic(t, test.panics, func() { test.do(p, addr+256) })
		})
	}
}
