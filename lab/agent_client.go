package lab

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/internal/workload"
)

// maxInProgress bounds one client's open flows: an overloaded fabric must show as
// refused flows, not as a machine out of memory.
const maxInProgress = 2000

// dialTimeout is long enough for two lost SYNs (1 s + 2 s).
const dialTimeout = 4 * time.Second

// perform does one task. It returns when the task's duration and flows are over, or
// the run is stopped.
func (r *agentRun) perform(t task) {
	if !r.sleepUntil(t.Start) {
		return
	}
	switch t.Type {
	case vocab.Bulk:
		r.bulk(t)
	case vocab.Poisson:
		r.requests(t)
	case vocab.Incast:
		r.incast(t)
	case vocab.UDP:
		r.datagrams(t)
	case vocab.RoCE:
		r.rdma(t)
	}
}

// dial connects to an agent; the end of the run interrupts it.
func (r *agentRun) dial(server string) (net.Conn, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-r.stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	return r.dialer.DialContext(ctx, "tcp", net.JoinHostPort(server, strconv.Itoa(dataPort)))
}

// closeOnStop closes c when the run stops. The returned function ends the watch.
func (r *agentRun) closeOnStop(c net.Conn) (done func()) {
	over := make(chan struct{})
	go func() {
		select {
		case <-r.stop:
			c.Close()
		case <-over:
		}
	}()
	return func() { close(over) }
}

// bulk keeps flows to every peer busy until the duration is over. The receiver
// counts. A connection that breaks is opened anew.
func (r *agentRun) bulk(t task) {
	var wg sync.WaitGroup
	for _, peer := range t.Peers {
		for range t.Flows {
			wg.Go(func() {
				r.counts[t.Workload].endless.Add(1)
				for r.since() < t.Start+t.Duration && !r.stopped() {
					if err := r.bulkFlow(t, peer); err != nil {
						r.counts[t.Workload].failed.Add(1)
						r.sleepUntil(r.since() + 100*time.Millisecond)
					}
				}
			})
		}
	}
	wg.Wait()
}

func (r *agentRun) bulkFlow(t task, peer string) error {
	c, err := r.dial(peer)
	if err != nil {
		return err
	}
	defer c.Close()
	defer r.closeOnStop(c)()
	// At the end a write may be stuck behind a full socket: it is given up.
	if err := c.SetWriteDeadline(time.Now().Add(t.Start + t.Duration - r.since())); err != nil {
		return err
	}
	if _, err := c.Write(header{op: sinkBytes, workload: uint32(t.Workload)}.encode()); err != nil {
		return err
	}
	for r.since() < t.Start+t.Duration {
		if _, err := c.Write(zeros[:]); err != nil {
			if r.since() >= t.Start+t.Duration || r.stopped() {
				break
			}
			return err
		}
	}
	// What still lies in the socket would go on for seconds after the end.
	return c.(*net.TCPConn).SetLinger(0)
}

// receive requests n bytes on an open connection and reads them all.
func (r *agentRun) receive(c net.Conn, w int, n uint64) error {
	if _, err := c.Write(header{op: wantBytes, workload: uint32(w), bytes: n}.encode()); err != nil {
		return err
	}
	buf := buffers.Get().(*[chunk]byte)
	defer buffers.Put(buf)
	for n > 0 {
		k, err := c.Read(buf[:min(n, chunk)])
		r.count(w, k)
		n -= uint64(k)
		if err != nil && n > 0 {
			return err
		}
	}
	return nil
}

// pool keeps idle connections by server.
type pool struct {
	mu   sync.Mutex
	idle map[string][]net.Conn
}

func (p *pool) take(server string) net.Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.idle[server]
	if len(l) == 0 {
		return nil
	}
	c := l[len(l)-1]
	p.idle[server] = l[:len(l)-1]
	return c
}

func (p *pool) put(server string, c net.Conn) {
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
func (r *agentRun) one(p *pool, server string, w int, n uint64, persistent bool) error {
	var c net.Conn
	if persistent {
		c = p.take(server)
	}
	if c == nil {
		var err error
		if c, err = r.dial(server); err != nil {
			return err
		}
	}
	done := r.closeOnStop(c)
	err := r.receive(c, w, n)
	done()
	if err == nil && persistent {
		p.put(server, c)
		return nil
	}
	c.Close()
	return err
}

// flow runs fn as one flow of a workload and records it.
func (r *agentRun) flow(w int, bytes uint64, fn func() error) {
	start := r.since()
	err := fn()
	if err != nil && !r.stopped() { // stopped: unfinished, not failed
		r.counts[w].failed.Add(1)
	}
	r.record(flowRecord{Workload: w, Bytes: bytes, Start: start, FCT: r.since() - start, Open: err != nil})
}

func (r *agentRun) record(f flowRecord) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flows = append(r.flows, f)
}

