package topo

import (
	"testing"
	"time"

	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
	"github.com/loomfabric/loom/sim/node"
)

// "The CE field of the packet received at the destination leaf gives the maximum
// link congestion along the packet's path. This needs to be fed back to the
// source leaf. [...] When a packet is sent in the reverse direction, one metric
// from the Congestion-From-Leaf Table is inserted in its FB_LBTag and FB_Metric
// fields for the source leaf. [...] Finally, the source leaf parses the feedback
// in the reverse packet and updates the Congestion-To-Leaf Table." (§3.3)
//
// Two links of a path are loaded, the uplink and the spine's link, in both
// orders of which is worse. With τ of 10 ms the metrics do not move during the
// few microseconds of a probe.
func TestConga33CEIsTheMaximumAndComesBack(t *testing.T) {
	for _, c := range []struct {
		name     string
		up, down uint64 // load on L0→S0 and on S0→L1, bits per second
	}{
		{"uplink worse", 700_000_000, 300_000_000},
		{"spine's link worse", 300_000_000, 800_000_000},
		{"idle", 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			spec := leafSpine(4, 1, 2, 1)
			spec.Links.Rate = gbit
			cfg := node.DefaultConfig()
			cfg.Scheme, cfg.Congestion.Tau, cfg.Overhead, cfg.Shim = "conga", 10*time.Millisecond, 0, 0
			top := mustBuild(t, spec, cfg)
			// Hosts 0 and 1 are behind L0, 2 and 3 behind L1, 4 behind L2, 6 behind L3.
			if c.up > 0 {
				top.stream(0, 0, 6, 1<<20, 1000, c.up)   // L0 to L3: its uplink
				top.stream(1, 4, 2, 1<<20, 1000, c.down) // L2 to L1: S0's link
			}
			const warm = 60 * engine.Millisecond
			top.Network.Engine.Run(warm)
			up, down := top.Leaves[0].Metric(warm, 0), top.Spines[0].Metric(warm, 1)
			if c.up > 0 && (up == down || up == 0 || down == 0) {
				t.Fatalf("metrics %d and %d: nothing to tell apart", up, down)
			}
			probe := &sink{pool: &top.Network.Pool, keep: true}
			top.Network.Bind(2, nil, probe)
			top.Network.Bind(3, nil, probe)
			top.Hosts[1].Send(warm, top.packet(2, 1, 3, 64), network.ControlClass)
			top.Network.Engine.Run(warm + 100*us)
			if len(probe.seen) != 1 {
				t.Fatalf("%d probes came", len(probe.seen))
			}
			f := probe.seen[0].Fabric
			if want := max(up, down); f.CE != want || f.LBTag != 0 {
				t.Errorf("CE %d by uplink %d; the links' metrics are %d and %d", f.CE, f.LBTag, up, down)
			}
			now := (warm + 100*us).Mono()
			if m, _, ok := top.Leaves[1].FromLeaf().Entry(0, 0, now); !ok || m != f.CE {
				t.Errorf("the destination leaf noted %d (%v), the packet had %d", m, ok, f.CE)
			}
			if _, _, known := top.Leaves[0].ToLeaf().Entry(1, 0, now); known {
				t.Error("the source leaf knows before anything went back")
			}
			top.Hosts[3].Send(warm+100*us, top.packet(3, 3, 1, 64), network.ControlClass)
			top.Network.Engine.Run(warm + 200*us)
			back := probe.seen[len(probe.seen)-1].Fabric
			if !back.FBValid || back.FBTag != 0 || back.FBMetric != f.CE {
				t.Errorf("feedback %+v, want metric %d for tag 0", back, f.CE)
			}
			now = (warm + 200*us).Mono()
			if m, _, known := top.Leaves[0].ToLeaf().Entry(1, 0, now); !known || m != f.CE {
				t.Errorf("the source leaf's table says %d (%v), want %d", m, known, f.CE)
			}
		})
	}
}

// figure2 is the scenario of §2.4: "Leaf L0 has 100Gbps of [...] traffic demand
// to Leaf L1", links of 80 Gb/s, and (S1, L1) of 40. It returns what L1 got and
// what the lower path, by S1, was given, in Gb/s.
func figure2(t *testing.T, scheme string, seed uint64) (goodput, lower float64) {
	const hosts, size, run = 10, 1500, 8 * engine.Millisecond
	spec := leafSpine(2, 2, hosts, 1)
	spec.Links.Link = link(80 * gbit)
	spec.Links.Queue = 100_000
	spec.Hosts.Link.Rate = 20 * gbit
	spec.Overrides = []vocab.Override{{Link: "L1-S1.0", Direction: "down", Rate: rate(40 * gbit)}}
	cfg := node.DefaultConfig()
	cfg.Scheme, cfg.Seed, cfg.Overhead, cfg.Shim = scheme, seed, 0, 0
	// Round trips are short here, and so is the run: a quarter of the paper's
	// times (§3.6), in their proportions.
	cfg.Congestion.Tau, cfg.Congestion.FlowletGap, cfg.Congestion.Ageing = 40*time.Microsecond, 125*time.Microsecond, 2500*time.Microsecond
	top := mustBuild(t, spec, cfg)
	var sinks []*sink
	for h := range network.HostID(hosts) {
		// Eight flows at a time, packet by packet. Each ends after 64 packets, 614
		// µs, and another one begins: in the time τ that it takes until a choice
		// is felt, one in fifteen chooses anew.
		s, k := top.stream(network.FlowID(h), h, h+hosts, 1<<20, size, 10*gbit)
		s.hash = func(number uint64) uint32 {
			slot := uint64(h)*8 + number%8
			return flowHash(network.FlowID(slot<<10 + (number/8+slot*37)/64))
		}
		sinks = append(sinks, k)
		// Something goes back for feedback to ride on.
		top.stream(hosts+network.FlowID(h), h+hosts, h, 1<<20, 64, 20_000_000)
	}
	const warm = run / 2
	sum := func() (got, sent uint64) {
		for _, k := range sinks {
			got += k.bytes
		}
		return got, top.Leaves[0].Uplinks()[1].Stats().Bytes[network.DataClass]
	}
	top.Network.Engine.Run(warm)
	got0, sent0 := sum()
	top.Network.Engine.Run(run)
	got, sent := sum()
	top.checkBalance(t)
	rate := func(bytes uint64) float64 { return float64(bytes) * 8 / (run - warm).Seconds() / gbit }
	return rate(got - got0), rate(sent - sent0)
}

