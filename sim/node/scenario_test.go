package node

import (
	"testing"

	"github.com/loomfabric/loom/internal/scenario"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

// switched is the simulator's leaf between wires that end in taps, for the scenarios
// that all drivers of package leaf go through. Peer p is leaf p+1.
type switched struct {
	net    *network.Network
	leaf   *Leaf
	taps   [scenario.Uplinks]*tap
	host   *network.Host
	local  *tap // at the host's end
	remote [scenario.Peers]network.HostID
}

func newSwitched(t testing.TB, s *scenario.Setup) scenario.Harness {
	t.Helper()
	h := &switched{net: network.New(engine.New())}
	cfg := DefaultConfig()
	cfg.Scheme, cfg.Sections, cfg.Seed = s.Scheme, s.Sections, scenario.Seed
	wire := network.PortConfig{Rate: scenario.Rate, Delay: 1}
	where := &Directory{}
	leaves := make([]*Leaf, 1+scenario.Peers)
	for i := range leaves {
		l, err := NewLeaf(h.net, string(rune('A'+i)), uint16(i), len(leaves), where, cfg)
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
	for peer := range scenario.Peers {
		h.leaf.SetPaths(uint16(peer+1), scenario.AllUplinks())
	}
	if err := Join(leaves); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *switched) Brain() scenario.Brain { return h.leaf.Brain() }

func (h *switched) Step(e *scenario.Event) (o scenario.Outcome) {
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
			d := scenario.Departure{ID: uint32(p.Number), Peer: p.DstLeaf - 1, Uplink: uint8(u), Plain: !p.Fabric.Capable, Fabric: p.Fabric}
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
func (h *switched) packet(s *scenario.Packet, fromHost bool) *network.Packet {
	p := h.net.Pool.Get()
	p.Number, p.Hash, p.Class = uint64(s.ID), s.Hash(fromHost), network.DataClass
	p.Size, p.Flow = uint32(s.Size), network.FlowID(s.Flow)
	return p
}

// arrive lets a packet come from the fabric.
func (h *switched) arrive(s *scenario.Packet, p *network.Packet, uplink uint8) {
	p.SrcLeaf, p.DstLeaf, p.Fabric, p.Overhead = s.Peer+1, 0, s.Fabric, overlay.Overhead
	p.Src, p.Dst = h.remote[s.Peer], h.host.ID
	p.CE, p.ECT = s.CE, true
	p.Size += uint32(p.Overhead)
	h.leaf.Receive(h.net.Engine.Now(), p, h.leaf.uplinks[uplink].port)
}

// TestScenarios holds the simulator's leaf against a leaf alone.
func TestScenarios(t *testing.T) { scenario.Run(t, true, newSwitched) }
