// Package balance decides which of the paths to a leaf a packet takes. A
// scheme is a [Policy]; one file a scheme. The package does no I/O, reads no
// clock and draws no randomness of its own: time is an argument, seeds are
// injected, so that a simulator can call the very code that the data plane calls.
//
// The seam is one call a vector, not one a packet: a worker collects the
// packets of a burst that go into the fabric, fills a [View] with what it knows
// of links and paths, calls [Policy.Choose] once, and a scheme keeps what it
// needs in registers over its loop.
//
// What comes back from the fabric reaches a policy through the View: drivers
// write feedback into the tables of package congestion, policies read them.
// Time passes with Choose's now, from which gaps and ageing are computed lazily.
// What a scheme does besides is in the halves that it implements: [Messenger],
// [Timed], [Receiver].
package balance

import (
	"math/bits"
	"math/rand/v2"
	"time"

	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
)

// MaxPaths is the largest number of paths to one leaf, and of uplinks: an LBTag
// has 4 bits (CONGA §3.1).
const MaxPaths = congestion.MaxTags

// Paths is the set of usable next hops to one destination leaf, in a stable
// order. [MakePaths] fills it.
type Paths struct {
	N        uint8           // how many of them, at most MaxPaths
	Weighted bool            // their weights differ
	uneven   bool            // they do, or places are vacant
	Uplink   [MaxPaths]uint8 // LBTag of each path: the uplink that it starts on, below MaxPaths
	Index    [MaxPaths]int8  // by uplink: the first path that starts on it, -1 if none does
	// Weights are those of the paths' next hops, for who makes paths of some of them; 0
	// where all are alike. Shares are made of them.
	Weights [MaxPaths]uint16
	Shares  Shares // by place
	Places  Places // of paths that were there before [Paths.Without]
}

// MakePaths returns paths of equal weight that start on the given uplinks, each below
// MaxPaths. There are at most MaxPaths.
func MakePaths(uplinks ...uint8) Paths { return MakeWeightedPaths(uplinks, nil) }

// MakeWeightedPaths is MakePaths for paths with weights, one each; nil: all are alike.
func MakeWeightedPaths(uplinks []uint8, weights []uint16) Paths {
	p := Paths{N: uint8(len(uplinks)), Shares: MakeShares(len(uplinks), weights)}
	for _, w := range weights {
		p.Weighted = p.Weighted || w != weights[0]
	}
	if p.Weighted {
		copy(p.Weights[:], weights)
	}
	p.uneven = p.Weighted
	p.start(uplinks)
	return p
}

// start puts the paths on uplinks.
func (p *Paths) start(uplinks []uint8) {
	for u := range p.Index {
		p.Index[u] = -1
	}
	for i, u := range uplinks {
		p.Uplink[i] = u
		if p.Index[u] < 0 {
			p.Index[u] = int8(i)
		}
	}
}

// Without returns the paths that are left when those have gone that are set in a mask.
// What belonged to a path that is left still belongs to it, under its new number; what
// belonged to the others is spread over those that are left ([Places]). The order
// stays.
func (p *Paths) Without(gone uint16) Paths {
	if gone&(1<<p.N-1) == 0 {
		return *p
	}
	q := Paths{Shares: p.Shares, uneven: true}
	var weights []uint16
	if p.Weighted {
		weights = p.Weights[:p.N]
	}
	q.Places = p.Places.Vacate(int(p.N), gone, weights)
	q.Weighted = q.Places.weighted
	var uplinks [MaxPaths]uint8
	for path := range p.N {
		if gone>>path&1 != 0 {
			continue
		}
		uplinks[q.N] = p.Uplink[path]
		if q.Weighted {
			q.Weights[q.N] = p.Weights[path]
		}
		q.N++
	}
	q.start(uplinks[:q.N])
	return q
}

// Share returns the path that a number belongs to, which is spread evenly over 32 bits:
// each path in proportion to its weight. It is undefined if there is none.
func (p *Paths) Share(number uint32) uint8 {
	if p.uneven {
		return p.share(number)
	}
	return uint8(uint64(number) * uint64(p.N) >> 32) // the same, without a look at shares
}

// share is Share where weights differ or places are vacant.
func (p *Paths) share(number uint32) uint8 { return share(number, p.N, &p.Shares, &p.Places) }

// share returns which of n choices a number belongs to, by shares of places.
func share(number uint32, n uint8, s *Shares, p *Places) uint8 {
	if p.vacant == 0 {
		return s.Of(number, uint32(n))
	}
	return p.Of(number, s.Of(number, uint32(p.n)))
}

