// Package telemetry serves a node's counters and its health over HTTP. It reads
// the counters when it is asked and keeps none of its own; it decides nothing.
package telemetry

import (
	"runtime"
	"runtime/debug"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/loomfabric/loom/control"
	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/drop"
)

// Source is the node that telemetry is about.
type Source struct {
	Config  dataplane.Config
	Stats   func() dataplane.Stats
	Tables  func() *dataplane.Tables // newest published; nil before the first
	Control func() control.Stats
}

// Collector makes metrics of a [Source] at every scrape.
type Collector struct{ src Source }

// NewCollector returns the collector; register it once.
func NewCollector(src Source) *Collector { return &Collector{src} }

// Describe sends every metric that there is.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range descs {
		ch <- d
	}
}

// Collect reads the node's counters and sends them.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	s := scrape{ch: ch, cfg: &c.src.Config, stats: c.src.Stats(), tables: c.src.Tables()}
	if s.tables == nil {
		s.tables = &dataplane.Tables{}
	}
	s.node()
	s.control(c.src.Control())
	for id := range s.cfg.Ports {
		s.port(id)
	}
	for q := range s.stats.Workers {
		s.worker(q)
	}
	s.networks()
	s.peers()
	s.nextHops()
}

// scrape is one collection.
type scrape struct {
	ch     chan<- prometheus.Metric
	cfg    *dataplane.Config
	stats  dataplane.Stats
	tables *dataplane.Tables
}

func (s *scrape) counter(d *prometheus.Desc, v uint64, labels ...string) {
	s.ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
}

func (s *scrape) gauge(d *prometheus.Desc, v float64, labels ...string) {
	s.ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (s *scrape) traffic(d trafficDesc, t dataplane.Traffic, labels ...string) {
	s.counter(d.frames, t.Frames, labels...)
	s.counter(d.bytes, t.Bytes, labels...)
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// Version is the module's version and the revision that it was built from.
func Version() (version, revision string) {
	version, revision = "unknown", "unknown"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return version, revision
	}
	if info.Main.Version != "" {
		version = info.Main.Version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			revision = s.Value
		}
	}
	return version, revision
}

func (s *scrape) node() {
	version, revision := Version()
	s.gauge(buildInfo, 1, version, revision, runtime.Version())
	s.gauge(nodeInfo, 1, s.cfg.Name, RoleName(s.cfg.Role))
}

func (s *scrape) control(c control.Stats) {
	for k := range c.Lists {
		s.counter(controlLists, c.Lists[k], control.Kind(k).String())
		s.counter(controlListErrors, c.ListErrors[k], control.Kind(k).String())
	}
	s.counter(controlPublished, c.Published)
	s.counter(controlResolves, c.Resolves)
	s.gauge(controlUnresolved, float64(c.Unresolved))
	s.counter(controlFull, uint64(c.TableFull))
}

// RoleName is a role in metrics and JSON.
func RoleName(r dataplane.Role) string {
	if r == dataplane.Leaf {
		return "leaf"
	}
	return "spine"
}

// KindName is a port's kind in metrics and JSON.
func KindName(k dataplane.PortKind) string {
	switch k {
	case dataplane.Access:
		return "access"
	case dataplane.Uplink:
		return "uplink"
	default:
		return "spine"
	}
}

func (s *scrape) port(id int) {
	cfg := &s.cfg.Ports[id]
	name := cfg.Name
	if id < len(s.stats.Ports) {
		p := &s.stats.Ports[id]
		s.gauge(portOpen, truth(p.Open), name)
		s.gauge(portInfo, 1, name, KindName(cfg.Kind), [...]string{"auto", "native", "generic"}[s.cfg.XDPMode], p.XDPMode,
			[...]string{"auto", "zero-copy", "copy"}[s.cfg.CopyMode], p.CopyMode)
		for verdict, n := range p.Classifier {
			s.counter(classifierFrames, n, name, verdict)
		}
	}
	if id < len(s.tables.Ports) {
		s.gauge(portUp, truth(s.tables.Ports[id].Up), name)
		s.gauge(portMTU, float64(s.tables.Ports[id].MTU), name)
	}
	var drops [drop.NumReasons]uint64
	for q := range s.stats.Workers {
		w := &s.stats.Workers[q]
		if id >= len(w.Ports) {
			continue
		}
		s.queue(&w.Ports[id], name, strconv.Itoa(q))
		for r, n := range w.Ports[id].Drops {
			drops[r] += n
		}
	}
	for r := drop.None + 1; r < drop.NumReasons; r++ {
		s.counter(frameDrops, drops[r], name, r.String())
	}
}

