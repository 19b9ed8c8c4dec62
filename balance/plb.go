package balance

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/loomfabric/loom/internal/flowtable"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/reorder"
)

var _ = register(Scheme{
	Name: "plb", Summary: "a flow's hash decides, and a flow that stays congested moves to a random path",
	New: newPLB, Gap: flowletGap, NeedsPeer: true, Section: plbSection,
})

var plbSection = &Section{
	Name:       "plb",
	Summary:    "PLB are the parameters of scheme plb. Its pause is `congestion.flowlet_gap`.",
	New:        newPLBParams,
	Profiles:   []Profile{Datacenter, Lab},
	Reloadable: []string{"round", "threshold", "idle_rounds", "forced_rounds", "flows"},
}

// maxRounds is the most congested rounds that a flow's entry counts.
const maxRounds = math.MaxUint8

// PLBParams are the tunables of Protective Load Balancing (Qureshi et al., SIGCOMM 2022).
type PLBParams struct {
	// Round is the time after which a flow's path is looked at again. It should be
	// near the round trip between leaves, which is the paper's round.
	Round time.Duration `yaml:"round"`
	// Threshold is the congestion from which on a round counts as congested: a share of
	// the largest metric that q allows, above 0 and at most 1.
	Threshold float64 `yaml:"threshold"`
	// IdleRounds is the number of congested rounds in a row, 1 to 255, after which a
	// flow moves when it pauses for longer than congestion.flowlet_gap (M in the paper).
	IdleRounds int `yaml:"idle_rounds"`
	// ForcedRounds is the number of congested rounds in a row, up to 255, after which a
	// flow moves without a pause (N in the paper). Packets may be reordered then. 0:
	// flows move in pauses only.
	ForcedRounds int `yaml:"forced_rounds"`
	// Flows is the number of entries of each worker's table of flows, of 32 bytes each:
	// a power of two from 4 to 16777216. A flow without an entry stays on its hash's
	// path.
	Flows int `yaml:"flows"`
}

// newPLBParams returns a profile's values. The numbers of rounds are those of Linux
// (tcp_plb_idle_rehash_rounds, tcp_plb_rehash_rounds). The lab's round is the
// datacenter's times 12.5, as all of CONGA's times are (congestion.Lab).
func newPLBParams(profile Profile) Params {
	p := &PLBParams{Round: 100 * time.Microsecond, Threshold: 1, IdleRounds: 3, ForcedRounds: 12, Flows: 64 << 10}
	if profile != Datacenter {
		p.Round = 1250 * time.Microsecond
	}
	return p
}

// Validate reports the first parameter that makes no sense.
func (p *PLBParams) Validate() error {
	switch {
	case p.Round <= 0 || p.Round > time.Minute:
		return fieldError("round", "use a time above 0 and up to a minute", "rounds of %v", p.Round)
	case !(p.Threshold > 0 && p.Threshold <= 1):
		return fieldError("threshold", "use a number above 0 and up to 1, as in 0.8", "threshold is %v", p.Threshold)
	case p.IdleRounds < 1 || p.IdleRounds > maxRounds:
		return fieldError("idle_rounds", fmt.Sprintf("use 1 to %d", maxRounds), "idle_rounds is %d", p.IdleRounds)
	case p.ForcedRounds < 0 || p.ForcedRounds > maxRounds:
		return fieldError("forced_rounds", fmt.Sprintf("use 0 to %d", maxRounds), "forced_rounds is %d", p.ForcedRounds)
	case p.ForcedRounds > 0 && p.ForcedRounds < p.IdleRounds:
		return fieldError("forced_rounds", "use at least idle_rounds, or 0 for never", "forced_rounds is %d and idle_rounds is %d", p.ForcedRounds, p.IdleRounds)
	case p.Flows < flowtable.Ways || p.Flows > flowtable.MaxEntries || p.Flows&(p.Flows-1) != 0:
		return fieldError("flows", fmt.Sprintf("use a power of two from %d to %d", flowtable.Ways, flowtable.MaxEntries), "flow table of %d entries", p.Flows)
	}
	return nil
}

// plb sends a flow by its hash as ecmp does, until its path was congested for some
// rounds in a row. Then the flow takes a path at random, by the paths' weights: in the
// next pause, or after some more such rounds at once.
//
// PLB is made for hosts, and a leaf differs from one in these points:
//   - A round of PLB is a round trip of the connection, and is congested if at least
//     half of its acknowledgements say that a switch marked a packet (ECN). A leaf sees
//     no acknowledgements. Here a round is a fixed time, and it is congested if at its
//     end the flow's path has a metric of at least the threshold. The metric is CONGA's:
//     the larger one of the uplink's own and of what the destination leaf fed back. It
//     is an average over tau already.
//   - A host knows when nothing is in flight. A leaf takes that for granted after a
//     pause longer than the flowlet gap.
//   - PLB draws another IPv6 flow label, and switches hash it. A leaf draws the path. As
//     with a label the draw may give the same path again.
//   - After a retransmission timeout the host draws a new label anyway (PRR), and PLB
//     keeps still for a minute so as not to return to a path that lost everything. A
//     leaf sees no timeouts. Path liveness keeps flows off paths that do not deliver.
type plb struct {
	seed         uint64
	gap, round   mono.Time
	level        uint8 // the metric from which on a path is congested
	idle, forced uint8
	rng          *rand.PCG
	flows        flowtable.Table[plbFlow]
	remote       [MaxPaths]uint8
	stats        PLBStats
}

