package dataplane

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/net/bpf"

	"github.com/loomfabric/loom/internal/capture"
	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
)

// Bounds on what captures cost.
const (
	maxCaptures = 4 // at a time
	// MaxSnapLen is the largest number of bytes of a frame that a capture has room for.
	MaxSnapLen = 9216
	minTapRing = 64 << 10
	maxTapRing = 16 << 20
	maxFilter  = 1024 // instructions
	// behindAfter is how many full bursts in a row a port gives a worker until that is
	// behind: then it copies nothing.
	behindAfter = 2
)

// ErrCaptures says that there is no room for one more capture.
var ErrCaptures = fmt.Errorf("%d captures are under way: end one of them", maxCaptures)

// CaptureConfig says which frames to copy. The zero value of a field that selects frames
// selects all.
type CaptureConfig struct {
	Ports  []string // interfaces
	Points capture.Point
	// Reasons select frames that are dropped for one of them.
	Reasons []drop.Reason
	// Schemes and Flowlets select frames about which a scheme has decided.
	Schemes  []string
	Flowlets capture.Flowlet
	// Flow selects the frames of a flow, of both directions. Its VNI and DSCP do not count.
	Flow *Flow
	// Filter is a program of classic BPF for Ethernet. It is shown the tenant's frame, also
	// of one in a tunnel; with Outer the frame as it is.
	Filter  []bpf.RawInstruction
	Outer   bool
	SnapLen int // bytes of a frame to copy, at most MaxSnapLen; 0: all
	// Buffer is how many bytes each worker may be ahead of the reader; 0: 2 MiB.
	Buffer int
	// Slow keeps the fast path off the ports while the capture lasts.
	Slow bool
}

// check completes a configuration, and reports what cannot be.
func (c *CaptureConfig) check() error {
	if c.Points == 0 {
		c.Points = capture.AnyPoint
	}
	if len(c.Reasons) > 0 {
		c.Points &= capture.Drop
	}
	if len(c.Schemes) > 0 || c.Flowlets != 0 {
		c.Points &^= capture.In
	}
	if c.SnapLen == 0 {
		c.SnapLen = MaxSnapLen
	}
	if c.Buffer == 0 {
		c.Buffer = 2 << 20
	}
	switch {
	case c.Points == 0:
		return errors.New("no frame can be captured so: drops are seen at the point drop, and decisions at out and drop")
	case c.SnapLen < 0 || c.SnapLen > MaxSnapLen:
		return fmt.Errorf("%d bytes of each frame: use 1 to %d", c.SnapLen, MaxSnapLen)
	case c.Buffer < minTapRing || c.Buffer > maxTapRing || c.Buffer&(c.Buffer-1) != 0:
		return fmt.Errorf("a buffer of %d bytes: use a power of two from %d to %d", c.Buffer, minTapRing, maxTapRing)
	case len(c.Filter) > maxFilter:
		return fmt.Errorf("a filter of %d instructions: at most %d are possible", len(c.Filter), maxFilter)
	case c.Outer && c.Flow != nil:
		return errors.New("a flow is a tenant's: leave out either the flow or what selects by outer headers")
	}
	return nil
}

// tap is what one worker has of a capture. The worker writes, and the capture's reader
// reads its ring and its counters.
type tap struct {
	ports   [MaxPorts]bool
	points  capture.Point
	reasons [drop.NumReasons]bool
	schemes []string // nil: any
	flowlet capture.Flowlet
	flow    *Flow
	filter  *bpf.VM
	outer   bool
	snap    int
	works   bool // it costs something for each frame: a worker that is behind leaves it
	explain bool // it shows decisions
	ring    tapRing
	counts  [MaxPorts]tapCount
	bytes   atomic.Uint64
}

// tapCount counts a port's frames. The worker alone writes.
type tapCount struct{ captured, lost, unseen atomic.Uint64 }

// bump adds to a counter that has one writer.
func bump(c *atomic.Uint64, n uint64) { c.Store(c.Load() + n) }

