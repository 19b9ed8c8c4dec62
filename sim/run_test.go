package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/config/fabric"
	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/internal/measure"
	"github.com/loomfabric/loom/internal/units"
	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
	"github.com/loomfabric/loom/sim/udp"
)

// us is a number of microseconds.
func us(n float64) time.Duration { return time.Duration(n * float64(time.Microsecond)) }

// leafSpine is a fabric of that many leaves, spines, and hosts on each leaf.
func leafSpine(leaves, spines, hosts int, access, links units.Rate, queue units.Size) Topology {
	t := Topology{Leaves: leaves, Spines: spines, Hosts: fabric.Hosts{PerLeaf: hosts}}
	t.Hosts.Link.Rate, t.Links.Rate = access, links
	t.queue(queue)
	return t
}

// queue gives all ports queues of that size.
func (t *Topology) queue(size units.Size) { t.Links.Queue, t.Hosts.Link.Queue = size, size }

// mark makes all ports mark.
func (t *Topology) mark(e vocab.ECN) { t.Links.ECN, t.Hosts.Link.ECN = e, e }

// small is a fabric of 2 leaves and 2 spines with 8 hosts on each leaf, and TCP.
func small() *Spec {
	return &Spec{
		Topology:  leafSpine(2, 2, 8, 10e9, 40e9, 1<<20),
		Workloads: []vocab.Workload{{Sizes: "web-search", Load: 50, Scale: 0.1}},
		Duration:  us(2000),
	}
}

// lossless is small with RDMA over PFC at 100 Gbit/s.
func lossless(leaves int) *Spec {
	s := small()
	s.Topology = leafSpine(leaves, leaves, 4, 100e9, 100e9, 0)
	s.Topology.Buffer, s.Topology.PFC = 9<<20, true
	s.Topology.mark(vocab.ECN{Kmin: 100e3, Kmax: 400e3, Pmax: 0.2})
	s.Transport.Type = "rdma"
	s.Workloads = []vocab.Workload{{Sizes: "alistorage", Load: 70, Pairs: "any"}}
	s.Duration = us(200)
	return s
}

