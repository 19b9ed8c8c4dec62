package balance

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"time"

	"github.com/loomfabric/loom/internal/flowtable"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/internal/units"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// Reed is ordered spraying, our own scheme: docs/ordered-spray.md. In a loom the reed is
// the comb that keeps the threads in order.
var _ = register(Scheme{
	Name: "reed", Summary: "the path by which each packet arrives first, and packets put in order behind it",
	New:  newReed,
	Wire: reedID, Shim: true, NeedsPeer: true, Queues: true, Section: reedSection,
	Receiver: func(o *Options) (Receiver, error) {
		return reorder.NewResequencer(*o.Section.(*ReedParams).receiver(), o.Leaves, o.Peers), nil
	},
})

const reedID overlay.SchemeID = 4

var reedSection = &Section{
	Name: "reed",
	Summary: "Reed are the parameters of scheme reed, ordered spraying, and of what puts its packets in order. " +
		"The second part counts on every leaf, whatever its own scheme.",
	New:      newReedParams,
	Profiles: []Profile{Datacenter, Lab},
}

// ReedParams are the tunables of ordered spraying.
type ReedParams struct {
	Source   ReedSource                `yaml:",inline"`
	Receiver reorder.ResequencerParams `yaml:",inline"`
}

// ReedSource are the parameters of the source's side.
type ReedSource struct {
	// Samples is the number of uplinks drawn for each packet, which are compared with
	// the one that was best last; 0: all are compared.
	Samples int `yaml:"samples"`
	// Weight is what a path's metric counts for at its top, up to 1 GiB: as much as so
	// many bytes in the uplink's own queue, but not more than half of what that can hold.
	// From 64 KiB to 256 KiB it makes little difference; without it paths that are slow
	// further on get too much.
	Weight units.Size `yaml:"weight"`
	// Inactive is the pause after which nothing of a flow is under way: its numbers begin
	// anew, and its place in the tables may go to another one.
	Inactive time.Duration `yaml:"inactive"`
	// Flows is the number of entries of each table of flows, of those that are sent
	// and of those that are received: a power of two from 4 to 16777216.
	Flows int `yaml:"flows"`
	// Selectors is how many of a PathID's selectors packets are spread over, 1 to 16, so
	// that they take all of a spine's links to a leaf: for two of them 2, for three 6, for
	// four 12, which are even with a link down, too.
	Selectors int `yaml:"selectors"`
}

func newReedParams(profile Profile) Params {
	p := &ReedParams{
		Source:   ReedSource{Samples: 2, Weight: metricWeight, Inactive: 10 * time.Millisecond, Flows: 256 << 10, Selectors: 1},
		Receiver: reorder.ResequencerParams{Hold: 2 * time.Millisecond, MaxHold: 5 * time.Millisecond, Window: 4096, Packets: 16384},
	}
	if profile != Datacenter {
		p.Source.Inactive = time.Second
		p.Receiver.Hold, p.Receiver.MaxHold, p.Receiver.Guard = 20*time.Millisecond, 100*time.Millisecond, 200*time.Microsecond
		p.Receiver.Packets, p.Source.Flows = 8192, 64<<10
	}
	return p
}

// receiver returns the parameters of the receiving side.
func (p *ReedParams) receiver() *reorder.ResequencerParams {
	r := p.Receiver
	r.Inactive, r.Flows, r.Selectors, r.Wire = p.Source.Inactive, p.Source.Flows, p.Source.Selectors, reedID
	return &r
}

// Validate reports the first parameter that makes no sense.
func (p *ReedParams) Validate() error {
	switch s := &p.Source; {
	case s.Samples < 0 || s.Samples > MaxPaths:
		return fieldError("samples", "use 0 to 16", "%d samples", s.Samples)
	case s.Weight > 1<<30:
		return fieldError("weight", "use 0 to 1GiB", "weight is %v", s.Weight)
	case s.Inactive <= 0 || s.Inactive > time.Hour:
		return fieldError("inactive", "use a time above 0 and up to an hour", "inactive is %v", s.Inactive)
	}
	return p.receiver().Validate()
}

// Holds returns how many packets may be held.
func (p *ReedParams) Holds() int { return p.Receiver.Packets }

