package topo

import (
	"github.com/loomfabric/loom/fabric"
	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

// Unshaped is what hosts of a fabric.yaml send at: the lab does not shape them,
// and this is about what a veth carries.
const Unshaped = 10_000_000_000

// FromFile returns the fabric that a checked fabric.yaml describes: switches,
// links, hosts, overrides and faults. What it says of schemes, workloads, VNIs
// and TCP is not topology. A rate that it leaves out, which the lab takes for
// unlimited, is Unshaped.
func FromFile(f *fabric.File) Spec {
	s := Spec{
		Kind: LeafSpine, Leaves: f.Leaves, Spines: f.Spines, HostsPerLeaf: f.Hosts.PerLeaf, Parallel: f.Links.Parallel,
		Fabric: FromParams(&f.Links.LinkParams), Access: FromParams(&f.Hosts.Link),
		NIC: network.PortConfig{Rate: Unshaped},
	}
	for _, h := range f.Expand().Hosts[f.Leaves*f.Hosts.PerLeaf:] {
		s.Hosts = append(s.Hosts, Host{h.Name, h.Leaf})
	}
	for i := range f.Overrides {
		s.Overrides = append(s.Overrides, FromOverride(&f.Overrides[i]))
	}
	s.Faults = FromFaults(f.Faults)
	return s
}

// FromParams returns a direction of a link as fabric.yaml describes it.
func FromParams(p *fabric.LinkParams) network.PortConfig {
	c := network.PortConfig{Rate: uint64(p.Rate), Delay: engine.Of(p.Delay.D()), Limit: uint64(p.Buffer), ECN: FromECN(p.ECN)}
	if c.Rate == 0 {
		c.Rate = Unshaped
	}
	return c
}

// FromECN returns marking as fabric.yaml describes it; nil: no marking.
func FromECN(e *fabric.ECN) network.ECN {
	if e == nil {
		return network.ECN{}
	}
	return network.ECN{Kmin: uint64(e.Kmin), Kmax: uint64(e.Kmax), Pmax: e.Pmax}
}

// FromOverride returns an override as fabric.yaml describes it.
func FromOverride(o *fabric.Override) Override {
	out := Override{Link: o.Link, Up: o.Direction == "up", Down: o.Direction == "down"}
	if o.Rate != nil {
		out.Rate = uint64(*o.Rate)
	}
	if o.Delay != nil {
		d := engine.Of(o.Delay.D())
		out.Delay = &d
	}
	if o.Buffer != nil {
		b := uint64(*o.Buffer)
		out.Limit = &b
	}
	if o.ECN != nil {
		e := FromECN(o.ECN)
		out.ECN = &e
	}
	return out
}

// FromFaults returns faults as fabric.yaml describes them.
func FromFaults(faults []fabric.Fault) []Fault {
	out := make([]Fault, len(faults))
	for i, f := range faults {
		out[i] = Fault{At: engine.Of(f.At.D()), Link: f.Fail}
		if f.Restore != "" {
			out[i].Link, out[i].Up = f.Restore, true
		}
	}
	return out
}
