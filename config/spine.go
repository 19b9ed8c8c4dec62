package config

import "github.com/loomfabric/loom/config/vocab"

// Spine is the file of spined.
type Spine struct {
	Common `yaml:",inline"`

	// VTEPs are the addresses, or the prefixes, that the leaves' VTEPs are
	// from, of IPv4, IPv6 or both: VXLAN to them is forwarded here, and everything else is left to
	// the kernel. They may not overlap. With any, VXLAN is forwarded here to every
	// destination that the kernel routes by way of ports, but for this machine's own
	// addresses: leaves come and go without an edit. Required.
	VTEPs VTEPs `yaml:"vteps"`
	// Scheme is how the spine chooses among a route's next hops, for all packets:
	// one of those that need nothing of the leaf at the far end, as drill. Default:
	// none; next hops then follow the leaves' choice, and a hash where they have none.
	Scheme     string `yaml:"scheme,omitempty"`
	vocab.Keys `yaml:",inline"`
	// Sections are what the scheme shares with leaves.
	Sections vocab.Sections `yaml:",inline"`
	// FastPath has XDP forward by itself what needs no queue, no copy and no new decision:
	// off, auto (where the kernel and the rest of this file let it; else the log says why
	// not) or on (that, or the spine does not start). It needs Linux 6.3, BTF, and ports in
	// native mode; see docs/fast-path.md. A restart or an upgrade puts it in force.
	// Default: off, until it has run for long.
	FastPath FastPath `yaml:"fast_path,omitempty"`
	// Ports are the ports towards leaves and other spines. With auto they are the
	// interfaces that the kernel's routes to single addresses lead over, as these come and
	// go; one without routes stays for 5 minutes. Required, unless vteps is any: then auto.
	Ports SpinePorts `yaml:"ports"`
}

// SpinePort is a port of a spine.
type SpinePort struct {
	// Interface is the name of the network interface. Required.
	Interface string `yaml:"interface"`
	// Required refuses to start without the interface. Otherwise the spine starts with a
	// warning, and the port opens when the interface appears. Default: false.
	Required bool `yaml:"required,omitempty"`
	Egress   `yaml:",inline"`
}

// VTEPs are prefixes, or any destination that ports lead to.
type VTEPs []Prefix

// Word is yamlfile.Worded.
func (VTEPs) Word() string { return "any" }

// Any reports whether routes say which destinations are the fabric's.
func (v VTEPs) Any() bool { return v != nil && len(v) == 0 }

// SpinePorts are listed, or found by the kernel's routes.
type SpinePorts []SpinePort

// Word is yamlfile.Worded.
func (SpinePorts) Word() string { return "auto" }

// Auto reports whether ports are found by the kernel's routes.
func (p SpinePorts) Auto() bool { return p != nil && len(p) == 0 }
