package dataplane

import (
	"testing"

	"github.com/loomfabric/loom/overlay"
)

// pair returns two workers of one leaf.
func pair(t *testing.T) (a, b *rig) { return pairOf(t, leafConfig()) }

func pairOf(t *testing.T, cfg Config) (a, b *rig) {
	rigs := newRigs(t, cfg, leafTables(), 2)
	return rigs[0], rigs[1]
}

func TestWorkersTellEachOtherWhatTheyLearn(t *testing.T) {
	a, b := pair(t)
	a.send(up0, wrap(vtep3, own(), 100, udp4(bcast, hostB, 0, 1, 10), nil))
	out := b.send(acc0, udp4(hostB, hostA, 0, 1, 10))
	if len(out[acc1]) != 0 || len(out[up0])+len(out[up1]) != 1 {
		t.Error("the other worker flooded for an address that this one had learned")
	}
	b.send(acc1, udp4(bcast, hostB, 0, 1, 10)) // moved, seen by b
	if out = a.send(acc0, udp4(hostB, hostA, 0, 1, 10)); len(out[acc1]) != 1 {
		t.Error("b saw a move, and a does not know")
	}
}

func TestLearnedAddressesDoNotEcho(t *testing.T) {
	a, b := pair(t)
	a.send(acc0, udp4(bcast, hostA, 0, 1, 10))
	b.settle()
	r := a.w.leaf.learned.between(1, 0)
	if n := r.tail.Load(); n != 0 {
		t.Errorf("b told a what it had learned from a (%d events)", n)
	}
}

func TestLossOfLearnedAddressesIsCountedAndRepaired(t *testing.T) {
	a, b := pair(t)
	for i := range ringSize + 10 {
		a.send(acc0, udp4(bcast, overlay.MAC{2, 8, 0, 0, byte(i >> 8), byte(i)}, 0, 1, 10))
	}
	if got := a.w.snapshot().LearnedLost; got != 10 {
		t.Fatalf("%d events lost, want 10", got)
	}
	b.settle()
	if got := b.w.leaf.fdb.Len(); got != ringSize {
		t.Errorf("b knows %d addresses, want %d", got, ringSize)
	}
	last := overlay.MAC{2, 8, 0, 0, byte((ringSize + 9) >> 8), byte((ringSize + 9) & 0xff)}
	a.now = a.now.Add(a.w.cfg.FDBAge/4 + a.w.cfg.FDBAge/8)
	b.now = a.now
	a.send(acc0, udp4(bcast, last, 0, 1, 10)) // a refresh is sent again
	out := b.send(acc1, udp4(last, hostB, 0, 1, 10))
	if len(out[acc0]) != 1 {
		t.Error("b still does not know the address")
	}
}

// A worker that does not know yet that a port has gone down must not teach the
// others again what they forgot for it.
func TestLearnedAddressesDoNotUndoAFlush(t *testing.T) {
	a, b := pair(t)
	b.send(acc1, udp4(bcast, hostB, 0, 1, 10)) // sent; a has not looked yet
	down := leafTables()
	down.Ports[acc1].Up = false
	a.publish(down)
	a.settle()
	if n := a.w.leaf.fdb.Len(); n != 0 {
		t.Errorf("%d addresses behind a port that is down", n)
	}
	b.publish(down)
	b.settle()
	a.publish(leafTables())
	b.publish(leafTables())
	b.send(acc1, udp4(bcast, hostB, 0, 1, 10))
	a.settle()
	if n := a.w.leaf.fdb.Len(); n != 1 {
		t.Errorf("%d addresses after the port came up again, want 1", n)
	}
}

