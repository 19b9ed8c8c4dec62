package dataplane

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/internal/testenv"
	"github.com/loomfabric/loom/internal/units"
	"github.com/loomfabric/loom/leaf"
	"github.com/loomfabric/loom/overlay"
)

// Each reason for which a host's frame goes to the worker, and none for those that need not.
func TestFastAccessSaysWhyNot(t *testing.T) {
	r := newFastLeafSample(t)
	hostD := overlay.MAC{2, 0, 0, 0, 0, 0xd}
	r.knows(0, hostD, overlay.DestLocal(uint16(acc1), 0))
	r.knows(1, hostD, overlay.DestLocal(uint16(acc1), 30))
	good := udp4(hostB, hostA, 0, 1, 64)
	for _, c := range []struct {
		name  string
		frame []byte
		why   string
	}{
		{"plain", good, ""},
		{"with a tag", udp4(hostB, hostA, 20, 1, 64), ""},
		{"TCP", tcp4(hostB, hostA, 0x2a, 1, false), ""},
		{"marked by a host", tcp4(hostB, hostA, 3, 1, false), ""},
		{"to another peer", udp4(hostC, hostA, 0, 1, 64), ""},
		{"with a checksum that is not finished", tcp4(hostB, hostA, 0, 7, true), "odd"},
		{"without ports", append(append(append([]byte(nil), hostB[:]...), hostA[:]...), make([]byte, 50)...), "odd"},
		{"of no network", udp4(hostB, hostA, 21, 1, 64), "network"},
		{"from a new host", udp4(hostB, overlay.MAC{2, 9}, 0, 1, 64), "source"},
		{"from a host of the fabric", udp4(hostB, hostC, 0, 1, 64), "source"},
		{"to nobody known", udp4(overlay.MAC{2, 8}, hostA, 0, 1, 64), "destination"},
		{"to all", udp4(bcast, hostA, 0, 1, 64), "destination"},
		{"to where it comes from", udp4(hostA, hostA, 0, 1, 64), "destination"},
		{"to a host here", udp4(hostD, hostA, 0, 1, 64), ""},
		{"with a tag, to a host here with another tag", udp4(hostD, hostA, 20, 1, 64), ""},
		{"to a host here, with two tags", slices.Insert(udp4(hostD, hostA, 20, 1, 64), 12, 0x81, 0, 0, 20), "odd"},
		{"too long for a host here", udp4(hostD, hostA, 0, 1, 1480), "hop"},
		{"too long for the uplink", udp4(hostB, hostA, 0, 1, 1600), "hop"},
	} {
		if why := r.both(acc0, c.frame); why != c.why {
			t.Errorf("%s: slow for %q, want %q", c.name, why, c.why)
		}
		r.drain()
	}
	for _, c := range []struct {
		name string
		set  func(*Tables)
		why  string
	}{
		{"no path", func(t *Tables) { t.Ports[up0].Up, t.Ports[up1].Up = false, false }, "no_route"},
		{"a next hop without a MAC address", func(t *Tables) {
			for i := range t.Hops {
				t.Hops[i].Resolved = false
			}
		}, "hop"},
	} {
		tables := leafTables()
		c.set(tables)
		r.publish(tables)
		r.use()
		if why := r.both(acc0, good); why != c.why {
			t.Errorf("%s: slow for %q, want %q", c.name, why, c.why)
		}
		r.publish(leafTables())
		r.use()
		for range 5 {
			r.now += 1000
			r.w.round(r.now)
		}
		r.settle()
		r.drain()
		if why := r.both(acc0, good); why != "" {
			t.Errorf("%s no more, and slow for %q", c.name, why)
		}
	}
}

// A class whose scheme wants to see each frame is the worker's, and the others are not.
func TestFastAccessGoesByClasses(t *testing.T) {
	cfg := leafConfig()
	cfg.Scheme = "conga"
	cfg.Classes = []Class{
		{Port: units.Ports{First: 100, Last: 200}, Scheme: "drill"}, {DSCP: 11, Scheme: "letflow"}, {VNI: 200, Protocol: 17, Scheme: "spray"}, {VNI: 9999, Scheme: "drill"},
	}
	r := newFastLeafRig(t, cfg, leafTables())
	r.knows(0, hostA, overlay.DestLocal(uint16(acc0), 0))
	r.knows(1, hostA, overlay.DestLocal(uint16(acc0), 20))
	for vni := range uint16(2) {
		r.knows(vni, hostB, overlay.DestRemote(0))
	}
	for _, c := range []struct {
		name  string
		frame []byte
		why   string
	}{
		{"by its port", tcp4(hostB, hostA, 0, 150, false), "scheme"},
		{"beside the range", tcp4(hostB, hostA, 0, 99, false), ""},
		{"by its DSCP", tcp4(hostB, hostA, 10<<2, 9, false), ""},
		{"by network and protocol", udp4(hostB, hostA, 20, 9, 64), "scheme"},
		{"of another network", udp4(hostB, hostA, 0, 9, 64), ""},
	} {
		before := r.fast.stats().Schemes
		why := r.both(acc0, c.frame)
		if why != c.why {
			t.Errorf("%s: slow for %q, want %q", c.name, why, c.why)
		}
		r.drain()
		if why == "" && slices.EqualFunc(before, r.fast.stats().Schemes, func(a, b leaf.SchemeStats) bool { return a.Decisions == b.Decisions }) {
			t.Errorf("%s: no scheme counts a decision", c.name)
		}
	}
	var decided uint64
	for _, s := range r.fast.stats().Schemes {
		switch s.Scheme {
		case "letflow", "conga":
			if s.Decisions == 0 || s.Flowlets.Started != s.Decisions {
				t.Errorf("scheme %s: %+v", s.Scheme, s.Stats)
			}
			decided += s.Decisions
		default:
			if s.Decisions != 0 {
				t.Errorf("scheme %s decided %d times", s.Scheme, s.Decisions)
			}
		}
	}
	if decided != 3 {
		t.Errorf("%d flowlets, want 3", decided)
	}
}

