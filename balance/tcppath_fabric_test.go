package balance

import (
	"slices"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

const (
	syn    = overlay.TCPSyn
	synAck = overlay.TCPSyn | overlay.TCPAck
	ack    = overlay.TCPAck
	rst    = overlay.TCPRst | overlay.TCPAck
)

// tcpEnd is a leaf under tcp-path, in a fabric of two: the other leaf is leaf 1.
type tcpEnd struct {
	p        *tcpPath
	r        *tcpPathReceiver
	view     *View
	delivers []int // numbers of packets
}

// tcpPathFabric is two leaves, between which a packet takes as long as its path does. A
// leaf's uplink u is linked with the other one's uplink u+8.
type tcpPathFabric struct {
	t      *testing.T
	now    mono.Time
	end    [2]*tcpEnd
	delay  map[overlay.PathID]time.Duration // by end 0's
	lose   func(from int, f *overlay.Fabric) bool
	count  int
	wire   []tcpParcel
	copies [2]int         // that came late
	counts overlay.PathID // the bits of PathIDs that count: not those of selectors, if there is one
}

type tcpParcel struct {
	at     mono.Time
	to     int
	number int
	uplink uint8 // of the leaf that it goes to
	x      Exact
	header overlay.Fabric
}

func newTCPPathFabric(t *testing.T, scheme string, keys Params, section *TCPPathParams) *tcpPathFabric {
	t.Helper()
	if section == nil {
		section = newTCPPathParams(Datacenter).(*TCPPathParams)
	}
	b := &tcpPathFabric{t: t, now: mono.Time(time.Hour), delay: map[overlay.PathID]time.Duration{}}
	if b.counts = 0xff; section.Selectors() == 1 {
		b.counts = 0xf0
	}
	for i := range b.end {
		o := Options{Seed: uint64(i), Keys: keys, Section: section, Leaves: 2}
		s := Find(scheme)
		if err := s.Complete(&o); err != nil {
			t.Fatal(err)
		}
		o.Shared = s.Shared(&o)
		r := newTCPPathReceiver(&o)
		o.Receiver = r
		b.end[i] = &tcpEnd{p: s.New(&o).(*tcpPath), r: r, view: newView(firstPaths(0), MakePaths(b.uplinks(i)...))}
	}
	return b
}

// uplinks returns those of a leaf that lead to the other one.
func (b *tcpPathFabric) uplinks(end int) []uint8 {
	return [][]uint8{{0, 1, 2, 3}, {8, 9, 10, 11}}[end]
}

// path returns a path as end 0 names it: a packet of end 1 by uplink u+8 takes uplink u's.
func (b *tcpPathFabric) path(from int, uplink, selector uint8) overlay.PathID {
	return overlay.MakePathID(uplink-uint8(8*from), selector) & b.counts
}

func (b *tcpPathFabric) took(id overlay.PathID) time.Duration {
	if d, ok := b.delay[id]; ok {
		return d
	}
	return 20 * time.Microsecond
}

// send sends a packet of connection 40000+flow of end 0, or back; and returns its number
// and the headers of all its copies.
func (b *tcpPathFabric) send(from int, flow int, flags uint8) (number int, headers []overlay.Fabric) {
	key := overlay.FlowKey{Version: 4, Proto: overlay.ProtoTCP, Src: [16]byte{10, 0, 0, 1}, Dst: [16]byte{10, 0, 1, 1}, SrcPort: uint16(40000 + flow), DstPort: 80}
	if from == 1 {
		key = key.Reverse()
	}
	return b.sendKey(from, key, flags)
}

func (b *tcpPathFabric) sendKey(from int, key overlay.FlowKey, flags uint8) (number int, headers []overlay.Fabric) {
	e := b.end[from]
	x := Exact{Key: key, TCPFlags: flags}
	b.count++
	p := Packet{Leaf: 1, Len: 60, Hash: uint32(key.Hash(9))}
	pkts := []Packet{p}
	e.view.Exact = []Exact{x}
	e.p.Choose(b.now, e.view, pkts)
	e.view.Exact = nil
	paths := &e.view.Paths[1]
	put := func(path uint8) {
		uplink := paths.Uplink[path]
		f := overlay.Fabric{Capable: true, LBTag: uplink}
		pkts[0].Stamp(b.now, tcpPathID, uplink, &f)
		headers = append(headers, f)
		if b.lose != nil && b.lose(from, &f) {
			return
		}
		b.wire = append(b.wire, tcpParcel{
			at: b.now.Add(b.took(b.path(from, uplink, f.Path.Selector()))), to: 1 - from, number: b.count,
			uplink: uplink + 8 - 16*uint8(from), x: x, header: f,
		})
	}
	put(pkts[0].Path)
	pkts[0].EachCopy(paths.N, put)
	return b.count, headers
}

// pass lets time pass, and packets arrive.
func (b *tcpPathFabric) pass(d time.Duration) {
	until := b.now.Add(d)
	for {
		next := -1
		for i := range b.wire {
			if b.wire[i].at <= until && (next < 0 || b.wire[i].at < b.wire[next].at) {
				next = i
			}
		}
		if next < 0 {
			break
		}
		p := b.wire[next]
		b.wire = slices.Delete(b.wire, next, next+1)
		b.now = max(b.now, p.at)
		e := b.end[p.to]
		if !p.header.Shim {
			e.delivers = append(e.delivers, p.number)
			continue
		}
		a := []reorder.Arrival{{Leaf: 1, Len: 60, Uplink: p.uplink, Fabric: p.header, Key: p.x.Key, TCPFlags: p.x.TCPFlags}}
		e.r.Receive(b.now, a)
		switch a[0].Verdict {
		case reorder.Pass:
			e.delivers = append(e.delivers, p.number)
		case reorder.Discard:
			b.copies[p.to]++
		default:
			b.t.Fatalf("verdict %d", a[0].Verdict)
		}
	}
	b.now = until
}

// tick lets both leaves say what they have to say, which arrives at once.
func (b *tcpPathFabric) tick() (messages int) {
	for i, e := range b.end {
		for _, m := range e.p.Tick(b.now, e.view, nil) {
			messages++
			m.Leaf = 1
			if !b.end[1-i].p.Handle(b.now, b.end[1-i].view, &m) {
				b.t.Errorf("a PathFail is not known: %+v", m)
			}
		}
	}
	return messages
}

// open opens a connection whose fastest path is the one given.
func (b *tcpPathFabric) open(flow int, fastest overlay.PathID) {
	b.t.Helper()
	fastest &= b.counts
	b.delay[fastest] = 5 * time.Microsecond
	b.send(0, flow, syn)
	b.pass(time.Millisecond)
	b.send(1, flow, synAck)
	b.pass(time.Millisecond)
	delete(b.delay, fastest)
	for from := range 2 {
		if _, h := b.send(from, flow, ack); len(h) != 1 || b.path(from, h[0].LBTag, h[0].Path.Selector()) != fastest || h[0].Shim {
			b.t.Fatalf("flow %d from %d after its set-up: %+v, want path %v", flow, from, h, fastest)
		}
	}
	b.pass(time.Millisecond)
}