// newTap returns a worker's part of a capture; ports are those that a layout has.
func (c *CaptureConfig) newTap() (*tap, error) {
	t := &tap{
		points: c.Points, schemes: c.Schemes, flowlet: c.Flowlets, flow: c.Flow, outer: c.Outer, snap: c.SnapLen,
		explain: c.Points&capture.Out != 0 || c.Flowlets != 0, // of frames that are only seen if they are dropped it costs too much
	}
	t.ring.buf = make([]byte, c.Buffer)
	for r := range t.reasons {
		t.reasons[r] = len(c.Reasons) == 0 || slices.Contains(c.Reasons, drop.Reason(r))
	}
	if len(c.Filter) > 0 {
		program, ok := bpf.Disassemble(c.Filter)
		if !ok {
			return nil, errors.New("the filter has an instruction that is none of classic BPF")
		}
		var err error
		if t.filter, err = bpf.NewVM(program); err != nil {
			return nil, fmt.Errorf("filter: %w", err)
		}
	}
	t.works = t.filter != nil || t.flow != nil || t.points != capture.Drop
	return t, nil
}

// Capture copies frames until it is closed. Its methods are for one goroutine.
type Capture struct {
	node   *Node
	cfg    CaptureConfig
	slot   int
	taps   []*tap // by worker
	layout *layout
	slowed []PortID // kept off the fast path
	wall   time.Time
	mono   mono.Time
	frame  capture.Frame
	closed bool
}

// Capture begins to copy frames. The workers copy them into rings which the caller empties
// with [Capture.Each]: what does not fit is lost to the capture, and no frame waits for it.
func (n *Node) Capture(cfg CaptureConfig) (*Capture, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	c := &Capture{node: n, cfg: cfg, wall: time.Now(), mono: now(), layout: n.layout.Load()}
	ports, err := c.ports(c.layout)
	if err != nil {
		return nil, err
	}
	for range n.workers {
		t, err := cfg.newTap()
		if err != nil {
			return nil, err
		}
		t.ports = ports
		c.taps = append(c.taps, t)
	}
	n.capturing.Lock()
	defer n.capturing.Unlock()
	if c.slot = slices.Index(n.captures[:], nil); c.slot < 0 {
		return nil, ErrCaptures
	}
	n.captures[c.slot] = c
	n.setTaps()
	if cfg.Slow {
		c.slow(&ports)
	}
	return c, nil
}

// setTaps gives the workers the captures that there are. What was noted about frames that
// are under way is forgotten. capturing is held.
func (n *Node) setTaps() {
	for q, w := range n.workers {
		var s *taps
		for slot, c := range n.captures {
			if c == nil {
				continue
			}
			if s == nil { // made here: it takes longer than a worker has
				s = &taps{notes: make([]tapNote, len(w.area)/int(w.frameMask+1)), shift: w.frameShift()}
			}
			s.all[slot] = c.taps[q]
			s.explain = s.explain || c.taps[q].explain
		}
		w.call(func() {
			if s != nil {
				s.since = w.now
			}
			w.taps = s
		})
	}
}

// ports returns which ports of a layout are captured.
func (c *Capture) ports(l *layout) (set [MaxPorts]bool, err error) {
	found := 0
	var names []string
	for id := range l.ports {
		if !l.ports[id].taken() {
			continue
		}
		names = append(names, l.ports[id].Name)
		if len(c.cfg.Ports) == 0 || slices.Contains(c.cfg.Ports, l.ports[id].Name) {
			set[id] = true
			found++
		}
	}
	if found < len(c.cfg.Ports) {
		for _, name := range c.cfg.Ports {
			if !slices.Contains(names, name) {
				return set, fmt.Errorf("there is no port %s: the node has %s", name, strings.Join(names, ", "))
			}
		}
	}
	return set, nil
}

// follow brings the capture in line with ports that have come or gone.
func (c *Capture) follow() {
	l := c.node.layout.Load()
	if l == c.layout {
		return
	}
	c.layout = l
	set, _ := c.ports(l) // one that is gone may come back
	for q, w := range c.node.workers {
		w.call(func() { c.taps[q].ports = set })
	}
}

// Each calls do for frames that were copied, the oldest first, and returns how many there
// were: some thousands at most. The frame, and its data, are valid until do returns.
func (c *Capture) Each(do func(*capture.Frame)) (n int) {
	const atOnce = 4096
	c.follow()
	if t, wall := now(), time.Now(); wall.Sub(c.wall.Add(t.Sub(c.mono))).Abs() > time.Millisecond {
		c.wall, c.mono = wall, t // the clock was set
	}
	for n < atOnce {
		var oldest *tapRing
		at, worker := mono.Time(0), 0
		for q, t := range c.taps {
			if b := t.ring.front(); b != nil && (oldest == nil || recordTime(b) < at) {
				oldest, at, worker = &t.ring, recordTime(b), q
			}
		}
		if oldest == nil {
			return n
		}
		f := &c.frame
		*f = capture.Frame{Worker: uint8(worker), Time: c.wall.Add(at.Sub(c.mono))}
		readRecord(oldest.front(), f)
		do(f)
		oldest.pop()
		n++
	}
	return n
}