// Limit returns p with at most so many packets held.
func (p *ReedParams) Limit(packets int) Params {
	c := *p
	c.Receiver.Packets = min(c.Receiver.Packets, packets)
	return &c
}

// Selectors returns the number of choices that the next tier has.
func (p *ReedParams) Selectors() int { return p.Source.Selectors }

// WithSelectors returns p for a next tier with n choices: with as many selectors as
// spread packets evenly over them, and over those that are left when some have gone.
func (p *ReedParams) WithSelectors(n int) Params {
	c := *p
	c.Source.Selectors = evenSelectors(n)
	return &c
}

// evenSelectors returns the multiple of n, up to 16, that most numbers up to n divide; the
// least of them. Selectors are dealt to next hops in turn: three of them spread over two
// links that are left give one twice the packets of the other, six do not.
func evenSelectors(n int) int {
	best, most := n, 0
	for m := n; m <= maxSelectors; m += n {
		even := 0
		for left := 1; left <= n; left++ {
			if m%left == 0 {
				even++
			}
		}
		if even > most {
			best, most = m, even
		}
	}
	return best
}

// reed numbers the packets of each flow and sends each one by the path that gets it there
// first, as far as a leaf can tell. On the wire Arg is the number, from 0 on. Epoch is
// another one when a flow's numbers begin anew, and Rerouted marks the first
// reorder.Young packets of a sequence.
type reed struct {
	params  ReedSource
	gap     mono.Time     // of flows that are not sprayed
	longest time.Duration // that a packet waits for others at the far end
	seed    uint64
	rng     *rand.PCG
	flows   flowtable.Table[reedFlow]
	leaves  []reedLeaf
	plain   plainTimes
	stats   ReedStats

	waits waits
	near  uint16 // uplinks that packets to waits.leaf are sprayed over, a bit each
	best  uint8  // uplink that was the best for the last packet
	turn  uint8  // of selectors

	found uint8  // by pick so far
	least uint64 // and how long the packet waits there
}

// reedFlow is what is known of a flow under way.
type reedFlow struct {
	number uint16 // of its next packet
	epoch  overlay.Epoch
	uplink uint8 // of its last packet
	young  bool
}

// reedLeaf is what is known of a leaf.
type reedLeaf struct {
	spared mono.Time // until when it is not sprayed to; 0: it never asked for that
	looked mono.Time // when far was found out; 0: never
	far    uint16    // uplinks by which it is much further than by others, a bit each
}

// reedLook is how often it is found out how far leaves are.
const reedLook = mono.Time(10 * time.Millisecond)

// ReedStats counts what ordered spraying's sending side did.
type ReedStats struct {
	Flows     uint64 `help:"Flows that began, or began again after a pause."`
	Frames    uint64 `stat:"frames" unit:"frames" help:"Frames that were numbered."`
	Moves     uint64 `help:"Frames that took another uplink than the one before them in their flow."`
	Spared    uint64 `stat:"spared_frames" unit:"frames" help:"Frames that kept to their flow's path because the leaf at the far end is short of memory."`
	Overflow  uint64 `stat:"overflow_frames" unit:"frames" help:"Frames sent by hash because the table of flows had no room."`
	Incapable uint64 `stat:"incapable_frames" unit:"frames" help:"Frames sent by hash because the leaf does not read the fabric's fields."`
}

func newReed(o *Options) Policy {
	section := o.Section.(*ReedParams)
	p := section.Source
	return &reed{
		params: p, gap: mono.Time(o.Congestion.FlowletGap), longest: section.Receiver.MaxHold, seed: o.Seed, rng: newRNG(o),
		flows:  flowtable.New[reedFlow](p.Flows, mono.Time(p.Inactive)),
		leaves: make([]reedLeaf, o.Leaves), plain: make(plainTimes, o.Leaves), waits: newWaits(p.Weight, &o.Congestion),
	}
}

// Stats returns the counters.
func (s *reed) Stats() Stats {
	own := s.stats
	return Stats{Decisions: own.Frames, Own: &own}
}

