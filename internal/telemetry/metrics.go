package telemetry

import (
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/control"
	"github.com/loomfabric/loom/dataplane"
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

// row is a field's metric, and of a histogram the one of the longest time in it,
// which buckets do not show.
type row struct {
	*stat.Field
	desc, longest *prometheus.Desc
}

// newSet returns the metrics of a table's fields of the given kinds; of all fields if
// none are given.
func newSet(t *stat.Table, labels []string, kinds ...stat.Kind) *set {
	s := &set{labels: labels}
	for i := range t.Fields {
		f := &t.Fields[i]
		if len(kinds) > 0 && !slices.Contains(kinds, f.Kind) {
			continue
		}
		r := row{Field: f, desc: prometheus.NewDesc(f.Metric, f.Help, s.labelsOf(f), nil)}
		if f.Kind == stat.Times {
			r.longest = prometheus.NewDesc(f.Longest, longestHelp(f), s.labelsOf(f), nil)
		}
		s.rows = append(s.rows, r)
	}
	return s
}

func longestHelp(f *stat.Field) string { return "The longest of " + f.Metric + " since the start." }

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
			ch <- prometheus.MustNewConstMetric(r.longest, prometheus.GaugeValue, h.Max.Seconds(), values...)
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

// What the collector works out itself has tables, too.

// buildView and infoView are always 1.
type (
	buildView struct {
		_    struct{} `stat:"build"`
		Info bool     `stat:"info" help:"Always 1; the labels say what runs."`
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
	Up          bool      `stat:"up" help:"1 while the interface exists, is up and has carrier."`
	Utilisation float64   `stat:"utilisation_ratio" help:"Share of the link rate that is sent (DRE), all workers together; 0 when the rate is unknown."`
	Metric      uint8     `stat:"congestion_metric" help:"The same, quantised to Q bits: what CE is raised to."`
	MTU         int       `stat:"mtu,gauge" unit:"bytes" help:"MTU of the interface; 0 while it does not exist."`
	Changed     time.Time `stat:"changed_timestamp" help:"Unix time at which the port was opened or closed last; 0 if never."`
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

// capableView is what a peer has proved.
type capableView struct {
	_       struct{} `stat:"peer"`
	Capable bool     `stat:"capable" help:"1 while the peer proves that it reads the fabric's fields; 0: it is sent plain VXLAN."`
}

// hopView is a next hop as all workers together see it.
type hopView struct {
	_        struct{}          `stat:"next_hop"`
	Sent     dataplane.Traffic `stat:"sent" help:"sent to the next hop"`
	Resolved bool              `stat:"resolved" help:"1 while the next hop's MAC address is known."`
}

// toLeafView and fromLeafView are entries of the two tables of CONGA §3.3.
type (
	toLeafView struct {
		_      struct{}      `stat:"congestion_to_leaf"`
		Metric uint8         `stat:"metric" help:"Congestion of the paths from here to the peer that start on the uplink of this tag, as the peer reported it."`
		Age    time.Duration `stat:"age" help:"Time since loom_congestion_to_leaf_metric was confirmed, to 1/16 of the ageing time."`
	}
	fromLeafView struct {
		_      struct{}      `stat:"congestion_from_leaf"`
		Metric uint8         `stat:"metric" help:"Congestion of the paths from the peer to here that start on its uplink of this tag, as it was measured."`
		Age    time.Duration `stat:"age" help:"Time since loom_congestion_from_leaf_metric was confirmed, to 1/16 of the ageing time."`
	}
)

// Metrics by where they are shown.
var (
	buildInfo    = newSet(stat.TableOf(&buildView{}, ""), []string{"version", "goversion", "role"})
	byWorker     = newSet(stat.TableOf(&dataplane.WorkerStats{}, ""), []string{"worker"})
	byPortWorker = newSet(stat.TableOf(&dataplane.PortStats{}, ""), []string{"port", "worker"})
	byPort       = newSet(stat.TableOf(&portView{}, ""), []string{"port"})
	portInfo     = newSet(stat.TableOf(&infoView{}, ""), []string{"port", "kind", "xdp", "copy"})
	byVerdict    = newSet(stat.TableOf(&verdictView{}, ""), []string{"port", "verdict"})
	byHop        = newSet(stat.TableOf(&hopView{}, ""), []string{"port", "gateway"})
	ofControl    = newSet(stat.TableOf(&control.Stats{}, ""), nil)
	ofReload     = newSet(stat.TableOf(&Reload{}, ""), nil)

	// A leaf's only.
	fdbByWorker      = newSet(stat.TableOf(&dataplane.FDBStats{}, ""), []string{"worker"})
	lossByWorker     = newSet(stat.TableOf(&dataplane.LossStats{}, ""), []string{"worker"})
	exchangeByWorker = newSet(stat.TableOf(&congestion.ExchangeStats{}, ""), []string{"worker"})
	byVNI            = newSet(stat.TableOf(&dataplane.VNIStats{}, ""), []string{"vni"})
	byPeer           = newSet(stat.TableOf(&peerView{}, ""), []string{"peer"})
	peerCapable      = newSet(stat.TableOf(&capableView{}, ""), []string{"peer"})
	toLeaf           = newSet(stat.TableOf(&toLeafView{}, ""), []string{"peer", "tag"})
	fromLeaf         = newSet(stat.TableOf(&fromLeafView{}, ""), []string{"peer", "tag"})
	ofLeaf           = newSet(stat.TableOf(&leaf.Stats{}, ""), nil)
	byScheme         = newSet(stat.TableOf(&leaf.SchemeStats{}, ""), []string{"scheme"})
	waitingByPort    = newSet(stat.TableOf(&reorder.PortUse{}, ""), []string{"port"})
	ofAuto           = newSet(stat.TableOf(&leaf.AutoState{}, ""), nil)
)

// fixed are the sets that every node has, or could have.
var fixed = []*set{
	buildInfo, byWorker, byPortWorker, byPort, portInfo, byVerdict, byHop, ofControl, ofReload, fdbByWorker, lossByWorker,
	exchangeByWorker, byVNI, byPeer, peerCapable, toLeaf, fromLeaf, ofLeaf, byScheme, waitingByPort, ofAuto,
}

// ownKey tells the sets of schemes apart.
type ownKey struct {
	t      reflect.Type
	scheme string
}

// ownSets are the sets of schemes' own counters; receiverSets those of receivers: what
// is summed over the workers, and what is each worker's.
var ownSets, receiverSets sync.Map

// ofOwn returns the metrics of a scheme's own counters.
func ofOwn(scheme string, own any) *set {
	k := ownKey{reflect.TypeOf(own), scheme}
	s, ok := ownSets.Load(k)
	if !ok {
		s, _ = ownSets.LoadOrStore(k, newSet(stat.TableOf(own, tableName(scheme)), []string{"scheme"}))
	}
	return s.(*set)
}

// ofReceiver returns the metrics of a receiver: the counters, which are summed over
// the workers, and what is there now, which each worker shows.
func ofReceiver(scheme string, stats any) (sum, byWorker *set) {
	k := ownKey{reflect.TypeOf(stats), scheme}
	s, ok := receiverSets.Load(k)
	if !ok {
		t := stat.TableOf(stats, tableName(scheme)+"_receiver")
		s, _ = receiverSets.LoadOrStore(k, [2]*set{
			newSet(t, nil, stat.Counter, stat.Times), newSet(t, []string{"worker"}, stat.Gauge),
		})
	}
	both := s.([2]*set)
	return both[0], both[1]
}

// tableName makes a scheme's name one for metrics.
func tableName(scheme string) string { return strings.ReplaceAll(scheme, "-", "_") }
