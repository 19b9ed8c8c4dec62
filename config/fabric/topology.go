package fabric

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/loomfabric/loom/config/vocab"
)

// Sizes that hold for every fabric.
const (
	HostMTU   = 1500 // hosts' interfaces, if the file does not say
	VXLANPort = 4789

	// linkMTU is what the links' MTU has more than the hosts': room for the overlay's 50
	// bytes, or 70 over IPv6, the fabric shim and a VLAN tag.
	linkMTU = 100
	// The bounds of hosts' MTU: IPv6's least, and the most that switches commonly take.
	minHostMTU, maxHostMTU = 1280, 9216
)

// UnderlayMTU returns the MTU of the links between leaves and spines, bytes.
func (f *File) UnderlayMTU() int { return f.Hosts.MTU + linkMTU }

// Topology is a fabric expanded into nodes and links. Orders are fixed: leaf by
// leaf, spine by spine, parallel by parallel.
type Topology struct {
	Leaves []Node
	Spines []Node
	Hosts  []Host
	Links  []Link
}

// Node is a leaf or a spine.
type Node struct {
	Name  string     // "L0", "S1"
	Index int        // among the leaves or the spines
	VTEP  netip.Addr // leaves only
}

// Host is one host and its membership.
type Host struct {
	Name  string
	Index int // among all hosts
	Leaf  int
	Port  string // the leaf's interface towards it
	VNI   uint32
	VLAN  uint16
	Addr  netip.Prefix // IPv4
	Addr6 netip.Prefix // IPv6
	MAC   [6]byte
	// Gateway is the address of the VNI's bridge, which all leaves have; invalid if
	// the fabric has no gateways.
	Gateway netip.Addr
	Access  vocab.Link // leaf to host
}

// Link is one leaf–spine link.
type Link struct {
	Name         string // "L0-S1.0"
	Index        int    // in Topology.Links
	Leaf, Spine  int
	Parallel     int
	LeafPort     string     // interface in the leaf
	SpinePort    string     // interface in the spine
	LeafAddr     netip.Addr // both of one /31, or /127
	SpineAddr    netip.Addr
	Up, Down     vocab.Link // leaf to spine, spine to leaf
	LeafUplinkID int        // position among the leaf's uplinks
}

// LinkName is the name of a leaf–spine link.
func LinkName(leaf, spine, parallel int) string {
	return fmt.Sprintf("L%d-S%d.%d", leaf, spine, parallel)
}

// Expand builds the topology of a checked file.
func (f *File) Expand() *Topology {
	t := &Topology{}
	for i := range f.Leaves {
		vtep := f.address(255, i+1)
		t.Leaves = append(t.Leaves, Node{Name: fmt.Sprintf("L%d", i), Index: i, VTEP: vtep})
	}
	for i := range f.Spines {
		t.Spines = append(t.Spines, Node{Name: fmt.Sprintf("S%d", i), Index: i})
	}
	f.expandLinks(t)
	f.expandHosts(t)
	return t
}

// address is the n-th address of a part of the underlay: 10.part.0.0/16, or
// fd00:10:part::/48.
func (f *File) address(part byte, n int) netip.Addr {
	if f.IPv6() {
		return netip.AddrFrom16([16]byte{0: 0xfd, 3: 0x10, 4: part / 100, 5: part/10%10<<4 | part%10, 14: byte(n >> 8), 15: byte(n)})
	}
	return netip.AddrFrom4([4]byte{10, part, byte(n >> 8), byte(n)})
}

func (f *File) expandLinks(t *Topology) {
	for l := range f.Leaves {
		for s := range f.Spines {
			for p := range f.Links.Parallel {
				n := len(t.Links)
				a := 2 * n
				link := Link{
					Name: LinkName(l, s, p), Index: n, Leaf: l, Spine: s, Parallel: p,
					LeafPort:     fmt.Sprintf("up-s%d-%d", s, p),
					SpinePort:    fmt.Sprintf("dn-l%d-%d", l, p),
					LeafAddr:     f.address(254, a),
					SpineAddr:    f.address(254, a+1),
					Up:           f.Links.Link,
					Down:         f.Links.Link,
					LeafUplinkID: s*f.Links.Parallel + p,
				}
				for _, o := range f.Overrides {
					if o.Link == link.Name {
						o.Apply(&link.Up, &link.Down)
					}
				}
				t.Links = append(t.Links, link)
			}
		}
	}
}

