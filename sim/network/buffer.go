package network

import (
	"cmp"
	"fmt"

	"github.com/loomfabric/loom/sim/engine"
)

// BufferConfig describes a switch's packet memory.
//
// Without PFC the ports' queues share it by dynamic thresholds: a queue of data
// takes a packet as long as what it has stays within Alpha times what is free
// (Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory
// packet switches", 1998). With PFC it is the ports that packets came in by that
// share it so, and one that is over its threshold has its peer pause.
type BufferConfig struct {
	Total uint64  // bytes, headroom included
	Alpha float64 // 0: 1
	PFC   *PFC    // nil: packets that do not fit are dropped
}

// PFC is priority-based flow control for Data (IEEE 802.1Qbb).
type PFC struct {
	// Alpha takes the place of BufferConfig.Alpha: a port beyond that threshold has
	// its peer pause (XOFF). 0: 1/8.
	Alpha float64
	// Hysteresis is how far below the threshold the port must be to have its
	// peer go on (XON), bytes. 0: 2 × MTU.
	Hysteresis uint64
	// Headroom is what each port has for what arrives between XOFF and the
	// moment when that has an effect, bytes. 0: as much as its link needs.
	Headroom uint64
	// MTU is the largest packet in the fabric, bytes with the overlay's
	// headers. 0: 1600.
	MTU uint32
}

// Buffer is the packet memory of one switch, for the PortConfig of all its
// ports. It has the packets of DataClass while they wait, and those that a node
// charges to it ([Port.Charge]). Of ControlClass there is never much.
type Buffer struct {
	cfg    BufferConfig
	ports  []*Port
	own    account // of what the switch sends of its own accord, with PFC
	off    []*account
	used   uint64
	shared uint64 // of used, what stands in the shared part
	pool   int64  // size of the shared part
}

// account is what one port has of a buffer: without PFC what waits in its
// queues, with PFC what came in by it.
type account struct {
	port     *Port
	bytes    uint64 // in the shared part
	excess   uint64 // bytes in its headroom
	headroom uint64 // size of that
	off      bool   // its peer was told to pause
}

// pauseFrame is the size of a PFC frame on the wire, bytes.
const pauseFrame = 64

// NewBuffer returns a buffer. [Network.Validate] tells whether it is large
// enough for the ports that it is given to.
func NewBuffer(c BufferConfig) *Buffer {
	c.Alpha = cmp.Or(c.Alpha, 1)
	if c.PFC != nil {
		pfc := *c.PFC
		pfc.MTU = cmp.Or(pfc.MTU, 1600)
		pfc.Hysteresis = cmp.Or(pfc.Hysteresis, 2*uint64(pfc.MTU))
		c.Alpha, c.PFC = cmp.Or(pfc.Alpha, 1./8), &pfc
	}
	return &Buffer{cfg: c, pool: int64(c.Total)}
}

// Used returns the bytes that are in the buffer.
func (b *Buffer) Used() uint64 { return b.used }

// headroomOf returns how many bytes can still arrive at a port after it was found to
// be over its threshold: the packet by which it was, what is on its way while the
// pause frame is sent and propagates, what is on its way then, and the packet
// that the peer has just begun to send.
func headroomOf(rate uint64, delay engine.Time, mtu uint32) uint64 {
	frame := TxTime(pauseFrame, rate)
	flight := float64(2*delay+frame) / float64(engine.Second) * float64(rate) / 8
	return uint64(flight) + 1 + 2*uint64(mtu)
}

// join gives a port its part, once its link is known.
func (b *Buffer) join(p *Port) {
	p.account.port = p
	b.ports = append(b.ports, p)
	b.off = make([]*account, 0, len(b.ports))
	if pfc := b.cfg.PFC; pfc != nil {
		p.account.headroom = pfc.Headroom
		if pfc.Headroom == 0 {
			p.account.headroom = headroomOf(max(p.Rate, p.Peer.Rate), (p.Delay+p.Peer.Delay+1)/2, pfc.MTU)
		}
		b.pool -= int64(p.account.headroom)
	}
}

