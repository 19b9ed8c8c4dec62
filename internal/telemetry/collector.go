package telemetry

import (
	"net/netip"
	"runtime"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/control"
	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/overlay"
)

// collector makes metrics of the counters at each scrape. It keeps none, so it
// may be used by several scrapes at a time.
type collector struct{ Options }

// NewCollector returns the collector of every metric whose name begins with
// loom_; docs/metrics.md describes them. Options.Log is not used.
//
// What workers count of a VNI, a peer or a next hop is summed over the workers,
// so that the number of series stays below some ten for each, whatever the
// number of cores.
func NewCollector(o Options) prometheus.Collector { return &collector{o} }

// Describe implements [prometheus.Collector].
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range all {
		ch <- m.desc
	}
}

// Collect implements [prometheus.Collector].
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	buildInfo.emit(ch, 1, c.Version, runtime.Version(), c.Role)
	s := c.Stats()
	// Taken after the counters: tables only grow, so that what was counted has
	// a name in them.
	t := c.tables()
	for i := range s.Workers {
		c.worker(ch, strconv.Itoa(i), &s.Workers[i])
	}
	c.ports(ch, &s, t)
	collectSchemes(ch, s.Workers)
	if c.Role != "spined" {
		c.collectReorder(ch, s.Workers)
	}
	if c.Congestion != nil {
		collectCongestion(ch, c.Congestion())
	}
	if c.Auto != nil {
		collectAuto(ch, c.Auto())
	}
	collectVNIs(ch, s.Workers, t)
	collectPeers(ch, s.Workers, t)
	c.hops(ch, s.Workers, t)
	if c.Control != nil {
		collectControl(ch, c.Control())
	}
	if c.Reload != nil {
		r := c.Reload()
		ofReload.emit(ch, &r)
	}
}

// tables is the newest tables, empty ones before the first.
func (o *Options) tables() *dataplane.Tables {
	if t := o.Tables(); t != nil {
		return t
	}
	return &dataplane.Tables{}
}

func (o *Options) portName(id dataplane.PortID) string {
	if int(id) < len(o.Ports) {
		return o.Ports[id].Name
	}
	return strconv.Itoa(int(id))
}

func (c *collector) worker(ch chan<- prometheus.Metric, worker string, s *dataplane.WorkerStats) {
	byWorker.emit(ch, s, worker)
	if c.Role != "spined" {
		fdbByWorker.emit(ch, s, worker)
		exchangeByWorker.emit(ch, &s.Exchange, worker)
		conweaveByWorker.emit(ch, s, worker)
	}
	for i := range s.Ports {
		p, port := &s.Ports[i], c.portName(dataplane.PortID(i))
		byPortWorker.emit(ch, p, port, worker)
		for r, n := range p.Drops {
			if n > 0 {
				drops.emit(ch, float64(n), port, worker, drop.Reason(r).String())
			}
		}
	}
}

func (c *collector) ports(ch chan<- prometheus.Metric, s *dataplane.Stats, t *dataplane.Tables) {
	for i := range s.Ports {
		v := portView{info: &s.Ports[i]}
		for w := range s.Workers {
			// Each worker reads the meter that all share, at its own time.
			p := at(s.Workers[w].Ports, i)
			v.utilisation, v.metric = max(v.utilisation, p.Utilisation), max(v.metric, p.Metric)
		}
		if i < len(t.Ports) {
			v.state = t.Ports[i]
		}
		name := c.portName(dataplane.PortID(i))
		byPort.emit(ch, &v, name)
		portInfo.emit(ch, 1, name, kindName(v.info.Kind), v.info.XDPMode, v.info.CopyMode)
		for verdict, n := range v.info.Classifier {
			classified.emit(ch, float64(n), name, verdict)
		}
	}
}

// kindName is a port kind's label value.
func kindName(k dataplane.PortKind) string {
	switch k {
	case dataplane.Access:
		return "access"
	case dataplane.Uplink:
		return "uplink"
	case dataplane.SpinePort:
		return "spine"
	default:
		return "kind_" + strconv.Itoa(int(k))
	}
}

// Two IDs never have one key at a time, but a scrape with two series of the
// same labels would fail as a whole. So what follows sums by key.

