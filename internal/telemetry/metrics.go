package telemetry

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/control"
	"github.com/loomfabric/loom/control/bridge"
	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/internal/httpd"
	"github.com/loomfabric/loom/internal/stat"
	"github.com/loomfabric/loom/leaf"
	"github.com/loomfabric/loom/reorder"
)

// set is the metrics that a type's table makes under labels which the collector
// gives. A field of a family adds a label of its own.
type set struct {
	labels []string
	rows   []row
}

// row is a field's metric.
type row struct {
	*stat.Field
	desc *prometheus.Desc
}

// newSet returns the metrics of a table's fields of the given kinds; none: of all.
func newSet(t *stat.Table, labels []string, kinds ...stat.Kind) *set {
	s := &set{labels: labels}
	for i := range t.Fields {
		f := &t.Fields[i]
		if f.Metric == "" || len(kinds) > 0 && !slices.Contains(kinds, f.Kind) {
			continue
		}
		s.rows = append(s.rows, row{Field: f, desc: prometheus.NewDesc(f.Metric, f.Help, s.labelsOf(f), nil)})
	}
	return s
}

func (s *set) labelsOf(f *stat.Field) []string {
	if f.Label == "" {
		return s.labels
	}
	return slices.Concat(s.labels, []string{f.Label})
}

// emit sends what v counted, a pointer to the set's type.
func (s *set) emit(ch chan<- prometheus.Metric, v any, values ...string) {
	for i := range s.rows {
		r, values := &s.rows[i], values
		if r.Label != "" {
			values = slices.Concat(values, []string{r.Value})
		}
		kind := prometheus.CounterValue
		switch r.Kind {
		case stat.Times:
			h := r.Pointer(v).(*reorder.Histogram)
			ch <- prometheus.MustNewConstHistogram(r.desc, h.N, h.Sum.Seconds(), cumulative(h), values...)
			continue
		case stat.Depth:
			d := r.Pointer(v).(*stat.Sizes)
			ch <- prometheus.MustNewConstHistogram(r.desc, d.N(), float64(d.Sum), below(d), values...)
			continue
		case stat.Gauge:
			kind = prometheus.GaugeValue
		}
		if n := r.Number(v); n != 0 || !r.Seen {
			ch <- prometheus.MustNewConstMetric(r.desc, kind, n, values...)
		}
	}
}

// cumulative returns how many times were below each bound. Of the four buckets
// that a histogram has to a power of two every second bound is shown: Prometheus
// keeps a series for each. The last bucket has no bound: it is +Inf's.
func cumulative(h *reorder.Histogram) map[float64]uint64 {
	buckets := make(map[float64]uint64, reorder.Buckets/2)
	sum := uint64(0)
	for i := range reorder.Buckets - 1 {
		sum += h.Counts[i]
		if i%2 == 1 {
			buckets[reorder.Upper(i).Seconds()] = sum
		}
	}
	return buckets
}

// below returns how many sizes were at most each bound.
func below(d *stat.Sizes) map[float64]uint64 {
	buckets := make(map[float64]uint64, stat.SizeBuckets)
	sum := uint64(0)
	for i := range stat.SizeBuckets - 1 {
		sum += d.Counts[i]
		buckets[float64(stat.UpperSize(i))] = sum
	}
	return buckets
}

// What the collector works out itself has tables, too.

// buildView, nodeView, infoView and pathView are always 1.
type (
	buildView struct {
		_    struct{} `stat:"build"`
		Info bool     `stat:"info" help:"Always 1; the labels say what runs."`
	}
	nodeView struct {
		_    struct{} `stat:"node"`
		Info bool     `stat:"info" help:"Always 1; the labels say who the node is. vtep joins what other leaves show of this one as their peer."`
	}
	pathView struct {
		_    struct{} `stat:"path"`
		Info bool     `stat:"info" help:"Always 1; the labels say by which interface the path leaves, and what the peer says of it: alive, silent, lossy or narrow."`
	}
	infoView struct {
		_    struct{} `stat:"port"`
		Info bool     `stat:"info" help:"Always 1; the labels say what the port faces and what the kernel granted (empty while it is not open)."`
	}
)

// portView is what is known of a port beside the workers' counters.
type portView struct {
	_           struct{}  `stat:"port"`
	Open        bool      `stat:"open" help:"1 while the port's sockets are bound."`
	Exists      bool      `stat:"exists" help:"1 while there is an interface of the port's name."`
	Up          bool      `stat:"up" help:"1 while the interface exists, is up and has carrier."`
	Utilisation float64   `stat:"utilisation_ratio" help:"Share of the link rate that is sent (DRE), all workers together; 0 when the rate is unknown."`
	Metric      uint8     `stat:"congestion_metric" help:"The same, quantised to Q bits: what CE is raised to."`
	Rate        uint64    `stat:"link_rate,gauge" unit:"bps" help:"Bits per second of the link, as its meter takes them: those of the shaper, of link_rate or of the kernel; 0 when nobody says them, and CONGA is blind."`
	MTU         int       `stat:"mtu,gauge" unit:"bytes" help:"MTU of the interface; 0 while it does not exist."`
	NeedMTU     int       `stat:"mtu_needed,gauge" unit:"bytes" help:"MTU that a port towards the fabric needs for the longest packets: on a leaf that of its hosts and the tunnel's overhead, on a spine that of its widest port; 0: unknown, or an access port."`
	Changed     time.Time `stat:"changed_timestamp" help:"Unix time at which the port was opened or closed last; 0 if never."`
}