// refuse records a flow that was to begin, and was not.
func (r *agentRun) refuse(w int, bytes uint64, at time.Duration) {
	r.counts[w].refused.Add(1)
	r.record(flowRecord{Workload: w, Bytes: bytes, Start: at, Open: true})
}

// requests begins flows at the instants of a Poisson process, whether earlier
// ones have finished or not (an open loop).
func (r *agentRun) requests(t task) {
	sizes, err := workload.NewCDF(t.Sizes)
	if err != nil {
		return // the controller has parsed the same points
	}
	rnd := workload.NewRand(t.Seed, t.Stream)
	arrivals := workload.NewPoisson(t.FlowRate, rnd)
	p := &pool{idle: map[string][]net.Conn{}}
	defer p.close()
	var wg sync.WaitGroup
	slots := make(chan struct{}, maxInProgress)
	for at := t.Start + arrivals.Next(); at < t.Start+t.Duration; at += arrivals.Next() {
		if !r.sleepUntil(at) {
			break
		}
		server, n := t.Peers[rnd.IntN(len(t.Peers))], sizes.Sample(rnd)
		select {
		case slots <- struct{}{}:
		default:
			r.refuse(t.Workload, n, at)
			continue
		}
		wg.Go(func() {
			r.flow(t.Workload, n, func() error { return r.one(p, server, t.Workload, n, t.Persistent) })
			<-slots
		})
	}
	wg.Wait()
}

// incast asks FanIn servers at once, over connections that stay open, as in
// CONGA §5.3.
func (r *agentRun) incast(t task) {
	rnd := workload.NewRand(t.Seed, t.Stream)
	p := &pool{idle: map[string][]net.Conn{}}
	defer p.close()
	for at := t.Start; at < t.Start+t.Duration; {
		if !r.sleepUntil(at) {
			return
		}
		servers := pick(rnd, t.Peers, t.FanIn)
		r.flow(t.Workload, t.Bytes, func() error { return r.query(p, t, servers) })
		at = max(at+t.Interval, r.since())
	}
}

func (r *agentRun) query(p *pool, t task, servers []string) error {
	share, rest := t.Bytes/uint64(len(servers)), t.Bytes%uint64(len(servers))
	errs := make(chan error, len(servers))
	for i, s := range servers {
		n := share
		if uint64(i) < rest {
			n++
		}
		go func() { errs <- r.one(p, s, t.Workload, n, true) }()
	}
	var err error
	for range servers {
		if e := <-errs; e != nil {
			err = e
		}
	}
	return err
}

// pick draws n different elements.
func pick(rnd *rand.Rand, from []string, n int) []string {
	out := make([]string, 0, n)
	for _, i := range rnd.Perm(len(from))[:n] {
		out = append(out, from[i])
	}
	return out
}

// datagrams sends to every peer at a constant rate, a few at a time.
func (r *agentRun) datagrams(t task) {
	var wg sync.WaitGroup
	for _, peer := range t.Peers {
		wg.Go(func() {
			c, err := net.Dial("udp", net.JoinHostPort(peer, strconv.Itoa(udpPort)))
			if err != nil {
				r.counts[t.Workload].failed.Add(1)
				return
			}
			defer c.Close()
			packet := make([]byte, t.Size)
			copy(packet, header{workload: uint32(t.Workload)}.encode())
			perSecond := float64(t.Rate) / 8 / float64(t.Size)
			for sent := 0.0; r.since() < t.Start+t.Duration; {
				due := min(r.since()-t.Start, t.Duration).Seconds() * perSecond
				for ; sent < due; sent++ {
					if _, err := c.Write(packet); err != nil {
						continue // counted by its absence: the socket was full or the peer unknown
					}
					r.counts[t.Workload].datagramsSent.Add(1)
				}
				if !r.sleepUntil(r.since() + time.Millisecond) {
					return
				}
			}
		})
	}
	wg.Wait()
}

// fetch does single flows one after the other and returns their completion
// times, measured as those of a workload's flows.
func (a *agent) fetch(s *fetchSpec) ([]time.Duration, error) {
	r := a.newRun(startSpec{Epoch: monotonic()})
	timer := time.AfterFunc(20*time.Second, func() { close(r.stop) })
	defer timer.Stop()
	p := &pool{idle: map[string][]net.Conn{}}
	defer p.close()
	if s.Persistent {
		if err := r.one(p, s.Server, 0, s.Bytes, true); err != nil {
			return nil, fmt.Errorf("warm up the connection to %s: %w", s.Server, err)
		}
	}
	var out []time.Duration
	for range s.Count {
		start := r.since()
		if err := r.one(p, s.Server, 0, s.Bytes, s.Persistent); err != nil {
			return nil, fmt.Errorf("fetch %d bytes from %s: %w", s.Bytes, s.Server, err)
		}
		out = append(out, r.since()-start)
	}
	return out, nil
}