// draw returns a path at random, in proportion to the weights.
func (p *Paths) draw(rng *rand.PCG) uint8 { return p.Share(uint32(rng.Uint64() >> 32)) }

// View is what a leaf knows when it decides. The driver fills it before each
// vector; policies read it.
type View struct {
	Paths []Paths // by leaf
	// Links is asked before Local and Queue are read, so that links are looked
	// at only when somebody decides by them; nil: both are up to date.
	Links Links
	Local *[MaxPaths]uint8 // by uplink: metric of its link meter now, quantised to Q bits
	// Queue is the depth of each uplink's egress queue, bytes.
	Queue *[MaxPaths]uint32
	// ByteTime is how long a byte takes on each uplink's link, in picoseconds, see
	// [ByteTime].
	ByteTime *[MaxPaths]uint32
	Remote   *congestion.ToLeaf // what leaves fed back; nil: nothing, as if all were 0
	// Capable tells which leaves read the fabric's fields; nil: all of them do.
	// Schemes that need an answer send to the others as ecmp does.
	Capable *overlay.Capability
	// Room is how many bytes each uplink's queue can hold; 0: no limit of its own. nil: none
	// has one.
	Room *[MaxPaths]uint32
	// Trips tells how far leaves are by each path; nil: that is not known.
	Trips Trips
	// Exact has what a scheme of Scheme.Exact wants to know of each packet of the
	// vector; nil for the others.
	Exact []Exact
}

// ByteTime returns how long a byte takes on a link of a rate in bit/s, in picoseconds: at
// 10 Gbit/s 800. A rate of 0 is not known, and counts as one of 1 Gbit/s.
func ByteTime(rate uint64) uint32 {
	if rate == 0 {
		rate = 1e9
	}
	return uint32(min(max(8e12/rate, 1), 1<<32-1))
}

// Links is what a driver knows of the links that start at its leaf.
type Links interface {
	// Look brings the Local and Queue that its View points to up to now.
	Look(now mono.Time)
}

// Trips is what a driver knows of how far leaves are.
type Trips interface {
	// Trip returns how long a packet that waits in no queue takes to a leaf by an uplink,
	// and another one back by any; 0: that was not measured.
	Trip(leaf uint16, uplink uint8) time.Duration
}

// look makes Local and Queue those of now. A policy calls it once in a vector,
// when it first decides.
func (v *View) look(now mono.Time) {
	if v.Links != nil {
		v.Links.Look(now)
	}
}

// remote sets m to the metrics that a leaf fed back, 0 where nothing is known.
func (v *View) remote(leaf uint16, now mono.Time, m *[MaxPaths]uint8) {
	if v.Remote == nil {
		*m = [MaxPaths]uint8{}
		return
	}
	v.Remote.Metrics(leaf, now, m)
}

// EachCopy calls send for each packet that is to go by the paths, of which there are so
// many, besides the one that goes by Path with Marks.Selector as it is. Meanwhile
// Marks.Selector is that of the copy. The path behind Path comes first, so that flows with
// different Paths begin with different ones. It is for drivers, and for few packets.
func (p *Packet) EachCopy(paths uint8, send func(path uint8)) {
	first, all := p.Selector, p.Selectors
	if all == 0 {
		all = 1 << (first & (maxSelectors - 1))
	}
	for i := range paths {
		path := (p.Path + 1 + i) % paths
		if (p.Copies|1<<p.Path)>>path&1 == 0 {
			continue
		}
		for of := all; of != 0; of &= of - 1 {
			p.Selector = uint8(bits.TrailingZeros16(of))
			if path != p.Path || p.Selector != first&(maxSelectors-1) {
				send(path)
			}
		}
	}
	p.Selector = first
}

// Packet is what a policy is told of a packet, and its answer.
type Packet struct {
	Hash uint32 // of the flow, as overlay.Dissect computes it
	Leaf uint16 // destination leaf: indexes View.Paths
	// Number is what all nodes of the fabric know the leaf by; read if the scheme has
	// Scheme.Switch.
	Number uint16
	// Host is the low 32 bits of the destination's address; read if the scheme has
	// Scheme.Hosts.
	Host uint32
	Len  uint16 // length of the tenant's frame, bytes
	Path uint8  // out: indexes the leaf's Paths; undefined if they are empty
	// Copies are paths that get a copy of the packet besides Path, a bit each; read
	// if the scheme has Scheme.Copies.
	Copies uint16
	// Selectors are the selectors, a bit each, with each of which a copy goes by Path and
	// by each of Copies; 0: Marks.Selector alone. Read if the scheme has Scheme.Copies.
	Selectors uint16
	// Answers is the uplink plus one that PathID names in an answer about a path of the
	// leaf that it goes to; 0: the one that the packet leaves by. Only schemes that
	// answer so touch it.
	Answers uint8
	// Marks are the fields that a scheme with a Wire number wants in the packet's
	// header; others do not touch them.
	Marks
	// Until is the time before which the packet is not sent: then it is offered to
	// Choose again. Read if the scheme has Scheme.Waits; 0: at once.
	Until mono.Time
}