// Choose numbers packets, and gives each one its path.
func (s *reed) Choose(now mono.Time, v *View, pkts []Packet) {
	looked := false
	for i := range pkts {
		p := &pkts[i]
		paths := &v.Paths[p.Leaf]
		p.Marks = Marks{}
		if paths.N == 0 {
			continue
		}
		if !looked { // before anything goes by hash and adds to a queue
			looked = true
			s.waits.look(now, v)
		}
		if v.Capable != nil && !v.Capable.Capable(p.Leaf, now) {
			s.stats.Incapable++
			s.plain.note(p.Leaf, now)
			s.byHash(paths, p)
			continue
		}
		e := s.find(now, p)
		if e == nil {
			s.stats.Overflow++
			s.byHash(paths, p)
			continue
		}
		if int(p.Leaf) != s.waits.leaf {
			s.waits.face(now, v, p.Leaf)
			s.near = s.within(now, v, p.Leaf)
		}
		s.place(now, paths, p, e)
	}
}

// within returns the uplinks that packets to a leaf are sprayed over, a bit each: not
// those by which it is further by more than half of what packets may wait for each other.
func (s *reed) within(now mono.Time, v *View, leaf uint16) uint16 {
	if v.Trips == nil || int(leaf) >= len(s.leaves) {
		return math.MaxUint16
	}
	l := &s.leaves[leaf]
	if l.looked == 0 || now.Apart(l.looked, reedLook) {
		l.looked, l.far = now, s.further(v, leaf)
	}
	return ^l.far
}

// further returns the uplinks by which a leaf is much further than by the best one.
func (s *reed) further(v *View, leaf uint16) (far uint16) {
	paths, least := &v.Paths[leaf], time.Duration(math.MaxInt64)
	for _, u := range paths.Uplink[:paths.N] {
		if d := v.Trips.Trip(leaf, u); d > 0 {
			least = min(least, d)
		}
	}
	for _, u := range paths.Uplink[:paths.N] {
		if v.Trips.Trip(leaf, u)-s.longest/2 > least {
			far |= 1 << u
		}
	}
	return far
}

// place gives a packet its path and number.
func (s *reed) place(now mono.Time, paths *Paths, p *Packet, e *flowtable.Entry[reedFlow]) {
	f := &e.V
	uplink := f.uplink % MaxPaths
	if s.keeps(now, paths, p, e) {
		s.stats.Spared++
	} else {
		uplink = s.pick(paths, uint64(p.Len))
	}
	if uplink != f.uplink {
		s.stats.Moves++
	}
	s.stats.Frames++
	e.Last, f.uplink = now, uplink
	s.waits.add(uplink, uint64(p.Len))
	p.Path = uint8(paths.Index[uplink])
	p.Marks = Marks{
		Shim: true, Arg: overlay.Tstamp(f.number), Epoch: f.epoch, Rerouted: f.young, Selector: s.selector(p.Hash),
	}
	f.number++
	f.young = f.young && f.number < reorder.Young
}

// keeps reports whether a packet stays on its flow's path because its leaf is short of
// memory: then a flow moves when it pauses, as a flowlet does (CONGA §3.4).
func (s *reed) keeps(now mono.Time, paths *Paths, p *Packet, e *flowtable.Entry[reedFlow]) bool {
	if int(p.Leaf) >= len(s.leaves) || s.leaves[p.Leaf].spared == 0 {
		return false
	}
	left := s.leaves[p.Leaf].spared - now
	begins := e.V.young && e.V.number == 0
	return left > 0 && left <= s.spare() && !begins && !now.Apart(e.Last, s.gap) && paths.Index[e.V.uplink%MaxPaths] >= 0
}

// spare is how long a leaf is not sprayed to after it has asked for that.
func (s *reed) spare() mono.Time { return mono.Time(s.params.Inactive) }

// all reports whether a packet's uplinks are all compared.
func (s *reed) all(paths *Paths) bool {
	return s.params.Samples == 0 || s.params.Samples >= int(paths.N)
}

