package node

import (
	"time"

	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/congestion"
	"github.com/loomfabric/loom/leaf"
	"github.com/loomfabric/loom/overlay"
	"github.com/loomfabric/loom/sim/network"
)

// Config is what switches are told. All leaves and spines of a fabric use the
// same, but for Seed.
type Config struct {
	// Scheme balances all traffic, with the Keys of Options.
	Scheme  string
	Options balance.Options
	// Congestion are CONGA's parameters.
	Congestion congestion.Params
	// Sections are the schemes' sections of the configuration, by name. What is left
	// out has its datacenter values.
	Sections map[string]balance.Params
	// Senders are schemes that others send by than the fabric's leaves, for tests that
	// make packets themselves.
	Senders []string
	// Auto says which times leaves derive from the round trips that they measure.
	Auto leaf.Auto
	// Plain makes a leaf a plain VTEP: it neither writes nor reads the fabric's header,
	// and says HELLO to nobody. Its Scheme has to do without.
	Plain bool
	// Overhead is what a leaf adds to a packet that goes into the fabric, and
	// Shim what it adds besides if the packet carries the shim, bytes. Both 0
	// compares with papers that do not count them.
	Overhead, Shim uint16
	// Spine is a scheme by which spines choose among next hops, for all packets:
	// local choice at every tier, as DRILL is meant. "": spines follow the selector
	// of packets with the fabric's fields, and a hash of all others.
	Spine        string
	SpineOptions balance.Options
	// Classes are the schemes of further traffic classes, of which ClassOf tells a
	// host's packet's: its index, or len(Classes) for Scheme. nil: all packets have Scheme.
	Classes []leaf.ClassConfig
	ClassOf func(p *network.Packet) int
	// Exact tells what the headers of a host's packet say of its flow exactly, for
	// schemes with Scheme.Exact; nil: nobody knows.
	Exact func(p *network.Packet, x *balance.Exact)
	// Rows, if not 0, is how often tables are made by which flowlets begin at leaves in place
	// of their schemes.
	Rows time.Duration
	// Flood lets spines send what explores (balance.Scheme.Explores) to all leaves.
	Flood bool
	// Seed decides all that is random in a node, and its hashes. Each node
	// needs another one, or tiers polarise.
	Seed uint64
}

// DefaultConfig returns what the data plane does by default.
func DefaultConfig() Config {
	return Config{Scheme: "ecmp", Congestion: congestion.Datacenter(), Overhead: overlay.Overhead, Shim: overlay.ShimLen}
}
