package lab

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/internal/measure"
)

func sum(v []uint64) (s uint64) {
	for _, x := range v {
		s += x
	}
	return s
}

// span returns the buckets between two times.
func span(buckets []uint64, from, to time.Duration) []uint64 {
	at := func(t time.Duration) int { return min(max(int(t/bucketLen), 0), len(buckets)) }
	return buckets[at(from):max(at(from), at(to))]
}

// goodput returns the mean rate of payload between two times, in bits per second.
func goodput(buckets []uint64, from, to time.Duration) float64 {
	b := span(buckets, from, to)
	if len(b) == 0 {
		return 0
	}
	return float64(sum(b)) * 8 / (time.Duration(len(b)) * bucketLen).Seconds()
}

// around is how long before and after a fault goodput is compared.
const around = time.Second

// measure finds what a fault did to all goodput. It takes the means of the second
// before and after, and the longest time without payload in the second after, in whole
// buckets.
func (f *FaultReport) measure(total []uint64) {
	f.BeforeBits = goodput(total, f.At-around, f.At)
	f.AfterBits = goodput(total, f.At, f.At+around)
	run := time.Duration(0)
	for _, n := range span(total, f.At, f.At+around) {
		if run += bucketLen; n > 0 {
			run = 0
		}
		f.LongestGap = max(f.LongestGap, run)
	}
}

// result fills in what the hosts counted in a load that is over. docs/measuring.md
// defines the numbers.
func (r *runner) result(l *load) {
	rep, res := r.rep, r.rep.Result
	res.LengthS = rep.Duration.Seconds()
	small, large := bounds(l.works)
	all := measure.NewFCT(measure.SizeClasses(small, large))
	var total []uint64
	length, _ := r.length()
	for s := time.Duration(0); s < length; s += time.Second {
		rep.Timeline = append(rep.Timeline, Second{At: s})
	}
	for _, w := range l.works {
		buckets := w.buckets()
		if total == nil {
			total = make([]uint64, len(buckets))
		}
		for i, n := range buckets {
			total[i] += n
		}
		for i := range rep.Timeline {
			s := &rep.Timeline[i]
			s.ByWorkload = append(s.ByWorkload, goodput(buckets, s.At, s.At+time.Second))
		}
		own := measure.NewFCT(measure.SizeClasses(cmp.Or(uint64(w.Small), small), cmp.Or(uint64(w.Large), large)))
		out := rep.flows(w, own, all)
		out.ReceivedBytes, out.GoodputBps = sum(buckets), goodput(buckets, w.Start, w.Start+w.Duration)
		if len(l.works) > 1 {
			out.FCT = own.Summary()
		}
		res.Workloads = append(res.Workloads, out)
		res.Flows += out.Flows - int(w.endless.Load())
		res.Unfinished += out.Unfinished
		res.Load = cmp.Or(res.Load, w.Load)
		res.Seed = cmp.Or(res.Seed, w.Seed)
	}
	res.GoodputBps, res.FCT = goodput(total, 0, rep.LoadEnd), all.Summary()
	if res.Unfinished > 0 {
		res.End = "time"
	}
	for i := range rep.Timeline {
		s := &rep.Timeline[i]
		s.GoodputBits = goodput(total, s.At, s.At+time.Second)
	}
	for i := range rep.Faults {
		rep.Faults[i].measure(total)
	}
	res.Phases = phaseShares(r.lab.File.Workloads, rep.Uplinks, rep.LoadEnd)
}

// flows returns what a workload counted, and adds its flows to records.
func (r *Report) flows(w *work, records ...*measure.FCT) measure.WorkloadResult {
	flows := unique(w.flows)
	out := measure.WorkloadResult{
		Name: w.Name, Flows: len(flows) + int(w.endless.Load()), Failed: int(w.failed.Load()), Refused: int(w.refused.Load()),
		DatagramsSent: w.datagramsSent.Load(), DatagramsReceived: w.datagramsReceived.Load(), Reordering: w.reordering(),
	}
	var points []IdlePoint
	if p := r.idleOf(&w.Workload); p != nil {
		points = *p
	}
	for _, f := range flows {
		idle := lookup(points, f.bytes).Seconds()
		if f.open {
			out.Unfinished++
		}
		for _, rec := range records {
			if f.open {
				rec.Unfinished(f.bytes, (r.Duration - f.start).Seconds(), idle)
			} else {
				rec.Add(f.bytes, f.fct.Seconds(), idle)
			}
		}
	}
	return out
}

// bounds returns the bounds of the size classes of all flows together. They are those
// of the first workload that has any.
func bounds(works []*work) (small, large uint64) {
	for _, w := range works {
		if w.Large > 0 {
			return uint64(w.Small), uint64(w.Large)
		}
	}
	return 100_000, 10_000_000 // CONGA §5.2.1
}

// unique drops messages that their senders take for unfinished and their receivers
// have: the acknowledgement was under way at the end.
func unique(flows []flowRecord) []flowRecord {
	type message struct {
		start time.Duration
		bytes uint64
	}
	finished := map[message]bool{}
	for _, f := range flows {
		if !f.open {
			finished[message{f.start, f.bytes}] = true
		}
	}
	return slices.DeleteFunc(flows, func(f flowRecord) bool { return f.open && finished[message{f.start, f.bytes}] })
}

// egress names the leaf's end of a link as the simulator does: L0->S1.0.
func egress(link string) string { return strings.Replace(link, "-", "->", 1) }

// phaseShares adds up the samples from one workload's start to the next one's. It returns nil if all workloads start at once.
func phaseShares(works []vocab.Workload, series []UplinkSeries, end time.Duration) (out []measure.LinkShare) {
	var starts []time.Duration
	for _, w := range works {
		starts = append(starts, w.Start)
	}
	slices.Sort(starts)
	if starts = slices.Compact(starts); len(starts) < 2 {
		return nil
	}
	for i, from := range starts {
		to := append(starts, end)[i+1]
		for _, u := range series {
			first := len(out)
			for j, bytes := range u.bytes(from, to) {
				out = append(out, measure.LinkShare{Link: egress(u.Links[j]) + measure.FromPhase(from), Bytes: uint64(bytes)})
			}
			measure.Share(out[first:])
		}
	}
	return out
}