func (b *Buffer) validate() error {
	if b.cfg.Alpha < 0 {
		return fmt.Errorf("network: a buffer's alpha is %v: it must be positive", b.cfg.Alpha)
	}
	if b.pool <= 0 {
		need := int64(b.cfg.Total) - b.pool
		return fmt.Errorf("network: a buffer of %d bytes is too small for its %d ports, %s and others: their headroom takes %d, and nothing is left to share",
			b.cfg.Total, len(b.ports), b.ports[0].Name, need)
	}
	return nil
}

// free is what is left of the shared part.
func (b *Buffer) free() uint64 {
	return uint64(max(0, b.pool-int64(b.shared)))
}

// fits reports whether an account may take size bytes more.
func (b *Buffer) fits(a *account, size uint64) bool {
	free := b.free()
	return float64(a.bytes+size) <= b.cfg.Alpha*float64(free) && size <= free
}

// admit charges a packet that is to wait at out, or says why it must not.
func (b *Buffer) admit(now engine.Time, out *Port, k *Packet) (Reason, bool) {
	a := &out.account
	if b.cfg.PFC != nil {
		if a = &b.own; k.in != nil && k.in.Buffer == b {
			a = &k.in.account
		}
	}
	size := b.takes(a, k)
	if b.used+size > b.cfg.Total {
		return BufferFull, false
	}
	switch {
	case b.fits(a, size):
		a.bytes += size
		b.shared += size
	case a.port == nil || b.cfg.PFC == nil:
		return BufferFull, false
	case a.excess+size > a.headroom:
		return HeadroomFull, false
	default:
		a.excess += size
	}
	b.used += size
	k.charge = a
	if a.port != nil && b.cfg.PFC != nil && !a.off && b.over(a) {
		a.off = true
		b.off = append(b.off, a)
		a.port.signal(now, eventPause)
	}
	return 0, true
}

// takes returns how much room a packet needs. With PFC the size at arrival counts,
// because headroom is for arrivals: the overlay's header is put on when a packet
// leaves.
func (b *Buffer) takes(a *account, k *Packet) uint64 {
	if b.cfg.PFC != nil && a.port != nil && a.port.Peer.host != nil {
		return uint64(k.Size) - uint64(k.Overhead)
	}
	return uint64(k.Size)
}

// release takes back what a packet was charged. What becomes free raises the
// thresholds of all, so all that are off are looked at: one of them may have
// packets only where nothing moves until it is on again.
func (b *Buffer) release(now engine.Time, k *Packet) {
	a := k.charge
	size := b.takes(a, k)
	k.charge = nil
	b.used -= size
	room := min(size, a.excess)
	a.excess -= room
	a.bytes -= size - room
	b.shared -= size - room
	for i := 0; i < len(b.off); {
		a := b.off[i]
		if !b.relieve(a) {
			i++
			continue
		}
		last := len(b.off) - 1
		b.off[i] = b.off[last]
		b.off = b.off[:last]
		a.off = false
		a.port.signal(now, eventResume)
	}
}

// over reports whether an account has reached its threshold. One with nothing
// in the shared part or its headroom has not.
func (b *Buffer) over(a *account) bool {
	return a.excess > 0 || a.bytes > 0 && float64(a.bytes) >= b.cfg.Alpha*float64(b.free())
}

// relieve reports whether an account that is off may go on: what it has, moved
// out of the headroom, lies far enough below its threshold.
func (b *Buffer) relieve(a *account) bool {
	all, free := a.bytes+a.excess, b.free()
	if a.excess > free || all > 0 && float64(all+b.cfg.PFC.Hysteresis) >= b.cfg.Alpha*float64(free-a.excess) {
		return false
	}
	b.shared += a.excess
	a.bytes, a.excess = all, 0
	return true
}

// Charge charges a packet to the node's buffer as if it waited in the port's
// queue of data. A node calls it for a packet that it holds outside of the
// queues: ConWeave's reordering queues are part of the same memory (§4.1.3).
// Without room Charge drops the packet and returns false.
func (p *Port) Charge(now engine.Time, k *Packet) bool {
	if p.Buffer == nil {
		return true
	}
	why, ok := p.Buffer.admit(now, p, k)
	if !ok {
		p.drop(k, why)
	}
	return ok
}

// Release takes back the charge of a packet that is about to be sent.
func (p *Port) Release(now engine.Time, k *Packet) {
	if k.charge != nil {
		p.Buffer.release(now, k)
	}
}
