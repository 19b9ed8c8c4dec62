package sim

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/internal/workload"
	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
	"github.com/loomfabric/loom/sim/traffic"
)

// trace writes lines of a trace to a file and returns its name.
func trace(t *testing.T, header string, lines ...string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "trace.csv")
	if err := os.WriteFile(name, []byte(header+"\n"+strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

const (
	short = "start_ns,src,dst,bytes"
	long  = "start_ns,src,dst,bytes,tag,conn"
)

// lone runs one flow alone. It returns how long it took, and how long the run
// believes that it takes in an idle network.
func lone(t *testing.T, s Spec, src, dst network.HostID, bytes uint64) (took, idle engine.Time) {
	t.Helper()
	s.Workloads = []vocab.Workload{{Type: vocab.Trace, File: trace(t, short, fmt.Sprintf("0,%d,%d,%d", src, dst, bytes))}}
	s.Duration, s.Drain = us(1), time.Duration(1e9)
	r, res := parts(t, &s)
	if res.End != endDone || res.Flows != 1 {
		t.Fatalf("%d bytes: ended %q after %g s, with %d flows; %v", bytes, res.End, res.LengthS, res.Flows, res.Drops)
	}
	f := traffic.Flow{Src: src, Dst: dst, Bytes: bytes, Conn: traffic.NoConn}
	return engine.Time(math.Round(res.FCT[0].MeanS * 1e12)), r.transport.idle(&f)
}

// TestIdleTCP: in the whole fabric under ecmp a TCP flow alone takes what the
// chain of links says that idle times come from, to the picosecond for sizes that
// are simulated, and within what the grid may guess between them.
func TestIdleTCP(t *testing.T) {
	base := small()
	base.Topology.queue(0)
	slow, plain, tree, tight := *base, *base, *base, *base
	slow.Topology.Links.Delay, slow.Topology.Hosts.Link.Rate, slow.Topology.Links.Rate = us(50), 40e9, 10e9
	slow.Transport.CongestionControl = "newreno"
	plain.Topology.Overhead = new(int)
	plain.Transport.MTU = 9000
	tree.Topology = leafSpine(0, 0, 0, 10e9, 10e9, 0)
	tree.Topology.Kind, tree.Topology.K = "fat-tree", 4
	tight.Topology.Hosts.Link.Delay, tight.Transport.Window, tight.Transport.Burst = us(0.1), 30_000, 1448
	for name, s := range map[string]*Spec{"small": base, "slow": &slow, "plain": &plain, "tree": &tree, "tight": &tight} {
		segment := uint64(1448)
		if name == "plain" {
			segment = 8948
		}
		last := network.HostID(15)
		exact := []uint64{1, 100, segment, segment + 1, 3*segment + 7, 10 * segment, 11 * segment, 20 * segment}
		for _, n := range []uint64{500, 50_000, 3_000_000} {
			a, b := gridAround(n, segment)
			if n > 20*segment {
				exact = append(exact, a, b)
			}
		}
		for _, bytes := range exact {
			for _, dst := range []network.HostID{1, last} {
				if took, idle := lone(t, *s, 0, dst, bytes); took != idle {
					t.Errorf("%s: %d bytes to h%d took %v, and %v by the chain", name, bytes, dst, took, idle)
				}
			}
		}
		for bytes := 21*segment + 5; bytes < 5_000_000; bytes = bytes*17/10 + 11 {
			took, idle := lone(t, *s, 0, last, bytes)
			if d := float64(took-idle) / float64(idle); math.Abs(d) > idleGuess {
				t.Errorf("%s: %d bytes took %v, %.2f %% more than the %v between the sizes around", name, bytes, took, 100*d, idle)
			}
		}
	}
}

// TestGrid: a size lies in its interval, whose ends are on the grid.
func TestGrid(t *testing.T) {
	for bytes := uint64(20*1448 + 1); bytes < 1<<42; bytes += bytes/13 + 1 {
		a, b := gridAround(bytes, 1448)
		if a > bytes || bytes >= b || a%1448 != 0 || b%1448 != 0 || float64(b) > 1.06*float64(a)+1448 {
			t.Fatalf("%d lies between %d and %d?", bytes, a, b)
		}
		if c, d := gridAround(a, 1448); c != a || d != b {
			t.Fatalf("%d begins %d to %d, and lies in %d to %d", a, a, b, c, d)
		}
	}
}

// TestIdleTimesAreFew: a long run with sizes of all kinds simulates few flows
// alone. Every one costs as much as the flow itself.
func TestIdleTimesAreFew(t *testing.T) {
	s := small()
	s.Workloads[0].Sizes, s.Workloads[0].Scale = "data-mining", 0
	r, res := parts(t, s)
	idles := r.transport.(*tcpTransport).idles
	if len(idles.ways) > 2 {
		t.Errorf("%d ways in a fabric where racks are alike", len(idles.ways))
	}
	large := 0
	for _, w := range idles.ways {
		for bytes := range w.fct {
			if bytes > idleExact*1448 {
				large++
			}
		}
	}
	if large > 250 {
		t.Errorf("%d sizes above %d segments were simulated for %d flows", large, idleExact, res.Flows)
	}
}

// TestIdleRDMA: RDMA flows alone take exactly what is computed for them, without
// marks: where the overlay's header makes the fabric slower than the hosts, and
// both have the same rate, a long flow is not alone with itself.
func TestIdleRDMA(t *testing.T) {
	tree := lossless(2)
	tree.Topology.Kind, tree.Topology.K, tree.Topology.Leaves, tree.Topology.Spines, tree.Topology.Hosts.PerLeaf = "fat-tree", 4, 0, 0, 2
	for name, s := range map[string]*Spec{"two": lossless(2), "tree": tree} {
		for _, recovery := range []string{"gbn", "irn"} {
			for _, bytes := range []uint64{1, 999, 1000, 1001, 64_000, 123_456, 4_000_000} {
				for _, dst := range []network.HostID{1, 7} {
					s.Transport.Recovery = recovery
					s.Topology.mark(vocab.ECN{})
					if took, idle := lone(t, *s, 0, dst, bytes); took != idle {
						t.Errorf("%s %s: %d bytes to h%d took %v, want %v", name, recovery, bytes, dst, took, idle)
					}
				}
			}
		}
	}
}

// TestSecondMessage: on a connection whose window is open a message takes what
// its packets take one right after the other; the first one pays for the
// handshake.
func TestSecondMessage(t *testing.T) {
	for _, kind := range []string{"tcp", "rdma"} {
		s := small()
		s.Transport.Type = kind
		s.Topology.queue(0)
		s.Workloads = []vocab.Workload{{Type: vocab.Trace, File: trace(t, long, "0,0,9,20000,0,0", "100000,0,9,14000,0,0", "200000,0,9,13,0,0")}}
		_, res := parts(t, s)
		if res.Flows != 3 || len(res.FCT) == 0 {
			t.Fatalf("%s: %d flows", kind, res.Flows)
		}
		// Nearest ranks: the median is the second of three, p99 the last.
		all := res.FCT[0]
		if all.SlowdownP50 != 1 || (all.SlowdownP99 == 1) != (kind == "rdma") || kind == "tcp" && all.SlowdownP99 < 1.2 {
			t.Errorf("%s: slowdowns %+v, want 1 for all but TCP's second message", kind, all)
		}
	}
}

// TestSprayedFlowsAreNoBug: a short last packet that takes another path than the
// one before it arrives earlier than any path of its own allows, and thin links
// add up. That is no reason to distrust the simulator.
func TestSprayedFlowsAreNoBug(t *testing.T) {
	for _, kind := range []string{"tcp", "rdma"} {
		for _, scheme := range []string{"spray", "drill", "conga"} {
			s := small()
			s.Scheme, s.Transport.Type = scheme, kind
			if kind == "rdma" {
				s.Transport.Recovery = "irn"
			}
			s.Topology.Links.Delay, s.Topology.Hosts.Link.Delay = time.Duration(1), time.Duration(1)
			s.Topology.Hosts.Link.Rate, s.Topology.Links.Rate, s.Topology.Spines = 40e9, 10e9, 4
			for _, bytes := range []uint64{1500, 1448 + 900, 30_000, 400_000} {
				lone(t, *s, 0, 15, bytes)
			}
		}
	}
}

// TestImpossibleFlow: a flow that is faster than its hosts' links ends a run with
// an error, whatever the scheme; one that is faster than an idle path only where
// all its packets take one.
func TestImpossibleFlow(t *testing.T) {
	const bytes = 200_000
	for _, c := range []struct {
		scheme string
		share  float64 // of the idle time
		ok     bool
	}{{"ecmp", 0.1, false}, {"drill", 0.1, false}, {"ecmp", 0.97, false}, {"static", 0.97, false}, {"drill", 0.97, true}, {"conga", 0.97, true}, {"ecmp", 0.995, true}} {
		s := small()
		s.Scheme = c.scheme
		r, err := assemble(s)
		if err != nil {
			t.Fatal(err)
		}
		r.loop(&countdown{t.Context(), 300})
		f := traffic.Flow{Src: 0, Dst: 9, Bytes: bytes, Conn: traffic.NoConn}
		f.Start = r.engine.Now() - engine.Time(c.share*float64(r.transport.idle(&f)))
		r.collect.done(r.engine.Now(), &f)
		if _, err := r.result("done"); (err == nil) != c.ok || err != nil && !strings.Contains(err.Error(), "faster than the idle network") {
			t.Errorf("%s: %g of the idle time: %v", c.scheme, c.share, err)
		}
	}
}

// TestIdleGuess: between the sizes that are simulated, idle times are what
// simulating would say, nearly.
func TestIdleGuess(t *testing.T) {
	for name, change := range map[string]func(*Spec){
		"small": func(*Spec) {},
		"jumbo": func(s *Spec) { s.Transport.MTU = 9000 },
		"far":   func(s *Spec) { s.Topology.Links.Delay = us(40) },
		"slow":  func(s *Spec) { s.Topology.Hosts.Link.Rate, s.Topology.Links.Rate = 40e9, 10e9 },
	} {
		s := small()
		change(s)
		r, err := assemble(s)
		if err != nil {
			t.Fatal(err)
		}
		idles := r.transport.(*tcpTransport).idles
		other := newIdleTCP(idles.cfg, 0)
		rnd := workload.NewRand(1, 1)
		for range 300 {
			bytes := uint64(20_000 + rnd.ExpFloat64()*600_000)
			guess, want := idles.fct(r.topo, 0, 15, bytes), other.alone(other.way(r.topo, 0, 15), bytes)
			if d := float64(guess-want) / float64(want); math.Abs(d) > idleGuess {
				t.Errorf("%s: %d bytes take %v, the guess is %.2f %% off", name, bytes, want, 100*d)
			}
		}
	}
}
