package netns

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loomfabric/loom/internal/testenv"
)

// failOpen is how long a leaf without its daemon may be cut off. The project
// promises a second and says so in the log of the test; a machine that is busy
// with other tests is given more.
const failOpen = 10 * time.Second

// outage is the time from an instant to the sending of the last datagram that
// was lost after it; ok is false as long as not even a second's worth has
// arrived since then.
func (p *probe) outage(from time.Time) (gap time.Duration, ok bool) {
	arrived := 0
	for i := p.sent.Load() - 1; i >= 0; i-- {
		at := time.Unix(0, p.at[i].Load())
		switch {
		case at.Before(from):
			return 0, arrived > 0
		case p.arrived[i].Load():
			arrived++
		case arrived == 0: // may be under way
		default:
			return at.Sub(from), time.Since(at) > time.Second
		}
	}
	return 0, false
}

// vxlanFrames is what a leaf's kernel took out of a VNI's tunnel and put into it.
func (f *fab) vxlanFrames(leaf string, vni uint32) (in, out uint64) {
	f.t.Helper()
	s := f.ns[leaf].Link(f.t, fmt.Sprintf("vx-%d", vni)).Attrs().Statistics
	return s.RxPackets, s.TxPackets
}

// TestFailOpen: a leafd is killed beside which the kernel has a bridge and a
// vxlan device for each VNI. The XDP programs go with the process, the other leaf
// notices the silence and sends plain VXLAN, which Linux does not drop, and the
// hosts go on talking, in both directions, untagged and tagged. A new leafd takes
// over again.
func TestFailOpen(t *testing.T) {
	f := up(t, "fallback.yaml")
	l0, l1 := f.daemons["L0"], f.daemons["L1"]
	peer := `peer="` + f.topo.Leaves[0].VTEP.String() + `"`
	capable := func(want uint64) {
		t.Helper()
		eventually(t, failOpen, func() string {
			if got := l1.metric("loom_peer_capable", peer); got != want {
				return fmt.Sprintf("L1 holds L0 for capable: %d, want %d", got, want)
			}
			return ""
		})
	}
	type pair struct{ from, to string }
	pairs := []pair{{"h0", "h2"}, {"h2", "h0"}, {"h1", "h3"}, {"h3", "h1"}}
	vnis := []uint32{10, 20}

	streams := make([]*stream, len(pairs))
	probes := make([]*probe, len(pairs))
	for i, p := range pairs {
		streams[i] = startStream(t, f.ns[p.from], f.ns[p.to], f.addr(p.to), 256<<10)
		probes[i] = startProbe(t, f.ns[p.from], f.ns[p.to], f.addr(p.to), 8, 4*time.Millisecond)
	}
	capable(1)
	flow := func() {
		t.Helper()
		for _, s := range streams {
			s.flows(64<<10, failOpen)
		}
	}
	flow()
	stamped := l1.metric("loom_exchange_stamped_frames_total")
	flow()
	if n := l1.metric("loom_exchange_stamped_frames_total"); n == stamped {
		t.Error("L1 sends no frames with the fabric's fields: their end would prove nothing")
	}
	for _, vni := range vnis {
		// The kernel has none of the traffic. It may have had the first broadcasts,
		// before the daemons were there.
		if in, out := f.vxlanFrames("L0", vni); in > 20 || out > 20 {
			t.Errorf("beside the daemon the kernel took %d frames out of the tunnel of VNI %d and put %d in", in, vni, out)
		}
	}

	plain := l1.metric("loom_exchange_plain_frames_total")
	l0.balanced()
	killed := time.Now()
	_ = l0.signal(unix.SIGKILL) // it ends by the signal, as it should
	f.detached("L0")
	for i, p := range pairs {
		var gap time.Duration
		eventually(t, failOpen, func() string {
			var ok bool
			if gap, ok = probes[i].outage(killed); !ok {
				return fmt.Sprintf("from %s to %s datagrams are still lost", p.from, p.to)
			}
			return ""
		})
		t.Logf("from %s to %s datagrams were lost for %v after the kill", p.from, p.to, gap.Round(time.Millisecond))
	}
	flow() // connections survive
	capable(0)
	if n := l1.metric("loom_exchange_plain_frames_total"); n == plain {
		t.Error("L1 has sent no plain VXLAN since")
	}
	kernel := func() (sum uint64) {
		t.Helper()
		for _, vni := range vnis {
			in, out := f.vxlanFrames("L0", vni)
			if in < 50 || out < 50 {
				t.Errorf("the kernel took %d frames out of the tunnel of VNI %d and put %d in", in, vni, out)
			}
			sum += in + out
		}
		return sum
	}
	kernel()
	for _, p := range pairs {
		// Full frames, and connections that begin only now.
		if out, ok := testenv.Ping(t, f.ns[p.from], f.addr(p.to), 1472, 3); !ok {
			t.Errorf("full-size frames from %s to %s without the daemon:\n%s", p.from, p.to, out)
		}
		transfer(t, f.ns[p.from], f.ns[p.to], f.addr(p.to), 1<<20)
	}

	l0.start()
	l0.ready()
	capable(1)
	flow()
	before := kernel()
	for _, p := range pairs {
		transfer(t, f.ns[p.from], f.ns[p.to], f.addr(p.to), 1<<20)
	}
	if n := kernel() - before; n > 20 {
		t.Errorf("%d frames went through the kernel's tunnels although the daemon is back", n)
	}
	if n := l0.sent("up-s0-0") + l0.sent("up-s1-0"); n < 1000 {
		t.Errorf("the new leafd has sent %d frames into the fabric", n)
	}
}
