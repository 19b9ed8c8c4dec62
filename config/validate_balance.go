package config

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/overlay"
)

// The protocols that have ports.
const (
	tcp  Protocol = 6
	udp  Protocol = 17
	sctp Protocol = 132
)

// flowletSchemes are the schemes with a flowlet table, and its sizes.
var flowletSchemes = []string{"local", "letflow", "conga", "conga-flow"}

const (
	minFlowlets = 64
	maxFlowlets = 1 << 24
)

// validate checks a scheme and what it is told; at is empty for the leaf's own.
func (b *Balancing) validate(d *document, at string, uplinks int) {
	path := func(key string) string { return strings.TrimPrefix(at+"."+key, ".") }
	if !slices.Contains(balance.Names(), b.Scheme) {
		d.add(path("scheme"), fmt.Sprintf("scheme %q does not exist", b.Scheme), "use "+orList(balance.Names()))
		return
	}
	if d.has(path("weights")) {
		sum := uint64(0)
		for _, w := range b.Weights {
			sum += uint64(w)
		}
		switch {
		case b.Scheme != "static":
			d.add(path("weights"), "weights for scheme "+b.Scheme, "remove them, or use scheme: static")
		case len(b.Weights) != uplinks:
			d.add(path("weights"), fmt.Sprintf("%d weights for %d uplinks", len(b.Weights), uplinks), "give one for each uplink, in their order")
		case sum == 0 || sum > math.MaxUint32:
			d.add(path("weights"), fmt.Sprintf("weights that add up to %d", sum), "give each uplink its share, as in [2, 1]")
		}
	}
	if n := b.Flowlets; d.has(path("flowlets")) {
		switch {
		case !slices.Contains(flowletSchemes, b.Scheme):
			d.add(path("flowlets"), "a flowlet table for scheme "+b.Scheme+", which has none", "remove it, or use scheme "+orList(flowletSchemes))
		case n < minFlowlets || n > maxFlowlets || n&(n-1) != 0:
			d.add(path("flowlets"), fmt.Sprintf("a flowlet table of %d entries", n),
				fmt.Sprintf("use a power of two from %d to %d, or leave it out", minFlowlets, maxFlowlets))
		}
	}
	if d.has(path("drill")) && b.Scheme != "drill" {
		d.add(path("drill"), "parameters of drill for scheme "+b.Scheme, "remove them, or use scheme: drill")
	}
	if n := b.DRILL.Samples; d.has(path("drill.samples")) && (n < 1 || n > balance.MaxPaths) {
		d.add(path("drill.samples"), fmt.Sprintf("%d samples", n), fmt.Sprintf("use 1 to %d, or leave it out", balance.MaxPaths))
	}
	if n := b.DRILL.Memory; n < 0 || n > balance.MaxPaths {
		d.add(path("drill.memory"), fmt.Sprintf("%d queues remembered", n), fmt.Sprintf("use 0 to %d, or leave it out", balance.MaxPaths))
	}
}

// fill completes a scheme's parameters. It looks at the file, since to remember
// none is a choice, too.
func (b *Balancing) fill(d *document, at string) {
	if slices.Contains(flowletSchemes, b.Scheme) && !d.has(strings.TrimPrefix(at+".flowlets", ".")) {
		b.Flowlets = congestion.DefaultFlowlets
	}
	if b.Scheme != "drill" {
		return
	}
	if !d.has(strings.TrimPrefix(at+".drill.samples", ".")) {
		b.DRILL.Samples = 2
	}
	if !d.has(strings.TrimPrefix(at+".drill.memory", ".")) {
		b.DRILL.Memory = 1
	}
}

// validateClasses checks the traffic classes; vnis are where each VNI is
// defined.
func (l *Leaf) validateClasses(d *document, vnis map[uint32]string) {
	if n := len(l.Classes); n >= dataplane.MaxClasses {
		d.add("classes", fmt.Sprintf("%d traffic classes", n), fmt.Sprintf("use at most %d, besides what is left", dataplane.MaxClasses-1))
	}
	seen, names := make(map[Match]string), make(map[string]string)
	for i := range l.Classes {
		c, at := &l.Classes[i], "classes["+strconv.Itoa(i)+"]"
		if first, dup := names[c.Name]; dup && c.Name != "" {
			d.add(at+".name", fmt.Sprintf("class %q is already defined on line %d", c.Name, d.line(first)), "give it another name, or none")
		}
		names[c.Name] = at + ".name"
		m := c.Match
		if m == (Match{}) {
			d.add(at, "a class that every frame belongs to", "add match, as in match: {protocol: tcp}; what no class matches follows the leaf's scheme")
		} else if first, dup := seen[m]; dup {
			d.add(at+".match", fmt.Sprintf("the class on line %d already has all these frames", d.line(first)), "the first class that matches decides: remove this one")
		} else {
			seen[m] = at + ".match"
		}
		if _, ok := vnis[m.VNI]; d.has(at+".match.vni") && !ok {
			d.add(at+".match.vni", fmt.Sprintf("VNI %d is not among vnis", m.VNI), fmt.Sprintf("add it to vnis, as in vnis: [{vni: %d}]", m.VNI))
		}
		if d.has(at+".match.port") && m.Port == 0 {
			d.add(at+".match.port", "port 0 does not exist", "use 1 to 65535, or leave it out")
		}
		if p := m.Protocol; m.Port != 0 && p != 0 && p != tcp && p != udp && p != sctp {
			d.add(at+".match.port", fmt.Sprintf("a port of protocol %v, which has none", p), "remove port, or use protocol tcp, udp or sctp")
		}
		if c.Scheme == "" {
			d.add(at, "a class without a scheme", "add scheme, as in scheme: conga")
			continue
		}
		c.Balancing.validate(d, at, len(l.Uplinks))
	}
}

