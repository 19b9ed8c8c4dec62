package telemetry

import (
	"net/netip"
	"runtime"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/stat"
	"github.com/loomfabric/loom/leaf"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// collector makes metrics of the counters at each scrape. It keeps none, so it
// may be used by several scrapes at a time.
type collector struct{ Options }

// NewCollector returns the collector of every metric whose name begins with
// loom_; docs/metrics.md describes them. Options.Log is not used.
//
// What workers count for a VNI, a peer or a next hop is summed over the workers, so
// that the number of series does not grow with the number of cores.
func NewCollector(o Options) prometheus.Collector { return &collector{o} }

// Describe implements [prometheus.Collector].
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, s := range declared() {
		for _, r := range s.rows {
			ch <- r.desc
			if r.longest != nil {
				ch <- r.longest
			}
		}
	}
}

// declared returns the sets of every node, and those of all schemes that there are.
func declared() []*set {
	all := slices.Clone(fixed)
	for _, s := range balance.Schemes() {
		own, receiver := leaf.Counts(s)
		if own != nil {
			all = append(all, ofOwn(s.Name, own))
		}
		if receiver != nil {
			sum, byWorker := ofReceiver(s.Name, receiver)
			all = append(all, sum, byWorker)
		}
	}
	return all
}

// Collect implements [prometheus.Collector].
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	buildInfo.emit(ch, &buildView{Info: true}, c.Version, runtime.Version(), c.Role)
	s := c.Stats()
	// Taken after the counters: tables only grow, so that what was counted has
	// a name in them.
	t := c.tables()
	for i := range s.Workers {
		c.worker(ch, strconv.Itoa(i), &s.Workers[i])
	}
	c.ports(ch, &s, t)
	c.hops(ch, s.Workers, t)
	if c.Role != "spined" {
		c.leaf(ch, s.Workers)
		collectVNIs(ch, s.Workers, t)
		collectPeers(ch, s.Workers, t)
	}
	if c.Congestion != nil {
		collectCongestion(ch, c.Congestion())
	}
	if c.Auto != nil {
		if s := c.Auto(); s != nil {
			ofAuto.emit(ch, &s.AutoState)
		}
	}
	if c.Control != nil {
		s := c.Control()
		ofControl.emit(ch, &s)
	}
	if c.Reload != nil {
		r := c.Reload()
		ofReload.emit(ch, &r)
	}
}

// tables returns the newest tables, empty ones before the first.
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
		fdbByWorker.emit(ch, &s.FDBStats, worker)
		lossByWorker.emit(ch, &s.LossStats, worker)
		exchangeByWorker.emit(ch, &s.Exchange, worker)
		for _, r := range s.Receivers {
			_, now := ofReceiver(r.Scheme, r.Stats)
			now.emit(ch, r.Stats, worker)
		}
	}
	for i := range s.Ports {
		byPortWorker.emit(ch, &s.Ports[i], c.portName(dataplane.PortID(i)), worker)
	}
}

func (c *collector) ports(ch chan<- prometheus.Metric, s *dataplane.Stats, t *dataplane.Tables) {
	for i := range s.Ports {
		info, state := &s.Ports[i], at(t.Ports, i)
		v := portView{Open: info.Open, Up: state.Up, MTU: state.MTU, Changed: info.Since}
		for w := range s.Workers {
			// Each worker reads the meter that all share, at its own time.
			p := at(s.Workers[w].Ports, i)
			v.Utilisation, v.Metric = max(v.Utilisation, p.Utilisation), max(v.Metric, p.Metric)
		}
		name := c.portName(dataplane.PortID(i))
		byPort.emit(ch, &v, name)
		portInfo.emit(ch, &infoView{Info: true}, name, kindName(info.Kind), info.XDPMode, info.CopyMode)
		for verdict, n := range info.Classifier {
			byVerdict.emit(ch, &verdictView{Frames: n}, name, verdict)
		}
	}
}

