package balance

import (
	"math"

	"github.com/loomfabric/loom/internal/flowtable"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
)

// caarSwitch is what CAAR knows of all links of a node (Figure 4): what neighbours told of
// their queues, which of the own ones are congested, which ports are held, and the table
// of flows. One worker's policies share it.
type caarSwitch struct {
	node         Node // nil: nobody drives it
	m1, m2       uint32
	delta        float64
	slot         mono.Time
	buffer       uint64
	all, literal bool // scalar signal; Δ against the slot before
	pause        bool // hosts
	mute         bool // another worker of the node tells neighbours
	flows        flowtable.Table[caarFlow]

	number int64 // of the present slot
	next   mono.Time
	places []uint16   // by a leaf's number: where it stands in leaves; 0: nowhere
	leaves []caarLeaf // the first one stands for leaves without routes
	ports  []caarPort
	whole  caarSaid // the longest of all queues

	speaker                        *caar // whose counters have those of the switch
	updates, heardCount, forgotten uint64
}

// caarLeaf is a leaf and the way to it.
type caarLeaf struct {
	number uint16
	here   bool // it is this node
	ports  []int
	said   caarSaid
}

// caarSaid is what was told of a queue.
type caarSaid struct {
	told, before uint32 // bytes: to neighbours; in the slot before
	slot         int64  // when it was told
}

// caarPort is what is known of a port.
type caarPort struct {
	heard []caarHeard // by place of the leaf
	whole caarHeard
	queue uint32 // own, at the beginning of the slot
	flag  bool   // it is congested
	cause int    // place of the leaf for which it is held; -1: it is not
}

// caarHeard is what a neighbour told of a queue.
type caarHeard struct {
	bytes uint32
	slot  int64 // when
}

const (
	// caarQueue is the subtype of a message about a queue: the only one.
	caarQueue = 1
	// caarAnyLeaf is the number of a leaf in messages about all queues.
	caarAnyLeaf = math.MaxUint16
	// caarUnits is what a buffer's size is in a message.
	caarUnits = 2048
	// caarRepeat is after how many slots a queue that is not empty is told again, and
	// caarForget after how many one is taken for empty of which nothing was heard: a
	// message can get lost.
	caarRepeat = 64
	caarForget = 4 * caarRepeat
)

func newCAARSwitch(o *Options, node Node) Switch {
	p, ok := o.Section.(*CAARParams)
	if !ok {
		p = newCAARParams(Datacenter).(*CAARParams)
	}
	return &caarSwitch{
		node: node, m1: caarShare(p, p.M1), m2: caarShare(p, p.M2), delta: p.Delta * float64(p.Buffer),
		slot: mono.Time(p.Slot), buffer: uint64(p.Buffer), all: p.Signal == caarScalar, literal: p.Literal, pause: p.PauseHosts, mute: o.Worker != 0,
		flows: flowtable.New[caarFlow](p.Flows, mono.Time(p.Idle)), leaves: make([]caarLeaf, 1),
	}
}

// caarShare returns a share of the buffer, bytes.
func caarShare(p *CAARParams, share float64) uint32 {
	return uint32(math.Round(share * float64(p.Buffer)))
}

// SetRoute names the ports that lead to a leaf. Without a port the leaf is this node.
func (s *caarSwitch) SetRoute(leaf uint16, ports []int, here bool) {
	for int(leaf) >= len(s.places) {
		s.places = append(s.places, 0)
	}
	at := int(s.places[leaf])
	if at == 0 {
		if len(s.leaves) > math.MaxUint16 {
			return
		}
		at = len(s.leaves)
		s.leaves = append(s.leaves, caarLeaf{number: leaf})
		s.places[leaf] = uint16(at)
	}
	l := &s.leaves[at]
	l.here, l.ports = here, append(l.ports[:0], ports...)
	for _, p := range ports {
		s.grow(p)
	}
	for i := range s.ports {
		if n := len(s.leaves) - len(s.ports[i].heard); n > 0 {
			s.ports[i].heard = append(s.ports[i].heard, make([]caarHeard, n)...)
		}
	}
}

// grow makes room for a port.
func (s *caarSwitch) grow(port int) {
	for port >= len(s.ports) {
		s.ports = append(s.ports, caarPort{cause: -1, heard: make([]caarHeard, len(s.leaves))})
	}
}

// place returns where a leaf stands; 0: nothing is known of it.
func (s *caarSwitch) place(leaf uint16) int {
	if int(leaf) >= len(s.places) {
		return 0
	}
	return int(s.places[leaf])
}

// told returns the queue that the node behind a port told for a leaf, bytes.
func (s *caarSwitch) told(port, at int) uint32 {
	if port >= len(s.ports) {
		return 0
	}
	p := &s.ports[port]
	if s.all {
		return p.whole.bytes
	}
	return p.heard[at].bytes
}

// flag reports whether a port's own queue was congested when the slot began.
func (s *caarSwitch) flag(port int) bool { return port < len(s.ports) && s.ports[port].flag }

// heldBy returns the place of the leaf for which a port is held; -1: it is not.
func (s *caarSwitch) heldBy(port int) int {
	if port >= len(s.ports) {
		return -1
	}
	return s.ports[port].cause
}

// hold holds a port until the next slot.
func (s *caarSwitch) hold(now mono.Time, port, at int) {
	s.ports[port].cause = at
	if s.node != nil {
		s.node.Hold(now, port, (now/s.slot+1)*s.slot)
	}
}

// release lets a port go.
func (s *caarSwitch) release(now mono.Time, port int) {
	s.ports[port].cause = -1
	if s.node != nil {
		s.node.Hold(now, port, 0)
	}
}

