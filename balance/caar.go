package balance

import (
	"fmt"
	"time"

	"github.com/loomfabric/loom/internal/flowtable"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/internal/units"
	"github.com/loomfabric/loom/overlay"
)

var _ = register(Scheme{
	Name: "caar", Summary: "the neighbour with the shortest queue for each flow, and another one when that is congested",
	New:  func(o *Options) Policy { return newCAAR(o, false) },
	Wire: caarID, Section: caarSection, Switch: newCAARSwitch, Queues: true, EveryTier: true,
})

var _ = register(Scheme{
	Name: "caar-flow", Summary: "the neighbour with the shortest queue for each flow, for good",
	New:  func(o *Options) Policy { return newCAAR(o, true) },
	Wire: caarID, Section: caarSection, Switch: newCAARSwitch, Queues: true, EveryTier: true,
})

const caarID overlay.SchemeID = 6

var caarSection = &Section{
	Name:     "caar",
	Summary:  "CAAR are the parameters of schemes caar and caar-flow. All nodes of a fabric need the same ones.",
	New:      newCAARParams,
	Profiles: []Profile{Datacenter, Lab},
}

// CAARParams are the tunables of CAAR (Zhang et al., Computer Communications 2015, Table 2).
type CAARParams struct {
	// Buffer is what the queue of a port holds (B), 3000 bytes to 1GiB. The thresholds are
	// shares of it. It should be the queue of the ports between switches.
	Buffer units.Size `yaml:"buffer"`
	// M1 is the difference of two queues from which on the longer one is congested (M1/B):
	// above 0 and at most 2.
	M1 float64 `yaml:"m1"`
	// M2 is the length from which on a node's own queue is congested (M2/B): above 0 and
	// at most 2.
	M2 float64 `yaml:"m2"`
	// Delta is by how much a queue has to change for neighbours to be told (Δ/B): 0 to 1.
	Delta float64 `yaml:"delta"`
	// Slot is how often queues are looked at and told (T), 10us to 1s.
	Slot time.Duration `yaml:"slot"`
	// Signal is what neighbours tell each other: per-leaf (the queue that a packet to a
	// leaf would wait in) or scalar (the longest of all queues).
	Signal string `yaml:"signal"`
	// Literal compares a queue with the slot before, as in the paper's Figure 4, and not
	// with what neighbours were told last: they then miss slow changes.
	Literal bool `yaml:"literal"`
	// Idle is the pause after which a flow may be forgotten.
	Idle time.Duration `yaml:"idle"`
	// Flows is the number of entries of each worker's table of flows, of 32 bytes each: a
	// power of two from 4 to 16777216. A flow without an entry follows the shortest queue.
	Flows int `yaml:"flows"`
	// PauseHosts has a leaf pause a host whose packets meet a congested queue. Only the
	// simulator can do it.
	PauseHosts bool `yaml:"pause_hosts"`
}

// The words of CAARParams.Signal.
const (
	caarPerLeaf = "per-leaf"
	caarScalar  = "scalar"
)

// newCAARParams returns a profile's values. The lab's queues hold more, and fill in more
// time.
func newCAARParams(profile Profile) Params {
	p := &CAARParams{
		Buffer: 70_000, M1: 0.5, M2: 0.9, Delta: 0.05, Slot: 500 * time.Microsecond, Signal: caarPerLeaf,
		Idle: time.Second, Flows: 64 << 10,
	}
	if profile != Datacenter {
		p.Buffer, p.Slot = 256<<10, 6250*time.Microsecond
	}
	return p
}

// Validate reports the first parameter that makes no sense.
func (p *CAARParams) Validate() error {
	switch {
	case p.Buffer < 3000 || p.Buffer > 1<<30:
		return fieldError("buffer", "use 3000 to 1GiB", "a buffer of %v", p.Buffer)
	case !(p.M1 > 0 && p.M1 <= 2):
		return fieldError("m1", "use a share above 0 and up to 2", "m1 is %g", p.M1)
	case !(p.M2 > 0 && p.M2 <= 2):
		return fieldError("m2", "use a share above 0 and up to 2", "m2 is %g", p.M2)
	case !(p.Delta >= 0 && p.Delta <= 1):
		return fieldError("delta", "use a share from 0 to 1", "delta is %g", p.Delta)
	case p.Slot < 10*time.Microsecond || p.Slot > time.Second:
		return fieldError("slot", "use 10us to 1s", "slots of %v", p.Slot)
	case p.Signal != caarPerLeaf && p.Signal != caarScalar:
		return fieldError("signal", "use per-leaf or scalar", "signal is %q", p.Signal)
	case p.Idle <= 0 || p.Idle > time.Hour:
		return fieldError("idle", "use a time above 0 and up to an hour", "idle is %v", p.Idle)
	case p.Flows < flowtable.Ways || p.Flows > flowtable.MaxEntries || p.Flows&(p.Flows-1) != 0:
		return fieldError("flows", fmt.Sprintf("use a power of two from %d to %d", flowtable.Ways, flowtable.MaxEntries), "flow table of %d entries", p.Flows)
	}
	return nil
}

