package fabric

import (
	"cmp"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/loomfabric/loom/config/vocab"
	"github.com/loomfabric/loom/internal/units"
	"github.com/loomfabric/loom/internal/yamlfile"
)

// Limits. The data plane's tables set the first two: at most 16 next hops a
// route, 4 bits of LBTag.
const (
	maxUplinks = 16
	maxVNIs    = 4096
	maxLeaves  = 256
	maxSpines  = 16
	maxHosts   = 1024
)

var (
	nameRE = regexp.MustCompile(`^[a-z][a-z0-9_]{0,14}$`)
	// acc-<host> must fit an interface name of 15 characters.
	hostRE = regexp.MustCompile(`^[a-z][a-z0-9_]{1,10}$`)
	autoRE = regexp.MustCompile(`^h[0-9]+$`)
)

// nodeIndex reads "L3" (kind 'L') if it is below n.
func nodeIndex(name string, kind byte, n int) (int, bool) {
	if len(name) < 2 || name[0] != kind {
		return 0, false
	}
	i, err := strconv.Atoi(name[1:])
	if err != nil || i < 0 || i >= n || strconv.Itoa(i) != name[1:] {
		return 0, false
	}
	return i, true
}

func (f *File) setDefaults() {
	f.Dataplane = cmp.Or(f.Dataplane, "loom")
	f.Fallback = cmp.Or(f.Fallback, "none")
	f.setFRR()
	f.Scheme = cmp.Or(f.Scheme, "ecmp")
	f.TCP = cmp.Or(f.TCP, "cubic")
	f.FastPath = cmp.Or(f.FastPath, "off")
	f.Hosts.Checksums = cmp.Or(f.Hosts.Checksums, "leaf")
	f.Hosts.MTU = cmp.Or(f.Hosts.MTU, HostMTU)
	f.Links.Parallel = cmp.Or(f.Links.Parallel, 1)
	for _, l := range []*vocab.Link{&f.Links.Link, &f.Hosts.Link} {
		l.Queue = cmp.Or(l.Queue, 256_000)
		l.ECN.Complete()
	}
	for i := range f.VNIs {
		v := &f.VNIs[i]
		v.Subnet = cmp.Or(v.Subnet, fmt.Sprintf("10.%d.0.0/16", 100+i%100))
		if len(v.Hosts) == 0 {
			v.Hosts = []string{"all"}
		}
	}
	for i := range f.Overrides {
		o := &f.Overrides[i]
		o.Direction = cmp.Or(o.Direction, "both")
		if o.ECN != nil {
			o.ECN.Complete()
		}
	}
	for i := range f.Workloads {
		setWorkload(&f.Workloads[i], i, f.Hosts.Link.Rate)
	}
}

// validator collects everything that is wrong with a file.
type validator struct {
	file *File
	*yamlfile.Document
	yamlfile.Errors
}

func (v *validator) run() {
	f := v.file
	v.ErrorIf(!nameRE.MatchString(f.Name), "name", "%q cannot name a lab; use a lower-case letter, then up to 14 lower-case letters, digits or underscores", f.Name)
	v.OneOf("dataplane", "dataplane", f.Dataplane, "loom", "kernel")
	v.OneOf("fallback", "fallback", f.Fallback, "none", "kernel")
	v.ErrorIf(f.Subflows < 0 || f.Subflows > MaxSubflows, "subflows", "%d subflows; use 1 to %d, which is what Linux can make between two addresses, or leave it out for TCP", f.Subflows, MaxSubflows)
	v.ErrorIf(f.Fallback == "kernel" && f.Dataplane == "kernel", "fallback", "there is no daemon whose place the kernel could take; remove it, or use dataplane loom")
	v.shape()
	v.control()
	v.balancing()
	v.link("links", &f.Links.Link)
	v.link("hosts.link", &f.Hosts.Link)
	v.overrides()
	if v.hosts() { // members and endpoints make sense only then
		v.vnis()
		v.gateways()
		v.workloads()
	}
	v.faults()
}

