package sim

import (
	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/internal/measure"
	"github.com/loomfabric/loom/internal/stat"
	"github.com/loomfabric/loom/leaf"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
	"github.com/loomfabric/loom/sim/node"
)

// reordering is what ConWeave's destination sides hold: queues by host port, bytes
// by leaf, as the paper's Figures 15 and 16.
type reordering struct{ queues, bytes *measure.Values }

// watchReordering samples it in the window.
func (c *collector) watchReordering() {
	if c.r.spec.Measure.Reorder == 0 {
		return
	}
	p := &reordering{measure.NewValues(1_000_000), measure.NewValues(1_000_000)}
	c.reorder = p
	c.r.every(c.r.spec.Measure.Reorder, func() {
		for _, l := range c.r.topo.Leaves {
			side := conweaveOf(l)
			if side == nil {
				continue
			}
			for port := range side.Params().Ports {
				p.queues.Add(float64(side.Port(port).Queues))
			}
			p.bytes.Add(float64(side.Counters().WaitingBytes))
		}
	})
}

// conweaveOf returns the destination side of a leaf; nil: no leaf sends by ConWeave.
func conweaveOf(l *node.Leaf) *reorder.ConWeave {
	side, _ := l.Brain().Receiver(reorder.SchemeID).(*reorder.ConWeave)
	return side
}

// conweaveResult sums up both sides of all leaves, if the scheme has them.
func (r *run) conweaveResult(out *measure.Result) {
	if s := balance.Find(r.spec.Scheme); s == nil || s.Wire != reorder.SchemeID {
		return
	}
	var source balance.ConWeaveStats
	var dest reorder.Stats
	var own leaf.Stats
	for _, l := range r.topo.Leaves {
		if side := conweaveOf(l); side != nil {
			d := side.Counters()
			stat.Add(&dest, &d)
		}
		one := l.Brain().Stats()
		stat.Add(&own, &one)
		for _, s := range l.Brain().SchemeStats() {
			if own, ok := s.Own.(*balance.ConWeaveStats); ok {
				stat.Add(&source, own)
			}
		}
	}
	c := &measure.ConWeaveResult{Counters: map[string]uint64{}, ControlBytes: map[string]uint64{}, DataBytes: dest.Bytes}
	list(c.Counters, "source_", &source)
	list(c.Counters, "destination_", &dest)
	for op := overlay.OpRTTReply; op <= overlay.OpNotify; op++ {
		c.ControlBytes[op.String()] = own.Sent[op].Bytes
		if c.DataBytes > 0 {
			c.Control = append(c.Control, measure.ControlShare{Opcode: op.String(), Percent: 100 * float64(own.Sent[op].Bytes) / float64(c.DataBytes)})
		}
	}
	if p := r.collect.reorder; p != nil {
		c.Queues, c.Bytes = p.queues.Distribution("queues of a host port"), p.bytes.Distribution("bytes of a leaf")
	}
	c.HoldTimeNs = durations("hold time", &dest.Hold)
	c.ResumeEarlyNs = durations("TAIL before T_resume", &dest.TailEarly)
	c.ResumeLateNs = durations("TAIL after T_resume", &dest.TailLate)
	c.ReplyTimeNs = durations("reply time", &source.ReplyTime)
	out.ConWeave = c
}

// durations is a histogram as a distribution, in nanoseconds.
func durations(name string, h *reorder.Histogram) measure.Distribution {
	d := measure.Distribution{Name: name, N: h.N}
	if h.N == 0 {
		return d
	}
	d.Mean, d.Max = float64(h.Sum.Nanoseconds())/float64(h.N), float64(h.Max.Nanoseconds())
	quantiles(&d, func(q float64) float64 { return float64(h.Quantile(q).Nanoseconds()) })
	sum := uint64(0)
	for i, n := range h.Counts {
		if n == 0 {
			continue
		}
		sum += n
		d.CDF = append(d.CDF, measure.Point{X: min(float64(reorder.Upper(i).Nanoseconds()), d.Max), Y: float64(sum) / float64(h.N)})
	}
	return d
}