// Pause returns the pause after which a flow may take another path.
func (p *CAARParams) Pause() (pause, longest time.Duration, key string) {
	return p.Idle, time.Hour, "caar.idle"
}

// caar is CAAR at one set of links that lead to the same leaves (Figure 3). What a node
// knows of all its links is in caarSwitch.
//
// It differs from the paper in these points; decision 0018 has the reasons:
//   - The paper's node has one queue. Ours has one a port: Q_j is the queue of the port to
//     the next hop in question, and Q_k is what the node behind that port told.
//   - Of next hops whose told queues are alike, the one with the shortest own queue is the
//     best one, and of those that are alike there, too, the flow's hash chooses.
//   - A packet that has to wait stands in its port's queue, and the port is held until the
//     next slot, or until the port's own queue has grown long enough. Q_j is looked at for
//     each packet and not once a slot.
type caar struct {
	sw    *caarSwitch
	seed  uint64
	links []int // port of each link; nil: the same number
	stays bool  // flows never move (§4.5)
	stats CAARStats
}

// caarFlow is what is known of a flow: the port that it leaves by.
type caarFlow struct{ port uint16 }

// CAARStats counts what CAAR did. What is said to neighbours is counted in one policy of a
// node alone.
type CAARStats struct {
	Flows     uint64 `help:"Flows that got an entry in the table."`
	Moves     uint64 `help:"Times that a flow took another next hop because its own was congested (M1)."`
	Diverted  uint64 `stat:"diverted_frames" unit:"frames" help:"Frames that took another next hop than their flow because the node's own queue was congested (M2)."`
	Waits     uint64 `help:"Times that a port was held because the next hop was congested."`
	Opened    uint64 `help:"Times that a port was let go before the end of its slot."`
	Lost      uint64 `stat:"lost_moves" help:"Flows that took another path because theirs went away."`
	Overflow  uint64 `stat:"overflow_frames" unit:"frames" help:"Frames without an entry because the table of flows had no room."`
	Updates   uint64 `help:"Queues that were told to neighbours."`
	Heard     uint64 `help:"Queues that neighbours told."`
	Forgotten uint64 `help:"Queues of neighbours that were taken for empty because they were not told again."`
}

func newCAAR(o *Options, stays bool) Policy {
	sw, ok := o.Switch.(*caarSwitch)
	if !ok {
		sw = newCAARSwitch(o, nil).(*caarSwitch)
	}
	c := &caar{sw: sw, seed: o.Seed, links: o.Links, stays: stays}
	if sw.speaker == nil {
		sw.speaker = c
	}
	return c
}

// Stats returns the counters.
func (c *caar) Stats() Stats {
	own := c.stats
	if c.sw.speaker == c {
		own.Updates, own.Heard, own.Forgotten = c.sw.updates, c.sw.heardCount, c.sw.forgotten
	}
	return Stats{Decisions: own.Flows + own.Moves + own.Diverted + own.Lost + own.Overflow, Own: &own}
}

// port returns the node's port of a link.
func (c *caar) port(link uint8) int {
	if c.links == nil {
		return int(link)
	}
	return c.links[link]
}

// link returns what a port is to this policy, if a leaf is reached by it.
func (c *caar) link(paths *Paths, port uint16) (uint8, bool) {
	for _, u := range paths.Uplink[:paths.N] {
		if c.port(u%MaxPaths) == int(port) {
			return u % MaxPaths, true
		}
	}
	return 0, false
}

// caarVerdict says why a packet goes where it goes.
type caarVerdict uint8

const (
	caarNew    caarVerdict = iota // a flow that is not known
	caarKeep                      // with its flow
	caarMove                      // its flow's next hop is congested
	caarDivert                    // the node's own queue is congested
	caarLost                      // its flow's port is gone
)

// caarChoice is what is decided about a packet.
type caarChoice struct {
	link uint8
	why  caarVerdict
	wait bool // the port is to be held
}