func (s *scrape) queue(p *dataplane.PortStats, port, queue string) {
	s.traffic(portReceived, p.Received, port, queue)
	s.traffic(portSent, p.Sent, port, queue)
	s.traffic(portMarked, p.Marked, port, queue)
	s.gauge(queueBytes, float64(p.QueueBytes), port, queue)
	s.gauge(queuePeak, float64(p.QueuePeak), port, queue)
	s.gauge(queueFrames, float64(p.QueueFrames), port, queue)
	s.gauge(utilisation, p.Utilisation, port, queue)
	for _, c := range []struct {
		d *prometheus.Desc
		n uint64
	}{
		{xskRXDropped, p.RXDropped}, {xskRXRingFull, p.RXRingFull}, {xskFillEmpty, p.FillEmpty},
		{xskRXInvalid, p.RXInvalid}, {xskTXInvalid, p.TXInvalid}, {xskTXEmpty, p.TXEmpty},
		{xskKicks, p.Kicks}, {xskKickAgain, p.KickAgain}, {xskKickErrors, p.KickErrors},
		{xskTXFull, p.TXFull}, {xskTXAbandoned, p.TXAbandoned}, {metaMissing, p.MetaMissing},
	} {
		s.counter(c.d, c.n, port, queue)
	}
}

func (s *scrape) worker(q int) {
	w, worker := &s.stats.Workers[q], strconv.Itoa(q)
	s.gauge(framesHeld, float64(w.Held), worker)
	s.counter(framesCopied, w.Copied, worker)
	s.counter(workerBursts, w.Bursts, worker)
	s.counter(workerSleeps, w.Sleeps, worker)
	if s.cfg.Role != dataplane.Leaf {
		return
	}
	s.gauge(fdbEntries, float64(w.FDBEntries), worker)
	s.counter(fdbLearned, w.FDBLearned, worker)
	s.counter(fdbMoved, w.FDBMoved, worker)
	s.counter(fdbAged, w.FDBAged, worker)
	s.counter(fdbRefused, w.FDBFull, worker, "full")
	s.counter(fdbRefused, w.FDBStatic, worker, "static")
	s.counter(fdbGossipLost, w.GossipLost, worker)
}

// networks sums the workers' counters of each VNI. Every worker keeps a table
// of all addresses, so that the largest, not the sum, is their number.
func (s *scrape) networks() {
	for i, v := range s.tables.VNIs {
		if v.VNI == 0 {
			continue
		}
		var sum dataplane.VNIStats
		for q := range s.stats.Workers {
			if i >= len(s.stats.Workers[q].VNIs) {
				continue
			}
			w := &s.stats.Workers[q].VNIs[i]
			add(&sum.Encapsulated, w.Encapsulated)
			add(&sum.Decapsulated, w.Decapsulated)
			add(&sum.Local, w.Local)
			add(&sum.Flooded, w.Flooded)
			sum.FDBEntries = max(sum.FDBEntries, w.FDBEntries)
		}
		vni := strconv.FormatUint(uint64(v.VNI), 10)
		s.traffic(vniTraffic, sum.Encapsulated, vni, "encapsulated")
		s.traffic(vniTraffic, sum.Decapsulated, vni, "decapsulated")
		s.traffic(vniTraffic, sum.Local, vni, "local")
		s.traffic(vniTraffic, sum.Flooded, vni, "flooded")
		s.gauge(vniFDBEntries, float64(sum.FDBEntries), vni)
	}
}

func (s *scrape) peers() {
	for i, p := range s.tables.Peers {
		if !p.VTEP.IsValid() {
			continue
		}
		var sent, received dataplane.Traffic
		for q := range s.stats.Workers {
			w := &s.stats.Workers[q]
			if i < len(w.PeerSent) {
				add(&sent, w.PeerSent[i])
			}
			if i < len(w.PeerReceived) {
				add(&received, w.PeerReceived[i])
			}
		}
		s.traffic(peerSent, sent, p.VTEP.String())
		s.traffic(peerReceived, received, p.VTEP.String())
		s.gauge(peerNextHops, float64(len(p.Hops)), p.VTEP.String())
	}
}

func (s *scrape) nextHops() {
	for i, h := range s.tables.Hops {
		if !h.Gateway.IsValid() {
			continue
		}
		var sent dataplane.Traffic
		for q := range s.stats.Workers {
			if w := &s.stats.Workers[q]; i < len(w.HopSent) {
				add(&sent, w.HopSent[i])
			}
		}
		port := s.cfg.Ports[h.Port].Name
		s.traffic(hopSent, sent, port, h.Gateway.String())
		s.gauge(hopResolved, truth(h.Resolved), port, h.Gateway.String())
	}
}

func add(sum *dataplane.Traffic, t dataplane.Traffic) {
	sum.Frames += t.Frames
	sum.Bytes += t.Bytes
}
