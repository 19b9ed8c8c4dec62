package lab

import (
	"strconv"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/config"
	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/fabric"
	"github.com/loomfabric/loom/overlay"
)

// balancingConfig writes a scheme of the fabric file as leafd reads it.
func balancingConfig(b fabric.Balancing) config.Balancing {
	c := config.Balancing{Scheme: b.Scheme, Weights: b.Weights}
	if b.DRILL != nil {
		c.DRILL = config.DRILL{Samples: 2, Memory: 1} // what leafd would fill in
		if b.DRILL.Samples != nil {
			c.DRILL.Samples = *b.DRILL.Samples
		}
		if b.DRILL.Memory != nil {
			c.DRILL.Memory = *b.DRILL.Memory
		}
	}
	return c
}

// classConfigs are the traffic classes of a leaf: those of VNIs that it has no
// host of would be refused there, and match nothing.
func (l *Lab) classConfigs(leaf int) (out []config.Class) {
	vnis := map[uint32]bool{0: true}
	for _, vni := range l.Topo.VNIsOf(leaf) {
		vnis[vni] = true
	}
	for i, c := range l.File.Classes {
		if !vnis[c.Match.VNI] {
			continue
		}
		m := config.Match{VNI: c.Match.VNI, Port: c.Match.Port}
		if n, ok := overlay.ParseProtocol(c.Match.Protocol); ok {
			m.Protocol = config.Protocol(n)
		}
		if n, ok := overlay.ParseDSCP(c.Match.DSCP); ok {
			m.DSCP = config.DSCP(n + 1)
		}
		name := c.Name
		if name == "" {
			name = "class " + strconv.Itoa(i)
		}
		out = append(out, config.Class{Name: name, Match: m, Balancing: balancingConfig(c.Balancing)})
	}
	return out
}

// congestionConfig writes CONGA's parameters in full.
func congestionConfig(p congestion.Params) config.Congestion {
	return config.Congestion{
		Q: uint8(p.Q), Tau: config.Duration(p.Tau), Alpha: p.Alpha, FlowletGap: config.Gap(p.FlowletGap),
		FlowGap: config.Duration(p.FlowGap), Ageing: config.Duration(p.Ageing), Detector: config.Detector(p.Detector),
		PathMetric: config.PathMetric(p.Decision.Metric), FewestBottlenecks: p.Decision.FewestBottlenecks,
	}
}

// conweaveConfig writes ConWeave's parameters in full, but for times that leaves
// are to find out.
func conweaveConfig(c *fabric.ConWeave) config.ConWeave {
	s, d := c.Params()
	out := config.ConWeave{
		Reply: config.Duration(s.Reply), PathBusy: config.Duration(s.PathBusy), Inactive: config.Duration(s.Inactive),
		Samples: s.Samples, Selectors: s.Selectors, Connections: s.Connections,
		ResumeExtra: config.Duration(d.ResumeExtra), ResumeDefault: config.Duration(d.ResumeDefault), MaxHold: config.Duration(d.MaxHold),
		NotifyInterval: config.Duration(d.NotifyInterval), Admission: d.Admission, Flows: d.Flows,
		Queues: d.Queues, PortQueues: d.PortQueues, Packets: d.Packets, PortPackets: d.PortPackets,
		Bytes: config.Size(d.Bytes), PortBytes: config.Size(d.PortBytes),
	}
	if c.Auto() {
		out.Profile = config.AutoProfile
		out.Reply, out.Inactive, out.MaxHold = config.Duration(c.Reply), config.Duration(c.Inactive), config.Duration(c.MaxHold)
		out.ResumeExtra, out.ResumeDefault = config.Duration(c.ResumeExtra), config.Duration(c.ResumeDefault)
	}
	return out
}

// SchemeReport is what a scheme decided on one leaf since its daemon was
// started. Flowlets are zero for schemes without.
type SchemeReport struct {
	Scheme    string `json:"scheme"`
	Decisions uint64 `json:"decisions"`
	Started   uint64 `json:"flowlets_started"`
	Moved     uint64 `json:"flowlets_moved"`
	Kept      uint64 `json:"flowlets_kept"`
	Expired   uint64 `json:"flowlets_expired"`
}

// addScheme adds a worker's counters to those of the scheme.
func addScheme(sums []SchemeReport, scheme string, s balance.Stats) []SchemeReport {
	at := -1
	for i := range sums {
		if sums[i].Scheme == scheme {
			at = i
		}
	}
	if at < 0 {
		sums = append(sums, SchemeReport{Scheme: scheme})
		at = len(sums) - 1
	}
	r := &sums[at]
	r.Decisions += s.Decisions
	r.Started += s.Flowlets.Started
	r.Moved += s.Flowlets.Moved
	r.Kept += s.Flowlets.Kept
	r.Expired += s.Flowlets.Expired
	return sums
}
