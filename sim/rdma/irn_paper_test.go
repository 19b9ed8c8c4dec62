package rdma

import (
	"testing"

	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

// script is a sender whose answers a test writes.
type script struct {
	*lab
	q *QP
}

func newScript(t *testing.T, c Config) script {
	l := newLab(t, c, 100*gig, 100*gig)
	q := l.open(0, 1)
	// No packet of its own accord: the test pulls.
	q.messages.push(&message{Message: Message{Bytes: 100_000}, end: 100})
	q.posted = 100
	return script{l, q}
}

// sends expects the sender to send these packets now, and no more if it has to
// stop.
func (s script) sends(stop bool, psns ...uint64) {
	s.t.Helper()
	for _, want := range psns {
		p, _ := s.q.Pull(0)
		if p == nil {
			s.t.Fatalf("the sender sends nothing; want packet %d", want)
		}
		if p.Seq != want || p.Retrans != (p.Seq < s.q.highest-1 || p.Retrans) {
			s.t.Fatalf("the sender sends packet %d; want %d", p.Seq, want)
		}
		s.n.Pool.Put(p)
	}
	if stop {
		if p, at := s.q.Pull(0); p != nil || at != engine.Never {
			s.t.Fatalf("the sender sends on, or wants to at %v", at)
		}
	}
}

func (s script) hears(kind network.Kind, expected, sack uint64) {
	p := s.n.Pool.Get()
	p.Flow, p.Kind, p.Seq = s.q.flow.ID, kind, expected
	p.Blocks[0] = network.Block{From: sack, To: sack + 1}
	s.q.idle = false // or else the host asks
	s.q.Receive(0, p)
}

func (s script) expires() {
	s.q.idle = false
	s.q.timeout(0)
}

// IRN §3.1 step by step. "When in the loss recovery mode, the sender selectively
// retransmits lost packets as indicated by the bitmap, instead of sending new
// packets. The first packet that is retransmitted on entering loss recovery
// corresponds to the cumulative acknowledgement value. Any subsequent packet is
// considered lost only if another packet with a higher sequence number has been
// selectively acked. When there are no more lost packets to be retransmitted,
// the sender continues to transmit new packets (if allowed by BDP-FC). It exits
// loss recovery when a cumulative acknowledgement greater than the recovery
// sequence is received, where the recovery sequence corresponds to the last
// regular packet that was sent before the retransmission of a lost packet."
func TestIRNRecovery(t *testing.T) {
	c := quiet(IRN)
	c.BDP = 20_000
	s := newScript(t, c)
	s.sends(false, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
	s.hears(network.Nack, 2, 4) // 2 and 3 are missing, 0 and 1 are there
	s.sends(false, 2, 3, 10)    // what is lost first, then what is new
	s.hears(network.Nack, 2, 6) // 5 too
	s.sends(false, 5, 11)
	s.hears(network.Nack, 2, 7) // nothing new is missing
	s.sends(false, 12, 13)
	s.hears(network.Ack, 3, 0) // 2 has come
	s.sends(false, 14)
	s.hears(network.Ack, 8, 0) // 3 and 5 too
	if !s.q.loss.on {
		t.Error("recovery is over at 8; 9 was the last packet sent before it")
	}
	s.hears(network.Ack, 10, 0)
	if s.q.loss.on {
		t.Error("recovery is not over at 10")
	}
	s.sends(false, 15)
	s.hears(network.Nack, 11, 13) // another one
	s.sends(false, 11, 12, 16)
	// BDP-FC (IRN §3.2): 20 packets after the oldest that is missing, 11.
	s.sends(true, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30)
	s.hears(network.Ack, 14, 0) // 13 is there since it was sacked
	s.sends(true, 31, 32, 33)
	if n := s.q.n.Retransmitted; n != 5 {
		t.Errorf("%d packets were sent again; want 5", n)
	}

	// A timeout takes all for lost but what was sacked.
	s.hears(network.Nack, 14, 20)
	s.sends(true, 14, 15, 16, 17, 18, 19)
	s.expires()
	s.sends(true, 14, 15, 16, 17, 18, 19, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33)
	// An answer from before what is known changes nothing.
	s.hears(network.Nack, 5, 9)
	s.hears(network.Ack, 5, 0)
	s.sends(true)
}

// Go-Back-N after each answer: "the sender retransmits all packets that were
// sent after the last acknowledged packet" (IRN §2.1).
func TestGoBackNRecovery(t *testing.T) {
	s := newScript(t, quiet(GoBackN))
	s.sends(false, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
	s.hears(network.Ack, 2, 0)
	s.sends(false, 10)
	s.hears(network.Nack, 3, 0)
	s.sends(false, 3, 4)
	s.hears(network.Nack, 2, 0) // an old one
	s.sends(false, 5)
	s.hears(network.Nack, 3, 0) // repeated
	s.sends(false, 3)
	s.hears(network.Ack, 8, 0) // 3 was late, and 4 to 7 came
	s.sends(false, 8, 9, 10, 11)
	s.expires()
	s.sends(false, 8, 9, 10, 11, 12)
	if n := s.q.n.Retransmitted; n != 2+1+1+3+4 {
		t.Errorf("%d packets were sent again; want 11", n)
	}
}