// Choose sends each packet after its flow, unless the next hop or the own queue is
// congested.
func (c *caar) Choose(now mono.Time, v *View, pkts []Packet) {
	v.look(now)
	queue := *v.Queue
	for i := range pkts {
		p := &pkts[i]
		p.Marks = Marks{Selector: uint8(p.Hash)}
		paths := &v.Paths[p.Leaf]
		if paths.N == 0 {
			continue
		}
		at := c.sw.place(p.Number)
		e := c.sw.flows.Find(p.Hash, p.Number&(flowtable.MaxLeaves-1))
		if e != nil && c.sw.flows.Aged(now, e) {
			e.Remove()
			e = nil
		}
		d := c.decide(p, paths, at, e, &queue)
		c.note(now, p, e, &d)
		c.hold(now, &d, at)
		queue[d.link] += uint32(p.Len)
		p.Path = uint8(paths.Index[d.link])
	}
}

// decide is Figure 3 for one packet. at is where the switch knows the packet's leaf, and
// e is the flow's entry, nil if there is none.
func (c *caar) decide(p *Packet, paths *Paths, at int, e *flowtable.Entry[caarFlow], queue *[MaxPaths]uint32) caarChoice {
	best := c.best(p, paths, at, queue)
	full := c.congested(best, at, queue)
	if e == nil {
		return caarChoice{best, caarNew, full}
	}
	h, ok := c.link(paths, e.V.port)
	switch {
	case !ok:
		return caarChoice{best, caarLost, full}
	case c.stays || h == best || full: // there is no better hop
		return caarChoice{h, caarKeep, c.congested(h, at, queue)}
	case c.sw.flag(c.port(h)):
		return caarChoice{best, caarDivert, false}
	case c.congested(h, at, queue):
		return caarChoice{best, caarMove, false}
	}
	return caarChoice{h, caarKeep, false}
}

// best returns the next hop with the least queue (equation 2).
func (c *caar) best(p *Packet, paths *Paths, at int, queue *[MaxPaths]uint32) uint8 {
	n := int(paths.N)
	i := int(uint64(Remix(uint64(p.Hash)^c.seed)) * uint64(n) >> 32)
	best := paths.Uplink[i%MaxPaths] % MaxPaths
	least := c.sw.told(c.port(best), at)
	for range n - 1 {
		if i++; i == n {
			i = 0
		}
		u := paths.Uplink[i%MaxPaths] % MaxPaths
		if q := c.sw.told(c.port(u), at); q < least || q == least && queue[u] < queue[best] {
			best, least = u, q
		}
	}
	return best
}

// congested reports whether the next hop behind a link has so much longer a queue that
// packets to it have to wait (§4.2).
func (c *caar) congested(link uint8, at int, queue *[MaxPaths]uint32) bool {
	return c.sw.told(c.port(link), at) >= queue[link]+c.sw.m1
}

// note brings the table of flows and the counters in line with a choice.
func (c *caar) note(now mono.Time, p *Packet, e *flowtable.Entry[caarFlow], d *caarChoice) {
	switch d.why {
	case caarNew:
		if e = c.sw.flows.Insert(now, p.Hash, p.Number&(flowtable.MaxLeaves-1)); e == nil {
			c.stats.Overflow++
			return
		}
		c.stats.Flows++
	case caarMove:
		c.stats.Moves++
	case caarLost:
		c.stats.Lost++
	case caarDivert:
		c.stats.Diverted++
		e.Last = now
		return // the flow stays where it was (Figure 3, line 5)
	case caarKeep:
		e.Last = now
		return
	}
	e.Last, e.V.port = now, uint16(c.port(d.link))
}

// hold holds the port of a packet that has to wait, and lets go one that need not be held
// any more.
func (c *caar) hold(now mono.Time, d *caarChoice, at int) {
	port := c.port(d.link)
	if held := c.sw.heldBy(port); d.wait && held < 0 {
		c.stats.Waits++
		c.sw.hold(now, port, at)
	} else if !d.wait && held == at {
		c.stats.Opened++
		c.sw.release(now, port)
	}
}

// Explain says where a flow's next packet goes.
func (c *caar) Explain(now mono.Time, v *View, p *Packet) Explanation {
	v.look(now)
	paths := &v.Paths[p.Leaf]
	x := newExplanation(paths)
	at := c.sw.place(p.Number)
	e := c.sw.flows.Find(p.Hash, p.Number&(flowtable.MaxLeaves-1))
	if e != nil && c.sw.flows.Aged(now, e) {
		e = nil
	}
	d := c.decide(p, paths, at, e, v.Queue)
	x.Fresh = 1 << c.best(p, paths, at, v.Queue)
	x.Path = int(paths.Index[d.link])
	x.Reason = [...]string{
		caarNew: "a new flow takes the next hop with the shortest queue", caarKeep: "its flow's next hop is not congested",
		caarMove: "its flow's next hop is congested (m1)", caarDivert: "the queue to its flow's next hop is congested (m2)",
		caarLost: "its flow's uplink is gone",
	}[d.why]
	if d.wait {
		x.Reason = "all next hops are congested: it waits for the next slot"
	}
	return x
}
