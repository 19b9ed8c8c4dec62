package lab

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/internal/workload"
	"github.com/loomfabric/loom/internal/workload/roce"
)

const (
	// roceWindow is far above the packets in flight on a lab's path, so that the pace
	// decides.
	roceWindow = 1024
	// roceTimeout is above the longest round trip through full queues. A loss that no
	// later packet reveals goes unnoticed that long.
	roceTimeout = 250 * time.Millisecond
	// roceBurst is how far a NIC may catch up with its pace: agents share cores, and
	// their timers are late.
	roceBurst = time.Millisecond
	// roceNap bounds how often a NIC that waits for its turn wakes up.
	roceNap = 200 * time.Microsecond
)

// roceRun is the state of one run's RoCE workloads in a host. A queue pair's number
// is workload(8) . index(16).
type roceRun struct {
	mu        sync.Mutex
	nics      map[uint32]*roceNIC // by workload: this host as a sender
	receivers map[queuePairID]*roceReceiver
}

// queuePairID tells queue pairs apart at their receiver.
type queuePairID struct {
	from netip.Addr
	qp   uint32
}

type roceReceiver struct {
	roce.Receiver
	workload uint32
}

const qpIndexBits = 16

// listenRoCE opens the socket that requests and acknowledgements come to.
func listenRoCE() (*net.UDPConn, error) {
	c, err := net.ListenUDP("udp4", &net.UDPAddr{Port: roce.Port})
	if err != nil {
		return nil, err
	}
	_ = c.SetReadBuffer(4 << 20) // best effort: a smaller one loses packets sooner
	if err := likeNIC(c); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// likeNIC makes a socket send as RDMA NICs do: ECN-capable, and with UDP checksum 0,
// since the ICRC covers the packet.
func likeNIC(c *net.UDPConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	cerr := raw.Control(func(fd uintptr) {
		err = errors.Join(
			unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TOS, roce.TOS),
			unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_NO_CHECK, 1))
	})
	if err = errors.Join(cerr, err); err != nil {
		return fmt.Errorf("socket for RoCE: %w", err)
	}
	return nil
}

func (a *agent) serveRoCE() {
	buf, out := make([]byte, 2*roce.MaxData), make([]byte, 0, 64)
	for {
		n, from, err := a.roce.ReadFromUDPAddrPort(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		var p roce.Packet
		r := a.run.Load()
		if err != nil || r == nil || p.Parse(buf[:n]) != nil {
			continue // an ICMP error of an earlier packet, too late, or not ours
		}
		if p.Opcode == roce.Acknowledge {
			r.roceAcknowledged(&p)
		} else if reply, ok := r.roceArrived(from.Addr(), &p); ok {
			// Go-Back-N recovers from a lost reply, too.
			_, _ = a.roce.WriteToUDPAddrPort(reply.Append(out[:0]), netip.AddrPortFrom(from.Addr(), roce.Port))
		}
	}
}

// roceArrived handles a request.
func (r *agentRun) roceArrived(from netip.Addr, p *roce.Packet) (reply roce.Packet, ok bool) {
	w := int(p.Workload)
	if w >= len(r.counts) {
		return reply, false
	}
	r.roce.mu.Lock()
	id := queuePairID{from, p.QP}
	rx := r.roce.receivers[id]
	if rx == nil {
		rx = &roceReceiver{workload: p.Workload}
		r.roce.receivers[id] = rx
	}
	got := rx.Arrive(p)
	r.roce.mu.Unlock()
	if got.Data > 0 {
		r.count(w, int(got.Data))
	}
	if got.Complete {
		r.record(flowRecord{Workload: w, Bytes: p.Size, Start: time.Duration(p.Posted - r.spec.Epoch), FCT: time.Duration(monotonic() - p.Posted)})
	}
	return got.Reply, got.Answer
}

// roceAcknowledged hands an ACK or NAK to its sender.
func (r *agentRun) roceAcknowledged(p *roce.Packet) {
	r.roce.mu.Lock()
	nic := r.roce.nics[p.QP>>qpIndexBits]
	r.roce.mu.Unlock()
	if nic == nil {
		return
	}
	nic.acknowledged(p)
	select {
	case nic.wake <- struct{}{}:
	default: // a wake-up is pending
	}
}

// report adds up the counts of the run's workloads.
func (r *roceRun) report(workloads int) (counts []roceCounts) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.nics)+len(r.receivers) == 0 {
		return nil
	}
	counts = make([]roceCounts, workloads)
	for _, rx := range r.receivers {
		counts[rx.workload].Received.Add(rx.Stats())
	}
	for w, nic := range r.nics {
		counts[w].Sent = nic.stats()
	}
	return counts
}

// pending lists the messages that were not acknowledged. Their receivers may have
// had all of some of them, and then have recorded these, too.
func (r *roceRun) pending(epoch int64) (out []flowRecord) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, nic := range r.nics {
		nic.mu.Lock()
		for _, q := range nic.pairs {
			q.Pending(func(posted mono.Time, size uint64) {
				out = append(out, flowRecord{Workload: nic.task.Workload, Bytes: size, Start: time.Duration(int64(posted) - epoch), Open: true})
			})
		}
		nic.mu.Unlock()
	}
	return out
}

