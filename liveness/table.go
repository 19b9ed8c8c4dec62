package liveness

import (
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
)

// MaxTags is the number of uplinks that tags can name: a tag has 4 bits (CONGA §3.1).
const MaxTags = 16

// echoFor is how long a HELLO's time is sent back. Later the clocks are not that equal.
const echoFor = 500 * time.Millisecond

// Table is what the workers of one leaf know of its peers' HELLOs. It is made of words
// of which the last writer wins; which worker a HELLO comes to is up to its NIC.
type Table struct {
	peers    []peer
	from     []heard         // by peer*MaxTags + the peer's tag
	to       []told          // by peer*MaxTags + own tag
	dead     []atomic.Uint32 // by peer: own tags that its traffic keeps off
	changes  atomic.Uint32   // of dead
	reports  atomic.Uint32   // changes of what peers say, or of dead
	round    atomic.Uint32   // own, the present one
	counters []counters      // by worker
	beside   func(p uint16, tag uint8) (came, hot uint32)
	gone     func(p uint16, tag uint8) (sent uint32)
}

// CountBeside says who counts packets beside the workers: those that have come, by peer and the
// peer's uplink tag, and of these the ones that have met a busy link; and those that were sent,
// by peer and own uplink tag. It is called before the table is used. The counts are read at
// each use: a HELLO says how many packets went before it, and none of them may be missing.
func (t *Table) CountBeside(count func(p uint16, tag uint8) (came, hot uint32), sent func(p uint16, tag uint8) uint32) {
	t.beside, t.gone = count, sent
}

// peer is the latest of what a peer says.
type peer struct {
	boot    atomic.Uint32
	gone    atomic.Uint32 // boot that has said goodbye; 0: none
	every   atomic.Uint32 // time between its rounds, ms; 0: it does not say
	newest  atomic.Uint64 // round<<32 | large round
	present atomic.Uint32
	nonce   atomic.Uint64
	report  atomic.Uint64 // own tags, see Report; bit 63: there is one
	at      atomic.Int64  // when the report came, plus one
}

// heard is a path from a peer.
type heard struct {
	run    atomic.Uint64 // round<<32 | rounds in a row up to it
	large  atomic.Uint32 // round of the last padded HELLO
	counts atomic.Uint64 // packets: sent, as that HELLO said, <<32 | come until then
	stamp  atomic.Uint64 // when it came, in µs plus one, <<16 | its own timestamp
}

// told is what a peer says of a path to it.
type told struct {
	roundTrip atomic.Int64  // smoothed
	loss      atomic.Uint32 // of 65535
	given     atomic.Uint32 // how often it was given up
}

// counters are copies of what a worker counts, by peer*MaxTags+tag.
type counters struct{ sent, came, hot []atomic.Uint32 }

// NewTable returns a table for peers 0 to peers-1 and so many workers. Nothing is known
// yet.
func NewTable(peers, workers int) *Table {
	t := &Table{
		peers: make([]peer, peers), from: make([]heard, peers*MaxTags), to: make([]told, peers*MaxTags),
		dead: make([]atomic.Uint32, peers), counters: make([]counters, workers),
	}
	if workers > 1 {
		for i := range t.counters {
			t.counters[i] = counters{make([]atomic.Uint32, peers*MaxTags), make([]atomic.Uint32, peers*MaxTags), make([]atomic.Uint32, peers*MaxTags)}
		}
	}
	return t
}

// Hear notes a peer's HELLO, which came by the peer's uplink tag with the timestamp
// stamp. came is how many packets had come by that path, see [Traffic.Came].
func (t *Table) Hear(p uint16, tag uint8, h *overlay.Hello, stamp overlay.Tstamp, came uint32, now mono.Time) {
	s, x := &t.peers[p], &t.from[int(p)*MaxTags+int(tag&(MaxTags-1))]
	if s.boot.Load() != h.Boot {
		t.restart(p)
		s.boot.Store(h.Boot)
	}
	if old := s.newest.Load(); h.Round >= uint32(old>>32) {
		s.newest.Store(uint64(h.Round)<<32 | uint64(h.LargeRound))
		s.present.Store(uint32(h.Present))
		s.nonce.Store(h.Nonce)
		s.every.Store(uint32(h.Every))
		r := Report{h.Silent, h.Lossy, h.Narrow}
		s.report.Store(r.word())
		s.at.Store(int64(now) + 1)
	}
	run := uint64(1)
	switch old := x.run.Load(); h.Round - uint32(old>>32) {
	case 0:
		return // a copy
	case 1:
		run = min(old&0xffffffff+1, maxProof)
	}
	x.run.Store(uint64(h.Round)<<32 | run)
	if h.Large {
		x.large.Store(h.Round)
	}
	x.counts.Store(uint64(h.Sent)<<32 | uint64(came))
	x.stamp.Store((uint64(now)/1000+1)<<16 | uint64(stamp))
	t.to[int(p)*MaxTags+int(h.EchoTag)].loss.Store(uint32(h.Loss))
}

