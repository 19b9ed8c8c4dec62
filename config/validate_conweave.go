package config

import (
	"fmt"
	"slices"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/leaf"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// conweaveTime is a key whose value is a time, and where it belongs.
type conweaveTime struct {
	key   string
	given *Duration
	to    *time.Duration
}

// times pairs the times of c with those of the parameters. Inactive belongs to
// both sides.
func (c *ConWeave) times(s *balance.ConWeaveSource, d *reorder.Params) []conweaveTime {
	return []conweaveTime{
		{"reply", &c.Reply, &s.Reply}, {"path_busy", &c.PathBusy, &s.PathBusy}, {"inactive", &c.Inactive, &s.Inactive},
		{"resume_extra", &c.ResumeExtra, &d.ResumeExtra}, {"resume_default", &c.ResumeDefault, &d.ResumeDefault},
		{"max_hold", &c.MaxHold, &d.MaxHold}, {"notify_interval", &c.NotifyInterval, &d.NotifyInterval},
	}
}

// conweaveNumber is a key whose value is a number, with its bounds.
type conweaveNumber struct {
	key   string
	given *int
	to    *int
	max   int
	power bool // only powers of two
}

func (c *ConWeave) numbers(s *balance.ConWeaveSource, d *reorder.Params) []conweaveNumber {
	return []conweaveNumber{
		{"samples", &c.Samples, &s.Samples, balance.MaxPaths, false}, {"selectors", &c.Selectors, &s.Selectors, balance.MaxPaths, false},
		{"connections", &c.Connections, &s.Connections, 1 << 24, true}, {"flows", &c.Flows, &d.Flows, 1 << 24, true},
		{"queues", &c.Queues, &d.Queues, reorder.MaxQueues, false}, {"port_queues", &c.PortQueues, &d.PortQueues, reorder.MaxQueues, false},
		{"packets", &c.Packets, &d.Packets, 1 << 24, false}, {"port_packets", &c.PortPackets, &d.PortPackets, 1 << 24, false},
	}
}

// params are the parameters of both sides, with the profile's for those left out.
func (c *ConWeave) params(conga Profile) (s balance.ConWeaveSource, d reorder.Params) {
	s, d = balance.DatacenterConWeave(), reorder.Datacenter()
	base := c.profile(conga)
	if base == "auto" {
		base = profiles[conga]
	}
	if base == "lab" {
		s, d = balance.LabConWeave(), reorder.Lab()
	}
	for _, t := range c.times(&s, &d) {
		if *t.given != 0 {
			*t.to = time.Duration(*t.given)
		}
	}
	d.Inactive = s.Inactive
	c.begin(&s, &d)
	for _, n := range c.numbers(&s, &d) {
		if *n.given != 0 {
			*n.to = *n.given
		}
	}
	if c.Bytes != 0 {
		d.Bytes = c.Bytes
	}
	if c.PortBytes != 0 {
		d.PortBytes = c.PortBytes
	}
	d.Admission = c.Admission
	return s, d
}

// begin sets the times that are to be derived to what they are until round trips
// are known: the lab's, as far as they fit what is given. Times that are too long
// balance less; those that are too short let packets be overtaken.
func (c *ConWeave) begin(s *balance.ConWeaveSource, d *reorder.Params) {
	auto, source, side := c.auto(), balance.LabConWeave(), reorder.Lab()
	if auto.Inactive {
		s.Inactive = max(source.Inactive, min(s.Reply, overlay.MaxInactive))
		d.Inactive = overlay.MaxInactive // whatever the other leaves derive
	}
	if auto.Reply {
		s.Reply = min(source.Reply, s.Inactive)
	}
	if auto.MaxHold {
		d.MaxHold = max(side.MaxHold, d.ResumeExtra, d.ResumeDefault)
	}
	if auto.ResumeExtra {
		d.ResumeExtra = min(side.ResumeExtra, d.MaxHold)
	}
	if auto.ResumeDefault {
		d.ResumeDefault = min(side.ResumeDefault, d.MaxHold)
	}
}

// section is the section of schemes that both sides make.
func (c *ConWeave) section(conga Profile) *balance.ConWeaveParams {
	s, d := c.params(conga)
	p := &balance.ConWeaveParams{Source: s, Destination: d}
	if c.Profile == AutoProfile {
		a := c.auto()
		p.Auto = balance.AutoTimes{Reply: a.Reply, Inactive: a.Inactive, ResumeExtra: a.ResumeExtra, ResumeDefault: a.ResumeDefault, MaxHold: a.MaxHold}
	}
	return p
}

func (c *ConWeave) profile(conga Profile) string {
	if c.Profile == 0 {
		return profiles[conga]
	}
	return c.Profile.String()
}

// auto says which times are to be derived from round trips.
func (c *ConWeave) auto() leaf.Auto {
	if c.Profile != AutoProfile {
		return leaf.Auto{}
	}
	return leaf.Auto{
		Reply: c.Reply == 0, Inactive: c.Inactive == 0,
		ResumeExtra: c.ResumeExtra == 0, ResumeDefault: c.ResumeDefault == 0, MaxHold: c.MaxHold == 0,
	}
}

// derived are the keys of which auto speaks.
var derived = []string{"reply", "inactive", "resume_extra", "resume_default", "max_hold"}

// fill writes down what params decided, but for what only starts with that.
func (c *ConWeave) fill(conga Profile) {
	s, d := c.params(conga)
	c.Profile = ConWeaveProfile(slices.Index(conweaveProfiles, c.profile(conga)))
	for _, t := range c.times(&s, &d) {
		if c.Profile != AutoProfile || !slices.Contains(derived, t.key) {
			*t.given = Duration(*t.to)
		}
	}
	for _, n := range c.numbers(&s, &d) {
		*n.given = *n.to
	}
	c.Bytes, c.PortBytes = Size(d.Bytes), Size(d.PortBytes)
}

// validate checks each key by itself, and then those that depend on each other
// with the values that are left out filled in.
func (c *ConWeave) validate(doc *document, conga Profile) {
	before := len(doc.errs)
	s, d := c.params(conga)
	for _, t := range c.times(&s, &d) {
		most := time.Second
		if t.key == "inactive" {
			most = overlay.MaxInactive
		}
		if v := time.Duration(*t.given); doc.has("conweave."+t.key) && (v < time.Microsecond || v > most) {
			doc.add("conweave."+t.key, fmt.Sprintf("%s is %v", t.key, *t.given), fmt.Sprintf("use 1us to %v, or leave it out", Duration(most)))
		}
	}
	for _, n := range c.numbers(&s, &d) {
		v, least, what := *n.given, 1, ""
		if n.power {
			least, what = 4, "a power of two from "
		}
		if doc.has("conweave."+n.key) && (v < least || v > n.max || n.power && v&(v-1) != 0) {
			doc.add("conweave."+n.key, fmt.Sprintf("%s is %d", n.key, v), fmt.Sprintf("use %s%d to %d, or leave it out", what, least, n.max))
		}
	}
	if c.Admission < 0 || c.Admission > 100 {
		doc.add("conweave.admission", fmt.Sprintf("admission at %d percent", c.Admission), "use 1 to 100, or leave it out")
	}
	if len(doc.errs) > before {
		return // what depends on them would say the same again
	}
	for _, less := range []struct {
		key, than string
		a, b      time.Duration
	}{
		{"reply", "inactive", s.Reply, s.Inactive},
		{"resume_extra", "max_hold", d.ResumeExtra, d.MaxHold},
		{"resume_default", "max_hold", d.ResumeDefault, d.MaxHold},
	} {
		if less.a <= less.b {
			continue
		}
		at := "conweave." + less.key
		if !doc.has(at) {
			at = "conweave." + less.than
		}
		doc.add(at, fmt.Sprintf("%s %v is above %s %v", less.key, Duration(less.a), less.than, Duration(less.b)), "lower "+less.key+", or raise "+less.than)
	}
}
