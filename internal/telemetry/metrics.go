package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/control"
	"github.com/loomfabric/loom/dataplane"
)

// metric is one metric name: what docs/metrics.md has a row for.
type metric struct {
	name, help string
	kind       prometheus.ValueType
	labels     []string
	desc       *prometheus.Desc
}

// histogramValue is the kind of a histogram, which Prometheus has no ValueType of.
const histogramValue prometheus.ValueType = 0

// all lists every metric, in the order in which they are declared.
var all []*metric

func newMetric(kind prometheus.ValueType, labels []string, name, help string) *metric {
	m := &metric{name: name, help: help, kind: kind, labels: labels, desc: prometheus.NewDesc(name, help, labels, nil)}
	all = append(all, m)
	return m
}

func (m *metric) emit(ch chan<- prometheus.Metric, v float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(m.desc, m.kind, v, labels...)
}

// field is a metric that shows one number of a T.
type field[T any] struct {
	*metric
	of func(*T) float64
}

// group is metrics of the same labels, shown of the same T.
type group[T any] struct {
	labels []string
	fields []field[T]
}

func (g *group[T]) count(name, help string, of func(*T) uint64) {
	g.fields = append(g.fields, field[T]{newMetric(prometheus.CounterValue, g.labels, name, help), func(t *T) float64 { return float64(of(t)) }})
}

func (g *group[T]) gauge(name, help string, of func(*T) float64) {
	g.fields = append(g.fields, field[T]{newMetric(prometheus.GaugeValue, g.labels, name, help), of})
}

// traffic declares a metric of frames and one of bytes.
func (g *group[T]) traffic(prefix, what string, of func(*T) dataplane.Traffic) {
	g.count(prefix+"_frames_total", "Frames "+what+".", func(t *T) uint64 { return of(t).Frames })
	g.count(prefix+"_bytes_total", "Bytes of frames "+what+".", func(t *T) uint64 { return of(t).Bytes })
}

func (g *group[T]) emit(ch chan<- prometheus.Metric, t *T, labels ...string) {
	for _, f := range g.fields {
		f.metric.emit(ch, f.of(t), labels...)
	}
}

// Metrics with rules of their own.
var (
	buildInfo = newMetric(prometheus.GaugeValue, []string{"version", "goversion", "role"}, "loom_build_info",
		"Always 1; the labels say what runs.")
	drops = newMetric(prometheus.CounterValue, []string{"port", "worker", "reason"}, "loom_drops_total",
		"Frames discarded, by the port that they came in by. A reason is shown once it has occurred.")
	portInfo = newMetric(prometheus.GaugeValue, []string{"port", "kind", "xdp", "copy"}, "loom_port_info",
		"Always 1; the labels say what the port faces and what the kernel granted (empty while it is not open).")
	classified = newMetric(prometheus.CounterValue, []string{"port", "verdict"}, "loom_classifier_frames_total",
		"Frames that the port's XDP program saw, by what it did with them.")
	peerCapable = newMetric(prometheus.GaugeValue, []string{"peer"}, "loom_peer_capable",
		"1 while the peer proves that it reads the fabric's fields; 0: it is sent plain VXLAN.")
)

// peerView is a peer as all workers together see it.
type peerView struct {
	sent, received dataplane.Traffic
	hops           int
}

// portView is what is known of a port beside the workers' counters.
type portView struct {
	info        *dataplane.PortInfo
	state       dataplane.PortState // zero before the first tables
	utilisation float64
	metric      uint8
}

// hopView is a next hop as all workers together see it.
type hopView struct {
	sent     dataplane.Traffic
	resolved bool
}

// kindView is one kind of kernel object of a mirror.
type kindView struct{ lists, errors uint64 }

var (
	byWorker     = workerMetrics()
	fdbByWorker  = fdbMetrics()
	byPortWorker = portWorkerMetrics()
	byPort       = portMetrics()
	byVNI        = vniMetrics()
	byPeer       = peerMetrics()
	byHop        = hopMetrics()
	byKind       = kindMetrics()
	byScheme     = schemeMetrics()
	toLeaf       = pathMetrics("loom_congestion_to_leaf", "from here to the peer that start on the uplink of this tag, as the peer reported it")
	fromLeaf     = pathMetrics("loom_congestion_from_leaf", "from the peer to here that start on its uplink of this tag, as it was measured")

	exchangeByWorker = exchangeMetrics()
	ofControl        = controlMetrics()
	ofReload         = reloadMetrics()
)

