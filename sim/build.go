package sim

import (
	"fmt"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/fabric"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
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
	cfg.Congestion = r.spec.Congestion.Params()
	cfg.Seed = r.spec.Seed
	cfg.Overhead = uint16(*r.spec.Topology.Overhead)
	if cfg.Shim = 0; cfg.Overhead > 0 {
		cfg.Shim = overlay.ShimLen
	}
	if err := r.conweave(&cfg); err != nil {
		return err
	}
	r.balancing(&cfg.Options)
	if r.spec.Scheme == "drill" {
		// DRILL is a choice of every switch; the data plane's spines have it
		// from their leaf's selector.
		cfg.Spine = "drill"
	}
	r.uneven = len(spec.Overrides) > 0 || len(spec.Faults) > 0
	r.topo, err = topo.Build(r.net, spec, cfg)
	return err
}

// balancing is what a fabric.yaml tells its own scheme.
func (r *run) balancing(o *balance.Options) {
	if r.file == nil || r.file.Scheme != r.spec.Scheme {
		return
	}
	if r.file.Weights != nil {
		o.Keys = &balance.StaticKeys{Weights: r.file.Weights}
	}
	if d := r.file.DRILL; d != nil {
		k := balance.DRILL{Samples: 2, Memory: 1}
		if d.Samples != nil {
			k.Samples = *d.Samples
		}
		if d.Memory != nil {
			k.Memory = *d.Memory
		}
		o.Keys = &balance.DRILLKeys{DRILL: k}
	}
}

// shape translates the topology.
func (r *run) shape() (topo.Spec, error) {
	t := &r.spec.Topology
	if t.Kind == "file" {
		return r.fromFile()
	}
	link := func(rate fabric.Rate, delay fabric.Duration) network.PortConfig {
		return network.PortConfig{Rate: uint64(rate), Delay: engine.Of(delay.D()), Limit: uint64(t.PortBuffer), ECN: topo.FromECN(t.ECN)}
	}
	spec := topo.Spec{
		Kind: topo.Kind(t.Kind), Leaves: t.Leaves, Spines: t.Spines, Cores: t.Cores, K: t.K,
		HostsPerLeaf: t.HostsPerLeaf, Parallel: t.Parallel,
		NIC: link(t.HostRate, t.HostDelay), Access: link(t.HostRate, t.HostDelay), Fabric: link(t.Rate, t.Delay),
		Faults: topo.FromFaults(r.spec.Faults),
	}
	if t.Buffer > 0 {
		spec.Buffer = &network.BufferConfig{Total: uint64(t.Buffer), Alpha: t.Alpha}
		if t.PFC {
			spec.Buffer.PFC = &network.PFC{MTU: max(r.largest(), leastMTU)}
		}
	}
	spec.NIC.Limit = 0 // what a host has to say waits in the host
	spec.NIC.ECN = network.ECN{}
	for i := range t.Overrides {
		spec.Overrides = append(spec.Overrides, topo.FromOverride(&t.Overrides[i]))
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
		if w := &r.spec.Workloads[i]; w.Type == UDP {
			datagrams = max(datagrams, int(w.Size)+udp.Header)
		}
	}
	return uint32(max(overlay.EthernetLen+payload, datagrams) + *r.spec.Topology.Overhead + overlay.ShimLen)
}

// conweave sets what both sides of ConWeave are told. Where PFC makes loss rare
// and pauses long, T_resume waits longer (ConWeave, Appendix A).
func (r *run) conweave(cfg *node.Config) error {
	c, source, dest := &r.spec.ConWeave, balance.DatacenterConWeave(), reorder.Datacenter()
	if r.spec.Topology.PFC {
		dest.ResumeExtra, dest.ResumeDefault = 64*time.Microsecond, 600*time.Microsecond
	}
	for _, d := range []struct {
		to   *time.Duration
		from fabric.Duration
	}{
		{&source.Reply, c.Reply}, {&source.PathBusy, c.PathBusy}, {&source.Inactive, c.Inactive},
		{&dest.ResumeExtra, c.ResumeExtra}, {&dest.ResumeDefault, c.ResumeDefault}, {&dest.Inactive, c.Inactive},
	} {
		if d.from > 0 {
			*d.to = d.from.D()
		}
	}
	dest.NotifyInterval = source.PathBusy / 2
	dest.MaxHold = max(dest.MaxHold, 2*(dest.ResumeDefault+dest.ResumeExtra))
	if c.Queues > 0 {
		dest.PortQueues = c.Queues
	}
	if c.Admission {
		dest.Admission = 90
	}
	if err := source.Validate(); err != nil {
		return fmt.Errorf("conweave: %w", err)
	}
	if err := dest.Validate(); err != nil {
		return fmt.Errorf("conweave: %w", err)
	}
	cfg.Sections = map[string]balance.Params{"conweave": &balance.ConWeaveParams{Source: source, Destination: dest}}
	return nil
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
