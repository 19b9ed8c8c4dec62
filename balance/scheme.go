package balance

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/internal/field"
	"github.com/loomfabric/loom/internal/units"
	"github.com/loomfabric/loom/overlay"
)

// Scheme describes a scheme: what configuration, validation, the data plane, the
// simulator and the tools need to know of it. A scheme is one file of this
// package with a Scheme for each variant, which it gives to register. Nothing outside
// that file compares a scheme's name.
type Scheme struct {
	// Name is what the configuration knows the scheme by: a-z, 0-9 and dashes.
	Name string
	// Summary is one clause for lists of schemes: "a flow's hash decides".
	Summary string
	// New makes the policy of one worker and class. The options are complete.
	New func(*Options) Policy

	// Wire is the number under which the scheme's marks and messages travel in
	// the fabric's header; 0: it has neither.
	Wire overlay.SchemeID
	// Shim says that packets to capable leaves can carry the shim, which uplinks' MTU
	// has to allow for.
	Shim bool
	// Receiver makes a worker's receiving side, which every leaf has whatever its
	// own classes are: other leaves may use the scheme. nil: there is none. Schemes
	// of one Wire share one, and one of them names it.
	Receiver func(*Options) (Receiver, error)
	// Shared makes what the policies and the receivers of all workers of a leaf have in
	// common, which becomes Options.Shared: atomic words, as workers run at a time. nil:
	// nothing. Schemes of one Wire share one.
	Shared func(*Options) any
	// Switch makes what the policies of a worker have in common about the links of their
	// node: one for all bundles of a spine, one for each class of a leaf. A node hands it
	// its ports, or nil if it has nothing to say. It becomes Options.Switch; nil: there is
	// no such thing.
	Switch func(*Options, Node) Switch
	// Exact says that the scheme wants each packet's exact keys and TCP flags
	// ([View.Exact]), and its receiver those of packets with its shim.
	Exact bool
	// Explores reports whether a packet with such a header is a copy that explores a path:
	// switches that do not know where hosts are would send it on by all their links. nil:
	// none is.
	Explores func(*overlay.Fabric) bool
	// Hosts says that the scheme wants to know the hosts that packets go to (Packet.Host).
	Hosts bool
	// Waits and Copies say that the scheme may use Packet.Until and Packet.Copies.
	Waits, Copies bool
	// Queues says that the scheme decides by the queues of links, so that what one
	// vector adds to them counts for the next one of the same time.
	Queues bool
	// EveryTier says that the scheme is meant for every switch, spines included.
	EveryTier bool
	// NeedsPeer says that the scheme relies on the leaf at the far end, and so is
	// not for spines.
	NeedsPeer bool

	// Gap returns the pause after which a flow may move, and the key of the
	// section "congestion" that sets it; nil: the scheme does not go by pauses, or has
	// one of its own ([Pauser]).
	Gap func(*congestion.Params) (gap time.Duration, key string)
	// Fixed says that a flow stays on its path for life: no reordering is expected.
	Fixed bool

	// Keys returns a pointer to a struct with the defaults of what the scheme is
	// told where it is named, in keys beside `scheme`; nil: nothing. It becomes
	// Options.Keys.
	Keys func() Params
	// Section is the part of the configuration that the scheme shares with others
	// and with the receivers of all leaves; nil: none. It becomes Options.Section.
	Section *Section
}

// Section is a part of the configuration that belongs to schemes.
type Section struct {
	// Name is its key in YAML: "conweave".
	Name string
	// Summary is one sentence for the documentation.
	Summary string
	// New returns a pointer to a struct with a profile's values.
	New func(Profile) Params
	// Profiles are those that New tells apart.
	Profiles []Profile
	// Reloadable are the keys that policies alone go by: a running leaf can take over
	// a change of them. What receivers go by needs a restart.
	Reloadable []string
}

// Params are a scheme's parameters: a pointer to a struct whose fields have the
// tag `yaml:"key"`. Times are time.Durations, amounts of data units.Sizes.
type Params interface {
	// Validate reports the first value that makes no sense. An error about one
	// field is a *FieldError.
	Validate() error
}

// Holder is Params of a scheme whose receiver holds packets.
type Holder interface {
	Params
	// Holds returns how many packets the receiver holds at most.
	Holds() int
	// Limit returns the same parameters with at most so many packets.
	Limit(packets int) Params
}

// Pauser is Params of a scheme that takes nothing of a flow to be under way after a
// pause.
type Pauser interface {
	Params
	// Pause returns the shortest such pause, how long it may be made, and the key that
	// sets it. Queues that take longer let a flow overtake itself.
	Pause() (pause, longest time.Duration, key string)
}

// Selecting is Params of a scheme that chooses among the next hops of the next tier
// ([overlay.PathID]'s selector).
type Selecting interface {
	Params
	// Selectors returns the number of choices that the next tier has.
	Selectors() int
	// WithSelectors returns the same parameters with another number.
	WithSelectors(n int) Params
}