func workerMetrics() (g group[dataplane.WorkerStats]) {
	type w = dataplane.WorkerStats
	g.labels = []string{"worker"}
	g.count("loom_worker_made_frames_total", "Frames made here: copies for flooding, and the fabric's own control packets.", func(s *w) uint64 { return s.Made })
	g.count("loom_worker_consumed_frames_total", "Control packets of the fabric that ended here, as they should.", func(s *w) uint64 { return s.Consumed })
	g.gauge("loom_worker_held_frames", "Frames inside: in queues, in delay lines and waiting for neighbours.",
		func(s *w) float64 { return float64(s.Held) })
	g.count("loom_worker_bursts_total", "Rounds that the worker made over its ports, each with a burst or none.", func(s *w) uint64 { return s.Bursts })
	g.count("loom_worker_sleeps_total", "Times the worker slept for want of work.", func(s *w) uint64 { return s.Sleeps })
	return g
}

func fdbMetrics() (g group[dataplane.WorkerStats]) {
	type w = dataplane.WorkerStats
	g.labels = []string{"worker"}
	g.gauge("loom_fdb_entries", "MAC addresses in the worker's table.", func(s *w) float64 { return float64(s.FDBEntries) })
	g.count("loom_fdb_learned_total", "MAC addresses learned.", func(s *w) uint64 { return s.FDBLearned })
	g.count("loom_fdb_moved_total", "Learned MAC addresses that appeared elsewhere.", func(s *w) uint64 { return s.FDBMoved })
	g.count("loom_fdb_aged_total", "Learned MAC addresses forgotten because they were not seen for long.", func(s *w) uint64 { return s.FDBAged })
	g.count("loom_fdb_full_total", "MAC addresses not learned because the table, its bucket or the VNI's share was full.",
		func(s *w) uint64 { return s.FDBFull })
	g.count("loom_fdb_static_total", "MAC addresses not learned because they are configured elsewhere.", func(s *w) uint64 { return s.FDBStatic })
	g.count("loom_fdb_gossip_lost_total", "Learned MAC addresses that other workers were not told of.", func(s *w) uint64 { return s.GossipLost })
	return g
}

func portWorkerMetrics() (g group[dataplane.PortStats]) {
	type p = dataplane.PortStats
	g.labels = []string{"port", "worker"}
	g.traffic("loom_port_received", "received", func(s *p) dataplane.Traffic { return s.Received })
	g.traffic("loom_port_sent", "sent", func(s *p) dataplane.Traffic { return s.Sent })
	g.traffic("loom_port_marked", "on which congestion was marked here (ECN CE)", func(s *p) dataplane.Traffic { return s.Marked })
	g.gauge("loom_port_queue_bytes", "Bytes in the data queue.", func(s *p) float64 { return float64(s.QueueBytes) })
	g.gauge("loom_port_queue_peak_bytes", "Most bytes that the data queue has held.", func(s *p) float64 { return float64(s.QueuePeak) })
	g.gauge("loom_port_queue_frames", "Frames in the data queue.", func(s *p) float64 { return float64(s.QueueFrames) })
	g.count("loom_port_ce_raised_frames_total", "Frames whose CE, the congestion that they met so far, was raised to the port's metric.",
		func(s *p) uint64 { return s.CERaised })
	g.count("loom_port_tx_abandoned_frames_total", "Frames counted as sent that were on the TX ring when the interface vanished.",
		func(s *p) uint64 { return s.TXAbandoned })
	g.count("loom_port_metadata_missing_frames_total", "Frames parsed again because the XDP program left no metadata.",
		func(s *p) uint64 { return s.MetaMissing })
	g.count("loom_xsk_rx_dropped_total", "Frames that the kernel dropped before the RX ring for another reason than a full ring.",
		func(s *p) uint64 { return s.RXDropped })
	g.count("loom_xsk_rx_ring_full_total", "Frames that the kernel dropped because the RX ring was full.", func(s *p) uint64 { return s.RXRingFull })
	g.count("loom_xsk_fill_ring_empty_total", "Times the kernel found no frame to receive into.", func(s *p) uint64 { return s.FillEmpty })
	g.count("loom_xsk_rx_invalid_descriptors_total", "Descriptors on the fill ring that the kernel refused.", func(s *p) uint64 { return s.RXInvalid })
	g.count("loom_xsk_tx_invalid_descriptors_total", "Descriptors on the TX ring that the kernel refused.", func(s *p) uint64 { return s.TXInvalid })
	g.count("loom_xsk_tx_ring_empty_total", "Times the kernel found the TX ring empty.", func(s *p) uint64 { return s.TXEmpty })
	g.count("loom_xsk_tx_ring_full_total", "Times the TX ring had no room for what was to be sent.", func(s *p) uint64 { return s.TXFull })
	g.count("loom_xsk_kicks_total", "System calls that told the kernel to send.", func(s *p) uint64 { return s.Kicks })
	g.count("loom_xsk_kick_again_total", "Kicks that the kernel was too busy for and that were repeated.", func(s *p) uint64 { return s.KickAgain })
	g.count("loom_xsk_kick_errors_total", "Kicks that failed, as while the link is down.", func(s *p) uint64 { return s.KickErrors })
	return g
}

