package balance

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// A host that opens connections without end has only so many of them explored: the others
// go by one path, and are counted.
func TestTCPPathLimitsExplorations(t *testing.T) {
	section := newTCPPathParams(Datacenter).(*TCPPathParams)
	section.Explorations = 1000
	b := newTCPPathFabric(t, "tcp-path", nil, section)
	frames := 0
	for flow := range 3000 { // one second's worth of SYNs, three a millisecond
		_, h := b.send(0, flow, syn)
		frames += len(h)
		b.wire = nil
		b.now = b.now.Add(time.Second / 3000)
	}
	st := b.end[0].p.stats
	if st.Explorations < 1000 || st.Explorations > 1022 || st.Explorations+st.Limited != 3000 || frames != int(4*st.Explorations+st.Limited) {
		t.Errorf("%d frames: %+v", frames, st)
	}
}

// Nothing is allocated for a packet, whatever becomes of it.
func TestTCPPathAllocatesNothing(t *testing.T) {
	b := newTCPPathFabric(t, "tcp-path", &TCPPathKeys{fallbackARPPath}, nil)
	pkts, exact := make([]Packet, 64), make([]Exact, 64)
	arrivals := make([]reorder.Arrival, 64)
	said := make([]overlay.Message, 0, tcpPathBatch)
	turn, copies := uint32(0), 0
	e := b.end[0]
	e.view.Exact = exact
	if n := testing.AllocsPerRun(500, func() {
		turn++
		b.now = b.now.Add(time.Millisecond)
		for i := range pkts {
			pkts[i] = Packet{Leaf: 1, Hash: turn / 4 * uint32(i), Len: 60}
			exact[i].Key = overlay.FlowKey{Version: 4, Proto: overlay.ProtoTCP, SrcPort: uint16(i), DstPort: 80}
			binary.BigEndian.PutUint32(exact[i].Key.Src[:], turn/4)
			exact[i].TCPFlags = []uint8{syn, ack, synAck}[turn%3]
		}
		e.p.Choose(b.now, e.view, pkts)
		for i := range pkts {
			p := &pkts[i]
			f := &arrivals[i].Fabric
			p.Stamp(b.now, tcpPathID, e.view.Paths[1].Uplink[p.Path], f)
			p.EachCopy(e.view.Paths[1].N, func(uint8) { copies++ })
			arrivals[i].Leaf, arrivals[i].Key = 1, exact[i].Key
		}
		b.end[1].r.Receive(b.now, arrivals)
		said = e.p.Tick(b.now, e.view, said[:0])
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if copies == 0 || b.end[1].r.stats.Requests == 0 {
		t.Errorf("%d copies, %+v", copies, b.end[1].r.stats)
	}
}

func BenchmarkTCPPath(b *testing.B) {
	o := Options{Leaves: 2}
	if err := Find("tcp-path").Complete(&o); err != nil {
		b.Fatal(err)
	}
	p := newTCPPath(&o)
	v := newView(firstPaths(4))
	pkts := make([]Packet, 64)
	v.Exact = make([]Exact, 64)
	now := mono.Time(time.Hour)
	i := uint32(0)
	for b.Loop() {
		i++
		now += 20_000
		for j := range pkts {
			flow := (i*64 + uint32(j)) % 1024
			pkts[j] = Packet{Hash: flow * 0x9E3779B1, Len: 1500}
			v.Exact[j] = Exact{Key: exactKey(flow), TCPFlags: ack}
			if i < 64 {
				v.Exact[j].TCPFlags = syn
			}
		}
		p.Choose(now, v, pkts)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/64, "ns/packet")
}
