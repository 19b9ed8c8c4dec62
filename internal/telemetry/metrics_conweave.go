package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/reorder"
)

// histogram is a metric of a [reorder.Histogram], and one of the longest time in
// it, which buckets do not tell.
type histogram struct{ times, longest *metric }

func newHistogram(labels []string, prefix, what string) histogram {
	return histogram{
		newMetric(histogramValue, labels, prefix+"_seconds", what+"."),
		newMetric(prometheus.GaugeValue, labels, prefix+"_max_seconds", "The longest of "+prefix+"_seconds since the start."),
	}
}

var (
	conweaveByScheme = conweaveMetrics()
	conweaveIgnored  = newMetric(prometheus.CounterValue, []string{"scheme", "reason"}, "loom_conweave_ignored_total",
		"Control packets that changed nothing, because they are late, copies or forged.")
	replyTime = newHistogram([]string{"scheme"}, "loom_conweave_reply", "Time from an RTT_REQUEST to its RTT_REPLY, also a late one")

	conweaveByWorker = conweaveWorkerMetrics()

	ofReorder      = reorderMetrics()
	reorderFlushes = newMetric(prometheus.CounterValue, []string{"cause"}, "loom_reorder_flushes_total",
		"Queues that were drained, by what caused it.")
	reorderUnordered = newMetric(prometheus.CounterValue, []string{"cause"}, "loom_reorder_unordered_frames_total",
		"Frames that were sent on without being put in order, by cause.")
	holdTime    = newHistogram(nil, "loom_reorder_hold", "How long queues were held, from their first frame on")
	resumeError = newHistogram([]string{"tail"}, "loom_reorder_resume_error",
		"Time between T_resume, without what resume_extra adds, and the arrival of the TAIL, where it rests on a frame of the old path (ConWeave Figure 21)")
	controlFrames = newMetric(prometheus.CounterValue, []string{"opcode"}, "loom_reorder_control_frames_total",
		"Control packets for other leaves, sent or not.")
	controlBytes = newMetric(prometheus.CounterValue, []string{"opcode"}, "loom_reorder_control_bytes_total",
		"Bytes of control packets sent, outer headers included (ConWeave Table 4).")
	controlUnsent = newMetric(prometheus.CounterValue, []string{"reason"}, "loom_reorder_control_unsent_total",
		"Control packets that could not be sent.")
	waitingByPort = waitingMetrics()

	roundTrip = newHistogram(nil, "loom_round_trip", "Round trips of greetings (HELLO) to peers, which go ahead of data in every queue")
	autoTime  = newMetric(prometheus.GaugeValue, []string{"time"}, "loom_auto_time_seconds",
		"Times in force that were derived from round trips, by their configuration keys. One is shown once it was derived.")
	autoChanges = newMetric(prometheus.CounterValue, nil, "loom_auto_changes_total",
		"Times that other values of loom_auto_time_seconds came into force.")
)

func conweaveMetrics() (g group[balance.ConWeaveStats]) {
	type s = balance.ConWeaveStats
	g.labels = []string{"scheme"}
	g.count("loom_conweave_epochs_total", "Epochs that began.", func(c *s) uint64 { return c.Epochs })
	g.count("loom_conweave_requests_total", "RTT_REQUESTs sent, each a mark on a tenant's frame.", func(c *s) uint64 { return c.Requests })
	g.count("loom_conweave_cutoffs_total", "Epochs without an RTT_REPLY within the reply time (θ_reply).", func(c *s) uint64 { return c.CutOffs })
	g.count("loom_conweave_reroutes_total", "Flows moved to another path in an epoch: TAILs sent.", func(c *s) uint64 { return c.Reroutes })
	g.count("loom_conweave_aborts_total", "Attempts at a reroute that found no path which is not busy; one epoch may have several.", func(c *s) uint64 { return c.Aborts })
	g.count("loom_conweave_refused_total", "Attempts given up because the leaf asked not to be sent rerouted frames.", func(c *s) uint64 { return c.Refused })
	g.count("loom_conweave_inactive_total", "Epochs that a pause ended (θ_inactive).", func(c *s) uint64 { return c.Inactive })
	g.count("loom_conweave_unclear_total", "Of loom_conweave_inactive_total, those that still waited for a CLEAR.", func(c *s) uint64 { return c.Unclear })
	g.count("loom_conweave_moves_total", "Flows whose path disappeared.", func(c *s) uint64 { return c.Moves })
	g.count("loom_conweave_replies_total", "RTT_REPLYs that came in time.", func(c *s) uint64 { return c.Replies })
	g.count("loom_conweave_late_replies_total", "RTT_REPLYs that came after the cut-off.", func(c *s) uint64 { return c.LateReplies })
	g.count("loom_conweave_clears_total", "CLEARs that ended an epoch.", func(c *s) uint64 { return c.Clears })
	g.count("loom_conweave_notifies_total", "NOTIFYs heeded; each worker heeds each.", func(c *s) uint64 { return c.Notifies })
	g.count("loom_conweave_overflow_frames_total", "Frames sent by hash because the connection table had no room.", func(c *s) uint64 { return c.Overflow })
	g.count("loom_conweave_incapable_frames_total", "Frames sent by hash because the leaf does not speak ConWeave.", func(c *s) uint64 { return c.Incapable })
	return g
}

