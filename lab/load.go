package lab

import (
	"context"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/internal/workload"
	"github.com/loomfabric/loom/internal/workload/roce"
)

// maxInProgress bounds one client's open flows: an overloaded fabric must show as
// refused flows, not as a machine out of memory.
const maxInProgress = 2000

// bucketLen is the grain of timelines.
const bucketLen = 100 * time.Millisecond

// load is the traffic of a run. Times are since its epoch.
type load struct {
	epoch time.Time
	works []*work
	tasks sync.WaitGroup
	busy  atomic.Int64 // tasks that are not over
}

// work is one workload of a load. All hosts count in it.
type work struct {
	vocab.Workload
	load  *load
	index uint32
	sizes *workload.CDF // nil if the workload names none

	received                         []atomic.Uint64 // payload by bucketLen, when the application reads it
	endless, failed, refused         atomic.Uint64   // flows: begun and without an end; broken; too many were in progress
	datagramsSent, datagramsReceived atomic.Uint64

	mu    sync.Mutex
	flows []flowRecord

	// What the queue pairs counted, once the load is over.
	sent    roce.SenderStats
	arrived roce.ReceiverStats
}

// flowRecord is one flow. Its completion time runs from the moment when the
// receiver asked for it (opening the connection, if it has its own) to the moment
// when it has read the last byte. For an incast query that is the last byte of the
// last answer. A message of a roce workload begins when its sender posts it.
type flowRecord struct {
	bytes      uint64
	start, fct time.Duration
	// open flows have no completion time: they were under way when the run ended,
	// their connection broke, or they were refused.
	open bool
}

// newLoad returns a load of workloads that lasts for length at most.
func newLoad(epoch time.Time, length time.Duration, workloads []vocab.Workload, sizes []*workload.CDF) *load {
	l := &load{epoch: epoch}
	for i, w := range workloads {
		l.works = append(l.works, &work{
			Workload: w, load: l, index: uint32(i), sizes: sizes[i], received: make([]atomic.Uint64, int(length/bucketLen)+1),
		})
	}
	return l
}

func (l *load) since() time.Duration { return time.Since(l.epoch) }

// work returns a workload by its number; nil if there is none, or no load.
func (l *load) work(n uint32) *work {
	if l == nil || n >= uint32(len(l.works)) {
		return nil
	}
	return l.works[n]
}

// bytes returns how much payload has been received so far.
func (l *load) bytes() (total uint64) {
	for _, w := range l.works {
		total += sum(w.buckets())
	}
	return total
}

// sleepUntil waits for a time. It returns false if ctx ended before.
func (l *load) sleepUntil(ctx context.Context, t time.Duration) bool {
	timer := time.NewTimer(t - l.since())
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return ctx.Err() == nil
	}
}

// count adds payload that the application has read.
func (w *work) count(n int) {
	w.received[min(max(int(w.load.since()/bucketLen), 0), len(w.received)-1)].Add(uint64(n))
}

// Write counts payload, for [io.Copy].
func (w *work) Write(payload []byte) (int, error) {
	w.count(len(payload))
	return len(payload), nil
}

// drain counts all that r has. It returns the number of bytes.
func (w *work) drain(r io.Reader) (int64, error) {
	buf := buffers.Get().(*[chunk]byte)
	defer buffers.Put(buf)
	return io.CopyBuffer(w, struct{ io.Reader }{r}, buf[:]) // without a connection's own copying, which has no such buffer
}

func (w *work) buckets() []uint64 {
	out := make([]uint64, len(w.received))
	for i := range out {
		out[i] = w.received[i].Load()
	}
	return out
}

func (w *work) record(f flowRecord) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.flows = append(w.flows, f)
}

// refuse records a flow that was to begin, and was not.
func (w *work) refuse(bytes uint64, at time.Duration) {
	w.refused.Add(1)
	w.record(flowRecord{bytes: bytes, start: at, open: true})
}