// Reserver is Params of a scheme that tells flows by ports which hosts reserve.
type Reserver interface {
	Params
	// Reserves returns the source ports that a host uses for a flow of so many bytes;
	// empty: any.
	Reserves(bytes uint64) units.Ports
}

// FieldError is what Validate says of one field.
type FieldError = field.Error

var fieldError = field.Errorf

// UplinkParams are Params that depend on how many uplinks a leaf has.
type UplinkParams interface {
	Params
	// FitUplinks reports what does not fit a leaf with n uplinks.
	FitUplinks(n int) error
	// ForUplinks returns the same parameters for uplinks that have these numbers, in the
	// order of the configuration.
	ForUplinks(numbers []uint8) Params
}

// Profile is a set of values that parameters start from.
type Profile uint8

// The profiles.
const (
	// Datacenter has the papers' values, for links of 10 Gbit/s and more.
	Datacenter Profile = iota
	// Lab is for fabrics in software on shared cores, with links of 100 Mbit/s to
	// 1 Gbit/s.
	Lab
	// Auto begins with Lab's values; times that the configuration leaves out then
	// follow from measured round trips.
	Auto
)

var profiles = [...]string{Datacenter: "datacenter", Lab: "lab", Auto: "auto"}

// String returns the profile's name in the configuration.
func (p Profile) String() string {
	if int(p) < len(profiles) {
		return profiles[p]
	}
	return fmt.Sprintf("profile %d", uint8(p))
}

// schemes are all schemes, in the order in which messages list them. It is
// written while the package is initialised and never after.
var schemes []*Scheme

// register adds a scheme to those that there are. A contradiction in it is a
// programming error and panics.
func register(s Scheme) *Scheme {
	if err := s.check(); err != nil {
		panic(fmt.Sprintf("balance: scheme %q: %v", s.Name, err))
	}
	schemes = append(schemes, &s)
	return &s
}

func (s *Scheme) check() error {
	switch {
	case s.Name == "" || s.New == nil || s.Summary == "":
		return errors.New("it needs a name, a summary and a constructor")
	case s.Wire != 0 && !s.Wire.Valid():
		return fmt.Errorf("wire number %d: use 1 to %d but for 8, or 0 for none", s.Wire, overlay.NumSchemes-1)
	case s.Wire == 0 && (s.Shim || s.Receiver != nil || s.Switch != nil || s.Shared != nil):
		return errors.New("a shim, a receiver, a switch or what workers share needs a wire number")
	}
	for _, o := range schemes {
		if o.Name == s.Name {
			return errors.New("it is there twice")
		}
		if s.Wire != 0 && o.Wire == s.Wire && s.Receiver != nil && o.Receiver != nil {
			return fmt.Errorf("%s has a receiver for wire number %d", o.Name, s.Wire)
		}
	}
	return nil
}

// Schemes returns all schemes. The caller must not change them.
func Schemes() []*Scheme { return schemes }

// Names returns the schemes' names.
func Names() []string {
	names := make([]string, len(schemes))
	for i := range schemes {
		names[i] = schemes[i].Name
	}
	return names
}

// Find returns the scheme of a name; nil: there is none.
func Find(name string) *Scheme {
	for _, s := range schemes {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// Sections returns the sections of all schemes, each once.
func Sections() []*Section {
	var all []*Section
	for _, s := range schemes {
		if s.Section != nil && !slices.Contains(all, s.Section) {
			all = append(all, s.Section)
		}
	}
	return all
}

// Named returns the scheme of a name. The error of a name that does not exist says which
// there are.
func Named(name string) (*Scheme, error) {
	if s := Find(name); s != nil {
		return s, nil
	}
	return nil, fmt.Errorf("scheme %q does not exist; choose one of: %s", name, strings.Join(Names(), ", "))
}

// New returns a policy of the scheme of that name. It reports a name that does not
// exist and options that make no sense.
func New(name string, o Options) (Policy, error) {
	s, err := Named(name)
	if err != nil {
		return nil, err
	}
	return s.Policy(o)
}

// Policy returns a policy of the scheme. It reports options that make no sense.
func (s *Scheme) Policy(o Options) (Policy, error) {
	if err := s.Complete(&o); err != nil {
		return nil, fmt.Errorf("scheme %s: %w", s.Name, err)
	}
	return s.New(&o), nil
}

// noPeers are peers of which nothing is known.
type noPeers struct{}

func (noPeers) Present(uint16) uint16 { return 0 }

// Complete fills in what options leave out and reports what makes no sense.
func (s *Scheme) Complete(o *Options) error {
	if o.Congestion == (congestion.Params{}) {
		o.Congestion = congestion.Datacenter()
	}
	if err := o.Congestion.Validate(); err != nil {
		return err
	}
	if o.Keys == nil && s.Keys != nil {
		o.Keys = s.Keys()
	}
	if o.Section == nil && s.Section != nil {
		o.Section = s.Section.New(Datacenter)
	}
	if o.Peers == nil {
		o.Peers = noPeers{}
	}
	for _, p := range []Params{o.Keys, o.Section} {
		if p == nil {
			continue
		}
		if err := p.Validate(); err != nil {
			return err
		}
	}
	return nil
}
