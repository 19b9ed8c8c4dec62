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
// Time passes with Choose's now, from which gaps and ageing are computed
// lazily; no scheme here needs to be woken.
package balance

import (
	"fmt"
	"strings"

	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/internal/mono"
	"github.com/loomfabric/loom/overlay"
)

// MaxPaths is the largest number of paths to one leaf, and of uplinks: an LBTag
// has 4 bits (CONGA §3.1).
const MaxPaths = congestion.MaxTags

// Paths is the set of usable next hops to one destination leaf, in a stable
// order. [MakePaths] fills it.
type Paths struct {
	N      uint8           // how many of them, at most MaxPaths
	Uplink [MaxPaths]uint8 // LBTag of each path: the uplink that it starts on, below MaxPaths
	Index  [MaxPaths]int8  // by uplink: the first path that starts on it, -1 if none does
}

// MakePaths returns the paths that start on the given uplinks, each below
// MaxPaths, of which there are at most MaxPaths.
func MakePaths(uplinks ...uint8) Paths {
	p := Paths{N: uint8(len(uplinks))}
	for u := range p.Index {
		p.Index[u] = -1
	}
	for i, u := range uplinks {
		p.Uplink[i] = u
		if p.Index[u] < 0 {
			p.Index[u] = int8(i)
		}
	}
	return p
}

// View is what a leaf knows when it decides. The driver fills it before each
// vector; policies read it.
type View struct {
	Paths []Paths // by leaf
	// Links is asked before Local and Queue are read, so that links are looked
	// at only when somebody decides by them; nil: both are up to date.
	Links Links
	Local *[MaxPaths]uint8 // by uplink: metric of its link meter now, quantised to Q bits
	// Queue is the depth of each uplink's egress queue, bytes.
	Queue  *[MaxPaths]uint32
	Remote *congestion.ToLeaf // what leaves fed back; nil: nothing, as if all were 0
	// Capable tells which leaves read the fabric's fields; nil: all of them do.
	// A [Signaller] sends to the others as ecmp does.
	Capable *overlay.Capability
}

// Links is what a driver knows of the links that start at its leaf.
type Links interface {
	// Look brings the Local and Queue that its View points to up to now.
	Look(now mono.Time)
}

// look makes Local and Queue those of now. A policy calls it once in a vector,
// when it first decides.
func (v *View) look(now mono.Time) {
	if v.Links != nil {
		v.Links.Look(now)
	}
}

// Packet is what a policy is told of a packet, and its answer.
type Packet struct {
	Hash uint32 // of the flow, as overlay.Dissect computes it
	Leaf uint16 // destination leaf: indexes View.Paths
	Len  uint16 // length of the tenant's frame, bytes
	Path uint8  // out: indexes the leaf's Paths; undefined if they are empty
	// Marks are the fields that a [Signaller] wants in the packet's header;
	// other policies do not touch them.
	Marks
}

// Marks are fields of the fabric's header that are a scheme's own (ConWeave
// §3.2, §3.3). The driver copies them into the header of a packet that goes to a
// capable leaf, and adds the shim with the time of departure if Shim is set.
type Marks struct {
	Opcode       overlay.Opcode // OpData or OpRTTRequest
	Epoch        overlay.Epoch
	Rerouted     bool
	Tail         bool
	Shim         bool
	Selector     uint8          // the next tier's choice, 0 to 15
	TailTxTstamp overlay.Tstamp // when the TAIL left; meant if Rerouted or Tail
}

// Stamp puts the marks into the header of a packet that leaves by an uplink at
// now, the time that Choose was given, and leaves the other fields as they are.
func (m *Marks) Stamp(now mono.Time, uplink uint8, f *overlay.Fabric) {
	f.Opcode, f.Epoch, f.Rerouted, f.Tail, f.Shim = m.Opcode, m.Epoch, m.Rerouted, m.Tail, m.Shim
	f.Path = overlay.MakePathID(uplink, m.Selector)
	if m.Shim {
		f.TxTstamp, f.TailTxTstamp = overlay.TstampOf(now), m.TailTxTstamp
	}
}

// Policy chooses paths. A Policy is owned by one worker: its methods are called
// from one goroutine, and none of them allocates.
type Policy interface {
	// Name is the name that the configuration knows the scheme by.
	Name() string
	// Choose sets Path of every packet. Each packet's Leaf is below
	// len(v.Paths). Times may jump: no scheme relies on more than that they
	// mostly grow.
	Choose(now mono.Time, v *View, pkts []Packet)
	// Stats returns what happened so far.
	Stats() Stats
}