// findingsView is how much the checks find that are repeated while the node runs.
type findingsView struct {
	_        struct{} `stat:"check"`
	Findings uint64   `stat:"findings,gauge" help:"Start-up checks, repeated every 5 s, that find something wrong with an interface now, by interface and severity (warning, error); the log says what. No series: nothing."`
}

// dropsView is what all workers together dropped of a port's frames. Each reason is
// shown from the start, so that a rate sees the first drop; of each worker that would be
// too many series.
type dropsView struct {
	_     struct{}    `stat:"port"`
	Drops drop.Counts `stat:"drops" metric:"loom_drops" help:"Frames discarded, by the port that they came in by."`
}

// verdictView is what an XDP program did with frames.
type verdictView struct {
	_      struct{} `stat:"classifier"`
	Frames uint64   `stat:"frames" help:"Frames that the port's XDP program saw, by what it did with them."`
}

// peerView is a peer as all workers together see it.
type peerView struct {
	_        struct{}          `stat:"peer"`
	Sent     dataplane.Traffic `stat:"sent" help:"put into the tunnel to the peer, outer headers included"`
	Received dataplane.Traffic `stat:"received" help:"that came out of the tunnel from the peer, outer headers included"`
	NextHops int               `stat:"next_hops,gauge" help:"Next hops that lead to the peer by a port that is up; 0 when it cannot be reached."`
}

// hopView is a next hop as all workers together see it.
type hopView struct {
	_        struct{}          `stat:"next_hop"`
	Sent     dataplane.Traffic `stat:"sent" help:"sent to the next hop"`
	Resolved bool              `stat:"resolved" help:"1 while the next hop's MAC address is known."`
}

// vtepView is what is known of a leaf's own VTEP.
type vtepView struct {
	_       struct{} `stat:"vtep"`
	Present bool     `stat:"present" help:"1 while the VTEP is an address of this machine."`
}

// fixed are the sets that every node has, or could have.
var fixed []*set

// of returns the metrics of T's table, which are fixed.
func of[T any](labels ...string) *set {
	s := newSet(stat.TableOf(new(T), ""), labels)
	fixed = append(fixed, s)
	return s
}

// Metrics by where they are shown, in the order of docs/metrics.md.
var (
	buildInfo   = of[buildView]("version", "goversion", "role", "node")
	nodeInfo    = of[nodeView]("node", "role", "vtep", "overlay")
	byWorker    = of[dataplane.WorkerStats]("worker")
	counted     = of[dataplane.PortStats]("port")
	ofGone      = of[dataplane.GoneStats]()
	dropsByPort = of[dropsView]("port")
	byPort      = of[portView]("port")
	portInfo    = of[infoView]("port", "kind", "xdp", "copy")
	findings    = of[findingsView]("port", "severity")
	byVerdict   = of[verdictView]("port", "verdict")
	byHop       = of[hopView]("port", "gateway")
	ofControl   = of[control.Stats]()
	ofBridge    = of[bridge.Stats]()
	ofReload    = of[Reload]()
	byServer    = of[httpd.Refused]("server")

	// A leaf's only.
	fdbByWorker      = of[dataplane.FDBStats]("worker")
	lossByWorker     = of[dataplane.LossStats]("worker")
	exchangeByWorker = of[congestion.ExchangeStats]("worker")
	byVNI            = of[dataplane.VNIStats]("vni")
	byPeer           = of[peerView]("peer")
	peerCapable      = of[dataplane.PeerState]("peer")
	toLeaf           = of[dataplane.PathState]("peer", "tag")
	livePath         = of[dataplane.LivePath]("peer", "tag")
	pathInfo         = of[pathView]("peer", "tag", "port", "state")
	fromLeaf         = of[dataplane.TagMetric]("peer", "tag")
	ofLeaf           = of[leaf.Stats]()
	ofVTEP           = of[vtepView]()
	byScheme         = of[leaf.SchemeStats]("scheme")
	byShadow         = of[leaf.ShadowCounts]("class", "scheme", "shadow")
	waitingByPort    = of[reorder.PortUse]("port")
	ofAuto           = of[leaf.AutoState]()
)

// countedByWorker is shown in place of counted with Options.PerWorker.
var countedByWorker = newSet(stat.TableOf(new(dataplane.PortStats), ""), []string{"port", "worker"})

// schemes are the sets of what only one scheme or its receiver counts, by table and
// labels. They are made when they are first shown.
var schemes sync.Map

func ofScheme(v any, name string, labels []string, kinds ...stat.Kind) *set {
	t := stat.TableOf(v, strings.ReplaceAll(name, "-", "_"))
	key := struct {
		*stat.Table
		labels int
	}{t, len(labels)}
	s, ok := schemes.Load(key)
	if !ok {
		s, _ = schemes.LoadOrStore(key, newSet(t, labels, kinds...))
	}
	return s.(*set)
}

// ofOwn returns the metrics of a scheme's own counters.
func ofOwn(scheme string, own any) *set {
	return ofScheme(own, scheme, []string{"scheme"})
}

// ofReceiver returns the metrics of what a receiver counts, summed over the workers.
func ofReceiver(scheme string, stats any) *set {
	return ofScheme(stats, scheme+"_receiver", nil, stat.Counter, stat.Times, stat.Depth)
}

// nowOfReceiver returns those of what is there now, which each worker shows.
func nowOfReceiver(scheme string, stats any) *set {
	return ofScheme(stats, scheme+"_receiver", []string{"worker"}, stat.Gauge)
}
