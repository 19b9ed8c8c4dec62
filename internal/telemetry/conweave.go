package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/dataplane"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// collectConWeave shows the source side of a scheme that has one.
func collectConWeave(ch chan<- prometheus.Metric, scheme string, s *balance.ConWeaveStats) {
	conweaveByScheme.emit(ch, s, scheme)
	for _, x := range []struct {
		reason string
		n      uint64
	}{
		{"stale_reply", s.StaleReplies}, {"stale_clear", s.StaleClears}, {"unknown_flow", s.UnknownFlow},
		{"unknown_leaf", s.UnknownLeaf}, {"unknown_path", s.UnknownPath}, {"unknown_opcode", s.UnknownOpcode},
	} {
		conweaveIgnored.emit(ch, float64(x.n), scheme, x.reason)
	}
	replyTime.emit(ch, &s.ReplyTime, scheme)
}

// collectReorder shows ConWeave's destination side, which every leaf has: a queue
// is one worker's, so what is counted is summed over the workers.
func (c *collector) collectReorder(ch chan<- prometheus.Metric, workers []dataplane.WorkerStats) {
	var s reorder.Stats
	var unsent dataplane.OrderStats
	var trips reorder.Histogram
	for i := range workers {
		w := &workers[i]
		s.Add(&w.Reorder)
		unsent.Incapable += w.Order.Incapable
		unsent.NoPath += w.Order.NoPath
		unsent.NoFrame += w.Order.NoFrame
		trips.Merge(&w.RoundTrip)
	}
	roundTrip.emit(ch, &trips)
	ofReorder.emit(ch, &s)
	for _, x := range []struct {
		m     *metric
		label string
		n     uint64
	}{
		{reorderFlushes, "tail", s.TailFlushes}, {reorderFlushes, "expiry", s.Expiries}, {reorderFlushes, "overtaken", s.Overtaken},
		{reorderFlushes, "exhausted", s.Exhausted}, {reorderFlushes, "shutdown", s.Flushed},
		{reorderUnordered, "premature", s.Premature}, {reorderUnordered, "late", s.Late}, {reorderUnordered, "after_tail", s.AfterTail},
		{reorderUnordered, "no_queue", s.PassedInLieu}, {reorderUnordered, "no_flow", s.NoFlow},
		{controlUnsent, "bad_leaf", s.BadLeaf}, {controlUnsent, "incapable", unsent.Incapable},
		{controlUnsent, "no_path", unsent.NoPath}, {controlUnsent, "no_frame", unsent.NoFrame},
		{controlFrames, overlay.OpRTTReply.String(), s.Replies}, {controlFrames, overlay.OpClear.String(), s.Clears},
		{controlFrames, overlay.OpNotify.String(), s.Notifies},
	} {
		x.m.emit(ch, float64(x.n), x.label)
	}
	for _, op := range []overlay.Opcode{overlay.OpRTTReply, overlay.OpClear, overlay.OpNotify} {
		controlBytes.emit(ch, float64(s.ControlBytes[op]), op.String())
	}
	holdTime.emit(ch, &s.Hold)
	resumeError.emit(ch, &s.Early, "early")
	resumeError.emit(ch, &s.Hasty, "late")
	c.waiting(ch, workers)
}

// collectAuto shows the times that a leaf has derived, once there are some.
func collectAuto(ch chan<- prometheus.Metric, s *dataplane.AutoState) {
	if s == nil {
		return
	}
	autoChanges.emit(ch, float64(s.Changes))
	for _, x := range []struct {
		name string
		d    time.Duration
	}{
		{"reply", s.Times.Reply}, {"inactive", s.Times.Inactive}, {"resume_extra", s.Times.ResumeExtra},
		{"resume_default", s.Times.ResumeDefault}, {"max_hold", s.Times.MaxHold}, {"flowlet_gap", s.Times.FlowletGap},
	} {
		if x.d > 0 {
			autoTime.emit(ch, x.d.Seconds(), x.name)
		}
	}
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
			sum.Add(&u)
		}
		waitingByPort.emit(ch, &sum, name)
	}
}

func (m *histogram) emit(ch chan<- prometheus.Metric, h *reorder.Histogram, labels ...string) {
	ch <- prometheus.MustNewConstHistogram(m.times.desc, h.N, h.Sum.Seconds(), cumulative(h), labels...)
	m.longest.emit(ch, h.Max.Seconds(), labels...)
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
