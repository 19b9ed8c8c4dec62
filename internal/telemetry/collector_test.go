package telemetry

import (
	"flag"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/control"
	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/internal/drop"
	"github.com/loomfabric/loom/leaf"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

var update = flag.Bool("update", false, "rewrite the tables of docs/metrics.md")

// gather scrapes a collector as the server does: a wrong or doubled metric is
// an error.
func gather(t *testing.T, o Options) []*dto.MetricFamily {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(NewCollector(o))
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// values are the samples of a scrape, by name and labels as Prometheus writes
// them.
func values(families []*dto.MetricFamily) map[string]float64 {
	out := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			if h := m.GetHistogram(); h != nil {
				out[f.GetName()+"_count{"+strings.Join(labels, ",")+"}"] = float64(h.GetSampleCount())
				out[f.GetName()+"_sum{"+strings.Join(labels, ",")+"}"] = h.GetSampleSum()
				for _, b := range h.Bucket {
					le := append(slices.Clip(labels), fmt.Sprintf("le=%q", strconv.FormatFloat(b.GetUpperBound(), 'g', -1, 64)))
					out[f.GetName()+"_bucket{"+strings.Join(le, ",")+"}"] = float64(b.GetCumulativeCount())
				}
				continue
			}
			out[f.GetName()+"{"+strings.Join(labels, ",")+"}"] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return out
}

func TestMetricsFollowPrometheusHabits(t *testing.T) {
	problems, err := testutil.CollectAndLint(NewCollector(newFake().options()))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// Every number that the data plane and the mirror count is a sample's value.
func TestEveryCounterIsVisible(t *testing.T) {
	f := newFake()
	// One worker: what is summed over workers stays what it is.
	f.stats.Workers = f.stats.Workers[:1]
	want := make(map[string]float64)
	numbers(reflect.ValueOf(f.stats.Workers[0]), "Worker", want)
	numbers(reflect.ValueOf(f.control), "Control", want)
	numbers(reflect.ValueOf(f.bridge), "Bridge", want)
	if len(want) < 60 {
		t.Fatalf("only %d numbers: the test does not look at the counters", len(want))
	}
	seen := make(map[float64]bool)
	for _, v := range values(gather(t, f.options())) {
		seen[v] = true
	}
	for path, v := range want {
		if !seen[v] {
			t.Errorf("%s (%v) is no metric", path, v)
		}
	}
}

// own returns what ConWeave's source side counted in a worker of the fake, received
// what its destination side did.
func own(w []dataplane.WorkerStats, worker int) *balance.ConWeaveStats {
	return w[worker].Schemes[2].Own.(*balance.ConWeaveStats)
}

func received(w []dataplane.WorkerStats, worker int) *reorder.Stats {
	return w[worker].Receivers[0].Stats.(*reorder.Stats)
}

func TestSamples(t *testing.T) {
	f := newFake()
	w := f.stats.Workers
	w[0].Ports[1].Drops, w[1].Ports[1].Drops = drop.Counts{drop.QueueFull: 2}, drop.Counts{drop.QueueFull: 5}
	w[0].Ports[1].Utilisation, w[1].Ports[1].Utilisation = 0.25, 0.125
	w[0].Ports[1].Metric, w[1].Ports[1].Metric = 5, 6
	got := values(gather(t, f.options()))
	for name, want := range map[string]float64{
		`loom_port_received_frames_total{port="host0"}`:                          float64(w[0].Ports[0].Received.Frames + w[1].Ports[0].Received.Frames),
		`loom_port_sent_bytes_total{port="up0"}`:                                 float64(w[0].Ports[1].Sent.Bytes + w[1].Ports[1].Sent.Bytes),
		`loom_port_queue_bytes{port="up0"}`:                                      float64(w[0].Ports[1].QueueBytes + w[1].Ports[1].QueueBytes),
		`loom_port_queue_depth_bytes_count{port="up0"}`:                          float64(w[0].Ports[1].QueueDepth.N() + w[1].Ports[1].QueueDepth.N()),
		`loom_port_queue_depth_bytes_sum{port="up0"}`:                            float64(w[0].Ports[1].QueueDepth.Sum + w[1].Ports[1].QueueDepth.Sum),
		`loom_port_utilisation_ratio{port="up0"}`:                                0.25,
		`loom_port_congestion_metric{port="up0"}`:                                6, // the larger, not the sum
		`loom_port_ce_raised_frames_total{port="up0"}`:                           float64(w[0].Ports[1].CERaised + w[1].Ports[1].CERaised),
		`loom_scheme_decisions_total{scheme="conga"}`:                            float64(w[0].Schemes[0].Decisions + w[1].Schemes[0].Decisions),
		`loom_scheme_flowlets_moved_total{scheme="ecmp"}`:                        float64(w[0].Schemes[1].Flowlets.Moved + w[1].Schemes[1].Flowlets.Moved),
		`loom_conweave_cutoffs_total{scheme="conweave"}`:                         float64(own(w, 0).CutOffs + own(w, 1).CutOffs),
		`loom_conweave_ignored_total{reason="stale_clear",scheme="conweave"}`:    float64(own(w, 0).StaleClears + own(w, 1).StaleClears),
		`loom_conweave_reply_seconds_count{scheme="conweave"}`:                   float64(own(w, 0).ReplyTime.N + own(w, 1).ReplyTime.N),
		`loom_leaf_messages_relayed_total{}`:                                     float64(w[0].Leaf.Relayed + w[1].Leaf.Relayed),
		`loom_reorder_arrived_bytes_total{}`:                                     float64(received(w, 0).Bytes + received(w, 1).Bytes),
		`loom_reorder_flushes_total{cause="overtaken"}`:                          float64(received(w, 0).Overtaken + received(w, 1).Overtaken),
		`loom_reorder_flushes_total{cause="shutdown"}`:                           float64(received(w, 0).Flushed + received(w, 1).Flushed),
		`loom_reorder_unordered_frames_total{cause="no_queue"}`:                  float64(received(w, 0).PassedUnheld + received(w, 1).PassedUnheld),
		`loom_reorder_resume_error_seconds_count{tail="late"}`:                   float64(received(w, 0).TailLate.N + received(w, 1).TailLate.N),
		`loom_reorder_resume_error_seconds_sum{tail="early"}`:                    (received(w, 0).TailEarly.Sum + received(w, 1).TailEarly.Sum).Seconds(),
		`loom_reorder_control_frames_total{opcode="CLEAR"}`:                      float64(w[0].Leaf.Sent[overlay.OpClear].Frames + w[1].Leaf.Sent[overlay.OpClear].Frames),
		`loom_reorder_control_bytes_total{opcode="RTT_REPLY"}`:                   float64(w[0].Leaf.Sent[overlay.OpRTTReply].Bytes + w[1].Leaf.Sent[overlay.OpRTTReply].Bytes),
		`loom_reorder_control_unsent_total{reason="no_path"}`:                    float64(w[0].Leaf.Unsent.NoPath + w[1].Leaf.Unsent.NoPath),
		`loom_reorder_waiting_depth_frames_count{}`:                              float64(received(w, 0).WaitingDepth.N() + received(w, 1).WaitingDepth.N()),
		`loom_reorder_queues_depth_sum{}`:                                        float64(received(w, 0).QueuesDepth.Sum + received(w, 1).QueuesDepth.Sum),
		`loom_reorder_port_waiting_frames{port="host0"}`:                         float64(w[0].Waiting[0].Packets + w[1].Waiting[0].Packets),
		`loom_reorder_port_waiting_depth_bytes_count{port="host0"}`:              float64(w[0].Waiting[0].BytesDepth.N() + w[1].Waiting[0].BytesDepth.N()),
		`loom_reorder_port_queues{port="flood"}`:                                 float64(w[0].Waiting[2].Queues + w[1].Waiting[2].Queues),
		`loom_exchange_feedback_bad_tag_total{worker="1"}`:                       float64(w[1].Exchange.FeedbackBadTag),
		`loom_peer_capable{peer="192.0.2.2"}`:                                    1,
		`loom_peer_capable{peer="192.0.2.3"}`:                                    0,
		`loom_congestion_to_leaf_metric{peer="192.0.2.2",tag="3"}`:               2,
		`loom_congestion_to_leaf_age_seconds{peer="192.0.2.2",tag="3"}`:          4,
		`loom_congestion_from_leaf_metric{peer="192.0.2.2",tag="15"}`:            5,
		`loom_congestion_from_leaf_age_seconds{peer="192.0.2.2",tag="15"}`:       0.001,
		`loom_drops_total{port="up0",reason="queue_full"}`:                       7,
		`loom_drops_total{port="up0",reason="no_route"}`:                         0, // from the start, for rate()
		`loom_vni_local_frames_total{vni="200"}`:                                 float64(w[0].VNIs[1].Local.Frames + w[1].VNIs[1].Local.Frames),
		`loom_vni_fdb_entries{vni="200"}`:                                        float64(w[1].VNIs[1].FDBEntries), // the larger, not the sum
		`loom_peer_received_bytes_total{peer="192.0.2.3"}`:                       float64(w[0].PeerReceived[1].Bytes + w[1].PeerReceived[1].Bytes),
		`loom_peer_next_hops{peer="192.0.2.2"}`:                                  2,
		`loom_peer_next_hops{peer="192.0.2.3"}`:                                  0,
		`loom_next_hop_sent_frames_total{gateway="10.0.0.3",port="up0"}`:         float64(w[0].HopSent[1].Frames + w[1].HopSent[1].Frames),
		`loom_next_hop_resolved{gateway="10.0.0.1",port="up0"}`:                  1,
		`loom_next_hop_resolved{gateway="10.0.0.3",port="up0"}`:                  0,
		`loom_port_up{port="host0"}`:                                             1,
		`loom_port_up{port="up0"}`:                                               0,
		`loom_port_mtu_bytes{port="up0"}`:                                        1600,
		`loom_port_link_rate_bps{port="up0"}`:                                    25e9,
		`loom_port_mtu_needed_bytes{port="up0"}`:                                 1554,
		`loom_port_exists{port="up0"}`:                                           1,
		`loom_port_link_rate_bps{port="host0"}`:                                  0,
		`loom_port_open{port="host0"}`:                                           1,
		`loom_node_info{node="L0",overlay="file",role="leafd",vtep="192.0.2.1"}`: 1,
		`loom_path_info{peer="192.0.2.2",port="up0",state="silent",tag="0"}`:     1,
		`loom_path_round_trip_seconds{peer="192.0.2.2",tag="0"}`:                 0.001,
		`loom_path_loss_ratio{peer="192.0.2.2",tag="0"}`:                         0.25,
		`loom_port_changed_timestamp_seconds{port="host0"}`:                      1700000000.5,
		`loom_port_info{copy="zero-copy",kind="uplink",port="up0",xdp="native"}`: 1,
		`loom_classifier_frames_total{port="up0",verdict="no_meta"}`:             20,
		`loom_check_findings{port="host0",severity="warning"}`:                   2,
		`loom_check_findings{port="up0",severity="error"}`:                       1,
		`loom_control_lists_total{kind="routes"}`:                                float64(f.control.Lists[control.Routes]),
		`loom_config_last_reload_successful{}`:                                   1,
		`loom_config_last_reload_success_timestamp_seconds{}`:                    1700000060.5,
		`loom_control_list_errors_total{kind="links"}`:                           float64(f.control.ListErrors[0]),
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s is %v (shown: %v), want %v", name, v, ok, want)
		}
	}
	for name := range got {
		if strings.HasPrefix(name, "loom_conweave_") && (strings.Contains(name, `"ecmp"`) || strings.Contains(name, `"conga"`)) || strings.Contains(name, `_reorder_port_queues{port="up0"`) {
			t.Errorf("%s is shown, though nothing is counted there", name)
		}
	}
}

// What is not there yet, or any more, is left out and fails no scrape.
func TestIncompleteTables(t *testing.T) {
	tests := []struct {
		name    string
		change  func(*fake, *Options)
		without []string // prefixes of samples that must not be shown
		with    []string
	}{
		{"no tables", func(f *fake, _ *Options) { f.tables, f.peers = nil, nil },
			[]string{"loom_vni_", "loom_peer_", "loom_next_hop_", `loom_port_up{port="host0"} 1`}, []string{`loom_port_up{port="host0"} 0`}},
		{"nothing at all", func(f *fake, _ *Options) { f.tables, f.stats = nil, dataplane.Stats{} },
			[]string{"loom_port_", "loom_worker_"}, []string{"loom_build_info"}},
		{"no mirror", func(_ *fake, o *Options) { o.Control = nil }, []string{"loom_control_"}, []string{"loom_vni_"}},
		{"no kernel's overlay", func(_ *fake, o *Options) { o.Bridge = nil }, []string{"loom_bridge_"}, []string{"loom_vni_"}},
		{"nothing derived", func(f *fake, _ *Options) { f.auto = nil }, []string{"loom_auto_"}, []string{"loom_vni_", "loom_round_trip_seconds_count"}},
		{"nothing to derive", func(_ *fake, o *Options) { o.Auto = nil }, []string{"loom_auto_"}, []string{"loom_vni_"}},
		{"no such time", func(*fake, *Options) {}, []string{`loom_auto_time_seconds{time="flowlet_gap"`}, []string{`loom_auto_time_seconds{time="reply"} 0.001`, `loom_auto_time_seconds{time="max_hold"} 0.005`, "loom_auto_changes_total{} 31"}},
		{"no checks", func(_ *fake, o *Options) { o.Findings = nil }, []string{"loom_check_"}, []string{"loom_vni_"}},
		{"no reload", func(_ *fake, o *Options) { o.Reload = nil }, []string{"loom_config_"}, []string{"loom_vni_"}},
		{"refused", func(f *fake, _ *Options) { f.reload.Successful = false }, nil,
			[]string{"loom_config_last_reload_successful{} 0", "loom_config_last_reload_success_timestamp_seconds{} 1.7000000605e+09"}},
		{"no congestion", func(_ *fake, o *Options) { o.Congestion = nil }, []string{"loom_congestion_", "loom_peer_capable"}, []string{"loom_exchange_"}},
		{"nothing known", func(*fake, *Options) {}, []string{`loom_path_info{peer="192.0.2.2",port="up1"`, `loom_congestion_to_leaf_metric{peer="192.0.2.3"`, `loom_congestion_to_leaf_metric{peer="192.0.2.2",tag="1"`}, []string{`loom_peer_capable{peer="192.0.2.3"} 0`}},
		{"spine", func(_ *fake, o *Options) { o.Role = "spined" }, []string{"loom_fdb_", "loom_exchange_", "loom_reorder_", "loom_leaf_", "loom_round_trip_"}, []string{"loom_worker_bursts_total"}},
		{"gone", func(f *fake, _ *Options) {
			f.peers[0].VTEP = netip.Addr{}
			f.tables.VNIs[0].VNI, f.tables.Peers[0].VTEP, f.tables.Hops[0].Gateway = 0, netip.Addr{}, netip.Addr{}
		}, []string{`loom_vni_local_frames_total{vni="0"}`, "loom_peer_next_hops{peer=\"192.0.2.2", `loom_next_hop_resolved{gateway="10.0.0.1"`, `loom_peer_next_hops{peer="invalid`, "loom_congestion_to_leaf", `loom_peer_capable{peer="invalid`},
			[]string{`loom_peer_next_hops{peer="192.0.2.3"}`, `loom_next_hop_resolved{gateway="10.0.0.3"`}},
		{"twice the same", func(f *fake, _ *Options) {
			f.peers[1] = f.peers[0]
			f.tables.VNIs[1], f.tables.Peers[1], f.tables.Hops[1] = f.tables.VNIs[0], f.tables.Peers[0], f.tables.Hops[0]
		}, nil, []string{`loom_vni_local_frames_total{vni="100"}`}},
		{"tables the workers have not seen", func(f *fake, _ *Options) {
			f.tables.Peers = append(f.tables.Peers, dataplane.Peer{VTEP: addr("192.0.2.9")})
		}, nil, []string{`loom_peer_sent_frames_total{peer="192.0.2.9"} 0`}},
		{"port gone", func(f *fake, _ *Options) { f.ports[0], f.stats.Ports[0] = dataplane.PortConfig{}, dataplane.PortInfo{} },
			[]string{`loom_port_open{port="host0"}`, `loom_port_open{port=""}`, `loom_port_received_frames_total{port=""}`, `loom_conweave_waiting_frames{port=""}`},
			[]string{`loom_port_open{port="up0"}`, `loom_gone_ports_received_frames_total`}},
		{"port closed", func(f *fake, _ *Options) {
			f.stats.Ports[0] = dataplane.PortInfo{Name: "host0", Kind: dataplane.Access}
		},
			nil, []string{`loom_port_open{port="host0"} 0`, `loom_port_changed_timestamp_seconds{port="host0"} 0`, `loom_port_info{copy="",kind="access",port="host0",xdp=""} 1`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake()
			o := f.options()
			tt.change(f, &o)
			var lines []string
			for name, v := range values(gather(t, o)) {
				lines = append(lines, fmt.Sprintf("%s %v", name, v))
			}
			shown := func(prefix string) bool {
				return slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, prefix) })
			}
			for _, p := range tt.without {
				if shown(p) {
					t.Errorf("%s is shown", p)
				}
			}
			for _, p := range tt.with {
				if !shown(p) {
					t.Errorf("%s is not shown", p)
				}
			}
		})
	}
}

