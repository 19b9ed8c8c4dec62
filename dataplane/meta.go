package dataplane

import (
	"unsafe"

	"github.com/loomfabric/loom/overlay"
)

// metaAt returns what the XDP program said of the frame at off; nil: nothing. The
// magic is wiped, because the next frame in this memory may come without metadata.
func (w *worker) metaAt(off uint32) *overlay.Meta {
	if uint64(off)&w.frameMask < overlay.MetaLen {
		return nil
	}
	m := (*overlay.Meta)(unsafe.Pointer(&w.area[off-overlay.MetaLen]))
	if m.Magic != overlay.MetaMagic {
		return nil
	}
	m.Magic = 0
	return m
}

// dissect finds out itself what the XDP program would have said of a frame that came
// in by p.
func (w *worker) dissect(p *port, b []byte) *overlay.Meta {
	p.stats.MetaMissing++
	overlay.Dissect(b, w.seed, &w.meta)
	return &w.meta
}
