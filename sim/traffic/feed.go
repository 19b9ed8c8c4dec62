package traffic

import (
	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

// Merge is several sources as one. Flows of equal start come in the order of
// their sources; IDs and connections are numbered anew, so that each is unique.
type Merge struct {
	sources []Source
	heads   []head
	conns   []int // number of each source's first connection
	bound   int
	made    uint64
}

// head is the next flow of a source.
type head struct {
	f  Flow
	ok bool
}

// NewMerge returns the sources as one. They belong to it from now on.
func NewMerge(sources ...Source) *Merge {
	m := &Merge{sources: sources, heads: make([]head, len(sources)), conns: make([]int, len(sources))}
	for i, s := range sources {
		m.conns[i] = m.bound
		m.bound += s.Conns()
		m.refill(i)
	}
	return m
}

func (m *Merge) refill(i int) { m.heads[i].f, m.heads[i].ok = m.sources[i].Next() }

// Conns bounds the connections' numbers.
func (m *Merge) Conns() int { return m.bound }

// Start returns when the next flow starts; engine.Never: there is none now.
func (m *Merge) Start() engine.Time {
	if i := m.first(); i >= 0 {
		return m.heads[i].f.Start
	}
	return engine.Never
}

// first returns the source of the next flow, -1 if there is none.
func (m *Merge) first() int {
	best := -1
	for i := range m.heads {
		if h := &m.heads[i]; h.ok && (best < 0 || h.f.Start < m.heads[best].f.Start) {
			best = i
		}
	}
	return best
}

// Next returns the earliest flow of all sources.
func (m *Merge) Next() (Flow, bool) {
	i := m.first()
	if i < 0 {
		return Flow{}, false
	}
	f := m.heads[i].f
	m.refill(i)
	f.ID = network.FlowID(m.made)
	f.origin = i
	if f.Conn >= 0 {
		f.Conn += m.conns[i]
	}
	m.made++
	return f, true
}

// Done tells the flow's source that it has ended.
func (m *Merge) Done(now engine.Time, f Flow) bool {
	c, ok := m.sources[f.origin].(Closed)
	if !ok {
		return false
	}
	if f.Conn >= 0 {
		f.Conn -= m.conns[f.origin]
	}
	i := f.origin
	f.origin = 0
	more := c.Done(now, f)
	if u, ok := c.(unreader); ok && more && m.heads[i].ok {
		u.unread(m.heads[i].f)
		m.heads[i].ok = false
	}
	if more && !m.heads[i].ok {
		m.refill(i)
	}
	return more
}

// unreader is a source that has flows which come before one that it has returned.
type unreader interface{ unread(f Flow) }

// Starter begins flows.
type Starter interface {
	// StartFlow is called at the flow's Start.
	StartFlow(now engine.Time, f Flow)
}

// Feed starts flows when their time comes. It holds one flow of each source,
// however many there will be.
type Feed struct {
	*Merge
	engine  *engine.Engine
	id      engine.ID
	timer   engine.Timer
	starter Starter
}

// NewFeed returns a feed of all flows of the sources, which begins as soon as
// the engine runs.
func NewFeed(e *engine.Engine, s Starter, sources ...Source) *Feed {
	d := &Feed{engine: e, timer: engine.NewTimer(), Merge: NewMerge(sources...), starter: s}
	d.id = e.Register(d)
	d.arm()
	return d
}

// NewPlan returns a feed that follows no engine: [Feed.Until] says what is to start.
func NewPlan(s Starter, sources ...Source) *Feed {
	return &Feed{Merge: NewMerge(sources...), starter: s}
}

// Until starts the flows that are due before end, each at its Start. It is for a feed
// without an engine.
func (d *Feed) Until(end engine.Time) {
	for d.Start() < end {
		f, _ := d.Next()
		d.starter.StartFlow(f.Start, f)
	}
}

func (d *Feed) arm() {
	if d.engine == nil {
		return
	}
	if t := d.Start(); t != engine.Never {
		d.timer.Set(d.engine, max(t, d.engine.Now()), d.id, 0)
	}
}

// Handle is the engine's to call.
func (d *Feed) Handle(now engine.Time, arg uint64) {
	if !d.timer.Due(d.engine, now, d.id, arg) {
		return
	}
	for d.Start() <= now {
		f, _ := d.Next()
		d.starter.StartFlow(now, f)
	}
	d.arm()
}

// Done says that a flow, as it was started, has ended.
func (d *Feed) Done(now engine.Time, f Flow) {
	if d.Merge.Done(now, f) {
		d.arm()
	}
}
