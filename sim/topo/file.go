package topo

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/loomfabric/loom/config/fabric"
	"github.com/loomfabric/loom/config/vocab"
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
func FromFile(f *fabric.File) (Spec, error) {
	s := Spec{
		Kind: LeafSpine, Leaves: f.Leaves, Spines: f.Spines, HostsPerLeaf: f.Hosts.PerLeaf, Parallel: f.Links.Parallel,
		Fabric: FromLink(&f.Links.Link), Access: FromLink(&f.Hosts.Link),
		NIC:    network.PortConfig{Rate: Unshaped},
		Faults: FromFaults(f.Faults),
	}
	for _, c := range []*network.PortConfig{&s.Fabric, &s.Access} {
		if c.Rate == 0 {
			c.Rate = Unshaped
		}
	}
	for i := range f.Overrides {
		s.Overrides = append(s.Overrides, FromOverride(&f.Overrides[i]))
	}
	return s, s.AddHosts(f.Hosts.List)
}

// AddHosts adds hosts that stand behind leaves by name. It reports a leaf that has
// no such name.
func (s *Spec) AddHosts(hosts []fabric.NamedHost) error {
	for _, h := range hosts {
		number, ok := strings.CutPrefix(h.Leaf, "L")
		leaf, err := strconv.Atoi(number)
		if !ok || err != nil {
			return fmt.Errorf("host %q is behind %q: leaves are called L0, L1 and so on", h.Name, h.Leaf)
		}
		s.Hosts = append(s.Hosts, Host{h.Name, leaf})
	}
	return nil
}

// FromLink returns a direction of a link as files describe it.
func FromLink(l *vocab.Link) network.PortConfig {
	return network.PortConfig{Rate: uint64(l.Rate), Delay: engine.Of(l.Delay), Limit: uint64(l.Queue), ECN: FromECN(l.ECN)}
}

// FromECN returns marking as files describe it.
func FromECN(e vocab.ECN) network.ECN {
	return network.ECN{Kmin: uint64(e.Kmin), Kmax: uint64(e.Kmax), Pmax: e.Pmax}
}

// FromOverride returns an override as files describe it.
func FromOverride(o *vocab.Override) Override {
	out := Override{Link: o.Link, Up: o.Direction == "up", Down: o.Direction == "down"}
	if o.Rate != nil {
		out.Rate = uint64(*o.Rate)
	}
	if o.Delay != nil {
		d := engine.Of(*o.Delay)
		out.Delay = &d
	}
	if o.Queue != nil {
		b := uint64(*o.Queue)
		out.Limit = &b
	}
	if o.ECN != nil {
		e := FromECN(*o.ECN)
		out.ECN = &e
	}
	return out
}

// FromFaults returns faults as files describe them.
func FromFaults(faults []vocab.Fault) []Fault {
	out := make([]Fault, len(faults))
	for i, f := range faults {
		out[i] = Fault{At: engine.Of(f.At), Link: f.Fail}
		if f.Restore != "" {
			out[i].Link, out[i].Up = f.Restore, true
		}
	}
	return out
}
