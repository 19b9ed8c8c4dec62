package config

import (
	"cmp"
	"net/netip"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/overlay"
)

func (c *Common) dataplane() dataplane.Config {
	return dataplane.Config{
		Name:        c.Name,
		Congestion:  c.Congestion.CONGA(),
		VXLANPort:   c.VXLANPort,
		Workers:     c.Workers,
		Polling:     dataplane.Polling(c.Polling),
		SpinFor:     c.SpinFor,
		Cores:       c.Cores,
		RingSize:    c.RingSize,
		ReversePath: dataplane.ReversePath(c.ReversePath),
		Frames:      c.Frames,
		XDPMode:     dataplane.XDPMode(c.XDPMode),
		CopyMode:    dataplane.CopyMode(c.CopyMode),
		Seed:        c.Seed,
		HoldTime:    c.HoldTime,
		Drain:       c.Drain,
	}
}

// spareRoom is how many ports may come while a node runs, if its file does not say, and
// foundRoom how many if routes say which ports there are.
const spareRoom, foundRoom = 4, 16

// room returns how many ports there is room for in a node that starts with so many.
func (c *Common) room(ports int, auto bool) int {
	spare := spareRoom
	if auto {
		spare = foundRoom
	}
	return cmp.Or(c.MaxPorts, min(ports+spare, dataplane.MaxPorts))
}

// FoundUplink returns an uplink that the file does not list.
func FoundUplink(name string) dataplane.PortConfig { return found(name, dataplane.Uplink) }

// FoundSpinePort returns a spine's port that the file does not list.
func FoundSpinePort(name string) dataplane.PortConfig { return found(name, dataplane.SpinePort) }

func found(name string, kind dataplane.PortKind) dataplane.PortConfig {
	var e Egress
	e.fill()
	return dataplane.PortConfig{Name: name, Kind: kind, Egress: e.dataplane(), Optional: true}
}

func (e *Egress) dataplane() dataplane.EgressConfig {
	return dataplane.EgressConfig{
		QueueBytes: uint32(e.Queue),
		Rate:       uint64(e.Shaper.Rate),
		Burst:      uint32(e.Shaper.Burst),
		Delay:      e.Delay,
		Kmin:       uint32(e.ECN.Kmin),
		Kmax:       uint32(e.ECN.Kmax),
		Pmax:       e.ECN.Pmax,
		LinkRate:   uint64(e.LinkRate),
	}
}

// ToDataplane converts a validated leaf. Its ports are the uplinks in the
// order of the file, so that an uplink's index is its PortID, then the access
// ports.
func (l *Leaf) ToDataplane() dataplane.Config {
	c := l.Common.dataplane()
	c.Role, c.VTEP = dataplane.Leaf, l.VTEP
	c.Scheme, c.Options, c.Classes = l.Schemes()
	c.Sections = l.Sections.ByName()
	c.Auto = l.Sections.Auto()
	c.Auto.FlowletGap = l.Congestion.Auto()
	c.FDBSize, c.FDBAge = l.FDB.Size, l.FDB.Age
	c.KernelOverlay, c.FastPath = l.Overlay == OverlayKernel, dataplane.FastMode(l.FastPath)
	for i := range l.Uplinks {
		u := &l.Uplinks[i]
		c.Ports = append(c.Ports, dataplane.PortConfig{Name: u.Interface, Kind: dataplane.Uplink, Egress: u.Egress.dataplane(), Optional: !u.Required})
	}
	for i := range l.Access {
		a := &l.Access[i]
		c.Ports = append(c.Ports, dataplane.PortConfig{
			Name: a.Interface, Kind: dataplane.Access, Egress: a.Egress.dataplane(), FailOpen: a.Fail == FailOpen, Optional: !a.Required,
			FDBLimit: a.FDBLimit,
		})
	}
	c.Room = l.Common.room(len(c.Ports), l.Uplinks.Auto())
	return c
}

// Networks returns those that an access port is in; none if there is no such port.
func (l *Leaf) Networks(port string) dataplane.Networks {
	for i := range l.Access {
		if a := &l.Access[i]; a.Interface == port {
			return dataplane.Networks{Untagged: overlay.VNI(a.VNI), Tagged: len(a.VLANs) > 0, Transparent: a.Transparent}
		}
	}
	return dataplane.Networks{}
}

// ToDataplane converts a validated spine; its ports are in the file's order.
func (s *Spine) ToDataplane() dataplane.Config {
	c := s.Common.dataplane()
	c.Role, c.FastPath = dataplane.Spine, dataplane.FastMode(s.FastPath)
	c.Scheme, c.Options, c.Sections = s.Scheme, balance.Options{Keys: s.Params}, s.Sections.ByName()
	if !s.VTEPs.Any() {
		c.Remotes = make([]netip.Prefix, len(s.VTEPs))
		for i, p := range s.VTEPs {
			c.Remotes[i] = p.Prefix
		}
	}
	for i := range s.Ports {
		p := &s.Ports[i]
		c.Ports = append(c.Ports, dataplane.PortConfig{Name: p.Interface, Kind: dataplane.SpinePort, Egress: p.Egress.dataplane(), Optional: !p.Required})
	}
	c.Room = s.Common.room(len(c.Ports), s.Ports.Auto())
	return c
}

// Schemes converts the default scheme and the classes of a validated leaf, as
// [dataplane.Node.SetSchemes] takes them.
func (l *Leaf) Schemes() (scheme string, o balance.Options, classes []dataplane.Class) {
	for i := range l.Classes {
		c := &l.Classes[i]
		classes = append(classes, dataplane.Class{
			VNI: overlay.VNI(c.Match.VNI), Protocol: uint8(c.Match.Protocol), Port: c.Match.Port, DSCP: uint8(c.Match.DSCP),
			Scheme: c.Scheme, Options: l.options(&c.Balancing),
		})
	}
	return l.Scheme, l.options(&l.Balancing), classes
}

func (l *Leaf) options(b *vocab.Balancing) balance.Options {
	o := balance.Options{Keys: b.Params, Shadow: b.Shadow}
	if s := balance.Find(b.Scheme).Section; s != nil {
		o.Section = l.Sections.Get(s.Name).Params
	}
	return o
}
