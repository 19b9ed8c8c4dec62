package dataplane_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
)

// flows is how many flows there are in each direction: more than the tables hold.
const flows = 24

// generator makes a script at random. It runs a leaf alone beside, so that answers
// come to what that has asked.
type generator struct {
	rng   *rand.Rand
	tcp   *rand.Rand // for schemes that want to know flows exactly; nil for the others
	alone harness
	now   mono.Time
	id    uint32
	due   []answer
	cells map[uint32]uint16 // of flows under Presto that arrive
}

// answer is a message that a peer will send.
type answer struct {
	at     mono.Time
	p      packet
	tenant bool // a tenant's packet answers
}

// generate returns so many random events, the same for the same seed.
func generate(t testing.TB, s *setup, seed uint64, events int) []event {
	t.Helper()
	g := &generator{rng: rand.New(rand.NewPCG(seed, 1)), alone: newAlone(t, s), cells: make(map[uint32]uint16)}
	if balance.Find(s.Scheme).Exact {
		g.tcp = rand.New(rand.NewPCG(seed, 2))
	}
	script := make([]event, events)
	for i := range script {
		script[i] = g.event()
		o := g.alone.Step(&script[i])
		g.answer(&script[i], &o)
	}
	return script
}

// event returns the next event. Times are whole µs, and no two are the same.
func (g *generator) event() event {
	pause := time.Duration(1+g.rng.IntN(60)) * time.Microsecond
	switch g.rng.IntN(100) {
	case 0, 1:
		pause = time.Duration(200+g.rng.IntN(1000)) * time.Microsecond // flowlets and epochs end
	case 2:
		pause = time.Duration(100+g.rng.IntN(200)) * time.Millisecond // HELLOs
	case 3:
		if g.rng.IntN(4) == 0 {
			pause = overlay.CapableFor + time.Millisecond
		}
	}
	g.now = g.now.Add(pause)
	e := event{At: g.now, Uplink: uint8(g.rng.IntN(uplinkCount))}
	for i := range g.due {
		if g.due[i].at <= g.now {
			if e.Message = &g.due[i].p; g.due[i].tenant {
				e.Message, e.Receive = nil, []packet{g.due[i].p}
			}
			g.due = append(g.due[:i:i], g.due[i+1:]...)
			return e
		}
	}
	switch n := g.rng.IntN(100); {
	case n < 50:
		for range 1 + g.rng.IntN(6) {
			p := g.packet()
			p.Flow = uint32(g.rng.IntN(flows))
			p.Peer = uint16(p.Flow % peerCount)
			g.flags(&p)
			e.Send = append(e.Send, p)
		}
	case n < 88:
		peer := uint16(g.rng.IntN(peerCount))
		for range 1 + g.rng.IntN(6) {
			e.Receive = append(e.Receive, g.arrival(peer, e.Uplink))
		}
	case n < 94:
		e.Message = g.message()
	default:
		e.Peer = uint16(g.rng.IntN(peerCount))
		e.Paths = []uint8{}
		for u := range uint8(uplinkCount) {
			if g.rng.IntN(4) > 0 {
				e.Paths = append(e.Paths, u)
			}
		}
	}
	return e
}

// flags makes a packet TCP's if its flow is: of each two one is.
func (g *generator) flags(p *packet) {
	if g.tcp == nil || p.Flow%2 == 0 {
		return
	}
	const syn, rst, ack = overlay.TCPSyn, overlay.TCPRst, overlay.TCPAck
	p.Flags = []uint8{syn, syn | ack, ack, ack, rst | ack}[g.tcp.IntN(5)]
	p.Size = max(p.Size, leastTCP)
}

func (g *generator) packet() packet {
	g.id++
	return packet{ID: g.id, Size: uint16(leastSize + g.rng.IntN(1400))}
}

// arrival is a packet from the fabric: plain, with feedback, a HELLO, or with the
// marks of some scheme, which may make sense or not.
func (g *generator) arrival(peer uint16, uplink uint8) packet {
	p := g.packet()
	p.Peer, p.Flow = peer, uint32(g.rng.IntN(flows))
	g.flags(&p)
	f := &p.Fabric
	if g.rng.IntN(8) == 0 {
		return p
	}
	p.CE = g.rng.IntN(12) == 0
	*f = overlay.Fabric{
		Capable: true, LBTag: uint8(g.rng.IntN(uplinkCount)), CE: uint8(g.rng.IntN(8)), Path: overlay.PathID(g.rng.IntN(256)),
		FBValid: g.rng.IntN(2) == 0, FBTag: uint8(g.rng.IntN(uplinkCount + 1)), FBMetric: uint8(g.rng.IntN(8)),
	}
	stamp := overlay.TstampOf(g.now.Add(-time.Duration(g.rng.IntN(80)) * time.Microsecond))
	switch n := g.rng.IntN(10); {
	case g.tcp != nil && g.tcp.IntN(6) == 0:
		g.explores(&p)
	case n < 4:
		f.Scheme, f.Shim, f.TxTstamp, f.Epoch = 1, true, stamp, overlay.Epoch(g.rng.IntN(2))
		switch g.rng.IntN(5) {
		case 0:
			f.Opcode = overlay.OpRTTRequest
		case 1:
			f.Tail, f.Arg = true, stamp
		case 2, 3:
			f.Rerouted, f.Arg = true, stamp.Add(-20*time.Microsecond)
		}
	case n < 8:
		key := p.Flow<<2 | uint32(peer)
		f.Scheme, f.Shim, f.TxTstamp = 2, true, stamp
		f.Arg = overlay.Tstamp(g.cells[key] + uint16(g.rng.IntN(3)))
		f.Rerouted = g.rng.IntN(20) == 0
		if f.Tail = g.rng.IntN(3) == 0; f.Tail {
			g.cells[key]++
		}
	case n < 9 && g.rng.IntN(2) == 0:
		f.Scheme, f.Shim, f.TxTstamp, f.Opcode = 3, true, stamp, overlay.Opcode(g.rng.IntN(2))
		f.Epoch, f.Arg = overlay.Epoch(g.rng.IntN(4)), overlay.Tstamp(g.rng.IntN(1<<16))
	case n < 9:
		f.Opcode, f.Shim, f.TxTstamp, f.FBValid = overlay.OpHello, true, stamp, false
		if f.Tail = g.rng.IntN(2) == 0; f.Tail {
			f.Arg = stamp
		}
		p.Hello = overlay.Hello{
			Boot: 1, Round: 1 + uint32(g.now/mono.Time(100*time.Millisecond)), Present: 1<<uplinkCount - 1,
			Silent:  uint16(g.rng.IntN(1<<uplinkCount) &^ g.rng.IntN(1<<uplinkCount)),
			EchoTag: uint8(g.rng.IntN(uplinkCount)), Nonce: 9, Echo: uint64(g.rng.IntN(8)),
		}
	}
	return p
}

