package dataplane

import (
	"sync/atomic"
	"time"

	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
)

// shared is what the workers of a node have in common: link meters, and on a
// leaf what leaves tell each other. All of it is made of atomic words; see
// package congestion.
type shared struct {
	params  congestion.Params
	meters  []*congestion.Meter // by PortID
	to      *congestion.ToLeaf
	from    *congestion.FromLeaf
	capable *overlay.Capability
	greeted []atomic.Uint64 // by peer: its last HELLO, see noteGreeting; 0: none
}

func newShared(cfg *Config) *shared {
	s := &shared{params: cfg.Congestion}
	for range cfg.Ports {
		s.meters = append(s.meters, congestion.NewMeter(cfg.Workers, &s.params))
	}
	if cfg.Role == Leaf {
		s.to = congestion.NewToLeaf(MaxPeers, &s.params)
		s.from = congestion.NewFromLeaf(MaxPeers, &s.params)
		s.capable = overlay.NewCapability(MaxPeers)
		s.greeted = make([]atomic.Uint64, MaxPeers)
	}
	return s
}

// Look fills the view of links that the policies are shown, once a round
// (balance.Links).
func (w *worker) Look(now mono.Time) {
	if w.looked == now {
		return
	}
	w.looked = now
	for i, p := range w.uplinks {
		e := &w.ports[p].egress
		w.local[i] = e.meter.Metric(now, e.rate)
		w.queue[i] = uint32(e.data.bytes)
	}
}

// greetPeers sends every peer a HELLO when it is time, so that those that know
// the fabric's fields know that this node does. One worker does it for all.
func (w *worker) greetPeers(now mono.Time) {
	if w.id != 0 || w.exchange == nil || now < w.greetAt {
		return
	}
	if w.greetNext == 0 {
		w.greetings++
	}
	v := w.view
	// A burst a round: the control queue of an uplink, on which all of them may
	// leave, does not hold one for each peer of a large fabric.
	first, end := w.greetNext, min(w.greetNext+burstSize, len(v.paths))
	w.greetNext = end
	if end == len(v.paths) {
		w.greetNext, w.greetAt = 0, now+mono.Time(overlay.HelloInterval)
	}
	for peer := first; peer < end; peer++ {
		n := int(v.paths[peer].N)
		if n == 0 {
			continue
		}
		path := w.greetings % n // a path that loses frames must not silence a leaf
		t := &v.tunnels[peer*MaxPaths+path]
		if t.resolved {
			w.greet(t, PeerID(peer), now)
		}
	}
}

// helloEtherType is IEEE's for local experiments: no host is meant to see it.
const helloEtherType = 0x88b5

// greet sends one HELLO: the fabric's header and an empty inner frame. Its
// TX_TSTAMP comes back with the peer's next HELLO, as TAIL_TX_TSTAMP of one with
// Tail, with the time added for which it stayed there: so leaves measure the round
// trip between them, over one path there and any path back.
func (w *worker) greet(t *tunnel, peer PeerID, now mono.Time) {
	a, ok := w.pool.Get()
	if !ok {
		return // no packet was promised to anybody; the next one is due soon
	}
	w.stats.Made++
	f := frame{
		off: uint32(a) + controlAt, len: overlay.MaxOverhead + overlay.EthernetLen, in: t.port,
		l3: overlay.EthernetLen, flags: overlay.FlagIPv4, kind: kindControl | kindCapable, hash: uint32(w.greetings),
	}
	b := w.bytes(&f)
	clear(b)
	overlay.Ethernet(b[overlay.MaxOverhead:]).SetEtherType(helloEtherType)
	fab := overlay.Fabric{Capable: true, Opcode: overlay.OpHello, LBTag: t.uplink, Path: overlay.MakePathID(t.uplink, uint8(w.greetings)),
		Shim: true, TxTstamp: overlay.TstampOf(now)}
	fab.Arg, fab.Tail = w.shared.echo(peer, now)
	t.header.Encap(b, overlay.EthernetLen, 0, f.hash, overlay.DSCPControl, &fab)
	w.stats.HopSent[t.hop].Add(uint32(f.len))
	w.enqueue(&f, t.port)
}

// noteGreeting keeps what a peer's HELLO is to get back, and takes note of how
// long one of this leaf's took.
func (w *worker) noteGreeting(peer PeerID, f *overlay.Fabric, now mono.Time) {
	if !f.Shim {
		return
	}
	w.shared.greeted[peer].Store((uint64(now)/1000+1)<<16 | uint64(f.TxTstamp))
	if f.Tail {
		if d := overlay.TstampOf(now).Sub(f.Arg); d >= 0 {
			w.stats.RoundTrip.Add(d)
		}
	}
}

// echo returns what a peer's last HELLO is to get back at now; ok is false if that
// was too long ago: clocks are not that equal.
func (s *shared) echo(peer PeerID, now mono.Time) (t overlay.Tstamp, ok bool) {
	x := s.greeted[peer].Load()
	if x == 0 {
		return 0, false
	}
	stayed := mono.Time(uint64(now)/1000 - (x>>16 - 1)) // µs
	if stayed < 0 || stayed > mono.Time(2*overlay.HelloInterval/time.Microsecond) {
		return 0, false
	}
	return overlay.Tstamp(x) + overlay.Tstamp(stayed), true
}

// controlAt is where in a UMEM frame a packet of the fabric's own begins: where a
// received one does.
const controlAt = 256

// consume ends the life of a control packet that was for this node.
func (w *worker) consume(f *frame) {
	w.stats.Consumed++
	w.pool.Put(uint64(f.off) &^ w.frameMask)
}

// forgetPeers drops what was known of peers whose place in the tables went to
// others.
//
// Frames of theirs that wait go on: an answer about them would reach a stranger.
func (w *worker) forgetPeers(old, v *view, now mono.Time) {
	if old == nil || w.exchange == nil {
		return
	}
	for i := range min(len(old.tables.Peers), len(v.tables.Peers)) {
		if old.tables.Peers[i].VTEP != v.tables.Peers[i].VTEP {
			w.shared.capable.Forget(uint16(i))
			w.shared.to.Forget(uint16(i))
			w.shared.from.Forget(uint16(i))
			w.shared.greeted[i].Store(0)
			w.flushOrder(now)
		}
	}
}
