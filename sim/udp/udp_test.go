package udp

import (
	"cmp"
	"testing"

	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

const gbit = 1_000_000_000

// pair returns two hosts on a wire of 1 Gbit/s.
func pair() (*network.Network, *network.Host, *network.Host) {
	net := network.New(engine.New())
	var ports [2]*network.Port
	for i := range ports {
		h := net.NewHost()
		ports[i] = net.NewPort("host", 0, h, network.PortConfig{Rate: gbit, Delay: engine.Microsecond}, nil)
		h.Port = ports[i]
	}
	network.Connect(ports[0], ports[1])
	return net, net.Hosts[0], net.Hosts[1]
}

func start(t *testing.T, net *network.Network, f Flow) *Sender {
	t.Helper()
	f.Src, f.Dst = net.Hosts[0], net.Hosts[1]
	f.Until = cmp.Or(f.Until, engine.Never)
	return Start(0, net, f)
}

// TestRate counts what arrives within a second: rates for which a datagram is
// not a whole number of picoseconds are exact too.
func TestRate(t *testing.T) {
	for _, rate := range []uint64{1, 1_000_000, 333_333_333, 700_000_007, 900_000_000} {
		net, _, _ := pair()
		s := start(t, net, Flow{Rate: rate, Size: 1000, Until: engine.Second})
		net.Engine.Run(engine.Never)
		c := s.Counters()
		// Datagram k leaves at k*8000/rate, below one second.
		want := (rate + 7999) / 8000
		if c.Sent != want || c.Received != want || c.Goodput != 1000*want || c.Skipped+c.Reordered != 0 {
			t.Errorf("%d bit/s: %+v, want %d datagrams", rate, c, want)
		}
		if net.Pool.Out() != 0 {
			t.Errorf("%d packets are out", net.Pool.Out())
		}
	}
}

// TestTimes checks when datagrams leave.
func TestTimes(t *testing.T) {
	net, _, _ := pair()
	var sent []engine.Time
	var lens []uint32
	s := start(t, net, Flow{Flow: network.Flow{ID: 3}, Rate: 80_000_000, Size: 1000, Until: 201 * engine.Microsecond})
	net.Bind(3, s, endpoint(func(now engine.Time, p *network.Packet) {
		sent, lens = append(sent, p.Sent), append(lens, p.Len)
		s.Receive(now, p)
	}))
	net.Engine.Run(engine.Never)
	if len(sent) != 3 || sent[0] != 0 || sent[1] != 100*engine.Microsecond || sent[2] != 200*engine.Microsecond || lens[2] != 1000 {
		t.Errorf("datagrams of %d bytes left at %v", lens, sent)
	}
}

type endpoint func(engine.Time, *network.Packet)

func (e endpoint) Receive(now engine.Time, p *network.Packet) { e(now, p) }

// TestOverload sends at twice what the wire carries: the rest is skipped at the
// sender, and does not pile up.
func TestOverload(t *testing.T) {
	net, _, _ := pair()
	s := start(t, net, Flow{Rate: 2 * gbit, Size: 1000, Until: engine.Second})
	net.Engine.Run(engine.Second)
	c := s.Counters()
	wire := uint64(gbit / 8 / (1000 + Header))
	total := uint64(2 * gbit / 8 / 1000)
	if c.Sent < wire || c.Sent > wire+1 {
		t.Errorf("%d datagrams were sent, the wire carries %d", c.Sent, wire)
	}
	behind := total - c.Sent - c.Skipped
	if behind > sendBuffer/1000+1 || behind < sendBuffer/1000-1 {
		t.Errorf("%d sent and %d skipped of %d: %d are behind, the buffer has %d", c.Sent, c.Skipped, total, behind, sendBuffer/1000)
	}
}

func TestReordered(t *testing.T) {
	net, _, dst := pair()
	s := start(t, net, Flow{Rate: 1, Size: 1})
	for _, number := range []uint64{0, 1, 5, 2, 3, 6} {
		p := net.Pool.Get()
		p.Number, p.Len = number, 10
		dst.Receive(0, p, nil)
	}
	if c := s.Counters(); c.Reordered != 2 || c.MaxDistance != 3 || c.Received != 6 || c.Goodput != 60 {
		t.Errorf("%+v", c)
	}
}

func TestAllocs(t *testing.T) {
	net, _, _ := pair()
	start(t, net, Flow{Rate: gbit / 2, Size: 100})
	until := engine.Millisecond
	net.Engine.Run(until)
	if n := testing.AllocsPerRun(10, func() {
		until += engine.Millisecond
		net.Engine.Run(until)
	}); n != 0 {
		t.Errorf("%v allocations in a millisecond", n)
	}
}
