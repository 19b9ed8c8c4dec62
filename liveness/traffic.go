package liveness

import (
	"math"
	"time"

	"github.com/loomfabric/loom/internal/mono"
)

// shareEvery is how old a worker's counts may be that others see. What moves in that
// time is far below a packet in fifty of a window.
const shareEvery = mono.Time(5 * time.Millisecond)

// Traffic is what one worker counts of tenants' packets with the fabric's fields, by
// path. Counts are plain memory; where there are several workers, the others see copies.
type Traffic struct {
	table      *Table
	worker     int
	sent, came []uint32
	hot        []uint32 // of came, those that have met a busy link
	dirty      bool
	at         mono.Time // before which no copies are made
}

// NewTraffic returns the counts of a worker, all 0.
func NewTraffic(t *Table, worker int) *Traffic {
	return &Traffic{table: t, worker: worker, sent: make([]uint32, len(t.to)), came: make([]uint32, len(t.to)), hot: make([]uint32, len(t.to))}
}

// Send notes a packet to a peer by own uplink tag.
func (c *Traffic) Send(p uint16, tag uint8) {
	c.sent[int(p)*MaxTags+int(tag&(MaxTags-1))]++
	c.dirty = true
}

// Arrive notes a packet from a peer by the peer's uplink tag.
func (c *Traffic) Arrive(p uint16, tag uint8) {
	c.came[int(p)*MaxTags+int(tag&(MaxTags-1))]++
	c.dirty = true
}

// ArriveHot notes, of a packet that was noted by Arrive, that it has met a busy link.
func (c *Traffic) ArriveHot(p uint16, tag uint8) { c.hot[int(p)*MaxTags+int(tag&(MaxTags-1))]++ }

// Sent returns how many packets all workers have sent to a peer by own uplink tag.
func (c *Traffic) Sent(p uint16, tag uint8) uint32 {
	i := int(p)*MaxTags + int(tag&(MaxTags-1))
	n := c.sent[i]
	for w := range c.table.counters {
		if w != c.worker {
			n += c.table.counters[w].sent[i].Load()
		}
	}
	if c.table.gone != nil {
		n += c.table.gone(p, tag)
	}
	return n
}

// Came returns how many packets have come to all workers from a peer by its uplink tag.
func (c *Traffic) Came(p uint16, tag uint8) uint32 {
	i := int(p)*MaxTags + int(tag&(MaxTags-1))
	n := c.came[i]
	for w := range c.table.counters {
		if w != c.worker {
			n += c.table.counters[w].came[i].Load()
		}
	}
	if c.table.beside != nil {
		came, _ := c.table.beside(p, tag)
		n += came
	}
	return n
}

// Hot returns how many of these have met a busy link.
func (c *Traffic) Hot(p uint16, tag uint8) uint32 {
	i := int(p)*MaxTags + int(tag&(MaxTags-1))
	n := c.hot[i]
	for w := range c.table.counters {
		if w != c.worker {
			n += c.table.counters[w].hot[i].Load()
		}
	}
	if c.table.beside != nil {
		_, hot := c.table.beside(p, tag)
		n += hot
	}
	return n
}

// Deadline returns when Share is to be called next.
func (c *Traffic) Deadline() mono.Time {
	if !c.dirty || len(c.table.counters) == 1 {
		return math.MaxInt64
	}
	return c.at
}

// Share lets the other workers see the counts of peers 0 to peers-1, if it is time.
func (c *Traffic) Share(now mono.Time, peers int) {
	if now < c.Deadline() {
		return
	}
	c.dirty, c.at = false, now+shareEvery
	own := &c.table.counters[c.worker]
	for i := range peers * MaxTags {
		if own.sent[i].Load() != c.sent[i] {
			own.sent[i].Store(c.sent[i])
		}
		if own.came[i].Load() != c.came[i] {
			own.came[i].Store(c.came[i])
		}
		if own.hot[i].Load() != c.hot[i] {
			own.hot[i].Store(c.hot[i])
		}
	}
}