// "Static ECMP splits the flows equally, achieving a throughput of 90Gbps because
// the flows on the lower path are bottlenecked at the 40Gbps link (S1, L1). [...]
// This example illustrates a fundamental limitation of any local scheme [...] that
// strictly enforces an equal traffic split without regard for downstream
// congestion." And CONGA carries the 100 (§2.4, Figure 2).
//
// Here sources do not slow down. So the local scheme does not do worse than ECMP,
// which is TCP's doing (80 Gb/s, Figure 2b), but does not do better either: it
// holds the split that the quotation says.
func TestConga24Figure2(t *testing.T) {
	for seed := range uint64(3) {
		ecmp, ecmpLower := figure2(t, "ecmp", seed)
		local, localLower := figure2(t, "local", seed)
		conga, congaLower := figure2(t, "conga", seed)
		t.Logf("seed %d: goodput, and share of the lower path, Gb/s: ecmp %.1f, %.1f; local %.1f, %.1f; conga %.1f, %.1f",
			seed, ecmp, ecmpLower, local, localLower, conga, congaLower)
		// Eighty flows at a time fall as they do: ±5 Gb/s is one standard deviation
		// at any moment.
		if ecmp < 84 || ecmp > 96 || ecmpLower < 42 || ecmpLower > 58 {
			t.Errorf("seed %d: ecmp %.1f Gb/s, %.1f by the lower path; want 90 and 50", seed, ecmp, ecmpLower)
		}
		if local < 87 || local > 93 || localLower < 47 || localLower > 53 {
			t.Errorf("seed %d: local %.1f Gb/s, %.1f by the lower path; want 90 and 50", seed, local, localLower)
		}
		if conga < 97.5 || congaLower > 42 || conga < ecmp+2 || conga < local+5 {
			t.Errorf("seed %d: conga %.1f Gb/s, %.1f by the lower path; want 100 and at most 40", seed, conga, congaLower)
		}
	}
}

// "If there are multiple valid next hops to the destination (as in Figure 6), the
// spine switches pick one using standard ECMP hashing." (§3.3, footnote 3) Ours
// take the selector of capable packets, which is four bits of the flow's hash.
// So the choices of two tiers must be independent of each other: no flow's
// uplink says what happens behind it.
func TestTiersDoNotPolarise(t *testing.T) {
	for _, plain := range []bool{false, true} {
		spec := wires()
		spec.Kind, spec.K = FatTree, 8
		top := mustBuild(t, spec, node.DefaultConfig())
		if plain { // whoever says nothing for a second
			top.silence(engine.Second)
		}
		far := network.HostID(len(top.Hosts) - 1)
		k := &sink{pool: &top.Network.Pool}
		const flows = 4096
		for f := range network.FlowID(flows) {
			top.Network.Bind(f, nil, k)
			top.Hosts[0].Send(top.Network.Engine.Now(), top.packet(f, 0, far, 100), network.DataClass)
		}
		top.settle(t)
		if pinned := top.Spines[0].Stats().Pinned > 0; pinned == plain {
			t.Errorf("plain %v: spines took a selector: %v", plain, pinned)
		}
		// 4 uplinks, and 4 links of each of their spines: 256 flows each.
		for u, up := range top.Leaves[0].Uplinks() {
			for _, p := range top.Spines[u].Ports()[4:] {
				if n := p.Stats().Packets[network.DataClass]; n < 190 || n > 330 {
					t.Errorf("plain %v: %d of %d flows took %s and %s", plain, n, flows, up.Name, p.Name)
				}
			}
		}
	}
}

// A flow's path under ECMP is the same whenever it is asked for, and by every
// run with that seed.
func TestECMPKeepsFlowsOnTheirPath(t *testing.T) {
	top := mustBuild(t, leafSpine(2, 8, 1, 1), node.DefaultConfig())
	k := &sink{pool: &top.Network.Pool, keep: true}
	for range 3 {
		for f := range network.FlowID(100) {
			top.Network.Bind(f, nil, k)
			top.Hosts[0].Send(top.Network.Engine.Now(), top.packet(f, 0, 1, 100), network.DataClass)
		}
		top.settle(t)
	}
	at, used := map[network.FlowID]uint8{}, map[uint8]bool{}
	for _, p := range k.seen {
		if was, ok := at[p.Flow]; ok && was != p.Fabric.LBTag {
			t.Errorf("flow %d went by uplink %d and %d", p.Flow, was, p.Fabric.LBTag)
		}
		at[p.Flow], used[p.Fabric.LBTag] = p.Fabric.LBTag, true
	}
	if len(k.seen) != 300 || len(used) != 8 {
		t.Errorf("%d packets by %d uplinks", len(k.seen), len(used))
	}
}
