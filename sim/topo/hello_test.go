package topo

import (
	"testing"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/leaf"
	"github.com/loomfabric/loom/liveness"
	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
	"github.com/loomfabric/loom/sim/node"
)

// capable reports whether one leaf takes another one for capable now.
func (t *Topology) capable(from, to int) bool {
	return t.Leaves[from].Brain().View().Capable.Capable(uint16(to), t.Network.Engine.Now().Mono())
}

// A leaf whose uplinks are all cut is plain to the others after two and a half rounds
// since its last HELLO, to a look, and they to it; the others stay capable to each other. It is
// capable again with the first HELLO after its uplinks are back, and not before: what
// is sent in between is plain VXLAN.
func TestALeafThatIsCutOffBecomesPlain(t *testing.T) {
	const (
		ms     = engine.Millisecond
		cut    = 450 * ms // after the HELLOs of 400 ms
		back   = 2650 * ms
		hello  = 400 * ms
		margin = ms
		look   = engine.Time(liveness.LookEvery/time.Millisecond) * ms
	)
	plain := hello + engine.Of(liveness.Interval(2))*5/2
	spec := leafSpine(3, 2, 1, 1)
	spec.Faults = []vocab.Fault{
		fail(cut, "L0-S0.0"), fail(cut, "L0-S1.0"),
		restore(back, "L0-S0.0"), restore(back, "L0-S1.0"),
	}
	cfg := node.DefaultConfig()
	cfg.Scheme = "conga"
	top := mustBuild(t, spec, cfg)
	for _, c := range []struct {
		at   engine.Time
		want bool
	}{
		{0, true}, {cut + margin, true}, {plain - margin, true}, {plain + 2*look, false}, {back, false},
		{back + 50*ms - margin, false}, {back + 50*ms + margin, true}, {back + 5*engine.Second, true},
	} {
		top.Network.Engine.Run(c.at)
		for _, pair := range [][2]int{{0, 1}, {0, 2}, {1, 0}, {2, 0}} {
			if got := top.capable(pair[0], pair[1]); got != c.want {
				t.Errorf("at %v leaf %d takes leaf %d for capable: %v, want %v", c.at, pair[0], pair[1], got, c.want)
			}
		}
		if !top.capable(1, 2) || !top.capable(2, 1) {
			t.Errorf("at %v leaves that are not cut off do not know each other", c.at)
		}
		if c.at != back+50*ms-margin && c.at != back+50*ms+margin {
			continue
		}
		k := &sink{pool: &top.Network.Pool, keep: true}
		top.Network.Bind(7, nil, k)
		top.Hosts[1].Send(c.at, top.packet(7, 1, 0, 100), network.DataClass)
		top.Network.Engine.Run(c.at + margin/2)
		if len(k.seen) != 1 || k.seen[0].Fabric.Capable != c.want {
			t.Errorf("at %v a packet to leaf 0 came as %+v", c.at, k.seen)
		}
	}
	// A leaf without a path has nothing to send HELLOs by, so none was lost.
	if l := top.checkBalance(t); l.TotalDropped() != 0 {
		t.Errorf("drops %v", l.Dropped)
	}
}

// A path that loses all that goes by it does not silence a leaf: HELLOs take all paths.
func TestHellosTakeAllPaths(t *testing.T) {
	top := mustBuild(t, leafSpine(2, 2, 1, 1), node.DefaultConfig())
	if err := top.Spines[0].SetRoute(1, nil); err != nil { // and nobody notices
		t.Fatal(err)
	}
	for at := engine.Time(0); at < 10*engine.Second; at += 100 * engine.Millisecond {
		top.Network.Engine.Run(at)
		if !top.capable(0, 1) || !top.capable(1, 0) {
			t.Fatalf("at %v leaves do not know each other", at)
		}
	}
	if l := top.checkBalance(t); l.Dropped[network.NoRoute] < 97 || l.Dropped[network.NoRoute] > 99 {
		t.Errorf("drops %v; want one HELLO of leaf 0 a round", l.Dropped)
	}
}

// Whole fabrics simulate profile auto: every leaf finds its own times, from round trips
// that queues make longer for those with traffic.
func TestAutoInAFabric(t *testing.T) {
	spec := leafSpine(3, 2, 1, 1)
	spec.Links.Delay, spec.Links.Queue = 200*time.Microsecond, 100_000
	cfg := node.DefaultConfig()
	cfg.Scheme = "conweave"
	cfg.Auto = leaf.Auto{Reply: true, Inactive: true, ResumeExtra: true, ResumeDefault: true, MaxHold: true}
	cfg.Sections = map[string]balance.Params{"conweave": balance.Find("conweave").Section.New(balance.Lab)}
	top := mustBuild(t, spec, cfg)
	top.Network.Engine.Run(9 * engine.Second)
	for _, l := range top.Leaves {
		p := l.Brain().Classes()[0].Policy.(balance.ConWeavePolicy).Params()
		// 800 µs there and back: θ_reply is twice that.
		if p.Reply < 1600*time.Microsecond || p.Reply > 1900*time.Microsecond || p.Inactive < 4*p.Reply {
			t.Errorf("leaf %s has θ_reply %v and θ_inactive %v", l.Name, p.Reply, p.Inactive)
		}
	}
}