func collectVNIs(ch chan<- prometheus.Metric, workers []dataplane.WorkerStats, t *dataplane.Tables) {
	sums := make(map[overlay.VNI]*dataplane.VNIStats)
	for i := range t.VNIs {
		s := entry(sums, t.VNIs[i].VNI)
		for w := range workers {
			v := at(workers[w].VNIs, i)
			add(&s.Encapsulated, v.Encapsulated)
			add(&s.Decapsulated, v.Decapsulated)
			add(&s.Local, v.Local)
			add(&s.Flooded, v.Flooded)
			// Each worker has a table with the addresses of all.
			s.FDBEntries = max(s.FDBEntries, v.FDBEntries)
		}
	}
	delete(sums, 0) // the place of a VNI that is gone
	for vni, s := range sums {
		byVNI.emit(ch, s, strconv.FormatUint(uint64(vni), 10))
	}
}

func collectPeers(ch chan<- prometheus.Metric, workers []dataplane.WorkerStats, t *dataplane.Tables) {
	sums := make(map[netip.Addr]*peerView)
	for i := range t.Peers {
		s := entry(sums, t.Peers[i].VTEP)
		s.hops += len(t.Peers[i].Hops)
		for w := range workers {
			add(&s.sent, at(workers[w].PeerSent, i))
			add(&s.received, at(workers[w].PeerReceived, i))
		}
	}
	delete(sums, netip.Addr{}) // the place of a peer that is gone
	for vtep, s := range sums {
		byPeer.emit(ch, s, vtep.String())
	}
}

func (c *collector) hops(ch chan<- prometheus.Metric, workers []dataplane.WorkerStats, t *dataplane.Tables) {
	type key struct {
		port    dataplane.PortID
		gateway netip.Addr
	}
	sums := make(map[key]*hopView)
	for i, h := range t.Hops {
		if !h.Gateway.IsValid() {
			continue // the place of a next hop that is gone
		}
		s := entry(sums, key{h.Port, h.Gateway})
		s.resolved = s.resolved || h.Resolved
		for w := range workers {
			add(&s.sent, at(workers[w].HopSent, i))
		}
	}
	for k, s := range sums {
		byHop.emit(ch, s, c.portName(k.port), k.gateway.String())
	}
}

// collectSchemes shows what was decided by each scheme that was in force since
// the start.
func collectSchemes(ch chan<- prometheus.Metric, workers []dataplane.WorkerStats) {
	sums := make(map[string]*balance.Stats)
	for w := range workers {
		for _, s := range workers[w].Schemes {
			entry(sums, s.Scheme).Add(&s.Stats)
		}
	}
	for scheme, s := range sums {
		byScheme.emit(ch, s, scheme)
		if balance.Signals(scheme) {
			collectConWeave(ch, scheme, &s.ConWeave)
		}
	}
}

// collectCongestion shows the two tables of CONGA §3.3: of each peer at most 16
// entries each, and only those of which something was heard.
func collectCongestion(ch chan<- prometheus.Metric, peers []dataplane.PeerState) {
	seen := make(map[netip.Addr]bool)
	for i := range peers {
		p := &peers[i]
		if !p.VTEP.IsValid() || seen[p.VTEP] {
			continue // the place of a peer that is gone
		}
		seen[p.VTEP] = true
		vtep := p.VTEP.String()
		peerCapable.emit(ch, truth(p.Capable), vtep)
		for _, path := range p.Paths {
			if path.RemoteKnown {
				m := dataplane.TagMetric{Tag: path.Uplink, Metric: path.Remote, Age: path.RemoteAge}
				toLeaf.emit(ch, &m, vtep, strconv.Itoa(int(m.Tag)))
			}
		}
		for j := range p.FromLeaf {
			m := &p.FromLeaf[j]
			fromLeaf.emit(ch, m, vtep, strconv.Itoa(int(m.Tag)))
		}
	}
}

func collectControl(ch chan<- prometheus.Metric, s control.Stats) {
	for k := range s.Lists {
		byKind.emit(ch, &kindView{s.Lists[k], s.ListErrors[k]}, control.Kind(k).String())
	}
	ofControl.emit(ch, &s)
}

// entry is the value of key, made if there is none.
func entry[K comparable, V any](m map[K]*V, key K) *V {
	v := m[key]
	if v == nil {
		v = new(V)
		m[key] = v
	}
	return v
}

// at is s[i], or zero: a worker's slices are as long as the tables it has seen.
func at[T any](s []T, i int) (v T) {
	if i < len(s) {
		v = s[i]
	}
	return v
}

func add(sum *dataplane.Traffic, t dataplane.Traffic) {
	sum.Frames += t.Frames
	sum.Bytes += t.Bytes
}
