// Package fabric is the model of fabric.yaml: a leaf–spine network, the work
// to put on it and the faults to meet. It is pure data, validation, expansion
// into nodes and links, and the routes that follow from link state; it touches
// no network and no clock, so that the lab and a simulator can share it.
package fabric

import (
	"github.com/loomfabric/loom/balance"
	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/internal/yamlfile"
)

// profile is what the sections of a fabric.yaml start from if they name no
// profile: the lab is a fabric in software.
const profile = balance.Lab

const help = "docs/lab.md"

// File is a fabric.yaml.
type File struct {
	// Name tells labs on one machine apart: a lower-case letter, then lower-case
	// letters, digits or underscores, 15 characters at most. Required.
	Name string `yaml:"name"`
	// Dataplane carries the overlay: loom (leafd and spined) or kernel (Linux's own
	// bridge, vxlan and IP forwarding: a baseline). Default: loom.
	Dataplane string `yaml:"dataplane,omitempty"`
	// Fallback is what carries a leaf's overlay when its daemon is gone: none or kernel
	// (a bridge and a vxlan device for each VNI beside the daemon, as under dataplane
	// kernel but unshaped). Default: none.
	Fallback string `yaml:"fallback,omitempty"`
	// Control finds the routes between leaves: static (loomlab computes them from the links'
	// state) or frr (FRR's daemons run on leaves and spines). Default: static.
	Control string `yaml:"control,omitempty"`
	// Underlay is the family of VTEPs and links: ipv4, or ipv6, which needs control static.
	// Default: ipv4.
	Underlay string `yaml:"underlay,omitempty"`
	// FRR is what FRR does, under control frr.
	FRR FRR `yaml:"frr,omitempty"`
	// Overlay says from where the leafs' daemons have networks and addresses: file (a
	// configuration that loomlab writes, and what they learn) or kernel (its bridges and
	// vxlan devices, under frr.evpn). Default: file.
	Overlay string `yaml:"overlay,omitempty"`
	// ReservedBits makes the kernel's vxlan devices such that they read Loom's header where
	// it has no shim (Linux 6.14): they take over sooner from a leafd that was killed.
	// Default: false.
	ReservedBits bool `yaml:"reserved_bits,omitempty"`
	// FastPath has XDP forward by itself what it can, on leaves and spines: off, auto or on
	// (docs/fast-path.md). Hosts' interfaces have GRO then, as cards have: their ends of the
	// access links would take no frames from XDP otherwise. Default: off.
	FastPath string `yaml:"fast_path,omitempty"`
	// KernelLeaves are leaves without leafd, by name: the kernel's bridge and vxlan
	// devices carry their overlay. Default: none.
	KernelLeaves []string `yaml:"kernel_leaves,omitempty"`
	// Balancing is the scheme of what no class matches.
	vocab.Balancing `yaml:",inline"`
	// Classes are kinds of traffic with a scheme of their own; the first one that
	// matches decides. Default: none.
	Classes []vocab.Class `yaml:"classes,omitempty"`
	// Congestion are the parameters of CONGA.
	Congestion vocab.Congestion `yaml:"congestion,omitempty"`
	// Sections are what schemes share, and what puts rerouted packets in order.
	vocab.Sections `yaml:",inline"`
	// TCP is the hosts' congestion control: a name the kernel knows. Default: cubic,
	// because a run's results should not depend on the machine's.
	TCP string `yaml:"tcp,omitempty"`
	// Subflows makes the hosts' connections those of MPTCP, with so many subflows of
	// their own ports, up to 8. Linux does not couple their congestion controls.
	// Default: 0, plain TCP.
	Subflows int `yaml:"subflows,omitempty"`
	// Leaves is the number of leaves, 1 to 256. Required.
	Leaves int `yaml:"leaves"`
	// Spines is the number of spines, 1 to 16. Required.
	Spines int `yaml:"spines"`
	// Links are the links between every leaf and every spine.
	Links vocab.Links `yaml:"links,omitempty"`
	// Hosts are the hosts. Required.
	Hosts Hosts `yaml:"hosts"`
	// VNIs are the virtual networks. Required.
	VNIs []VNI `yaml:"vnis"`
	// Overrides change single links or single directions of them. Default: none.
	Overrides []vocab.Override `yaml:"overrides,omitempty"`
	// Workloads are the work of a run. Default: none.
	Workloads []vocab.Workload `yaml:"workloads,omitempty"`
	// Faults take links down and up. Default: none.
	Faults []vocab.Fault `yaml:"faults,omitempty"`

	doc *yamlfile.Document
}

// MaxSubflows is the most subflows of a connection. Linux's path manager lets a host
// announce eight ports; here the first subflow counts as well, as in the papers.
const MaxSubflows = 8

// Hosts are a number of hosts behind each leaf (h0, h1, ... leaf by leaf), hosts by
// name, or both: the named ones come last.
type Hosts struct {
	// PerLeaf is the number of hosts behind each leaf.
	PerLeaf int `yaml:"per_leaf,omitempty"`
	// Link is the access link. In the lab its values hold for the leaf's port towards
	// the host; the host itself sends unshaped.
	Link vocab.Link `yaml:"link,omitempty"`
	// MTU is that of the hosts' interfaces, 1280 to 9216 bytes. The links between leaves and
	// spines have 100 more. The simulator knows 1500 only. Default: 1500.
	MTU int `yaml:"mtu,omitempty"`
	// Checksums says who finishes the checksums of TCP and UDP: leaf (hosts' interfaces have
	// the kernel's offloads, as containers' have) or host, as a host with a network card does.
	// Default: leaf.
	Checksums string `yaml:"checksums,omitempty"`
	// List are hosts by name.
	List []NamedHost `yaml:"list,omitempty"`
}

// NamedHost puts one host behind a leaf.
type NamedHost struct {
	// Name is the host's name.
	Name string `yaml:"name"`
	// Leaf is the leaf that the host is behind: L0.
	Leaf string `yaml:"leaf"`
}

// VNI is one virtual network.
type VNI struct {
	// VNI is the VXLAN network identifier, 1 to 16777215. Required.
	VNI uint32 `yaml:"vni"`
	// Hosts are its members: names of hosts, of leaves (all hosts behind them) or all.
	// A host belongs to exactly one VNI. Default: all.
	Hosts []string `yaml:"hosts,omitempty"`
	// VLAN is the tag that the hosts' frames carry on the access link. Default: none.
	VLAN uint16 `yaml:"vlan,omitempty"`
	// Subnet holds the hosts' IPv4 addresses. Two VNIs may use the same one: they are
	// isolated. Default: 10.<100 + position>.0.0/16.
	Subnet string `yaml:"subnet,omitempty"`
}

// Errorf returns a mistake at a path of the file, for those who cannot do what it
// says. The text has the form "problem; remedy".
func (f *File) Errorf(path, format string, args ...any) error {
	return yamlfile.Errors{f.doc.Mistake(path, format, args...)}
}

// SetScheme puts another scheme, with its defaults, in the place of the file's.
// Classes stay. It reports a scheme that the data plane does not have.
func (f *File) SetScheme(name string) error {
	b := vocab.Balancing{Scheme: name}
	errs := b.Check("", 0)
	errs.ErrorIf(f.Dataplane == "kernel" && name != "ecmp" && len(errs) == 0, "scheme", notKernel, name)
	if len(errs) == 0 {
		f.Balancing = b
	}
	return errs.Or()
}

// notKernel is said of schemes under dataplane kernel, which knows Linux's own only.
const notKernel = "scheme %s is not for dataplane kernel; use ecmp, or dataplane loom"
