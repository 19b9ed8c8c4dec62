package config

import (
	"net/netip"
	"time"

	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/internal/units"
)

// Leaf is the file of leafd.
type Leaf struct {
	Common `yaml:",inline"`

	// Overlay says who has the networks, access ports and addresses: file (this file and
	// what leafd learns) or kernel (the machine's bridges and VXLAN devices, as a routing
	// daemon with EVPN sets them up). With kernel, leafd follows them, forwards what it
	// knows, leaves the rest to the kernel and writes nothing there; vtep, vxlan_port,
	// access, vnis and peers may not be given then. Default: file.
	Overlay Overlay `yaml:"overlay,omitempty"`
	// VTEP is this leaf's tunnel address, of IPv4 or IPv6. It must be configured on the
	// machine, usually on lo, and routed to by the fabric. Needed with overlay: file.
	VTEP netip.Addr `yaml:"vtep"`
	// Uplinks are the ports towards the spines, at most 16. With auto they are the
	// interfaces that the kernel's routes to peers lead over, default routes apart, as these
	// come and go; one without routes stays for 5 minutes. Required.
	Uplinks Uplinks `yaml:"uplinks"`
	// Access are the ports towards hosts. Needed with overlay: file.
	Access []Access `yaml:"access"`
	// VNIs are the virtual networks that this leaf has members of. Needed with overlay:
	// file.
	VNIs []VNI `yaml:"vnis"`
	// Peers are the VTEPs of the other leaves; VXLAN from any other address is
	// dropped. Default: none.
	Peers []netip.Addr `yaml:"peers,omitempty"`
	// ControlKeyFile is a file with keys that the fabric's leaves share: a line of 32
	// hexadecimal digits each. Control packets between leaves get a seal made with
	// the first one, and those without a seal of any of them are dropped. It is
	// read at the start. Default: packets are not sealed.
	ControlKeyFile string `yaml:"control_key_file,omitempty"`
	// FastPath has XDP forward by itself, between hosts and the fabric, what needs no queue, no
	// copy and nothing learned: off, auto (where the kernel and the rest of this
	// file let it; else the log says why not) or on (that, or the leaf does not start). It
	// needs Linux 6.3, BTF, ports in native mode, VTEPs of IPv4 and overlay: file; see
	// docs/fast-path.md. A restart or an upgrade puts it in force. Default: off, until it
	// has run for long.
	FastPath FastPath `yaml:"fast_path,omitempty"`
	// FDB bounds the table of MAC addresses.
	FDB FDB `yaml:"fdb,omitempty"`
	// Balancing is the scheme of what no class matches.
	vocab.Balancing `yaml:",inline"`
	// Classes are kinds of traffic with a scheme of their own, at most 15; the
	// first one that matches decides. Default: none.
	Classes []vocab.Class `yaml:"classes,omitempty"`
	// Sections are what schemes share, and what puts packets of other leaves in
	// order.
	vocab.Sections `yaml:",inline"`
}

// Uplinks are listed, or found by the kernel's routes.
type Uplinks []Uplink

// Word is yamlfile.Worded.
func (Uplinks) Word() string { return "auto" }

// Auto reports whether uplinks are found by the kernel's routes.
func (u Uplinks) Auto() bool { return u != nil && len(u) == 0 }

// Uplink is a port towards a spine.
type Uplink struct {
	// Interface is the name of the network interface. Required.
	Interface string `yaml:"interface"`
	// Required refuses to start without the interface. Otherwise the leaf starts with a
	// warning, and the port opens when the interface appears. Default: false.
	Required bool `yaml:"required,omitempty"`
	Egress   `yaml:",inline"`
}

