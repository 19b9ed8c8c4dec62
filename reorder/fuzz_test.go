package reorder_test

import (
	"testing"

	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// FuzzArrive feeds a destination whatever headers the wire can bring: no panic,
// no packet lost or sent twice, none held beyond its deadline or for ever, and
// counters that add up.
func FuzzArrive(f *testing.F) {
	f.Add([]byte{0x01, 0, 0, 1, 0, 0, 10, 0x21, 0, 3, 0, 2, 0, 10, 0x11, 0, 2, 0, 2, 0, 10})
	f.Add([]byte{0x25, 0, 3, 0, 2, 9, 1, 0x46, 0, 3, 0, 9, 1, 255, 0x61, 8, 0, 7, 255, 255, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		c := mustNew[int](t, func(p *reorder.Params) {
			p.Flows, p.Leaves, p.Ports, p.Queues, p.PortQueues, p.Packets, p.PortPackets, p.PortBytes, p.Bytes, p.Admission = 4, 2, 2, 3, 2, 8, 6, 4000, 5000, 50
		})
		now := mono.Time(0)
		in, out, seen := 0, 0, make([]bool, len(b)/7+1)
		emit := func(sent []int) {
			for _, i := range sent {
				if seen[i] {
					t.Fatalf("packet %d was sent twice", i)
				}
				seen[i] = true
				out++
			}
		}
		for ; len(b) >= 7; b = b[7:] {
			now += mono.Time(b[6]) * 3000
			for c.Deadline() <= now {
				sent, ok := c.Expire(now)
				if !ok || len(c.Outbox()) != 1 {
					t.Fatalf("at the deadline: %v, %+v", ok, c.Outbox())
				}
				emit(sent)
			}
			h := overlay.Fabric{
				Capable: true, Shim: b[0] != 0xff, Opcode: overlay.Opcode(b[0] & 1), Tail: b[0]&0x10 != 0, Rerouted: b[0]&0x20 != 0,
				Epoch: overlay.Epoch(b[0] >> 1 & 3), Path: overlay.PathID(b[1]),
				TxTstamp: overlay.Tstamp(b[2])<<8 | overlay.Tstamp(b[3]), Arg: overlay.Tstamp(b[2])<<8 | overlay.Tstamp(b[4]),
			}
			_, sent := c.Arrive(now, uint16(b[5]&3), uint32(b[5]>>2&7), &h, b[5]&0x20 != 0, in, uint32(b[1])*8, int(b[5]>>6)-1)
			for _, m := range c.Outbox() {
				if f := &m.Fabric; !f.Capable || f.Scheme != reorder.SchemeID || !f.Opcode.Control() || f.Epoch != h.Epoch || f.Path != h.Path {
					t.Fatalf("said %+v of %+v", m, h)
				}
			}
			emit(sent)
			in++
			st := c.Counters()
			if st.Waiting != in-out || st.InUse > 3 || st.Waiting > 8 || st.WaitingBytes > 5000 || (st.InUse == 0) != (c.Deadline() == reorder.Never) {
				t.Fatalf("%d of %d sent: %+v", out, in, st)
			}
		}
		for sent, ok := c.Expire(c.Deadline()); ok; sent, ok = c.Expire(c.Deadline()) {
			emit(sent)
		}
		if st := c.Counters(); in != out || st.InUse != 0 || st.Queues != st.TailFlushes+st.Expiries+st.Overtaken+st.Exhausted {
			t.Fatalf("%d of %d sent in the end: %+v", out, in, st)
		}
	})
}
