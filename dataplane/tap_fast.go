package dataplane

import "slices"

// slowForCapture is why a port that is captured is off the fast path.
const slowForCapture = "a capture wants to see its frames (slow)"

// slow notes that a capture keeps a port off the fast path, or no longer does.
func (f *fastPath) slow(id PortID, by int) {
	f.mu.Lock()
	f.captured[id] += by
	f.mu.Unlock()
	f.changed()
}

// states returns what ports can do, captures taken into account. mu is held.
func (f *fastPath) states() []fastPort {
	ports := slices.Clone(f.ports)
	for id, captures := range f.captured {
		if captures > 0 {
			ports[id].in, ports[id].out = slowForCapture, slowForCapture
		}
	}
	if f.ears == nil {
		return ports
	}
	l, why := f.node.layout.Load(), f.why()
	for id := range ports {
		if ports[id].in == "" && l.has(PortID(id), Access) {
			ports[id].in = why
		}
	}
	return ports
}
