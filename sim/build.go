package sim

import (
	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/leaf"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
	"github.com/loomfabric/loom/sim/node"
	"github.com/loomfabric/loom/sim/topo"
	"github.com/loomfabric/loom/sim/traffic"
	"github.com/loomfabric/loom/sim/udp"
)

// build makes the fabric.
func (r *run) build() error {
	spec, err := r.shape() // a file decides more than the shape
	if err != nil {
		return err
	}
	cfg := node.DefaultConfig()
	cfg.Scheme = r.spec.Scheme
	cfg.Options.Keys = r.spec.Keys.Params
	cfg.Congestion, cfg.Sections = r.spec.Congestion.CONGA(), r.spec.Sections.ByName()
	cfg.Seed = r.spec.Seed
	cfg.Overhead = uint16(*r.spec.Topology.Overhead)
	if cfg.Shim = 0; cfg.Overhead > 0 {
		cfg.Shim = overlay.ShimLen
	}
	cfg.Auto, cfg.Rows = r.spec.auto(), r.spec.TableRefresh
	if balance.Find(r.spec.Scheme).EveryTier {
		cfg.Spine, cfg.SpineOptions.Keys = cfg.Scheme, cfg.Options.Keys
	}
	if balance.Find(r.spec.Scheme).Exact {
		cfg.Exact = r.exact
	}
	for _, c := range r.spec.Classes {
		cfg.Classes = append(cfg.Classes, leaf.ClassConfig{Scheme: c.Scheme})
		cfg.ClassOf = r.classOf
	}
	cfg.Flood = r.spec.Topology.Flood
	r.uneven = len(spec.Overrides) > 0 || len(spec.Faults) > 0 || spec.Down > 0
	spec.Split = r.splits()
	r.topo, err = topo.Build(r.net, spec, cfg)
	return err
}

// auto says which times leaves derive from round trips.
func (s *Spec) auto() leaf.Auto {
	auto := s.Sections.Auto()
	auto.FlowletGap = s.Congestion.Auto()
	return auto
}

// shape translates the topology.
func (r *run) shape() (topo.Spec, error) {
	t := &r.spec.Topology
	if t.Kind == "file" {
		return r.fromFile()
	}
	spec := topo.Spec{
		Kind: topo.Kind(t.Kind), Leaves: t.Leaves, Spines: t.Spines, Cores: t.Cores, K: t.K,
		Links: t.Links, Hosts: t.Hosts, NIC: t.Hosts.Link, Overrides: t.Overrides, Faults: r.spec.Faults,
		Plain: t.Plain, Down: t.Down, DownSeed: r.spec.Seed,
	}
	spec.NIC.Queue, spec.NIC.ECN = 0, vocab.ECN{} // what a host has to say waits in the host
	if t.Buffer > 0 {
		spec.Buffer = &network.BufferConfig{Total: uint64(t.Buffer), Alpha: t.Alpha}
		if t.PFC {
			spec.Buffer.PFC = &network.PFC{Alpha: t.PFCAlpha, MTU: max(r.largest(), leastMTU)}
		}
	}
	return spec, nil
}

// leastMTU is for what packets headroom is meant in any case, as on switches that
// are not told: package network's default.
const leastMTU = 1600

// largest returns the size of the largest packet on a wire, bytes: headroom is
// for packets of that size.
func (r *run) largest() uint32 {
	t := &r.spec.Transport
	payload := t.MTU
	if t.Type == "rdma" {
		payload = int(t.Payload) + 20 + 8 + 12 + 4 // IP, UDP, BTH, ICRC
	}
	datagrams := 0
	for i := range r.spec.Workloads {
		if w := &r.spec.Workloads[i]; w.Type == vocab.UDP {
			datagrams = max(datagrams, int(w.Size)+udp.Header)
		}
	}
	return uint32(max(overlay.EthernetLen+payload, datagrams) + *r.spec.Topology.Overhead + overlay.ShimLen)
}

// capacities is what loads are shares of. A link that is down from the start
// counts for what 100 % is, as in CONGA §5.2.2.
func (r *run) capacities() *traffic.Fabric {
	f := &traffic.Fabric{Uplinks: make([]uint64, len(r.topo.Leaves)), Nominal: make([]uint64, len(r.topo.Leaves))}
	for i, l := range r.topo.Leaves {
		f.Uplinks[i] = r.topo.UplinkRate(i)
		for _, p := range l.Uplinks() {
			f.Nominal[i] += p.Rate
		}
	}
	for i, h := range r.topo.Hosts {
		f.Rack = append(f.Rack, int(r.topo.LeafOf[i]))
		f.HostRate = append(f.HostRate, min(h.Port.Rate, h.Port.Peer.Rate))
	}
	return f
}

// bdp is what a host may have in flight to fill the longest way, bytes: its rate
// times the idle round trip of a full packet (IRN §3.2).
func (r *run) bdp(packet uint32) uint64 {
	var rtt engine.Time
	rate := min(r.topo.Hosts[0].Port.Rate, r.topo.Hosts[0].Port.Peer.Rate)
	first := network.HostID(0)
	for h := range r.topo.Hosts {
		if h > 0 && r.topo.LeafOf[h] != r.topo.LeafOf[h-1] {
			there := r.topo.IdleOneWay(first, network.HostID(h), packet)
			rtt = max(rtt, there+r.topo.IdleOneWay(network.HostID(h), first, 64))
		}
	}
	if rtt == 0 {
		rtt = 2 * r.topo.IdleOneWay(0, network.HostID(len(r.topo.Hosts)-1), packet)
	}
	return max(uint64(rtt.Seconds()*float64(rate)/8), uint64(packet))
}