// TestPortAtItsLimit: a host that sends from many addresses takes none from hosts of its
// network behind other ports, and new ones of these are learned.
func TestPortAtItsLimit(t *testing.T) {
	cfg, tables := leafConfig(), leafTables()
	cfg.Ports[acc0].FDBLimit = 10
	tables.VNIs[0].FDBLimit = 21
	r := newRig(t, cfg, tables)
	host := func(i int) overlay.MAC { return overlay.MAC{2, 8, 0, 0, 0, byte(i)} }
	flood := func(from, to int) {
		for i := from; i < to; i++ {
			r.send(acc0, udp4(bcast, overlay.MAC{2, 7, 0, 0, byte(i >> 8), byte(i)}, 0, 1, 10))
		}
	}
	flood(0, 300)
	for i := range 10 {
		r.send(acc1, udp4(bcast, host(i), 0, 1, 10))
	}
	flood(300, 600)
	for i := range 10 {
		if out := r.send(up0, wrap(vtep3, own(), 100, udp4(host(i), hostC, 0, 1, 10), nil)); len(out[acc0]) != 0 || len(out[acc1]) != 1 {
			t.Errorf("host %d behind another port is forgotten", i)
		}
	}
	if s := r.w.snapshot(); s.FDBFull != 0 || s.FDBEntries != 21 {
		t.Errorf("%d addresses are known, want 21; %d were refused", s.FDBEntries, s.FDBFull)
	}
}

// TestStaticsAreLeftAlone: tables set the static addresses that differ, and no other.
func TestStaticsAreLeftAlone(t *testing.T) {
	tables := func(mtu int, statics ...StaticMAC) *Tables {
		tables := leafTables()
		tables.Ports[up0].MTU, tables.Static = mtu, statics
		return tables
	}
	first := StaticMAC{VNI: 0, MAC: hostA, Port: acc0}
	r := newRig(t, leafConfig(), tables(1600, first))
	f := r.w.leaf.fdb
	at := func(mac overlay.MAC) overlay.Dest { return f.Lookup(0, mac, r.now) }
	if at(hostA) != overlay.DestLocal(uint16(acc0), 0) {
		t.Errorf("a static address is at %x", at(hostA))
	}
	f.DeleteStatic(0, hostA) // to see whether it is set again
	r.publish(tables(1700, first))
	r.publish(tables(1700, first, StaticMAC{VNI: 0, MAC: hostB, Port: NoPort, Peer: 1}))
	if at(hostA) != overlay.DestNone || at(hostB) != overlay.DestRemote(1) {
		t.Errorf("static addresses are at %x and %x: one was set again, or another was not", at(hostA), at(hostB))
	}
	r.publish(tables(1700, StaticMAC{VNI: 0, MAC: hostA, Port: acc1}, StaticMAC{VNI: 0, MAC: hostA, Port: acc0}))
	if at(hostA) != overlay.DestLocal(uint16(acc0), 0) || at(hostB) != overlay.DestNone {
		t.Errorf("static addresses are at %x and %x: the last of two counts, and one that went is nowhere", at(hostA), at(hostB))
	}
	r.publish(tables(1700))
	if f.Len() != 0 {
		t.Error("static addresses outlive their configuration")
	}
}

// What was learned in a network that is gone is forgotten, a little at a time, and what is
// learned when it is back stays.
func TestNetworksThatGoAreForgotten(t *testing.T) {
	r := newRig(t, leafConfig(), leafTables())
	const hosts = 2*forgetAtOnce + 7
	host := func(i int) overlay.MAC { return overlay.MAC{2, 9, 0, 0, byte(i >> 8), byte(i)} }
	for i := range hosts {
		r.send(acc0, udp4(bcast, host(i), 20, 1, 10)) // VNI 200
	}
	r.send(acc0, udp4(bcast, hostA, 0, 1, 10)) // VNI 100
	if n := r.w.leaf.fdb.Learned(1); n != hosts {
		t.Fatalf("%d addresses are learned, want %d", n, hosts)
	}
	without := leafTables()
	without.VNIs[1] = VNI{}
	without.Bindings = []Binding{{acc0, 0, 0}, {acc1, 0, 0}, {acc2, 0, 2}}
	r.publish(without)
	for range 2 {
		r.now += sweepEvery
		r.w.round(r.now)
	}
	if n := r.w.leaf.fdb.Learned(1); n > hosts-forgetAtOnce || n == 0 {
		t.Errorf("after two sweeps %d of %d addresses are left", n, hosts)
	}
	r.publish(leafTables()) // it is back
	r.send(acc0, udp4(bcast, hostB, 20, 1, 10))
	for range 4 {
		r.now += sweepEvery
		r.w.round(r.now)
	}
	if n := r.w.leaf.fdb.Learned(1); n != 1 {
		t.Errorf("%d addresses of the network are left, want the one that was learned since it is back", n)
	}
	if n := r.w.leaf.fdb.Learned(0); n != 1 {
		t.Errorf("%d addresses of another network are left, want 1", n)
	}
}
