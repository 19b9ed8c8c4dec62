package leaf

import (
	"testing"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// tcpPath is TCP-Path's wire number.
const tcpPath overlay.SchemeID = 5

// workersOf returns the workers of one leaf under a scheme, with 4 paths to leaf 1.
func workersOf(t *testing.T, scheme string, n int, now mono.Time) []*Leaf[int] {
	t.Helper()
	params := congestion.Datacenter()
	shared := NewShared(2, n, Secret{1, 2}, &params)
	shared.Capable.Confirm(1, now)
	workers := make([]*Leaf[int], n)
	for i := range workers {
		l, err := New[int](Config{
			Worker: i, Classes: []ClassConfig{{Scheme: scheme}}, Leaves: 2, Ports: 1, Uplinks: 4,
		}, shared)
		if err != nil {
			t.Fatal(err)
		}
		l.SetPaths([]balance.Paths{balance.MakePaths(), balance.MakePaths(0, 1, 2, 3)})
		workers[i] = l
	}
	return workers
}

// A host's SYN comes to one worker, and the answer from the fabric to another one: the
// first one knows, also after a reload, and packets keep the path.
func TestWorkersShareWhatASchemeShares(t *testing.T) {
	now := mono.Time(time.Hour)
	workers := workersOf(t, "tcp-path", 2, now)
	key := overlay.FlowKey{Version: 4, Proto: overlay.ProtoTCP, SrcPort: 40000, DstPort: 80}
	send := func(w *Leaf[int], flags uint8) (p balance.Packet, f overlay.Fabric) {
		pkts := []balance.Packet{{Hash: 77, Leaf: 1, Len: 60}}
		w.Choose(now, w.Classes()[0], pkts, []balance.Exact{{Key: key, TCPFlags: flags}})
		w.Depart(now, w.Classes()[0], &pkts[0], w.View().Paths[1].Uplink[pkts[0].Path], &f)
		return pkts[0], f
	}
	p, f := send(workers[0], overlay.TCPSyn)
	if p.Copies != 0b1111 || !f.Shim || f.Scheme != tcpPath {
		t.Fatalf("a SYN: %+v, %+v", p, f)
	}
	reply := overlay.Fabric{
		Capable: true, LBTag: 2, Scheme: tcpPath, Shim: true, Rerouted: true, Path: overlay.MakePathID(2, f.Path.Selector()), Arg: f.TxTstamp,
	}
	now += 50_000
	if kind := workers[1].Accept(now, 1, &reply); kind != Marked || !workers[1].Exact(&reply) {
		t.Fatalf("a reply is %d", kind)
	}
	arrival := []reorder.Arrival{{Leaf: 1, Len: 60, Fabric: reply, Key: key.Reverse(), TCPFlags: overlay.TCPSyn | overlay.TCPAck}}
	if o := workers[1].Arrive(now, arrival, []int{1}, []uint8{2}); len(o.Deliver) != 1 || arrival[0].Uplink != 2 {
		t.Fatalf("%+v, %+v", o, arrival)
	}
	for i, w := range workers { // whichever the host's next packet comes to
		classes, err := w.MakeClasses([]ClassConfig{{Scheme: "tfe"}, {Scheme: "tcp-path"}})
		if err != nil {
			t.Fatal(err)
		}
		w.SetClasses(classes[1:])
		if p, f := send(w, overlay.TCPAck); w.View().Paths[1].Uplink[p.Path] != 2 || f.Shim || p.Copies != 0 {
			t.Errorf("worker %d: %+v, %+v", i, p, f)
		}
	}
	for _, scheme := range []overlay.SchemeID{1, 2, 3} {
		if workers[0].Exact(&overlay.Fabric{Scheme: scheme}) {
			t.Errorf("the receiver of scheme %d wants exact keys", scheme)
		}
	}
}

// A leaf says that it has lost an uplink, by another one, and every worker that gets such
// a message takes it in; one counts it.
func TestPathFail(t *testing.T) {
	now := mono.Time(time.Hour)
	workers := workersOf(t, "tcp-path", 2, now)
	for _, w := range workers {
		w.Tick(now, false)
		w.SetPaths([]balance.Paths{balance.MakePaths(), balance.MakePaths(0, 1, 3)})
	}
	now += mono.Time(20 * time.Millisecond)
	fails := 0
	for i, w := range workers {
		for _, m := range w.Tick(now, false).Messages {
			if m.Fabric.Opcode != overlay.OpExplore {
				continue
			}
			fails++
			if i != 0 || m.Leaf != 1 || m.Fabric.Scheme != tcpPath || !m.Fabric.Tail || m.Fabric.Path.Uplink() != 2 || !m.Fabric.Capable {
				t.Errorf("worker %d says %+v", i, m)
			}
		}
	}
	if fails != 1 {
		t.Errorf("%d PathFails", fails)
	}
	known := uint64(0)
	for i, w := range workers {
		f := overlay.Fabric{Capable: true, Scheme: tcpPath, Opcode: overlay.OpExplore, Tail: true, Path: 0x10}
		if i == 0 && w.Accept(now, 1, &f) != Message {
			t.Fatal("a PathFail is no message")
		}
		if !w.Handle(now, -1, &overlay.Message{Leaf: 1, Link: overlay.AnyLink, Fabric: f}, i == 0) {
			t.Error("a PathFail is not expected")
		}
		s := w.Stats()
		known += s.Known[overlay.OpExplore]
		if own := w.SchemeStats()[0].Own.(*balance.TCPPathStats); own.Fails != 1 {
			t.Errorf("worker %d: %+v", i, own)
		}
	}
	if known != 1 {
		t.Errorf("counted %d times", known)
	}
}
