package dataplane

import (
	"math/bits"
	"slices"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/dataplane/xsk"
	"github.com/loomfabric/loom/internal/capture"
	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
)

// taps are a worker's captures, and what they have to know of frames on their way from one
// point to the next. A worker without captures has none, which it looks at once a burst.
// Owned by the worker.
type taps struct {
	all     [maxCaptures]*tap // nil: the place is free
	notes   []tapNote         // by UMEM frame number
	shift   uint8             // from an offset in the UMEM to that
	since   mono.Time         // from when on it is known when frames came
	explain bool              // decisions are wanted
	full    [MaxPorts]uint8   // full bursts in a row, up to behindAfter

	prior [burstSize]priorFlowlet
	decap overlay.Decapped
	meta  overlay.Meta
	key   overlay.FlowKey
}

// tapNote is what is known of a frame that is in the worker. The zero value is that of a
// frame which the worker has had since before the capture.
type tapNote struct {
	came    mono.Time
	held    mono.Time
	scheme  string
	why     string
	state   uint8
	match   uint8 // captures that want the frame, a bit each
	unseen  uint8 // captures that have not looked at it
	class   uint8
	flowlet capture.Flowlet
	copied  bool
}

// States of a note.
const (
	noteBefore = iota // it was here when the capture began
	noteCame          // it came by a port
	noteMade          // the worker has made it
)

// priorFlowlet is what a table of flowlets said before the scheme chose.
type priorFlowlet struct {
	slot          uint32
	uplink        uint8
	known, active bool
}

// frameShift returns the shift from an offset in the UMEM to the number of a frame.
func (w *worker) frameShift() uint8 { return uint8(bits.TrailingZeros64(w.frameMask + 1)) }

// note returns the note about the frame at an offset.
func (s *taps) note(off uint32) *tapNote { return &s.notes[off>>s.shift] }

// in looks at a burst that came by a port. A worker that is behind copies nothing: it has
// no time to lose, and frames go before captures.
func (s *taps) in(w *worker, p *port, descs []xsk.Desc, now mono.Time) {
	if len(descs) < burstSize {
		s.full[p.id] = 0
	} else {
		s.full[p.id] = min(s.full[p.id]+1, behindAfter)
	}
	behind := s.full[p.id] == behindAfter
	for i := range descs {
		d := &descs[i]
		n := s.note(uint32(d.Addr))
		*n = tapNote{came: now, state: noteCame, class: capture.None}
		b := w.area[d.Addr : d.Addr+uint64(d.Len)]
		for slot, t := range s.all {
			switch {
			case t == nil:
				continue
			case behind && t.works:
				n.unseen |= 1 << slot
				if t.ports[p.id] {
					bump(&t.counts[p.id].unseen, 1)
				}
				continue
			case t.outer || s.wants(w, t, p.kind, b):
				n.match |= 1 << slot
			default:
				continue
			}
			if t.points&capture.In != 0 && t.ports[p.id] && (!t.outer || s.wants(w, t, p.kind, b)) {
				t.copy(&record{at: now, port: p.id, point: capture.In, uplink: capture.None, note: n}, b)
			}
		}
	}
}

// wants reports whether a capture selects a frame by its bytes, which are as they are on a
// port of that kind.
func (s *taps) wants(w *worker, t *tap, kind PortKind, b []byte) bool {
	if t.filter == nil && t.flow == nil {
		return true
	}
	if !t.outer && kind != Access && overlay.Decap(b, w.cfg.VXLANPort, &s.decap) == drop.None {
		b = b[s.decap.Inner:s.decap.End]
	}
	if t.flow != nil && !matchFlow(t.flow, b, &s.meta, &s.key) {
		return false
	}
	if t.filter == nil {
		return true
	}
	n, err := t.filter.Run(b) // an error is that of a load beyond the frame, or of what there is not
	return err == nil && n != 0
}

// selected reports whether a capture wants a frame at a point behind the first one. Frames
// that came are looked at once, when they come, unless their outer headers count.
func (s *taps) selected(w *worker, slot int, t *tap, n *tapNote, kind PortKind, b []byte) bool {
	switch {
	case n.unseen>>slot&1 != 0:
		return false
	case n.state == noteCame && !t.outer:
		if n.match>>slot&1 == 0 {
			return false
		}
	case !s.wants(w, t, kind, b):
		return false
	}
	if t.flowlet != 0 && t.flowlet&n.flowlet == 0 {
		return false
	}
	if t.schemes == nil {
		return true
	}
	for _, name := range t.schemes {
		if name == n.scheme {
			return true
		}
	}
	return false
}