// What the worker would have put into a tunnel XDP has put there, byte for byte, by the same
// port, and counted alike: with random tables, classes and frames, tagged or not.
func TestFastAccessIsTheWorker(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, seed))
	known := packets(t)
	forwarded, reasons := 0, make(map[string]int)
	between := uint64(0)
	for range 16 {
		cfg, tables := randomLeaf(rng)
		cfg.Congestion = congestion.Datacenter()
		cfg.Congestion.Detector = congestion.Detector(rng.IntN(2))
		if tables.Peers[0].Weights = []uint16{1, 3}; rng.IntN(2) == 0 {
			tables.Peers[0].Weights, tables.Peers[1].Gone = nil, []Gone{{0, 1}}
		}
		cfg.Scheme = []string{"", "letflow", "conga", "local", "conga-flow"}[rng.IntN(5)]
		switch rng.IntN(3) {
		case 0:
			cfg.Classes = []Class{{Protocol: 6, Scheme: "drill"}}
		case 1:
			cfg.Classes = []Class{{DSCP: uint8(rng.IntN(3)), Protocol: []uint8{0, 6, 17}[rng.IntN(3)], Scheme: []string{"", "letflow", "conga", "drill"}[rng.IntN(4)], VNI: overlay.VNI(100 * rng.IntN(3))}}
		}
		if rng.IntN(4) == 0 {
			tables.Ports[up0].MTU, tables.Hops[1].Resolved = 200, false
		}
		r := newFastLeafRig(t, cfg, tables)
		if rng.IntN(3) > 0 {
			r.drain()
		}
		if rng.IntN(2) == 0 {
			r.prove(0)
			r.w.shared.leaf.From.Record(0, 3, uint8(rng.IntN(8)), r.now) // the one metric to be fed back
		}
		r.speak()
		for range 700 {
			in := []PortID{acc0, acc0, acc1, acc2}[rng.IntN(4)]
			switch rng.IntN(20) {
			case 0:
				r.fits(in, slices.Clone(known[rng.IntN(len(known))]))
			case 1, 2:
				r.fits(in, testenv.Mutate(rng, randomDeparture(rng), known))
			case 3, 4, 5:
				r.knows(uint16(rng.IntN(3)), []overlay.MAC{hostB, hostC}[rng.IntN(2)], overlay.DestRemote(uint16(rng.IntN(2))))
			case 9:
				vni := uint16(rng.IntN(2))
				r.knows(vni, hostC, []overlay.Dest{overlay.DestLocal(uint16(acc1), 0), overlay.DestLocal(uint16(acc1), 30)}[vni])
			case 6, 7:
				vni := uint16(rng.IntN(3))
				if len(tables.Static) == 0 || vni > 0 {
					r.knows(vni, hostA, []overlay.Dest{overlay.DestLocal(uint16(acc0), 0), overlay.DestLocal(uint16(acc0), 20), overlay.DestLocal(uint16(acc2), 0)}[vni])
				}
			case 8:
				r.pass(time.Duration(rng.IntN(int(20 * time.Second))))
				r.speak()
			default:
				b := randomDeparture(rng)
				for range 1 + rng.IntN(3) { // of one flow, of which the worker may have some
					r.fits(in, b)
				}
			}
		}
		r.balance()
		for _, n := range r.fast.stats().VNIs {
			between += n.Local.Frames
		}
		forwarded += r.forwarded
		for why, n := range r.reasons {
			reasons[why] += n
		}
	}
	t.Logf("%d forwarded, %d of them between ports of the leaf, slow %v", forwarded, between, reasons)
	if forwarded < 500 || between < 20 {
		t.Errorf("only %d frames were forwarded by XDP: the test shows nothing", forwarded)
	}
	for _, why := range []string{"odd", "hop", "network", "source", "destination", "order", "scheme"} {
		if reasons[why] == 0 {
			t.Errorf("no frame was slow for %q: the test shows little", why)
		}
	}
}

// randomDeparture returns what hosts could send, mostly into the fabric.
func randomDeparture(rng *rand.Rand) []byte {
	dst := []overlay.MAC{hostB, hostB, hostB, hostC, hostC, {2, 7}, bcast, hostA}[rng.IntN(8)]
	src := []overlay.MAC{hostA, hostA, hostA, hostA, hostB, {2, 0, 0, 0, 0, 0x1a}}[rng.IntN(6)]
	vlan := []uint16{0, 0, 20, 40}[rng.IntN(4)]
	switch rng.IntN(6) {
	case 0, 1:
		b := tcp4(dst, src, byte(rng.IntN(256)), uint16(rng.Uint32()), rng.IntN(10) == 0)
		if vlan != 0 && rng.IntN(2) == 0 {
			b = slices.Insert(b, 12, 0x81, 0, byte(rng.IntN(16))<<4, byte(vlan))
		}
		return b
	case 2: // IPv6, UDP
		b := append(append(append([]byte(nil), dst[:]...), src[:]...), 0x86, 0xdd, 0x60|byte(rng.IntN(16)), byte(rng.Uint32()), 0, 0, 0, 16, 17, 64)
		for range 32 + 16 {
			b = append(b, byte(rng.Uint32()))
		}
		b[14+40+4], b[14+40+5] = 0, 16
		return b
	}
	return udp4(dst, src, vlan, uint16(rng.Uint32()), rng.IntN(200))
}
