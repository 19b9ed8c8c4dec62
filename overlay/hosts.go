package overlay

import (
	"iter"
	"time"

	"github.com/loomfabric/loom/internal/mono"
)

// Host is an IP address that a station has announced (see [Announced]).
type Host struct {
	VNI    VNI
	Addr   Addr
	MAC    MAC
	Source uint16        // who brought it
	Age    time.Duration // since it was announced last
}

// hostWays entries share a set.
const hostWays = 8

// hostEntry is free if its addr is zero.
type hostEntry struct {
	addr   Addr
	vni    VNI
	seen   uint32 // ticks, as in the FDB
	mac    MAC
	source uint16
}

// Hosts is a worker's table of which MAC address goes with an IP address, for people who
// ask. Nothing is forwarded by it. It is owned by one worker; not safe for concurrent
// use.
//
// The table is flat, free of pointers, and never grows. Stations say what they like, so
// a source, which is an access port or a peer, has a quarter of the table at most. In a
// full set an announcement takes the place of the oldest of its own source, or of one
// whose source has more than its own; so whoever announces many addresses takes none
// from a source with fewer.
type Hosts struct {
	entries []hostEntry
	sets    uint32
	age     uint32   // ticks
	limit   uint16   // entries of a source
	counts  []uint16 // by source
	cursor  uint32   // set that is looked at next for aged entries
}

// NewHosts returns a table for size addresses, a power of two from 8 to 65536, of that
// many sources. They are forgotten after age.
func NewHosts(size, sources int, age time.Duration) *Hosts {
	return &Hosts{
		entries: make([]hostEntry, size), sets: uint32(size / hostWays), age: uint32(age >> fdbTickShift),
		limit: uint16(size / 4), counts: make([]uint16, sources),
	}
}

// set returns the entries among which an address has its place.
func (h *Hosts) set(vni VNI, a Addr) []hostEntry {
	x := uint64(a.Hash()^uint32(vni)*0x9E3779B1) * uint64(h.sets) >> 32
	return h.entries[x*hostWays:][:hostWays]
}

// Note enters what a source announced. It reports false if there is no place for it.
func (h *Hosts) Note(vni VNI, a Addr, m MAC, source uint16, now mono.Time) bool {
	tick := fdbTick(now)
	h.sweep(tick)
	set := h.set(vni, a)
	var free, own, other *hostEntry
	for i := range set {
		switch e := &set[i]; {
		case e.addr == a && e.vni == vni:
			if e.source != source && h.counts[source] >= h.limit {
				return false
			}
			h.counts[e.source]--
			h.put(e, vni, a, m, source, tick)
			return true
		case e.addr == (Addr{}):
			free = e
		case e.source == source:
			if own == nil || tick-e.seen > tick-own.seen {
				own = e
			}
		case other == nil || h.counts[e.source] > h.counts[other.source]:
			other = e
		}
	}
	switch {
	case free != nil && h.counts[source] < h.limit:
	case own != nil:
		free = own
	case free == nil && other != nil && h.counts[other.source] > h.counts[source] && h.counts[source] < h.limit:
		free = other
	default:
		return false
	}
	h.free(free)
	h.put(free, vni, a, m, source, tick)
	return true
}

func (h *Hosts) put(e *hostEntry, vni VNI, a Addr, m MAC, source uint16, tick uint32) {
	h.counts[source]++
	*e = hostEntry{addr: a, vni: vni, seen: tick, mac: m, source: source}
}

func (h *Hosts) free(e *hostEntry) {
	if e.addr != (Addr{}) {
		h.counts[e.source]--
		*e = hostEntry{}
	}
}

// sweep forgets what has aged in the next set.
func (h *Hosts) sweep(tick uint32) {
	set := h.entries[h.cursor*hostWays:][:hostWays]
	h.cursor = (h.cursor + 1) % h.sets
	for i := range set {
		if tick-set[i].seen > h.age {
			h.free(&set[i])
		}
	}
}

// Find returns what was announced of an address.
func (h *Hosts) Find(vni VNI, a Addr, now mono.Time) (Host, bool) {
	for _, e := range h.set(vni, a) {
		if e.addr == a && e.vni == vni && fdbTick(now)-e.seen <= h.age {
			return e.host(now), true
		}
	}
	return Host{}, false
}

func (e *hostEntry) host(now mono.Time) Host {
	return Host{e.vni, e.addr, e.mac, e.source, time.Duration(fdbTick(now)-e.seen) << fdbTickShift}
}

// Len returns how many places there are.
func (h *Hosts) Len() int { return len(h.entries) }

// Some lists what stands in places from to to.
func (h *Hosts) Some(now mono.Time, from, to int) iter.Seq[Host] {
	return func(yield func(Host) bool) {
		for i := range h.entries[from:to] {
			e := &h.entries[from+i]
			if e.addr != (Addr{}) && fdbTick(now)-e.seen <= h.age && !yield(e.host(now)) {
				return
			}
		}
	}
}
