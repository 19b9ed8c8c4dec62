package dataplane

import (
	"net/netip"
	"testing"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/dataplane/xsk"
	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

const (
	testFrameSize = 2048
	testVTEP      = "10.0.0.1"
)

// memLink is a link in memory: what the test puts in comes out of Receive, and
// what the worker transmits is kept.
type memLink struct {
	t      testing.TB
	area   []byte
	filled []uint64
	rx     []xsk.Desc
	tx     []xsk.Desc // on the ring
	out    [][]byte   // sent frames, copied, when keep is set
	done   []uint64   // sent, to be completed
	size   int        // of each ring
	stuck  bool       // the kernel takes nothing
	down   bool       // likewise, as the interface is down
	pace   int        // it takes so many frames at a time; 0: all
	kicks  int
	keep   bool
	more   bool // the last frame that was sent goes on with the next descriptor
	sent   int
}

func (l *memLink) Receive(d []xsk.Desc) int {
	n := copy(d, l.rx)
	l.rx = l.rx[:copy(l.rx, l.rx[n:])]
	return n
}

func (l *memLink) Transmit(d []xsk.Desc) int {
	n := min(len(d), l.TXFree())
	l.tx = append(l.tx, d[:n]...)
	return n
}

func (l *memLink) TXFree() int    { return l.size - len(l.tx) }
func (l *memLink) TXQueued() int  { return len(l.tx) }
func (l *memLink) TXPending() int { return len(l.tx) + len(l.done) }
func (l *memLink) FillFree() int  { return l.size - len(l.filled) }
func (l *memLink) FD() int        { return -1 }

func (l *memLink) Fill(a []uint64) int {
	n := min(len(a), l.FillFree())
	l.filled = append(l.filled, a[:n]...)
	return n
}

func (l *memLink) Complete(a []uint64) int {
	n := copy(a, l.done)
	l.done = l.done[:copy(l.done, l.done[n:])]
	return n
}

func (l *memLink) Kick() xsk.KickResult {
	l.kicks++
	if l.down {
		return xsk.KickDown
	}
	if l.stuck {
		return xsk.KickAgain
	}
	n := len(l.tx)
	if l.pace > 0 {
		n = min(n, l.pace)
	}
	for _, d := range l.tx[:n] {
		b := l.area[d.Addr : d.Addr+uint64(d.Len)]
		switch {
		case l.keep && l.more:
			l.out[len(l.out)-1] = append(l.out[len(l.out)-1], b...)
		case l.keep:
			l.out = append(l.out, append([]byte(nil), b...))
		}
		l.more = d.Options&xsk.More != 0
		l.done = append(l.done, d.Addr)
	}
	l.sent += n
	l.tx = l.tx[:copy(l.tx, l.tx[n:])]
	return xsk.KickDone
}

func (l *memLink) WakeRX() xsk.KickResult    { return xsk.KickIdle }
func (l *memLink) Stats() (xsk.Stats, error) { return xsk.Stats{}, nil }

// put makes b the next frame to be received; it reports whether there was a
// frame to put it into.
func (l *memLink) put(b []byte) bool {
	if len(l.filled) == 0 {
		return false
	}
	a := l.filled[len(l.filled)-1] + xsk.Headroom
	l.filled = l.filled[:len(l.filled)-1]
	clear(l.area[a-overlay.MetaLen : a])
	copy(l.area[a:], b)
	l.rx = append(l.rx, xsk.Desc{Addr: a, Len: uint32(len(b))})
	return true
}

// sending returns how many frames are on the TX ring or yet to be completed. Parts of one
// frame count once.
func (l *memLink) sending(mask uint64) int {
	frames := make(map[uint64]bool)
	for _, d := range l.tx {
		frames[d.Addr&^mask] = true
	}
	for _, a := range l.done {
		frames[a&^mask] = true
	}
	return len(frames)
}

// rig is a worker between links in memory.
type rig struct {
	t     testing.TB
	w     *worker
	links []*memLink
	now   mono.Time
	ask   chan HopID
	ports *layout

	statics []StaticMAC

	capable bool // benchmarks: the first peer knows the fabric's fields
	burst   int  // benchmarks: frames that come at once; 0: as many as the worker takes
}

// newRig makes a node with one worker for cfg and gives it tables.
func newRig(t testing.TB, cfg Config, tables *Tables) *rig {
	t.Helper()
	return newRigs(t, cfg, tables, 1)[0]
}

// newRigs makes the workers of one node, each between links of its own.
func newRigs(t testing.TB, cfg Config, tables *Tables, workers int) []*rig {
	t.Helper()
	completeConfig(t, &cfg, workers)
	s := newShared(&cfg)
	addresses, messages := newWorkerRings[learned](workers), newWorkerRings[message](workers)
	rigs := make([]*rig, workers)
	for id := range rigs {
		rigs[id] = newWorkerRig(t, &cfg, id, s)
		if l := rigs[id].w.leaf; l != nil && workers > 1 {
			l.learned, l.messages = addresses, messages
		}
		rigs[id].publish(tables)
	}
	return rigs
}

// completeConfig gives cfg what tests leave out.
func completeConfig(t testing.TB, cfg *Config, workers int) {
	t.Helper()
	cfg.VXLANPort, cfg.Workers = overlay.DefaultPort, workers
	if cfg.RingSize == 0 {
		cfg.RingSize = 512
	}
	if cfg.HoldTime == 0 {
		cfg.HoldTime = time.Second
	}
	if cfg.Role == Leaf {
		if !cfg.VTEP.IsValid() {
			cfg.VTEP = netip.MustParseAddr(testVTEP)
		}
		if cfg.FDBSize == 0 {
			cfg.FDBSize = 1 << 17
		}
		if cfg.FDBAge == 0 {
			cfg.FDBAge = 5 * time.Minute
		}
	}
	for i := range cfg.Ports {
		if cfg.Ports[i].Egress.QueueBytes == 0 {
			cfg.Ports[i].Egress.QueueBytes = 1 << 20
		}
	}
	if err := cfg.check(); err != nil {
		t.Fatal(err)
	}
}

// layoutOf returns the layout that a node starts with.
func layoutOf(t testing.TB, cfg *Config) *layout {
	t.Helper()
	s := newSeats(len(cfg.Ports))
	l, err := s.arrange(cfg.Role, cfg.Ports, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// newWorkerRig makes one worker of a node.
func newWorkerRig(t testing.TB, cfg *Config, id int, s *shared) *rig {
	t.Helper()
	frames := len(cfg.Ports)*(2*cfg.RingSize+queueShare) + dataQueueFrames // none to wait to be put in order
	size := cfg.FrameSize()
	area := make([]byte, frames*size)
	r := &rig{t: t, now: mono.Time(time.Second), ask: make(chan HopID, 16)}
	r.ports = layoutOf(t, cfg)
	var err error
	if r.w, err = newWorker(id, cfg, area, xsk.NewPool(frames, size), size, s); err != nil {
		t.Fatal(err)
	}
	r.w.ask = r.ask
	if r.w.leaf != nil {
		r.w.leaf.brain.SetHello(idle) // tests that want HELLOs say so
	}
	for i := range r.w.ports {
		l := &memLink{t: t, area: area, size: cfg.RingSize, keep: true}
		r.links = append(r.links, l)
		r.w.attach(&r.w.ports[i], l)
	}
	return r
}

// prove makes a peer one that reads the fabric's fields.
func (r *rig) prove(peer uint16) { r.w.shared.leaf.Capable.Confirm(peer, r.now) }

// flowletKeys are the keys of a scheme with a flowlet table of that size.
func flowletKeys(size int) balance.Params { return &balance.FlowletKeys{Flowlets: size} }

// weights are the keys of scheme static.
func weights(shares ...uint32) balance.Params { return &balance.StaticKeys{Weights: shares} }

// labConWeave is the lab's section of ConWeave.
func labConWeave() *balance.ConWeaveParams {
	return balance.Find("conweave").Section.New(balance.Lab).(*balance.ConWeaveParams)
}

// useConWeave has a leaf use ConWeave with the parameters of p.
func useConWeave(cfg *Config, p *balance.ConWeaveParams) {
	cfg.Scheme, cfg.Sections = "conweave", map[string]balance.Params{"conweave": p}
}

// source returns what ConWeave's source side of a class has counted.
func source(c *class) balance.ConWeaveStats {
	return *c.Policy.Stats().Own.(*balance.ConWeaveStats)
}

// destination returns the worker's destination side of ConWeave.
func (r *rig) destination() *reorder.ConWeave {
	return r.w.leaf.brain.Receiver(reorder.SchemeID).(*reorder.ConWeave)
}

// reload puts another default scheme in force.
func (r *rig) reload(scheme string) {
	r.t.Helper()
	r.w.cfg.Scheme = scheme
	classes, err := r.w.leaf.makeClasses(r.w.cfg.rules(), nil)
	if err != nil {
		r.t.Fatal(err)
	}
	r.w.leaf.setClasses(classes)
}

// held returns how many frames the worker's leaf holds.
func (r *rig) held() int { return r.w.leaf.brain.Held() }

// messages returns how many messages came to the worker itself, and how many other
// workers have passed on to it.
func (r *rig) messages() (received, relayed uint64) {
	s := r.w.leaf.brain.Stats()
	for _, n := range s.Received {
		received += n
	}
	return received, s.Relayed
}

func (r *rig) publish(tables *Tables) {
	r.t.Helper()
	v, err := compile(r.w.cfg, r.ports, tables)
	if err != nil {
		r.t.Fatal(err)
	}
	if old := r.w.views.Load(); old != nil {
		v.seq = old.seq + 1
	}
	r.w.views.Store(v)
	r.w.round(r.now)
	if r.w.leaf != nil {
		applyAddresses([]*worker{r.w}, staticChanges(r.statics, tables.Static))
		r.statics = tables.Static
	}
}

// send lets frames come in by a port and runs the worker until it is quiet. It
// returns what left, by port.
func (r *rig) send(p PortID, frames ...[]byte) [][][]byte {
	r.t.Helper()
	for _, b := range frames {
		if !r.links[p].put(b) {
			r.t.Fatalf("port %d has no frame to receive into", p)
		}
	}
	return r.settle()
}

// settle runs the worker until nothing moves, checks the books, and returns
// what left since the last time.
func (r *rig) settle() [][][]byte {
	r.t.Helper()
	for range 4 {
		for r.w.round(r.now) > 0 {
			r.now += 1000
		}
	}
	r.balance()
	var out [][][]byte
	for _, l := range r.links {
		out = append(out, l.out)
		l.out = nil
	}
	return out
}

// balance checks that no frame was lost or made from nothing, in the counters
// and in the pool.
func (r *rig) balance() {
	r.t.Helper()
	s := r.w.snapshot()
	owned := 0
	for i := range s.Ports {
		if n := s.Ports[i].Drops[drop.None]; n > 0 {
			r.t.Fatalf("%d drops without a reason", n)
		}
		l := r.links[i]
		owned += len(l.filled) + len(l.rx) + l.sending(r.w.frameMask)
	}
	if a := s.Account(); !a.Balances() {
		r.t.Fatal(a)
	}
	if all := r.w.pool.Free() + owned + int(s.Held); all != r.w.pool.Frames() {
		r.t.Fatalf("%d frames free + %d at the links + %d held = %d of %d", r.w.pool.Free(), owned, s.Held, all, r.w.pool.Frames())
	}
}

// drops returns the worker's drops by reason, without zeroes.
func (r *rig) drops() map[drop.Reason]uint64 {
	m := make(map[drop.Reason]uint64)
	for i := range r.w.ports {
		for reason, n := range r.w.ports[i].stats.Drops {
			if n > 0 {
				m[drop.Reason(reason)] += n
			}
		}
	}
	return m
}