// A worker more is a few series more, whatever the number of ports, unless the
// configuration asks for each worker's; then sums over the label are what they were.
func TestSeriesOfPortsAndWorkers(t *testing.T) {
	series := func(workers, ports int, perWorker bool) (of map[string]float64) {
		f := newFake()
		o := f.options()
		o.PerWorker = perWorker
		w := f.stats.Workers[0]
		f.stats.Workers = f.stats.Workers[:0]
		for len(w.Ports) < ports {
			f.ports = append(f.ports, dataplane.PortConfig{Name: fmt.Sprint("more", len(w.Ports)), Kind: dataplane.Uplink})
			w.Ports = append(w.Ports, w.Ports[0])
			f.tables.Ports, f.stats.Ports = append(f.tables.Ports, dataplane.PortState{}), append(f.stats.Ports, dataplane.PortInfo{})
		}
		for range workers {
			f.stats.Workers = append(f.stats.Workers, w)
		}
		return values(gather(t, o))
	}
	of := func(workers, ports int, perWorker bool) int { return len(series(workers, ports, perWorker)) }
	if few, many := of(2, 3, false)-of(1, 3, false), of(2, 40, false)-of(1, 40, false); few != many || few > 60 {
		t.Errorf("one more worker is %d more series with 3 ports, %d with 40", few, many)
	}
	if few, many := of(2, 3, true)-of(1, 3, true), of(2, 40, true)-of(1, 40, true); many-few != 37*(counted.series()-1) { // of a histogram, values has no bucket without a bound
		t.Errorf("with per_worker one more worker is %d more series for 37 more ports, want %d for each", many-few, counted.series()-1)
	}
	sum, each := series(3, 3, false), series(3, 3, true)
	name := func(worker string) string { return `loom_port_sent_frames_total{port="up0"` + worker + `}` }
	parts := 0.0
	for q := range 3 {
		parts += each[name(fmt.Sprintf(",worker=\"%d\"", q))]
	}
	if parts == 0 || parts != sum[name("")] {
		t.Errorf("the workers' frames add up to %v, the port's are %v", parts, sum[name("")])
	}
	if _, ok := each[name("")]; ok {
		t.Error("with per_worker the sum is there, too: a sum over it would count twice")
	}
}

