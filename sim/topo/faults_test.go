package topo

import (
	"fmt"
	"testing"

	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
	"github.com/loomfabric/loom/sim/node"
)

// stream is a source that sends packets of one flow at a constant rate, until
// it has sent them all.
type stream struct {
	network.Turn
	top      *Topology
	flow     network.FlowID
	src, dst network.HostID
	size     uint32
	every    engine.Time
	next     engine.Time
	left     int
	number   uint64
	hash     func(number uint64) uint32 // nil: the flow's
}

func (s *stream) Pull(now engine.Time) (*network.Packet, engine.Time) {
	if s.left == 0 {
		return nil, engine.Never
	}
	if now < s.next {
		return nil, s.next
	}
	s.left--
	s.next = max(s.next, now-s.every) + s.every
	p := s.top.packet(s.flow, s.src, s.dst, s.size)
	if s.hash != nil {
		p.Hash = s.hash(s.number)
	}
	p.Number = s.number
	s.number++
	return p, 0
}

// start begins a stream of n packets, and returns its receiver.
func (t *Topology) stream(f network.FlowID, src, dst network.HostID, n int, size uint32, rate uint64) (*stream, *sink) {
	s := &stream{top: t, flow: f, src: src, dst: dst, left: n, size: size, every: engine.Time(uint64(size) * 8 * uint64(engine.Second/1000) / (rate / 1000))}
	k := &sink{pool: &t.Network.Pool}
	t.Network.Bind(f, nil, k)
	t.Hosts[src].Ready(t.Network.Engine.Now(), s)
	return s, k
}

// Hosts send to others in other leaves while a link fails and comes back. All
// that is lost was under way at the moment of the failure: nothing that was sent
// later is blackholed, and the link is used before and after, not in between.
func TestAFailureCostsWhatWasUnderWay(t *testing.T) {
	for _, shape := range shapes[2:] {
		for _, scheme := range []string{"ecmp", "conga", "letflow", "drill", "conweave"} {
			t.Run(shape.name+"/"+scheme, func(t *testing.T) {
				cfg := node.DefaultConfig()
				cfg.Scheme = scheme
				if scheme == "drill" {
					cfg.Spine = "drill"
				}
				whole := mustBuild(t, shape.spec(), cfg)
				// An uplink of the first leaf if it has another one to the last leaf,
				// a core's link otherwise.
				failed := whole.Links[0].Name
				if len(whole.start[len(whole.Leaves)-1][0]) < 2 {
					failed = whole.Links[len(whole.plan.links)-1].Name
				}
				failAndRepair(t, shape.spec(), cfg, failed)
			})
		}
	}
}

func failAndRepair(t *testing.T, spec Spec, cfg node.Config, failed string) {
	const packets, every, fails, repaired = 250, 1500 * engine.Nanosecond, 100 * us, 250 * us
	spec.Faults = []vocab.Fault{fail(fails, failed), restore(repaired, failed)}
	top := mustBuild(t, spec, cfg)
	link, err := top.plan.find(failed)
	if err != nil {
		t.Fatal(err)
	}
	sinks := map[int]*sink{}
	n := len(top.Hosts)
	for h := 0; h < n; h += max(n/16, 1) {
		s, k := top.stream(network.FlowID(h), network.HostID(h), network.HostID((h+n/2)%n), packets, 1500, gbit*8)
		s.hash = func(number uint64) uint32 { return flowHash(network.FlowID(uint64(h)<<10 + number)) } // many flows
		k.keep = true
		sinks[h] = k
	}
	used := func() uint64 {
		return link.A.Stats().Packets[network.DataClass] + link.B.Stats().Packets[network.DataClass]
	}
	top.Network.Engine.Run(fails)
	before := used()
	top.Network.Engine.Run(repaired)
	between := used()
	top.settle(t)
	if before == 0 || between != before || used() == between {
		t.Errorf("link %s carried %d packets before it failed, %d until it was repaired, %d in all", failed, before, between, used())
	}
	lost := 0
	for h, k := range sinks {
		came := [packets]bool{}
		for _, p := range k.seen {
			came[p.Number] = true
		}
		for i, yes := range came {
			if sent := engine.Time(i) * every; !yes {
				lost++
				if sent > fails || sent < fails-60*us {
					t.Errorf("host %d: packet %d of %v is lost", h, i, sent)
				}
			}
		}
	}
	// ConWeave's own control packets are lost too.
	if l := top.checkBalance(t); int(l.TotalDropped()) < lost || cfg.Scheme != "conweave" && int(l.TotalDropped()) > lost {
		t.Errorf("%d packets are missing, drops are %v", lost, l.Dropped)
	}
}

// A leaf that has lost all its paths drops under a name, and is back when they
// are. A host that is cut off is no business of the routes.
func TestALeafThatIsCutOff(t *testing.T) {
	spec := leafSpine(3, 2, 1, 1)
	spec.Faults = []vocab.Fault{
		fail(100*us, "L0-S0.0"), fail(110*us, "L0-S1.0"), restore(300*us, "L0-S1.0"),
		fail(350*us, "h2-L2"),
	}
	top := mustBuild(t, spec, node.DefaultConfig())
	_, out := top.stream(0, 0, 1, 400, 1250, 10*gbit)
	_, in := top.stream(1, 1, 0, 400, 1250, 10*gbit)
	_, aside := top.stream(2, 2, 1, 300, 1250, 5*gbit/2) // 4 µs each; the last 200 are not sent before its link fails
	top.Network.Engine.Run(2 * engine.Millisecond)
	l := top.Network.Ledger()
	if err := l.Check(); err != nil {
		t.Error(err)
	}
	if out.got < 195 || out.got > 215 || in.got < 195 || in.got > 215 {
		t.Errorf("%d and %d packets came; some 210 were sent while leaf 0 had a path", out.got, in.got)
	}
	if l.Dropped[network.NoRoute] < 350 {
		t.Errorf("drops %v: want some 380 without a route", l.Dropped)
	}
	if aside.got < 80 || aside.got > 90 {
		t.Errorf("%d packets from a host whose link failed", aside.got)
	}
}

// The same seed gives the same run: every arrival at the same picosecond.
func TestRunsRepeat(t *testing.T) {
	for _, scheme := range []string{"ecmp", "conga", "letflow", "drill", "spray", "conweave"} {
		run := func(seed uint64) string {
			spec := leafSpine(4, 4, 2, 1)
			spec.Faults = []vocab.Fault{fail(60*us, "L1-S2.0")}
			cfg := node.DefaultConfig()
			cfg.Scheme, cfg.Seed = scheme, seed
			top := mustBuild(t, spec, cfg)
			var sinks []*sink
			for h := range network.HostID(8) {
				_, k := top.stream(network.FlowID(h), h, (h+3)%8, 100, 1500, 9*gbit)
				k.keep = true
				sinks = append(sinks, k)
			}
			top.settle(t)
			all := ""
			for _, k := range sinks {
				all += fmt.Sprintln(k.last)
				for _, p := range k.seen {
					all += fmt.Sprint(p.Number, p.Fabric, p.CE)
				}
			}
			return all
		}
		a, b, c := run(1), run(1), run(2)
		if a != b {
			t.Errorf("%s: two runs with one seed differ", scheme)
		}
		if a == c {
			t.Errorf("%s: another seed makes no difference", scheme)
		}
	}
}
