package network

import (
	"fmt"

	"github.com/loomfabric/loom/sim/engine"
)

// Endpoint is one side of a flow.
type Endpoint interface {
	// Receive takes over a packet of the flow.
	Receive(now engine.Time, p *Packet)
}

// Flow is what the packets of a flow are between.
type Flow struct {
	// ID is what they carry. It is not used again while some may be on their way.
	ID       FlowID
	Src, Dst *Host
	// Hash is the 5-tuple's hash, ReverseHash the other direction's.
	Hash, ReverseHash uint32
}

// ends is where the packets of a flow go.
type ends struct{ sender, receiver Endpoint }

// Host is a machine with one interface. It hands packets to the flows'
// endpoints, and lets their sources send in turn: packets are made when the
// wire is free for them, so there is no queue of data in front of it.
type Host struct {
	ID   HostID
	Port *Port // its first; made by the caller with [Network.NewPort]
	// Quantum is what a source may send before the next one has its turn,
	// bytes; a packet is sent whole. 0: turns of one packet, as RDMA interfaces
	// schedule queue pairs. TCP with segmentation offload hands 64 KB at a time
	// to the interface, and its flowlets come of that (CONGA §2.6.1).
	Quantum uint64

	net   *Network
	id    engine.ID
	turns turns
	timer engine.Timer
}

// NewHost adds a host; its port is made by the caller.
func (n *Network) NewHost() *Host {
	h := &Host{ID: HostID(len(n.Hosts)), net: n, timer: engine.NewTimer()}
	h.id = n.Engine.Register(h)
	n.Hosts = append(n.Hosts, h)
	return h
}

// Net returns the network, or the part of it, that the host belongs to.
func (h *Host) Net() *Network { return h.net }

// Bind makes a flow's endpoints known: data goes to receiver, everything else
// to sender. Packets of flows that are not bound are counted and dropped.
func (n *Network) Bind(f FlowID, sender, receiver Endpoint) {
	for int(f) >= len(n.flows) {
		n.flows = append(n.flows, ends{})
	}
	n.flows[f] = ends{sender, receiver}
}

// Unbind forgets a flow's endpoints. Packets that are still on their way are
// dropped as [NoFlow] when they arrive.
func (n *Network) Unbind(f FlowID) {
	if int(f) < len(n.flows) {
		n.flows[f] = ends{}
	}
}

// Receive hands a packet to its endpoint.
func (h *Host) Receive(now engine.Time, p *Packet, _ *Port) {
	var to Endpoint
	if int(p.Flow) < len(h.net.flows) {
		f := &h.net.flows[p.Flow]
		if to = f.sender; p.Kind == Data {
			to = f.receiver
		}
	}
	if to == nil {
		h.net.Drop(p, NoFlow)
		return
	}
	h.net.delivered++
	to.Receive(now, p)
}

// Send sends a packet that does not wait for its turn: what answers others.
func (h *Host) Send(now engine.Time, p *Packet, c Class) {
	p.in = nil
	h.Port.Send(now, p, c)
}

// Ready says that a source may have something to send: it is asked when its
// turn comes, which may be before Ready returns. It may be called at any time:
// for a source that is ready already it does nothing, and one that waits for
// the time that it named is asked earlier. Within Pull, the source's answer to
// that Pull is what counts.
func (h *Host) Ready(now engine.Time, s Source) {
	t := s.turn()
	if t.state == turnReady {
		return
	}
	t.source = s
	h.turns.ready(t)
	h.Port.Kick(now)
}

// Leave takes a source out: it is not asked again before it is ready again.
// A source that is used for another flow at another host leaves first.
func (h *Host) Leave(s Source) { h.turns.idle(s.turn()) }

// Handle is the engine's to call: a source wanted to be asked again.
func (h *Host) Handle(now engine.Time, _ uint64) {
	if !h.timer.Due(h.net.Engine, now, h.id, 0) {
		return
	}
	due := false
	for len(h.turns.waiting) > 0 && h.turns.waiting[0].at <= now {
		h.turns.ready(h.turns.waiting[0])
		due = true
	}
	h.wait()
	if due {
		h.Port.Kick(now)
	}
}

// wait sets the timer for the first of the sources that wait.
func (h *Host) wait() {
	if len(h.turns.waiting) > 0 {
		h.timer.Set(h.net.Engine, h.turns.waiting[0].at, h.id, 0)
	} else {
		h.timer.Off()
	}
}

// pull asks the sources in turn for a packet.
func (h *Host) pull(now engine.Time) *Packet {
	for h.turns.first != nil {
		t := h.turns.first
		p, again := t.source.Pull(now)
		if p != nil {
			t.used += uint64(p.Size)
			switch {
			case t.state != turnReady: // it left
			case again > now && again < engine.Never:
				h.turns.idle(t)
				h.turns.wait(t, again)
				h.wait()
			case t.used >= h.Quantum:
				t.used = 0
				h.turns.rotate(t)
			}
			p.in = nil
			p.Class = DataClass
			h.net.made++
			return p
		}
		h.turns.idle(t)
		if again == engine.Never {
			continue
		}
		if again <= now {
			panic(fmt.Sprintf("network: a source of host %d has nothing to send at %v and wants to be asked again at %v, which is not later", h.ID, now, again))
		}
		h.turns.wait(t, again)
		h.wait()
	}
	return nil
}