// PauseHost has a host wait whose packet has met a congested queue. A host's own queue is
// taken for empty: it makes packets when its wire is free. It waits until the next slot, or
// for as long as the queue takes to be below the threshold again if that is less.
func (s *caarSwitch) PauseHost(now mono.Time, queue uint32, rate uint64) mono.Time {
	if !s.pause || queue < s.m1 || rate == 0 {
		return 0
	}
	return min((now/s.slot+1)*s.slot, now+1+mono.Time(uint64(queue-s.m1)*8_000_000_000/rate))
}

// Handle takes what the node behind a port told of a queue.
func (s *caarSwitch) Handle(now mono.Time, port int, m *overlay.Message) bool {
	kind, leaf, queue := splitCAAR(&m.Fabric)
	if m.Fabric.Opcode != overlay.OpExtension || !m.Fabric.Shim || kind != caarQueue || port < 0 || port > math.MaxUint16 {
		return false
	}
	h := caarHeard{bytes: uint32(uint64(queue) * s.buffer / caarUnits), slot: int64(now / s.slot)}
	s.grow(port)
	if leaf == caarAnyLeaf {
		s.ports[port].whole = h
	} else if at := s.place(leaf); at > 0 {
		s.ports[port].heard[at] = h
	} else {
		return false
	}
	s.heardCount++
	return true
}

// Deadline returns when the next slot begins.
func (s *caarSwitch) Deadline() mono.Time { return s.next }

// Tick begins a slot (Figure 4): it looks at the own queues, decides again about ports
// that are held, and tells neighbours what has changed.
func (s *caarSwitch) Tick(now mono.Time, out []PortMessage) []PortMessage {
	if now < s.next || s.node == nil {
		return out
	}
	s.number = int64(now / s.slot)
	s.next = (now/s.slot + 1) * s.slot
	longest := s.node.Hosts(now)
	for i := range s.ports {
		p := &s.ports[i]
		p.queue = s.node.Queue(now, i)
		p.flag = p.queue > s.m2
		longest = max(longest, p.queue)
		if p.cause < 0 {
			continue
		}
		if p.queue > 0 && s.told(i, p.cause) >= p.queue+s.m1 {
			s.hold(now, i, p.cause)
		} else {
			s.release(now, i)
		}
	}
	if s.number%caarRepeat == 0 {
		s.forget()
	}
	if s.all {
		if s.changed(&s.whole, longest) {
			out = s.tell(out, caarAnyLeaf, longest, nil)
		}
		return out
	}
	for i := range s.leaves[1:] {
		l := &s.leaves[1+i]
		if q := s.toward(now, l); s.changed(&l.said, q) {
			out = s.tell(out, l.number, q, l.ports)
		}
	}
	return out
}

// toward returns the queue that a packet to a leaf would wait in, bytes: the shortest of
// those that lead there or, as its host is not known here, the longest to a host.
func (s *caarSwitch) toward(now mono.Time, l *caarLeaf) uint32 {
	if l.here {
		return s.node.Hosts(now)
	}
	if len(l.ports) == 0 {
		return 0
	}
	least := uint32(math.MaxUint32)
	for _, p := range l.ports {
		least = min(least, s.ports[p].queue)
	}
	return least
}

// changed reports whether neighbours are to be told of a queue (UpdateLength).
func (s *caarSwitch) changed(said *caarSaid, queue uint32) bool {
	from := said.told
	if s.literal {
		from = said.before
	}
	said.before = queue
	moved := math.Abs(float64(queue)-float64(from)) > s.delta
	if !moved && (s.literal || said.told == 0 || s.number-said.slot < caarRepeat) {
		return false
	}
	said.told, said.slot = queue, s.number
	return true
}

// tell appends messages about a queue for all neighbours but those through which packets
// to the leaf go: nobody who gets packets to it from here sends any back.
func (s *caarSwitch) tell(out []PortMessage, leaf uint16, queue uint32, but []int) []PortMessage {
	if s.mute {
		return out
	}
	f := joinCAAR(caarQueue, leaf, uint16(min(uint64(queue)*caarUnits/s.buffer, 1<<12-1)))
	for port := range s.ports {
		skip := false
		for _, b := range but {
			skip = skip || b == port
		}
		if !skip {
			s.updates++
			out = append(out, PortMessage{Port: port, Message: overlay.Message{Cause: overlay.NoCause, Fabric: f}})
		}
	}
	return out
}

// forget takes queues for empty of which nothing was heard for long.
func (s *caarSwitch) forget() {
	old := func(h *caarHeard) {
		if h.bytes > 0 && s.number-h.slot > caarForget {
			*h = caarHeard{}
			s.forgotten++
		}
	}
	for i := range s.ports {
		old(&s.ports[i].whole)
		for at := range s.ports[i].heard {
			old(&s.ports[i].heard[at])
		}
	}
}

// joinCAAR returns the fields of a message: 4 bits of its subtype, 16 of a leaf, 12 of a
// queue in units of 1/2048 of the buffer. They stand in the shim.
func joinCAAR(kind uint8, leaf, queue uint16) overlay.Fabric {
	w := uint32(kind&0xf)<<28 | uint32(leaf)<<12 | uint32(queue&0xfff)
	return overlay.Fabric{
		Capable: true, Scheme: caarID, Opcode: overlay.OpExtension, Shim: true,
		TxTstamp: overlay.Tstamp(w >> 16), Arg: overlay.Tstamp(w),
	}
}

// splitCAAR returns what joinCAAR has joined.
func splitCAAR(f *overlay.Fabric) (kind uint8, leaf, queue uint16) {
	w := uint32(f.TxTstamp)<<16 | uint32(f.Arg)
	return uint8(w >> 28), uint16(w >> 12), uint16(w & 0xfff)
}