func portMetrics() (g group[portView]) {
	g.labels = []string{"port"}
	g.gauge("loom_port_open", "1 while the port's sockets are bound.", func(v *portView) float64 { return truth(v.info.Open) })
	g.gauge("loom_port_up", "1 while the interface exists, is up and has carrier.", func(v *portView) float64 { return truth(v.state.Up) })
	g.gauge("loom_port_utilisation_ratio", "Share of the link rate that is sent (DRE), all workers together; 0 when the rate is unknown.",
		func(v *portView) float64 { return v.utilisation })
	g.gauge("loom_port_congestion_metric", "The same, quantised to Q bits: what CE is raised to.",
		func(v *portView) float64 { return float64(v.metric) })
	g.gauge("loom_port_mtu_bytes", "MTU of the interface; 0 while it does not exist.", func(v *portView) float64 { return float64(v.state.MTU) })
	g.gauge("loom_port_changed_timestamp_seconds", "Unix time at which the port was opened or closed last; 0 if never.", func(v *portView) float64 {
		if v.info.Since.IsZero() {
			return 0
		}
		return float64(v.info.Since.UnixNano()) / 1e9
	})
	return g
}

func vniMetrics() (g group[dataplane.VNIStats]) {
	type v = dataplane.VNIStats
	g.labels = []string{"vni"}
	g.traffic("loom_vni_encapsulated", "of the VNI put into tunnels, replicas included, outer headers not", func(s *v) dataplane.Traffic { return s.Encapsulated })
	g.traffic("loom_vni_decapsulated", "of the VNI taken out of tunnels, outer headers not included", func(s *v) dataplane.Traffic { return s.Decapsulated })
	g.traffic("loom_vni_local", "of the VNI forwarded to an access port of the leaf they came in by", func(s *v) dataplane.Traffic { return s.Local })
	g.traffic("loom_vni_flooded", "of the VNI flooded, each once, however many copies were made", func(s *v) dataplane.Traffic { return s.Flooded })
	g.gauge("loom_vni_fdb_entries", "MAC addresses of the VNI in the fullest worker's table.", func(s *v) float64 { return float64(s.FDBEntries) })
	return g
}

func peerMetrics() (g group[peerView]) {
	g.labels = []string{"peer"}
	g.traffic("loom_peer_sent", "put into the tunnel to the peer, outer headers included", func(v *peerView) dataplane.Traffic { return v.sent })
	g.traffic("loom_peer_received", "that came out of the tunnel from the peer, outer headers included", func(v *peerView) dataplane.Traffic { return v.received })
	g.gauge("loom_peer_next_hops", "Next hops that lead to the peer by a port that is up; 0 when it cannot be reached.",
		func(v *peerView) float64 { return float64(v.hops) })
	return g
}

func hopMetrics() (g group[hopView]) {
	g.labels = []string{"port", "gateway"}
	g.traffic("loom_next_hop_sent", "sent to the next hop", func(v *hopView) dataplane.Traffic { return v.sent })
	g.gauge("loom_next_hop_resolved", "1 while the next hop's MAC address is known.", func(v *hopView) float64 { return truth(v.resolved) })
	return g
}