// Several scrapes and the workers' progress do not meet. For the race detector.
func TestScrapesAtOnce(t *testing.T) {
	f := newFake()
	r := prometheus.NewRegistry()
	r.MustRegister(NewCollector(f.options()))
	const name = `loom_worker_bursts_total{worker="0"}`
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			last := 0.0
			for range 50 {
				f.mu.Lock()
				f.stats.Workers[0].Bursts++
				f.stats.Workers[0].Ports[0].Drops[drop.QueueFull]++
				f.mu.Unlock()
				families, err := r.Gather()
				if err != nil {
					t.Error(err)
					return
				}
				now := values(families)[name]
				if now <= last {
					t.Errorf("%s went from %v to %v", name, last, now)
				}
				last = now
			}
		})
	}
	wg.Wait()
}

// A scheme that the collector has never heard of shows what its types' tags say.
func TestSchemeOfItsOwnTypes(t *testing.T) {
	type cells struct {
		Begun uint64 `stat:"cells" help:"Cells that began."`
		Early uint64 `stat:"ignored{reason=early}" help:"Messages that changed nothing." about:"They came early."`
	}
	type holds struct {
		Gaps    uint64            `help:"Gaps that were waited for."`
		Waiting int               `stat:"waiting,gauge" unit:"frames" help:"Frames that are held."`
		Wait    reorder.Histogram `help:"How long frames were held."`
	}
	f := newFake()
	for i := range f.stats.Workers {
		n := uint64(i + 1)
		h := &holds{Gaps: 10 * n, Waiting: int(100 * n)}
		h.Wait.Add(time.Second)
		w := &f.stats.Workers[i]
		w.Schemes = []leaf.SchemeStats{{Scheme: "cell-like", Stats: balance.Stats{Own: &cells{n, 1000 * n}}}}
		w.Receivers = []leaf.ReceiverStats{{Scheme: "cell-like", Stats: h}}
	}
	r := prometheus.NewRegistry()
	r.MustRegister(NewCollector(f.options()))
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := values(families)
	for name, want := range map[string]float64{
		`loom_cell_like_cells_total{scheme="cell-like"}`:                  3,
		`loom_cell_like_ignored_total{reason="early",scheme="cell-like"}`: 3000,
		`loom_cell_like_receiver_gaps_total{}`:                            30,
		`loom_cell_like_receiver_waiting_frames{worker="0"}`:              100,
		`loom_cell_like_receiver_waiting_frames{worker="1"}`:              200,
		`loom_cell_like_receiver_wait_seconds_sum{}`:                      2,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s is %v (shown: %v), want %v", name, v, ok, want)
		}
	}
}
