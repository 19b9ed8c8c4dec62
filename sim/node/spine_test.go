package node

import (
	"testing"

	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

// star is a spine with taps at its ports.
type star struct {
	net   *network.Network
	spine *Spine
	taps  []*tap
}

func newStar(t *testing.T, ports, leaves int, cfg Config) *star {
	t.Helper()
	r := &star{net: network.New(engine.New())}
	s, err := NewSpine(r.net, "S0", 0, leaves, cfg)
	if err != nil {
		t.Fatal(err)
	}
	r.spine = s
	wire := network.PortConfig{Rate: 10 * gbit, Delay: us}
	for range ports {
		a := &tap{net: r.net}
		network.Connect(s.AddPort("down", wire), r.net.NewPort("tap", 0, a, wire, nil))
		r.taps = append(r.taps, a)
	}
	return r
}

// enter lets the spine have a packet to a leaf.
func (r *star) enter(leaf uint16, hash uint32, f overlay.Fabric) {
	p := r.net.Pool.Get()
	p.DstLeaf, p.Hash, p.Fabric, p.Size, p.Class = leaf, hash, f, 1000, network.DataClass
	r.spine.Receive(r.net.Engine.Now(), p, nil)
}

func (r *star) route(t *testing.T, leaf uint16, ports ...int) {
	t.Helper()
	if err := r.spine.SetRoute(leaf, ports); err != nil {
		t.Fatal(err)
	}
}

// counts runs until all is sent, and returns how many packets left by each port.
func (r *star) counts() []int {
	r.net.Engine.Run(engine.Never)
	out := make([]int, len(r.taps))
	for i, a := range r.taps {
		out[i] = len(a.got)
	}
	return out
}

// The selector is the next hop's place in the route, modulo their number, and flows with
// the selector that is left go by hash, as in the data plane: three links get equal parts.
func TestSpinesDoAsTheSelectorSays(t *testing.T) {
	r := newStar(t, 5, 2, DefaultConfig())
	r.route(t, 1, 4, 0, 2)
	for flow := range uint32(2048) {
		r.enter(1, flow*0x9e3779b9, overlay.Fabric{Capable: true, Path: overlay.MakePathID(3, uint8(flow%16))})
	}
	got := r.counts()
	for i, p := range []int{4, 0, 2} {
		for _, packet := range r.taps[p].got {
			if s := packet.Fabric.Path.Selector(); s < 15 && int(s)%3 != i {
				t.Fatalf("selector %d took port %d", s, p)
			}
		}
		// 640 with the first fifteen selectors, and some 43 of 128 with the last one.
		if got[p] < 640+25 || got[p] > 640+60 {
			t.Errorf("port %d got %d of 2048 packets: %v", p, got[p], got)
		}
	}
	if s := r.spine.Stats(); s.Forwarded != 2048 || s.Pinned != 2048 {
		t.Errorf("%+v", s)
	}
}

// Packets without the fabric's fields go by their flow's hash, and spines with
// different seeds send them differently.
func TestSpinesHashPlainPackets(t *testing.T) {
	var ways [2][]int
	for seed := range 2 {
		cfg := DefaultConfig()
		cfg.Seed = uint64(seed)
		r := newStar(t, 4, 2, cfg)
		r.route(t, 1, 0, 1, 2, 3)
		last := make([]int, 4)
		for flow := range uint32(400) {
			for range 2 {
				r.enter(1, flow*0x9e3779b9, overlay.Fabric{})
			}
			got := r.counts()
			for i := range got {
				if d := got[i] - last[i]; d == 1 {
					t.Fatalf("flow %d took two ways", flow)
				} else if d == 2 {
					ways[seed] = append(ways[seed], i)
				}
			}
			last = got
		}
		for i, n := range last {
			if n < 140 || n > 260 {
				t.Errorf("seed %d: port %d got %d of 800 packets", seed, i, n)
			}
		}
	}
	same := 0
	for i := range ways[0] {
		if ways[0][i] == ways[1][i] {
			same++
		}
	}
	if same < 50 || same > 160 {
		t.Errorf("two spines send %d of 400 flows the same way, want some 100", same)
	}
}

func TestSpinesRaiseCEOfCapablePacketsOnly(t *testing.T) {
	r := newStar(t, 1, 2, DefaultConfig())
	r.route(t, 1, 0)
	for i := range 200 { // 1600 kbit at once: far beyond C·τ
		r.enter(1, 1, overlay.Fabric{Capable: i%2 == 0, CE: uint8(i % 4)})
	}
	r.counts()
	top := uint8(0)
	for i, p := range r.taps[0].got {
		if i%2 == 1 && p.Fabric.CE != uint8(i%4) {
			t.Fatalf("packet %d is plain, and has CE %d", i, p.Fabric.CE)
		}
		if p.Fabric.CE < uint8(i%4) {
			t.Fatalf("packet %d: CE fell from %d to %d", i, i%4, p.Fabric.CE)
		}
		top = max(top, p.Fabric.CE)
	}
	if top < 4 {
		t.Errorf("CE reached %d on a full link", top)
	}
}

func TestSpinesLeaveALinkThatIsGone(t *testing.T) {
	for _, own := range []string{"", "drill", "spray"} {
		cfg := DefaultConfig()
		cfg.Spine = own
		r := newStar(t, 3, 3, cfg)
		r.route(t, 1, 0, 1, 2)
		r.route(t, 2, 1)
		r.spine.LinkChanged(0, r.spine.ports[1].port, false)
		for i := range uint32(60) {
			r.enter(1, i*0x9e3779b9, overlay.Fabric{Capable: i%2 == 0, Path: overlay.PathID(i)})
		}
		r.enter(2, 1, overlay.Fabric{})
		if got := r.counts(); got[1] != 0 || got[0]+got[2] != 60 || got[0] == 0 || got[2] == 0 {
			t.Errorf("%q: ports got %v", own, got)
		}
		if l := r.net.Ledger(); l.Dropped[network.NoRoute] != 1 || l.Check() != nil {
			t.Errorf("%q: %v", own, l.Dropped)
		}
		r.route(t, 1, 0, 1, 2)
		r.spine.LinkChanged(0, r.spine.ports[1].port, true)
		for i := range uint32(60) {
			r.enter(1, i*0x9e3779b9, overlay.Fabric{Capable: i%2 == 0, Path: overlay.PathID(i)})
		}
		if got := r.counts(); got[1] == 0 {
			t.Errorf("%q: nothing by a link that is back", own)
		}
	}
}

// A spine has a port for every leaf, more than a scheme knows links: each set of
// ports that lead to the same leaf is balanced by itself, and none is mistaken
// for another's.
func TestSpinesOwnSchemeWithManyPorts(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Spine = "drill"
	const leaves = 20
	r := newStar(t, 2*leaves, leaves, cfg)
	for leaf := range leaves {
		r.route(t, uint16(leaf), 2*leaf, 2*leaf+1)
	}
	for i := range 10 * leaves {
		r.enter(uint16(i%leaves), uint32(i), overlay.Fabric{Capable: true})
	}
	// Both samples may be the same port, so DRILL(2, 1) misses the shorter queue
	// now and then; a scheme that looked at another leaf's queues always would.
	got, uneven := r.counts(), 0
	for leaf := range leaves {
		a, b := got[2*leaf], got[2*leaf+1]
		if a+b != 10 || max(a, b) > 8 {
			t.Errorf("leaf %d got %d and %d packets by its ports, want 10 in all", leaf, a, b)
		}
		if max(a, b) > 6 {
			uneven++
		}
	}
	if uneven > leaves/4 {
		t.Errorf("%d of %d leaves' ports got less than 4 of 10", uneven, leaves)
	}
}

func TestSpinesRefuseTooManyNextHops(t *testing.T) {
	r := newStar(t, 17, 2, DefaultConfig())
	ports := make([]int, 17)
	for i := range ports {
		ports[i] = i
	}
	if r.spine.SetRoute(1, ports) == nil {
		t.Error("17 next hops were taken")
	}
	cfg := DefaultConfig()
	cfg.Spine = "conweave"
	if _, err := NewSpine(r.net, "S1", 1, 2, cfg); err == nil {
		t.Error("a scheme that needs an answer from the far end was taken")
	}
}