// balancing checks schemes and what they are told.
func (v *validator) balancing() {
	f := v.file
	uplinks := max(f.Spines*f.Links.Parallel, 0)
	v.Add(f.Balancing.Check("", uplinks))
	v.Add(vocab.CheckClasses(v.Document, f.Classes, uplinks, func(vni uint32) bool {
		return slices.ContainsFunc(f.VNIs, func(n VNI) bool { return n.VNI == vni })
	}))
	if f.Dataplane == "kernel" {
		v.ErrorIf(f.Scheme != "ecmp", "scheme", notKernel, f.Scheme)
		v.ErrorIf(len(f.Classes) > 0, "classes", "dataplane kernel has no classes; remove them, or use dataplane loom")
	}
	v.Add(f.Congestion.Resolve(profile))
	v.Add(f.Sections.Resolve(f.Congestion.Profile))
}

func (v *validator) shape() {
	f := v.file
	v.ErrorIf(f.Leaves < 1 || f.Leaves > maxLeaves, "leaves", "%d leaves; use 1 to %d", f.Leaves, maxLeaves)
	v.ErrorIf(f.Spines < 1 || f.Spines > maxSpines, "spines", "%d spines; use 1 to %d", f.Spines, maxSpines)
	v.ErrorIf(f.Links.Parallel < 1 || f.Links.Parallel*f.Spines > maxUplinks, "links.parallel",
		"%d parallel links to %d spines; a leaf has 1 to %d uplinks", f.Links.Parallel, f.Spines, maxUplinks)
}

func (v *validator) link(path string, l *vocab.Link) {
	v.ErrorIf(l.Rate > 0 && l.Rate < minRate, path+".rate", "%v is too slow to be shaped; use at least 64kbit, or 0 for no shaper", l.Rate)
	v.ErrorIf(l.Rate == 0 && l.Delay == 0 && l.ECN != (vocab.ECN{}), path+".ecn", "without a rate no queue builds up that could be marked; set rate")
	minQueue := units.Size(2 * v.file.UnderlayMTU())
	v.ErrorIf(l.Queue < minQueue || l.Queue > 1<<30, path+".queue", "a queue of %v; use %d bytes (two frames) to 1GiB", l.Queue, minQueue)
	v.ErrorIf(l.Delay > 10*time.Second, path+".delay", "a delay of %v; use at most 10s", l.Delay)
	v.Add(l.ECN.Check(path + ".ecn"))
	if len(v.file.KernelLeaves) > 0 {
		v.ErrorIf(l.Delay > 0, path+".delay", "the kernel of a leaf in kernel_leaves cannot delay; remove it, or kernel_leaves")
		v.ErrorIf(l.ECN != (vocab.ECN{}), path+".ecn", "the kernel of a leaf in kernel_leaves cannot mark; remove it, or kernel_leaves")
	}
	if v.file.Dataplane == "kernel" {
		v.ErrorIf(l.Delay > 0, path+".delay", "dataplane kernel cannot delay; remove it, or use dataplane loom")
		v.ErrorIf(l.ECN != (vocab.ECN{}), path+".ecn", "dataplane kernel cannot mark; remove it, or use dataplane loom")
	}
}

// exists checks a link's name and reports whether there is such a link.
func (v *validator) exists(path, name string) bool {
	f := v.file
	var l, s, p int
	if n, _ := fmt.Sscanf(name, "L%d-S%d.%d", &l, &s, &p); n == 3 && name == LinkName(l, s, p) &&
		l >= 0 && l < f.Leaves && s >= 0 && s < f.Spines && p >= 0 && p < f.Links.Parallel {
		return true
	}
	v.Errorf(path, "no link is called %q; links are L0-S0.0 to %s", name, LinkName(f.Leaves-1, f.Spines-1, f.Links.Parallel-1))
	return false
}

func (v *validator) overrides() {
	seen := map[string]bool{}
	for i, o := range v.file.Overrides {
		path := fmt.Sprintf("overrides[%d]", i)
		if !v.OneOf(path+".direction", path+".direction", o.Direction, vocab.Directions...) || !v.exists(path+".link", o.Link) {
			continue
		}
		for _, d := range vocab.Directions[:2] {
			if o.Direction != d && o.Direction != "both" {
				continue
			}
			v.ErrorIf(seen[o.Link+d], path+".link", "%s is overridden twice in direction %s; remove one of the two", o.Link, d)
			seen[o.Link+d] = true
		}
		up, down := v.file.Links.Link, v.file.Links.Link
		o.Apply(&up, &down)
		if o.Direction == "down" {
			up = down
		}
		v.link(path, &up)
	}
}