// Depart notes that a peer has said goodbye. It reports false, and does nothing, if that
// is not the word of the process that the peer's HELLOs are from: a goodbye that somebody
// has kept does not count for the next one. The caller has made sure that the peer said it.
func (t *Table) Depart(p uint16, boot uint32) bool {
	s := &t.peers[p]
	if have := s.boot.Load(); have != 0 && have != boot {
		return false
	}
	s.gone.Store(boot)
	t.restart(p)
	return true
}

// Departed reports whether the process of a peer that boot stands for has said goodbye.
// What comes of it later was under way, or somebody has kept it.
func (t *Table) Departed(p uint16, boot uint32) bool {
	return boot != 0 && t.peers[p].gone.Load() == boot
}

// restart drops what a peer said before it started again. How often paths to it failed
// is this leaf's own.
func (t *Table) restart(p uint16) {
	s := &t.peers[p]
	s.newest.Store(0)
	s.present.Store(0)
	s.nonce.Store(0)
	s.report.Store(0)
	for i := range MaxTags {
		x := &t.from[int(p)*MaxTags+i]
		x.run.Store(0)
		x.large.Store(0)
		x.counts.Store(0)
		x.stamp.Store(0)
	}
}

// Forget drops all that is known of a peer, as when its place goes to another one.
func (t *Table) Forget(p uint16) {
	t.restart(p)
	t.peers[p].boot.Store(0)
	t.peers[p].gone.Store(0)
	for i := range MaxTags {
		x := &t.to[int(p)*MaxTags+i]
		x.roundTrip.Store(0)
		x.loss.Store(0)
		x.given.Store(0)
	}
	if t.dead[p].Swap(0) != 0 {
		t.changes.Add(1)
	}
}

// ForgetTag drops what peers have said of the paths by an own uplink tag, as when the tag
// goes to another uplink.
func (t *Table) ForgetTag(tag uint8) {
	tag &= MaxTags - 1
	for p := range t.peers {
		x := &t.to[p*MaxTags+int(tag)]
		x.roundTrip.Store(0)
		x.loss.Store(0)
		x.given.Store(0)
		if t.dead[p].And(^uint32(1<<tag))>>tag&1 != 0 {
			t.changes.Add(1)
		}
	}
}

// Greet notes the nonce of a peer that has proved nothing yet, and nothing else of what it
// says.
func (t *Table) Greet(p uint16, nonce uint64) { t.peers[p].nonce.Store(nonce) }

// EchoTag returns the k-th of the peer's tags that HELLOs come by, counted round and
// round; 0 if there are none.
func (t *Table) EchoTag(p uint16, k int) uint8 {
	m := uint16(t.peers[p].present.Load())
	if m == 0 {
		return 0
	}
	for k %= bits.OnesCount16(m); k > 0; k-- {
		m &= m - 1
	}
	return uint8(bits.TrailingZeros16(m))
}

// Expect sets what Present returns until the peer says something else.
func (t *Table) Expect(p uint16, present uint16) { t.peers[p].present.Store(uint32(present)) }

// Present returns the uplinks by which a peer sends, a bit each, as it has said; 0: it has
// said nothing.
func (t *Table) Present(p uint16) uint16 { return uint16(t.peers[p].present.Load()) }

// Nonce returns the number that the peer wants to see again; 0: none has come.
func (t *Table) Nonce(p uint16) uint64 { return t.peers[p].nonce.Load() }

// Round returns the number of the leaf's own present round.
func (t *Table) Round() uint32 { return t.round.Load() }

// Echo returns what the last HELLO of a peer by its uplink tag is to get back at now:
// its timestamp and the time that has passed since it came. ok is false if that is too
// long, or if none came.
func (t *Table) Echo(p uint16, tag uint8, now mono.Time) (s overlay.Tstamp, ok bool) {
	x := t.from[int(p)*MaxTags+int(tag)].stamp.Load()
	if x == 0 {
		return 0, false
	}
	stayed := mono.Time(uint64(now)/1000 - (x>>16 - 1)) // µs
	if stayed < 0 || stayed > mono.Time(echoFor/time.Microsecond) {
		return 0, false
	}
	return overlay.Tstamp(x) + overlay.Tstamp(stayed), true
}

