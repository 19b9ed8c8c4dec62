package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/measure"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/internal/stat"
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
	// roceBurst is how far a NIC may catch up with its pace: hosts share cores, and
	// their timers are late.
	roceBurst = time.Millisecond
	// roceNap bounds how often a NIC that waits for its turn wakes up.
	roceNap = 200 * time.Microsecond
)

// queuePairID tells queue pairs apart at their receiver. A queue pair's number is
// workload(8) . index(16).
type queuePairID struct {
	from netip.Addr
	qp   uint32
}

const qpIndexBits = 16

type roceReceiver struct {
	roce.Receiver
	work *work
}

// likeNIC makes a socket send as RDMA NICs do: ECN-capable, and with UDP checksum 0,
// since the ICRC covers the packet.
func likeNIC(c *net.UDPConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	err = onSocket(raw, func(fd int) error {
		return errors.Join(
			unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_TOS, roce.TOS),
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_NO_CHECK, 1))
	})
	if err != nil {
		return fmt.Errorf("socket for RoCE: %w", err)
	}
	return nil
}

// serveRoCE handles requests, and hands acknowledgements to their senders.
func (h *host) serveRoCE() {
	buf, out := make([]byte, 2*roce.MaxData), make([]byte, 0, 64)
	for {
		n, from, err := h.roce.ReadFromUDPAddrPort(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		var p roce.Packet
		if err != nil || p.Parse(buf[:n]) != nil {
			continue // an ICMP error of an earlier packet, or not ours
		}
		if p.Opcode == roce.Acknowledge {
			h.mu.Lock()
			nic := h.nics[p.QP>>qpIndexBits]
			h.mu.Unlock()
			if nic != nil {
				select {
				case nic.acks <- p:
				default: // Go-Back-N recovers from a lost reply, too
				}
			}
			continue
		}
		w := h.load.Load().work(p.Workload)
		if w == nil {
			continue // too late
		}
		if reply, ok := h.arrived(w, queuePairID{from.Addr(), p.QP}, &p); ok {
			_, _ = h.roce.WriteToUDPAddrPort(reply.Append(out[:0]), netip.AddrPortFrom(from.Addr(), roce.Port))
		}
	}
}

// arrived handles a request.
func (h *host) arrived(w *work, id queuePairID, p *roce.Packet) (reply roce.Packet, ok bool) {
	rx := h.receivers[id]
	if rx == nil {
		rx = &roceReceiver{work: w}
		h.receivers[id] = rx
	}
	got := rx.Arrive(p)
	w.count(int(got.Data))
	if got.Complete {
		start := time.Duration(p.Posted)
		w.record(flowRecord{bytes: p.Size, start: start, fct: w.load.since() - start})
	}
	return got.Reply, got.Answer
}

// countRoCE adds what the queue pairs of a closed host saw to their workloads, and
// records the messages that were not acknowledged. The receivers of some may have
// had all, and then have recorded these, too.
func (h *host) countRoCE() {
	for _, rx := range h.receivers {
		rx.work.arrived.Add(rx.Stats())
	}
	for _, nic := range h.nics {
		w := nic.task.work
		for _, q := range nic.pairs {
			x := q.Stats()
			stat.Add(&w.sent, &x)
			q.Pending(func(posted mono.Time, size uint64) {
				w.record(flowRecord{bytes: size, start: time.Duration(posted), open: true})
			})
		}
	}
}

// reordering returns what the queue pairs of a workload saw, nil if it had none.
func (w *work) reordering() *measure.Reordering {
	tx, rx := w.sent, w.arrived
	if tx.Sent+rx.Packets == 0 {
		return nil
	}
	return &measure.Reordering{
		Packets: rx.Packets, Reordered: rx.Reordered, Percent: percent(rx.Reordered, rx.Packets),
		MeanDistance: float64(rx.DistanceSum) / float64(max(rx.Reordered, 1)), MaxDistance: rx.DistanceMax,
		OutOfSequence: rx.OutOfSequence, OutOfSequencePercent: percent(rx.OutOfSequence, rx.Packets),
		Duplicates: rx.Duplicates, Sent: tx.Sent,
		Retransmitted: tx.Retransmitted, RetransmittedPercent: percent(tx.Retransmitted, tx.Sent),
		Rewinds: tx.Rewinds, Timeouts: tx.Timeouts,
	}
}

// percent is a part of all in percent.
func percent(part, all uint64) float64 { return 100 * float64(part) / float64(max(all, 1)) }

// roceNIC is a host's RDMA NIC for one workload. Its queue pairs to all receivers
// send in turn, at one pace. Its times are since the load's epoch. It belongs to its
// task, but for acks.
type roceNIC struct {
	task     *task
	acks     chan roce.Packet // ACKs and NAKs that came
	pairs    []queuePair      // by receiver, then by number
	turn     int
	due      mono.Time // when the next frame may be sent
	messages int       // not acknowledged
	buf      []byte
}

type queuePair struct {
	*roce.Sender
	conn *net.UDPConn // with a source port of its own, as NICs have it
}

func newRoCENIC(t *task) (*roceNIC, error) {
	n := &roceNIC{task: t, acks: make(chan roce.Packet, roceWindow)}
	for _, peer := range t.peers {
		for range t.QueuePairs {
			c, err := t.at.dialUDP(peer, roce.Port)
			if err != nil {
				return n, err
			}
			cfg := roce.Config{
				QP: t.index<<qpIndexBits | uint32(len(n.pairs)), MTU: int(t.Size), Workload: t.index,
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

func (n *roceNIC) now() mono.Time { return mono.Time(n.task.load.since()) }

func (n *roceNIC) close() {
	for _, q := range n.pairs {
		q.conn.Close()
	}
}

// acknowledged takes an ACK or NAK.
func (n *roceNIC) acknowledged(p *roce.Packet) {
	if i := int(p.QP & (1<<qpIndexBits - 1)); i < len(n.pairs) {
		n.messages -= n.pairs[i].Acknowledged(n.now(), p)
	}
}

// post gives a message to the receiver's queue pair with the smallest backlog. It
// breaks ties at random.
func (n *roceNIC) post(rnd *rand.Rand, peer int, size uint64) {
	pairs := n.pairs[peer*n.task.QueuePairs : (peer+1)*n.task.QueuePairs]
	first := rnd.IntN(len(pairs))
	q := slices.MinFunc(slices.Concat(pairs[first:], pairs[:first]), func(a, b queuePair) int { return cmp.Compare(a.Backlog(), b.Backlog()) })
	n.messages++
	q.Post(n.now(), size)
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
		n.due = n.due.Add(time.Duration(bits * uint64(time.Second) / uint64(n.task.Rate)))
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

// rdma posts messages at the instants of a Poisson process, whether earlier ones
// are over or not (an open loop), and sends them.
func (t *task) rdma(ctx context.Context) {
	// A goroutine that changes threads may change CPUs between two packets. Each CPU
	// has a backlog of its own, and the second packet may overtake the first.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	nic, err := newRoCENIC(t)
	defer nic.close()
	if err != nil {
		t.failed.Add(1)
		return
	}
	t.at.mu.Lock()
	t.at.nics[t.index] = nic
	t.at.mu.Unlock()
	rnd := t.random()
	arrivals := workload.NewPoisson(t.rate, rnd)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for at := t.Start + arrivals.Next(); ; {
		for ; at <= t.load.since() && at < t.end(); at += arrivals.Next() {
			peer, size := rnd.IntN(len(t.peers)), t.sizes.Sample(rnd)
			if nic.messages >= maxInProgress {
				t.refuse(size, at)
				continue
			}
			nic.post(rnd, peer, size)
		}
		now := nic.now()
		again := nic.send(now)
		if nic.messages == 0 && at >= t.end() {
			return
		}
		if at < t.end() {
			again = min(again, mono.Time(at))
		}
		timer.Reset(max(again.Sub(now), roceNap))
		select {
		case <-ctx.Done():
			return
		case p := <-nic.acks:
			nic.acknowledged(&p)
			for range len(nic.acks) {
				p = <-nic.acks
				nic.acknowledged(&p)
			}
		case <-timer.C:
		}
	}
}