// kindName returns a port kind's label value.
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
			stat.Add(s, &v)
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
		s.NextHops += len(t.Peers[i].Hops)
		for w := range workers {
			sent, received := at(workers[w].PeerSent, i), at(workers[w].PeerReceived, i)
			stat.Add(&s.Sent, &sent)
			stat.Add(&s.Received, &received)
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
		s.Resolved = s.Resolved || h.Resolved
		for w := range workers {
			sent := at(workers[w].HopSent, i)
			stat.Add(&s.Sent, &sent)
		}
	}
	for k, s := range sums {
		byHop.emit(ch, s, c.portName(k.port), k.gateway.String())
	}
}

// leaf shows what a leaf's workers have in common: messages, and what was decided and
// received under each scheme that was in force since the start.
func (c *collector) leaf(ch chan<- prometheus.Metric, workers []dataplane.WorkerStats) {
	var all leaf.Stats
	var schemes []leaf.SchemeStats
	var receivers []leaf.ReceiverStats
	for i := range workers {
		w := &workers[i]
		stat.Add(&all, &w.Leaf)
		schemes = leaf.AddSchemes(schemes, w.Schemes)
		receivers = leaf.AddReceivers(receivers, w.Receivers)
	}
	ofLeaf.emit(ch, &all)
	for i := range schemes {
		s := &schemes[i]
		byScheme.emit(ch, s, s.Scheme)
		if s.Own != nil {
			ofOwn(s.Scheme, s.Own).emit(ch, s.Own, s.Scheme)
		}
	}
	for _, r := range receivers {
		sum, _ := ofReceiver(r.Scheme, r.Stats)
		sum.emit(ch, r.Stats)
	}
	c.waiting(ch, workers)
}

// floodPort is the label of frames that wait for all members of a VNI.
const floodPort = "flood"

// waiting shows what waits for each port that leads out of the fabric.
func (c *collector) waiting(ch chan<- prometheus.Metric, workers []dataplane.WorkerStats) {
	for i := range len(c.Ports) + 1 {
		name := floodPort
		if i < len(c.Ports) {
			if c.Ports[i].Kind != dataplane.Access {
				continue
			}
			name = c.Ports[i].Name
		}
		var sum reorder.PortUse
		for w := range workers {
			u := at(workers[w].Waiting, i)
			stat.Add(&sum, &u)
		}
		waitingByPort.emit(ch, &sum, name)
	}
}

// collectCongestion shows the two tables of CONGA §3.3: of each peer at most 16
// entries each, and only those about which something is known.
func collectCongestion(ch chan<- prometheus.Metric, peers []dataplane.PeerState) {
	seen := make(map[netip.Addr]bool)
	for i := range peers {
		p := &peers[i]
		if !p.VTEP.IsValid() || seen[p.VTEP] {
			continue // the place of a peer that is gone
		}
		seen[p.VTEP] = true
		vtep := p.VTEP.String()
		peerCapable.emit(ch, &capableView{Capable: p.Capable}, vtep)
		for _, path := range p.Paths {
			if path.RemoteKnown {
				toLeaf.emit(ch, &toLeafView{Metric: path.Remote, Age: path.RemoteAge}, vtep, strconv.Itoa(int(path.Uplink)))
			}
		}
		for _, m := range p.FromLeaf {
			fromLeaf.emit(ch, &fromLeafView{Metric: m.Metric, Age: m.Age}, vtep, strconv.Itoa(int(m.Tag)))
		}
	}
}

// entry returns the value of key, and makes it if there is none.
func entry[K comparable, V any](m map[K]*V, key K) *V {
	v := m[key]
	if v == nil {
		v = new(V)
		m[key] = v
	}
	return v
}

// at returns s[i], or zero: a worker's slices are as long as the tables it has seen.
func at[T any](s []T, i int) (v T) {
	if i < len(s) {
		v = s[i]
	}
	return v
}