// Access is a port towards hosts.
type Access struct {
	// Interface is the name of the network interface. Required.
	Interface string `yaml:"interface"`
	// Required refuses to start without the interface, and while the kernel keeps its
	// queues for a socket of before. Otherwise the leaf starts with a warning, and the
	// port opens when the interface appears, as that of a virtual machine does, or its
	// queues are free. Default: false.
	Required bool `yaml:"required,omitempty"`
	// VNI is the virtual network of untagged frames. Default: untagged frames
	// are dropped.
	VNI uint32 `yaml:"vni,omitempty"`
	// VLANs maps VLAN IDs (1 to 4094) to the virtual networks of frames with
	// that tag; the tag itself stays on the port. With vni besides, native XDP and
	// a kernel of 6.8 or newer are needed where the network card, or the peer of a
	// veth, takes tags off frames. Default: tagged frames are dropped.
	VLANs map[uint16]uint32 `yaml:"vlans,omitempty"`
	// Transparent carries VLAN tags through the tunnel: every frame of the
	// port, tagged or not, belongs to vni. Default: false.
	Transparent bool `yaml:"transparent,omitempty"`
	// Fail says what becomes of frames from hosts while leafd does not serve the
	// port, as when it was stopped or killed: closed (they are dropped; `ip link
	// set dev IF xdp off` ends that) or open (they are the kernel's; only for
	// ports of a bridge there). Default: closed.
	Fail Fail `yaml:"fail,omitempty"`
	// FDBLimit bounds the MAC addresses learned behind the port, in all its
	// virtual networks together. For each further one the oldest of them is
	// forgotten. Default: only the networks' own limits hold.
	FDBLimit uint32 `yaml:"fdb_limit,omitempty"`
	Egress   `yaml:",inline"`
}

// VNI is one virtual network.
type VNI struct {
	// VNI is the VXLAN network identifier, 1 to 16777215. Required.
	VNI uint32 `yaml:"vni"`
	// Flood lists the VTEPs that get copies of broadcast, unknown-unicast and
	// multicast frames; each must be among peers. An empty list floods to
	// nobody. Default: every peer.
	Flood []netip.Addr `yaml:"flood"`
	// Members lists the peers that have hosts of this network; each must be
	// among peers. VXLAN of the network from others is dropped. Default: every
	// peer.
	Members []netip.Addr `yaml:"members,omitempty"`
	// Storm bounds the frames that hosts of this leaf may have flooded, and
	// four times as much what the fabric brings to be flooded.
	Storm Storm `yaml:"storm,omitempty"`
	// FDBLimit bounds the learned MAC addresses of this network. For each
	// further one the oldest of them is forgotten. Default: its part of
	// fdb.size, all networks having the same, but at least 1024.
	FDBLimit uint32 `yaml:"fdb_limit,omitempty"`
	// Static are MAC addresses that neither age nor move. Default: none.
	Static []Static `yaml:"static,omitempty"`
	// Refresh is how often the kernel is shown a frame of each source, with overlay:
	// kernel. It follows from the ageing time of the bridge.
	Refresh time.Duration `yaml:"-"`
}

// Storm is a token bucket over frames, and one over their bytes.
type Storm struct {
	// Rate is in frames per second and worker. Default: 10000.
	Rate uint32 `yaml:"rate,omitempty"`
	// Bandwidth is of the frames' bytes, per worker. Default: 100Mbit.
	Bandwidth units.Rate `yaml:"bandwidth,omitempty"`
	// Burst is the bucket, in frames. Default: a tenth of a second's frames.
	Burst uint32 `yaml:"burst,omitempty"`
}

// Static is a MAC address that neither ages nor moves: behind a VTEP, or
// behind an access port of this leaf.
type Static struct {
	// MAC is the host's address. Required.
	MAC MAC `yaml:"mac"`
	// VTEP is the leaf that the host is behind; one of peers. Give this or
	// interface.
	VTEP netip.Addr `yaml:"vtep,omitempty"`
	// Interface is the access port that the host is behind. Give this or vtep.
	Interface string `yaml:"interface,omitempty"`
	// VLAN is the tag of the host's frames on interface. Default: untagged.
	VLAN uint16 `yaml:"vlan,omitempty"`
}

// FDB bounds the table of MAC addresses.
type FDB struct {
	// Size is the number of addresses in all. Default: 131072.
	Size int `yaml:"size,omitempty"`
	// Age is how long an address that is not seen stays. Default: 5m.
	Age time.Duration `yaml:"age,omitempty"`
}
