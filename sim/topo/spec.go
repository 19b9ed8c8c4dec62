// Package topo builds fabrics of the simulator: which switches, links and hosts
// there are, the routes that follow from the links' state, and the faults that
// change it. Routes go up and then down, along shortest paths, as a fabric's
// BGP has them (RFC 7938 §5): no leaf and no spine is a detour.
package topo

import (
	"fmt"

	"github.com/loomfabric/loom/sim/engine"
	"github.com/loomfabric/loom/sim/network"
)

// Kind is a shape of fabric.
type Kind string

// The kinds.
const (
	// LeafSpine has Parallel links from every leaf to every spine.
	LeafSpine Kind = "leaf-spine"
	// FatTree is the k-ary fat-tree (Al-Fares et al., SIGCOMM 2008 §3): k pods
	// of k/2 leaves and k/2 spines, and (k/2)² cores. The j-th spines of all pods
	// share k/2 cores. HostsPerLeaf above k/2 oversubscribes the fabric: 8 hosts
	// with k=8 are 2:1 (ConWeave §4.1.4).
	FatTree Kind = "fat-tree"
	// ThreeLayer has Pods pods of Leaves/Pods leaves and Spines/Pods spines. Each
	// pod is a full mesh, and every spine has a link to every core.
	ThreeLayer Kind = "three-layer"
	// VL2 is the network of Greenberg et al. (SIGCOMM 2009 §4.1): each leaf has
	// links to two of the Spines aggregation switches, and each of these has links
	// to all of the Cores intermediate switches. Leaves are dealt out to pairs of
	// aggregation switches in turn.
	VL2 Kind = "vl2"
)

// Spec is a fabric.
type Spec struct {
	Kind Kind

	Leaves, Spines, Cores int // in all; Spines is the tier above the leaves
	Pods                  int // ThreeLayer; 0: one for each two spines
	K                     int // FatTree
	HostsPerLeaf          int // FatTree: 0 stands for K/2
	// Hosts adds hosts one by one, after those that every leaf has.
	Hosts    []Host
	Parallel int // links of one pair of a leaf and a spine; 0 stands for 1

	NIC    network.PortConfig  // hosts' own interfaces
	Access network.PortConfig  // leaves' ports towards hosts
	Fabric network.PortConfig  // all ports between switches
	Core   *network.PortConfig // those between spines and cores, if they differ
	// Buffer is the packet memory of every switch; nil: ports' own limits only.
	Buffer *network.BufferConfig

	Overrides []Override
	// Faults fail and repair links. Every switch has new routes at once. Faults at
	// time 0 or before have happened when the run starts.
	Faults []Fault
}

// Host is a host with a name behind a leaf.
type Host struct {
	Name string
	Leaf int
}

// Override changes single links.
type Override struct {
	Link string // as in Link.Name
	// Up and Down say which directions; neither: both. Up is away from hosts.
	Up, Down bool
	Rate     uint64 // bits per second; 0: unchanged
	Delay    *engine.Time
	Limit    *uint64
	ECN      *network.ECN
}

// Fault fails or repairs a link.
type Fault struct {
	At   engine.Time
	Link string
	Up   bool
}

// complete fills in defaults and reports sizes that make no sense.
func (s *Spec) complete() error {
	if s.Parallel == 0 {
		s.Parallel = 1
	}
	if s.Kind == "" {
		s.Kind = LeafSpine
	}
	if s.Kind == FatTree {
		if s.K < 2 || s.K%2 != 0 || s.K > 2*maxNext {
			return fmt.Errorf("fat-tree with k = %d: use an even number from 2 to %d", s.K, 2*maxNext)
		}
		half := s.K / 2
		s.Pods, s.Leaves, s.Spines, s.Cores = s.K, s.K*half, s.K*half, half*half
		if s.HostsPerLeaf == 0 && len(s.Hosts) == 0 {
			s.HostsPerLeaf = half
		}
	}
	if s.Kind == ThreeLayer && s.Pods == 0 {
		s.Pods = max(s.Spines/2, 1)
	}
	if s.Core == nil {
		s.Core = &s.Fabric
	}
	return s.checkSizes()
}

func (s *Spec) checkSizes() error {
	switch {
	case s.Leaves < 1 || s.Leaves > maxLeaves:
		return fmt.Errorf("%d leaves: use 1 to %d", s.Leaves, maxLeaves)
	case s.Spines < 1 && s.Leaves > 1:
		return fmt.Errorf("%d leaves and no spine: nothing connects them", s.Leaves)
	case s.Spines < 0 || s.Cores < 0 || s.HostsPerLeaf < 0 || s.Parallel < 0:
		return fmt.Errorf("a number of switches, hosts or links is negative: %d spines, %d cores, %d hosts per leaf, %d parallel links", s.Spines, s.Cores, s.HostsPerLeaf, s.Parallel)
	case s.HostsPerLeaf == 0 && len(s.Hosts) == 0:
		return fmt.Errorf("no hosts: say how many each leaf has")
	case s.HostsPerLeaf*s.Leaves+len(s.Hosts) > maxHosts:
		return fmt.Errorf("%d hosts: at most %d are possible", s.HostsPerLeaf*s.Leaves+len(s.Hosts), maxHosts)
	}
	for _, h := range s.Hosts {
		if h.Leaf < 0 || h.Leaf >= s.Leaves {
			return fmt.Errorf("host %q is behind leaf %d: there are %d leaves", h.Name, h.Leaf, s.Leaves)
		}
	}
	return s.checkTiers()
}

func (s *Spec) checkTiers() error {
	switch s.Kind {
	case LeafSpine, FatTree:
	case ThreeLayer:
		if s.Pods < 1 || s.Leaves%s.Pods != 0 || s.Spines%s.Pods != 0 || s.Spines == 0 {
			return fmt.Errorf("%d leaves and %d spines cannot be dealt out evenly to %d pods", s.Leaves, s.Spines, s.Pods)
		}
		if s.Cores < 1 && s.Pods > 1 {
			return fmt.Errorf("%d pods and no core: nothing connects them", s.Pods)
		}
	case VL2:
		if s.Spines < 2 || s.Spines%2 != 0 {
			return fmt.Errorf("vl2 with %d aggregation switches (spines): each leaf needs a pair of them, so use an even number", s.Spines)
		}
		if s.Cores < 1 && s.Spines > 2 {
			return fmt.Errorf("vl2 with %d aggregation switches and no intermediate one (cores): nothing connects them", s.Spines)
		}
	default:
		return fmt.Errorf("topology %q does not exist: use %s, %s, %s or %s", s.Kind, LeafSpine, FatTree, ThreeLayer, VL2)
	}
	return nil
}

// Limits. Leaves are numbered by 16 bits and kept in tables of that size squared;
// next hops are what a policy and the data plane's routes can have.
const (
	maxLeaves = 4096
	maxHosts  = 1 << 17
	maxNext   = 16
)
