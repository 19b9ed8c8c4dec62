package balance

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/internal/mono"
)

// fluid is a leaf–spine fabric with one destination leaf, small enough to be
// read: links that carry bytes and meter them with the real DREs, source leaves
// that decide with a real Policy and learn by the real feedback tables, and
// flows that behave like TCP in its steady state: they share every bottleneck
// evenly and are never faster than what they have to send.
//
// Spine s is reached by uplink s. Each flow sends one packet a step; now and
// then it pauses for long enough to end its flowlet.
type fluid struct {
	rng     *rand.Rand
	params  congestion.Params
	now     mono.Time
	down    []fluidLink // by spine: to the destination leaf
	sources []*fluidLeaf
	from    *congestion.FromLeaf // the destination's, by source
	cursor  *congestion.FeedbackCursor
}

type fluidLink struct {
	rate    float64 // bits per second
	dre     congestion.DRE
	offered float64 // bytes of this step
	carried float64 // bytes since measuring began
}

type fluidLeaf struct {
	policy  Policy
	view    *View
	up      []fluidLink // by uplink
	flows   []fluidFlow
	cap     float64 // of a flow, bits per second
	sent    [MaxPaths]float64
	carried [MaxPaths]float64 // bytes since measuring began, by uplink
}

type fluidFlow struct {
	pkt   Packet
	rate  float64 // bits per second
	until int     // step that it pauses after
}

const (
	fluidStep  = 10 * time.Microsecond
	fluidPause = 6   // steps: longer than T_fl
	fluidTalk  = 400 // steps between pauses, on average
	fluidFlows = 400
)

func newFluid(seed uint64, down ...float64) *fluid {
	p := congestion.Datacenter()
	p.FlowletGap = 4 * fluidStep
	f := &fluid{rng: rand.New(rand.NewPCG(seed, 0)), params: p}
	for _, rate := range down {
		f.down = append(f.down, fluidLink{rate: rate, dre: p.DRE()})
	}
	f.from = congestion.NewFromLeaf(4, &p)
	f.cursor = congestion.NewFeedbackCursor(4)
	return f
}

