package sim

import (
	"github.com/loomfabric/loom/internal/measure"
	"github.com/loomfabric/loom/internal/stat"
	"github.com/loomfabric/loom/sim/engine"
)

// progress notes what happened in each interval from the start of a run to the end of its
// measured time.
type progress struct {
	r         *run
	id        engine.ID
	interval  engine.Time
	before    look
	intervals []measure.Interval
}

// look is what had happened up to a time.
type look struct{ goodput, reordered, made, dropped uint64 }

// watchProgress notes goodput, reordering and losses at the interval that the run asks for.
func (c *collector) watchProgress() {
	if c.r.spec.Measure.Progress == 0 {
		return
	}
	p := &progress{r: c.r, interval: engine.Of(c.r.spec.Measure.Progress)}
	p.id = c.r.engine.Register(p)
	c.r.engine.At(p.interval, p.id, 0)
	c.progress = p
}

// Handle is the engine's to call: an interval is over.
func (p *progress) Handle(now engine.Time, _ uint64) {
	l, seconds := p.look(), p.interval.Seconds()
	p.intervals = append(p.intervals, measure.Interval{
		Until:         now.Duration().String(),
		GoodputBps:    float64(l.goodput-p.before.goodput) * 8 / seconds,
		ReorderedPerS: float64(l.reordered-p.before.reordered) / seconds,
		LostPercent:   percent(l.dropped-p.before.dropped, l.made-p.before.made),
	})
	p.before = l
	if p.interval <= p.r.until-now {
		p.r.engine.At(now+p.interval, p.id, 0)
	}
}

func (p *progress) look() look {
	l := look{goodput: p.r.transport.goodput() + p.r.datagrams.counters().Goodput}
	l.made, l.dropped = p.r.net.Made(), p.r.net.Lost()
	for name, n := range stat.Counters(p.r.transport.counters()) {
		if name == "reordered_segments" || name == "reordered" {
			l.reordered += n
		}
	}
	return l
}

func percent(part, of uint64) float64 {
	if of == 0 {
		return 0
	}
	return 100 * float64(part) / float64(of)
}