func conweaveWorkerMetrics() (g group[dataplane.WorkerStats]) {
	type w = dataplane.WorkerStats
	g.labels = []string{"worker"}
	g.count("loom_conweave_signals_heard_total", "Control packets that came to the worker, for a scheme that heeds them.", func(s *w) uint64 { return s.SignalsHeard })
	g.count("loom_conweave_signals_told_total", "Control packets that other workers told this one of.", func(s *w) uint64 { return s.SignalsTold })
	g.count("loom_conweave_signals_lost_total", "Times that another worker was not told of a control packet, as it was behind.", func(s *w) uint64 { return s.SignalsLost })
	type r = reorder.Stats
	of := func(name, help string, of func(*r) float64) {
		g.gauge(name, help, func(s *w) float64 { return of(&s.Reorder) })
	}
	of("loom_reorder_queues", "Queues that hold frames.", func(s *r) float64 { return float64(s.InUse) })
	of("loom_reorder_queues_peak", "Most queues that ever held frames at a time.", func(s *r) float64 { return float64(s.InUsePeak) })
	of("loom_reorder_waiting_frames", "Frames that are held.", func(s *r) float64 { return float64(s.Waiting) })
	of("loom_reorder_waiting_peak_frames", "Most frames that were ever held at a time.", func(s *r) float64 { return float64(s.WaitingPeak) })
	of("loom_reorder_waiting_bytes", "Bytes of the frames that are held.", func(s *r) float64 { return float64(s.WaitingBytes) })
	of("loom_reorder_waiting_peak_bytes", "Most bytes that were ever held at a time.", func(s *r) float64 { return float64(s.WaitingBytesPeak) })
	return g
}

func reorderMetrics() (g group[reorder.Stats]) {
	type s = reorder.Stats
	g.count("loom_reorder_arrived_frames_total", "Tenants' frames that arrived with ConWeave's fields.", func(r *s) uint64 { return r.Packets })
	g.count("loom_reorder_arrived_bytes_total", "Bytes of tenants' frames that arrived with ConWeave's fields, outer headers not included.", func(r *s) uint64 { return r.Bytes })
	g.count("loom_reorder_unmarked_frames_total", "Tenants' frames that arrived with the fabric's fields, but without ConWeave's.", func(r *s) uint64 { return r.Unmarked })
	g.count("loom_reorder_epochs_total", "Epochs that began, or that were seen anew after their flow was forgotten.", func(r *s) uint64 { return r.Epochs })
	g.count("loom_reorder_requests_total", "RTT_REQUESTs that arrived.", func(r *s) uint64 { return r.Requests })
	g.count("loom_reorder_tails_total", "TAILs that arrived.", func(r *s) uint64 { return r.Tails })
	g.count("loom_reorder_rerouted_frames_total", "REROUTED frames that arrived.", func(r *s) uint64 { return r.Rerouted })
	g.count("loom_reorder_held_frames_total", "Frames that had to wait for their flow's TAIL.", func(r *s) uint64 { return r.Held })
	g.count("loom_reorder_held_bytes_total", "Bytes of frames that had to wait for their flow's TAIL.", func(r *s) uint64 { return r.HeldBytes })
	g.count("loom_reorder_queues_taken_total", "Times that a queue was taken for a flow.", func(r *s) uint64 { return r.Queues })
	g.count("loom_reorder_no_queue_total", "Flows whose first REROUTED frame found no queue, or no room in it.", func(r *s) uint64 { return r.NoQueue })
	g.count("loom_reorder_default_resumes_total", "T_resume that were set by resume_default, as nothing had come over the old path.", func(r *s) uint64 { return r.Defaults })
	g.count("loom_reorder_capped_resumes_total", "T_resume that max_hold cut short.", func(r *s) uint64 { return r.Capped })
	g.count("loom_reorder_notifies_spared_total", "NOTIFYs not due, as the path's last one was sent just before.", func(r *s) uint64 { return r.NotifiesSpared })
	g.count("loom_reorder_refusals_total", "Control packets that asked their leaf not to reroute (admission).", func(r *s) uint64 { return r.Refusals })
	return g
}

func waitingMetrics() (g group[reorder.PortUse]) {
	type u = reorder.PortUse
	g.labels = []string{"port"}
	const all = ", all workers together."
	const one = ", in one worker."
	g.gauge("loom_reorder_port_queues", "Queues that hold frames for the port"+all, func(p *u) float64 { return float64(p.Queues) })
	g.gauge("loom_reorder_port_queues_peak", "Most queues that ever held frames for the port at a time"+one, func(p *u) float64 { return float64(p.QueuesPeak) })
	g.gauge("loom_reorder_port_waiting_frames", "Frames that are held for the port"+all, func(p *u) float64 { return float64(p.Packets) })
	g.gauge("loom_reorder_port_waiting_peak_frames", "Most frames that were ever held for the port at a time"+one, func(p *u) float64 { return float64(p.PacketsPeak) })
	g.gauge("loom_reorder_port_waiting_bytes", "Bytes of the frames that are held for the port"+all, func(p *u) float64 { return float64(p.Bytes) })
	g.gauge("loom_reorder_port_waiting_peak_bytes", "Most bytes that were ever held for the port at a time"+one, func(p *u) float64 { return float64(p.BytesPeak) })
	return g
}
