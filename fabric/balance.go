package fabric

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/overlay"
)

// Balancing is a scheme and what it is told, on every leaf.
type Balancing struct {
	// Scheme balances load over uplinks; default "ecmp", the only one that
	// dataplane kernel knows.
	Scheme string `yaml:"scheme"`
	// Weights are the uplinks' shares under scheme static: spine by spine, and
	// for each its parallel links.
	Weights []uint32 `yaml:"weights"`
	// DRILL are the parameters of scheme drill.
	DRILL *DRILL `yaml:"drill"`
}

// DRILL is how many queues scheme drill draws for a packet (default 2) and how
// many it remembers (default 1).
type DRILL struct {
	Samples *int `yaml:"samples"`
	Memory  *int `yaml:"memory"`
}

// Class is a kind of traffic with a scheme of its own. The first class that
// matches a frame decides.
type Class struct {
	Name      string `yaml:"name"`
	Match     Match  `yaml:"match"`
	Balancing `yaml:",inline"`
}

// Match is what a frame of a class has; what is left out may be anything.
type Match struct {
	VNI      uint32 `yaml:"vni"`
	Protocol string `yaml:"protocol"` // a name (tcp, udp, icmp, icmpv6, sctp) or a number
	Port     uint16 `yaml:"port"`     // source or destination
	DSCP     string `yaml:"dscp"`     // 0 to 63, or a name (ef, cs6, af41)
}

// Congestion are CONGA's parameters, for every leaf and spine. What is left out
// is the profile's.
type Congestion struct {
	Profile           string   `yaml:"profile"` // "lab" (the default) or "datacenter"
	Q                 uint     `yaml:"q"`       // bits of a metric, at most 3
	Tau               Duration `yaml:"tau"`
	Alpha             float64  `yaml:"alpha"`
	FlowletGap        Duration `yaml:"flowlet_gap"`
	FlowGap           Duration `yaml:"flow_gap"`
	Ageing            Duration `yaml:"ageing"`
	Detector          string   `yaml:"detector"`    // "timestamp" (the default) or "agebit"
	PathMetric        string   `yaml:"path_metric"` // "max" (the default) or "sum"
	FewestBottlenecks bool     `yaml:"fewest_bottlenecks"`
}

// Params returns the parameters in full.
func (c *Congestion) Params() congestion.Params {
	p := congestion.Lab()
	if c.Profile == "datacenter" {
		p = congestion.Datacenter()
	}
	if c.Q != 0 {
		p.Q = c.Q
	}
	if c.Alpha != 0 {
		p.Alpha = c.Alpha
	}
	for _, t := range []struct {
		to    *time.Duration
		value Duration
	}{{&p.Tau, c.Tau}, {&p.FlowletGap, c.FlowletGap}, {&p.FlowGap, c.FlowGap}, {&p.Ageing, c.Ageing}} {
		if t.value != 0 {
			*t.to = t.value.D()
		}
	}
	if c.Detector == congestion.AgeBit.String() {
		p.Detector = congestion.AgeBit
	}
	if c.PathMetric == congestion.SumMetric.String() {
		p.Decision.Metric = congestion.SumMetric
	}
	p.Decision.FewestBottlenecks = c.FewestBottlenecks
	return p
}

// SetScheme puts another scheme, with its defaults, in the place of the file's.
// Classes stay. It reports a scheme that the data plane does not have.
func (f *File) SetScheme(name string) error {
	if msg := f.schemeProblem(name); msg != "" {
		return fmt.Errorf("scheme %s", msg)
	}
	f.Balancing = Balancing{Scheme: name}
	return nil
}

// Warnings says what is valid in the file and unwise under a scheme ("": the
// file's own), with the classes as they are: a flowlet gap shorter than the
// longest time that a link's full queue takes, on the leaf's or on the spine's
// end. A flow that moves may then overtake its own packets (CONGA §3.4), and
// flows herd from one uplink to the next. Or a shorter θ_inactive: an epoch would
// end with packets of it under way (ConWeave §4.1).
func (f *File) Warnings(scheme string) (warnings []string) {
	if scheme == "" {
		scheme = f.Scheme
	}
	schemes := []string{scheme}
	for i := range f.Classes {
		schemes = append(schemes, f.Classes[i].Scheme)
	}
	slices.Sort(schemes)
	at, queue, drain := f.longestQueue()
	p := f.Congestion.Params()
	source, _ := f.ConWeave.Params()
	inactive := source.Inactive
	if f.ConWeave.Auto() && f.ConWeave.Inactive == 0 {
		inactive = overlay.MaxInactive // as much as it takes, up to that
	}
	for _, s := range slices.Compact(schemes) {
		if inactive < drain && balance.Find(s) != nil && balance.Find(s).Shim {
			fix := "buffer lower"
			if drain <= overlay.MaxInactive {
				fix = fmt.Sprintf("set it to %v or more, or %s", drain, fix)
			}
			warnings = append(warnings, fmt.Sprintf("conweave.inactive: %v for scheme %s, but %s can queue %s bytes at %s for %v: %s",
				inactive, s, at, queue.Buffer, queue.Rate, drain, fix))
		}
		scheme := balance.Find(s)
		if scheme == nil || scheme.Gap == nil {
			continue
		}
		gap, key := scheme.Gap(&p)
		if gap >= drain {
			continue
		}
		warnings = append(warnings, fmt.Sprintf("congestion.%s: %v for scheme %s, but %s can queue %s bytes at %s for %v: set it above that (and tau near it), or buffer lower",
			key, gap, s, at, queue.Buffer, queue.Rate, drain))
	}
	return warnings
}