// Port returns the name and the kind of a port that has frames.
func (c *Capture) Port(id uint16) capture.Port {
	p := capture.Port{Number: id}
	if int(id) < len(c.layout.ports) {
		p.Name, p.Kind = c.layout.ports[id].Name, c.layout.ports[id].Kind.String()
	}
	return p
}

// Ports returns the ports that are captured.
func (c *Capture) Ports() (all []capture.Port) {
	for id, captured := range c.taps[0].ports {
		if captured {
			all = append(all, c.Port(uint16(id)))
		}
	}
	return all
}

// Fast returns the captured ports by which XDP may forward frames that no worker sees.
func (c *Capture) Fast() []string {
	names := []string{}
	if c.node.fast == nil || c.cfg.Slow {
		return names
	}
	for _, p := range c.node.Fast().Ports {
		if len(c.cfg.Ports) == 0 || slices.Contains(c.cfg.Ports, p.Port) {
			names = append(names, p.Port)
		}
	}
	return names
}

// Stats returns what was counted since the capture began, of ports that have counted.
func (c *Capture) Stats() capture.Stats {
	s := capture.Stats{Ports: []capture.Count{}}
	for id := range c.layout.ports {
		x := capture.Count{Port: c.layout.ports[id].Name}
		for _, t := range c.taps {
			n := &t.counts[id]
			x.Captured, x.Lost, x.Unseen = x.Captured+n.captured.Load(), x.Lost+n.lost.Load(), x.Unseen+n.unseen.Load()
		}
		if x.Captured+x.Lost+x.Unseen > 0 {
			s.Ports = append(s.Ports, x)
		}
	}
	for _, t := range c.taps {
		s.Bytes += t.bytes.Load()
	}
	return s
}

// Close ends the capture. What was copied can still be read.
func (c *Capture) Close() {
	n := c.node
	n.capturing.Lock()
	defer n.capturing.Unlock()
	if c.closed {
		return
	}
	c.closed = true
	n.captures[c.slot] = nil
	n.setTaps()
	for _, id := range c.slowed {
		n.fast.slow(id, -1)
	}
}

// slow keeps the fast path off the captured ports.
func (c *Capture) slow(ports *[MaxPorts]bool) {
	if c.node.fast == nil {
		return
	}
	for id := range c.layout.ports {
		if ports[id] {
			c.node.fast.slow(PortID(id), 1)
			c.slowed = append(c.slowed, PortID(id))
		}
	}
}

// matchFlow reports whether a tenant's frame is one of a flow, in either direction.
func matchFlow(f *Flow, b []byte, m *overlay.Meta, k *overlay.FlowKey) bool {
	if len(b) < overlay.EthernetLen {
		return false
	}
	if !f.Src.IsValid() {
		src, dst := overlay.MAC(b[6:12]), overlay.MAC(b[:6])
		return src == f.SrcMAC && dst == f.DstMAC || src == f.DstMAC && dst == f.SrcMAC
	}
	overlay.Dissect(b, 0, m)
	overlay.ExactKey(b, m.L3, m, k)
	return f.is(k) || f.is(ptr(k.Reverse()))
}

func ptr[T any](v T) *T { return &v }

// is reports whether k is of f. Ports and a protocol of 0 stand for any.
func (f *Flow) is(k *overlay.FlowKey) bool {
	var src, dst [16]byte
	version := uint8(6)
	if f.Src.Is4() {
		version = 4
	}
	copy(src[:], f.Src.AsSlice())
	copy(dst[:], f.Dst.AsSlice())
	return k.Version == version && k.Src == src && k.Dst == dst && (f.Proto == 0 || k.Proto == f.Proto) &&
		(f.SrcPort == 0 || k.SrcPort == f.SrcPort) && (f.DstPort == 0 || k.DstPort == f.DstPort)
}
