package network

import (
	"fmt"

	"github.com/loomfabric/loom/sim/engine"
)

// PortConfig describes one direction of a link, by its sending end.
type PortConfig struct {
	Rate  uint64      // bits per second
	Delay engine.Time // propagation
	Limit uint64      // of the data queue, bytes; 0: none but the node's shared buffer

	ECN    ECN
	Buffer *Buffer // of the node; nil: no limit but Limit
}

// Port is a node's end of a link: queues, and the transmitter. Its
// configuration does not change once it is made.
//
// A packet that waits is in a queue; one that is being sent, from its first bit
// on, is on the wire, and no longer in a queue, a limit or a buffer.
type Port struct {
	Name  string
	Index int // among its node's ports
	Node  Node
	Peer  *Port
	PortConfig

	host   *Host // Node, if it is one
	net    *Network
	engine *engine.Engine // net's
	far    bool           // the peer is in another part of the network

	// What every packet needs, in the order of need.
	wire    ring[coming] // to this port
	id      engine.ID
	epoch   uint32      // of the link: events from before it went down are void
	free    engine.Time // when the transmitter has sent what it was given
	delay   engine.Time
	wake    engine.Time // of the event that is scheduled for free; Never: none
	waits   uint64      // bytes in all queues
	watcher Watcher
	down    bool
	stopped bool // no Data is to be sent: paused or held
	paused  bool // the peer wants no Data (PFC)
	pulling bool // a source is being asked
	stats   PortStats

	queues [Classes]queue
	watch  *Occupancy
	boxes  [2][]crossing // what is sent to a peer in another part: see Network.Swap
	rest   uint64        // what the last packet's time was rounded down by, 1/Rate ps

	account  account
	pausedAt engine.Time
	heldTill engine.Time // the node holds Data back until then
}

// PortStats count what a port did so far.
type PortStats struct {
	Packets, Bytes [Classes]uint64 // that were sent
	Dropped        [Reasons]uint64
	Marked         uint64 // with CE
	Peak           uint64 // most bytes that waited in all queues

	// PFC: frames that were sent to the peer; times that the peer had the port
	// pause, and for how long in all.
	PausesSent, ResumesSent uint64
	Pauses                  uint64
	Paused                  engine.Time
	Holds                   uint64 // times that the node held Data back, which is not PFC
}

// NewPort returns a port of a node; a host's first one becomes its interface.
// watcher may be nil.
func (n *Network) NewPort(name string, index int, node Node, c PortConfig, watcher Watcher) *Port {
	if c.Rate == 0 || c.Delay < 0 {
		panic(fmt.Sprintf("network: port %s: a rate of %d bit/s and a delay of %v make no link", name, c.Rate, c.Delay))
	}
	p := &Port{Name: name, Index: index, Node: node, PortConfig: c, net: n, engine: n.Engine, delay: c.Delay, watcher: watcher, wake: engine.Never}
	p.id = n.Engine.Register(p)
	if h, ok := node.(*Host); ok {
		p.host = h
		if h.Port == nil {
			h.Port = p
		}
	}
	n.Ports = append(n.Ports, p)
	return p
}

// Connect makes two ports the ends of a link.
func Connect(a, b *Port) {
	a.Peer, b.Peer = b, a
	for _, p := range [2]*Port{a, b} {
		if p.far = a.net != b.net; p.far {
			p.net.crossing = append(p.net.crossing, p)
		}
		if p.Buffer != nil {
			p.Buffer.join(p)
		}
	}
}

// Send takes over a packet to be sent from a queue of the port, or drops and
// counts it. One that was charged ([Port.Charge]) keeps its charge while it waits.
func (p *Port) Send(now engine.Time, k *Packet, c Class) {
	k.Class = c
	if k.in == nil {
		p.net.made++
	}
	if p.down {
		p.Release(now, k)
		p.drop(k, LinkDown)
		return
	}
	if p.waits == 0 && now >= p.free && !p.pulling && (c != DataClass || !p.stopped) {
		p.Release(now, k)
		p.transmit(now, k)
		return
	}
	p.enqueue(now, k, c)
}

func (p *Port) enqueue(now engine.Time, k *Packet, c Class) {
	q := &p.queues[c]
	if c == DataClass && p.Limit > 0 && q.bytes+uint64(k.Size) > p.Limit {
		p.Release(now, k)
		p.drop(k, QueueFull)
		return
	}
	if p.Buffer != nil && c != ControlClass && k.charge == nil {
		if why, ok := p.Buffer.admit(now, p, k); !ok {
			p.drop(k, why)
			return
		}
	}
	if c == DataClass && p.ECN.Enqueue {
		p.mark(k, q.bytes)
	}
	q.push(k)
	p.waits += uint64(k.Size)
	p.stats.Peak = max(p.stats.Peak, p.waits)
	if p.watch != nil {
		p.watch.change(now, p.waits)
	}
	p.Kick(now)
}

func (p *Port) drop(k *Packet, why Reason) {
	p.stats.Dropped[why]++
	p.net.drop(k, why)
}

// Queued returns the bytes that wait in all queues.
func (p *Port) Queued() (bytes uint64) { return p.waits }