// must runs s.
func must(t *testing.T, s *Spec) *measure.Result {
	t.Helper()
	r, err := Run(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// parts assembles and runs s, for tests that look inside.
func parts(t *testing.T, s *Spec) (*run, *measure.Result) {
	t.Helper()
	r, err := assemble(s)
	if err != nil {
		t.Fatal(err)
	}
	res, err := r.result(r.loop(context.Background()))
	if err != nil {
		t.Fatal(err)
	}
	return r, res
}

// shapes are one fabric of each kind, and a link of it to fail.
var shapes = []struct {
	link string
	Topology
}{
	{"L0-S1.0", Topology{Leaves: 3, Spines: 2, Hosts: fabric.Hosts{PerLeaf: 3}}},
	{"L1-S0.1", Topology{Leaves: 2, Spines: 2, Links: vocab.Links{Parallel: 2}, Hosts: fabric.Hosts{PerLeaf: 4}}},
	{"A0-C0.0", Topology{Kind: "fat-tree", K: 4}},
	{"L0-A0.0", Topology{Kind: "three-layer", Leaves: 4, Spines: 4, Cores: 2, Hosts: fabric.Hosts{PerLeaf: 2}}},
	{"A1-C1.0", Topology{Kind: "altoona", Leaves: 4, Spines: 4, Cores: 2, Hosts: fabric.Hosts{PerLeaf: 2}}},
	{"A1-C0.0", Topology{Kind: "vl2", Leaves: 4, Spines: 4, Cores: 2, Hosts: fabric.Hosts{PerLeaf: 2}}},
}

// TestConservation: whatever the fabric, the scheme and the transport, and with
// a link that fails and comes back, no packet is lost without a reason, none is
// there twice, and no flow is faster than an idle network.
func TestConservation(t *testing.T) {
	transports := map[string]func(s *Spec){
		"cubic":   func(s *Spec) {},
		"newreno": func(s *Spec) { s.Transport.CongestionControl, s.Transport.MTU = "newreno", 9000 },
		"dctcp": func(s *Spec) {
			s.Transport.CongestionControl, s.Transport.MinRTO = "dctcp", us(1000)
			s.Topology.mark(vocab.ECN{Kmin: 50e3, Kmax: 50e3, Pmax: 1})
		},
		"gbn": func(s *Spec) {
			s.Transport.Type = "rdma"
			s.Topology.queue(0)
			s.Topology.Buffer, s.Topology.PFC = 2<<20, true
		},
		"irn":   func(s *Spec) { s.Transport.Type, s.Transport.Recovery = "rdma", "irn" },
		"mptcp": func(s *Spec) { s.Transport.Type, s.Transport.MinRTO = "mptcp", us(1000) },
	}
	for i, name := range []string{"cubic", "newreno", "dctcp", "gbn", "irn", "mptcp"} {
		for j, shape := range shapes {
			for k, scheme := range balance.Names() {
				if (i+j+k)%6 != 0 { // every scheme meets every shape, and every transport
					continue
				}
				s := small()
				s.Topology, s.Scheme, s.Seed = shape.Topology, scheme, uint64(10*j+k)
				s.Topology.Hosts.Link.Rate, s.Topology.Links.Rate = 10e9, 10e9
				s.Topology.queue(100_000)
				s.Workloads = []vocab.Workload{{Sizes: "alistorage", Load: 40, Pairs: "any", Of: "hosts", Connections: k % 3}}
				s.Duration, s.Drain = us(300), us(3000)
				s.Faults = []vocab.Fault{{At: us(100), Fail: shape.link}, {At: us(200), Restore: shape.link}}
				transports[name](s)
				t.Run(fmt.Sprintf("%s/%s%s/%s", name, shape.Kind, shape.link, scheme), func(t *testing.T) { conserve(t, s) })
			}
		}
	}
}

func conserve(t *testing.T, s *Spec) {
	t.Helper()
	r, res := parts(t, s)
	c := res.Conservation
	if c.Made == 0 || c.Made != c.Delivered+c.Dropped+c.InFlight {
		t.Errorf("%+v: made is not the sum of the others", c)
	}
	out := 0
	for _, p := range r.net.Parts() {
		out += p.Pool.Out()
	}
	if uint64(out) != c.InFlight {
		t.Errorf("%d packets have an owner, and %d are in flight", out, c.InFlight)
	}
	dropped := uint64(0)
	for _, n := range res.Drops {
		dropped += n
	}
	if dropped != c.Dropped {
		t.Errorf("drops by reason add up to %d of %d", dropped, c.Dropped)
	}
	counted := 0
	for _, class := range res.FCT[1:] {
		counted += class.Flows
	}
	if res.Flows == 0 || counted != res.Flows || res.FCT[0].Flows != res.Flows {
		t.Errorf("%d flows are measured, %d in all classes, %d in class all", res.Flows, counted, res.FCT[0].Flows)
	}
	live := len(r.flows)
	if res.Unfinished != live {
		t.Errorf("%d flows are unfinished, and %d under way", res.Unfinished, live)
	}
	if res.End == endDone && live > 0 || res.End != endDone && live == 0 {
		t.Errorf("ended %q with %d flows under way", res.End, live)
	}
}

// text is a result without what depends on the machine.
func text(t *testing.T, r *measure.Result) string {
	t.Helper()
	if r.Machine.WallS <= 0 || r.Machine.AllocBytes == 0 {
		t.Errorf("machine: %+v", r.Machine)
	}
	r.Machine = measure.Machine{}
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestDeterminism: the same Spec gives the same bytes, alone and beside others,
// and another seed gives others.
func TestDeterminism(t *testing.T) {
	specs := map[string]*Spec{"tcp": small(), "mptcp": small(), "drill": small(), "conweave": lossless(3), "mixed": small()}
	specs["mptcp"].Transport.Type = "mptcp"
	specs["drill"].Scheme, specs["conweave"].Scheme = "drill", "conweave"
	specs["conweave"].Measure.Reorder = us(5)
	m := specs["mixed"]
	m.Scheme = "conga"
	m.Measure = Measure{Imbalance: us(100), Queues: []string{"spines", "L0->h3"}}
	m.Topology.mark(vocab.ECN{Kmin: 10e3, Kmax: 100e3, Pmax: 0.5})
	m.Transport.CongestionControl = "dctcp"
	m.Faults = []vocab.Fault{{At: us(500), Fail: "L0-S0.0"}}
	m.Workloads = append(m.Workloads, vocab.Workload{Type: vocab.UDP, Rate: 1e9}, vocab.Workload{Type: vocab.Permutation}, vocab.Workload{Type: vocab.AllToAll, Bytes: 2000},
		vocab.Workload{Type: vocab.Incast, From: []string{"h0"}, FanIn: 5, Bytes: 50_000, Repeat: 3}, vocab.Workload{Sizes: "enterprise", Load: 5, Pool: true})
	for name, s := range specs {
		before := fmt.Sprintf("%+v", *s)
		want := text(t, must(t, s))
		if got := fmt.Sprintf("%+v", *s); got != before {
			t.Errorf("%s: Run changed its Spec from %s to %s", name, before, got)
		}
		var wg sync.WaitGroup
		got := make([]string, 2)
		for i := range got {
			wg.Go(func() {
				if r, err := Run(context.Background(), s); err != nil {
					t.Error(err)
				} else {
					got[i] = text(t, r)
				}
			})
		}
		wg.Wait()
		for _, g := range got {
			if g != want {
				t.Errorf("%s: runs of one Spec differ:\n%s\n%s", name, want, g)
			}
		}
		other := *s
		other.Seed = 2
		if text(t, must(t, &other)) == want {
			t.Errorf("%s: another seed changes nothing", name)
		}
	}
}

// countdown is a context that ends when it has been asked so often.
type countdown struct {
	context.Context
	left int
}

func (c *countdown) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestInterrupted: what was measured until then is there.
func TestInterrupted(t *testing.T) {
	whole := must(t, small())
	r, err := Run(&countdown{context.Background(), 100}, small())
	if err != nil {
		t.Fatal(err)
	}
	if r.End != endInterrupted || r.LengthS <= 0 || r.LengthS >= whole.LengthS || r.Flows == 0 || r.Flows >= whole.Flows || r.GoodputBps <= 0 {
		t.Errorf("ended %q after %g of %g s, %d of %d flows, %g bit/s", r.End, r.LengthS, whole.LengthS, r.Flows, whole.Flows, r.GoodputBps)
	}
	if whole.End != endDone {
		t.Errorf("the whole run ended %q", whole.End)
	}
}

// TestTime: flows to a host that has lost its link never end. The run does, when
// its time is up, and counts them with their age.
func TestTime(t *testing.T) {
	s := small()
	s.Workloads = []vocab.Workload{{Type: vocab.Bulk, From: []string{"h0", "h1"}, To: []string{"h8", "h9"}, Bytes: 1e6}}
	s.Faults = []vocab.Fault{{At: us(200), Fail: "h8-L1"}}
	s.Drain = us(3000)
	r := must(t, s)
	if r.End != endTime || r.LengthS != 5e-3 || r.Flows != 2 || r.Unfinished != 1 {
		t.Fatalf("ended %q after %g s, %d of %d flows unfinished", r.End, r.LengthS, r.Unfinished, r.Flows)
	}
	if f := r.FCT[0]; f.Flows != 2 || f.P999S != 5e-3 || f.P50S >= 2e-3 {
		t.Errorf("completion times %+v: want one finished early and one of 5 ms", f)
	}
	if r.Drops[network.LinkDown.String()] == 0 {
		t.Errorf("drops %v", r.Drops)
	}
}

// ringNode is a switch that sends on what is not for its own host.
type ringNode struct {
	host network.HostID
	own  *network.Port
	next *network.Port
}

func (s *ringNode) Receive(now engine.Time, p *network.Packet, _ *network.Port) {
	to := s.next
	if p.Dst == s.host {
		to = s.own
	}
	to.Send(now, p, p.Class)
}

// deadlock adds three switches in a ring to a network, whose hosts send two
// links around under PFC until they wait for each other. Package topo's routes go
// up and then down, where that cannot happen.
func deadlock(t *testing.T, n *network.Network, ids *ids) {
	t.Helper()
	var nodes [3]*ringNode
	var hosts [3]*network.Host
	config := func() network.PortConfig { return network.PortConfig{Rate: 10e9, Delay: engine.Microsecond} }
	var buffers [3]*network.Buffer
	for i := range nodes {
		buffers[i] = network.NewBuffer(network.BufferConfig{Total: 60_000, PFC: &network.PFC{}})
		hosts[i] = n.NewHost()
		nodes[i] = &ringNode{host: hosts[i].ID}
		c := config()
		n.NewPort(fmt.Sprintf("r%d->", i), 0, hosts[i], c, nil)
		c.Buffer = buffers[i]
		nodes[i].own = n.NewPort(fmt.Sprintf("->r%d", i), 0, nodes[i], c, nil)
		network.Connect(hosts[i].Port, nodes[i].own)
	}
	for i := range nodes {
		c, d := config(), config()
		c.Buffer, d.Buffer = buffers[i], buffers[(i+1)%3]
		nodes[i].next = n.NewPort("ring", 1, nodes[i], c, nil)
		network.Connect(nodes[i].next, n.NewPort("back", 2, nodes[(i+1)%3], d, nil))
	}
	for i := range hosts {
		udp.Start(0, n, udp.Flow{Flow: network.Flow{ID: ids.next(), Src: hosts[i], Dst: hosts[(i+2)%3]}, Rate: 20e9, Size: 1000, Until: engine.Never})
	}
}

// TestStuck: a run ends when ports hold each other back for ever, long before
// its time is up.
func TestStuck(t *testing.T) {
	for _, dead := range []bool{false, true} {
		s := small()
		s.Workloads = []vocab.Workload{{Type: vocab.Bulk, From: []string{"h0"}, To: []string{"h8"}, Bytes: 1e8}}
		s.Duration = us(20_000)
		r, err := assemble(s)
		if err != nil {
			t.Fatal(err)
		}
		want := endDone
		if dead {
			deadlock(t, r.net.Parts()[0], &r.ids)
			want = endStuck
		}
		why := r.loop(context.Background())
		res, err := r.result(why)
		if err != nil {
			t.Fatal(err)
		}
		if why != want || dead && res.LengthS > 20e-3 {
			t.Errorf("with a deadlock %v: ended %q after %g s", dead, why, res.LengthS)
		}
	}
}

// TestTableRefresh: flowlets that begin by tables all arrive, and do worse the older the
// tables are: with a link down, by those of 5 ms all leaves' flowlets meet on one path.
func TestTableRefresh(t *testing.T) {
	norm := func(every time.Duration) float64 {
		s := small()
		s.Topology = leafSpine(4, 4, 8, 10e9, 20e9, 4<<20)
		s.Scheme, s.TableRefresh, s.Duration = "conga", every, us(10000)
		s.Faults = []vocab.Fault{{Fail: "L1-S1.0"}}
		s.Workloads[0].Load = 70
		r := must(t, s)
		if r.Unfinished != 0 {
			t.Errorf("tables of %v: %d flows did not finish", every, r.Unfinished)
		}
		return r.FCT[0].Norm
	}
	fresh, young, old := norm(0), norm(20*time.Microsecond), norm(5*time.Millisecond)
	t.Logf("mean FCT over idle: %.2f fresh, %.2f and %.2f by tables", fresh, young, old)
	if young > 1.2*fresh || young < fresh/1.2 || old < 1.2*fresh {
		t.Errorf("mean FCT over idle is %.2f with fresh metrics, %.2f by tables of 20 µs, %.2f by those of 5 ms", fresh, young, old)
	}
}