// roceNIC is this host's RDMA NIC for one workload. Its queue pairs to all receivers
// send in turn, at one pace.
type roceNIC struct {
	task task
	wake chan struct{} // something was acknowledged

	mu       sync.Mutex
	pairs    []queuePair // by receiver, then by number
	turn     int
	due      mono.Time // when the next frame may be sent
	messages int       // not acknowledged
	buf      []byte
}

type queuePair struct {
	*roce.Sender
	conn *net.UDPConn // with a source port of its own, as NICs have it
}

func newRoCENIC(t task) (*roceNIC, error) {
	n := &roceNIC{task: t, wake: make(chan struct{}, 1)}
	for _, peer := range t.Peers {
		for range t.QueuePairs {
			addr, err := net.ResolveUDPAddr("udp4", net.JoinHostPort(peer, fmt.Sprint(roce.Port)))
			if err != nil {
				return n, err
			}
			c, err := net.DialUDP("udp4", nil, addr)
			if err != nil {
				return n, err
			}
			cfg := roce.Config{
				QP: uint32(t.Workload)<<qpIndexBits | uint32(len(n.pairs)), MTU: t.Size, Workload: uint32(t.Workload),
				Window: roceWindow, Timeout: roceTimeout,
			}
			n.pairs = append(n.pairs, queuePair{roce.NewSender(cfg), c})
			if err := likeNIC(c); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

func (n *roceNIC) close() {
	for _, q := range n.pairs {
		q.conn.Close()
	}
}

func (n *roceNIC) acknowledged(p *roce.Packet) {
	n.mu.Lock()
	defer n.mu.Unlock()
	i := int(p.QP & (1<<qpIndexBits - 1))
	if i >= len(n.pairs) {
		return
	}
	n.messages -= n.pairs[i].Acknowledged(mono.Time(monotonic()), p)
}

// post gives a message to the receiver's queue pair with the smallest backlog. It
// breaks ties at random.
func (n *roceNIC) post(rnd *rand.Rand, peer int, size uint64) {
	pairs := n.pairs[peer*n.task.QueuePairs : (peer+1)*n.task.QueuePairs]
	first := rnd.IntN(len(pairs))
	best := first
	for i := range pairs {
		if q := (first + i) % len(pairs); pairs[q].Backlog() < pairs[best].Backlog() {
			best = q
		}
	}
	n.messages++
	pairs[best].Post(mono.Time(monotonic()), size)
}

// send sends as much as the pace allows at now, and returns the time of the next call.
func (n *roceNIC) send(now mono.Time) (again mono.Time) {
	n.due = max(n.due, now.Add(-roceBurst))
	again = now.Add(time.Hour)
	for i := range n.pairs {
		n.pairs[i].Expire(now)
		if at, ok := n.pairs[i].Deadline(); ok {
			again = min(again, at)
		}
	}
	for {
		q := n.ready()
		if q == nil {
			return again
		}
		if n.due > now {
			return min(again, n.due)
		}
		p := q.Send(now)
		n.buf = p.Append(n.buf[:0])
		// A full queue of this host, or a peer that is gone: Go-Back-N sends again.
		_, _ = q.conn.Write(n.buf)
		bits := 8 * (uint64(p.Data) + roce.Overhead)
		n.due = n.due.Add(time.Duration(bits * uint64(time.Second) / n.task.Rate))
	}
}

// ready returns the next queue pair in turn that has packets to send, or nil.
func (n *roceNIC) ready() *queuePair {
	for range n.pairs {
		n.turn = (n.turn + 1) % len(n.pairs)
		if q := &n.pairs[n.turn]; q.Ready() {
			return q
		}
	}
	return nil
}

func (n *roceNIC) stats() (s roce.SenderStats) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, q := range n.pairs {
		x := q.Stats()
		s.Sent += x.Sent
		s.Retransmitted += x.Retransmitted
		s.Rewinds += x.Rewinds
		s.Timeouts += x.Timeouts
	}
	return s
}

// rdma posts messages at the instants of a Poisson process, whether earlier ones
// are over or not (an open loop), and sends them.
func (r *agentRun) rdma(t task) {
	sizes, err := workload.NewCDF(t.Sizes)
	if err != nil {
		return // the controller has parsed the same points
	}
	nic, err := newRoCENIC(t)
	defer nic.close()
	if err != nil {
		r.counts[t.Workload].failed.Add(1)
		return
	}
	r.roce.mu.Lock()
	r.roce.nics[uint32(t.Workload)] = nic
	r.roce.mu.Unlock()
	rnd := workload.NewRand(t.Seed, t.Stream)
	arrivals := workload.NewPoisson(t.FlowRate, rnd)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for at, end := t.Start+arrivals.Next(), t.Start+t.Duration; ; {
		nic.mu.Lock()
		for ; at <= r.since() && at < end; at += arrivals.Next() {
			peer, size := rnd.IntN(len(t.Peers)), sizes.Sample(rnd)
			if nic.messages >= maxInProgress {
				r.refuse(t.Workload, size, at)
				continue
			}
			nic.post(rnd, peer, size)
		}
		now := mono.Time(monotonic())
		again := nic.send(now)
		idle := nic.messages == 0
		nic.mu.Unlock()
		if idle && at >= end {
			return
		}
		if at < end {
			again = min(again, mono.Time(r.spec.Epoch).Add(at))
		}
		timer.Reset(max(again.Sub(now), roceNap))
		select {
		case <-r.stop:
			return
		case <-nic.wake:
		case <-timer.C:
		}
	}
}
