package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// watchBuffer is the kernel's buffer for events: tens of thousands of them.
	watchBuffer = 32 << 20
	// poll is how often filters are listed for which there are no events.
	poll = 5 * time.Second
	// retry is the pause after a list that failed.
	retry = 100 * time.Millisecond
	// inARow is how many events are taken before the sink is told what follows.
	inARow = 1024
)

// Options are what a mirror needs to know.
type Options struct {
	Sink Sink
	// Ours reports whether an XDP program is the data plane's own. nil: none is.
	Ours func(prog uint32) bool
	Log  *slog.Logger // nil: none
	// Buffer is the size of the kernel's buffer for events, bytes; 0: a large one.
	Buffer int
}

// Mirror follows the bridges of a network namespace and tells a sink. It writes nothing to
// the kernel.
type Mirror struct {
	o       Options
	reader  *reader
	objects *lister
	entries *lister
	e       *engine
	stats   atomic.Pointer[Stats]
	failing bool // a list has failed
}

// Open subscribes to the events of the calling thread's network namespace.
func Open(o Options) (*Mirror, error) {
	if o.Ours == nil {
		o.Ours = func(uint32) bool { return false }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Buffer == 0 {
		o.Buffer = watchBuffer
	}
	r, err := openReader(o.Buffer)
	if err != nil {
		return nil, err
	}
	objects, err := openLister()
	if err != nil {
		return nil, errors.Join(err, r.close())
	}
	entries, err := openLister()
	if err != nil {
		return nil, errors.Join(err, r.close(), objects.close())
	}
	m := &Mirror{o: o, reader: r, objects: objects, entries: entries, e: newEngine(o.Sink, o.Ours)}
	m.stats.Store(&Stats{})
	return m, nil
}

// Close closes the sockets of a mirror that does not run.
func (m *Mirror) Close() error {
	return errors.Join(m.reader.close(), m.objects.close(), m.entries.close())
}

// Stats returns a copy of the counters.
func (m *Mirror) Stats() Stats { return *m.stats.Load() }

// dumped is a part of a dump of the entries, or its end.
type dumped struct {
	entries []Entry
	end     bool
	err     error
	took    time.Duration
}

// objectsDone is the end of a list of objects.
type objectsDone struct {
	kinds kinds
	l     *listing
	err   error
}

// Run mirrors until ctx ends, and closes the mirror. It returns an error if the kernel's
// events can be read no more.
func (m *Mirror) Run(ctx context.Context) error {
	failed := make(chan error, 1)
	parts, lists := make(chan dumped, 4), make(chan objectsDone, 1)
	stopped := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() { failed <- m.reader.run() })
	defer func() {
		close(stopped)
		if err := m.Close(); err != nil {
			m.o.Log.Warn("cannot close the sockets to the kernel", "err", err)
		}
		all.Wait()
	}()
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var events []event
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case p := <-parts:
			m.takePart(p)
		case l := <-lists:
			m.takeList(l)
		case <-ticker.C:
			m.e.dirty |= filters
		case <-m.reader.wake:
		case <-timer.C:
		}
		events = m.takeEvents(events)
		next := m.e.flush(time.Now())
		m.start(&all, parts, lists, stopped)
		stats := m.e.count()
		m.stats.Store(&stats)
		if !next.IsZero() {
			timer.Reset(max(time.Until(next), 0))
		}
	}
}

// takeEvents takes all events that have come. old is for later use.
func (m *Mirror) takeEvents(old []event) []event {
	events := m.reader.get(old)
	for i := range events {
		m.e.take(&events[i], time.Now())
		if i%inARow == inARow-1 {
			m.e.flush(time.Now())
		}
	}
	return events
}

// take takes an event.
func (e *engine) take(v *event, now time.Time) {
	e.stats.Events++
	switch v.kind {
	case 0:
		e.lose(now)
	case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
		e.addrs.event(&v.entry, v.kind == unix.RTM_DELNEIGH)
	default:
		e.message(v.kind, v.payload, now)
	}
}

// start begins lists that are due, in goroutines.
func (m *Mirror) start(all *sync.WaitGroup, parts chan<- dumped, lists chan<- objectsDone, stopped <-chan struct{}) {
	if k := m.e.beginList(time.Now()); k != 0 {
		all.Go(func() {
			l, err := m.objects.list(k)
			lists <- objectsDone{k, l, err} // one list at a time: there is room
		})
	}
	if !m.e.beginEntries(time.Now()) {
		return
	}
	all.Go(func() {
		start := time.Now()
		send := func(p dumped) error {
			select {
			case parts <- p:
				return nil
			case <-stopped:
				return context.Canceled
			}
		}
		err := m.entries.entries(func(e []Entry) error { return send(dumped{entries: e}) })
		_ = send(dumped{end: true, err: err, took: time.Since(start)}) // nobody waits for it when the mirror stops
	})
}

func (m *Mirror) takePart(p dumped) {
	for i := range p.entries {
		m.e.addrs.take(&p.entries[i], false, true)
	}
	if p.end {
		m.report(p.err)
		m.e.endEntries(p.err == nil, p.took, time.Now())
	}
}

func (m *Mirror) takeList(l objectsDone) {
	m.report(l.err)
	if l.err != nil {
		m.e.failList(l.kinds, time.Now())
		return
	}
	m.e.endList(l.l, time.Now())
}

// report logs that a list has failed, or can be made again.
func (m *Mirror) report(err error) {
	switch {
	case err != nil && !m.failing:
		m.o.Log.Error("cannot list what bridges have; what is known is kept", "err", err)
	case err == nil && m.failing:
		m.o.Log.Info("what bridges have can be listed again")
	}
	m.failing = err != nil
}

// Inspect lists what the calling thread's network namespace has, once, and returns the
// model of it with its peers, and how many addresses are usable.
func Inspect(ours func(prog uint32) bool) (m *Model, usable int, err error) {
	if ours == nil {
		ours = func(uint32) bool { return false }
	}
	l, err := openLister()
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	e := newEngine(discard{}, ours)
	got, err := l.list(everything)
	if err != nil {
		return nil, 0, fmt.Errorf("inspect the kernel's bridges: %w", err)
	}
	now := time.Now()
	e.endList(got, now)
	e.flush(now)
	e.beginEntries(now)
	err = l.entries(func(list []Entry) error {
		for i := range list {
			e.addrs.take(&list[i], false, true)
		}
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	e.endEntries(true, 0, now)
	e.flush(now)
	return e.model, e.addrs.said, nil
}

// discard is a sink for nobody.
type discard struct{}

func (discard) SetModel(*Model)          {}
func (discard) ChangeAddresses([]Change) {}
