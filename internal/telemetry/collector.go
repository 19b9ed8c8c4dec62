package telemetry

import (
	"net/netip"
	"runtime"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/control"
	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/stat"
	"github.com/loomfabric/loom/leaf"
	"github.com/loomfabric/loom/liveness"
	"github.com/loomfabric/loom/overlay"
)

// collector makes metrics of the counters at each scrape. It keeps none, so it
// may be used by several scrapes at a time.
type collector struct{ Options }

// NewCollector returns the collector of every metric whose name begins with
// loom_; docs/metrics.md describes them. Options.Log is not used.
//
// What workers count for a port, a VNI, a peer or a next hop is summed over the workers,
// so that the number of series does not grow with that of ports times cores.
// Options.PerWorker shows what ports count, but for drops, of each worker.
func NewCollector(o Options) prometheus.Collector { return &collector{o} }

// Describe implements [prometheus.Collector].
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, s := range declared() {
		if c.PerWorker && s == counted {
			s = countedByWorker
		}
		for _, r := range s.rows {
			ch <- r.desc
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
			all = append(all, ofReceiver(s.Name, receiver), nowOfReceiver(s.Name, receiver))
		}
	}
	return all
}

// scrape is what one call of Collect works on.
type scrape struct {
	*collector
	ch      chan<- prometheus.Metric
	workers []dataplane.WorkerStats
	sum     dataplane.WorkerStats // of the workers
	t       *dataplane.Tables
	named   []dataplane.PortConfig // by PortID
}

// Collect implements [prometheus.Collector].
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	buildInfo.emit(ch, &buildView{Info: true}, c.Version, runtime.Version(), c.Role, c.Name)
	nodeInfo.emit(ch, &nodeView{Info: true}, c.Name, c.Role, c.vtep(), c.Overlay)
	st := c.Stats()
	s := scrape{c, ch, st.Workers, st.Sum(), c.Tables(), c.Ports()}
	// The tables are taken after the counters: they only grow, so that what was
	// counted has a name in them.
	if s.t == nil {
		s.t = &dataplane.Tables{}
	}
	for i := range s.workers {
		name := strconv.Itoa(i)
		if st.Fast && i == len(s.workers)-1 {
			name = "xdp"
		}
		s.worker(name, &s.workers[i])
	}
	s.ports(st.Ports)
	s.hops()
	if c.Role != "spined" {
		s.leaf()
		s.vnis()
		s.peers()
	}
	if c.Congestion != nil {
		s.congestion(c.Congestion())
	}
	if c.Paths != nil {
		s.paths(c.Paths())
	}
	if c.Auto != nil {
		if a := c.Auto(); a != nil {
			ofAuto.emit(ch, &a.AutoState)
		}
	}
	if c.Control != nil {
		m := c.Control()
		ofControl.emit(ch, &m)
	}
	if c.Bridge != nil {
		m := c.Bridge()
		ofBridge.emit(ch, &m)
	}
	if c.Findings != nil {
		s.findings(c.Findings())
	}
	if c.Reload != nil {
		r := c.Reload()
		ofReload.emit(ch, &r)
	}
	refused := c.Gate.Refused()
	byServer.emit(ch, &refused, "metrics")
	if c.AdminGate != nil {
		refused = c.AdminGate.Refused()
		byServer.emit(ch, &refused, "admin")
	}
}

// vtep returns the node's VTEP address, "" of a spine, which has none.
func (c *collector) vtep() string {
	if !c.VTEP.IsValid() {
		return ""
	}
	return c.VTEP.String()
}

// portName returns a port's interface; "": the port is gone.
func (s *scrape) portName(id int) string { return at(s.named, id).Name }

func (s *scrape) worker(worker string, w *dataplane.WorkerStats) {
	byWorker.emit(s.ch, w, worker)
	if s.Role != "spined" {
		fdbByWorker.emit(s.ch, &w.FDBStats, worker)
		lossByWorker.emit(s.ch, &w.LossStats, worker)
		exchangeByWorker.emit(s.ch, &w.Exchange, worker)
		for _, r := range w.Receivers {
			nowOfReceiver(r.Scheme, r.Stats).emit(s.ch, r.Stats, worker)
		}
	}
	if s.PerWorker {
		for i := range w.Ports {
			if name := s.portName(i); name != "" {
				countedByWorker.emit(s.ch, &w.Ports[i], name, worker)
			}
		}
	}
}

func (s *scrape) ports(infos []dataplane.PortInfo) {
	ofGone.emit(s.ch, &s.sum.Gone)
	for i := range infos {
		// Each worker reads the meter that all share, at its own time.
		info, state, sum := &infos[i], at(s.t.Ports, i), at(s.sum.Ports, i)
		name, egress := s.portName(i), at(s.named, i).Egress
		if name == "" {
			continue
		}
		if !s.PerWorker {
			counted.emit(s.ch, &sum, name)
		}
		dropsByPort.emit(s.ch, &dropsView{Drops: sum.Drops}, name)
		rate, _ := egress.Speed(state.Speed)
		byPort.emit(s.ch, &portView{
			Open: info.Open, Exists: state.Ifindex != 0, Up: state.Up, Rate: rate, MTU: state.MTU, NeedMTU: state.NeedMTU, Changed: info.Since, Utilisation: sum.Utilisation, Metric: sum.Metric,
		}, name)
		portInfo.emit(s.ch, &infoView{Info: true}, name, info.Kind.String(), info.XDPMode, info.CopyMode)
		for verdict, n := range info.Classifier {
			byVerdict.emit(s.ch, &verdictView{Frames: n}, name, verdict)
		}
	}
}