// flow runs fn as one flow and records it.
func (w *work) flow(ctx context.Context, bytes uint64, fn func() error) {
	start := w.load.since()
	err := fn()
	if err != nil && ctx.Err() == nil { // at the end of the run it is unfinished, not failed
		w.failed.Add(1)
	}
	w.record(flowRecord{bytes: bytes, start: start, fct: w.load.since() - start, open: err != nil})
}

// task is one host's part of a workload, on the side that begins flows.
type task struct {
	*work
	at    *host
	peers []*host
	rate  float64 // flows per second, of workloads that have sizes
}

// perform has what each type of workload does.
var perform = map[string]func(*task, context.Context){
	vocab.Bulk: (*task).bulk, vocab.Poisson: (*task).requests, vocab.Incast: (*task).incast, vocab.UDP: (*task).datagrams, vocab.RoCE: (*task).rdma,
}

// begin does a task in the background. It goes on until the task's duration and
// flows are over, or ctx ends.
func (t *task) begin(ctx context.Context) {
	t.load.busy.Add(1)
	t.load.tasks.Go(func() {
		defer t.load.busy.Add(-1)
		if !t.load.sleepUntil(ctx, t.Start) {
			return
		}
		perform[t.Type](t, ctx)
	})
}

// end is when the task begins no new work any more.
func (t *task) end() time.Duration { return t.Start + t.Duration }

// random returns the generator of this host in this workload.
func (t *task) random() *rand.Rand { return workload.NewRand(t.Seed, uint64(t.at.Index)) }

// bulk keeps flows to every peer busy until the duration is over. The receiver
// counts. A connection that breaks is opened anew.
func (t *task) bulk(ctx context.Context) {
	var wg sync.WaitGroup
	for _, peer := range t.peers {
		for range t.Flows {
			wg.Go(func() {
				t.endless.Add(1)
				for t.load.since() < t.end() && ctx.Err() == nil {
					if err := t.bulkFlow(ctx, peer); err != nil {
						t.failed.Add(1)
						t.load.sleepUntil(ctx, t.load.since()+100*time.Millisecond)
					}
				}
			})
		}
	}
	wg.Wait()
}

func (t *task) bulkFlow(ctx context.Context, peer *host) error {
	c, err := t.at.dial(ctx, peer, math.MaxUint64)
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	// At the end a write may be stuck behind a full socket: it is given up.
	if err := c.SetWriteDeadline(t.load.epoch.Add(t.end())); err != nil {
		return err
	}
	_, err = c.Write(header{Op: sinkBytes, Workload: t.index}.encode())
	for err == nil {
		_, err = c.Write(zeros[:])
	}
	if t.load.since() < t.end() && ctx.Err() == nil {
		return err
	}
	// What still lies in the socket would go on for seconds after the end.
	return c.(*net.TCPConn).SetLinger(0)
}

