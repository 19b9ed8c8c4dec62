package reorder_test

import (
	"testing"

	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// driver is a destination side together with the packets that its verdicts make
// it keep. It offers packets one by one. After every call it holds what is kept
// against what the destination side believes is kept.
type driver[T any] struct {
	*reorder.ConWeave
	t      testing.TB
	holds  *reorder.Holds[T]
	queues int            // that keep packets
	bytes  uint64         // of these
	held   map[int]uint64 // of each
	sent   []T            // by the last call
	pkt    [1]reorder.Arrival
}

// mustNew returns a destination side of the datacenter's parameters with changes.
func mustNew[T any](t testing.TB, change func(*reorder.Params)) *driver[T] {
	t.Helper()
	p := reorder.Datacenter()
	if change != nil {
		change(&p)
	}
	c, err := reorder.New(p)
	if err != nil {
		t.Fatal(err)
	}
	queues, perQueue, packets := c.Queues()
	return &driver[T]{ConWeave: c, t: t, held: map[int]uint64{}, holds: reorder.NewHolds[T](queues, packets, perQueue)}
}

// Arrive offers a packet. It returns the verdict, and which packets go on now, in
// order; they are valid until the next call.
func (d *driver[T]) Arrive(now mono.Time, leaf uint16, hash uint32, f *overlay.Fabric, ce bool, item T, bytes uint32, port int) (reorder.Verdict, []T) {
	d.pkt[0] = reorder.Arrival{Hash: hash, Len: bytes, Leaf: leaf, Port: uint16(port), CE: ce, Fabric: *f}
	d.Receive(now, d.pkt[:])
	p := &d.pkt[0]
	d.sent = d.sent[:0]
	if p.Verdict.DrainBefore() {
		d.drain(int(p.Drain))
	}
	if p.Verdict.Held() {
		d.hold(int(p.Hold), item, bytes)
	} else {
		d.sent = append(d.sent, item)
	}
	if p.Verdict.DrainAfter() {
		d.drain(int(p.Drain))
	}
	d.compare()
	return p.Verdict, d.sent
}

// Expire returns the packets of a queue whose time has come.
func (d *driver[T]) Expire(now mono.Time) ([]T, bool) { return d.end(d.ConWeave.Expire(now)) }

// Flush returns the packets of any queue that holds some.
func (d *driver[T]) Flush(now mono.Time) ([]T, bool) { return d.end(d.ConWeave.Flush(now)) }

func (d *driver[T]) end(q int, ok bool) ([]T, bool) {
	d.sent = d.sent[:0]
	if ok {
		d.drain(q)
		d.compare()
	}
	return d.sent, ok
}

func (d *driver[T]) hold(q int, item T, bytes uint32) {
	if d.holds.Len(q) == 0 {
		d.queues++
	}
	d.bytes += uint64(bytes)
	d.held[q] += uint64(bytes)
	if !d.holds.Push(q, item) {
		d.t.Fatalf("queue %d has no room for a packet that it is to hold", q)
	}
}

func (d *driver[T]) drain(q int) {
	if d.holds.Len(q) == 0 {
		d.t.Fatalf("queue %d is empty, and is to be sent on", q)
	}
	d.queues--
	d.bytes -= d.held[q]
	d.held[q] = 0
	for v, ok := d.holds.Pop(q); ok; v, ok = d.holds.Pop(q) {
		d.sent = append(d.sent, v)
	}
}

func (d *driver[T]) compare() {
	if s := d.Counters(); s.Waiting != d.holds.Total() || s.WaitingBytes != d.bytes || s.InUse != d.queues {
		d.t.Fatalf("%d packets of %d bytes are kept in %d queues; counted are %d of %d in %d",
			d.holds.Total(), d.bytes, d.queues, s.Waiting, s.WaitingBytes, s.InUse)
	}
}