// RoundTrip notes how long a HELLO by the leaf's own uplink tag took to the peer, and
// another one back by any path.
func (t *Table) RoundTrip(p uint16, tag uint8, d time.Duration) {
	x := &t.to[int(p)*MaxTags+int(tag&(MaxTags-1))].roundTrip
	if old := x.Load(); old > 0 {
		d = time.Duration(old) + (d-time.Duration(old))/8
	}
	x.Store(int64(max(d, 1)))
}

// Trip returns what RoundTrip has noted of late, smoothed; 0: nothing.
func (t *Table) Trip(p uint16, tag uint8) time.Duration {
	return time.Duration(t.to[int(p)*MaxTags+int(tag&(MaxTags-1))].roundTrip.Load())
}

// Dead returns the leaf's own tags that traffic to a peer keeps off, a bit each.
func (t *Table) Dead(p uint16) uint16 { return uint16(t.dead[p].Load()) }

// Changes counts how often Dead of any peer became another one, wrapping.
func (t *Table) Changes() uint32 { return t.changes.Load() }

// Reports counts how often something of what [Table.Path] says of states became
// different, wrapping.
func (t *Table) Reports() uint32 { return t.reports.Load() }

// Path is what is known of the path to a peer by one of the leaf's uplinks.
type Path struct {
	// State is what the peer says of it; Unknown: the peer has said nothing of late.
	State State
	// Avoided says that traffic keeps off the path: the peer says that it does not
	// deliver, and there is one that does.
	Avoided   bool
	RoundTrip time.Duration // there by this path, and back by any; 0: not measured
	Loss      float64       // share of the packets that was lost of late
	GivenUp   uint32        // how often traffic was taken off the path
}

// Path returns what is known at now of the path to a peer by own uplink tag.
func (t *Table) Path(p uint16, tag uint8, now mono.Time) Path {
	x := &t.to[int(p)*MaxTags+int(tag)]
	s := Path{
		Avoided: t.dead[p].Load()>>tag&1 != 0, RoundTrip: time.Duration(x.roundTrip.Load()),
		Loss: float64(x.loss.Load()) / 65535, GivenUp: x.given.Load(),
	}
	if r, ok := t.report(p, now); ok {
		s.State = r.state(tag)
	}
	return s
}

// report returns what a peer has said of late of the leaf's own tags.
func (t *Table) report(p uint16, now mono.Time) (r Report, ok bool) {
	s := &t.peers[p]
	w, at := s.report.Load(), s.at.Load()
	if w == 0 || at == 0 || mono.Time(at-1).Apart(now, mono.Time(overlay.CapableFor)) {
		return r, false
	}
	return reportOf(w), true
}

// Report is a judgement about the paths from one leaf to another, by the tags of the one
// that sends, a bit each.
type Report struct {
	Silent, Lossy, Narrow uint16
}

func (r Report) word() uint64 {
	return 1<<63 | uint64(r.Silent)<<32 | uint64(r.Lossy)<<16 | uint64(r.Narrow)
}

func reportOf(w uint64) Report { return Report{uint16(w >> 32), uint16(w >> 16), uint16(w)} }

func (r Report) state(tag uint8) State {
	switch {
	case r.Silent>>tag&1 != 0:
		return Silent
	case r.Lossy>>tag&1 != 0:
		return Lossy
	case r.Narrow>>tag&1 != 0:
		return Narrow
	}
	return Alive
}

// keepOff returns those of the tags in use that traffic is to keep off. A path that
// delivers something is better than none.
func (r Report) keepOff(used uint16) uint16 {
	for _, bad := range []uint16{r.Silent | r.Lossy | r.Narrow, r.Silent} {
		if used&^bad != 0 {
			return used & bad
		}
	}
	return 0
}

// State is what is thought of a path.
type State uint8

// The states.
const (
	Unknown State = iota // nothing is known
	Alive                // it delivers
	Silent               // it delivers nothing
	Lossy                // it loses a part of the packets
	Narrow               // it does not deliver long packets
)

var states = [...]string{"unknown", "alive", "silent", "lossy", "narrow"}

// String returns the state's name.
func (s State) String() string { return states[s] }
