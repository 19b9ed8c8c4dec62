package lab

import (
	"context"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat"

	"github.com/loomfabric/loom/fabric"
	"github.com/loomfabric/loom/internal/stats"
)

// collect ends the agents' tasks and turns what they counted into the report.
func (r *runner) collect(ctx context.Context, rep *Report) error {
	works := r.lab.File.Workloads
	reports := make([]WorkloadReport, len(works))
	flows := make([][]flowRecord, len(works))
	received := make([][]uint64, len(works))
	err := each(ctx, r.agents, func(*hostAgent) *request { return &request{Op: opReport} }, func(_ *hostAgent, rp *reply) error {
		a := rp.Report
		for _, f := range a.Flows {
			flows[f.Workload] = append(flows[f.Workload], f)
		}
		for w := range works {
			received[w] = addBuckets(received[w], a.Received[w])
			reports[w].Unfinished += a.Unfinished[w]
			reports[w].Failed += a.Failed[w]
			reports[w].Refused += a.Refused[w]
			reports[w].DatagramsSent += a.DatagramsSent[w]
			reports[w].DatagramsReceived += a.DatagramsReceived[w]
		}
		for w := range a.RoCE {
			if works[w].Type == fabric.RoCE {
				reports[w].addRoCE(&a.RoCE[w])
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	var total []uint64
	for i, w := range works {
		wr := &reports[i]
		wr.Name, wr.Type, wr.Start = w.Name, w.Type, w.Start.D()
		wr.ReceivedBytes = sum(received[i])
		wr.GoodputBits = goodput(received[i], w.Start.D(), w.Start.D()+w.Duration.D())
		idle := r.idle.fresh
		if w.Type == fabric.Incast || w.Persistent {
			idle = r.idle.persistent
		}
		if w.Type == fabric.RoCE {
			idle = nil // what was measured are TCP's flows
		}
		wr.FCT = fctStats(flows[i], idle)
		if w.Type == fabric.Request || w.Type == fabric.RoCE {
			small, large := classes(flows[i], uint64(w.Small), uint64(w.Large))
			wr.FCTSmall, wr.FCTLarge = fctStats(small, idle), fctStats(large, idle)
		}
		total = addBuckets(total, received[i])
	}
	rep.Workloads = reports
	rep.Timeline = timeline(total, received, r.length())
	for i := range rep.Faults {
		rep.Faults[i].measure(total)
	}
	return nil
}

func addBuckets(a, b []uint64) []uint64 {
	if len(a) < len(b) {
		a = append(a, make([]uint64, len(b)-len(a))...)
	}
	for i, v := range b {
		a[i] += v
	}
	return a
}

func sum(v []uint64) (s uint64) {
	for _, x := range v {
		s += x
	}
	return s
}

// goodput is the mean rate of payload between two times, in bits per second.
func goodput(buckets []uint64, from, to time.Duration) float64 {
	a, b := clampBucket(buckets, from), clampBucket(buckets, to)
	if b <= a {
		return 0
	}
	return float64(sum(buckets[a:b])) * 8 / (time.Duration(b-a) * bucketLen).Seconds()
}

func clampBucket(buckets []uint64, t time.Duration) int {
	return min(max(int(t/bucketLen), 0), len(buckets))
}

// timeline sums buckets to seconds.
func timeline(total []uint64, each [][]uint64, length time.Duration) []Second {
	var out []Second
	for s := time.Duration(0); s < length; s += time.Second {
		sec := Second{At: s, GoodputBits: goodput(total, s, s+time.Second)}
		for _, b := range each {
			sec.ByWorkload = append(sec.ByWorkload, goodput(b, s, s+time.Second))
		}
		out = append(out, sec)
	}
	return out
}

// around is the span before and after a fault that is compared.
const around = time.Second

// measure finds what a fault did to all goodput: the mean of the second before
// and after it, and the longest time without payload in the latter, in whole
// buckets.
func (f *FaultReport) measure(total []uint64) {
	f.BeforeBits = goodput(total, f.At-around, f.At)
	f.AfterBits = goodput(total, f.At, f.At+around)
	run := time.Duration(0)
	for b := clampBucket(total, f.At); b < clampBucket(total, f.At+around); b++ {
		if total[b] > 0 {
			run = 0
			continue
		}
		run += bucketLen
		f.LongestGap = max(f.LongestGap, run)
	}
}

// addRoCE adds what one host's queue pairs saw.
func (w *WorkloadReport) addRoCE(c *roceCounts) {
	if w.RoCE == nil {
		w.RoCE = &RoCEReport{}
	}
	x := w.RoCE
	x.Sent += c.Sent.Sent
	x.Retransmitted += c.Sent.Retransmitted
	x.Rewinds += c.Sent.Rewinds
	x.Timeouts += c.Sent.Timeouts
	before := x.MeanDistance * float64(x.Reordered)
	x.Packets += c.Received.Packets
	x.Reordered += c.Received.Reordered
	x.MeanDistance = (before + float64(c.Received.DistanceSum)) / float64(max(x.Reordered, 1))
	x.MaxDistance = max(x.MaxDistance, c.Received.DistanceMax)
	x.OutOfSequence += c.Received.OutOfSequence
	x.Duplicates += c.Received.Duplicates
}

// classes picks the small flows and the large ones; those between are in
// neither.
func classes(flows []flowRecord, below, above uint64) (small, large []flowRecord) {
	for _, f := range flows {
		switch {
		case f.Bytes < below:
			small = append(small, f)
		case f.Bytes > above:
			large = append(large, f)
		}
	}
	return small, large
}

// fctStats sums up completion times. Normalised is each flow's time divided by
// the time of a flow of its size over the idle fabric.
func fctStats(flows []flowRecord, idle []IdlePoint) *FCTStats {
	if len(flows) == 0 {
		return nil
	}
	times, norm := make([]float64, len(flows)), make([]float64, 0, len(flows))
	for i, f := range flows {
		times[i] = float64(f.FCT)
		if base := lookup(idle, f.Bytes); base > 0 {
			norm = append(norm, times[i]/float64(base))
		}
	}
	slices.Sort(times)
	at := func(p float64) time.Duration { return time.Duration(stats.Quantile(times, p)) }
	out := &FCTStats{Flows: len(flows), Mean: time.Duration(stat.Mean(times, nil)), P50: at(0.5), P99: at(0.99), P999: at(0.999)}
	if len(norm) > 0 {
		slices.Sort(norm)
		out.NormMean, out.NormP50, out.NormP99 = stat.Mean(norm, nil), stats.Quantile(norm, 0.5), stats.Quantile(norm, 0.99)
	}
	return out
}