// hostNames lists the hosts and their leaves, in the order of their indices.
func (f *File) hostNames() (names []string, leaves []int) {
	for l := range f.Leaves {
		for range f.Hosts.PerLeaf {
			names = append(names, fmt.Sprintf("h%d", len(names)))
			leaves = append(leaves, l)
		}
	}
	for _, h := range f.Hosts.List {
		l, _ := nodeIndex(h.Leaf, 'L', f.Leaves)
		names = append(names, h.Name)
		leaves = append(leaves, l)
	}
	return names, leaves
}

// Select resolves selectors (host names, leaf names, "all") to host indices in
// ascending order.
func (f *File) Select(selectors []string) ([]int, error) {
	names, leaves := f.hostNames()
	picked := make([]bool, len(names))
	for _, s := range selectors {
		found := false
		leaf, isLeaf := nodeIndex(s, 'L', f.Leaves)
		for i := range names {
			if s == "all" || s == names[i] || isLeaf && leaves[i] == leaf {
				picked[i], found = true, true
			}
		}
		if !found {
			return nil, fmt.Errorf("%q is neither a host, nor a leaf with hosts, nor \"all\"; name one of them", s)
		}
	}
	var out []int
	for i, p := range picked {
		if p {
			out = append(out, i)
		}
	}
	return out, nil
}

func (f *File) expandHosts(t *Topology) {
	names, leaves := f.hostNames()
	for i, name := range names {
		t.Hosts = append(t.Hosts, Host{
			Name: name, Index: i, Leaf: leaves[i], Port: "acc-" + name,
			MAC:    [6]byte{0x02, 0x10, 0, 0, byte(i >> 8), byte(i)},
			Access: f.Hosts.Link,
		})
	}
	for _, v := range f.VNIs {
		subnet := netip.MustParsePrefix(v.Subnet)
		members, _ := f.Select(v.Hosts) // which is checked
		for _, i := range members {
			h := &t.Hosts[i]
			h.VNI, h.VLAN = v.VNI, v.VLAN
			if f.FRR.Gateway {
				h.Gateway = lastAddr(subnet)
			}
			h.Addr = netip.PrefixFrom(addrAt(subnet, i+1), subnet.Bits())
			h.Addr6 = netip.PrefixFrom(netip.AddrFrom16([16]byte{
				0: 0xfd, 5: byte(v.VNI >> 16), 6: byte(v.VNI >> 8), 7: byte(v.VNI),
				14: byte((i + 1) >> 8), 15: byte(i + 1)}), 64)
		}
	}
}

// addrAt is the n-th address of an IPv4 prefix.
func addrAt(p netip.Prefix, n int) netip.Addr {
	b := p.Masked().Addr().As4()
	binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+uint32(n))
	return netip.AddrFrom4(b)
}

// Link finds a link by name.
func (t *Topology) Link(name string) (Link, bool) {
	for _, l := range t.Links {
		if l.Name == name {
			return l, true
		}
	}
	return Link{}, false
}

// Host finds a host by name.
func (t *Topology) Host(name string) (Host, bool) {
	for _, h := range t.Hosts {
		if h.Name == name {
			return h, true
		}
	}
	return Host{}, false
}

// VNIsOf lists the VNIs that have a host behind the leaf, in ascending order.
func (t *Topology) VNIsOf(leaf int) []uint32 {
	var out []uint32
	for _, h := range t.Hosts {
		if h.Leaf == leaf && h.VNI != 0 && !slices.Contains(out, h.VNI) {
			out = append(out, h.VNI)
		}
	}
	slices.Sort(out)
	return out
}
