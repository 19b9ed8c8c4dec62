package balance

import (
	"fmt"
	"time"

	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

var _ = register(Scheme{
	Name: "hula", Summary: "the least used path that probes have found, for each flowlet",
	New: newHULA, Gap: flowletGap, Keys: flowletKeys, Section: hulaSection,
	Wire: hulaID, NeedsPeer: true,
})

const hulaID overlay.SchemeID = 7

var hulaSection = &Section{
	Name:       "hula",
	Summary:    "HULA are the parameters of scheme hula. Its pause is `congestion.flowlet_gap`.",
	New:        newHULAParams,
	Profiles:   []Profile{Datacenter, Lab},
	Reloadable: []string{"probe", "misses", "spacing"},
}

// HULAParams are the tunables of HULA (Katta et al., SOSR 2016).
type HULAParams struct {
	// Probe is the time from one probe of a path to the next. congestion.tau should be
	// twice as long or more, so that each probe sees an average over new packets.
	Probe time.Duration `yaml:"probe"`
	// Misses is how many probes in a row must stay without an answer, 1 to 255, for a
	// path to count as failed.
	Misses int `yaml:"misses"`
	// Spacing is the least time between two probes of a leaf. A leaf with so many paths
	// to others that they do not fit into probe takes longer for a round.
	Spacing time.Duration `yaml:"spacing"`
}

// newHULAParams returns a profile's values. The paper's simulations probe every 200 µs.
func newHULAParams(profile Profile) Params {
	if profile == Datacenter {
		return &HULAParams{Probe: 200 * time.Microsecond, Misses: 5, Spacing: 100 * time.Nanosecond}
	}
	return &HULAParams{Probe: 5 * time.Millisecond, Misses: 5, Spacing: 20 * time.Microsecond}
}

// Validate reports the first parameter that makes no sense.
func (p *HULAParams) Validate() error {
	switch {
	case p.Probe < time.Microsecond || p.Probe > time.Second:
		return fieldError("probe", "use a time from 1us to 1s", "probes every %v", p.Probe)
	case p.Misses < 1 || p.Misses > 255:
		return fieldError("misses", "use 1 to 255", "misses is %d", p.Misses)
	case p.Spacing < 0 || p.Spacing > p.Probe:
		return fieldError("spacing", fmt.Sprintf("use at most probe, %v", p.Probe), "spacing is %v", p.Spacing)
	}
	return nil
}

// hula sends each new flowlet by the best path to its leaf, the only one that it
// remembers (Katta et al., SOSR 2016). Probes find it: the answer of another path takes
// its place if that path is less used, and the answer of the best path itself says how
// much it is used now. A best path whose answers are missing gives way to any other.
//
// Of the paper's text the abstract and public summaries were at hand, so no section is
// named here.
//
// It differs from the paper in these points:
//   - The paper's probes start at the destination's leaf, go to all others, and collect
//     at each switch how much the link back is used; every switch keeps its best next
//     hop to each leaf. Here the leaves of a two-tier fabric do that alone: a probe goes
//     to the destination, collects CE as tenants' packets do, and the destination's leaf
//     answers it. A path is an uplink, and a spine with parallel links to a leaf chooses
//     among them by selectors, of which successive probes take others. (The tutorial on
//     HULA of SIGCOMM 2017 has probes that return, too.)
//   - A probe has 3 bits for utilisation, and the paper's 8. It is measured by CONGA's
//     meter, an average over congestion.tau as the paper's.
//   - A best path that has become silent gives way at once, and flowlets on silent paths
//     move with their next packet. Without any path that answers flowlets go by hash.
//   - Flowlets of several workers follow what each worker has seen. The first worker
//     probes and answers for all.
type hula struct {
	flowlets
	seed   uint64
	first  bool // this worker probes and answers
	params HULAParams
	top    uint8 // largest metric
	leaves []hulaLeaf
	round  hulaRound

	// Answers that the next Tick gives, a ring.
	answers        [hulaAnswers]hulaAnswer
	answer, queued int

	stats HULAStats
}

const (
	// hulaAnswers bounds how many answers wait for the next Tick.
	hulaAnswers = 256
	// hulaLate bounds what counts as a late round: more is a clock that jumped.
	hulaLate = mono.Time(time.Second)
	// hulaSaid bounds what one Tick says: leaves have room for so many messages.
	hulaSaid = 64
)

// hulaLeaf is what is known of the paths to a leaf.
type hulaLeaf struct {
	heard  [MaxPaths]mono.Time // by uplink: of the last answer
	known  uint16              // uplinks that have been answered for, a bit each
	silent uint16              // of those, the ones whose answers are missing, unless all are
	best   uint8
	util   uint8     // of the best
	at     mono.Time // of the best's last answer
}

// hulaRound is a round of probes: all paths to all leaves, spread over time.
type hulaRound struct {
	number int
	next   int // leaf to go on with; 0: with a new round
	peers  int // leaves with paths, when it began
	done   int // of those
	began  mono.Time
	every  mono.Time // how long it is to take
	took   mono.Time // how long the last one took, at most hulaLate
	at     mono.Time // when it goes on
}

// hulaAnswer is an answer to a probe.
type hulaAnswer struct {
	leaf uint16
	path overlay.PathID
	util uint8
}

// HULAStats counts what HULA did.
type HULAStats struct {
	Probes     uint64 `stat:"probes" help:"Probes sent."`
	Answers    uint64 `help:"Answers to other leaves' probes."`
	Unanswered uint64 `stat:"unanswered_probes" help:"Probes of other leaves without an answer, because too many came at once."`
	Learned    uint64 `stat:"answers_received" help:"Answers to this leaf's probes, as each worker counts them."`
	Changes    uint64 `stat:"best_changes" help:"Times that another path became the best one to a leaf."`
	Silent     uint64 `stat:"silent_paths" help:"Times that answers for a path began to be missing."`
	Moved      uint64 `stat:"silent_moves" help:"Flowlets that moved because their path had become silent."`
	Hashed     uint64 `stat:"hashed_flowlets" help:"Flowlets that went by hash because no answer for a path to the leaf was recent."`
}

func newHULA(o *Options) Policy {
	return &hula{
		flowlets: newFlowlets(o, o.Congestion.FlowletGap), seed: o.Seed, first: o.Worker == 0,
		params: *o.Section.(*HULAParams), top: o.Congestion.TopMetric(),
		leaves: make([]hulaLeaf, o.Leaves), round: hulaRound{every: mono.Time(o.Section.(*HULAParams).Probe)},
	}
}

// Stats returns the counters.
func (h *hula) Stats() Stats {
	s, own := h.flowlets.Stats(), h.stats
	s.Own = &own
	return s
}

// Choose sends new flowlets by the best path, and those on silent paths too.
func (h *hula) Choose(now mono.Time, v *View, pkts []Packet) {
	at := h.table.Stamp(now)
	for i := range pkts {
		p := &pkts[i]
		p.Marks = Marks{Selector: uint8(p.Hash & 0xf)}
		paths := &v.Paths[p.Leaf]
		last, active := h.table.Packet(p.Hash, at)
		path := paths.Index[last%MaxPaths]
		silent := active && path >= 0 && h.isSilent(p.Leaf, last)
		if active && path >= 0 && !silent {
			p.Path = uint8(path)
			continue
		}
		if paths.N == 0 {
			continue
		}
		if silent {
			h.stats.Moved++
		}
		uplink, ok := h.best(now, paths, p.Leaf)
		if !ok {
			h.stats.Hashed++
			uplink = paths.Uplink[h.share(paths, p.Hash)%MaxPaths]
		}
		h.start(now, paths, p, uplink)
	}
}

// isSilent reports whether answers for an uplink to a leaf are missing.
func (h *hula) isSilent(leaf uint16, uplink uint8) bool {
	return int(leaf) < len(h.leaves) && h.leaves[leaf].silent>>(uplink%MaxPaths)&1 != 0
}

// best returns the uplink of the best path to a leaf. ok is false if none is known, or
// none has been answered for of late.
func (h *hula) best(now mono.Time, paths *Paths, leaf uint16) (uplink uint8, ok bool) {
	if int(leaf) >= len(h.leaves) {
		return 0, false
	}
	e := &h.leaves[leaf]
	return e.best, e.known>>e.best&1 != 0 && !now.Apart(e.at, h.life()) && paths.Index[e.best%MaxPaths] >= 0
}

// share returns the path that ecmp would give a flow.
func (h *hula) share(paths *Paths, hash uint32) uint8 {
	return paths.byHash(hash, h.seed)
}

// life is for how long an answer counts. A worker that is late with its rounds gets
// answers as late.
func (h *hula) life() mono.Time { return mono.Time(h.params.Misses) * max(h.round.every, h.round.took) }

// Handle takes a probe of another leaf, or the answer to one of this leaf's.
func (h *hula) Handle(now mono.Time, v *View, m *overlay.Message) bool {
	switch {
	case m.Link != overlay.AnyLink || int(m.Leaf) >= len(h.leaves) || int(m.Leaf) >= len(v.Paths):
		return false
	case m.Fabric.Opcode == overlay.OpExplore:
		return h.first && h.ask(m)
	case m.Fabric.Opcode == overlay.OpExtension && m.Fabric.Shim:
		return h.learn(now, &v.Paths[m.Leaf], m) && h.first
	}
	return false
}

// ask has the next Tick answer a probe.
func (h *hula) ask(m *overlay.Message) bool {
	if h.queued == hulaAnswers {
		h.stats.Unanswered++
		return true
	}
	h.answers[(h.answer+h.queued)%hulaAnswers] = hulaAnswer{m.Leaf, m.Fabric.Path, m.Fabric.CE}
	h.queued++
	return true
}

// learn takes an answer. It reports false if that makes no sense.
func (h *hula) learn(now mono.Time, paths *Paths, m *overlay.Message) bool {
	uplink, util := m.Fabric.Path.Uplink(), m.Fabric.Arg
	if paths.Index[uplink] < 0 || util > overlay.Tstamp(h.top) {
		return false
	}
	h.stats.Learned++
	e := &h.leaves[m.Leaf]
	e.heard[uplink] = now
	e.known |= 1 << uplink
	e.silent &^= 1 << uplink
	best, fresh := h.best(now, paths, m.Leaf)
	if fresh && uplink != best && uint8(util) >= e.util {
		return true
	}
	if uplink != best || !fresh {
		h.stats.Changes++
	}
	e.best, e.util, e.at = uplink, uint8(util), now
	return true
}

// Deadline returns when there is something to say.
func (h *hula) Deadline() mono.Time {
	switch {
	case len(h.leaves) == 0:
		return reorder.Never
	case h.queued > 0:
		return 0
	}
	return h.round.at
}

// Tick answers probes, looks which paths have become silent, and sends the probes that
// are due.
func (h *hula) Tick(now mono.Time, v *View, out []overlay.Message) []overlay.Message {
	said := len(out)
	for ; h.queued > 0 && len(out)-said < hulaSaid; h.queued-- {
		a := &h.answers[h.answer]
		h.answer = (h.answer + 1) % hulaAnswers
		h.stats.Answers++
		out = append(out, overlay.Message{
			Leaf: a.leaf, Link: overlay.AnyLink,
			Fabric: overlay.Fabric{Opcode: overlay.OpExtension, Path: a.path, Shim: true, Arg: overlay.Tstamp(a.util)},
		})
	}
	r := &h.round
	for now >= r.at && len(out)-said+MaxPaths <= hulaSaid {
		if r.next == 0 {
			h.begin(now, v)
		}
		for r.next < h.count(v) && v.Paths[r.next].N == 0 {
			r.next++
		}
		if r.next < h.count(v) {
			h.hush(now, &v.Paths[r.next], &h.leaves[r.next])
			if h.first {
				out = h.probe(now, v, uint16(r.next), out)
			}
			r.next++
			r.done++
		}
		if r.next < h.count(v) && r.done < r.peers {
			// In whole microseconds: many leaves are served several at a time.
			r.at = r.began + r.every*mono.Time(r.done)/mono.Time(r.peers)/1000*1000
		} else { // of all leaves, or of as many as had paths when it began
			r.next, r.at = 0, r.began+r.every
		}
	}
	return out
}

// count returns how many leaves there are.
func (h *hula) count(v *View) int { return min(len(h.leaves), len(v.Paths)) }

// begin begins a round. One that is late does not make up for the time.
func (h *hula) begin(now mono.Time, v *View) {
	r, paths := &h.round, 0
	r.done, r.peers = 0, 0
	for i := range h.count(v) {
		if n := int(v.Paths[i].N); n > 0 {
			r.peers++
			paths += n
		}
	}
	if r.number > 0 {
		r.took = min(max(now-r.began, 0), hulaLate)
	}
	r.number++
	r.began, r.every = now, max(mono.Time(h.params.Probe), mono.Time(paths)*mono.Time(h.params.Spacing))
}

// hush finds the paths of which answers are missing.
func (h *hula) hush(now mono.Time, paths *Paths, e *hulaLeaf) {
	silent, used := uint16(0), uint16(0)
	for _, u := range paths.Uplink[:paths.N] {
		u %= MaxPaths
		used |= 1 << u
		if e.known>>u&1 != 0 && now.Apart(e.heard[u], h.life()) {
			silent |= 1 << u
		}
	}
	if silent&used == e.known&used {
		silent = 0 // the leaf answers nothing: that says nothing about paths
	}
	if silent&^e.silent != 0 {
		h.stats.Silent++
	}
	e.silent = silent
}

// probe sends a probe by each path to a leaf. The first one goes by another path in each
// round and to each leaf, because the first of equally used paths becomes the best one.
func (h *hula) probe(now mono.Time, v *View, leaf uint16, out []overlay.Message) []overlay.Message {
	paths := &v.Paths[leaf]
	if paths.N == 0 || v.Capable != nil && !v.Capable.Capable(leaf, now) {
		return out
	}
	from := (h.round.number + h.round.done) % int(paths.N)
	for i := range int(paths.N) {
		uplink := paths.Uplink[(from+i)%int(paths.N)%MaxPaths]
		h.stats.Probes++
		out = append(out, overlay.Message{
			Leaf: leaf, Link: overlay.AnyLink, Hash: uint32(h.round.number),
			Fabric: overlay.Fabric{Opcode: overlay.OpExplore, Path: overlay.MakePathID(uplink, uint8(h.round.number))},
		})
	}
	return out
}
