// Package topo builds fabrics of the simulator: which switches, links and hosts
// there are, the routes that follow from the links' state, and the faults that
// change it. Routes go up and then down, along shortest paths, as a fabric's
// BGP has them (RFC 7938 §5): no leaf and no spine is a detour.
package topo

import (
	"fmt"

	"github.com/loomfabric/loom/config/fabric"
	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/internal/units"
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
	// share k/2 cores. More than k/2 hosts a leaf oversubscribe the fabric: 8 hosts
	// with k=8 are 2:1 (ConWeave §4.1.4).
	FatTree Kind = "fat-tree"
	// ThreeLayer has a pod for each two spines, to which leaves are dealt out. Each
	// pod is a full mesh, and every spine has a link to every core.
	ThreeLayer Kind = "three-layer"
	// VL2 is the network of Greenberg et al. (SIGCOMM 2009 §4.1): each leaf has
	// links to two of the Spines aggregation switches, and each of these has links
	// to all of the Cores intermediate switches. Leaf t has the switches t and t+1,
	// modulo their number.
	VL2 Kind = "vl2"
	// Tree is a tree with several roots (Zhang et al., CAAR, Figure 19): each leaf has a
	// link to one of the Spines aggregation switches, and each of these has links to all
	// of the Cores. Leaves are dealt out in blocks, as evenly as they go.
	Tree Kind = "tree"
)

// Spec is a fabric.
type Spec struct {
	Kind Kind

	Leaves, Spines, Cores int // in all; Spines is the tier above the leaves
	K                     int // FatTree

	Links vocab.Links  // between switches; Parallel, of a leaf and a spine, 0 stands for 1
	Hosts fabric.Hosts // with leaves' ports towards them; FatTree: none stands for K/2 a leaf
	NIC   vocab.Link   // hosts' own interfaces
	// Unlimited is the rate of links that have none; 0: each needs one.
	Unlimited units.Rate
	// Buffer is the packet memory of every switch; nil: ports' own limits only.
	Buffer *network.BufferConfig

	Overrides []vocab.Override
	// Faults fail and repair links. Every switch has new routes at once. Faults at
	// time 0 have happened when the run starts.
	Faults []vocab.Fault
	// Plain are leaves that are plain VTEPs under ecmp.
	Plain []string
	// Down is how many links between switches are down at time 0, drawn by DownSeed.
	Down     int
	DownSeed uint64
	// Split gives each switch, with its hosts, a part of the network of its own, so that
	// they can run side by side (network.Network.Part).
	Split bool

	pods int // FatTree, ThreeLayer
}

// Unshaped is what links of a fabric.yaml carry that the lab does not shape, such as
// hosts' own interfaces: about what a veth does.
const Unshaped = 10_000_000_000

// FromFile returns the fabric that a checked fabric.yaml describes: switches,
// links, hosts, overrides and faults. What it says of schemes, workloads, VNIs
// and TCP is not topology. A rate that it leaves out, which the lab takes for
// unlimited, is Unshaped.
func FromFile(f *fabric.File) Spec {
	return Spec{
		Kind: LeafSpine, Leaves: f.Leaves, Spines: f.Spines, Links: f.Links, Hosts: f.Hosts, Unlimited: Unshaped,
		Overrides: f.Overrides, Faults: f.Faults,
	}
}

// complete fills in defaults and reports sizes that make no sense.
func (s *Spec) complete() error {
	s.Links.Parallel = max(s.Links.Parallel, 1)
	if s.Kind == FatTree {
		if s.K < 2 || s.K%2 != 0 || s.K > 2*maxNext {
			return fmt.Errorf("fat-tree with k = %d: use an even number from 2 to %d", s.K, 2*maxNext)
		}
		half := s.K / 2
		s.pods, s.Leaves, s.Spines, s.Cores = s.K, s.K*half, s.K*half, half*half
		if s.Hosts.PerLeaf == 0 && len(s.Hosts.List) == 0 {
			s.Hosts.PerLeaf = half
		}
	}
	if s.Kind == ThreeLayer {
		s.pods = max(s.Spines/2, 1)
	}
	return s.checkSizes()
}

func (s *Spec) checkSizes() error {
	switch {
	case s.Leaves < 1 || s.Leaves > maxLeaves:
		return fmt.Errorf("%d leaves: use 1 to %d", s.Leaves, maxLeaves)
	case s.Spines < 1 && s.Leaves > 1:
		return fmt.Errorf("%d leaves and no spine: nothing connects them", s.Leaves)
	case s.Spines < 0 || s.Cores < 0 || s.Hosts.PerLeaf < 0 || s.Links.Parallel < 0:
		return fmt.Errorf("a number of switches, hosts or links is negative: %d spines, %d cores, %d hosts per leaf, %d parallel links", s.Spines, s.Cores, s.Hosts.PerLeaf, s.Links.Parallel)
	case s.Hosts.PerLeaf == 0 && len(s.Hosts.List) == 0:
		return fmt.Errorf("no hosts: say how many each leaf has")
	case s.Hosts.PerLeaf*s.Leaves+len(s.Hosts.List) > maxHosts:
		return fmt.Errorf("%d hosts: at most %d are possible", s.Hosts.PerLeaf*s.Leaves+len(s.Hosts.List), maxHosts)
	}
	return s.checkTiers()
}

func (s *Spec) checkTiers() error {
	switch s.Kind {
	case LeafSpine, FatTree:
	case ThreeLayer:
		if s.pods < 1 || s.Leaves%s.pods != 0 || s.Spines%s.pods != 0 || s.Spines == 0 {
			return fmt.Errorf("%d leaves and %d spines cannot be dealt out evenly to %d pods", s.Leaves, s.Spines, s.pods)
		}
		if s.Cores < 1 && s.pods > 1 {
			return fmt.Errorf("%d pods and no core: nothing connects them", s.pods)
		}
	case Tree:
		if s.Spines < 1 || s.Cores < 1 && s.Spines > 1 {
			return fmt.Errorf("tree with %d aggregation switches (spines) and %d roots (cores): nothing connects the leaves", s.Spines, s.Cores)
		}
	case VL2:
		if s.Spines < 2 {
			return fmt.Errorf("vl2 with %d aggregation switches (spines): each leaf needs a pair of them, so use at least 2", s.Spines)
		}
		if s.Cores < 1 && s.Spines > 2 {
			return fmt.Errorf("vl2 with %d aggregation switches and no intermediate one (cores): nothing connects them", s.Spines)
		}
	default:
		return fmt.Errorf("topology %q does not exist: use %s, %s, %s, %s or %s", s.Kind, LeafSpine, FatTree, ThreeLayer, VL2, Tree)
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