func schemeMetrics() (g group[balance.Stats]) {
	type s = balance.Stats
	g.labels = []string{"scheme"}
	g.count("loom_scheme_decisions_total", "Times that the scheme chose a path: for each frame, or for each flowlet.", func(v *s) uint64 { return v.Decisions })
	g.count("loom_scheme_flowlets_started_total", "Flowlets that were given an uplink.", func(v *s) uint64 { return v.Flowlets.Started })
	g.count("loom_scheme_flowlets_moved_total", "Flowlets started on another uplink than the flow's last one.", func(v *s) uint64 { return v.Flowlets.Moved })
	g.count("loom_scheme_flowlets_kept_total", "Flowlets started on the uplink of the flow's last one.", func(v *s) uint64 { return v.Flowlets.Kept })
	g.count("loom_scheme_flowlets_expired_total", "Flowlets started after a pause that ended the flow's last one.", func(v *s) uint64 { return v.Flowlets.Expired })
	return g
}

func pathMetrics(prefix, of string) (g group[dataplane.TagMetric]) {
	type m = dataplane.TagMetric
	g.labels = []string{"peer", "tag"}
	g.gauge(prefix+"_metric", "Congestion of the paths "+of+".", func(s *m) float64 { return float64(s.Metric) })
	g.gauge(prefix+"_age_seconds", "Time since "+prefix+"_metric was confirmed, to 1/16 of the ageing time.", func(s *m) float64 { return s.Age.Seconds() })
	return g
}

func exchangeMetrics() (g group[congestion.ExchangeStats]) {
	type x = congestion.ExchangeStats
	g.labels = []string{"worker"}
	g.count("loom_exchange_plain_frames_total", "Frames sent as plain VXLAN because their peer has not proved that it reads the fabric's fields.", func(s *x) uint64 { return s.Plain })
	g.count("loom_exchange_stamped_frames_total", "Frames sent with the fabric's fields.", func(s *x) uint64 { return s.Stamped })
	g.count("loom_exchange_arrived_frames_total", "Frames received with the fabric's fields.", func(s *x) uint64 { return s.Arrived })
	g.count("loom_exchange_congested_arrived_frames_total", "Frames received whose CE says that they met congestion.", func(s *x) uint64 { return s.CongestedArrived })
	g.count("loom_exchange_feedback_sent_total", "Frames sent that take feedback to their peer.", func(s *x) uint64 { return s.FeedbackSent })
	g.count("loom_exchange_feedback_stale_total", "Metrics not fed back any more: when their turn came they had not been confirmed for the ageing time. Each is counted once until it is measured again.", func(s *x) uint64 { return s.FeedbackStale })
	g.count("loom_exchange_feedback_received_total", "Feedback received and believed.", func(s *x) uint64 { return s.FeedbackReceived })
	g.count("loom_exchange_feedback_bad_tag_total", "Feedback ignored because this leaf has no such uplink.", func(s *x) uint64 { return s.FeedbackBadTag })
	g.count("loom_exchange_feedback_bad_value_total", "Feedback or CE ignored because it is above what Q bits allow.", func(s *x) uint64 { return s.FeedbackBadValue })
	return g
}

func kindMetrics() (g group[kindView]) {
	g.labels = []string{"kind"}
	g.count("loom_control_lists_total", "Times the kernel's objects of a kind were listed.", func(v *kindView) uint64 { return v.lists })
	g.count("loom_control_list_errors_total", "Lists that failed and were tried again.", func(v *kindView) uint64 { return v.errors })
	return g
}

func controlMetrics() (g group[control.Stats]) {
	type s = control.Stats
	g.count("loom_control_tables_published_total", "Tables given to the data plane.", func(c *s) uint64 { return c.Published })
	g.count("loom_control_resolves_total", "Requests to the kernel to resolve or confirm a neighbour.", func(c *s) uint64 { return c.Resolves })
	g.gauge("loom_control_unresolved_next_hops", "Next hops without a MAC address.", func(c *s) float64 { return float64(c.Unresolved) })
	g.count("loom_control_table_full_total", "Times a next hop, peer or VNI was left out because the tables were full.",
		func(c *s) uint64 { return uint64(c.TableFull) })
	return g
}

// reloadMetrics are named as Prometheus names its own.
func reloadMetrics() (g group[Reload]) {
	g.gauge("loom_config_last_reload_successful", "1 if the configuration file was taken over, or found unchanged, when it was read last; 0: it was refused, and the older one is in force.",
		func(r *Reload) float64 { return truth(r.Successful) })
	g.gauge("loom_config_last_reload_success_timestamp_seconds", "Unix time at which the configuration file was last read with success: at the start, or at a SIGHUP.",
		func(r *Reload) float64 { return float64(r.LastSuccess.UnixNano()) / 1e9 })
	return g
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