// Stamp puts the packet's marks into its header; see [Marks.Stamp].
func (p *Packet) Stamp(now mono.Time, id overlay.SchemeID, uplink uint8, f *overlay.Fabric) {
	p.Marks.Stamp(now, id, uplink, f)
	if p.Answers > 0 {
		f.Path = overlay.MakePathID(p.Answers-1, p.Selector)
	}
}

// Exact is what the headers of a packet say of its flow, exactly.
type Exact struct {
	Key      overlay.FlowKey
	TCPFlags uint8 // 0: not TCP
}

// Marks are fields of the fabric's header that are a scheme's own (ConWeave
// §3.2, §3.3). The driver copies them into the header of a packet that goes to a
// capable leaf, and adds the shim with the time of departure if Shim is set.
type Marks struct {
	Opcode   overlay.Opcode // OpData or OpRTTRequest
	Epoch    overlay.Epoch
	Rerouted bool
	Tail     bool
	Shim     bool
	Selector uint8 // the next tier's choice, 0 to 15
	// Arg is the scheme's half of the shim. ConWeave: when the TAIL left; meant if
	// Rerouted or Tail.
	Arg overlay.Tstamp
}

// Stamp puts the marks of scheme id into the header of a packet that leaves by an
// uplink at now, the time that Choose was given, and leaves the other fields as they are.
func (m *Marks) Stamp(now mono.Time, id overlay.SchemeID, uplink uint8, f *overlay.Fabric) {
	f.Opcode, f.Epoch, f.Rerouted, f.Tail, f.Shim = m.Opcode, m.Epoch, m.Rerouted, m.Tail, m.Shim
	f.Path = overlay.MakePathID(uplink, m.Selector)
	if m.Shim {
		f.Scheme, f.TxTstamp, f.Arg = id, overlay.TstampOf(now), m.Arg
	}
}

// Policy chooses paths. A Policy is owned by one worker: its methods are called
// from one goroutine, and none of them allocates.
type Policy interface {
	// Choose sets Path of every packet. Each packet's Leaf is below
	// len(v.Paths). Times may jump: no scheme relies on more than that they
	// mostly grow.
	Choose(now mono.Time, v *View, pkts []Packet)
	// Stats returns what happened so far.
	Stats() Stats
}

// FlowletPolicy is a Policy that keeps flows on their path while their packets
// follow each other closely.
type FlowletPolicy interface {
	Policy
	// Flowlets returns the table, for the policy's owner to look at.
	Flowlets() *congestion.Flowlets
}

// Options are what schemes are made with.
type Options struct {
	// Seed makes nodes decide independently of each other. Two policies of the
	// same name and options that are given the same calls choose the same paths.
	Seed uint64
	// Worker tells the workers of a node apart, for schemes that choose at
	// random. Schemes that choose by hash ignore it: a flow's path must not
	// depend on the worker that its packets come to.
	Worker int
	// Congestion are CONGA's parameters; the zero value stands for
	// congestion.Datacenter().
	Congestion congestion.Params
	// Keys are what the scheme was told where it is named (Scheme.Keys), nil: its
	// defaults. Section is the scheme's section, nil: its datacenter values.
	Keys, Section Params
	// Memory is where a scheme that keeps flowlets keeps them, a power of two of words that are
	// all 0; nil: in memory of its own, as Keys says.
	Memory []uint64
	// Shadow names a scheme that is asked, too, and whose choices are only counted; "": none.
	// Who makes a class reads it.
	Shadow string
	// Leaves bounds the numbers of leaves, and Ports is the number of egress ports
	// that packets may wait for. Receivers need them.
	Leaves, Ports int
	// Switch is what the scheme's policies have in common (Scheme.Switch), and Links are the
	// ports of the node that the policy's links are; nil: those of the same numbers.
	Switch Switch
	Links  []int
	// Receiver is the worker's receiver of the scheme, for policies that go by what
	// it has seen; nil: there is none.
	Receiver Receiver
	// Shared is what Scheme.Shared has made for all workers of the leaf; nil: there is
	// one worker, and its policy makes its own.
	Shared any
	// Peers tells receivers by which of their uplinks other leaves send; nil: nothing is
	// known.
	Peers reorder.Peers
}