// pick returns the uplink by which a packet arrives first: of all, or of some that are
// drawn at random and the one that was the best last. Of equal ones chance decides, since
// the first one drawn wins.
func (s *reed) pick(paths *Paths, length uint64) uint8 {
	n := int(paths.N)
	s.found, s.least = MaxPaths, math.MaxUint64
	if s.all(paths) {
		for i, at := 0, draw(s.rng, n); i < n; i++ {
			s.weigh(paths.Uplink[at%MaxPaths], length)
			if at++; at == n {
				at = 0
			}
		}
	} else {
		for range s.params.Samples {
			s.weigh(paths.Uplink[draw(s.rng, n)%MaxPaths], length)
		}
		if paths.Index[s.best%MaxPaths] >= 0 {
			s.weigh(s.best, length)
		}
	}
	for i := 0; s.found == MaxPaths; i++ { // all that were looked at are far, or all are
		if i == n {
			s.near = math.MaxUint16
			i = 0
		}
		s.weigh(paths.Uplink[i%MaxPaths], length)
	}
	s.best = s.found
	return s.best
}

// weigh keeps an uplink if it is better than what pick has found so far.
func (s *reed) weigh(u uint8, length uint64) {
	if cost := s.waits.cost(u, length); cost < s.least && s.near>>(u%MaxPaths)&1 != 0 {
		s.found, s.least = u%MaxPaths, cost
	}
}

// selector returns the next tier's choice: each in turn.
func (s *reed) selector(hash uint32) uint8 {
	if s.params.Selectors == 1 {
		return selectorByHash(hash, s.seed)
	}
	s.turn++
	return s.turn % uint8(s.params.Selectors)
}

// find returns what is known of a packet's flow, as new if it had no entry or has
// paused; nil: there is no room.
func (s *reed) find(now mono.Time, p *Packet) *flowtable.Entry[reedFlow] {
	e := s.flows.Find(p.Hash, p.Leaf)
	if e != nil && s.underWay(now, p.Leaf, e) {
		return e
	}
	known := e != nil
	if !known {
		if e = s.flows.Insert(now, p.Hash, p.Leaf); e == nil {
			return nil
		}
	}
	s.stats.Flows++
	epoch := overlay.Epoch(draw(s.rng, 4)) // tables may be new, and flows not
	if known {
		epoch = e.V.epoch.Next()
	}
	e.Last = now
	e.V = reedFlow{epoch: epoch, young: true, uplink: e.V.uplink}
	return e
}

// underWay reports whether a flow goes on: it has not paused, and its leaf was sent no plain
// packet since.
func (s *reed) underWay(now mono.Time, leaf uint16, e *flowtable.Entry[reedFlow]) bool {
	return !s.plain.since(leaf, e.Last) && !s.flows.Aged(now, e)
}

// byHash sends a packet as ecmp does.
func (s *reed) byHash(paths *Paths, p *Packet) {
	p.Path = paths.byHash(p.Hash, s.seed)
	p.Selector = selectorByHash(p.Hash, s.seed)
}

// Handle takes a message of a leaf that is short of memory.
func (s *reed) Handle(now mono.Time, _ *View, m *overlay.Message) bool {
	if m.Fabric.Opcode != overlay.OpNotify || !m.Fabric.Refuses() || int(m.Leaf) >= len(s.leaves) {
		return false
	}
	s.leaves[m.Leaf].spared = now + s.spare()
	return true
}

// Explain makes the choice on a copy.
func (s *reed) Explain(now mono.Time, v *View, p *Packet) Explanation {
	paths, twin := &v.Paths[p.Leaf], *s
	x := newExplanation(paths)
	e := s.flows.Find(p.Hash, p.Leaf)
	switch {
	case x.hashed(now, v, p, s.seed, e != nil || s.flows.Room(now, p.Hash)):
		return x
	case e != nil && s.underWay(now, p.Leaf, e) && s.keeps(now, paths, p, e):
		x.take(paths, uint8(paths.Index[e.V.uplink]), "the leaf is short of memory for what waits, so the flow stays where it is")
		return x
	}
	twin.waits.look(now, v)
	twin.waits.face(now, v, p.Leaf)
	x.compareWaits(&twin.waits, paths, uint64(p.Len))
	if v.Trips != nil {
		x.Fresh &^= s.further(v, p.Leaf)
	}
	x.Reason = "each packet takes the shortest wait, in ns, of some uplinks drawn at random and of the last best one"
	if s.all(paths) {
		x.Reason = "each packet takes the shortest wait, in ns"
		x.keepLeast()
	}
	if bits.OnesCount16(x.Fresh) == 1 {
		x.Path = int(paths.Index[bits.TrailingZeros16(x.Fresh)])
	}
	return x
}