// QueuedIn returns the bytes that wait in one queue.
func (p *Port) QueuedIn(c Class) uint64 { return p.queues[c].bytes }

// Up reports whether the link is up.
func (p *Port) Up() bool { return !p.down }

// Paused reports whether the peer holds back Data.
func (p *Port) Paused() bool { return p.paused }

// Stats returns what the port did so far.
func (p *Port) Stats() PortStats {
	s := p.stats
	if p.paused {
		s.Paused += p.net.Engine.Now() - p.pausedAt
	}
	return s
}

// TxTime returns how long a packet of so many bytes takes at a rate, rounded up to
// picoseconds.
func TxTime(bytes uint32, rate uint64) engine.Time {
	return engine.Time((uint64(bytes)*8*uint64(engine.Second) + rate - 1) / rate)
}

// serialise is TxTime for a packet that is sent: where a byte is no whole
// number of picoseconds it rounds down and carries the rest to the next packet,
// so that the rate is exact over time.
func (p *Port) serialise(bytes uint32) engine.Time {
	bits := uint64(bytes)*8*uint64(engine.Second) + p.rest
	p.rest = bits % p.Rate
	return engine.Time(bits / p.Rate)
}

// What a port's events are: the low bits of their argument. The link's epoch
// stands above.
const (
	eventFree    = iota // the transmitter is free and something may wait for it
	eventArrived        // the oldest packet on the wire to the port is out of it
	eventPause          // a PFC frame came
	eventResume
	eventHeld // the node has held Data back for long enough
	eventBits = 8
)

func (p *Port) schedule(t engine.Time, what uint64) {
	p.engine.At(t, p.id, uint64(p.epoch)<<eventBits|what)
}

// Handle is the engine's to call.
func (p *Port) Handle(now engine.Time, arg uint64) {
	if uint32(arg>>eventBits) != p.epoch {
		return
	}
	switch arg & (1<<eventBits - 1) {
	case eventFree:
		p.wake = engine.Never
		p.Kick(now)
	case eventArrived:
		k := p.land()
		if p.wire.n > 0 {
			p.schedule(p.wire.at(0).at, eventArrived)
		}
		p.net.hops++
		k.in = p
		p.Node.Receive(now, k, p)
	case eventPause:
		p.pause(now, true)
	case eventResume:
		p.pause(now, false)
	case eventHeld:
		if now >= p.heldTill {
			p.stop(now)
		}
	}
}

// Kick starts the transmitter if it is idle and something waits.
func (p *Port) Kick(now engine.Time) {
	if p.down || p.pulling {
		return
	}
	if now < p.free {
		p.wakeUp()
		return
	}
	k := p.next(now)
	if k == nil && p.host != nil && !p.stopped {
		// A source may send something else from within Pull.
		p.pulling = true
		k = p.host.pull(now)
		p.pulling = false
		if k == nil {
			k = p.next(now)
		}
	}
	if k == nil {
		return
	}
	p.transmit(now, k)
	p.wakeUp()
}

// wakeUp schedules an event for when the transmitter is free, if it would find
// something to send.
func (p *Port) wakeUp() {
	if p.wake != engine.Never {
		return
	}
	waits := p.waits > 0
	if p.stopped {
		waits = p.queues[ControlClass].n > 0
	} else if p.host != nil && p.host.turns.first != nil {
		waits = true
	}
	if waits {
		p.wake = p.free
		p.schedule(p.free, eventFree)
	}
}

// next takes what is to be sent next out of the queues.
func (p *Port) next(now engine.Time) *Packet {
	if p.waits == 0 {
		return nil
	}
	for c := range Class(Classes) {
		if c == DataClass && p.stopped {
			break
		}
		k := p.queues[c].pop()
		if k == nil {
			continue
		}
		p.waits -= uint64(k.Size)
		if k.charge != nil {
			p.Buffer.release(now, k)
		}
		if c == DataClass && !p.ECN.Enqueue {
			p.mark(k, p.queues[c].bytes)
		}
		if p.watch != nil {
			p.watch.change(now, p.waits)
		}
		return k
	}
	return nil
}

func (p *Port) transmit(now engine.Time, k *Packet) {
	if p.watcher != nil {
		p.watcher.Departing(now, k, p)
	}
	p.stats.Packets[k.Class]++
	p.stats.Bytes[k.Class] += uint64(k.Size)
	p.free = now + p.serialise(k.Size)
	if at := p.free + p.delay; p.far {
		p.cross(crossing{at: at, k: k})
	} else {
		p.Peer.expect(at, k)
	}
}

// coming is a packet on a wire, and when its last bit comes out of it.
type coming struct {
	at engine.Time
	k  *Packet
}

// expect puts a packet on the wire to the port.
func (p *Port) expect(at engine.Time, k *Packet) {
	if p.wire.n == 0 {
		p.schedule(at, eventArrived)
	}
	p.wire.push(coming{at, k})
}

// land takes the oldest packet off the wire to the port; nil: there is none.
func (p *Port) land() *Packet {
	if p.wire.n == 0 {
		return nil
	}
	return p.wire.pop().k
}