// plbFlow is what is known of a flow.
type plbFlow struct {
	began  mono.Time // of the present round
	uplink uint8
	rounds uint8 // congested ones in a row
}

// PLBStats counts what PLB did.
type PLBStats struct {
	Flows     uint64 `help:"Flows that got an entry in the table, and a path by their hash."`
	Rounds    uint64 `help:"Rounds of flows that ended."`
	Congested uint64 `stat:"congested_rounds" help:"Rounds at whose end the flow's path was congested."`
	Idle      uint64 `stat:"idle_moves" help:"Flows that took a random path in a pause."`
	Forced    uint64 `stat:"forced_moves" help:"Flows that took a random path without a pause."`
	Lost      uint64 `stat:"lost_moves" help:"Flows that took a random path because theirs went away."`
	Overflow  uint64 `stat:"overflow_frames" unit:"frames" help:"Frames sent by hash because the table of flows had no room."`
}

func newPLB(o *Options) Policy {
	p := o.Section.(*PLBParams)
	gap := mono.Time(o.Congestion.FlowletGap)
	return &plb{
		seed: o.Seed, gap: gap, round: mono.Time(p.Round), rng: newRNG(o),
		level: uint8(math.Ceil(p.Threshold * float64(o.Congestion.TopMetric()))),
		idle:  uint8(p.IdleRounds), forced: uint8(p.ForcedRounds),
		// After a pause nothing is in flight, so the entry may go to another flow.
		flows: flowtable.New[plbFlow](p.Flows, gap),
	}
}

// Stats returns the counters.
func (b *plb) Stats() Stats {
	own := b.stats
	return Stats{Decisions: own.Flows + own.Idle + own.Forced + own.Lost, Own: &own}
}

// Retime changes the pause after which nothing of a flow is in flight.
func (b *plb) Retime(_ mono.Time, t *reorder.Times) error {
	if t.FlowletGap != 0 {
		b.gap = mono.Time(t.FlowletGap)
		b.flows.SetAge(b.gap)
	}
	return nil
}

// Choose sends each packet after its flow, and moves flows that stay congested.
func (b *plb) Choose(now mono.Time, v *View, pkts []Packet) {
	looked := false
	for i := range pkts {
		p := &pkts[i]
		paths := &v.Paths[p.Leaf]
		if paths.N == 0 {
			continue
		}
		e := b.flows.Find(p.Hash, p.Leaf)
		if e == nil {
			b.begin(now, paths, p)
			continue
		}
		due := now.Apart(e.V.began, b.round)
		if due && !looked {
			looked = true
			v.look(now)
		}
		switch b.step(now, v, e, due) {
		case plbStays:
			p.Path = uint8(paths.Index[e.V.uplink%MaxPaths])
			continue
		case plbIdle:
			b.stats.Idle++
		case plbForced:
			b.stats.Forced++
		case plbLost:
			b.stats.Lost++
		}
		uplink := paths.Uplink[paths.draw(b.rng)%MaxPaths]
		e.V = plbFlow{began: now, uplink: uplink}
		p.Path = uint8(paths.Index[uplink%MaxPaths])
	}
}

// begin sends the first packet of a flow by its hash. If the table has no room that is
// the flow's path, too.
func (b *plb) begin(now mono.Time, paths *Paths, p *Packet) {
	uplink := paths.Uplink[b.hashed(paths, p.Hash)%MaxPaths]
	p.Path = uint8(paths.Index[uplink%MaxPaths])
	e := b.flows.Insert(now, p.Hash, p.Leaf)
	if e == nil {
		b.stats.Overflow++
		return
	}
	b.stats.Flows++
	e.V = plbFlow{began: now, uplink: uplink}
}

// hashed returns the path that ecmp would give a flow.
func (b *plb) hashed(paths *Paths, hash uint32) uint8 {
	return paths.byHash(hash, b.seed)
}

// plbVerdict says whether a flow moves, and why.
type plbVerdict uint8

const (
	plbStays  plbVerdict = iota
	plbIdle              // after IdleRounds, in a pause
	plbForced            // after ForcedRounds, without one
	plbLost              // its path is gone
)

// step counts the packet of now for its flow, ends the flow's round if that is due, and
// reports whether the flow moves.
func (b *plb) step(now mono.Time, v *View, e *flowtable.Entry[plbFlow], due bool) plbVerdict {
	paused := now.Apart(e.Last, b.gap)
	e.Last = now
	f := &e.V
	if v.Paths[e.Leaf()].Index[f.uplink%MaxPaths] < 0 {
		return plbLost
	}
	if due {
		b.stats.Rounds++
		f.began = now
		if b.metric(now, v, e.Leaf(), f.uplink) < b.level {
			f.rounds = 0
		} else {
			b.stats.Congested++
			f.rounds += min(1, maxRounds-f.rounds)
		}
	}
	switch {
	case paused && f.rounds >= b.idle:
		return plbIdle
	case b.forced > 0 && f.rounds >= b.forced:
		return plbForced
	}
	return plbStays
}

// metric returns the congestion of the path to a leaf that starts on an uplink.
func (b *plb) metric(now mono.Time, v *View, leaf uint16, uplink uint8) uint8 {
	v.remote(leaf, now, &b.remote)
	return max(v.Local[uplink%MaxPaths], b.remote[uplink%MaxPaths])
}
