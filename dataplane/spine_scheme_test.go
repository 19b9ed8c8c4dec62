package dataplane

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/dataplane/xsk"
	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/overlay"
)

// schemeSpine is a spine that chooses by a scheme.
func schemeSpine(t testing.TB, scheme string, change func(*Config)) *rig {
	cfg := spineConfig()
	cfg.Scheme = scheme
	if change != nil {
		change(&cfg)
	}
	return newRig(t, cfg, spineTables())
}

// DRILL at a spine (Ghorbani et al., SIGCOMM 2017): each packet goes to the shorter
// queue, whatever its flow and the leaf's selector are.
func TestSpineUnderDRILLFollowsQueues(t *testing.T) {
	r := schemeSpine(t, "drill", nil)
	var burst [][]byte
	for i := range burstSize {
		f := (*overlay.Fabric)(nil)
		if i%2 == 0 {
			f = &overlay.Fabric{Capable: true, Path: overlay.MakePathID(1, 0)}
		}
		burst = append(burst, viaSpine(vtep2, 1, f))
	}
	out := r.send(dn2, burst...)
	if a, b := len(out[dn0]), len(out[dn1]); a+b != burstSize || a < burstSize/2-4 || b < burstSize/2-4 {
		t.Errorf("%d and %d packets of one flow took the two links, want halves; drops %v", a, b, r.drops())
	}
	// A queue in front of one link, and all take the other.
	r.links[dn0].stuck = true
	for range 3 * r.w.cfg.RingSize {
		r.links[dn2].put(viaSpine(vtep2, 1, nil))
		r.w.round(r.now)
	}
	queued := r.w.ports[dn0].egress.data.len()
	if queued == 0 {
		t.Fatal("nothing waits for the link that is stuck")
	}
	for range 20 {
		r.now = r.now.Add(time.Microsecond)
		r.links[dn2].put(viaSpine(vtep2, 1, nil))
		r.w.round(r.now)
	}
	if got := r.w.ports[dn0].egress.data.len(); got != queued {
		t.Errorf("%d packets joined the longer queue", got-queued)
	}
	s := r.w.snapshot().Schemes
	if len(s) != 1 || s[0].Scheme != "drill" || s[0].Decisions != uint64(burstSize+3*r.w.cfg.RingSize+20) {
		t.Errorf("counted %+v", s)
	}
}

// LetFlow at a spine: the packets of a flowlet take one link, and flowlets both.
func TestSpineUnderLetFlowKeepsFlowletsTogether(t *testing.T) {
	r := schemeSpine(t, "letflow", nil)
	took := func(flow int) PortID {
		t.Helper()
		out := r.send(dn2, viaSpine(vtep2, flow, nil))
		if len(out[dn0])+len(out[dn1]) != 1 {
			t.Fatalf("%d packets left; drops %v", len(out[dn0])+len(out[dn1]), r.drops())
		}
		return PortID(len(out[dn1]))
	}
	moved := 0
	for flow := range 32 {
		last := took(flow)
		for range 8 { // flowlets
			for range 4 {
				if now := took(flow); now != last {
					t.Fatalf("flow %d moved within a flowlet", flow)
				}
			}
			r.now = r.now.Add(time.Second)
			if now := took(flow); now != last {
				moved, last = moved+1, now
			}
		}
	}
	if moved < 64 || moved > 192 {
		t.Errorf("%d of 256 flowlets took another link than the one before, want about half", moved)
	}
	if s := r.w.snapshot().Schemes[0]; s.Flowlets.Started == 0 || s.Decisions != s.Flowlets.Started {
		t.Errorf("counted %+v", s)
	}
}

// Without a scheme a spine follows the selectors of those who have them, and for the
// others the hash, which differs from node to node.
func TestSpineWithoutASchemeFollowsSelectorsAndHashes(t *testing.T) {
	r := schemeSpine(t, "", nil)
	for flow := range 64 {
		b := viaSpine(vtep2, flow, nil)
		var m overlay.Meta
		overlay.Dissect(b, uint32(r.w.cfg.Seed), &m)
		want := PortID(uint64(m.Hash) * 2 >> 32)
		if out := r.send(dn2, b); len(out[want]) != 1 {
			t.Fatalf("flow %d did not take link %d", flow, want)
		}
		selector := uint8(flow & 0xf)
		out := r.send(dn2, viaSpine(vtep2, flow, &overlay.Fabric{Capable: true, Path: overlay.MakePathID(3, selector)}))
		if want := PortID(selector % 2); len(out[want]) != 1 {
			t.Fatalf("selector %d did not take link %d", selector, want)
		}
	}
	if s := r.w.snapshot().Schemes; len(s) != 0 {
		t.Errorf("counted %+v", s)
	}
}

// Schemes that rely on the leaf at the far end are not for spines.
func TestSpineRefusesSchemesForLeaves(t *testing.T) {
	try := func(scheme string, o balance.Options) error {
		cfg := spineConfig()
		cfg.Scheme, cfg.Options, cfg.Workers, cfg.RingSize = scheme, o, 1, 512
		if err := cfg.check(); err != nil {
			return err
		}
		_, err := newWorker(0, &cfg, make([]byte, 8*testFrameSize), xsk.NewPool(8, testFrameSize), testFrameSize, newShared(&cfg))
		return err
	}
	for _, s := range balance.Schemes() {
		err := try(s.Name, balance.Options{})
		if (err != nil) != s.NeedsPeer || err != nil && !strings.Contains(err.Error(), s.Name+" is for leaves") {
			t.Errorf("%s, which needs a peer: %v: %v", s.Name, s.NeedsPeer, err)
		}
	}
	if err := try("dril", balance.Options{}); err == nil || !strings.Contains(err.Error(), "drill") {
		t.Errorf("a scheme that there is not: %v", err)
	}
	if err := try("letflow", balance.Options{Keys: flowletKeys(3)}); err == nil {
		t.Error("a flowlet table of 3 entries was accepted")
	}
}