// out looks at frames that leave by a port.
func (s *taps) out(w *worker, p *port, descs []xsk.Desc, now mono.Time) {
	uplink := uint8(capture.None)
	if p.kind == Uplink {
		uplink = p.uplink
	}
	for i := range descs {
		d := &descs[i]
		n := s.note(uint32(d.Addr))
		if n.scheme == "" {
			n.class = capture.None
		}
		b := w.area[d.Addr : d.Addr+uint64(d.Len)]
		for slot, t := range s.all {
			if t != nil && t.points&capture.Out != 0 && t.ports[p.id] && s.selected(w, slot, t, n, p.kind, b) {
				t.copy(&record{at: now, since: s.since, port: p.id, point: capture.Out, uplink: uplink, note: n}, b)
			}
		}
		*n = tapNote{}
	}
}

// dropped looks at a frame that is dropped. last says that its memory is free then.
func (s *taps) dropped(w *worker, f *frame, r drop.Reason, last bool) {
	n := s.note(f.off)
	if n.scheme == "" {
		n.class = capture.None
	}
	b := w.bytes(f)
	for slot, t := range s.all {
		if t != nil && t.points&capture.Drop != 0 && t.ports[f.in] && t.reasons[r] && s.selected(w, slot, t, n, w.ports[f.in].kind, b) {
			t.copy(&record{at: w.now, since: s.since, port: f.in, point: capture.Drop, reason: r, uplink: capture.None, note: n}, b)
		}
	}
	if last {
		*n = tapNote{}
	}
}

// copy puts a frame into the ring, or counts it as lost.
func (t *tap) copy(x *record, b []byte) {
	c := &t.counts[x.port]
	if n, ok := t.ring.put(x, b, t.snap); ok {
		bump(&c.captured, 1)
		bump(&t.bytes, uint64(n))
	} else {
		bump(&c.lost, 1)
	}
}

// made notes that the worker has made the frame at an offset.
func (s *taps) made(off uint32) { *s.note(off) = tapNote{state: noteMade} }

// cloned notes that a frame has a copy.
func (s *taps) cloned(from, to *frame) {
	n := s.note(to.off)
	*n = *s.note(from.off)
	n.copied = true
}

// waited notes that frames, by their numbers, have waited until now.
func (s *taps) waited(numbers []uint32, now mono.Time) {
	for _, number := range numbers {
		n := &s.notes[number]
		if n.state == noteCame {
			n.held = now - n.came
		}
	}
}

// choosing notes, before a scheme chooses the paths of a class's vector, what it knows of
// the flows. Nothing that it chooses differs for it.
func (l *leafWorker) choosing(c *class, n int, now mono.Time) {
	s := l.taps
	if !s.explain {
		return
	}
	if p, ok := c.Policy.(balance.FlowletPolicy); ok {
		table := p.Flowlets()
		for i := range n {
			fl, known := table.Find(c.choice[i].Hash, now)
			s.prior[i] = priorFlowlet{fl.Slot, fl.Uplink, known, fl.Active}
		}
	}
	looked := l.looked
	defer func() { l.looked = looked }() // a scheme that looks at its links does so as without us
	for i := range n {
		note := s.note(c.frames[i].off)
		if note.match == 0 && note.state == noteCame {
			continue
		}
		var exact []balance.Exact
		if c.exact != nil {
			exact = c.exact[i : i+1]
		}
		v := *l.brain.View()
		v.Exact = exact
		pkt := c.choice[i]
		note.why = balance.Explain(c.Policy, now, &v, &pkt).Reason
	}
}

// chosen notes what the scheme has chosen.
func (l *leafWorker) chosen(c *class, n int) {
	s := l.taps
	index := slices.Index(l.classes, c)
	_, flowlets := c.Policy.(balance.FlowletPolicy)
	for i := range n {
		note := s.note(c.frames[i].off)
		note.class, note.scheme = uint8(index), c.Scheme.Name
		if flowlets && s.explain && l.view.paths[c.frames[i].peer].N > 0 {
			s.follow(c, n, i, l.view.paths[c.frames[i].peer].Uplink[c.choice[i].Path%MaxPaths], note)
		}
	}
}

// follow says what the i-th packet of a vector was to its flowlet, and what the next one of
// its flow will find.
func (s *taps) follow(c *class, n, i int, uplink uint8, note *tapNote) {
	p := &s.prior[i]
	switch {
	case !p.known:
		note.flowlet = capture.New
	case p.active && p.uplink == uplink:
		note.flowlet = capture.UnderWay
	case p.uplink == uplink:
		note.flowlet = capture.Kept
	default:
		note.flowlet = capture.Moved
	}
	if note.flowlet == capture.UnderWay {
		return
	}
	for j := i + 1; j < n; j++ {
		if q := &s.prior[j]; q.slot == p.slot {
			*q = priorFlowlet{p.slot, uplink, true, true}
			if next := s.note(c.frames[j].off); next.why != "" {
				next.why = "its flowlet is under way there"
			}
		}
	}
}
