package leaf

import (
	"testing"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// burst fills a vector with packets of new flows from leaf 1: of each three of
// ConWeave's one is a request, one is rerouted, and the third is the TAIL of half of the
// flows; of each four of Presto's the last one ends a flowcell that was waited for, in
// half of the flows; of each four of reed's the second one waits for the third, or in half
// of the flows for what does not come; flowcut's all ask for an answer.
func burst(turn uint32, tx overlay.Tstamp, pkts []reorder.Arrival) {
	const presto, reed, flowcut = 36, 48, 60
	for i := range pkts[:presto] {
		p := data(tx)
		flow := i / 3
		switch {
		case i%3 == 0:
			p = request(tx)
		case i%3 == 1 || flow%2 == 0:
			p = rerouted(tx+2, tx+1)
		default:
			p = tail(tx + 1)
		}
		p.Hash, p.CE, p.Port = turn<<8|uint32(flow), i%5 == 0, uint16(i%4)
		pkts[i] = p
	}
	for i := range pkts[presto:reed] {
		p := data(tx)
		flow := i / 4
		p.Fabric.Scheme, p.Fabric.Arg = 2, overlay.Tstamp([4]uint8{0, 1, 1, 0}[i%4])
		p.Fabric.Tail = i%4 == 2 || i%4 == 3 && flow%2 == 0
		p.Hash = turn<<8 | uint32(flow)
		pkts[presto+i] = p
	}
	for i := range pkts[reed:flowcut] {
		p := data(tx)
		flow := i / 4
		p.Fabric.Scheme, p.Fabric.Rerouted, p.Fabric.Arg = 4, true, overlay.Tstamp([4]uint8{0, 2, 1, 3}[i%4]+uint8(flow%2)*uint8(i%4))
		p.Hash = turn<<8 | uint32(flow)
		pkts[reed+i] = p
	}
	for i := range pkts[flowcut:] {
		p := request(tx)
		p.Fabric.Scheme, p.Hash = 3, turn<<8|uint32(i)
		pkts[flowcut+i] = p
	}
}

// A leaf's path of a packet allocates nothing, under any scheme: packets there, packets
// back, messages, HELLOs and timers.
func TestNothingAllocates(t *testing.T) {
	for _, scheme := range balance.Schemes() {
		t.Run(scheme.Name, func(t *testing.T) {
			s := newSite(t, scheme.Name)
			c := s.Classes()[0]
			s.SetHello(s.now)
			pkts, arrivals := make([]balance.Packet, Burst), make([]reorder.Arrival, Burst)
			numbers, uplinks := make([]int, Burst), make([]uint8, Burst)
			var f overlay.Fabric
			var m overlay.Message
			said, delivered, turn := 0, 0, uint32(0)
			take := func(o *Output[int]) { said, delivered = said+len(o.Messages), delivered+len(o.Deliver) }
			work := func() {
				turn++
				s.now = s.now.Add(300 * time.Microsecond)
				now := overlay.TstampOf(s.now)
				if turn%50 == 0 { // paths come and go
					s.SetHello(s.now)
					s.hello(1, overlay.Fabric{TxTstamp: now, Tail: true, Arg: now}, overlay.Hello{Round: turn, Silent: uint16(turn/50%2) << 1})
				}
				for i := range pkts {
					pkts[i] = balance.Packet{Hash: turn/4<<8 | uint32(i), Leaf: 1, Len: 1000}
				}
				s.Choose(s.now, c, pkts, nil)
				for i := range pkts {
					p := &pkts[i]
					s.Depart(s.now, c, p, s.View().Paths[1].Uplink[p.Path], &f)
					echo := f.TxTstamp
					if f.Scheme == 3 {
						echo = f.Arg
					}
					m = overlay.Message{Leaf: 1, Link: overlay.AnyLink, Hash: p.Hash, Fabric: overlay.Fabric{
						Capable: true, Scheme: f.Scheme, Opcode: overlay.OpRTTReply, Epoch: f.Epoch, Shim: true, Arg: echo,
					}}
					s.Handle(s.now, 0, &m, true)
				}
				for _, op := range []overlay.Opcode{overlay.OpExplore, overlay.OpExtension} { // HULA's, or nobody's
					m.Fabric.Scheme, m.Fabric.Opcode, m.Fabric.Path, m.Fabric.Arg = scheme.Wire, op, overlay.MakePathID(uint8(turn%2), 0), 3
					s.Handle(s.now, 0, &m, true)
				}
				burst(turn, now, arrivals)
				for i := range arrivals {
					s.Accept(s.now, 1, &arrivals[i].Fabric)
				}
				take(s.Arrive(s.now, arrivals, numbers, uplinks))
				take(s.Tick(s.now, turn%2 == 0))
			}
			for range 1000 { // buffers grow to what they need
				work()
			}
			if n := testing.AllocsPerRun(200, work); n != 0 {
				t.Errorf("%v allocations a turn", n)
			}
			if s.shared.Paths.Changes() < 10 {
				t.Error("no path came or went")
			}
			if said == 0 || delivered == 0 || s.Stats().RoundTrip.N == 0 {
				t.Errorf("%d messages, %d packets, %d round trips", said, delivered, s.Stats().RoundTrip.N)
			}
			for _, rx := range s.ReceiverStats() {
				switch st := rx.Stats.(type) {
				case *reorder.Stats:
					if st.Held == 0 || st.Expiries == 0 || st.TailFlushes == 0 || st.Notifies == 0 {
						t.Errorf("ConWeave: %d held, %d expiries, %d TAILs, %d NOTIFYs", st.Held, st.Expiries, st.TailFlushes, st.Notifies)
					}
				case *balance.FlowcutReceiverStats:
					if st.Replies == 0 {
						t.Errorf("flowcut: %+v", st)
					}
				case *reorder.ResequencerStats:
					if st.Held == 0 || st.Expired == 0 || st.Waiting == int(st.Held) {
						t.Errorf("Reed: %+v", st)
					}
				case *balance.PrestoReceiverStats:
					if st.Held == 0 || st.Flushes == 0 || st.Waiting == int(st.Held) {
						t.Errorf("Presto: %+v", st)
					}
				}
			}
		})
	}
}

// Waiting allocates once.
func TestWaitingDoesNotAllocate(t *testing.T) {
	s := newSite(t, "ecmp")
	c := s.Classes()[0]
	p := balance.Packet{}
	work := func() {
		for i := range 100 {
			p.Until = s.now + us*[...]mono.Time{5, 3, 9, 1, 3, 8, 2}[i%7]
			s.Wait(c, &p, i)
		}
		s.now += 10 * us
		if n := len(s.Tick(s.now, false).Retry); n != 100 {
			t.Fatalf("%d of 100 come back", n)
		}
	}
	work()
	if n := testing.AllocsPerRun(100, work); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