func (v *validator) hosts() bool {
	before := len(v.Errors)
	h := v.file.Hosts
	if v.ErrorIf(h.PerLeaf < 0, "hosts.per_leaf", "%d hosts a leaf; use 0 or more", h.PerLeaf) {
		return false
	}
	v.ErrorIf(h.MTU < minHostMTU || h.MTU > maxHostMTU, "hosts.mtu", "an MTU of %d; use %d to %d bytes", h.MTU, minHostMTU, maxHostMTU)
	seen := map[string]bool{}
	for i, n := range h.List {
		path := fmt.Sprintf("hosts.list[%d]", i)
		switch {
		case !hostRE.MatchString(n.Name) || n.Name == "all":
			v.Errorf(path+".name", "%q cannot name a host; use a lower-case letter, then 1 to 10 lower-case letters, digits or underscores", n.Name)
		case h.PerLeaf > 0 && autoRE.MatchString(n.Name):
			v.Errorf(path+".name", "%q may clash with the names that per_leaf gives (h0, h1, ...); use another one", n.Name)
		case seen[n.Name]:
			v.Errorf(path+".name", "host %q is defined twice; remove one of the two", n.Name)
		}
		seen[n.Name] = true
		_, ok := nodeIndex(n.Leaf, 'L', v.file.Leaves)
		v.ErrorIf(!ok, path+".leaf", "%q is not a leaf; leaves are L0 to L%d", n.Leaf, v.file.Leaves-1)
	}
	total := len(h.List) + h.PerLeaf*max(v.file.Leaves, 0)
	v.ErrorIf(total == 0, "hosts", "a fabric without hosts; set per_leaf or list")
	v.ErrorIf(total > maxHosts, "hosts", "%d hosts; use at most %d", total, maxHosts)
	return len(v.Errors) == before && v.file.Leaves > 0
}

func (v *validator) vnis() {
	f := v.file
	names, _ := f.hostNames()
	member := make([]int, len(names)) // position of the VNI + 1
	seen := map[uint32]bool{}
	v.ErrorIf(len(f.VNIs) == 0 || len(f.VNIs) > maxVNIs, "vnis", "%d virtual networks; use 1 to %d", len(f.VNIs), maxVNIs)
	for i, n := range f.VNIs {
		path := fmt.Sprintf("vnis[%d]", i)
		v.ErrorIf(n.VNI == 0 || n.VNI >= 1<<24, path+".vni", "VNI %d is out of range; use 1 to 16777215", n.VNI)
		v.ErrorIf(seen[n.VNI], path+".vni", "VNI %d is defined twice; merge the two entries", n.VNI)
		seen[n.VNI] = true
		v.ErrorIf(n.VLAN > 4094, path+".vlan", "VLAN %d is out of range; use 1 to 4094, or 0 for untagged", n.VLAN)
		p, err := netip.ParsePrefix(n.Subnet)
		v.ErrorIf(err != nil || !p.Addr().Is4() || p.Bits() < 8 || 1<<(32-p.Bits()) < len(names)+2, path+".subnet",
			"%q is not an IPv4 prefix with room for %d hosts; use for instance 10.100.0.0/16", n.Subnet, len(names))
		hosts, err := f.Select(n.Hosts)
		v.ErrorIf(err != nil, path+".hosts", "%v", err)
		for _, h := range hosts {
			if m := member[h]; m > 0 {
				v.Errorf(path+".hosts", "host %s is already in VNI %d; a host has one: name it once", names[h], f.VNIs[m-1].VNI)
			} else {
				member[h] = i + 1
			}
		}
	}
	for h, m := range member {
		v.ErrorIf(m == 0 && len(f.VNIs) > 0, "vnis", "host %s is in no VNI; name it in a VNI's hosts", names[h])
	}
}

func (v *validator) faults() {
	for i, flt := range v.file.Faults {
		path := fmt.Sprintf("faults[%d]", i)
		switch {
		case (flt.Fail == "") == (flt.Restore == ""):
			v.Errorf(path, "a fault that does nothing, or two things; give one of fail and restore")
		case flt.Fail != "":
			v.exists(path+".fail", flt.Fail)
		default:
			v.exists(path+".restore", flt.Restore)
		}
	}
}
