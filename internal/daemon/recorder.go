package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/internal/events"
	"github.com/loomfabric/loom/internal/record"
)

// What a flight recorder keeps.
const (
	recordEvery     = 100 * time.Millisecond
	recordSamples   = 3000 // five minutes
	recordFlows     = 1 << 16
	recordDecisions = 4096
	recordEvents    = 512
	recordDropped   = 256
	recordFiles     = 8 // in its directory

	// A drop burst is so many frames dropped within a second, and one in burstPart of those
	// that came.
	burstDrops = 1000
	burstPart  = 100
	burstRest  = 10 * time.Minute // from one record of a burst to the next

	// A record's name has the node's, the time and the suffix.
	recordTime   = "20060102T150405.000"
	recordSuffix = ".loom"

	crashWait = 2 * time.Second // for a record of a crash
)

// recordedPlane is what a flight recorder asks of the data plane.
type recordedPlane interface {
	Record()
	Collect(b *dataplane.RecordBatch, all bool)
	Recorded() dataplane.Recorded
}

// recorder keeps what has happened in the last minutes, in memory.
type recorder struct {
	name, role, build string
	dir               string // "": nothing is written unasked
	plane             recordedPlane
	log               *slog.Logger
	kept              *events.Ring // what was logged

	mu        sync.Mutex
	batch     dataplane.RecordBatch
	samples   last[record.Sample]
	flows     last[record.Flow]
	decisions last[record.Decision]
	drops     last[record.Drop]
	missed    uint64
	burst     time.Time // when a burst was written last
	before    [2]uint64 // frames dropped, and received, a second ago
	second    time.Time
}

// last keeps the last elements of a sequence.
type last[T any] struct {
	size int
	buf  []T
	next int
}

func (l *last[T]) add(x T) {
	if len(l.buf) < l.size {
		l.buf = append(l.buf, x)
		return
	}
	l.buf[l.next] = x
	l.next = (l.next + 1) % l.size
}

// list returns the elements, the oldest first.
func (l *last[T]) list() []T { return slices.Concat(l.buf[l.next:], l.buf[:l.next]) }

func newRecorder(name, role, build, dir string, log *slog.Logger, kept *events.Ring) *recorder {
	return &recorder{
		name: name, role: role, build: build, dir: dir, log: log, kept: kept, samples: last[record.Sample]{size: recordSamples}, flows: last[record.Flow]{size: recordFlows},
		decisions: last[record.Decision]{size: recordDecisions}, drops: last[record.Drop]{size: recordDropped},
	}
}

// run records until ctx ends.
func (r *recorder) run(ctx context.Context) {
	r.plane.Record()
	quit := make(chan os.Signal, 1)
	if r.dir != "" {
		signal.Notify(quit, syscall.SIGQUIT)
		defer signal.Stop(quit)
	}
	tick := time.NewTicker(recordEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-quit:
			r.keep("SIGQUIT")
			signal.Reset(syscall.SIGQUIT) // and what it does to a Go program
			_ = syscall.Kill(os.Getpid(), syscall.SIGQUIT)
		case <-tick.C:
			r.mu.Lock()
			r.collect(false)
			burst := r.dir != "" && r.bursts(time.Now())
			r.mu.Unlock()
			if burst {
				r.keep("many frames were dropped")
			}
		}
	}
}

// collect takes in what the data plane has kept; mu is held.
func (r *recorder) collect(all bool) {
	b := &r.batch
	r.plane.Collect(b, all)
	offset := time.Now().UnixNano() - int64(b.At) // the workers' clock has another origin
	at := func(t int64) int64 { return t + offset }
	about := r.plane.Recorded()
	s := record.Sample{At: at(int64(b.At)), Drops: map[string]uint64{}}
	for id, p := range b.Ports {
		if about.Ports[id].Name != "" {
			s.Ports = append(s.Ports, record.PortSample{Number: id, RxFrames: p.RxFrames, RxBytes: p.RxBytes, TxFrames: p.TxFrames, TxBytes: p.TxBytes, Dropped: p.Dropped, Queue: p.Queue, Metric: p.Metric})
		}
	}
	for reason, n := range b.Drops {
		if n > 0 {
			s.Drops[drop.Reason(reason).String()] = n
		}
	}
	r.samples.add(s)
	vtep := about.VTEP.String()
	for i := range b.Flows {
		f := &b.Flows[i]
		r.flows.add(record.Flow{
			Start: at(int64(f.First)), End: at(int64(f.Last)), Src: vtep, Dst: f.Peer.String(), Class: int(f.Class), Hash: f.Hash, Frames: f.Frames, Bytes: f.Bytes,
		})
	}
	for i := range b.Decisions {
		d := &b.Decisions[i]
		x := record.Decision{At: at(int64(d.At)), Hash: d.Hash, Class: int(d.Class), Dst: d.Peer.String(), Scheme: d.Scheme, Uplink: int(d.Uplink), Starting: d.Starting}
		for u := range d.Local {
			if d.Uplinks>>u&1 != 0 {
				x.Uplinks = append(x.Uplinks, record.UplinkSample{Uplink: u, Local: d.Local[u], Remote: d.Remote[u], Queue: d.Queue[u]})
			}
		}
		r.decisions.add(x)
	}
	for i := range b.Frames {
		f := &b.Frames[i]
		r.drops.add(record.Drop{At: at(int64(f.At)), Port: int(f.Port), Reason: f.Reason.String(), Length: int(f.Len), Data: slices.Clone(f.Data[:min(int(f.Len), dataplane.RecordBytes)])})
	}
	r.missed += b.Missed
}

