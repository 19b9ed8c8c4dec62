package node

import (
	"testing"

	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

const (
	gbit = 1_000_000_000
	us   = engine.Microsecond
)

// tap is the far end of a wire: it keeps what comes, and ends it.
type tap struct {
	net *network.Network
	got []network.Packet
	at  []engine.Time
}

func (a *tap) Receive(now engine.Time, p *network.Packet, _ *network.Port) {
	a.got = append(a.got, *p)
	a.at = append(a.at, now)
	a.net.Consume(p)
}

// rig is two leaves whose uplinks end in taps: host 0 is behind leaf 0, hosts 1
// and 2 behind leaf 1. What they say to each other, HELLOs as well, gets lost.
type rig struct {
	net    *network.Network
	leaves []*Leaf
	taps   []*tap // of leaf 0's uplinks
	hosts  []*network.Host
}

func newRig(t testing.TB, uplinks int, cfgs ...Config) *rig {
	t.Helper()
	r := &rig{net: network.New(engine.New())}
	where := &Directory{}
	wire := network.PortConfig{Rate: 10 * gbit, Delay: us}
	for i := range 2 {
		l, err := NewLeaf(r.net, string(rune('A'+i)), uint16(i), 2, where, cfgs[min(i, len(cfgs)-1)])
		if err != nil {
			t.Fatal(err)
		}
		r.leaves = append(r.leaves, l)
		paths := []uint8{}
		for u := range uplinks {
			p, err := l.AddUplink("up", wire)
			if err != nil {
				t.Fatal(err)
			}
			a := &tap{net: r.net}
			network.Connect(p, r.net.NewPort("tap", 0, a, wire, nil))
			if i == 0 {
				r.taps = append(r.taps, a)
			}
			paths = append(paths, uint8(u))
		}
		l.SetPaths(uint16(1-i), paths)
	}
	for i := range 3 {
		h := r.net.NewHost()
		h.Port = r.net.NewPort("host", 0, h, wire, nil)
		leaf := r.leaves[min(i, 1)]
		network.Connect(h.Port, leaf.AddHost("access", h.ID, wire))
		r.hosts = append(r.hosts, h)
	}
	if err := Join(r.leaves); err != nil {
		t.Fatal(err)
	}
	return r
}

// packet is one from host 0 to host 1.
func (r *rig) packet(hash, size uint32) *network.Packet {
	p := r.net.Pool.Get()
	p.Src, p.Dst, p.Size, p.Hash, p.ECT, p.Class = 0, 1, size, hash, true, network.DataClass
	return p
}

// enter lets leaf 0 have a packet from host 0 at the engine's time.
func (r *rig) enter(p *network.Packet) {
	r.leaves[0].Receive(r.net.Engine.Now(), p, r.leaves[0].HostPort(0))
}

// settle lets time pass until all that hosts have sent is at its end, a fraction of
// the time between two HELLOs.
func (r *rig) settle() { r.later(r.net.Engine.Now() + engine.Millisecond) }

// all returns what came to the taps.
func (r *rig) all() (out []network.Packet) {
	for _, a := range r.taps {
		out = append(out, a.got...)
	}
	return out
}

// later runs until a time.
func (r *rig) later(t engine.Time) {
	r.net.Engine.At(t, r.net.Engine.Register(nothing{}), 0)
	r.net.Engine.Run(t)
}

type nothing struct{}

func (nothing) Handle(engine.Time, uint64) {}
