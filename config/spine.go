package config

// Spine is the file of spined.
type Spine struct {
	Common `yaml:",inline"`

	// VTEPs are the addresses, or the prefixes, that the leaves' VTEPs are
	// from: VXLAN to them is forwarded here, and everything else is left to
	// the kernel. They may not overlap. Required.
	VTEPs []Prefix `yaml:"vteps"`
	// Ports are the ports towards leaves and other spines. Required.
	Ports []SpinePort `yaml:"ports"`
}

// SpinePort is a port of a spine.
type SpinePort struct {
	// Interface is the name of the network interface. Required.
	Interface string `yaml:"interface"`
	Egress    `yaml:",inline"`
}