// Signaller is a Policy that marks packets ([Packet.Marks]) and hears of them
// from the leaf they go to. Package reorder has the other side, and says what a
// driver of both does.
type Signaller interface {
	Policy
	// Hear takes a control packet from a leaf: f is its header, hash that of the
	// flow whose headers it carries. Anything that it cannot make sense of is
	// ignored and counted.
	Hear(now mono.Time, leaf uint16, hash uint32, f *overlay.Fabric)
	// Overhear is Hear where several share a leaf's flows, of which one knows the
	// flow: it returns why the packet says nothing to this one, and does not count
	// that. Whoever has asked all has one of them count it.
	Overhear(now mono.Time, leaf uint16, hash uint32, f *overlay.Fabric) Ignored
	// Ignore counts a control packet that said nothing to any.
	Ignore(Ignored)
}

// Ignored is why a control packet says nothing to a [Signaller]. Of several, the one
// that got furthest with it has the greatest.
type Ignored uint8

// Reasons to ignore a control packet.
const (
	Heeded        Ignored = iota // it was not ignored
	UnknownLeaf                  // from a leaf that nothing was sent to
	UnknownOpcode                // none of the three
	UnknownFlow                  // RTT_REPLY or CLEAR for a flow that is not in the table
	UnknownPath                  // NOTIFY of a path that no flow could have taken
)

// Signals reports whether a scheme of that name is a [Signaller], whose packets
// are overlay.ShimLen bytes longer.
func Signals(scheme string) bool { return scheme == "conweave" || scheme == "conweave-conga" }

// FlowletPolicy is a Policy that keeps flows on their path while their packets
// follow each other closely.
type FlowletPolicy interface {
	Policy
	// Flowlets returns the table, for the policy's owner to look at.
	Flowlets() *congestion.Flowlets
}

// Stats counts what a policy did. Flowlets and ConWeave are zero for schemes
// without.
type Stats struct {
	Decisions uint64 // times that a path was chosen: once a packet, or once a flowlet
	Flowlets  congestion.FlowletStats
	ConWeave  ConWeaveStats
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
	// Params are CONGA's; the zero value stands for congestion.Datacenter().
	Params congestion.Params
	// Flowlets is the size of the flowlet table; 0: congestion.DefaultFlowlets.
	Flowlets int
	// Samples and Memory are d and m of DRILL(d, m), at most MaxPaths each;
	// both 0: DRILL(2, 1), its authors' choice.
	Samples, Memory int
	// Weights are the uplinks' shares under "static"; all zero: the first
	// usable path takes all.
	Weights [MaxPaths]uint32
	// ConWeave are the parameters of "conweave" and "conweave-conga"; the zero
	// value stands for DatacenterConWeave().
	ConWeave ConWeaveParams
}

// schemes in the order that messages list them.
var schemes = []struct {
	name  string
	build func(*Options) Policy
}{
	{"static", newStatic},
	{"ecmp", newECMP},
	{"spray", newSpray},
	{"local", newLocal},
	{"letflow", newLetFlow},
	{"drill", newDRILL},
	{"conga", newCONGA},
	{"conga-flow", newCONGAFlow},
	{"conweave", newConWeave},
	{"conweave-conga", newConWeaveCONGA},
}

// Names returns the schemes that [New] knows.
func Names() []string {
	names := make([]string, len(schemes))
	for i := range schemes {
		names[i] = schemes[i].name
	}
	return names
}

// New returns the scheme of that name. It reports a name that does not exist
// and options that make no sense.
func New(name string, o Options) (Policy, error) {
	if err := o.complete(); err != nil {
		return nil, fmt.Errorf("scheme %s: %w", name, err)
	}
	for i := range schemes {
		if schemes[i].name == name {
			return schemes[i].build(&o), nil
		}
	}
	return nil, fmt.Errorf("scheme %q does not exist; choose one of: %s", name, strings.Join(Names(), ", "))
}

// complete fills in defaults and reports what makes no sense.
func (o *Options) complete() error {
	if o.Params == (congestion.Params{}) {
		o.Params = congestion.Datacenter()
	}
	if o.Flowlets == 0 {
		o.Flowlets = congestion.DefaultFlowlets
	}
	if o.Samples == 0 && o.Memory == 0 {
		o.Samples, o.Memory = 2, 1
	}
	if o.ConWeave == (ConWeaveParams{}) {
		o.ConWeave = DatacenterConWeave()
	}
	switch {
	case o.Flowlets < 0 || o.Flowlets > 1<<24:
		return fmt.Errorf("flowlet table of %d entries: use 1 to %d", o.Flowlets, 1<<24)
	case o.Samples < 1 || o.Samples > MaxPaths:
		return fmt.Errorf("DRILL with %d samples: use 1 to %d", o.Samples, MaxPaths)
	case o.Memory < 0 || o.Memory > MaxPaths:
		return fmt.Errorf("DRILL with %d remembered: use 0 to %d", o.Memory, MaxPaths)
	}
	if err := o.ConWeave.Validate(); err != nil {
		return err
	}
	return o.Params.Validate()
}
