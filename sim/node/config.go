package node

import (
	"fmt"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/reorder"
	"github.com/loomfabric/loom/sim/network"
)

// MaxClasses is how many traffic classes a leaf can have, the default one
// included: as in the data plane.
const MaxClasses = 16

// Config is what switches are told. All leaves and spines of a fabric use the
// same, but for Seed and Plain.
type Config struct {
	// Scheme balances what no class matches, with Options, of which Seed and
	// Params are the node's to fill; "": ecmp.
	Scheme  string
	Options balance.Options
	Classes []Class // traffic that is balanced otherwise; the first match decides
	// Congestion are CONGA's parameters; the zero value stands for
	// congestion.Datacenter().
	Congestion congestion.Params
	// Overhead is what a leaf adds to a packet that goes into the fabric, and
	// Shim what it adds besides if the packet carries the shim, bytes. Both 0
	// compares with papers that do not count them.
	Overhead, Shim uint16
	// Spine is a scheme by which spines choose among next hops, for all packets:
	// local choice at every tier, as DRILL is meant. "": the data plane's way,
	// which is the selector of packets with the fabric's fields, and a hash of
	// all others.
	Spine        string
	SpineOptions balance.Options
	// Reorder are the parameters of ConWeave's destination side, for leaves of
	// which a class signals; Leaves and Ports are the node's to fill. The zero
	// value stands for reorder.Datacenter().
	Reorder reorder.Params
	// Seed decides all that is random in a node, and its hashes. Each node
	// needs another one, or tiers polarise.
	Seed uint64
	// Plain makes a leaf one that does not know the fabric's fields: it sends
	// and is sent RFC 7348, and balances by ecmp (incremental deployment: CONGA
	// §7, ConWeave §5).
	Plain bool
	// Tags are those of the flows, for classes that match by tag; nil: all 0.
	Tags *Tags
}

// DefaultConfig returns what the data plane does by default.
func DefaultConfig() Config {
	return Config{Scheme: "ecmp", Congestion: congestion.Datacenter(), Overhead: overlay.Overhead, Shim: overlay.ShimLen}
}

// Class is a kind of traffic and the scheme that balances it.
type Class struct {
	Match   Match
	Scheme  string
	Options balance.Options // Seed and Params are the node's to fill
}

// Match is what packets of a class have. Zero fields mean anything.
type Match struct {
	Tag   uint8 // of the packet's flow, see [Tags]
	Kinds Kinds
}

// Kinds is a set of kinds of packets; the zero set has all.
type Kinds uint8

// MakeKinds returns the set of the given kinds.
func MakeKinds(kinds ...network.Kind) Kinds {
	k := Kinds(0)
	for _, kind := range kinds {
		k |= 1 << kind
	}
	return k
}

func (m Match) hit(tag uint8, kind network.Kind) bool {
	return (m.Tag == 0 || m.Tag == tag) && (m.Kinds == 0 || m.Kinds&(1<<kind) != 0)
}

// Tags says what flows are by a number, which stands for what the data plane's
// classes match in headers: VNI, protocol, port, DSCP. It is shared by all nodes
// of a run.
type Tags struct{ of []uint8 }

// Set gives a flow its tag.
func (t *Tags) Set(f network.FlowID, tag uint8) {
	for int(f) >= len(t.of) {
		t.of = append(t.of, make([]uint8, max(256, len(t.of)))...)
	}
	t.of[f] = tag
}

// Get returns a flow's tag, 0 if it was never set.
func (t *Tags) Get(f network.FlowID) uint8 {
	if t == nil || int(f) >= len(t.of) {
		return 0
	}
	return t.of[f]
}

// complete fills in defaults and reports what makes no sense.
func (c *Config) complete() error {
	if c.Congestion == (congestion.Params{}) {
		c.Congestion = congestion.Datacenter()
	}
	if err := c.Congestion.Validate(); err != nil {
		return fmt.Errorf("congestion: %w", err)
	}
	if c.Congestion.Q > congestion.WireQ {
		return fmt.Errorf("congestion: Q is %d: at most %d bits fit the fabric's header", c.Congestion.Q, congestion.WireQ)
	}
	if c.Scheme == "" {
		c.Scheme = "ecmp"
	}
	if len(c.Classes) >= MaxClasses {
		return fmt.Errorf("%d traffic classes: at most %d, besides the default one", len(c.Classes), MaxClasses-1)
	}
	return nil
}
