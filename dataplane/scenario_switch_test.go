package dataplane_test

import (
	"testing"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
	"github.com/loomfabric/loom/sim/node"
)

// switched is the simulator's leaf between wires that end in taps. Peer p is leaf p+1.
type switched struct {
	net    *network.Network
	leaf   *node.Leaf
	taps   [uplinkCount]*tap
	host   *network.Host
	local  *tap // at the host's end
	remote [peerCount]network.HostID
	said   nonces
	exact  map[uint64]balance.Exact // by Packet.Number
}

// tap notes what a wire brings.
type tap struct {
	net *network.Network
	got []network.Packet
}

func (a *tap) Receive(_ engine.Time, p *network.Packet, _ *network.Port) {
	a.got = append(a.got, *p)
	a.net.Consume(p)
}

// nothing is an event without effect: it lets time pass.
type nothing struct{}

func (nothing) Handle(engine.Time, uint64) {}

func newSwitched(t testing.TB, s *setup) harness {
	t.Helper()
	h := &switched{net: network.New(engine.New()), exact: map[uint64]balance.Exact{}}
	cfg := node.DefaultConfig()
	cfg.Senders = balance.Names()
	cfg.Scheme, cfg.Sections, cfg.Seed = s.Scheme, s.Sections, hashSeed
	cfg.Exact = func(p *network.Packet, x *balance.Exact) { *x = h.exact[p.Number] }
	wire := network.PortConfig{Rate: linkRate, Delay: 1}
	where := &node.Directory{}
	leaves := make([]*node.Leaf, 1+peerCount)
	for i := range leaves {
		l, err := node.NewLeaf(h.net, string(rune('A'+i)), uint16(i), len(leaves), where, cfg)
		if err != nil {
			t.Fatal(err)
		}
		leaves[i] = l
		if i > 0 {
			far := h.net.NewHost()
			far.Port = h.net.NewPort("far", 0, far, wire, nil)
			network.Connect(far.Port, l.AddHost("access", far.ID, wire))
			h.remote[i-1] = far.ID
		}
	}
	h.leaf = leaves[0]
	for u := range h.taps {
		p, err := h.leaf.AddUplink("up", wire)
		if err != nil {
			t.Fatal(err)
		}
		h.taps[u] = &tap{net: h.net}
		network.Connect(p, h.net.NewPort("tap", 0, h.taps[u], wire, nil))
	}
	h.host, h.local = h.net.NewHost(), &tap{net: h.net}
	network.Connect(h.net.NewPort("host", 0, h.local, wire, nil), h.leaf.AddHost("access", h.host.ID, wire))
	for peer := range peerCount {
		h.leaf.SetPaths(uint16(peer+1), allUplinks())
	}
	if err := node.Join(leaves); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *switched) Brain() brain { return h.leaf.Brain() }

func (h *switched) Step(e *event) (o outcome) {
	at := engine.Time(e.At) * engine.Nanosecond
	h.pass(at)
	if e.Paths != nil {
		h.leaf.SetPaths(e.Peer+1, e.Paths)
	}
	if e.Message != nil {
		p := h.packet(e.Message, true)
		p.Kind = network.Control
		h.arrive(e.Message, p, e.Uplink)
	}
	for i := range e.Receive {
		p := h.packet(&e.Receive[i], false)
		if e.Receive[i].Fabric.Opcode.Control() {
			p.Kind = network.Control
		}
		h.arrive(&e.Receive[i], p, e.Uplink)
	}
	for i := range e.Send {
		p := h.packet(&e.Send[i], true)
		p.Src, p.Dst = h.host.ID, h.remote[e.Send[i].Peer]
		h.leaf.Receive(at, p, h.leaf.HostPort(h.host.ID))
	}
	// What leaves is on its way; nothing falls due so soon but what is due now.
	h.pass(at + 900*engine.Nanosecond)
	for u, tap := range h.taps {
		for i := range tap.got {
			p := &tap.got[i]
			d := departure{ID: uint32(p.Number), Peer: p.DstLeaf - 1, Uplink: uint8(u), Plain: !p.Fabric.Capable, Fabric: p.Fabric}
			if p.Hello != nil {
				h.said[d.Peer] = p.Hello.Nonce
			}
			if p.Kind == network.Control {
				d.ID = 0
				o.Messages = append(o.Messages, d)
			} else {
				o.Departed = append(o.Departed, d)
			}
		}
		tap.got = tap.got[:0]
	}
	for i := range h.local.got {
		o.Delivered = append(o.Delivered, uint32(h.local.got[i].Number))
	}
	h.local.got = h.local.got[:0]
	return o
}

// pass lets time pass.
func (h *switched) pass(to engine.Time) {
	h.net.Engine.At(to, h.net.Engine.Register(nothing{}), 0)
	h.net.Engine.Run(to)
}

// packet is a packet of the script.
func (h *switched) packet(s *packet, fromHost bool) *network.Packet {
	p := h.net.Pool.Get()
	p.Number, p.Hash, p.Class = uint64(s.ID), s.Hash(fromHost), network.DataClass
	p.Size, p.Flow = uint32(s.Size), network.FlowID(s.Flow)
	h.exact[p.Number] = s.Exact(fromHost)
	return p
}

// arrive lets a packet come from the fabric.
func (h *switched) arrive(s *packet, p *network.Packet, uplink uint8) {
	p.SrcLeaf, p.DstLeaf, p.Fabric, p.Overhead = s.Peer+1, 0, s.Fabric, overlay.Overhead
	p.Src, p.Dst = h.remote[s.Peer], h.host.ID
	p.CE, p.ECT = s.CE, true
	if s.Fabric.Opcode == overlay.OpHello {
		body := h.said.body(s)
		p.Hello = &body
	}
	p.Size += uint32(p.Overhead)
	h.leaf.Receive(h.net.Engine.Now(), p, h.leaf.Uplinks()[uplink])
}
