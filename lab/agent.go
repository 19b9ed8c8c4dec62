package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Ports of every agent.
const (
	dataPort = 5001 // TCP: answers and sinks
	udpPort  = 5002
)

// agent is the traffic source and sink of one host. It handles one request at a
// time. Flows and servers have goroutines of their own, and share counters that are
// atomic or under mu.
type agent struct {
	tcp  net.Listener
	udp  *net.UDPConn
	roce *net.UDPConn
	// control prepares TCP sockets.
	control func(network, address string, c syscall.RawConn) error

	run atomic.Pointer[agentRun] // nil until started
}

// agentRun holds the counters of one start.
type agentRun struct {
	spec     startSpec
	dialer   net.Dialer
	received [][]atomic.Uint64 // workload, bucket
	total    atomic.Uint64
	counts   []taskCounts // by workload
	stop     chan struct{}
	tasks    sync.WaitGroup
	busy     atomic.Int64 // tasks that are not over
	roce     roceRun

	mu    sync.Mutex
	flows []flowRecord
}

type taskCounts struct {
	endless, failed, refused         atomic.Uint64
	datagramsSent, datagramsReceived atomic.Uint64
}

func (a *agent) newRun(s startSpec) *agentRun {
	r := &agentRun{spec: s, dialer: net.Dialer{Timeout: dialTimeout, Control: a.control}, stop: make(chan struct{}), counts: make([]taskCounts, s.Workloads)}
	r.roce.nics, r.roce.receivers = make(map[uint32]*roceNIC), make(map[queuePairID]*roceReceiver)
	for range s.Workloads {
		r.received = append(r.received, make([]atomic.Uint64, int(s.Length/bucketLen)+1))
	}
	return r
}

// since returns the time since the epoch.
func (r *agentRun) since() time.Duration { return time.Duration(monotonic() - r.spec.Epoch) }

// count adds payload that the application has read.
func (r *agentRun) count(w int, n int) {
	if r == nil || w >= len(r.received) {
		return
	}
	r.total.Add(uint64(n))
	b := min(max(int(r.since()/bucketLen), 0), len(r.received[w])-1)
	r.received[w][b].Add(uint64(n))
}

// Agent serves a controller until in ends. congestion is the congestion control of
// its TCP connections. It listens on all addresses of its namespace; run it in a
// lab's host only.
func Agent(in io.Reader, out io.Writer, congestion string) error {
	a := &agent{control: setCongestion(congestion)}
	lc := net.ListenConfig{Control: a.control} // accepted connections inherit it
	var err error
	if a.tcp, err = lc.Listen(context.Background(), "tcp", fmt.Sprintf(":%d", dataPort)); err != nil {
		return err
	}
	defer a.tcp.Close()
	if a.udp, err = net.ListenUDP("udp", &net.UDPAddr{Port: udpPort}); err != nil {
		return err
	}
	defer a.udp.Close()
	_ = a.udp.SetReadBuffer(4 << 20) // best effort: a smaller one loses datagrams sooner
	if a.roce, err = listenRoCE(); err != nil {
		return err
	}
	defer a.roce.Close()
	go a.serveTCP()
	go a.serveUDP()
	go a.serveRoCE()
	dec, enc := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var req request
		if err := dec.Decode(&req); errors.Is(err, io.EOF) {
			return nil // the controller has ended
		} else if err != nil {
			return fmt.Errorf("read request: %w", err)
		}
		if err := enc.Encode(a.handle(&req)); err != nil {
			return fmt.Errorf("write reply: %w", err)
		}
	}
}

// setCongestion chooses the congestion control of TCP sockets.
func setCongestion(name string) func(string, string, syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		var err error
		cerr := c.Control(func(fd uintptr) {
			err = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, name)
		})
		if err != nil {
			err = fmt.Errorf("TCP congestion control %s: %w", name, err)
		}
		return errors.Join(cerr, err)
	}
}

func (a *agent) handle(req *request) *reply {
	rep := &reply{}
	var err error
	switch {
	case req.Op == opPing && req.Ping != nil:
		rep.RTTs, err = ping(req.Ping)
	case req.Op == opFetch && req.Fetch != nil:
		rep.FCTs, err = a.fetch(req.Fetch)
	case req.Op == opStart && req.Start != nil:
		r := a.newRun(*req.Start)
		a.run.Store(r)
		for _, t := range req.Start.Tasks {
			r.busy.Add(1)
			r.tasks.Go(func() {
				defer r.busy.Add(-1)
				r.perform(t)
			})
		}
	case req.Op == opProgress:
		if r := a.run.Load(); r != nil {
			rep.Received, rep.Busy = r.total.Load(), r.busy.Load() > 0
		}
	case req.Op == opReport:
		r := a.run.Swap(nil)
		if r == nil {
			err = errors.New("nothing was started")
			break
		}
		rep.Report = r.finish()
	default:
		err = fmt.Errorf("unknown request %q", req.Op)
	}
	if err != nil {
		rep.Err = err.Error()
	}
	return rep
}

// finish stops all tasks and adds up their counters.
func (r *agentRun) finish() *agentReport {
	close(r.stop)
	r.tasks.Wait()
	r.mu.Lock() // frames that are late may still complete a flow
	rep := &agentReport{Flows: slices.Clone(r.flows), RoCE: r.roce.report(len(r.counts))}
	r.mu.Unlock()
	rep.Flows = append(rep.Flows, r.roce.pending(r.spec.Epoch)...)
	for w := range r.counts {
		c := &r.counts[w]
		buckets := make([]uint64, len(r.received[w]))
		for i := range buckets {
			buckets[i] = r.received[w][i].Load()
		}
		rep.Received = append(rep.Received, buckets)
		rep.DatagramsSent = append(rep.DatagramsSent, c.datagramsSent.Load())
		rep.DatagramsReceived = append(rep.DatagramsReceived, c.datagramsReceived.Load())
		rep.Failed = append(rep.Failed, c.failed.Load())
		rep.Refused = append(rep.Refused, c.refused.Load())
		rep.Endless = append(rep.Endless, c.endless.Load())
	}
	return rep
}

func (r *agentRun) stopped() bool {
	select {
	case <-r.stop:
		return true
	default:
		return false
	}
}

// sleepUntil waits for a time since the epoch. It returns false if the run was
// stopped.
func (r *agentRun) sleepUntil(t time.Duration) bool {
	d := t - r.since()
	if d <= 0 {
		return !r.stopped()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-r.stop:
		return false
	case <-timer.C:
		return true
	}
}
