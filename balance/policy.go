// Package balance decides which of the paths to a leaf a packet takes. A
// scheme is a [Policy]; one file a scheme. The package does no I/O, reads no
// clock and draws no randomness of its own: time is an argument, seeds are
// injected, and the data plane and a simulator call the very same code.
//
// The seam is one call a vector, not one a packet: a worker collects the
// packets of a burst that go into the fabric, calls [Policy.Choose] once, and
// a scheme keeps what it needs in registers over its loop.
//
// Every scheme that is here decides on the packet alone. The next ones react,
// and what they react to reaches a worker's Policy the same way as packets do,
// as plain calls of its owner with the time as an argument:
//
//   - time: Choose has now, from which flowlet gaps and ageing are computed
//     lazily. Deadlines (ConWeave's θ_reply) will be asked for by a method that
//     returns the next one and run by one that takes now.
//   - feedback: after decapsulation the worker has the fabric header's fields
//     (overlay.Fabric) and the peer they came from; before encapsulation it has
//     a header to fill in. CONGA needs one method for each, and the local
//     meters (congestion.DRE) of the uplinks.
//
// These methods will be added to Policy with the first scheme that needs them,
// not before: an interface that is guessed at would be guessed wrong.
package balance

import (
	"fmt"
	"strings"

	"github.com/loomfabric/loom/mono"
)

// MaxPaths is the largest number of paths to one leaf: an LBTag has 4 bits
// (CONGA §3.1).
const MaxPaths = 16

// Paths is the set of usable next hops to one destination leaf, in a stable
// order.
type Paths struct {
	N      uint8           // how many of them, at most MaxPaths
	Uplink [MaxPaths]uint8 // LBTag of each path: the uplink that it starts on
}

// Packet is what a policy is told of a packet, and its answer.
type Packet struct {
	Hash uint32 // of the flow, as overlay.Dissect computes it
	Leaf uint16 // destination leaf: indexes Choose's paths
	Len  uint16 // length of the tenant's frame, bytes
	Path uint8  // out: indexes the leaf's Paths; undefined if they are empty
}

// Policy chooses paths. A Policy is owned by one worker: its methods are called
// from one goroutine, and none of them allocates.
type Policy interface {
	// Name is the name that the configuration knows the scheme by.
	Name() string
	// Choose sets Path of every packet. now never decreases by more than a
	// clock's jitter between calls. Each packet's Leaf is below len(paths).
	Choose(now mono.Time, paths []Paths, pkts []Packet)
}

// Names returns the schemes that [New] knows.
func Names() []string { return []string{nameECMP} }

// New returns the scheme of that name. The seed makes nodes decide
// independently of each other; two policies with the same name and seed that
// are given the same calls choose the same paths.
func New(name string, seed uint64) (Policy, error) {
	switch name {
	case nameECMP:
		return newECMP(seed), nil
	}
	return nil, fmt.Errorf("scheme %q does not exist; choose one of: %s", name, strings.Join(Names(), ", "))
}
