package lab

import (
	"context"
	"time"

	"github.com/loomfabric/loom/internal/measure"
)

// collected is what all agents saw, by workload.
type collected struct {
	flows    [][]flowRecord
	received [][]uint64
	total    []uint64
	sum      []measure.WorkloadResult
}

// collect ends the agents' tasks and turns what they counted into the report.
func (r *runner) collect(ctx context.Context, rep *Report) error {
	n := len(r.lab.File.Workloads)
	c := &collected{flows: make([][]flowRecord, n), received: make([][]uint64, n), sum: make([]measure.WorkloadResult, n)}
	err := each(ctx, r.agents, func(*hostAgent) *request { return &request{Op: opReport} }, func(_ *hostAgent, rp *reply) error {
		c.add(rp.Report)
		return nil
	})
	if err != nil {
		return err
	}
	for _, b := range c.received {
		c.total = addBuckets(c.total, b)
	}
	r.result(rep, c)
	rep.Timeline = timeline(c.total, c.received, r.length())
	for i := range rep.Faults {
		rep.Faults[i].measure(c.total)
	}
	return nil
}

// add takes what one agent saw.
func (c *collected) add(a *agentReport) {
	for _, f := range a.Flows {
		c.flows[f.Workload] = append(c.flows[f.Workload], f)
	}
	for i := range c.sum {
		w := &c.sum[i]
		c.received[i] = addBuckets(c.received[i], a.Received[i])
		w.Flows += int(a.Endless[i])
		w.Failed += int(a.Failed[i])
		w.Refused += int(a.Refused[i])
		w.DatagramsSent += a.DatagramsSent[i]
		w.DatagramsReceived += a.DatagramsReceived[i]
	}
	for i := range a.RoCE {
		if x := &a.RoCE[i]; x.Sent.Sent+x.Received.Packets > 0 {
			addReordering(&c.sum[i], x)
		}
	}
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

// addReordering adds what one host's queue pairs saw.
func addReordering(w *measure.WorkloadResult, c *roceCounts) {
	if w.Reordering == nil {
		w.Reordering = &measure.Reordering{}
	}
	x := w.Reordering
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
	x.Percent = percent(x.Reordered, x.Packets)
	x.OutOfSequencePercent = percent(x.OutOfSequence, x.Packets)
	x.RetransmittedPercent = percent(x.Retransmitted, x.Sent)
}

// percent is a part of all in percent.
func percent(part, all uint64) float64 { return 100 * float64(part) / float64(max(all, 1)) }
