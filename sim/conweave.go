package sim

import (
	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/internal/measure"
	"github.com/loomfabric/loom/internal/stat"
	"github.com/loomfabric/loom/leaf"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/node"
)

// reorderProbe samples what ConWeave's destination sides hold: queues by host
// port, bytes by leaf, as the paper's Figures 15 and 16.
type reorderProbe struct {
	r      *run
	queues *measure.Values
	bytes  *measure.Values
}

// Sample is the sampler's to call.
func (p *reorderProbe) Sample(engine.Time) {
	for _, l := range p.r.topo.Leaves {
		side := conweaveOf(l)
		for port := range side.Params().Ports {
			p.queues.Add(float64(side.Port(port).Queues))
		}
		p.bytes.Add(float64(side.Counters().WaitingBytes))
	}
}

func (c *collector) watchReordering() error {
	every := engine.Of(c.r.spec.Measure.Reorder)
	if every == 0 {
		return nil
	}
	s, err := newSampler(c.r.engine, c.r.from, every, c.r.until)
	if err != nil {
		return err
	}
	c.reorder = &reorderProbe{c.r, measure.NewValues(1_000_000), measure.NewValues(1_000_000)}
	s.register(c.reorder)
	return nil
}

// conweaveOf returns the destination side of a leaf.
func conweaveOf(l *node.Leaf) *reorder.ConWeave {
	return l.Brain().Receiver(reorder.SchemeID).(*reorder.ConWeave)
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
		d := conweaveOf(l).Counters()
		stat.Add(&dest, &d)
		one := l.Brain().Stats()
		stat.Add(&own, &one)
		for _, s := range l.Brain().SchemeStats() {
			if own, ok := s.Own.(*balance.ConWeaveStats); ok {
				stat.Add(&source, own)
			}
		}
	}
	c := &measure.ConWeaveResult{Counters: counters(&source, &dest), ControlBytes: map[string]uint64{}, DataBytes: dest.Bytes}
	for op := overlay.OpRTTReply; op <= overlay.OpNotify; op++ {
		c.ControlBytes[op.String()] = own.Sent[op].Bytes
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
	at := func(q float64) float64 { return float64(h.Quantile(q).Nanoseconds()) }
	d.Mean, d.Max = float64(h.Sum.Nanoseconds())/float64(h.N), float64(h.Max.Nanoseconds())
	d.P50, d.P90, d.P95, d.P99, d.P999 = at(0.5), at(0.9), at(0.95), at(0.99), at(0.999)
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

// counters lists both sides' counters by the names of their tags: source_late_replies,
// destination_flushes_expiry.
func counters(source, dest any) map[string]uint64 {
	out := map[string]uint64{}
	for prefix, s := range map[string]any{"source_": source, "destination_": dest} {
		for name, n := range stat.Counters(s) {
			out[prefix+name] = n
		}
	}
	return out
}
