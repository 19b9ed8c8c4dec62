package dataplane

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/bpf"
	"github.com/loomfabric/loom/dataplane/xsk"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/internal/snapshot"
)

// planVersion is that of [Plan]. A successor of another version starts without what there
// is, by a restart.
const planVersion = 1

// Plan is what a successor has to know before it can get ready: what the kernel holds for
// this node, in JSON. The descriptors go beside it, in the order of the fields: each
// worker's area, then of each port the parts of its program, its sockets, and what keeps it
// promiscuous.
type Plan struct {
	Version   int
	Role      Role
	Frames    int // of each worker's area
	FrameSize int
	Workers   int
	Seed      uint64
	MaxMTU    int
	Origin    int64    // CLOCK_MONOTONIC when mono.Time was 0, ns
	Uplinks   []string // by LBTag; "": nobody has it
	Ports     []PlanPort
}

// PlanPort is an open port of a [Plan].
type PlanPort struct {
	ID      PortID // there
	Name    string
	Kind    PortKind
	Ifindex int
	Since   time.Time
	Past    map[string]uint64 // classifier counters of programs that are gone
	Program bpf.Handle
	Sockets []xsk.SocketState
	Promisc bool
}

// monotonic reads CLOCK_MONOTONIC, which all processes share, in ns.
func monotonic() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // it cannot fail: the clock is there
	return t.Nano()
}

// handing is a hand-over under way.
type handing struct {
	early   mono.Time       // when the addresses were written that the successor has
	release chan struct{}   // closed when they may go on
	halt    []chan struct{} // by worker: closed when it stands still
	done    sync.WaitGroup
	stats   []WorkerStats
}

// Plan describes what a successor may take over, with copies of all descriptors, which the
// caller closes. From now on no port is opened or closed, until Resume or the end.
func (n *Node) Plan() (p *Plan, files []*os.File, err error) {
	n.opening.Lock()
	n.handing = &handing{release: make(chan struct{})}
	defer func() {
		if err != nil {
			for _, f := range files {
				f.Close()
			}
			files = nil
			n.Resume()
		}
	}()
	if n.over() {
		return nil, nil, errors.New("this node has ended")
	}
	n.clearPlaces(func(*device) bool { return true })
	p = &Plan{
		Version: planVersion, Role: n.cfg.Role, Workers: n.cfg.Workers, Seed: n.cfg.Seed, MaxMTU: n.cfg.MaxMTU,
		Origin: monotonic() - int64(now()), Uplinks: namesOf(n.layout.Load(), nil).uplinks,
	}
	add := func(fd int, name string) error {
		d, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err == nil {
			files = append(files, os.NewFile(uintptr(d), name))
		}
		return err
	}
	for _, u := range n.umems {
		p.Frames, p.FrameSize = u.Config().Frames, u.Config().FrameSize
		if err := add(u.Memory(), "area"); err != nil {
			return nil, files, err
		}
	}
	for _, d := range n.devices {
		if d == nil || d.ifindex == 0 {
			continue
		}
		h, parts, err := d.program.Handle()
		files = append(files, parts...)
		if err != nil {
			return nil, files, fmt.Errorf("port %s: %w", d.cfg.Name, err)
		}
		port := PlanPort{
			ID: d.id, Name: d.cfg.Name, Kind: d.cfg.Kind, Ifindex: d.ifindex, Since: d.since, Past: d.past, Program: h, Promisc: d.promisc != 0,
		}
		for q, s := range d.sockets {
			var state xsk.SocketState
			n.workers[q].call(func() { state = s.State() }) // its counters are the worker's
			port.Sockets = append(port.Sockets, state)
			if err := add(s.FD(), d.cfg.Name); err != nil {
				return nil, files, err
			}
		}
		if port.Promisc {
			if err := add(d.promisc, d.cfg.Name); err != nil {
				return nil, files, err
			}
		}
		p.Ports = append(p.Ports, port)
	}
	return p, files, nil
}

// earlyBuckets is how many buckets of addresses a worker writes at a time, between two
// bursts: some 50 µs.
const earlyBuckets = 1024