// receive requests n bytes on an open connection and reads them all.
func (t *task) receive(c net.Conn, n uint64) error {
	if _, err := c.Write(header{Op: wantBytes, Workload: t.index, Bytes: n}.encode()); err != nil {
		return err
	}
	got, err := t.drain(io.LimitReader(c, int64(n)))
	if err == nil && got < int64(n) {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// push sends n bytes on an open connection, and waits until they have been read.
func (t *task) push(c net.Conn, n uint64) error {
	_, err := c.Write(header{Op: pushBytes, Workload: t.index, Bytes: n}.encode())
	for ; err == nil && n > 0; n -= min(n, chunk) {
		_, err = c.Write(zeros[:min(n, chunk)])
	}
	if err == nil {
		_, err = io.ReadFull(c, make([]byte, 1))
	}
	return err
}

// pool keeps idle connections by server, if it is to keep any.
type pool struct {
	keep bool
	mu   sync.Mutex
	idle map[*host][]net.Conn
}

func newPool(keep bool) *pool { return &pool{keep: keep, idle: map[*host][]net.Conn{}} }

func (p *pool) take(server *host) (c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.idle[server]; len(l) > 0 {
		c, p.idle[server] = l[len(l)-1], l[:len(l)-1]
	}
	return c
}

func (p *pool) put(server *host, c net.Conn) {
	if !p.keep {
		c.Close()
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle[server] = append(p.idle[server], c)
}

func (p *pool) close() {
	for _, l := range p.idle {
		for _, c := range l {
			c.Close()
		}
	}
}

// one does one flow and returns an error unless all of it arrived.
func (t *task) one(ctx context.Context, p *pool, server *host, n uint64) (err error) {
	c := p.take(server)
	if c == nil {
		if c, err = t.at.dial(ctx, server, n); err != nil {
			return err
		}
	}
	stop := context.AfterFunc(ctx, func() { c.Close() })
	transfer := t.receive
	if t.Push {
		transfer = t.push
	}
	if err := transfer(c, n); err != nil || !stop() {
		c.Close()
		return err
	}
	p.put(server, c)
	return nil
}

// requests begins flows at the instants of a Poisson process, whether earlier
// ones have finished or not (an open loop).
func (t *task) requests(ctx context.Context) {
	rnd := t.random()
	arrivals := workload.NewPoisson(t.rate, rnd)
	p := newPool(t.Pool)
	defer p.close()
	var wg sync.WaitGroup
	slots := make(chan struct{}, maxInProgress)
	for at := t.Start + arrivals.Next(); at < t.end(); at += arrivals.Next() {
		if !t.load.sleepUntil(ctx, at) {
			break
		}
		server, n := t.peers[rnd.IntN(len(t.peers))], t.sizes.Sample(rnd)
		select {
		case slots <- struct{}{}:
		default:
			t.refuse(n, at)
			continue
		}
		wg.Go(func() {
			t.flow(ctx, n, func() error { return t.one(ctx, p, server, n) })
			<-slots
		})
	}
	wg.Wait()
}

// incast asks FanIn servers at once, over connections that stay open, as in
// CONGA §5.3.
func (t *task) incast(ctx context.Context) {
	rnd := t.random()
	p := newPool(true)
	defer p.close()
	for at := t.Start; at < t.end(); {
		if !t.load.sleepUntil(ctx, at) {
			return
		}
		servers := rnd.Perm(len(t.peers))[:t.FanIn]
		t.flow(ctx, uint64(t.Bytes), func() error { return t.query(ctx, p, servers) })
		at = max(at+t.Interval, t.load.since())
	}
}

// query asks some of the peers for an equal share each.
func (t *task) query(ctx context.Context, p *pool, servers []int) error {
	share, rest := uint64(t.Bytes)/uint64(len(servers)), uint64(t.Bytes)%uint64(len(servers))
	var g errgroup.Group
	for i, s := range servers {
		n := share
		if uint64(i) < rest {
			n++
		}
		g.Go(func() error { return t.one(ctx, p, t.peers[s], n) })
	}
	return g.Wait()
}

// datagrams sends to every peer at a constant rate, a few at a time.
func (t *task) datagrams(ctx context.Context) {
	var wg sync.WaitGroup
	for _, peer := range t.peers {
		wg.Go(func() {
			c, err := t.at.dialUDP(peer, udpPort)
			if err != nil {
				t.failed.Add(1)
				return
			}
			defer c.Close()
			packet := make([]byte, t.Size)
			copy(packet, header{Workload: t.index}.encode())
			perSecond := float64(t.Rate) / 8 / float64(t.Size)
			for sent := 0.0; t.load.since() < t.end(); {
				due := min(t.load.since()-t.Start, t.Duration).Seconds() * perSecond
				for ; sent < due; sent++ {
					if _, err := c.Write(packet); err != nil {
						continue // counted by its absence: the socket was full or the peer unknown
					}
					t.datagramsSent.Add(1)
				}
				if !t.load.sleepUntil(ctx, t.load.since()+time.Millisecond) {
					return
				}
			}
		})
	}
	wg.Wait()
}
