package balance

import (
	"fmt"

	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/internal/snapshot"
	"github.com/loomfabric/loom/overlay"
)

// What schemes leave to the process that goes on in their place; see [Carrier]. Those that
// are not here keep flows whose state other things refer to, as queues and timers: their
// flows start anew.

// loadUplink reads the number of an uplink.
func loadUplink(r *snapshot.Reader) uint8 {
	u := r.U8()
	if u >= MaxPaths {
		r.Fail(fmt.Errorf("a flow takes uplink %d, and there are at most %d", u, MaxPaths))
	}
	return u % MaxPaths
}

// CarryVersion returns the version of what Save writes.
func (b *plb) CarryVersion() uint16 { return 1 }

// Save writes the flows.
func (b *plb) Save(now mono.Time, w *snapshot.Writer) {
	b.flows.Save(now, w, func(w *snapshot.Writer, f *plbFlow) {
		w.U64(uint64(f.began))
		w.U8(f.uplink)
		w.U8(f.rounds)
	})
}

// Load reads what Save wrote.
func (b *plb) Load(r *snapshot.Reader, numbers func(uint16) (uint16, bool)) {
	b.flows.Load(r, numbers, func(r *snapshot.Reader) plbFlow {
		return plbFlow{began: mono.Time(r.U64()), uplink: loadUplink(r), rounds: r.U8()}
	})
}

// CarryVersion returns the version of what Save writes.
func (s *presto) CarryVersion() uint16 { return 1 }

// Save writes the flows, with the numbers that their receivers expect.
func (s *presto) Save(now mono.Time, w *snapshot.Writer) {
	s.flows.Save(now, w, func(w *snapshot.Writer, f *prestoFlow) {
		w.U32(f.sent)
		w.U16(f.cell)
		w.U8(f.uplink)
		w.U8(uint8(f.state))
		w.U8(uint8(f.epoch))
	})
}

// Load reads what Save wrote.
func (s *presto) Load(r *snapshot.Reader, numbers func(uint16) (uint16, bool)) {
	s.flows.Load(r, numbers, func(r *snapshot.Reader) prestoFlow {
		return prestoFlow{sent: r.U32(), cell: r.U16(), uplink: loadUplink(r), state: prestoState(r.U8()), epoch: overlay.Epoch(r.U8() & 3)}
	})
}

// CarryVersion returns the version of what Save writes.
func (s *reed) CarryVersion() uint16 { return 1 }

// Save writes the flows, with the numbers that their receivers expect.
func (s *reed) Save(now mono.Time, w *snapshot.Writer) {
	s.flows.Save(now, w, func(w *snapshot.Writer, f *reedFlow) {
		w.U16(f.number)
		w.U8(uint8(f.epoch))
		w.U8(f.uplink)
		w.Bool(f.young)
	})
}

// Load reads what Save wrote.
func (s *reed) Load(r *snapshot.Reader, numbers func(uint16) (uint16, bool)) {
	s.flows.Load(r, numbers, func(r *snapshot.Reader) reedFlow {
		return reedFlow{number: r.U16(), epoch: overlay.Epoch(r.U8() & 3), uplink: loadUplink(r), young: r.Bool()}
	})
}

// CarryVersion returns the version of what Save writes.
func (c *flowcut) CarryVersion() uint16 { return 1 }

// Save writes the flows, with the numbers that answers refer to.
func (c *flowcut) Save(now mono.Time, w *snapshot.Writer) {
	c.flows.Save(now, w, func(w *snapshot.Writer, f *flowcutFlow) {
		w.U64(uint64(f.compared))
		w.U32(uint32(f.seq))
		w.U8(f.uplink)
		w.Bool(f.wants)
		w.Bool(f.drained)
	})
}

// Load reads what Save wrote.
func (c *flowcut) Load(r *snapshot.Reader, numbers func(uint16) (uint16, bool)) {
	c.flows.Load(r, numbers, func(r *snapshot.Reader) flowcutFlow {
		return flowcutFlow{compared: mono.Time(r.U64()), seq: flowcutSeq(r.U32()) & flowcutSeqMask, uplink: loadUplink(r), wants: r.Bool(), drained: r.Bool()}
	})
}

// CarryVersion returns the version of what Save writes.
func (t *tcpPath) CarryVersion() uint16 { return 1 }

// Save writes the connections, which the workers share: the first one does it for all.
func (t *tcpPath) Save(now mono.Time, w *snapshot.Writer) {
	if t.worker == 0 {
		t.shared.flows.Save(now, w)
	}
}

// Load reads what Save wrote.
func (t *tcpPath) Load(r *snapshot.Reader, _ func(uint16) (uint16, bool)) {
	if t.worker == 0 {
		t.shared.flows.Load(r)
	}
}
