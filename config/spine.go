package config

import "github.com/loomfabric/loom/config/vocab"

// Spine is the file of spined.
type Spine struct {
	Common `yaml:",inline"`

	// VTEPs are the addresses, or the prefixes, that the leaves' VTEPs are
	// from: VXLAN to them is forwarded here, and everything else is left to
	// the kernel. They may not overlap. Required.
	VTEPs []Prefix `yaml:"vteps"`
	// Scheme is how the spine chooses among a route's next hops, for all packets:
	// one of those that need nothing of the leaf at the far end, as drill. Default:
	// none; next hops then follow the leaves' choice, and a hash where they have none.
	Scheme     string `yaml:"scheme,omitempty"`
	vocab.Keys `yaml:",inline"`
	// Sections are what the scheme shares with leaves.
	Sections vocab.Sections `yaml:",inline"`
	// Ports are the ports towards leaves and other spines. Required.
	Ports []SpinePort `yaml:"ports"`
}

// SpinePort is a port of a spine.
type SpinePort struct {
	// Interface is the name of the network interface. Required.
	Interface string `yaml:"interface"`
	// Required refuses to start without the interface. Otherwise the spine starts with a
	// warning, and the port opens when the interface appears. Default: false.
	Required bool `yaml:"required,omitempty"`
	Egress    `yaml:",inline"`
}
