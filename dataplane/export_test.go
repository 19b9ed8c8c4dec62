package dataplane

import (
	"testing"

	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/leaf"
	"github.com/loomfabric/loom/liveness"
)

// MemLeaf is a leaf's only worker between links in memory, as tests outside of the
// package see it.
type MemLeaf struct{ rig *rig }

// NewMemLeaf returns a worker whose time begins at 0, and whose peers all read the
// fabric's header.
func NewMemLeaf(t testing.TB, cfg *Config, tables *Tables) MemLeaf {
	t.Helper()
	if err := cfg.check(); err != nil {
		t.Fatal(err)
	}
	shared := newShared(cfg)
	for peer := range tables.Peers {
		shared.leaf.Capable.Confirm(uint16(peer), 0)
	}
	m := MemLeaf{newWorkerRig(t, cfg, 0, shared)}
	m.Brain().SetHello(mono.Time(liveness.Interval(1)))
	m.Publish(0, tables)
	return m
}

// Brain returns the worker's leaf.
func (m MemLeaf) Brain() *leaf.Leaf[uint32] { return m.rig.w.leaf.brain }

// Publish puts tables in force at a time.
func (m MemLeaf) Publish(at mono.Time, tables *Tables) {
	m.rig.now = at
	m.rig.publish(tables)
}

// Put lets a frame come in by a port in the next round.
func (m MemLeaf) Put(p PortID, b []byte) {
	m.rig.t.Helper()
	if !m.rig.links[p].put(b) {
		m.rig.t.Fatal("there is no frame to receive into")
	}
}

// Round runs the worker at a time until it has nothing to do then, and checks its
// books.
func (m MemLeaf) Round(at mono.Time) {
	m.rig.t.Helper()
	m.rig.now = at
	for range 3 {
		m.rig.w.round(at)
	}
	m.rig.balance()
}

// Take returns the frames that have left by a port.
func (m MemLeaf) Take(p PortID) [][]byte {
	l := m.rig.links[p]
	out := l.out
	l.out = nil
	return out
}
