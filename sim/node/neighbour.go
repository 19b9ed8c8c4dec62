package node

import (
	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

// linkMessage makes a message for the node at the other end of a link.
func linkMessage(net *network.Network, f *overlay.Fabric) *network.Packet {
	p := net.Pool.Get()
	p.Kind, p.Fabric, p.Size = network.Link, *f, overlay.LinkMessageLen
	return p
}

// queueOf returns the bytes of data that wait at a port.
func queueOf(p *network.Port) uint32 { return uint32(p.QueuedIn(network.DataClass)) }

// message ends a message of the node at the other end of a link.
func (s *Spine) message(now engine.Time, p *network.Packet, in *network.Port) {
	s.note = overlay.Message{Cause: overlay.NoCause, Fabric: p.Fabric}
	if s.brain == nil || !s.brain.Handle(now.Mono(), in.Index, &s.note, true) {
		s.net.Drop(p, network.Unwanted)
		return
	}
	s.stats.Control++
	s.net.Consume(p)
}

// Handle is the engine's to call: the scheme has something to do.
func (s *Spine) Handle(now engine.Time, event uint64) {
	if !s.timer.Due(s.net.Engine, now, s.id, event) {
		return
	}
	out := s.brain.Tick(now.Mono())
	for i := range out {
		m := &out[i]
		p := s.ports[m.Port].port
		if !p.Up() {
			continue
		}
		s.brain.Account(m.Fabric.Opcode, overlay.LinkMessageLen)
		s.stats.Messages++
		p.Send(now, linkMessage(s.net, &m.Fabric), network.ControlClass)
	}
	s.wake(now)
}

// wake sets the timer to the scheme's next deadline.
func (s *Spine) wake(now engine.Time) {
	if at := s.brain.Deadline(); at != reorder.Never {
		s.timer.Set(s.net.Engine, max(engine.Time(at)*engine.Nanosecond, now), s.id, 0)
	}
}

// Queue is balance.Node.
func (s *Spine) Queue(_ mono.Time, port int) uint32 {
	if port >= len(s.ports) {
		return 0
	}
	return queueOf(s.ports[port].port)
}

// Hosts is balance.Node: no host is behind a spine.
func (s *Spine) Hosts(mono.Time) uint32 { return 0 }

// Hold is balance.Node.
func (s *Spine) Hold(_ mono.Time, port int, until mono.Time) {
	s.ports[port].port.Hold(s.net.Engine.Now(), engine.Time(until)*engine.Nanosecond)
}

// leafNode is what a leaf's scheme knows of all of its ports (balance.Node).
type leafNode struct{ *Leaf }

// Queue returns the bytes of data that wait at an uplink.
func (l leafNode) Queue(_ mono.Time, port int) uint32 {
	if port >= len(l.uplinks) {
		return 0
	}
	return queueOf(l.uplinks[port].port)
}

// Hosts returns the most bytes that wait for a host.
func (l leafNode) Hosts(mono.Time) (longest uint32) {
	for _, p := range l.access {
		longest = max(longest, queueOf(p))
	}
	return longest
}

// Hold has an uplink send no data before a time.
func (l leafNode) Hold(_ mono.Time, port int, until mono.Time) {
	l.uplinks[port].port.Hold(l.net.Engine.Now(), engine.Time(until)*engine.Nanosecond)
}

// neighbour ends a message of the node at the other end of an uplink.
func (l *Leaf) neighbour(now engine.Time, p *network.Packet, uplink uint8) {
	l.note = overlay.Message{Link: uplink, Cause: overlay.NoCause, Fabric: p.Fabric}
	if !l.brain.Handle(now.Mono(), -1, &l.note, true) {
		l.net.Drop(p, network.Unwanted)
		return
	}
	l.stats.Control++
	l.net.Consume(p)
}

// tell sends a message to the node at the other end of an uplink.
func (l *Leaf) tell(now engine.Time, m *overlay.Message) {
	p := l.uplinks[m.Link].port
	if !p.Up() {
		return
	}
	l.brain.Account(m.Fabric.Opcode, overlay.LinkMessageLen)
	l.stats.Messages++
	p.Send(now, linkMessage(l.net, &m.Fabric), network.ControlClass)
}

// pauseHost has the host that a packet came from pause, if the scheme of the leaf wants it
// to for the queue of the uplink that the packet leaves by.
func (l *Leaf) pauseHost(now engine.Time, src network.HostID, up *network.Port) {
	s, ok := l.class().Switch.(balance.HostPauser)
	if !ok {
		return
	}
	if until := engine.Time(s.PauseHost(now.Mono(), queueOf(up), up.Rate)) * engine.Nanosecond; until > now {
		l.hosts[src].Peer.Hold(now, until)
	}
}