// validate checks each key with the values that it leaves out filled in.
func (c *Congestion) validate(d *document) {
	before := len(d.errs)
	if d.has("congestion.q") && (c.Q < 1 || c.Q > congestion.WireQ) {
		d.add("congestion.q", fmt.Sprintf("a metric of %d bits", c.Q), fmt.Sprintf("use 1 to %d: that is the room in the fabric's header", congestion.WireQ))
	}
	if d.has("congestion.alpha") && !(c.Alpha > 0 && c.Alpha < 1) {
		d.add("congestion.alpha", fmt.Sprintf("a decay factor of %v", c.Alpha), "use a number between 0 and 1, as in 0.1")
	}
	for _, t := range []struct {
		key      string
		value    Duration
		min, max time.Duration
	}{
		{"tau", c.Tau, time.Microsecond, time.Minute},
		{"flowlet_gap", c.gap(), time.Microsecond, time.Hour},
		{"flow_gap", c.FlowGap, time.Microsecond, time.Hour},
		{"ageing", c.Ageing, 100 * time.Microsecond, time.Hour},
	} {
		if v := time.Duration(t.value); d.has("congestion."+t.key) && (v < t.min || v > t.max) {
			d.add("congestion."+t.key, fmt.Sprintf("%s is %v", t.key, t.value), fmt.Sprintf("use %v to %v, or leave it out", Duration(t.min), Duration(t.max)))
		}
	}
	if len(d.errs) > before {
		return // what depends on them would say the same again
	}
	if p := c.params(); p.FlowGap < p.FlowletGap {
		at := "congestion.flow_gap"
		if !d.has(at) {
			at = "congestion.flowlet_gap"
		}
		d.add(at, fmt.Sprintf("flow_gap %v is below flowlet_gap %v", p.FlowGap, p.FlowletGap), "a flow ends after a longer pause than a flowlet: raise flow_gap, or lower flowlet_gap")
	} else if err := p.Validate(); err != nil {
		d.add("congestion", err.Error(), "correct it, or leave it out")
	}
}

// gap is the flowlet gap; auto starts with the profile's.
func (c *Congestion) gap() Duration {
	if c.FlowletGap != AutoGap {
		return Duration(c.FlowletGap)
	}
	if profiles[c.Profile] == "lab" {
		return Duration(congestion.Lab().FlowletGap)
	}
	return Duration(congestion.Datacenter().FlowletGap)
}

// params are the parameters, with the profile's for those left out.
func (c *Congestion) params() congestion.Params {
	p := congestion.Datacenter()
	if profiles[c.Profile] == "lab" {
		p = congestion.Lab()
	}
	if c.Q != 0 {
		p.Q = uint(c.Q)
	}
	if c.Alpha != 0 {
		p.Alpha = c.Alpha
	}
	for _, t := range []struct {
		to    *time.Duration
		value Duration
	}{{&p.Tau, c.Tau}, {&p.FlowletGap, c.gap()}, {&p.FlowGap, c.FlowGap}, {&p.Ageing, c.Ageing}} {
		if t.value != 0 {
			*t.to = time.Duration(t.value)
		}
	}
	p.Detector = congestion.Detector(c.Detector)
	p.Decision = congestion.Decision{Metric: congestion.PathMetric(c.PathMetric), FewestBottlenecks: c.FewestBottlenecks}
	return p
}

// fill writes down what params decided.
func (c *Congestion) fill() {
	p := c.params()
	c.Q, c.Alpha = uint8(p.Q), p.Alpha
	c.Tau, c.FlowGap, c.Ageing = Duration(p.Tau), Duration(p.FlowGap), Duration(p.Ageing)
	if c.FlowletGap != AutoGap {
		c.FlowletGap = Gap(p.FlowletGap)
	}
}

// Schemes converts the default scheme and the classes of a validated leaf, as
// [dataplane.Node.SetSchemes] takes them.
func (l *Leaf) Schemes() (scheme string, o balance.Options, classes []dataplane.Class) {
	section := l.ConWeave.section(l.Congestion.Profile)
	for i := range l.Classes {
		c := &l.Classes[i]
		classes = append(classes, dataplane.Class{
			VNI: overlay.VNI(c.Match.VNI), Protocol: uint8(c.Match.Protocol), Port: c.Match.Port, DSCP: uint8(c.Match.DSCP),
			Scheme: c.Scheme, Options: c.options(section),
		})
	}
	return l.Scheme, l.options(section), classes
}

func (b *Balancing) options(conweave balance.Params) (o balance.Options) {
	switch b.Scheme {
	case "static":
		o.Keys = &balance.StaticKeys{Weights: b.Weights}
	case "drill":
		o.Keys = &balance.DRILLKeys{DRILL: balance.DRILL{Samples: b.DRILL.Samples, Memory: b.DRILL.Memory}}
	}
	if slices.Contains(flowletSchemes, b.Scheme) && b.Flowlets != 0 {
		o.Keys = &balance.FlowletKeys{Flowlets: b.Flowlets}
	}
	if s := balance.Find(b.Scheme); s != nil && s.Section != nil {
		o.Section = conweave
	}
	return o
}