// explores makes a packet one of TCP-Path's: a request, of which some are of one
// exploration, or an answer to nothing.
func (g *generator) explores(p *packet) {
	f := &p.Fabric
	f.Scheme, f.Shim, f.TxTstamp, f.Epoch = 5, true, overlay.Tstamp(p.Flow), overlay.Epoch(g.tcp.IntN(2))
	f.Rerouted, f.Tail, f.Arg = g.tcp.IntN(4) == 0, g.tcp.IntN(4) == 0, overlay.Tstamp(f.Path)
	if g.tcp.IntN(3) == 0 {
		f.TxTstamp, f.Arg = overlay.TstampOf(g.now), overlay.Tstamp(g.tcp.IntN(256))
	}
}

// message is one that nobody has asked for: a NOTIFY of some path, an answer to
// nothing, of any scheme and opcode.
func (g *generator) message() *packet {
	p := g.packet()
	p.Flow = uint32(g.rng.IntN(flows))
	p.Peer = uint16(p.Flow % peerCount)
	p.Fabric = overlay.Fabric{
		Capable: true, Scheme: 1, Opcode: overlay.OpNotify, Path: overlay.MakePathID(uint8(g.rng.IntN(uplinkCount)), uint8(g.rng.IntN(16))),
		Epoch: overlay.Epoch(g.rng.IntN(4)), Rerouted: g.rng.IntN(8) == 0,
	}
	if g.rng.IntN(2) == 0 {
		p.Fabric.Scheme = overlay.SchemeID(g.rng.IntN(4))
		if g.tcp != nil && g.tcp.IntN(2) == 0 {
			p.Fabric.Scheme, p.Fabric.Tail = 5, g.tcp.IntN(2) == 0
		}
		p.Fabric.Opcode = []overlay.Opcode{overlay.OpRTTReply, overlay.OpClear, overlay.OpExplore, overlay.OpExtension}[g.rng.IntN(4)]
	}
	return &p
}

// answer has peers answer what the leaf has asked: most in time, some late, some not
// at all.
func (g *generator) answer(e *event, o *outcome) {
	for _, d := range o.Departed {
		f := &d.Fabric
		if g.tcp != nil && f.Scheme == 5 && f.Shim && f.Rerouted == f.Tail && g.tcp.IntN(3) == 0 {
			g.replies(e, &d)
		}
		if f.Scheme != 1 && f.Scheme != 3 || f.Opcode != overlay.OpRTTRequest && !f.Tail || g.rng.IntN(5) == 0 {
			continue
		}
		m := overlay.Fabric{Capable: true, Scheme: f.Scheme, Epoch: f.Epoch, Path: f.Path, Shim: true, Opcode: overlay.OpRTTReply, Arg: f.TxTstamp}
		switch {
		case f.Scheme == 3:
			m.Arg = f.Arg
		case f.Tail:
			m.Opcode, m.Arg = overlay.OpClear, f.Arg
		}
		var flow uint32
		for i := range e.Send {
			if e.Send[i].ID == d.ID {
				flow = e.Send[i].Flow
			}
		}
		g.id++
		delay := time.Duration(1+g.rng.IntN(40)) * time.Microsecond
		g.due = append(g.due, answer{g.now.Add(delay), packet{ID: g.id, Flow: flow, Peer: d.Peer, Size: leastSize, Fabric: m}, false})
	}
}

// replies has a peer's host answer a packet that explored, by the leaf's uplink d.
func (g *generator) replies(e *event, d *departure) {
	g.id++
	p := packet{ID: g.id, Peer: d.Peer, Size: leastTCP, Flags: overlay.TCPSyn | overlay.TCPAck}
	for i := range e.Send {
		if e.Send[i].ID == d.ID {
			p.Flow = e.Send[i].Flow
		}
	}
	p.Fabric = overlay.Fabric{
		Capable: true, LBTag: d.Uplink, Scheme: 5, Shim: true, Rerouted: true, Epoch: d.Fabric.Epoch,
		TxTstamp: overlay.TstampOf(g.now), Arg: d.Fabric.TxTstamp, Path: d.Fabric.Path,
	}
	g.due = append(g.due, answer{g.now.Add(time.Duration(1+g.tcp.IntN(40)) * time.Microsecond), p, true})
}
