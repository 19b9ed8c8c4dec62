package dataplane

import (
	"unsafe"

	"github.com/loomfabric/loom/overlay"
)

// metaOf returns what the XDP program said of the frame at off, or dissects
// the frame when it said nothing. The magic is wiped, because the next frame
// in this memory may come without metadata.
func (w *worker) metaOf(p *port, off uint32, b []byte) *overlay.Meta {
	if uint64(off)&w.frameMask >= overlay.MetaLen {
		m := (*overlay.Meta)(unsafe.Pointer(&w.area[off-overlay.MetaLen]))
		if m.Magic == overlay.MetaMagic {
			m.Magic = 0
			return m
		}
	}
	p.stats.MetaMissing++
	overlay.Dissect(b, w.seed, &w.meta)
	return &w.meta
}

// innerMetaOf is metaOf for frames from the fabric, where the XDP program's
// offsets count only if they agree with the decapsulation's; nil: none.
func (w *worker) innerMetaOf(off uint32) *overlay.Meta {
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