// A burst for several leaves: each packet takes a link of its own destination, and the
// packets of a link leave as they came.
func TestSpineSchemeWithManyDestinations(t *testing.T) {
	tables := spineTables()
	tables.Groups[2].Hops = []HopID{1, 2} // 10.0.1.0/24
	cfg := spineConfig()
	cfg.Scheme = "drill"
	r := newRig(t, cfg, tables)
	vtep9 := netip.MustParseAddr("10.0.1.9")
	var burst [][]byte
	for i := range 60 {
		b := viaSpine([]netip.Addr{vtep2, vtep3, vtep9}[i%3], 1, nil)
		b[len(b)-1] = byte(i)
		burst = append(burst, b)
	}
	out := r.send(dn0, burst...)
	to := make(map[PortID]map[uint32]int)
	for p := range out {
		to[PortID(p)] = make(map[uint32]int)
		last := make(map[uint32]byte)
		for _, b := range out[p] {
			dst := overlay.IPv4(b[14:]).Dst()
			to[PortID(p)][dst]++
			if n := b[len(b)-1]; n < last[dst] {
				t.Errorf("packet %d left link %d behind packet %d", n, p, last[dst])
			} else {
				last[dst] = n
			}
		}
	}
	l2, l3, l9 := uint32(overlay.AddrOf(vtep2).Low), uint32(overlay.AddrOf(vtep3).Low), uint32(overlay.AddrOf(vtep9).Low)
	if to[dn2][l3] != 20 || to[dn0][l2]+to[dn1][l2] != 20 || to[dn1][l9]+to[dn2][l9] != 20 || to[dn0][l2] == 0 || to[dn1][l9] == 0 && to[dn2][l9] == 0 {
		t.Errorf("packets by link and destination: %v", to)
	}
}

// A link that goes and comes back: nothing is lost, the others take its share, and the
// flowlets that are under way stay where they can.
func TestSpineSchemeSurvivesLinksThatGo(t *testing.T) {
	for _, scheme := range []string{"drill", "letflow", "spray", "ecmp", "static", "local"} {
		t.Run(scheme, func(t *testing.T) {
			r := schemeSpine(t, scheme, func(c *Config) {
				if scheme == "static" {
					c.Options.Keys = weights(1, 1)
				}
			})
			var used [2]int
			send := func() {
				t.Helper()
				used = [2]int{}
				for flow := range 64 {
					out := r.send(dn2, viaSpine(vtep2, flow, nil))
					used[0] += len(out[dn0])
					used[1] += len(out[dn1])
				}
				if used[0]+used[1] != 64 || len(r.drops()) != 0 {
					t.Fatalf("%v packets left; drops %v", used, r.drops())
				}
			}
			send()
			if used[0] == 0 || used[1] == 0 {
				t.Errorf("links took %v packets", used)
			}
			bundles := len(r.w.spine.brain.Bundles())
			down := spineTables()
			down.Ports[dn0].Up = false
			r.publish(down)
			send()
			if used[0] != 0 {
				t.Errorf("a link that is down took %d packets", used[0])
			}
			down.Ports[dn1].Up = false
			r.publish(down)
			if r.send(dn2, viaSpine(vtep2, 1, nil)); r.drops()[drop.NoRoute] != 1 {
				t.Errorf("with both links down: %v", r.drops())
			}
			clear(r.w.ports[dn2].stats.Drops[:])
			r.w.ports[dn2].stats.Received.Frames-- // as if it had not come
			r.publish(spineTables())
			r.now = r.now.Add(time.Second)
			send()
			if used[0] == 0 || len(r.w.spine.brain.Bundles()) != bundles {
				t.Errorf("back again, the link took %d packets; %d bundles, before %d", used[0], len(r.w.spine.brain.Bundles()), bundles)
			}
		})
	}
}

// A burst of packets allocates nothing under any scheme that a spine can have.
func TestSpineSchemesAllocateNothing(t *testing.T) {
	for _, s := range balance.Schemes() {
		if s.NeedsPeer {
			continue
		}
		r := schemeSpine(t, s.Name, nil)
		for i := range r.links {
			r.links[i].keep = false
		}
		var burst [][]byte
		for flow := range 8 {
			burst = append(burst, viaSpine(slices.Repeat([]netip.Addr{vtep2, vtep2, vtep3}, 3)[flow], flow, nil))
		}
		work := func() {
			for _, b := range burst {
				r.links[dn2].put(b)
			}
			for r.w.round(r.now) > 0 {
			}
			r.now = r.now.Add(time.Millisecond)
		}
		for range 500 {
			work()
		}
		if n := testing.AllocsPerRun(200, work); n != 0 {
			t.Errorf("%s: %v allocations a burst", s.Name, n)
		}
	}
}