// findings counts findings by place and severity.
func (s *scrape) findings(all []control.Finding) {
	type key struct{ place, severity string }
	sums := make(map[key]*findingsView)
	for _, f := range all {
		entry(sums, key{f.Place, f.Severity()}).Findings++
	}
	for k, v := range sums {
		findings.emit(s.ch, v, k.place, k.severity)
	}
}

// Two IDs never have one key at a time, but a scrape with two series of the
// same labels would fail as a whole. So what follows sums by key.

func (s *scrape) vnis() {
	sums := make(map[overlay.VNI]*dataplane.VNIStats)
	for i := range s.t.VNIs {
		v := at(s.sum.VNIs, i)
		stat.Add(entry(sums, s.t.VNIs[i].VNI), &v)
	}
	delete(sums, 0) // the place of a VNI that is gone
	for vni, v := range sums {
		byVNI.emit(s.ch, v, strconv.FormatUint(uint64(vni), 10))
	}
}

func (s *scrape) peers() {
	sums := make(map[netip.Addr]*peerView)
	for i, p := range s.t.Peers {
		one := peerView{Sent: at(s.sum.PeerSent, i), Received: at(s.sum.PeerReceived, i), NextHops: len(p.Hops)}
		stat.Add(entry(sums, p.VTEP), &one)
	}
	delete(sums, netip.Addr{}) // the place of a peer that is gone
	for vtep, p := range sums {
		byPeer.emit(s.ch, p, vtep.String())
	}
}

func (s *scrape) hops() {
	type key struct {
		port    dataplane.PortID
		gateway netip.Addr
	}
	sums := make(map[key]*hopView)
	for i, h := range s.t.Hops {
		if !h.Gateway.IsValid() {
			continue // the place of a next hop that is gone
		}
		v, sent := entry(sums, key{h.Port, h.Gateway}), at(s.sum.HopSent, i)
		v.Resolved = v.Resolved || h.Resolved
		stat.Add(&v.Sent, &sent)
	}
	for k, v := range sums {
		if name := s.portName(int(k.port)); name != "" {
			byHop.emit(s.ch, v, name, k.gateway.String())
		}
	}
}

// floodPort is the label of frames that wait for all members of a VNI.
const floodPort = "flood"

// leaf shows what a leaf's workers have in common: messages, what was decided and
// received under each scheme that was in force since the start, and what waits for
// each port that leads out of the fabric.
func (s *scrape) leaf() {
	ofLeaf.emit(s.ch, &s.sum.Leaf)
	ofVTEP.emit(s.ch, &vtepView{Present: !s.t.NoVTEP})
	for i := range s.sum.Schemes {
		x := &s.sum.Schemes[i]
		byScheme.emit(s.ch, x, x.Scheme)
		if x.Own != nil {
			ofOwn(x.Scheme, x.Own).emit(s.ch, x.Own, x.Scheme)
		}
	}
	for i := range s.sum.Shadows {
		x := &s.sum.Shadows[i]
		byShadow.emit(s.ch, &x.ShadowCounts, strconv.Itoa(x.Class()), x.Scheme, x.Shadow)
	}
	for _, r := range s.sum.Receivers {
		ofReceiver(r.Scheme, r.Stats).emit(s.ch, r.Stats)
	}
	for i := range s.named {
		if c := &s.named[i]; c.Name != "" && c.Kind == dataplane.Access {
			use := at(s.sum.Waiting, i)
			waitingByPort.emit(s.ch, &use, c.Name)
		}
	}
	flood := at(s.sum.Waiting, len(s.sum.Waiting)-1)
	waitingByPort.emit(s.ch, &flood, floodPort)
}

// congestion shows the two tables of CONGA §3.3: of each peer at most 16
// entries each, and only those about which something is known.
func (s *scrape) congestion(peers []dataplane.PeerState) {
	seen := make(map[netip.Addr]bool)
	for i := range peers {
		p := &peers[i]
		if !p.VTEP.IsValid() || seen[p.VTEP] {
			continue // the place of a peer that is gone
		}
		seen[p.VTEP] = true
		vtep := p.VTEP.String()
		peerCapable.emit(s.ch, p, vtep)
		for i := range p.Paths {
			if u := &p.Paths[i]; u.RemoteKnown {
				toLeaf.emit(s.ch, u, vtep, strconv.Itoa(int(u.Uplink)))
			}
		}
		for i := range p.FromLeaf {
			fromLeaf.emit(s.ch, &p.FromLeaf[i], vtep, strconv.Itoa(int(p.FromLeaf[i].Tag)))
		}
	}
}

// paths shows the paths of which peers have said something of late.
func (s *scrape) paths(peers []dataplane.PeerPaths) {
	for i := range peers {
		for k := range peers[i].Paths {
			if p := &peers[i].Paths[k]; p.State != liveness.Unknown.String() {
				vtep, tag := peers[i].VTEP.String(), strconv.Itoa(int(p.Uplink))
				livePath.emit(s.ch, p, vtep, tag)
				pathInfo.emit(s.ch, &pathView{Info: true}, vtep, tag, p.Port, p.State)
			}
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

// at returns s[i], or zero: tables and counters may be of different ages.
func at[T any](s []T, i int) (v T) {
	if i >= 0 && i < len(s) {
		v = s[i]
	}
	return v
}