// longestQueue finds the end of a link whose full queue takes longest.
func (f *File) longestQueue() (at string, queue LinkParams, drain time.Duration) {
	for _, l := range f.Expand().Links {
		for _, e := range []struct {
			direction string
			LinkParams
		}{{"up", l.Up}, {"down", l.Down}} {
			if e.Rate == 0 {
				continue
			}
			if d := time.Duration(math.Ceil(float64(e.Buffer)*8/float64(e.Rate)*1e6)) * time.Microsecond; d > drain {
				at, queue, drain = l.Name+" "+e.direction, e.LinkParams, d
			}
		}
	}
	return at, queue, drain
}

// schemeProblem says what is wrong with a scheme; "" if nothing is.
func (f *File) schemeProblem(name string) string {
	switch {
	case !slices.Contains(balance.Names(), name):
		return fmt.Sprintf("%q does not exist: write one of %s", name, strings.Join(balance.Names(), ", "))
	case f.Dataplane == "kernel" && name != "ecmp":
		return fmt.Sprintf("%s is not for dataplane kernel: it has ecmp only", name)
	}
	return ""
}

// balancing checks a scheme and its parameters; at is "" or ends in a dot.
func (v *validator) balancing(at string, b *Balancing) {
	if msg := v.file.schemeProblem(b.Scheme); msg != "" {
		v.errorf(at+"scheme", "%s", msg)
		return
	}
	if b.Weights != nil {
		uplinks, sum := v.file.Spines*v.file.Links.Parallel, uint64(0)
		for _, w := range b.Weights {
			sum += uint64(w)
		}
		switch {
		case b.Scheme != "static":
			v.errorf(at+"weights", "they are for scheme static, not for %s", b.Scheme)
		case len(b.Weights) != uplinks:
			v.errorf(at+"weights", "%d weights: a leaf has %d uplinks", len(b.Weights), uplinks)
		case sum == 0 || sum > math.MaxUint32:
			v.errorf(at+"weights", "they add up to %d: write shares, as in [2, 1]", sum)
		}
	}
	d := b.DRILL
	if d == nil {
		return
	}
	if b.Scheme != "drill" {
		v.errorf(at+"drill", "it is for scheme drill, not for %s", b.Scheme)
	}
	if d.Samples != nil && (*d.Samples < 1 || *d.Samples > balance.MaxPaths) {
		v.errorf(at+"drill.samples", "%d: between 1 and %d are possible", *d.Samples, balance.MaxPaths)
	}
	if d.Memory != nil && (*d.Memory < 0 || *d.Memory > balance.MaxPaths) {
		v.errorf(at+"drill.memory", "%d: between 0 and %d are possible", *d.Memory, balance.MaxPaths)
	}
}

// maxClasses is the data plane's limit, without the default class.
const maxClasses = 15

func (v *validator) classes() {
	f := v.file
	if len(f.Classes) > maxClasses {
		v.errorf("classes", "%d: at most %d are possible", len(f.Classes), maxClasses)
	}
	if len(f.Classes) > 0 && f.Dataplane == "kernel" {
		v.errorf("classes", "dataplane kernel has none: remove them or use dataplane loom")
	}
	seen := map[Match]bool{}
	for i := range f.Classes {
		c, path := &f.Classes[i], fmt.Sprintf("classes[%d]", i)
		m := c.Match
		if m == (Match{}) {
			v.errorf(path, "it matches every frame: set vni, protocol, port or dscp in match")
		} else if seen[m] {
			v.errorf(path+".match", "an earlier class already has all these frames")
		}
		seen[m] = true
		if m.VNI != 0 && !slices.ContainsFunc(f.VNIs, func(n VNI) bool { return n.VNI == m.VNI }) {
			v.errorf(path+".match.vni", "%d is not among vnis", m.VNI)
		}
		if _, ok := overlay.ParseProtocol(m.Protocol); m.Protocol != "" && !ok {
			v.errorf(path+".match.protocol", "%q does not exist: write tcp, udp, icmp, icmpv6, sctp or a number from 1 to 255", m.Protocol)
		}
		if _, ok := overlay.ParseDSCP(m.DSCP); m.DSCP != "" && !ok {
			v.errorf(path+".match.dscp", "%q does not exist: write 0 to %d, or a name as in ef, cs6 or af41", m.DSCP, overlay.MaxDSCP)
		}
		if p := strings.ToLower(m.Protocol); m.Port != 0 && !slices.Contains([]string{"", "tcp", "udp", "sctp", "6", "17", "132"}, p) {
			v.errorf(path+".match.port", "protocol %s has no ports", m.Protocol)
		}
		v.balancing(path+".", &c.Balancing)
	}
}

func (v *validator) congestion() {
	c := &v.file.Congestion
	word := func(key, value string, words ...string) {
		if !slices.Contains(words, value) {
			v.errorf("congestion."+key, "%q is unknown: write %s", value, strings.Join(words, " or "))
		}
	}
	word("profile", c.Profile, "lab", "datacenter")
	word("detector", c.Detector, congestion.Timestamp.String(), congestion.AgeBit.String())
	word("path_metric", c.PathMetric, congestion.MaxMetric.String(), congestion.SumMetric.String())
	if c.Q > congestion.WireQ {
		v.errorf("congestion.q", "%d: at most %d bits fit the fabric's header", c.Q, congestion.WireQ)
		return
	}
	if p := c.Params(); p.Validate() != nil {
		v.errorf("congestion", "%v", p.Validate())
	}
}
