package network

import "github.com/loomfabric/loom/sim/engine"

// Endpoint is one side of a flow.
type Endpoint interface {
	// Receive takes over a packet of the flow.
	Receive(now engine.Time, p *Packet)
}

// Source is a flow's sender as its host's interface sees it: asked for packets
// one by one, when the wire is free.
type Source interface {
	// Pull returns the next packet to send at now. Without one it returns when
	// to ask again (pacing), or engine.Never: then [Host.Ready] must be called
	// when there is something.
	Pull(now engine.Time) (*Packet, engine.Time)
}

// flow is where the packets of a flow go.
type flow struct{ sender, receiver Endpoint }

// Host is a machine with one interface. It hands packets to the flows'
// endpoints, and lets their sources send in turn.
type Host struct {
	ID   HostID
	Port *Port

	net   *Network
	ready []Source
	quota int
}

// NewHost adds a host; its port is made by the caller.
func (n *Network) NewHost() *Host {
	h := &Host{ID: HostID(len(n.Hosts)), net: n}
	n.Hosts = append(n.Hosts, h)
	return h
}

// Bind makes a flow's endpoints known: data goes to receiver, everything else
// to sender. Packets of flows that are not bound are counted and dropped.
func (n *Network) Bind(f FlowID, sender, receiver Endpoint) {
	for int(f) >= len(n.flows) {
		n.flows = append(n.flows, flow{})
	}
	n.flows[f] = flow{sender, receiver}
}

// Network returns what the host is part of.
func (h *Host) Network() *Network { return h.net }

// Receive hands a packet to its endpoint.
func (h *Host) Receive(now engine.Time, p *Packet, _ *Port) {
	if f := &h.net.flows[p.Flow]; p.Kind == Data {
		f.receiver.Receive(now, p)
	} else {
		f.sender.Receive(now, p)
	}
}

// Send sends a packet that does not wait for its turn: what answers others.
func (h *Host) Send(now engine.Time, p *Packet, c Class) { h.Port.Send(now, p, c) }

// Ready says that a source may have something to send. It may be called at any
// time, also for one that is ready already.
func (h *Host) Ready(now engine.Time, s Source) {
	for _, r := range h.ready {
		if r == s {
			return
		}
	}
	h.ready = append(h.ready, s)
	h.Port.Kick(now)
}

func (h *Host) pull(now engine.Time) *Packet {
	for len(h.ready) > 0 {
		s := h.ready[0]
		h.ready = h.ready[1:]
		p, again := s.Pull(now)
		if p != nil {
			h.ready = append(h.ready, s)
			return p
		}
		_ = again
	}
	return nil
}