// Early returns the addresses that a leaf's workers have learned, as a snapshot. The workers
// go on meanwhile; what they learn from now on is in the one of Stop.
func (n *Node) Early() []byte {
	n.handing.early = now()
	var s snapshot.Writer
	v := n.view.Load()
	namesOf(n.layout.Load(), v).save(&s)
	for _, w := range n.workers {
		if w.leaf == nil || v == nil {
			continue
		}
		for from := 0; from < w.leaf.fdb.Buckets(); from += earlyBuckets {
			var part snapshot.Writer
			w.call(func() { w.leaf.saveFDB(&part, now(), 0, from, from+earlyBuckets) })
			s.Begin(sectionWorker, versionWorker)
			s.U16(uint16(w.id))
			s.Blob(part.Bytes())
			s.End()
		}
	}
	return s.Bytes()
}

// standStill is how long a worker may take to come to the end of a round.
const standStill = time.Second

// Stop has all workers stand still between two bursts, and returns what they leave. With
// an error they go on.
func (n *Node) Stop() ([]byte, error) {
	h := n.handing
	n.fast.pause() // its counters are the successor's, too
	for _, w := range n.workers {
		halted := make(chan struct{})
		h.halt = append(h.halt, halted)
		h.done.Go(func() {
			w.call(func() {
				if w.leaf != nil && w.view != nil {
					w.leaf.flush(now())
				}
				close(halted)
				<-h.release
			})
		})
	}
	late := time.After(standStill)
	for q, halted := range h.halt {
		select {
		case <-halted:
		case <-late:
			n.Resume()
			return nil, fmt.Errorf("worker %d has not come to the end of its round within %v", q, standStill)
		}
	}
	return n.bequeath(), nil
}

// bequeath writes the snapshot. All workers stand still.
func (n *Node) bequeath() []byte {
	h, at := n.handing, now()
	for _, w := range n.workers { // what is under way between them
		if w.leaf != nil && w.view != nil && w.leaf.learned != nil {
			w.leaf.receiveLearned(at)
			w.leaf.receiveMessages()
		}
	}
	var s snapshot.Writer
	names := namesOf(n.layout.Load(), n.workers[0].view)
	names.stopped = at
	names.save(&s)
	if n.shared.leaf != nil {
		n.shared.savePeers(&s, len(names.peers))
	}
	parts := make([]snapshot.Writer, len(n.workers))
	var writing sync.WaitGroup
	for q, w := range n.workers {
		writing.Go(func() { w.save(&parts[q], at, h.early) })
	}
	writing.Wait()
	for q := range parts {
		s.Begin(sectionWorker, versionWorker)
		s.U16(uint16(q))
		s.Blob(parts[q].Bytes())
		s.End()
	}
	// Counters are not urgent, but have to be of this very moment.
	for _, w := range n.workers {
		h.stats = append(h.stats, w.snapshot())
	}
	if f, ok := n.fastStats(); ok {
		h.stats = append(h.stats, f)
	}
	return s.Bytes()
}

// Resume has the workers go on, and ports be opened and closed again: there is no
// successor. It does nothing if there is no hand-over.
func (n *Node) Resume() {
	h := n.handing
	if h == nil {
		return
	}
	close(h.release)
	h.done.Wait()
	n.handing = nil
	if !n.isHanded() {
		n.fast.resume()
	}
	n.opening.Unlock()
}

// Release ends the workers without a word: a successor has their frames. Run returns. What
// this node still has of the kernel is the successor's too, and Close lets go of it. It
// returns the counters, in JSON.
func (n *Node) Release() []byte {
	h := n.handing
	for _, w := range n.workers {
		w.handed.Store(true)
	}
	text, err := n.lastWords(h)
	if err != nil {
		n.log.Warn("the successor does not get the counters", "err", err)
	}
	n.released.Do(func() { close(n.handed) })
	n.Resume()
	return text
}

// isHanded reports whether a successor goes on in this node's place.
func (n *Node) isHanded() bool {
	select {
	case <-n.handed:
		return true
	default:
		return false
	}
}

// over reports whether the ports are not this node's to open and close any more: it is
// closed, or a successor goes on. opening is held.
func (n *Node) over() bool { return n.closed || n.isHanded() }

func (n *Node) lastWords(h *handing) ([]byte, error) {
	last := make([]carriedStats, len(h.stats))
	for q := range h.stats {
		var err error
		if last[q], err = carryStats(&h.stats[q]); err != nil {
			return nil, err
		}
	}
	return json.Marshal(last)
}
