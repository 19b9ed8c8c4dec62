package fabric

import (
	"github.com/loomfabric/loom/internal/units"
	"slices"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/reorder"
)

// ConWeave is what schemes conweave and conweave-conga are told, and how the
// packets that they reroute are put in order, on every leaf. The keys are those
// of leafd's own section; what is left out is the profile's.
type ConWeave struct {
	Profile        string   `yaml:"profile"` // "lab", "datacenter" or "auto"; default: that of congestion
	Reply          Duration `yaml:"reply"`
	PathBusy       Duration `yaml:"path_busy"`
	Inactive       Duration `yaml:"inactive"`
	Samples        int      `yaml:"samples"`
	Selectors      int      `yaml:"selectors"`
	Connections    int      `yaml:"connections"`
	ResumeExtra    Duration `yaml:"resume_extra"`
	ResumeDefault  Duration `yaml:"resume_default"`
	MaxHold        Duration `yaml:"max_hold"`
	NotifyInterval Duration `yaml:"notify_interval"`
	Admission      int      `yaml:"admission"`
	Flows          int      `yaml:"flows"`
	Queues         int      `yaml:"queues"`
	PortQueues     int      `yaml:"port_queues"`
	Packets        int      `yaml:"packets"`
	PortPackets    int      `yaml:"port_packets"`
	Bytes          Bytes    `yaml:"bytes"`
	PortBytes      Bytes    `yaml:"port_bytes"`
}

// Auto reports whether leaves derive times from round trips.
func (c *ConWeave) Auto() bool { return c.Profile == "auto" }

// Params returns the parameters of both sides in full; with profile auto those
// that leaves start with. Leaves and Ports of the second are the node's to fill.
func (c *ConWeave) Params() (source balance.ConWeaveSource, destination reorder.Params) {
	s, d := balance.LabConWeave(), reorder.Lab()
	if c.Profile == "datacenter" {
		s, d = balance.DatacenterConWeave(), reorder.Datacenter()
	}
	for _, t := range []struct {
		to    *time.Duration
		value Duration
	}{
		{&s.Reply, c.Reply}, {&s.PathBusy, c.PathBusy}, {&s.Inactive, c.Inactive},
		{&d.ResumeExtra, c.ResumeExtra}, {&d.ResumeDefault, c.ResumeDefault}, {&d.MaxHold, c.MaxHold},
		{&d.NotifyInterval, c.NotifyInterval},
	} {
		if t.value != 0 {
			*t.to = t.value.D()
		}
	}
	d.Inactive = s.Inactive
	for _, n := range []struct {
		to    *int
		value int
	}{
		{&s.Samples, c.Samples}, {&s.Selectors, c.Selectors}, {&s.Connections, c.Connections}, {&d.Flows, c.Flows},
		{&d.Queues, c.Queues}, {&d.PortQueues, c.PortQueues}, {&d.Packets, c.Packets}, {&d.PortPackets, c.PortPackets},
	} {
		if n.value != 0 {
			*n.to = n.value
		}
	}
	if c.Bytes != 0 {
		d.Bytes = units.Size(c.Bytes)
	}
	if c.PortBytes != 0 {
		d.PortBytes = units.Size(c.PortBytes)
	}
	d.Admission = c.Admission
	return s, d
}

func (v *validator) conweave() {
	c := &v.file.ConWeave
	if !slices.Contains([]string{"lab", "datacenter", "auto"}, c.Profile) {
		v.errorf("conweave.profile", "%q is unknown: write lab, datacenter or auto", c.Profile)
		return
	}
	s, d := c.Params()
	if err := s.Validate(); err != nil {
		v.errorf("conweave", "%v", err)
		return
	}
	if err := d.Validate(); err != nil {
		v.errorf("conweave", "%v", err)
	}
}
