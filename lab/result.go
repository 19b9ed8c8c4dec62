package lab

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/internal/measure"
)

// result fills in the numbers that the lab shares with the simulator
// (docs/measuring.md).
func (r *runner) result(rep *Report, c *collected) {
	res, loadEnd := rep.Result, rep.LoadEnd
	res.LengthS = rep.Duration.Seconds()
	res.GoodputBps = goodput(c.total, 0, loadEnd)
	small, large := r.bounds()
	all := measure.NewFCT(measure.SizeClasses(small, large))
	for i := range r.lab.File.Workloads {
		w, out := &r.lab.File.Workloads[i], &c.sum[i]
		out.Name, out.ReceivedBytes = w.Name, sum(c.received[i])
		out.GoodputBps = goodput(c.received[i], w.Start, w.Start+w.Duration)
		own := measure.NewFCT(measure.SizeClasses(cmp.Or(uint64(w.Small), small), cmp.Or(uint64(w.Large), large)))
		flows := unique(c.flows[i])
		for _, f := range flows {
			idle := lookup(r.idleOf(w), f.Bytes).Seconds()
			if f.Open {
				age := (rep.Duration - f.Start).Seconds()
				all.Unfinished(f.Bytes, age, idle)
				own.Unfinished(f.Bytes, age, idle)
				out.Unfinished++
			} else {
				all.Add(f.Bytes, f.FCT.Seconds(), idle)
				own.Add(f.Bytes, f.FCT.Seconds(), idle)
			}
		}
		out.Flows += len(flows)
		if len(r.lab.File.Workloads) > 1 {
			out.FCT = own.Summary()
		}
		res.Flows += len(flows)
		res.Unfinished += out.Unfinished
		res.Load = cmp.Or(res.Load, w.Load)
		res.Seed = cmp.Or(res.Seed, w.Seed)
	}
	res.Workloads, res.FCT = c.sum, all.Summary()
	if res.End = "done"; res.Unfinished > 0 {
		res.End = "time"
	}
	res.Uplinks = uplinkShares(rep.Phases)
	res.Phases = phaseShares(r.lab.File.Workloads, rep.Uplinks, loadEnd)
}

// bounds are those of the size classes of all flows together: the first workload's
// that has any.
func (r *runner) bounds() (small, large uint64) {
	for _, w := range r.lab.File.Workloads {
		if w.Large > 0 {
			return uint64(w.Small), uint64(w.Large)
		}
	}
	return 100_000, 10_000_000 // CONGA §5.2.1
}

// idleOf is how long flows of a workload take over the idle fabric; none if
// nobody measured that, as for RDMA.
func (r *runner) idleOf(w *vocab.Workload) []IdlePoint {
	switch {
	case w.Type == vocab.RoCE:
		return nil
	case w.Type == vocab.Incast || w.Pool:
		return r.idle.persistent
	}
	return r.idle.fresh
}

// unique drops messages that their senders take for unfinished and their
// receivers have: the acknowledgement was under way at the end.
func unique(flows []flowRecord) []flowRecord {
	type message struct {
		start time.Duration
		bytes uint64
	}
	finished := map[message]bool{}
	for _, f := range flows {
		if !f.Open {
			finished[message{f.Start, f.Bytes}] = true
		}
	}
	return slices.DeleteFunc(flows, func(f flowRecord) bool { return f.Open && finished[message{f.Start, f.Bytes}] })
}

// egress is the leaf's end of a link, as the simulator names it: L0->S1.0.
func egress(link string) string { return strings.Replace(link, "-", "->", 1) }

// uplinkShares adds up the phases between faults.
func uplinkShares(phases []Phase) (out []measure.LinkShare) {
	if len(phases) == 0 {
		return nil
	}
	for leaf, l := range phases[0].Leaves {
		first := len(out)
		for j, u := range l.Uplinks {
			x := measure.LinkShare{Link: egress(u.Link)}
			for _, p := range phases {
				x.Bytes += p.Leaves[leaf].Uplinks[j].Bytes
			}
			out = append(out, x)
		}
		measure.Share(out[first:])
	}
	return out
}

// phaseShares tells the samples apart by the time from one workload's start to the
// next one's; nil if all start at once.
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
		to := end
		if i+1 < len(starts) {
			to = starts[i+1]
		}
		for k := range series {
			u, first := &series[k], len(out)
			for j, link := range u.Links {
				out = append(out, measure.LinkShare{Link: egress(link) + measure.FromPhase(from), Bytes: uint64(u.bytes([]int{j}, from, to))})
			}
			measure.Share(out[first:])
		}
	}
	return out
}