// bursts reports whether many frames were dropped within the last second; mu is held.
func (r *recorder) bursts(now time.Time) bool {
	if now.Sub(r.second) < time.Second {
		return false
	}
	var sums [2]uint64
	for _, p := range r.batch.Ports {
		sums[0] += p.Dropped
		sums[1] += p.RxFrames
	}
	first := r.second.IsZero()
	drops, frames := sums[0]-r.before[0], sums[1]-r.before[1]
	r.before, r.second = sums, now
	if first || drops < burstDrops || drops*burstPart < frames || now.Sub(r.burst) < burstRest {
		return false
	}
	r.burst = now
	return true
}

// dump returns what is kept. With fresh it asks the workers for the newest, too.
func (r *recorder) dump(why string, fresh bool) *record.Dump {
	r.mu.Lock()
	defer r.mu.Unlock()
	if fresh {
		r.collect(true)
	}
	about := r.plane.Recorded()
	d := &record.Dump{
		Header:  record.Header{Node: r.name, Role: r.role, Build: r.build, Why: why, End: time.Now().UnixNano(), Scheme: about.Scheme, Ports: []record.Port{}, Peers: []string{}, Missed: r.missed},
		Samples: r.samples.list(), Flows: r.flows.list(), Decisions: r.decisions.list(), Events: r.events(), Drops: r.drops.list(),
	}
	if len(d.Samples) > 0 {
		d.Start = d.Samples[0].At
	}
	if about.Leaf {
		d.VTEP = about.VTEP.String()
	}
	for id, p := range about.Ports {
		if p.Name != "" {
			d.Ports = append(d.Ports, record.Port{Number: id, Name: p.Name, Kind: p.Kind.String(), Rate: about.Rates[id]})
		}
	}
	for _, p := range about.Peers {
		d.Peers = append(d.Peers, p.String())
	}
	return d
}

// events returns the newest lines of the log.
func (r *recorder) events() (all []record.Event) {
	kept, _, _ := r.kept.Since(0, recordEvents)
	for i := range kept {
		e := &kept[i]
		text := e.Text
		for _, key := range slices.Sorted(maps.Keys(e.Attrs)) {
			if key != "node" { // whose record it is
				text += " " + key + "=" + e.Attrs[key]
			}
		}
		all = append(all, record.Event{At: e.Time.UnixNano(), Level: e.Level, Text: text})
	}
	return all
}

// write writes a record that somebody has asked for.
func (r *recorder) write(w io.Writer) error {
	return r.dump("somebody has asked for it", true).Write(w)
}

// keep writes a record into the directory, of which it removes the oldest ones.
func (r *recorder) keep(why string) {
	path, err := r.save(why, time.Now())
	if err != nil {
		r.log.Error("cannot write a flight record", "err", err)
		return
	}
	r.log.Warn("wrote a flight record", "why", why, "file", path)
}

// crash writes a record while a worker panics. Whoever has the recorder may wait for that
// worker: then there is no record.
func (r *recorder) crash() {
	if r.dir == "" {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.keep("a worker has crashed")
	}()
	select {
	case <-done:
	case <-time.After(crashWait):
	}
}

// wrote reports whether a file has a name of this node's records: another node's name may
// begin with this one's.
func (r *recorder) wrote(file string) bool {
	at, ok := strings.CutPrefix(file, r.name+"-")
	_, err := time.Parse(recordTime+recordSuffix, at)
	return ok && err == nil
}

func (r *recorder) save(why string, now time.Time) (path string, err error) {
	all, err := os.ReadDir(r.dir) // sorted by names, which have the time
	if err != nil {
		return "", fmt.Errorf("record.dir: %w", err)
	}
	files := slices.DeleteFunc(all, func(f os.DirEntry) bool { return !r.wrote(f.Name()) })
	for len(files) >= recordFiles {
		if err := os.Remove(filepath.Join(r.dir, files[0].Name())); err != nil {
			return "", fmt.Errorf("remove the oldest flight record: %w", err)
		}
		files = files[1:]
	}
	path = filepath.Join(r.dir, r.name+"-"+now.UTC().Format(recordTime)+recordSuffix)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o640)
	if err != nil {
		return "", fmt.Errorf("record.dir: %w", err)
	}
	return path, errors.Join(r.dump(why, false).Write(f), f.Close())
}
