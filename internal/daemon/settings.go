package daemon

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/loomfabric/loom/config"
	"github.com/loomfabric/loom/control"
	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/overlay"
)

// settings are a configuration, read and completed from the machine.
type settings struct {
	dataplane dataplane.Config
	source    control.Source // nil on a spine
	common    *config.Common
	links     map[string]net.Interface
}

// load reads the program's kind of file.
func (p *program) load(file string) (*settings, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list network interfaces: %w", err)
	}
	s := &settings{links: make(map[string]net.Interface, len(all))}
	names := make([]string, len(all))
	for i, l := range all {
		names[i] = l.Name
		s.links[l.Name] = l
	}
	if p.role == dataplane.Leaf {
		l, err := config.LoadLeaf(file, names)
		if err != nil {
			return nil, err
		}
		s.common, s.dataplane, s.source = &l.Common, l.ToDataplane(), staticOverlay(l)
	} else {
		l, err := config.LoadSpine(file, names)
		if err != nil {
			return nil, err
		}
		s.common, s.dataplane = &l.Common, l.ToDataplane()
	}
	return s, s.complete()
}

// complete fills in what the file leaves to the machine.
func (s *settings) complete() error {
	c := &s.dataplane
	if c.Name == "" {
		name, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("find the host name: %w (or set `name`)", err)
		}
		c.Name = name
	}
	for c.Seed == 0 {
		c.Seed = rand.Uint64()
	}
	for i := range c.Ports {
		p := &c.Ports[i]
		c.MaxMTU = max(c.MaxMTU, s.links[p.Name].MTU)
		if p.Egress.LinkRate == 0 && p.Egress.Rate == 0 {
			p.Egress.LinkRate = kernelRate(p.Name)
		}
	}
	return nil
}

// kernelRate returns the speed that the driver reports, bits per second; 0 when
// it reports none.
func kernelRate(name string) uint64 {
	text, err := os.ReadFile("/sys/class/net/" + name + "/speed")
	if err != nil {
		return 0 // EINVAL while the link is down
	}
	mbit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil || mbit <= 0 {
		return 0
	}
	return uint64(mbit) * 1e6
}

// staticOverlay is the configuration's part of what a leaf must know.
func staticOverlay(l *config.Leaf) control.Source {
	o := control.Overlay{Peers: l.Peers}
	for i := range l.VNIs {
		v := &l.VNIs[i]
		o.VNIs = append(o.VNIs, control.VNI{
			VNI: overlay.VNI(v.VNI), Flood: v.Flood,
			StormRate: v.Storm.Rate, StormBurst: v.Storm.Burst, FDBLimit: v.FDBLimit,
		})
		for _, s := range v.Static {
			o.Static = append(o.Static, control.StaticMAC{
				VNI: overlay.VNI(v.VNI), MAC: overlay.MAC(s.MAC), VTEP: s.VTEP.Addr, Interface: s.Interface, VLAN: s.VLAN,
			})
		}
	}
	return control.Static(o)
}