// addLeaf adds a source leaf with uplinks of the given rates (0: none to that
// spine), whose flows want to send demand in all.
func (f *fluid) addLeaf(t *testing.T, name string, keys Params, demand float64, up ...float64) *fluidLeaf {
	t.Helper()
	policy, err := New(name, Options{Seed: f.rng.Uint64(), Congestion: f.params, Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	l := &fluidLeaf{policy: policy, cap: demand / fluidFlows * (fluidTalk + fluidPause) / fluidTalk}
	var uplinks []uint8
	for u, rate := range up {
		l.up = append(l.up, fluidLink{rate: rate, dre: f.params.DRE()})
		if rate > 0 {
			uplinks = append(uplinks, uint8(u))
		}
	}
	l.view = newView(MakePaths(uplinks...))
	l.view.Remote = congestion.NewToLeaf(1, &f.params)
	if demand > 0 {
		for i := range fluidFlows {
			l.flows = append(l.flows, fluidFlow{
				pkt:   Packet{Hash: f.rng.Uint32()<<16 | uint32(i)},
				rate:  l.cap / 4,
				until: f.rng.IntN(fluidTalk),
			})
		}
	}
	f.sources = append(f.sources, l)
	return l
}

// step lets every flow that does not pause send for one step.
func (f *fluid) step(n int) {
	f.now = f.now.Add(fluidStep)
	shares := f.shares()
	for k, l := range f.sources {
		vector := make([]Packet, 0, 64)
		who := make([]int, 0, 64)
		flush := func() {
			f.send(l, vector)
			for i := range vector {
				l.flows[who[i]].pkt = vector[i]
			}
			vector, who = vector[:0], who[:0]
		}
		for i := range l.flows {
			fl := &l.flows[i]
			if n >= fl.until {
				if n >= fl.until+fluidPause {
					fl.until = n + f.rng.IntN(2*fluidTalk)
				}
				continue
			}
			want := min(l.cap, shares[k][l.view.Paths[0].Uplink[fl.pkt.Path]])
			fl.rate += (want - fl.rate) / 10 // in some round trips
			fl.pkt.Len = uint16(fl.rate / 8 * fluidStep.Seconds())
			vector, who = append(vector, fl.pkt), append(who, i)
			if len(vector) == cap(vector) {
				flush()
			}
		}
		flush()
	}
	f.carry()
	f.feedBack()
}

// send asks the leaf's policy and meters what goes out.
func (f *fluid) send(l *fluidLeaf, vector []Packet) {
	for u := range l.up {
		l.view.Local[u] = l.up[u].dre.Metric(f.now, uint64(l.up[u].rate))
	}
	l.policy.Choose(f.now, l.view, vector)
	for i := range vector {
		u := l.view.Paths[0].Uplink[vector[i].Path]
		l.up[u].dre.Add(f.now, uint32(vector[i].Len))
		l.up[u].offered += float64(vector[i].Len)
		f.down[u].dre.Add(f.now, uint32(vector[i].Len))
		f.down[u].offered += float64(vector[i].Len)
		l.sent[u] += float64(vector[i].Len)
	}
}

// carry books what the links could really take of the step's bytes.
func (f *fluid) carry() {
	fits := func(l *fluidLink) float64 {
		return min(1, l.rate/8*fluidStep.Seconds()/max(l.offered, 1))
	}
	for _, l := range f.sources {
		for u := range l.up {
			bytes := l.sent[u] * min(fits(&l.up[u]), fits(&f.down[u]))
			l.carried[u] += bytes
			l.up[u].carried += bytes
			f.down[u].carried += bytes
			l.sent[u] = 0
		}
	}
	for u := range f.down {
		f.down[u].offered = 0
		for _, l := range f.sources {
			l.up[u].offered = 0
		}
	}
}

// feedBack is §3.3: CE is the worst link's metric, the destination records it,
// and one packet a step goes back to each source.
func (f *fluid) feedBack() {
	for k, l := range f.sources {
		for u := range l.up {
			if l.up[u].rate == 0 {
				continue
			}
			ce := max(l.up[u].dre.Metric(f.now, uint64(l.up[u].rate)), f.down[u].dre.Metric(f.now, uint64(f.down[u].rate)))
			f.from.Record(uint16(k), uint8(u), ce, f.now)
		}
		if tag, metric, ok := f.from.Next(f.cursor, uint16(k), f.now); ok {
			l.view.Remote.Update(0, tag, metric, f.now)
		}
	}
}

// shares returns the max-min fair rate of a flow by source and uplink: all rise
// together until a link is full or they have all they want; those stay, the
// others rise on.
func (f *fluid) shares() [][MaxPaths]float64 {
	type class struct {
		k, u   int
		n      float64
		frozen bool
	}
	var classes []class
	for k, l := range f.sources {
		var n [MaxPaths]float64
		for i := range l.flows {
			n[l.view.Paths[0].Uplink[l.flows[i].pkt.Path]]++
		}
		for u := range l.up {
			if n[u] > 0 {
				classes = append(classes, class{k: k, u: u, n: n[u] * fluidTalk / (fluidTalk + fluidPause)})
			}
		}
	}
	rate := make([][MaxPaths]float64, len(f.sources))
	// level returns how high the open classes of a link can rise.
	level := func(link *fluidLink, on func(*class) bool) float64 {
		left, n := link.rate, 0.0
		for i := range classes {
			if c := &classes[i]; on(c) && c.frozen {
				left -= c.n * rate[c.k][c.u]
			} else if on(c) {
				n += c.n
			}
		}
		if n == 0 {
			return math.Inf(1)
		}
		return max(left, 0) / n
	}
	for range classes { // each turn freezes one class or more
		lowest := math.Inf(1)
		limit := make([]float64, len(classes))
		for i := range classes {
			if c := &classes[i]; !c.frozen {
				up := level(&f.sources[c.k].up[c.u], func(o *class) bool { return o.k == c.k && o.u == c.u })
				down := level(&f.down[c.u], func(o *class) bool { return o.u == c.u })
				limit[i] = min(f.sources[c.k].cap, up, down)
				lowest = min(lowest, limit[i])
			}
		}
		for i := range classes {
			if c := &classes[i]; !c.frozen && limit[i] <= lowest*(1+1e-9) {
				c.frozen = true
				rate[c.k][c.u] = lowest
			}
		}
	}
	return rate
}

// run lets the fabric settle, and returns what is carried in all afterwards, in
// bits per second.
func (f *fluid) run(settle, measure time.Duration) float64 {
	steps := int(settle / fluidStep)
	for n := range steps {
		f.step(n)
	}
	for u := range f.down {
		f.down[u].carried = 0
		for _, l := range f.sources {
			l.up[u].carried, l.carried[u] = 0, 0
		}
	}
	for n := range int(measure / fluidStep) {
		f.step(steps + n)
	}
	total := 0.0
	for u := range f.down {
		f.down[u].carried *= 8 / measure.Seconds()
		total += f.down[u].carried
		for _, l := range f.sources {
			l.up[u].carried *= 8 / measure.Seconds()
			l.carried[u] *= 8 / measure.Seconds()
		}
	}
	return total
}

// bottleneck returns the utilisation of the most congested link (§6.1).
func (f *fluid) bottleneck() (worst float64) {
	for u := range f.down {
		worst = max(worst, f.down[u].carried/f.down[u].rate)
		for _, l := range f.sources {
			if l.up[u].rate > 0 {
				worst = max(worst, l.up[u].carried/l.up[u].rate)
			}
		}
	}
	return worst
}
